"""The graph a command works on: a graph or plan file, a problem text, or either on stdin."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from graphdnn.errors import MalformedFile
from graphdnn.files import LARGEST_FILE, PLAN_FORMAT, graph_from_json, plan_from_json
from graphdnn.fusion import NO_LIMITS, Limits
from graphdnn.graph import OperationGraph
from graphdnn.problem import parse
from graphdnn.rules import Rule

FILE = Rule(
    id="cli.file",
    expected="a readable file, or a problem text",
    reason="the file cannot be read: {detail}",
    fix="check the path; a problem text looks like 'conv x=f32[8,64,56,56] w=f32[64,64,3,3] pad=1 + relu'",
)
HELP = (
    "a graph file, a plan file (its graph and limits; engines are ranked anew, for --device), - for stdin, or a text"
    " like 'conv x=f32[8,64,56,56] w=f32[64,64,3,3] pad=1 + bias + relu'"
)


def graph_of(argument: str) -> OperationGraph:
    """Raises ``MalformedFile`` or ``BadParam`` for what is not a graph."""
    return graph_from_text(read_source(argument))


def graph_from_text(text: str) -> OperationGraph:
    """What a file or the text itself says."""
    return graph_and_limits_from_text(text)[0]


def graph_and_limits(argument: str) -> tuple[OperationGraph, Limits]:
    """As ``graph_of``, with the limits of its fusion, which only a plan file has."""
    return graph_and_limits_from_text(read_source(argument))


def graph_and_limits_from_text(text: str) -> tuple[OperationGraph, Limits]:
    """The same for the content of a file, or for a problem text."""
    if is_problem(text):
        return parse(text).build_operation_graph(), NO_LIMITS
    if is_plan(text):
        fused = plan_from_json(text).config.fused
        return fused.graph, fused.limits
    return graph_from_json(text), NO_LIMITS


def is_problem(text: str) -> bool:
    """Whether it is a problem text; graphs and plans are JSON."""
    return not text.lstrip().startswith("{")


def read_source(argument: str) -> str:
    """The content of a file or of stdin, or the argument itself where it is a problem text."""
    if argument == "-" or _is_path(argument):
        return read_file(argument)
    return argument


def read_file(argument: str) -> str:
    """The content of a file, or of stdin for -. Raises ``MalformedFile`` when it cannot be read."""
    if argument == "-":
        return sys.stdin.read(LARGEST_FILE + 1)
    try:
        with Path(argument).open(encoding="utf-8") as file:
            return file.read(LARGEST_FILE + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise MalformedFile(FILE.reject("command line", "file", argument, detail=_said(error))) from None


def _said(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else "it is not UTF-8 text"


def _is_path(argument: str) -> bool:
    """A problem text has spaces and an equals sign; what ends like a file or exists is one."""
    try:
        return argument.endswith((".json", ".txt")) or (argument != "" and Path(argument).exists())
    except OSError:  # too long for a name
        return False


def is_plan(text: str) -> bool:
    """Whether it is a plan file, by what it says of itself."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(data, dict) and data.get("format") == PLAN_FORMAT

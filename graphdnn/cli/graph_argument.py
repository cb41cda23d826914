"""The graph a command works on: a graph or plan file, a problem text, or either on stdin."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO, TypeVar

from graphdnn.errors import BadParam, MalformedFile
from graphdnn.files import LARGEST_FILE, PLAN_FORMAT, config_from_json, graph_from_json
from graphdnn.fusion import NO_LIMITS, FusionLimits
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.heuristics import EngineConfig
from graphdnn.problem import parse
from graphdnn.rules import Rule

FILE = Rule(
    id="cli.file",
    expected="a readable file{else_}",
    reason="the file cannot be read: {detail}",
    fix="check the path",
)
_TEXT = ", or a text like 'conv x=f32[8,64,56,56] w=f32[64,64,3,3] pad=1 + relu'"
T = TypeVar("T")
HELP = (
    "a graph file, a plan file (its engines, knobs and device, unless options say otherwise), - for stdin, or a text"
    " like 'conv x=f32[8,64,56,56] w=f32[64,64,3,3] pad=1 + bias + relu'"
)


@dataclass(frozen=True, slots=True)
class GraphArgument:
    """What an argument says."""

    text: str  # of the file, or the problem text
    graph: OperationGraph
    limits: FusionLimits = NO_LIMITS  # of the fusion, which only a plan file has
    planned: EngineConfig | None = None  # of a plan file: its engines, knobs and device


def read_argument(argument: str, text: str | None = None) -> GraphArgument:
    """``text``: what was read of the argument already. Raises ``MalformedFile`` or ``BadParam`` for no graph."""
    text = read_source(argument) if text is None else text
    with naming(argument):
        if is_problem(text):
            return GraphArgument(text, parse(text).build_operation_graph())
        if is_plan(text):
            config = config_from_json(text)
            return GraphArgument(text, config.fused.graph, config.fused.limits, config)
        return GraphArgument(text, graph_from_json(text))


@contextmanager
def naming(argument: str) -> Iterator[None]:
    """What is wrong with a file is said with its name."""
    try:
        yield
    except (MalformedFile, BadParam) as error:
        if isinstance(error, BadParam) and not is_path(argument):
            raise  # the text itself is in the message
        named = "stdin" if argument == "-" else argument if is_path(argument) else "the text"
        rejections = [replace(r, where=named if r.where == "FILE" else f"{named}: {r.where}") for r in error.rejections]
        said = type(error)(rejections)
        said.subject = error.subject
        raise said from error


def read_as(argument: str, read: Callable[[str], T]) -> T:
    """A file of another format by its reader; what is wrong with it is said with its name."""
    text = read_file(argument)
    with naming(argument):
        return read(text)


def is_problem(text: str) -> bool:
    """Whether it is a problem text; graphs and plans are JSON."""
    return not text.lstrip().startswith("{")


def read_source(argument: str) -> str:
    """The content of a file or of stdin, or the argument itself where it is a problem text."""
    if argument == "-" or is_path(argument):
        return read_file(argument, _TEXT)
    return argument


def read_file(argument: str, else_: str = "") -> str:
    """The content of a file, or of stdin for -. Raises ``MalformedFile`` when it cannot be read.

    ``else_``: what the argument might have been instead.
    """
    try:
        if argument == "-":
            return _stdin().read(LARGEST_FILE + 1)
        with Path(argument).open(encoding="utf-8") as file:
            return file.read(LARGEST_FILE + 1)
    except (OSError, UnicodeDecodeError) as error:
        detail = _said(error, argument)
        raise MalformedFile(FILE.reject("command line", "file", argument, detail=detail, else_=else_)) from None


def _stdin() -> TextIO:
    """Raises ``OSError`` in a process that was started without one."""
    if sys.stdin is None:
        raise OSError("there is no stdin")
    return sys.stdin


def _said(error: Exception, argument: str) -> str:
    if isinstance(error, IsADirectoryError):
        inside = sorted(Path(argument).glob("*.json"))
        return "it is a folder" + (f"; {inside[0]} is in it" if inside else "")
    return (error.strerror or str(error)) if isinstance(error, OSError) else "it is not UTF-8 text"


def is_path(argument: str) -> bool:
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

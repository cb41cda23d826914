"""Environment switches, in one table, and the lines they print on stderr.

A line is ``graphdnn,EVENT,field,...``; the first line of each event is preceded by one that names its fields. What a
line about a plan or a graph ends with repeats it: a command, commas and all, so it is the last field.
Callers test ``debug.verbose`` or ``debug.asks(...)`` before they work out anything to print.
"""

from __future__ import annotations

import os
import sys

from graphdnn.escaped import escaped

PROFILER = "NVTX_INJECTION64_PATH"  # set by Nsight's tools for the process that they watch
VERBOSE, DEBUG = "GRAPHDNN_VERBOSE", "GRAPHDNN_DEBUG"

# What GRAPHDNN_DEBUG may hold, separated by commas; GRAPHDNN_VERBOSE=1 prints the events.
SWITCHES: dict[str, str] = {
    "fusion": "the fused operations of each plan",
    "rank": "the ranking that each plan was chosen from",
    "source": "a file with the text of each kernel that is compiled, and its name",
    "ptxas": "registers, spills and shared memory of each kernel",
    "nvtx": "a range for each plan and kernel, for Nsight; on by itself under a profiler",
    "lineinfo": "kernels carry line numbers, for profilers and compute-sanitizer",
}
EVENTS: dict[str, tuple[str, ...]] = {
    "build": ("plan", "device", "hit or miss", "ms", "repeat"),
    "execute": ("plan", "device", "ms", "repeat"),
    "fusion": ("plan", "kernel", "rule", "operations", "repeat"),
    "unfused": ("plan", "edge", "rule", "why", "repeat"),
    "rank": ("graph", "device", "mode", "place", "configuration", "predicted us", "workspace", "repeat"),
    "declined": ("graph", "device", "mode", "engine", "kernel", "rule", "why", "repeat"),
    "kernel": ("kernel", "architecture", "origin", "ms"),
    "resources": ("kernel", "entry", "registers", "stack", "spill stores", "spill loads", "shared"),
    "source": ("kernel", "file"),
    "note": ("about", "what"),
}

verbose = False
marks_ranges = False
watches = False  # one of the two: all that an execution has to ask
switches: frozenset[str] = frozenset()
_named: set[str] = set()  # events whose fields were named
_said: set[tuple[str, str]] = set()


def read_environment() -> None:
    """Take over the variables as they are now; done once on import."""
    global verbose, switches, marks_ranges, watches  # noqa: PLW0603  a caller's test is one attribute of this module
    verbose = os.environ.get(VERBOSE, "0").strip() not in ("", "0")
    asked = frozenset(word.strip() for word in os.environ.get(DEBUG, "").split(",")) - {""}
    switches = asked & SWITCHES.keys()
    marks_ranges = "nvtx" in switches or PROFILER in os.environ
    watches = verbose or marks_ranges
    for word in sorted(asked - switches):
        say(DEBUG, f"{word} is none of {' '.join(SWITCHES)}")


def asks(switch: str) -> bool:
    """Whether GRAPHDNN_DEBUG holds this switch."""
    return switch in switches


def line(event: str, *fields: object, repeat: str = "") -> None:
    """Print one event, whether or not it was asked for: that is the caller's test. ``repeat``: the last field."""
    if event not in _named:
        _named.add(event)
        _write("template", event, *EVENTS[event])
    _write(event, *fields, repeat=repeat)


def say(about: str, what: str) -> None:
    """Print something that the user should know without having asked, once in a process."""
    if (about, what) not in _said:
        _said.add((about, what))
        line("note", about, what)


def _write(*fields: object, repeat: str = "") -> None:
    if sys.stderr is None:
        return  # a windowed process
    text = ",".join(escaped(" ".join(str(field).replace(",", ";").split())) for field in ("graphdnn", *fields))
    text += f",{repeat}" if repeat else ""
    try:
        print(text, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        return  # nobody is left to read it


read_environment()

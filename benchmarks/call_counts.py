"""Functions, files and calls of this library that a convolution with bias and ReLU passes, step by step.

    python benchmarks/call_counts.py [DEVICE] [--write]

Prints a table. Modules are loaded, and a plan of another operation is built, before the first count. A profile (h200)
needs no GPU: its kernels come from the kernel cache, so the second run counts no compilation. The plan that is executed
is a plan for the CPU. The last row counts all functions of the steps "describe", "plan, other extents" and "execute"
once, and adds their calls. ``--write`` stores the counts, which docs/size.md shows.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import graphdnn
from graphdnn import Graph

PACKAGE = graphdnn.__file__.removesuffix("__init__.py")
STORED = Path(__file__).resolve().parent / "results" / "call_counts.json"


@dataclass
class Counts:
    """Called functions by their code, and the number of calls."""

    calls: dict[CodeType, int] = field(default_factory=dict)

    def note(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE):
            self.calls[code] = self.calls.get(code, 0) + 1

    @property
    def files(self) -> set[str]:
        return {code.co_filename for code in self.calls}

    def row(self) -> tuple[int, int, int]:
        """Functions, files, calls."""
        return len(self.calls), len(self.files), sum(self.calls.values())

    def __add__(self, other: Counts) -> Counts:
        codes = dict.fromkeys((*self.calls, *other.calls))
        return Counts({code: self.calls.get(code, 0) + other.calls.get(code, 0) for code in codes})


def counted(work: Callable[[], object]) -> Counts:
    """The calls of one function. Frames of other packages are not counted."""
    counts = Counts()
    sys.setprofile(counts.note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return counts


def described(n: int, device: str) -> tuple[Graph, tuple[Any, ...]]:
    """The graph and its tensors that have memory: x, w, bias, y."""
    graph = Graph(io_data_type="float16", device=device)
    x = graph.tensor([n, 64, 14, 14], stride=[12544, 1, 896, 64])
    w = graph.tensor([64, 64, 3, 3], stride=[576, 1, 192, 64])
    bias = graph.tensor([1, 64, 1, 1])
    y = graph.relu(graph.bias(graph.conv_fprop(x, w, padding=1), bias)).set_output(True)
    return graph, (x, w, bias, y)


def rows(device: str) -> dict[str, tuple[int, int, int]]:
    """Functions, files and calls of each step."""
    graphdnn.prepare(device)
    first = Graph(io_data_type="float16", device=device)
    first.relu(first.tensor([1, 64, 14, 14])).set_output(True)
    first.build()
    first_convolution = _plan_of(1, device)
    for n in (2, 3):
        described(n, device)[0].build()
    describe = counted(lambda: described(3, device))
    other_extents, equal_graph, execute = _plan_of(4, device), _plan_of(4, device), _execution()
    steps = {
        "plan, first convolution": first_convolution,
        "describe": describe,
        "plan, other extents": other_extents,
        "plan, equal graph": equal_graph,
        "execute, known arrays": execute,
        "describe, plan and execute": describe + other_extents + execute,
    }
    return {step: counts.row() for step, counts in steps.items()}


def _plan_of(n: int, device: str) -> Counts:
    """The calls from a description to the plan."""
    graph, _ = described(n, device)
    return counted(graph.build)


def _execution() -> Counts:
    """The calls of an execution on the CPU, with arrays of earlier calls."""
    graph, tensors = described(1, "cpu")
    plan = graph.build()
    arrays = {t.get_uid(): plan.new_array(t.spec()) for t in tensors}
    for _ in range(2):
        graph.execute(arrays)
    return counted(lambda: graph.execute(arrays))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("device", nargs="?", default="h200", help="a profile or a GPU")
    parser.add_argument("--write", action="store_true", help=f"store the counts in {STORED.name}")
    arguments = parser.parse_args()
    steps = rows(arguments.device)
    print(f"{'':40} {'functions':>9} {'files':>6} {'calls':>7}")
    for step, (functions, files, calls) in steps.items():
        print(f"{step:40} {functions:9} {files:6} {calls:7}")
    if arguments.write:
        python = ".".join(map(str, sys.version_info[:2]))
        document = {"device": arguments.device, "python": python, "steps": steps}
        STORED.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

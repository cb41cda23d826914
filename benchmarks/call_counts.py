"""Functions, files and calls of this library that a convolution with bias and ReLU goes through, step by step.

    python benchmarks/call_counts.py [DEVICE]

Prints a table. Modules are loaded, and a plan of another operation was built, before the first count. A profile (h200)
needs no GPU: its kernels come from the kernel cache, so the second run counts no compilation. The plan that is executed
is one for the CPU.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

import graphdnn
from graphdnn import Graph

PACKAGE = graphdnn.__file__.removesuffix("__init__.py")


@dataclass
class Counts:
    """What was called: functions by their code, and how often."""

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


def counted(work: Callable[[], object]) -> Counts:
    """The calls of one function. Frames of other packages are not counted."""
    found = Counts()
    sys.setprofile(found.note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return found


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
    found = {"plan, first convolution": _plan_of(1, device)}
    for n in (2, 3):
        described(n, device)[0].build()
    found["describe"] = counted(lambda: described(3, device)).row()
    found["plan, other extents"] = _plan_of(4, device)
    found["plan, equal graph"] = _plan_of(4, device)
    graph, tensors = described(1, "cpu")
    plan = graph.build()
    arrays = {t.get_uid(): plan.new_array(t.spec()) for t in tensors}
    for _ in range(2):
        graph.execute(arrays)
    found["execute on the CPU, known arrays"] = counted(lambda: graph.execute(arrays)).row()
    return found


def _plan_of(n: int, device: str) -> tuple[int, int, int]:
    """From a description to the plan."""
    graph, _ = described(n, device)
    return counted(graph.build).row()


if __name__ == "__main__":
    table = rows(sys.argv[1] if len(sys.argv) > 1 else "h200")
    print(f"{'':40} {'functions':>9} {'files':>6} {'calls':>7}")
    for step, (functions, files, calls) in table.items():
        print(f"{step:40} {functions:9} {files:6} {calls:7}")

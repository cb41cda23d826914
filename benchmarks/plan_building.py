"""Time to build plans: an equal graph, another shape of a known class, a kernel that is on disk, a new kernel.

    python benchmarks/plan_building.py [DEVICE]

Prints JSON: what a new process spends on the first plan of each class, in seconds, and then on other shapes and equal
graphs, in microseconds (least, middle). Kernels are where GRAPHDNN_CACHE_DIR says. A profile (h200) needs no GPU: plans
are built up to where they would be loaded.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CLASSES = {
    "conv": "conv x=f16[{n},64,28,28]nhwc w=f16[64,64,3,3]nhwc pad=1 + bias + relu",
    "wgrad": "wgrad x=f16[{n},64,28,28]nhwc dy=f16[{n},64,28,28]nhwc dw=[64,64,3,3] pad=1",
    "matmul": "matmul a=f16[{n},256,512] b=f16[{n},512,512] + bias + gelu",
    "pointwise": "pointwise x=f16[{n},64,28,28]nhwc + bias + relu + mul",
    "norm": "norm layer x=f16[{n},768]",
}
FIRST, WARM, COUNT = 24, 8, 32  # shapes: from which n on, how many before the clock starts, how many for each figure


def graph(name: str, n: int) -> Any:
    from graphdnn.problem import parse

    return parse(CLASSES[name].format(n=n)).build_operation_graph()


def seconds(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    start = clock()
    work()
    return clock() - start


def first_plans(device: str) -> dict[str, float]:
    """Seconds of the first plan of each class in this process, once all modules are loaded."""
    from graphdnn import build, prepare

    prepare(device)
    build(graph("pointwise", 1), "cpu")  # what every first graph loads
    found = {}
    for name in CLASSES:
        made = graph(name, FIRST)
        found[name] = seconds(lambda made=made: build(made, device))
    return found


def other_shapes(name: str, device: str, count: int = COUNT) -> dict[str, list[float]]:
    """Microseconds (least, middle) of plans of shapes that are new, and of the same graph once more: the processor's,
    which is all there is to it, and does not count what else the machine does.
    """
    from graphdnn import build

    graphs = [graph(name, FIRST + i) for i in range(WARM + count)]
    for made in graphs[:WARM]:
        build(made, device)
    times = {"other shape": [], "equal graph": []}
    for made in graphs[WARM:]:
        for spent in times.values():
            spent.append(seconds(lambda made=made: build(made, device), time.thread_time) * 1e6)
    return {key: least_and_middle(spent) for key, spent in times.items()}


def least_and_middle(spent: Sequence[float]) -> list[float]:
    return [min(spent), statistics.median(spent)]


def in_new_processes(device: str) -> dict[str, dict[str, Any]]:
    """By class: seconds of a new kernel and of one on disk, microseconds of shapes and equal graphs after that."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "GRAPHDNN_CACHE_DIR": folder, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, str(Path(__file__)), device]
        runs = [
            subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
            for _ in range(2)
        ]
    new, kept = (json.loads(run.stdout) for run in runs)
    return {
        name: {"new kernel": new["first"][name], "on disk": kept["first"][name], **kept["later"][name]}
        for name in CLASSES
    }


def main(device: str) -> None:
    first = first_plans(device)
    print(json.dumps({"first": first, "later": {name: other_shapes(name, device) for name in CLASSES}}))


if __name__ == "__main__":
    main(*sys.argv[1:] or ["h200"])

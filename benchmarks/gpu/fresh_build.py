"""Seconds that a process spends on its first plan and on its second. Run by ``host.py``, once per figure.

    python benchmarks/gpu/fresh_build.py DEVICE

Prints JSON. The kernel cache is where GRAPHDNN_CACHE_DIR says. Modules are loaded and the device is woken before the
clock of the plans starts; how long that took is told apart.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path


def main(device: str) -> None:
    start = time.perf_counter()
    sys.path[:0] = [str(Path(__file__).resolve().parents[depth]) for depth in (1, 2)]
    sys.path = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]
    from gpu.host import tiny_graph
    from graphdnn import build, prepare

    imported = time.perf_counter()
    if device != "cpu":
        import cupy

        cupy.zeros(1).sum().get()
    woken = time.perf_counter()
    prepare(device)
    prepared = time.perf_counter()
    graphs = tiny_graph(), tiny_graph()
    marks = [time.perf_counter()]
    for graph in graphs:
        build(graph, device)
        marks.append(time.perf_counter())
    times = {"import": imported - start, "prepare": prepared - woken}
    print(json.dumps({**times, "first": marks[1] - marks[0], "second": marks[2] - marks[1]}))


if __name__ == "__main__":
    main(sys.argv[1])

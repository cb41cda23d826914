"""How long the fusion pass and ``explain`` take, with margins for machines that do other work beside."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import pytest
from long_graphs import SHAPES, layers

import graphdnn
from graphdnn import OperationGraph, rank
from graphdnn.cli.commands import explain


def _seconds(work: Any, repeats: int = 3) -> float:
    """Of this thread: what takes longer than others let it run would else seem to take far longer."""
    found = []
    for _ in range(repeats):
        start = time.thread_time()
        work()
        found.append(time.thread_time() - start)
    return min(found)


def test_explain_of_a_small_graph_is_quick() -> None:
    """50 ms on a machine that does nothing else; it may be three times as long here."""
    operations = layers(4)
    graphdnn.prepare("h200")

    def work() -> None:
        graph = OperationGraph.of(operations, name=str(time.perf_counter()))  # a graph that no ranking is kept of
        explain.as_text(rank(graph, "h200"))

    work()
    assert _seconds(work) < 0.150


def test_explain_loads_no_more_than_it_shows() -> None:
    """Tuning and certificates, a fifth of a second of the first call."""
    code = (
        "import sys; from graphdnn.cli import main; main(['explain', 'conv x=f32[1,4,8,8] w=f32[4,4,3,3] + relu']);"
        "print([m for m in sys.modules if m.startswith(('graphdnn.tuning.', 'graphdnn.analysis.certificate'))], file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stderr.splitlines()[-1] == "[]", ended.stderr


@pytest.mark.long
def test_explain_of_a_large_graph_takes_seconds() -> None:
    """2 s; it may be three times as long where other work runs beside it."""
    operations = layers(500)
    graphdnn.prepare("h200")
    assert _seconds(lambda: explain.as_text(rank(OperationGraph.of(operations), "h200")), 2) < 6.0


@pytest.mark.parametrize("shape", SHAPES)
def test_fusing_takes_time_in_proportion(shape: str) -> None:
    small, large = (OperationGraph.of(SHAPES[shape](n)) for n in (200, 800))
    assert _seconds(lambda: graphdnn.fuse(large)) < 4 * 2.5 * max(_seconds(lambda: graphdnn.fuse(small)), 0.002)


@pytest.mark.long
@pytest.mark.parametrize("shape", SHAPES)
def test_fusing_ten_thousand_operations(shape: str) -> None:
    small, large = (OperationGraph.of(SHAPES[shape](n)) for n in (1000, 10000))
    assert len(large.operations) > 9900
    assert _seconds(lambda: graphdnn.fuse(large)) < 10 * 2.5 * _seconds(lambda: graphdnn.fuse(small))

"""Configurations that a tuner would try, tunings that were not run, and the records of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from graphdnn import Filters, HeurMode, OperationGraph, device_spec, fuse
from graphdnn.analysis.median_statistics import Interval
from graphdnn.heuristics import Ranking
from graphdnn.problem import parse
from graphdnn.tuning import Database, Trial, Tuned, Verdict
from graphdnn.tuning.candidates import Candidates, candidates_of
from graphdnn.tuning.database.record import Record
from graphdnn.tuning.result import Spent

CONV = "conv x=f32[1,4,8,8] w=f32[4,4,3,3] pad=1 + relu"

CPU = device_spec("cpu")


def graph_of(text: str = CONV) -> OperationGraph:
    return parse(text).build_operation_graph()


def tuned(graph: OperationGraph, order: tuple[int, ...] = (3, 0, 1, 2), step: float = 1e-3) -> Tuned:
    """A tuning that was not run: configurations of mode B in this order, ``step`` seconds apart."""
    ranking = Ranking(fuse(graph), CPU, HeurMode.B)
    trials = []
    for place, i in enumerate(order):
        median = step * (1 + place)
        verdict = Verdict.SLOWER if place else Verdict.FASTEST
        interval = Interval(median, 0.9 * median, 1.1 * median)
        trials.append(Trial(ranking[i], i, verdict, samples=[median] * 7, interval=interval, kernels=1))
    return Tuned(tuple(trials), HeurMode.B, Spent(1.0, 0.9, 0.0), "")


def records(count: int = 4, problem: str = "p") -> list[Record]:
    """A tuning as the database has it."""
    with Database(":memory:") as database:
        database.add(tuned(graph_of()))
        found = database.records()
    return [replace(found[0], problem=problem, place=i, choices=(replace(found[0].choices[0], operations=(i,)),))
            for i in range(count)]  # fmt: skip


def offered(text: str, device: str, mode: HeurMode = HeurMode.B, **options: Any) -> Candidates:
    fused = fuse(graph_of(text))
    return candidates_of(
        fused, device_spec(device), mode, options.pop("filters", Filters()), None,
        any_class=options.pop("any_class", False), without=options.pop("without", ()),
    )  # fmt: skip

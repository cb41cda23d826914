"""GOALS: what the library aims at on an H200, held against the figures that ``benchmarks/gpu.py`` wrote.

A goal is kept by each of its cases, or by the geometric mean of them. It reads files alone, so it needs no GPU.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any, Literal

from graphdnn.engines.renames import current_names

RESULTS = Path(__file__).resolve().parents[1] / "results"
LONG_US = 90.0  # of a row in fp16 that tensor cores bound, not memory
TEN_GFLOP = 10e9
TUNED = "tuned"  # where the files of runs lie that tried more than the first choice

Row = Mapping[str, Any]
Rows = Mapping[str, Row]  # by case
Groups = Mapping[str, Rows]


@dataclass(frozen=True, slots=True)
class Figure:
    """``of(row, groups)`` is None where the row has none, or where the goal does not speak of it."""

    name: str
    better: Literal["more", "less"]
    of: Callable[[Row, Groups], float | None]

    def worst(self, values: Iterable[tuple[float, str]]) -> tuple[float, str]:
        return min(values) if self.better == "more" else max(values)


def _own_half(row: Row, groups: Groups) -> float | None:
    half = groups.get("dense", {}).get(f"{row['case'].rsplit('_', 2)[0]}_f16")
    return half["ours"]["us"] / row["ours"]["us"] if half and half["ours"]["us"] > LONG_US else None


def _of_first_choice(row: Row, _: Groups) -> float | None:
    """cuDNN's heuristics begin with plans for int32 that its later ones beat by far; who asks no further gets those."""
    first = next((p["time"] for p in row["peers"] if p["label"].endswith("its first choice")), None)
    return first["us"] / row["ours"]["us"] if first and row["flops"] > TEN_GFLOP else None


RATIO = Figure("times the peer", "more", lambda row, _: row["ratio"])
FIRST = Figure("times cuDNN's first choice", "more", _of_first_choice)
COPY = Figure("times the copy", "less", lambda row, _: row["times_copy"])
RATE = Figure("T/s", "more", lambda row, _: row["tera_flops"])
TIME = Figure("us", "less", lambda row, _: row["ours"]["us"])
OWN_HALF = Figure("times our fp16", "more", _own_half)
REGRET = Figure("times the best tried", "less", lambda row, _: row["regret"])


@dataclass(frozen=True, slots=True)
class Goal:
    what: str
    group: str
    cases: str  # patterns with spaces between; what begins with - is left out
    figure: Figure
    bound: float
    mean: bool = False

    def has(self, case: str) -> bool:
        words = self.cases.split()
        kept, left_out = [w for w in words if w[0] != "-"], [w[1:] for w in words if w[0] == "-"]
        return _matches(case, kept) and not _matches(case, left_out)

    def values(self, groups: Groups) -> list[tuple[float, str]]:
        rows = (row for case, row in groups.get(self.group, {}).items() if self.has(case) and row["status"] == "ok")
        found = ((self.figure.of(row, groups), row["case"]) for row in rows)
        return [(value, case) for value, case in found if value is not None]

    @property
    def asked(self) -> str:
        how = "at least" if self.figure.better == "more" else "at most"
        return f"{'in the mean ' if self.mean else ''}{how} {self.bound:g} {self.figure.name}"


def _matches(case: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(case, pattern) for pattern in patterns)


VGG = "vgg_3x3_256"
GOALS: tuple[Goal, ...] = (
    Goal("fp16 and bf16, bias, ReLU", "dense", f"*_f16 *_bf16 -{VGG}*", RATIO, 1.05),
    Goal("the same, VGG's layer", "dense", f"{VGG}_f16 {VGG}_bf16", RATIO, 1.0),
    Goal("fp16 and bf16, bias, ReLU", "dense", "*_f16 *_bf16", RATIO, 1.3, mean=True),
    Goal("the same, VGG's layer", "dense", f"{VGG}_f16 {VGG}_bf16", RATE, 750),
    Goal("fp16, bias, residual, ReLU", "residual", "*", RATIO, 1.05),
    Goal("fp16 data gradients", "dgrad", f"*_f16 -{VGG}*", RATIO, 1.05),
    Goal("the same, VGG's layer", "dgrad", f"{VGG}*_f16", RATIO, 1.0),
    Goal("fp16 data gradients", "dgrad", "*_f16", RATIO, 1.2, mean=True),
    Goal("fp16 filter gradients", "wgrad", "*", RATIO, 1.05),
    Goal("fp16 filter gradients", "wgrad", "*", RATIO, 1.4, mean=True),
    Goal("TF32", "dense", "*_tf32", RATIO, 1.0),
    Goal("TF32", "dense", "*_tf32", RATIO, 1.2, mean=True),
    Goal("TF32 data gradients", "dgrad", "*_tf32", RATIO, 1.0),
    Goal("TF32 data gradients", "dgrad", "*_tf32", RATIO, 1.2, mean=True),
    Goal("first layer (C = 3)", "depthwise", "stem_fprop", RATIO, 3.5),
    Goal("first layer, data gradient", "depthwise", "stem_dgrad", RATIO, 3.0),
    Goal("first layer, filter gradient", "depthwise", "stem_wgrad", RATIO, 1.5),
    Goal("4 channels a group", "depthwise", "g4_fprop", RATIO, 2.2),
    Goal("depthwise 3x3", "depthwise", "dw3_fprop dw3s2_fprop", RATIO, 1.4),
    Goal("depthwise 7x7", "depthwise", "dw7_fprop", RATIO, 3.2),
    Goal("depthwise 7x7", "depthwise", "dw7_fprop", TIME, 80),
    Goal("depthwise 3x3, bias, ReLU6", "depthwise", "dw3_fprop", COPY, 1.1),
    Goal("depthwise 5x5, bias, ReLU6", "depthwise", "dw5_fprop", COPY, 1.5),
    Goal("depthwise gradients", "depthwise", "dw*_dgrad dw*_wgrad", RATIO, 1.2),
    Goal("int8 to int8 and fp32, fused", "bytes", "*_i8 *_f32", RATIO, 1.1),
    Goal("int8 to int8 and fp32, fused", "bytes", "*_i8 *_f32", RATIO, 1.6, mean=True),
    Goal("the same, where fp16 takes 90 us", "bytes", "*_i8 *_f32", OWN_HALF, 1.75),
    Goal("int8 to int32, above 10 GFLOP", "bytes", "*_i32", FIRST, 25),
    Goal("int8 to int32, VGG's layer", "bytes", f"{VGG}*_i32", RATE, 1330),
    Goal("int16 exact in int64, VGG's layer", "integers", f"{VGG}_i16_i64", RATE, 380),
    Goal("int32 modulo 2^32, VGG's layer", "integers", f"{VGG}_i32_i32", RATE, 170),
    Goal("int16 and int32, 30 filters of 100x100", "integers", "template_*_i32", RATIO, 3.0),
    Goal("strict fp32, dense", "fp32", "* -dw_* -resnext_*", RATIO, 1.5),
    Goal("strict fp32", "fp32", "*", RATIO, 2.5, mean=True),
    Goal("NCHW, fp16", "nchw", "*", RATIO, 1.3),
    Goal("one image", "dense", "*_b1_f16", RATIO, 1.2),
    Goal("first choice of the ranking", TUNED, "*", REGRET, 1.2),
    Goal("first choice of the ranking", TUNED, "*", REGRET, 1.05, mean=True),
    Goal("memory-bound, forward", "memory", "* -sum_* -bn_train* -bn_backward*", COPY, 1.1),
    Goal("sums of channels", "memory", "sum_*", COPY, 1.15),
    Goal("batch normalization, training and gradient", "memory", "bn_train* bn_backward*", COPY, 1.4),
    Goal("LSTM, two layers", "rnn", "*", RATIO, 1.0),
    Goal("execute, four CuPy arrays", "host", "execute", TIME, 5),
    Goal("replay", "host", "replay", TIME, 3),
    Goal("plan, kernel on disk", "host", "build_new_process_cached", TIME, 5000),
    Goal("plan, another shape of a known class", "host", "build_other_shape_*", TIME, 500),
    Goal("first kernel of a class", "host", "build_new_process_cold", TIME, 1_500_000),
)


def read(folder: Path = RESULTS) -> Groups:
    """Rows by group and case, of the files that runs wrote; ``tuned``: those of ``--tune N --json results/tuned``."""
    groups = {data["group"]: {row["case"]: row for row in data["results"]} for data in _files(folder)}
    rows = (row for data in _files(folder / TUNED) for row in data["results"])
    return {**groups, TUNED: {row["case"]: row for row in rows}}


def _files(folder: Path) -> Iterator[Any]:
    return (json.loads(current_names(path.read_text(encoding="utf-8"))) for path in sorted(folder.glob("gpu_*.json")))


HEADING = ("goal", "asked", "measured", "of", "reached")


def lines(groups: Groups) -> list[tuple[str, str, str, str, str]]:
    """A line for each goal: what, what is asked, the worst case or the mean, which or of how many, yes or no."""
    return [_line(goal, groups) for goal in GOALS]


def _line(goal: Goal, groups: Groups) -> tuple[str, str, str, str, str]:
    values = goal.values(groups)
    if not values:
        return goal.what, goal.asked, "-", "", "not measured"
    value, case = goal.figure.worst(values)
    where = f"{case}, the worst of {len(values)}" if len(values) > 1 else case
    if goal.mean:
        value, where = geometric_mean(v for v, _ in values), f"{len(values)} cases"
    reached = value >= goal.bound if goal.figure.better == "more" else value <= goal.bound
    return goal.what, goal.asked, f"{value:.4g}", where, "yes" if reached else "no"


def text(groups: Groups) -> str:
    rows = [HEADING, *lines(groups)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADING))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )

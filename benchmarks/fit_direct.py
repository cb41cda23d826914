"""Fit the constants of direct convolutions on tensor cores to measured_h200.json, and leave out each layer.

    python benchmarks/fit_direct.py

For each table of times: the constant that fits all rows, each layer weighed equally; then, for each layer, the constant
that fits the others, and how far the prediction for that layer is from what was measured. Nothing is written.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log, sqrt
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # graphdnn from this checkout

from graphdnn.device_selection import device_spec
from graphdnn.engines import Task
from graphdnn.engines.cuda.codegen.cost import device_cost
from graphdnn.engines.cuda.direct.direct import DEFAULTS, wishes
from graphdnn.engines.cuda.direct.direct_operands import Sides
from graphdnn.engines.cuda.direct.direct_wgrad import shape_of
from graphdnn.engines.cuda.direct.measured_tiles import FILE
from graphdnn.engines.cuda.direct.sliding_mma import sliding_mma, sliding_mma_wgrad
from graphdnn.fusion import fuse
from graphdnn.problem import parse

Predict = Callable[[float], float]  # microseconds, of the constant
_GRID = [constant / 100 for constant in range(50, 301, 5)]


@dataclass(frozen=True, slots=True)
class Pair:
    """A problem, its measured time in microseconds, and its prediction."""

    problem: str
    us: float
    predict: Predict


def _prediction(problem: str) -> Predict:
    device = device_spec("h200")
    task = Task(fuse(parse(problem).build_operation_graph()).operations[0], device)
    wished = wishes(DEFAULTS)
    if problem.startswith("wgrad"):
        gradient = shape_of(task.op)
        tile = sliding_mma_wgrad.choose(gradient, device, wished)
        assert tile is not None
        return lambda share: (
            device_cost(task, sliding_mma_wgrad.seconds(gradient, tile, device, share), launches=2).microseconds
        )
    shape = Sides.of(task.op).shape
    walk = sliding_mma.choose(shape, device, wished)
    assert walk is not None
    return lambda share: device_cost(task, sliding_mma.seconds(shape, walk, device, share)).microseconds


def layers(table: str) -> dict[tuple[object, ...], list[Pair]]:
    """The pairs of a table by layer: batch, channels, columns, filter and stride, whatever the direction."""
    found: dict[tuple[object, ...], list[Pair]] = {}
    for row in json.loads(FILE.read_text(encoding="utf-8"))[table]["rows"]:
        p = parse(row["problem"]).build_operation_graph().operations[0].problem
        key = (p.n, p.groups, p.c, p.input, p.filter, p.stride)
        found.setdefault(key, []).append(Pair(row["problem"], row["us"], _prediction(row["problem"])))
    return found


def away(pairs: Sequence[Pair], constant: float) -> float:
    """The mean square of the logarithm of prediction over measurement."""
    return sum(log(pair.predict(constant) / pair.us) ** 2 for pair in pairs) / len(pairs)


def fit(of_layers: Mapping[tuple[object, ...], Sequence[Pair]]) -> float:
    return min(_GRID, key=lambda constant: sum(away(pairs, constant) for pairs in of_layers.values()))


def held_out(of_layers: Mapping[tuple[object, ...], Sequence[Pair]]) -> dict[tuple[object, ...], tuple[float, float]]:
    """For each layer the constant that fits the others, and how far its own predictions are, in the quadratic mean."""
    found = {}
    for left, pairs in of_layers.items():
        constant = fit({key: others for key, others in of_layers.items() if key != left})
        found[left] = constant, sqrt(away(pairs, constant))
    return found


def main() -> None:
    for table in ("tensor_core_times", "tensor_core_wgrad_times"):
        of_layers = layers(table)
        left_out = held_out(of_layers)
        mean = sqrt(sum(one * one for _, one in left_out.values()) / len(left_out))
        print(f"{table}: {fit(of_layers):g} fits {len(of_layers)} layers; left out in turn {mean:.1%} away")
        constant = fit(of_layers)
        for key, (others, distance) in left_out.items():
            for pair in of_layers[key]:
                ratios = f"{pair.predict(constant):.1f} fitted, {pair.predict(others):.1f} left out ({others:g})"
                print(f"  {pair.us:6.1f} us measured, {ratios}: {pair.problem}; layer {distance:.0%} away")


if __name__ == "__main__":
    main()

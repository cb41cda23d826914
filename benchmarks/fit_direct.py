"""Fit the constants of direct convolutions on tensor cores to measured_h200.json, and leave out each layer.

    python benchmarks/fit_direct.py

For each table of times: the constants that fit all rows, each layer weighed equally; then, for each layer, the
constants that fit the others, and how far the prediction for that layer is from what was measured. Nothing is written.
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
from graphdnn.engines.cuda.direct.direct import DEFAULTS, requested_tile
from graphdnn.engines.cuda.direct.direct_operands import Operands
from graphdnn.engines.cuda.direct.direct_wgrad import shape_of
from graphdnn.engines.cuda.direct.measured_tiles import FILE
from graphdnn.engines.cuda.direct.sliding_mma import sliding_mma, sliding_mma_wgrad
from graphdnn.fusion import fuse
from graphdnn.problem import parse

Constants = Mapping[str, float]
Predict = Callable[[Constants], float]  # microseconds
Layers = Mapping[tuple[object, ...], Sequence["Pair"]]
_FACTORS = (1.6, 1.25, 1.1, 1.04, 1.02)  # by which a constant is changed, one after the other
_PASSES = 60  # over all constants with one factor


@dataclass(frozen=True, slots=True)
class Pair:
    """A problem, its measured time in microseconds, and its prediction."""

    problem: str
    us: float
    predict: Predict


def _prediction(problem: str) -> Predict:
    device = device_spec("h200")
    task = Task(fuse(parse(problem).build_operation_graph()).operations[0], device)
    request = requested_tile(DEFAULTS)
    if problem.startswith("wgrad"):
        gradient = shape_of(task.op)
        tile = sliding_mma_wgrad.choose(gradient, device, request)
        assert tile is not None
        return lambda slots: (
            device_cost(task, sliding_mma_wgrad.seconds(gradient, tile, device, slots), launches=2).microseconds
        )
    shape = Operands.of(task.op).shape
    tile = sliding_mma.choose(shape, device, request)
    assert tile is not None
    return lambda slots: device_cost(task, sliding_mma.seconds(shape, tile, device, slots)).microseconds


def layers(table: str) -> dict[tuple[object, ...], list[Pair]]:
    """The pairs of a table by layer: batch, channels, columns, filter and stride, whatever the direction."""
    found: dict[tuple[object, ...], list[Pair]] = {}
    for row in json.loads(FILE.read_text(encoding="utf-8"))[table]["rows"]:
        p = parse(row["problem"]).build_operation_graph().operations[0].problem
        key = (p.n, p.groups, p.c, p.input, p.filter, p.stride)
        found.setdefault(key, []).append(Pair(row["problem"], row["us"], _prediction(row["problem"])))
    return found


def written(table: str) -> dict[str, float]:
    """The constants of the file."""
    return dict(json.loads(FILE.read_text(encoding="utf-8"))[table]["constants"])


def away(pairs: Sequence[Pair], constants: Constants) -> float:
    """The mean square of the logarithm of prediction over measurement."""
    return sum(log(pair.predict(constants) / pair.us) ** 2 for pair in pairs) / len(pairs)


def _distance(of_layers: Layers, constants: Constants) -> float:
    return sum(away(pairs, constants) for pairs in of_layers.values())


def fit(of_layers: Layers, start: Constants) -> dict[str, float]:
    """The constants with the least distance that changes of one constant at a time reach from ``start``."""
    best = dict(start)
    least = _distance(of_layers, best)
    for factor in _FACTORS:
        for _ in range(_PASSES):
            before = least
            for name, value in list(best.items()):
                for changed in (value * factor, value / factor):
                    distance = _distance(of_layers, best | {name: changed})
                    if distance < least:
                        best, least = best | {name: changed}, distance
            if least == before:
                break
    return best


def held_out(of_layers: Layers, start: Constants) -> dict[tuple[object, ...], tuple[dict[str, float], float]]:
    """For each layer the constants that fit the others, and how far its own predictions are, in the quadratic mean."""
    found = {}
    for left, pairs in of_layers.items():
        constants = fit({key: others for key, others in of_layers.items() if key != left}, start)
        found[left] = constants, sqrt(away(pairs, constants))
    return found


def main() -> None:
    for table in ("tensor_core_times", "tensor_core_wgrad_times"):
        of_layers, start = layers(table), written(table)
        constants, left_out = fit(of_layers, start), held_out(of_layers, start)
        mean = sqrt(sum(one * one for _, one in left_out.values()) / len(left_out))
        fitted = ", ".join(f"{name} {value:.3g}" for name, value in constants.items())
        print(f"{table}: {fitted} fit {len(of_layers)} layers; left out in turn {mean:.1%} away")
        for key, (others, distance) in left_out.items():
            for pair in of_layers[key]:
                ratios = f"{pair.predict(constants):.1f} fitted, {pair.predict(others):.1f} left out"
                print(f"  {pair.us:6.1f} us measured, {ratios}: {pair.problem}; layer {distance:.0%} away")


if __name__ == "__main__":
    main()

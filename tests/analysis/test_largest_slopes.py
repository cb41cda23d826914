"""The slopes by which tolerances let errors grow: each mode's largest slope, derived from the mode's own function."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from legal_problems import tensor

from graphdnn import Graph
from graphdnn.analysis.oracle import bounds, evaluate, tolerances
from graphdnn.analysis.oracle.largest_slopes import LARGEST_SLOPES
from graphdnn.builder import Tensor
from graphdnn.dtypes import Array
from graphdnn.enums import DataType, PointwiseMode
from graphdnn.operations import PointwiseOperation, PointwiseSpec
from graphdnn.operations.pointwise_modes import POINTWISE

_STEP = 1e-5  # of central differences
_STEEP = 100.0  # a larger slope is a pole or a jump; that of EXP is its value
_RANGES = [(-r, s) for r in (0.0, 0.5, 2.0, 10.0, 80.0) for s in (0.0, 0.5, 2.0, 10.0, 80.0) if r + s]
_WIDEST = (-80.0, 80.0)
_PARAMETERS: tuple[dict[str, float], ...] = (
    {}, {"elu_alpha": 3.0, "softplus_beta": 4.0, "swish_beta": 5.0, "relu_lower_clip_slope": 2.0},
)  # fmt: skip
_FACTORS = ((1.0, 1.0), (8.0, 3.0))  # alpha1, alpha2
_DY, _TINY = 50.0, 1e-30  # the largest dy; a result of gradients that are large where the slope is small
_DECIDING = ("comparison", "logical", "index", "select")


def _has_one_variable(mode: PointwiseMode) -> bool:
    """Functions of one operand, and gradients, which are linear in dy."""
    row = POINTWISE[mode]
    return row.kind not in _DECIDING and (len(row.operands) == 1 or row.kind == "backward")


MODES = [mode for mode in POINTWISE if _has_one_variable(mode)]
POLES_AND_JUMPS = {
    PointwiseMode.SQRT, PointwiseMode.RSQRT, PointwiseMode.LOG, PointwiseMode.TAN, PointwiseMode.RECIPROCAL,
    PointwiseMode.CEIL, PointwiseMode.FLOOR, PointwiseMode.RELU_BWD,
}  # fmt: skip


def _specs(mode: PointwiseMode) -> Iterator[PointwiseSpec]:
    for values in _PARAMETERS:
        named: Any = {name: value for name, value in values.items() if name in POINTWISE[mode].parameters}
        if named or not values:
            yield PointwiseSpec(mode=mode, math_type=DataType.FLOAT, **named)


def _values(spec: PointwiseSpec, x: Array) -> Array:
    """The function of x; of a gradient for dy = 1."""
    row = POINTWISE[spec.mode]
    operands = (np.ones_like(x), x) if row.kind == "backward" else (x,)
    return row.numpy(*operands, **{name: getattr(spec, name) for name in row.parameters})


def _largest(spec: PointwiseSpec, low: float, high: float) -> float:
    values = np.abs(_values(spec, np.linspace(low, high, 20001)))
    return float(values[np.isfinite(values)].max(initial=0.0))


def _points(low: float, high: float) -> Array:
    """Equal distances, and many numbers near 0."""
    near_zero = np.geomspace(2 * _STEP, 1.0, 500)
    points = np.concatenate([np.linspace(low, high, 20001), near_zero, -near_zero])
    return points[(points >= low) & (points <= high)]


@cache
def slope(spec: PointwiseSpec, low: float, high: float) -> float:
    """The largest slope between two numbers; infinite at a pole or a jump."""
    x = _points(low, high)
    differences = np.abs(_values(spec, x + _STEP) - _values(spec, x - _STEP)) / (2 * _STEP)
    largest = float(differences[np.isfinite(differences)].max(initial=0.0))
    return largest if largest < _STEEP or spec.mode is PointwiseMode.EXP else np.inf


def _operation(spec: PointwiseSpec, alpha1: float, alpha2: float) -> PointwiseOperation:
    is_gradient = POINTWISE[spec.mode].kind == "backward"
    ports: Any = {port: tensor(uid, (4,)) for port, uid in (("dy", 1), ("x", 2), ("dx" if is_gradient else "y", 3))}
    if is_gradient:
        return PointwiseOperation(spec=spec, alpha1=alpha1, alpha2=alpha2, **ports)
    del ports["dy"]
    return PointwiseOperation(spec=spec, alpha1=alpha1, **ports)


def missing(mode: PointwiseMode) -> list[str]:
    """Ranges of operands in which tolerances let an error grow less than the mode's slope."""
    found = []
    for spec in _specs(mode):
        if slope(spec, *_WIDEST) == np.inf and POINTWISE[mode].kind != "backward":
            continue
        for low, high in _RANGES:
            for alpha1, alpha2 in _FACTORS:
                op, largest = _operation(spec, alpha1, alpha2), max(-low, high)
                if POINTWISE[mode].kind == "backward":
                    scales = {1: _DY, 2: largest / alpha2}
                    needed = {1: alpha1 * _largest(spec, low, high), 2: alpha1 * alpha2 * _DY * slope(spec, low, high)}
                    scale = _TINY
                else:
                    scales, needed = {2: largest / alpha1}, {2: alpha1 * slope(spec, low, high)}
                    scale = _largest(spec, low, high)
                for uid, least in needed.items():
                    if np.isfinite(least) and tolerances._gain(op, uid, scale, scales) < 0.999 * least:
                        found.append(f"{spec.mode.name} of {low} to {high}, alpha {alpha1}, operand {uid}: {least:.3g}")
    return found


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_errors_may_grow_as_much_as_the_slope(mode: PointwiseMode) -> None:
    assert not missing(mode), "add the mode's largest slope to LARGEST_SLOPES"


@pytest.mark.parametrize("mode", LARGEST_SLOPES, ids=lambda mode: mode.name)
def test_an_entry_is_the_largest_slope(mode: PointwiseMode) -> None:
    """A larger entry would accept wrong results."""
    (spec, *_) = _specs(mode)
    first, *second = LARGEST_SLOPES[mode]
    is_gradient = POINTWISE[mode].kind == "backward"
    derived = _largest(spec, *_WIDEST) if is_gradient else slope(spec, *_WIDEST)
    assert derived * 0.999 <= first <= derived * 1.005
    if second:
        assert slope(spec, *_WIDEST) * 0.999 <= second[0] <= slope(spec, *_WIDEST) * 1.005


@pytest.mark.parametrize("mode", LARGEST_SLOPES, ids=lambda mode: mode.name)
def test_a_mode_without_its_entry_is_found(mode: PointwiseMode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(LARGEST_SLOPES, mode)
    assert missing(mode)


def test_poles_and_jumps_are_found() -> None:
    infinite = {mode for mode in MODES for spec in _specs(mode) if slope(spec, *_WIDEST) == np.inf}
    assert infinite == POLES_AND_JUMPS | {PointwiseMode.ELU_BWD}  # which jumps for other alpha than 1
    assert not POLES_AND_JUMPS & LARGEST_SLOPES.keys() - {PointwiseMode.RELU_BWD}


def test_two_operands_that_are_one_tensor_add_their_slopes() -> None:
    op = _operation(PointwiseSpec(mode=PointwiseMode.TANH_BWD, math_type=DataType.FLOAT), 1.0, 1.0)
    assert op.dy is not None
    both = op.model_copy(update={"x": op.dy})
    assert tolerances._gain(both, 1, _TINY, {1: 2.0}) == pytest.approx(1.0 + 2 * 0.77)


def _verdict(graph: Graph, y: Tensor, operands: dict[Tensor, Array]) -> tuple[float, float]:
    """The largest error of the CPU's result in fp32, and the tolerance."""
    y.set_output(True)
    operations, plan = graph.build_operation_graph(), graph.build()
    values = {tensor.get_uid(): array for tensor, array in operands.items()}
    exact = {uid: np.asarray(array, np.float64) for uid, array in values.items()} | evaluate(operations, values)
    result = plan.new_array(y.spec())
    graph.execute({**values, y.get_uid(): result})
    error = np.abs(np.asarray(result, np.float64) - exact[y.get_uid()]).max()
    return float(error), bounds(operations, exact).errors[y.get_uid()]


def test_correct_results_are_accepted_where_operands_are_large() -> None:
    """Rounded sums lie apart from the exact ones by much more than the roundoff of a result."""
    draw = np.random.default_rng(0)
    graph = Graph(io_data_type="float32", intermediate_data_type="float32")
    a, b = (graph.tensor([64, 64]) for _ in range(2))
    terms = {t: draw.uniform(20, 40, (64, 64)).astype(np.float32) for t in (a, b)}
    error, bound = _verdict(graph, graph.exp(graph.add(a, b)), terms)
    assert 0 < error <= bound
    graph = Graph(io_data_type="float32", intermediate_data_type="float32")
    dy, c, d = (graph.tensor([1, 64, 64]) for _ in range(3))
    factors = {t: draw.uniform(-100, 100, (1, 64, 64)).astype(np.float32) for t in (c, d)}
    ones = {dy: np.ones((1, 64, 64), np.float32)}
    error, bound = _verdict(graph, graph.tanh_backward(dy, graph.matmul(c, d)), ones | factors)
    assert 0 < error <= bound

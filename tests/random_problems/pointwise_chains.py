"""Pointwise chains around an anchor: bias, scale, residual, activations, several outputs, an exit."""

from __future__ import annotations

from typing import Any

from graphdnn import TensorSpec
from graphdnn.enums import DataType, PointwiseMode, ReductionOperator
from graphdnn.operations import GenStats, PointwiseOperation, PointwiseSpec, Reduction, ReductionSpec
from random_problems.graph_sketch import Sketch, is_float

M = PointwiseMode
SMOOTH = (M.TANH_FWD, M.SIGMOID_FWD, M.SWISH_FWD, M.GELU_FWD, M.GELU_APPROX_TANH_FWD, M.ELU_FWD, M.SOFTPLUS_FWD)
EXACT_ONE = (M.RELU_FWD, M.ABS, M.NEG, M.IDENTITY)
EXACT_TWO = (M.ADD, M.SUB, M.MAX, M.MIN)


def unary(s: Sketch, mode: PointwiseMode, x: TensorSpec, y: TensorSpec, math: Any, **parameters: Any) -> None:
    s.add(PointwiseOperation(spec=PointwiseSpec(mode=mode, math_type=math, **parameters), x=x, y=y))


def binary(s: Sketch, mode: PointwiseMode, x: TensorSpec, b: TensorSpec, y: TensorSpec, math: Any) -> None:
    s.add(PointwiseOperation(spec=PointwiseSpec(mode=mode, math_type=math), x=x, b=b, y=y))


def operand(s: Sketch, dims: tuple[int, ...], math: Any) -> TensorSpec:
    """Bias, scale or residual: of some broadcast extents and some type, sometimes a number by value, or computed."""
    integer = math in ("i32", "i64")
    if s.chance(0.15):
        value = s.number(-4, 4) if integer else s.number(-8, 8) / 4
        return s.scalar(len(dims), value, math if integer else "f32")
    extents = dims if s.chance(0.3) else s.broadcast(dims)
    kinds = ("i8", "i32") if integer else ("f64",) if math == "f64" else ("f32", "f32", "f16", "bf16")
    given = s.input(extents, s.one_of(kinds))
    if extents != dims or s.chance(0.6):
        return given
    computed = s.virtual(dims, math if integer or math == "f64" else given.data_type)
    unary(s, s.one_of(EXACT_ONE), given, computed, math)
    return computed


def chain(s: Sketch, x: TensorSpec, length: int, math: Any, out: Any, *, exact: bool = False) -> TensorSpec:
    """``length`` steps from ``x`` (virtual) to a bound tensor of type ``out``, which is returned.

    ``exact`` leaves out whatever rounds. On the way some values are stored as outputs of their own.
    """
    dims, value, earlier = x.extents, x, [x]
    for i in range(length):
        last = i == length - 1
        if last:
            result = s.tensor(dims, out)
        elif s.chance(0.15):
            result = s.tensor(dims, math if math in ("i32", "i64", "f64") else "f32")
        else:
            kinds = (math,) if exact or math != "f32" else ("f32", "f32", "f16", "bf16")
            result = s.virtual(dims, s.one_of(kinds))
        _step(s, value, result, earlier, math, exact)
        value = result
        earlier.append(result)
    return value


def _step(s: Sketch, x: TensorSpec, y: TensorSpec, earlier: list[TensorSpec], math: Any, exact: bool) -> None:
    kind = s.rng.random()
    dims = x.extents
    if kind < 0.45:
        mode = s.one_of(EXACT_TWO) if exact or math in ("i32", "i64") else s.one_of((M.ADD, M.ADD, M.MUL, M.SUB, M.MAX))
        binary(s, mode, x, operand(s, dims, math), y, math)
    elif kind < 0.55 and len(earlier) > 1:
        binary(s, M.ADD if exact else s.one_of((M.ADD, M.SUB, M.MAX)), x, s.one_of(earlier[:-1]), y, math)
    elif kind < 0.65:
        flag = s.virtual(dims, DataType.BYTE_BOOLEAN)
        limit = operand(s, dims, math)
        binary(s, s.one_of((M.CMP_GT, M.CMP_LE)), x, limit, flag, math)
        spec = PointwiseSpec(mode=M.BINARY_SELECT, math_type=math)
        s.add(PointwiseOperation(spec=spec, x=x, b=operand(s, dims, math), t=flag, y=y))
    elif exact or math in ("i32", "i64") or kind < 0.8:
        mode = s.one_of(EXACT_ONE)
        parameters: dict[str, Any] = {}
        if mode is M.RELU_FWD and s.chance(0.5):
            parameters = {"relu_lower_clip": 0.0, "relu_upper_clip": 6.0}
        unary(s, mode, x, y, math, **parameters)
    else:
        unary(s, s.one_of(SMOOTH), x, y, math)


def exit_of(s: Sketch, x: TensorSpec) -> None:
    """A reduction, or sums per channel, of a value that is in memory or only passes by."""
    math = "f64" if x.data_type is DataType.DOUBLE else "f32"
    if s.chance(0.3) and x.rank >= 2 and is_float(x.data_type):
        channels = tuple(e if a == 1 else 1 for a, e in enumerate(x.extents))
        s.add(GenStats(x=x, sum=s.tensor(channels, math), sqsum=s.tensor(channels, math), math_type=math))
        return
    integer = not is_float(x.data_type)
    operators = (ReductionOperator.ADD, ReductionOperator.MAX, ReductionOperator.AMAX, ReductionOperator.MIN)
    compute = ("i64" if x.data_type is DataType.INT64 else "i32") if integer else math
    y = s.tensor([1 if s.chance(0.6) else e for e in x.extents], compute)
    s.add(Reduction(x=x, y=y, spec=ReductionSpec(operator=s.one_of(operators), compute_type=compute)))

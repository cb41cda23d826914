"""Elementwise operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from graphdnn.builder.tensor import Tensor
from graphdnn.enums import DataType
from graphdnn.enums import PointwiseMode as M
from graphdnn.torch.lowering import LOWERINGS, Lower, Lowering, Number, Operand, lowers

aten = torch.ops.aten
_BOOLEANS = (DataType.BYTE_BOOLEAN, DataType.BOOLEAN)

# An operator of one operand is one mode. Integers become floats first, as in PyTorch.
_FLOAT_UNARY = {
    aten.exp.default: M.EXP, aten.log.default: M.LOG, aten.sqrt.default: M.SQRT, aten.rsqrt.default: M.RSQRT,
    aten.reciprocal.default: M.RECIPROCAL, aten.sin.default: M.SIN, aten.cos.default: M.COS, aten.tan.default: M.TAN,
    aten.erf.default: M.ERF, aten.tanh.default: M.TANH_FWD, aten.sigmoid.default: M.SIGMOID_FWD,
}  # fmt: skip
_UNARY = {aten.abs.default: M.ABS, aten.neg.default: M.NEG, aten.floor.default: M.FLOOR, aten.ceil.default: M.CEIL}
_BINARY = {
    aten.mul.Tensor: M.MUL, aten.mul.Scalar: M.MUL, aten.maximum.default: M.MAX, aten.minimum.default: M.MIN,
}  # fmt: skip
_FLOAT_BINARY = {aten.div.Tensor: M.DIV, aten.div.Scalar: M.DIV, aten.atan2.default: M.ATAN2}
_COMPARISONS = {
    "eq": M.CMP_EQ, "ne": M.CMP_NEQ, "gt": M.CMP_GT, "ge": M.CMP_GE, "lt": M.CMP_LT, "le": M.CMP_LE,
}  # fmt: skip
_LOGICAL = {
    aten.logical_and.default: M.LOGICAL_AND, aten.logical_or.default: M.LOGICAL_OR,
    aten.bitwise_and.Tensor: M.LOGICAL_AND, aten.bitwise_or.Tensor: M.LOGICAL_OR,
}  # fmt: skip


def _enter() -> None:
    """The rows of the tables above."""

    def unary(mode: M) -> Lower:
        return lambda low, x: low.typed(low.pointwise(mode, x))

    def float_unary(mode: M) -> Lower:
        return lambda low, x: low.typed(low.float_pointwise(mode, x))

    def binary(mode: M) -> Lower:
        return lambda low, x, b: low.typed(low.pointwise(mode, x, b, compute=_promoted(low, x, b)))

    def float_binary(mode: M) -> Lower:
        return lambda low, x, b: low.typed(low.float_pointwise(mode, x, b))

    makers: list[tuple[dict[Any, M], Callable[[M], Lower]]] = [
        (_UNARY, unary), (_FLOAT_UNARY, float_unary), (_BINARY, binary), (_FLOAT_BINARY, float_binary),
    ]  # fmt: skip
    for table, make in makers:
        for operator, mode in table.items():
            lowers(operator)(make(mode))
    for name, mode in _COMPARISONS.items():
        packet = getattr(aten, name)
        for overload in (packet.Tensor, packet.Scalar):
            lowers(overload)(_comparison(mode))
    for operator, mode in _LOGICAL.items():
        lowers(operator)(_logical(mode))


def _promoted(low: Lowering, *operands: Operand) -> DataType:
    """The type of the arithmetic: the result's, and FLOAT if a number is one of Python's floats."""
    numbers = [DataType.FLOAT for o in operands if isinstance(o, float)]
    types = [o.get_data_type() for o in operands if isinstance(o, Tensor)]
    return low.arithmetic(low.data_type(low.results()[0].dtype), *types, *numbers)


def _comparison(mode: M) -> Lower:
    def lower(low: Lowering, x: Tensor, b: Operand) -> Tensor:
        numbers = [DataType.FLOAT] if isinstance(b, float) else []
        types = [o.get_data_type() for o in (x, b) if isinstance(o, Tensor)]
        return low.typed(low.pointwise(mode, x, b, compute=low.arithmetic(*types, *numbers)))

    return lower


def _logical(mode: M) -> Lower:
    def lower(low: Lowering, x: Tensor, b: Tensor) -> Tensor:
        _require_booleans(low, x, b)
        return low.typed(low.pointwise(mode, x, b))

    return lower


def _require_booleans(low: Lowering, *operands: Tensor) -> None:
    for operand in operands:
        kind = operand.get_data_type()
        if kind not in _BOOLEANS:
            raise low.refuse(
                "self.dtype", kind and kind.name, "booleans", "the library has no bitwise arithmetic of integers",
                "compare the integers with 0 first",
            )  # fmt: skip


@lowers(aten.logical_not.default, aten.bitwise_not.default)
def logical_not(low: Lowering, x: Tensor) -> Tensor:
    _require_booleans(low, x)
    return low.typed(low.pointwise(M.LOGICAL_NOT, x))


@lowers(aten.add.Tensor, aten.add.Scalar)
def add(low: Lowering, x: Tensor, b: Operand, alpha: Number = 1) -> Tensor:
    return _sum(low, M.ADD, x, b, alpha)


@lowers(aten.sub.Tensor, aten.sub.Scalar)
def sub(low: Lowering, x: Tensor, b: Operand, alpha: Number = 1) -> Tensor:
    return _sum(low, M.SUB, x, b, alpha)


@lowers(aten.rsub.Tensor, aten.rsub.Scalar)
def rsub(low: Lowering, x: Tensor, b: Operand, alpha: Number = 1) -> Tensor:
    compute = _promoted(low, x, b)
    return low.typed(low.pointwise(M.SUB, low.tensor(b, compute), x, compute=compute, **_factor(alpha)))


def _sum(low: Lowering, mode: M, x: Tensor, b: Operand, alpha: Number) -> Tensor:
    compute = _promoted(low, x, b)
    return low.typed(low.pointwise(mode, x, b, compute=compute, **_factor(alpha)))


def _factor(alpha: Number) -> dict[str, float]:
    return {} if alpha == 1 else {"alpha2": float(alpha)}


@lowers(aten.div.Tensor_mode, aten.div.Scalar_mode)
def div_mode(low: Lowering, x: Tensor, b: Operand, rounding_mode: str | None = None) -> Tensor:
    if rounding_mode not in (None, "floor") or low.result.dtype not in _FLOATS:
        raise low.refuse(
            "rounding_mode", rounding_mode, "None, or 'floor' of floating-point numbers",
            "no mode truncates a quotient, and integers are divided in floating point", "divide floating-point numbers",
        )  # fmt: skip
    quotient = low.float_pointwise(M.DIV, x, b)
    return low.typed(low.pointwise(M.FLOOR, quotient) if rounding_mode == "floor" else quotient)


_FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


@lowers(aten.pow.Tensor_Scalar)
def pow_scalar(low: Lowering, x: Tensor, exponent: Number) -> Tensor:
    if exponent == 1:
        return low.typed(low.pointwise(M.IDENTITY, x))
    if exponent == 2:
        return low.typed(low.pointwise(M.MUL, x, x))
    if exponent == 0.5:
        return low.typed(low.float_pointwise(M.SQRT, x))
    if exponent == -0.5:
        return low.typed(low.float_pointwise(M.RSQRT, x))
    if exponent == 3:
        return low.typed(low.float_pointwise(M.MUL, low.float_pointwise(M.MUL, x, x), x))
    return low.typed(low.float_pointwise(M.POW, x, exponent))


@lowers(aten.pow.Tensor_Tensor)
def pow_tensor(low: Lowering, x: Tensor, exponent: Tensor) -> Tensor:
    return low.typed(low.float_pointwise(M.POW, x, exponent))


@lowers(aten.remainder.Tensor, aten.remainder.Scalar)
def remainder(low: Lowering, x: Tensor, b: Operand) -> Tensor:
    if low.result.dtype not in _FLOATS:
        raise low.refuse(
            "self.dtype", str(low.result.dtype), "floating-point numbers",
            "the remainder of integers is an operator of PyTorch alone", "leave the operator to PyTorch",
        )  # fmt: skip
    return low.typed(low.float_pointwise(M.FLOOR_MOD, x, b))


@lowers(aten.relu.default)
def relu(low: Lowering, x: Tensor) -> Tensor:
    return low.typed(low.pointwise(M.RELU_FWD, x))


@lowers(aten.leaky_relu.default)
def leaky_relu(low: Lowering, x: Tensor, negative_slope: float = 0.01) -> Tensor:
    return low.typed(low.pointwise(M.RELU_FWD, x, relu_lower_clip_slope=float(negative_slope)))


@lowers(aten.hardtanh.default, aten.clamp.default)
def clamp(low: Lowering, x: Tensor, min: Number | None = None, max: Number | None = None) -> Tensor:
    if low.node.target is aten.hardtanh.default:
        min, max = -1.0 if min is None else min, 1.0 if max is None else max
    compute = _promoted(low, x, *(n for n in (min, max) if n is not None))
    found = x
    for mode, limit in ((M.MAX, min), (M.MIN, max)):
        if limit is not None:
            found = low.pointwise(mode, found, limit, compute=compute).set_data_type(compute)
    return low.typed(low.pointwise(M.IDENTITY, x) if found is x else found)


@lowers(aten.clamp_min.default)
def clamp_min(low: Lowering, x: Tensor, limit: Number) -> Tensor:
    return low.typed(low.pointwise(M.MAX, x, limit, compute=_promoted(low, x, limit)))


@lowers(aten.clamp_max.default)
def clamp_max(low: Lowering, x: Tensor, limit: Number) -> Tensor:
    return low.typed(low.pointwise(M.MIN, x, limit, compute=_promoted(low, x, limit)))


@lowers(aten.gelu.default)
def gelu(low: Lowering, x: Tensor, approximate: str = "none") -> Tensor:
    mode = M.GELU_FWD if approximate == "none" else M.GELU_APPROX_TANH_FWD
    return low.typed(low.pointwise(mode, x))


@lowers(aten.silu.default)
def silu(low: Lowering, x: Tensor) -> Tensor:
    return low.typed(low.pointwise(M.SWISH_FWD, x))


@lowers(aten.mish.default)
def mish(low: Lowering, x: Tensor) -> Tensor:
    """``x * tanh(softplus(x))``."""
    tanh = low.float_pointwise(M.TANH_FWD, low.float_pointwise(M.SOFTPLUS_FWD, x))
    return low.typed(low.float_pointwise(M.MUL, x, tanh))


@lowers(aten.elu.default)
def elu(low: Lowering, x: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    if (scale, input_scale) != (1, 1):
        raise low.refuse(
            "scale, input_scale", (scale, input_scale), "1 and 1", "the mode ELU_FWD has the parameter alpha only",
            "multiply before and after the operator",
        )  # fmt: skip
    return low.typed(low.pointwise(M.ELU_FWD, x, elu_alpha=float(alpha)))


@lowers(aten.softplus.default)
def softplus(low: Lowering, x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """Above the threshold PyTorch returns x itself. From 20 on, the mode's result differs from x by less than 2e-9."""
    if threshold < 20:
        raise low.refuse(
            "threshold", threshold, "at least 20", "the mode SOFTPLUS_FWD has no threshold",
            "use the default threshold",
        )  # fmt: skip
    return low.typed(low.pointwise(M.SOFTPLUS_FWD, x, softplus_beta=float(beta)))


@lowers(aten.hardsigmoid.default)
def hardsigmoid(low: Lowering, x: Tensor) -> Tensor:
    """``min(max(x + 3, 0), 6) / 6``."""
    return low.typed(low.float_pointwise(M.DIV, _six(low, x), 6.0))


@lowers(aten.hardswish.default)
def hardswish(low: Lowering, x: Tensor) -> Tensor:
    """``x * min(max(x + 3, 0), 6) / 6``."""
    return low.typed(low.float_pointwise(M.DIV, low.float_pointwise(M.MUL, x, _six(low, x)), 6.0))


def _six(low: Lowering, x: Tensor) -> Tensor:
    return low.float_pointwise(M.RELU_FWD, low.float_pointwise(M.ADD, x, 3.0), relu_lower_clip=0.0, relu_upper_clip=6.0)


@lowers(aten.where.self)
def where(low: Lowering, condition: Tensor, x: Tensor, b: Tensor) -> Tensor:
    compute = _promoted(low, x, b)
    first, second, mask = low.aligned((x, b, condition), compute)
    return low.typed(
        low.graph.pointwise(
            M.BINARY_SELECT, x=first, b=second, t=mask, compute_data_type=compute, name=low.node.name
        )
    )  # fmt: skip


@lowers(aten.masked_fill.Scalar)
def masked_fill(low: Lowering, x: Tensor, mask: Tensor, value: Number) -> Tensor:
    compute = _promoted(low, x)
    kept, selector = low.aligned((x, mask), compute)
    number = low.tensor(value, compute)
    return low.typed(
        low.graph.pointwise(
            M.BINARY_SELECT, x=number, b=kept, t=selector, compute_data_type=compute, name=low.node.name
        )
    )  # fmt: skip


@lowers(aten.isnan.default)
def isnan(low: Lowering, x: Tensor) -> Tensor:
    return low.typed(low.pointwise(M.CMP_NEQ, x, x))


@lowers(aten._to_copy.default, torch.ops.prims.convert_element_type.default)
def to_copy(low: Lowering, x: Tensor, dtype: Any = None, **options: Any) -> Tensor:
    device = options.get("device")
    if device is not None and device != low.node.args[0].meta["val"].device:
        raise low.refuse(
            "device", str(device), "the device of the input", "a graph runs on one device",
            "leave the copy to PyTorch",
        )  # fmt: skip
    return low.typed(low.pointwise(M.IDENTITY, x, compute=_identity_type(low, x)))


def _identity_type(low: Lowering, x: Tensor) -> DataType:
    return low.arithmetic(low.data_type(low.results()[0].dtype), x.get_data_type())


@lowers(aten.clone.default, aten.detach.default, aten.alias.default, aten.lift_fresh_copy.default)
def copy(low: Lowering, x: Tensor, memory_format: Any = None) -> Tensor:
    """The same values. Extents and strides of an output come from the fake tensor."""
    return x


_enter()
ELEMENTWISE = frozenset(overload for overload, lower in LOWERINGS.items() if lower.__module__ == __name__)

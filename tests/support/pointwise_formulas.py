"""What every pointwise mode computes, one element at a time: in Python floats, as the documentation writes it, and in integers."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from graphdnn.enums import PointwiseMode
from graphdnn.operations.pointwise_modes import POINTWISE

P = PointwiseMode

DEFAULTS = {
    "relu_lower_clip": 0.0,
    "relu_upper_clip": math.inf,
    "relu_lower_clip_slope": 0.0,
    "elu_alpha": 1.0,
    "softplus_beta": 1.0,
    "swish_beta": 1.0,
    "axis": 0,
}

OTHERS = DEFAULTS | {
    "relu_lower_clip": -0.5,
    "relu_upper_clip": 1.5,
    "relu_lower_clip_slope": 0.125,
    "elu_alpha": 0.75,
    "softplus_beta": 2.0,
    "swish_beta": 1.5,
}


def call(mode: P, *operands: np.ndarray, **parameters: float) -> np.ndarray:
    row = POINTWISE[mode]
    chosen = DEFAULTS | parameters
    return row.numpy(*operands, **{name: chosen[name] for name in row.parameters})


def sigmoid(v: float) -> float:
    return 1 / (1 + math.exp(-v)) if v > -700 else 0.0


def tanh_argument(v: float) -> float:
    return math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)


# One element in Python floats, as the documentation writes it.
SCALAR: dict[PointwiseMode, Callable[..., float]] = {
    P.ADD: lambda x, b: x + b,
    P.MUL: lambda x, b: x * b,
    P.MIN: min,
    P.MAX: max,
    P.SQRT: lambda x: math.sqrt(x) if x >= 0 else math.nan,
    P.ADD_SQUARE: lambda x, b: x + b * b,
    P.DIV: lambda x, b: x / b,
    P.MOD: lambda x, b: x - math.trunc(x / b) * b,
    P.POW: lambda x, b: abs(x) ** b,
    P.SUB: lambda x, b: x - b,
    P.ABS: abs,
    P.CEIL: math.ceil,
    P.COS: math.cos,
    P.EXP: math.exp,
    P.FLOOR: math.floor,
    P.LOG: lambda x: math.log(x) if x > 0 else math.nan,
    P.NEG: lambda x: -x,
    P.RSQRT: lambda x: 1 / math.sqrt(x) if x > 0 else math.nan,
    P.SIN: math.sin,
    P.TAN: math.tan,
    P.ERF: math.erf,
    P.IDENTITY: lambda x: x,
    P.RECIPROCAL: lambda x: 1 / x,
    P.ATAN2: math.atan2,
    P.FLOOR_MOD: lambda x, b: x - math.floor(x / b) * b,
    P.RELU_FWD: lambda x, relu_lower_clip, relu_upper_clip, relu_lower_clip_slope: (
        relu_lower_clip + relu_lower_clip_slope * (x - relu_lower_clip)
        if x < relu_lower_clip
        else min(x, relu_upper_clip)
    ),
    P.TANH_FWD: math.tanh,
    P.SIGMOID_FWD: sigmoid,
    P.ELU_FWD: lambda x, elu_alpha: elu_alpha * (math.exp(x) - 1) if x < 0 else x,
    P.GELU_FWD: lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))),
    P.SOFTPLUS_FWD: lambda x, softplus_beta: math.log(1 + math.exp(softplus_beta * x)) / softplus_beta,
    P.SWISH_FWD: lambda x, swish_beta: x * sigmoid(swish_beta * x),
    P.GELU_APPROX_TANH_FWD: lambda x: 0.5 * x * (1 + math.tanh(tanh_argument(x))),
    P.RELU_BWD: lambda g, z, relu_lower_clip, relu_upper_clip, relu_lower_clip_slope: (
        g * (relu_lower_clip_slope if z <= relu_lower_clip else 0 if z > relu_upper_clip else 1)
    ),
    P.TANH_BWD: lambda g, z: g * (1 - math.tanh(z) ** 2),
    P.SIGMOID_BWD: lambda g, z: g * sigmoid(z) * (1 - sigmoid(z)),
    P.ELU_BWD: lambda g, z, elu_alpha: g * (elu_alpha * math.exp(z) if z < 0 else 1),
    P.GELU_BWD: lambda g, z: (
        g * (0.5 * (1 + math.erf(z / math.sqrt(2))) + z * math.exp(-z * z / 2) / math.sqrt(2 * math.pi))
    ),
    P.SOFTPLUS_BWD: lambda g, z, softplus_beta: g * sigmoid(softplus_beta * z),
    P.SWISH_BWD: lambda g, z, swish_beta: (
        g * (sigmoid(swish_beta * z) + swish_beta * z * sigmoid(swish_beta * z) * (1 - sigmoid(swish_beta * z)))
    ),
    P.GELU_APPROX_TANH_BWD: lambda g, z: (
        g
        * 0.5
        * (
            1
            + math.tanh(tanh_argument(z))
            + z * (1 - math.tanh(tanh_argument(z)) ** 2) * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * z * z)
        )
    ),
    P.CMP_EQ: lambda x, b: x == b,
    P.CMP_NEQ: lambda x, b: x != b,
    P.CMP_GT: lambda x, b: x > b,
    P.CMP_GE: lambda x, b: x >= b,
    P.CMP_LT: lambda x, b: x < b,
    P.CMP_LE: lambda x, b: x <= b,
    P.LOGICAL_AND: lambda x, b: x != 0 and b != 0,
    P.LOGICAL_OR: lambda x, b: x != 0 or b != 0,
    P.LOGICAL_NOT: lambda x: x == 0,
    P.BINARY_SELECT: lambda x, b, t: x if t != 0 else b,
}


def wrap(value: int, bits: int) -> int:
    return (value + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


def truncated(x: int, b: int) -> int:
    return 0 if b == 0 else (abs(x) // abs(b)) * (1 if (x < 0) == (b < 0) else -1)


EXACT: dict[PointwiseMode, Callable[..., int]] = {
    P.ADD: lambda x, b: x + b,
    P.MUL: lambda x, b: x * b,
    P.MIN: min,
    P.MAX: max,
    P.ADD_SQUARE: lambda x, b: x + b * b,
    P.DIV: truncated,
    P.MOD: lambda x, b: x - truncated(x, b) * b,
    P.FLOOR_MOD: lambda x, b: x if b == 0 else x % b,
    P.SUB: lambda x, b: x - b,
    P.ABS: abs,
    P.CEIL: lambda x: x,
    P.FLOOR: lambda x: x,
    P.NEG: lambda x: -x,
    P.IDENTITY: lambda x: x,
    P.RELU_FWD: lambda x: max(x, 0),
}

"""Direct convolutions run on the host against the general NumPy engine, and compiled for every architecture.

Operands are small multiples of a quarter: every sum is exact in fp32 in any order, so results are equal to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from cuda_comparison import fused, run_both
from emulator import MISSING

from graphdnn.device import device_spec
from graphdnn.dtypes import ELEMENTS, Array, cast
from graphdnn.engines import Engine
from graphdnn.engines.cuda.direct import ENGINE
from graphdnn.engines.cuda.direct_wgrad import ENGINE as WGRAD
from graphdnn.enums import KnobType
from graphdnn.operations import Operation
from graphdnn.problem import parse
from graphdnn.tensors import TensorSpec

emulated = pytest.mark.skipif(bool(MISSING), reason=MISSING)
H200 = device_spec("h200")
V, TW, ROWS, LANES = KnobType.LOAD_SIZE, KnobType.TILE_COLS, KnobType.TILE_ROWS, KnobType.NUM_C_PER_BLOCK


def operations(text: str) -> Sequence[Operation]:
    return parse(text).build_operation_graph().operations


def quarters(spec: TensorSpec, rng: np.random.Generator) -> Array:
    row = ELEMENTS[spec.data_type]
    if row.kind == "float":
        return cast(rng.integers(-8, 9, spec.extents) / 4.0, spec.data_type)
    return rng.integers(max(row.smallest, -(2**31)), min(row.largest, 2**31 - 1), spec.extents, endpoint=True).astype(
        row.numpy
    )


def check(text: str, engine: Engine = ENGINE, seed: int = 0, **knobs: Any) -> None:
    ops, rng = operations(text), np.random.default_rng(seed)
    op = fused(ops)
    values = {t.uid: quarters(t, rng) for t in (*op.inputs, *op.outputs) if not t.is_constant}
    got, expected = run_both(ops, engine, values, {KnobType[k]: v for k, v in knobs.items()})
    for uid, array in expected.items():
        np.testing.assert_array_equal(got[uid], array)


FORWARD = [
    "conv x=f16[2,48,9,11]nhwc w=f16[48,1,3,3] pad=1 + bias + relu(0,6)",
    "conv x=f16[2,40,9,11]nhwc w=f16[40,1,3,3] pad=1 stride=2 + bias",
    "conv x=f16[1,64,12,10]nhwc w=f16[64,1,5,5] pad=2 + bias + residual + relu",
    "conv x=f16[1,32,14,15]nhwc w=f16[32,1,7,7] pad=3",
    "conv x=bf16[1,36,8,8]nhwc w=bf16[36,1,7,7] pad=3 stride=2",
    "conv x=f32[2,20,7,5]nhwc w=f32[20,1,3,3] pad=1 + relu",
    "conv x=i8[2,33,7,9]nhwc w=i8[33,1,3,3] pad=1 compute=i32 out=i32",
    "conv x=f16[2,8,9,9]nhwc w=f16[8,1,5,3] pad=2,0 stride=1,2",
    "conv x=f16[1,16,9,9]nhwc w=f16[16,1,3,3] pre=0,2 post=3,1 mode=conv",
    "conv x=f16[1,16,9,9]nhwc w=f16[16,1,1,1] stride=2",
    "conv x=f16[1,16,9,9]nhwc w=f16[32,1,3,3] pad=1 + bias",
    "conv x=f16[1,6,9,9]nhwc w=f16[18,1,3,3] pad=1",
    "conv x=f16[2,32,9,9]nhwc w=f16[32,4,3,3] pad=1 + bias + relu",
    "conv x=f16[2,32,9,9]nhwc w=f16[32,4,3,3]nhwc pad=1 stride=2",
    "conv x=f16[1,16,6,9]nhwc w=f16[16,2,3,3] pad=1",
    "conv x=bf16[1,32,6,9]nhwc w=bf16[32,8,3,3]nhwc pad=1",
    "conv x=f16[1,32,6,5]nhwc w=f16[32,16,3,3] pad=1",
    "conv x=i8[1,32,6,9]nhwc w=i8[32,4,3,3] pad=1 compute=i32 out=i32",
    "conv x=f32[1,12,6,9]nhwc w=f32[12,3,3,3] pad=1 mode=conv",
    "conv x=f16[1,4,9,9]nhwc w=f16[8,4,3,3] pad=1",
    "conv x=f16[1,8,2,2]nhwc w=f16[8,1,3,3] pad=2",
]
BACKWARD = [
    "dgrad dy=f16[2,48,9,11]nhwc w=f16[48,1,3,3] dx=[2,48,9,11] pad=1",
    "dgrad dy=f16[2,40,5,6]nhwc w=f16[40,1,3,3] dx=[2,40,9,11] pad=1 stride=2",
    "dgrad dy=f16[2,40,5,6]nhwc w=f16[40,1,3,3] dx=[2,40,10,12] pad=1 stride=2",
    "dgrad dy=f16[1,64,12,10]nhwc w=f16[64,1,5,5] dx=[1,64,12,10] pad=2",
    "dgrad dy=bf16[1,32,14,15]nhwc w=bf16[32,1,7,7] dx=[1,32,14,15] pad=3",
    "dgrad dy=f16[1,32,4,5]nhwc w=f16[32,1,7,7] dx=[1,32,8,9] pad=3 stride=2 mode=conv",
    "dgrad dy=f16[1,32,4,5]nhwc w=f16[32,1,2,1] dx=[1,32,12,14] stride=3",
    "dgrad dy=f16[1,32,9,9]nhwc w=f16[32,1,3,3] dx=[1,16,9,9] pad=1",
    "dgrad dy=f16[2,32,9,9]nhwc w=f16[32,4,3,3] dx=[2,32,9,9] pad=1",
    "dgrad dy=f16[2,32,5,5]nhwc w=f16[32,4,3,3]nhwc dx=[2,32,9,9] pad=1 stride=2",
    "dgrad dy=f16[1,16,9,9]nhwc w=f16[16,8,3,3] dx=[1,16,9,9] pad=1",
    "dgrad dy=f32[1,20,7,5]nhwc w=f32[20,1,3,3] dx=[1,20,7,5] pad=1",
]

FILTER = [
    "wgrad x=f16[2,48,9,11]nhwc dy=f16[2,48,9,11]nhwc dw=[48,1,3,3] pad=1",
    "wgrad x=f16[2,40,9,11]nhwc dy=f16[2,40,5,6]nhwc dw=[40,1,3,3] pad=1 stride=2",
    "wgrad x=f16[1,64,12,10]nhwc dy=f16[1,64,12,10]nhwc dw=[64,1,5,5] pad=2",
    "wgrad x=bf16[1,32,14,15]nhwc dy=bf16[1,32,14,15]nhwc dw=[32,1,7,7] pad=3 out=f32",
    "wgrad x=f16[1,32,8,9]nhwc dy=f16[1,32,4,5]nhwc dw=[32,1,7,7] pad=3 stride=2 mode=conv",
    "wgrad x=f16[1,32,12,14]nhwc dy=f16[1,32,4,5]nhwc dw=[32,1,2,1] stride=3",
    "wgrad x=f16[1,16,9,9]nhwc dy=f16[1,32,9,9]nhwc dw=[32,1,3,3] pad=1",
    "wgrad x=f16[2,32,9,9]nhwc dy=f16[2,32,9,9]nhwc dw=[32,4,3,3] pad=1",
    "wgrad x=f16[2,32,9,9]nhwc dy=f16[2,32,5,5]nhwc dw=[32,4,3,3] pad=1 stride=2",
    "wgrad x=f16[1,32,9,7]nhwc dy=f16[1,32,9,7]nhwc dw=[32,16,3,3] pad=1",
    "wgrad x=f32[1,20,7,5]nhwc dy=f32[1,20,7,5]nhwc dw=[20,1,3,3] pad=1",
    "wgrad x=i8[1,24,7,5]nhwc dy=i8[1,24,7,5]nhwc dw=[24,1,3,3] pad=1 compute=i32 out=i32",
]


@emulated
@pytest.mark.parametrize("text", [*FORWARD, *BACKWARD])
def test_agrees_with_numpy(text: str) -> None:
    check(text)


@emulated
@pytest.mark.parametrize("text", FILTER)
def test_filter_gradient_agrees_with_numpy(text: str) -> None:
    check(text, WGRAD)

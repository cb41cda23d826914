"""Gradients of first layers, and first layers of bytes and of volumes, run on the host against the general NumPy engine,
and compiled for every architecture.

Operands are small multiples of a quarter: every sum is exact in fp32 in any order, so results are equal to the bit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cuda_comparison import ARCHITECTURES, compiler, compiles_cleanly, emulated, fused, run_both
from exact_sums import check_sums, operations, quarters

from graphdnn import Graph, fuse
from graphdnn.device.profiles import device_spec
from graphdnn.engines import Engine, Task
from graphdnn.engines.cuda.direct.stem.stem import ENGINE as FORWARD
from graphdnn.engines.cuda.direct.stem.stem_dgrad import ENGINE as DGRAD
from graphdnn.engines.cuda.direct.stem.stem_fp32 import ENGINE as FLOATS
from graphdnn.engines.cuda.direct.stem.stem_wgrad import ENGINE as WGRAD
from graphdnn.enums import KnobType


def check(text: str, engine: Engine, infinite: bool = False, **knobs: Any) -> None:
    ops, rng = operations(text), np.random.default_rng(0)
    op = fused(ops)
    values = {t.uid: quarters(t, rng) for t in (*op.inputs, *op.outputs) if not t.is_constant}
    if infinite:
        dy = values[op.anchor.roles[2].uid].reshape(-1)  # type: ignore[union-attr]
        dy[7], dy[-3] = np.inf, np.nan
    got, expected = run_both(ops, engine, values, {KnobType[k]: v for k, v in knobs.items()})
    for uid, array in expected.items():
        np.testing.assert_array_equal(got[uid].astype(np.float32), array.astype(np.float32))


DATA = [
    "dgrad dy=f16[2,16,9,11]nhwc w=f16[16,3,7,7]nhwc dx=[2,3,18,22] pad=3 stride=2",
    "dgrad dy=f16[1,24,7,20]nhwc w=f16[24,3,3,3] dx=[1,3,13,39] pad=1 stride=2 mode=conv",
    "dgrad dy=bf16[1,33,6,5]nhwc w=bf16[33,4,3,3] dx=[1,4,6,5] pad=1",
    "dgrad dy=f16[1,8,6,7]nhwc w=f16[8,1,5,4] dx=[1,1,17,19] pre=2,0 post=1,3 stride=3,3",
    "dgrad dy=f16[1,32,6,7]nhwc w=f16[32,3,11,11] dx=[1,3,27,31] pad=2 stride=4",
    "dgrad dy=f16[1,16,6,7]nhwc w=f16[16,2,1,1] dx=[1,2,11,13] stride=2",
]
FILTER = [
    "wgrad x=f16[2,3,18,22]nhwc dy=f16[2,16,9,11]nhwc dw=[16,3,7,7] pad=3 stride=2",
    "wgrad x=f16[1,3,13,39]nhwc dy=f16[1,24,7,20]nhwc dw=[24,3,3,3] pad=1 stride=2 mode=conv",
    "wgrad x=bf16[1,4,6,5]nhwc dy=bf16[1,33,6,5]nhwc dw=[33,4,3,3] pad=1",
    "wgrad x=f16[1,2,17,19]nhwc dy=f16[1,72,6,7]nhwc dw=[72,2,5,4] pre=2,0 post=1,3 stride=3,3",
    "wgrad x=f16[1,3,27,31]nhwc dy=f16[1,32,6,7]nhwc dw=[32,3,11,11] pad=2 stride=4",
]


@emulated
@pytest.mark.parametrize("text", DATA)
def test_data_gradient(text: str) -> None:
    check(text, DGRAD)
    check(text, DGRAD, TILE_ROWS=1)
    check(text, DGRAD, infinite=True)  # places of the window that no tap reaches have weight 0


@emulated
@pytest.mark.parametrize("text", FILTER)
def test_filter_gradient(text: str) -> None:
    check(text, WGRAD)
    check(text, WGRAD, TILE_ROWS=1)


BYTES = [
    ("conv x=i8[1,3,22,24]nhwc w=i8[24,3,7,7]nhwc pad=3 stride=2 compute=i32 out=i8 + scale + bias + relu", "h200"),
    ("conv x=u8[1,4,13,15]nhwc w=i8[20,4,5,11] pad=2 compute=i32 out=i32", "h200"),
    ("conv x=i8[1,3,9,11]nhwc w=u8[20,3,3,3] pad=1 mode=conv compute=i32 out=f32 + bias", "rtx4090"),
]


@emulated
@pytest.mark.parametrize(("text", "device"), BYTES)
def test_bytes_are_multiplied_as_floats(text: str, device: str) -> None:
    check_sums(text, FORWARD, device=device_spec(device))


VOLUME = "conv x=f16[2,1,128,128,128]nhwc w=f16[32,1,3,3,3]nhwc pad=1 spatial=3 + bias + relu"
# Of three axes a result reads several slices of the image.
VOLUMES = [
    ("conv x=f16[2,1,5,9,12]nhwc w=f16[32,1,3,3,3]nhwc pad=1 spatial=3 + bias + relu", FORWARD),
    ("conv x=f16[1,1,5,9,16] w=f16[24,1,3,3,3] pad=1 spatial=3 mode=conv out=f32", FORWARD),
    ("conv x=bf16[2,4,7,9,16]nhwc w=bf16[48,4,3,3,3] pad=1 spatial=3 stride=2 + bias + residual", FORWARD),
    ("conv x=f16[1,2,6,9,11]nhwc w=f16[16,2,2,3,5]nhwc pad=0,1,2 stride=1,2,1 mode=conv spatial=3", FORWARD),
    ("conv x=f16[1,3,6,9,16]nhwc w=f16[64,3,3,7,7]nhwc pad=1,3,3 stride=1,2,2 spatial=3 + bias + relu", FORWARD),
    # Lines of which one of the result takes more than 100,000 bytes.
    ("conv x=f16[1,3,3,9,224]nhwc w=f16[8,3,5,7,7]nhwc pad=2,3,3 stride=1,2,2 spatial=3 + bias + relu", FORWARD),
    (
        "conv x=i8[1,1,5,9,16]nhwc w=i8[24,1,3,3,3]nhwc pad=1 compute=i32 out=i8 spatial=3 + scale + bias + relu",
        FORWARD,
    ),
    ("conv x=f32[2,1,5,9,12]nhwc w=f32[32,1,3,3,3]nhwc pad=1 spatial=3 + bias + relu", FLOATS),
    ("conv x=f32[1,3,6,9,11]nhwc w=f32[16,3,2,3,5]nhwc pad=0,1,2 stride=2,2,1 mode=conv spatial=3", FLOATS),
]


@emulated
@pytest.mark.parametrize(("text", "engine"), VOLUMES)
def test_first_layer_of_a_volume(text: str, engine: Engine) -> None:
    few = replace(device_spec("h200"), sm_count=2)
    check_sums(text, engine, device=few)
    check_sums(text, engine, device=few, TILE_ROWS=2)
    if engine is FORWARD:
        check_sums(text, engine, device=few, KERNEL_CFG=2, TILE_ROWS=2)


LARGE = [
    ("dgrad dy=f16[64,64,112,112]nhwc w=f16[64,3,7,7]nhwc dx=[64,3,224,224] pad=3 stride=2", DGRAD),
    ("dgrad dy=bf16[64,32,112,112]nhwc w=bf16[32,3,3,3]nhwc dx=[64,3,224,224] pad=1 stride=2", DGRAD),
    ("dgrad dy=f16[64,96,55,55]nhwc w=f16[96,3,11,11]nhwc dx=[64,3,227,227] stride=4", DGRAD),
    ("wgrad x=f16[64,3,224,224]nhwc dy=f16[64,64,112,112]nhwc dw=[64,3,7,7] pad=3 stride=2", WGRAD),
    ("wgrad x=bf16[64,3,224,224]nhwc dy=bf16[64,32,112,112]nhwc dw=[32,3,3,3] pad=1 stride=2", WGRAD),
    ("conv x=f32[2,4,128,128,128]nhwc w=f32[32,4,3,3,3]nhwc pad=1 spatial=3 + bias + relu", FLOATS),
]


@compiler
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(("text", "engine"), LARGE)
def test_compiles(text: str, engine: Engine, arch: str) -> None:
    compiles_cleanly(operations(text), engine, arch)


@compiler
@pytest.mark.parametrize(("arch", "device"), [("sm_90a", "h200"), ("sm_89", "rtx4090")])
@pytest.mark.parametrize("text", [BYTES[0][0], VOLUME])
def test_first_layer_compiles(text: str, arch: str, device: str) -> None:
    compiles_cleanly(operations(text), FORWARD, arch, device=device)


@compiler
def test_first_layer_of_many_lines_compiles() -> None:
    text = "conv x=f16[4,3,32,224,224]nhwc w=f16[8,3,5,7,7]nhwc pad=2,3,3 stride=1,2,2 spatial=3 + bias + relu"
    compiles_cleanly(operations(text), FORWARD, "sm_90a")


_DY, _X = "dy=f16[1,16,9,9]nhwc", "x=f16[1,4,9,9]nhwc"
_REFUSED = {
    "direction": ("conv x=f16[1,4,9,9]nhwc w=f16[16,4,3,3] pad=1", "conv x=f16[1,4,9,9]nhwc w=f16[16,4,3,3] pad=1"),
    "operation": ("matmul a=f16[1,8,8] b=f16[1,8,8]", "matmul a=f16[1,8,8] b=f16[1,8,8]"),
    "spatial_dims": ("dgrad dy=f16[1,16,9] w=f16[16,4,3] dx=[1,4,9] pad=1 spatial=1",
                     "wgrad x=f16[1,4,9] dy=f16[1,16,9] dw=[16,4,3] pad=1 spatial=1"),
    "groups": (f"dgrad {_DY} w=f16[16,2,3,3] dx=[1,4,9,9] pad=1", f"wgrad {_X} {_DY} dw=[16,2,3,3] pad=1"),
    "channels": (f"dgrad {_DY} w=f16[16,8,3,3] dx=[1,8,9,9] pad=1",
                 f"wgrad x=f16[1,8,9,9]nhwc {_DY} dw=[16,8,3,3] pad=1"),
    "outputs": ("dgrad dy=f16[1,600,9,9]nhwc w=f16[600,4,3,3] dx=[1,4,9,9] pad=1",
                f"wgrad {_X} dy=f16[1,600,9,9]nhwc dw=[600,4,3,3] pad=1"),
    "data_type": ("dgrad dy=f32[1,16,9,9]nhwc w=f32[16,4,3,3] dx=[1,4,9,9] pad=1",
                  "wgrad x=f32[1,4,9,9]nhwc dy=f32[1,16,9,9]nhwc dw=[16,4,3,3] pad=1"),
    "compute_type": (f"dgrad {_DY} w=f16[16,4,3,3] dx=[1,4,9,9] pad=1 compute=f64",
                     f"wgrad {_X} {_DY} dw=[16,4,3,3] pad=1 compute=f64"),
    "dilation": (f"dgrad {_DY} w=f16[16,4,3,3] dx=[1,4,9,9] pad=2 dil=2", f"wgrad {_X} {_DY} dw=[16,4,3,3] pad=2 dil=2"),
    "filter": (f"dgrad {_DY} w=f16[16,4,13,13] dx=[1,4,9,9] pad=6", f"wgrad {_X} {_DY} dw=[16,4,13,13] pad=6"),
    "stride": ("dgrad dy=f16[1,16,2,2]nhwc w=f16[16,4,3,3] dx=[1,4,9,9] stride=6",
               f"wgrad {_X} dy=f16[1,16,2,2]nhwc dw=[16,4,3,3] stride=6"),
    "layout": ("dgrad dy=f16[1,16,9,9] w=f16[16,4,3,3] dx=[1,4,9,9] pad=1",
               "wgrad x=f16[1,4,9,9] dy=f16[1,16,9,9] dw=[16,4,3,3] pad=1"),
    "addressable": ("dgrad dy=f16[1,1,16,9,9] w=f16[1,16,4,3,3] dx=[1,1,4,9,9] pad=1 spatial=2",
                    "wgrad x=f16[1,1,4,9,9] dy=f16[1,1,16,9,9] dw=[1,16,4,3,3] pad=1 spatial=2"),
    "pairs": ("", "wgrad x=f16[1,3,9,9]nhwc dy=f16[1,16,9,9]nhwc dw=[16,3,3,3] pad=1"),
    "shared_memory": ("dgrad dy=f16[1,512,9,9]nhwc w=f16[512,4,11,11] dx=[1,4,9,9] pad=5",
                      "wgrad x=f16[1,4,9,4000]nhwc dy=f16[1,16,9,4000]nhwc dw=[16,4,3,3] pad=1"),
    "coordinates": ("dgrad dy=f16[1,16,2147483006,6]nhwc w=f16[16,4,3,3] dx=[1,4,8,8] pre=2147483000,0 post=0,0",
                    "wgrad x=f16[1,4,8,8]nhwc dy=f16[1,16,2147483006,6]nhwc dw=[16,4,3,3] pre=2147483000,0 post=0,0"),
}  # fmt: skip


@pytest.mark.parametrize("reason", _REFUSED)
def test_refusals(reason: str) -> None:
    for text, engine in zip(_REFUSED[reason], (DGRAD, WGRAD), strict=True):
        if text:
            ids = {r.rule for r in engine.why_not(Task(fused(operations(text)), device_spec("h200")))}
            assert f"{engine.name}.{reason}" in ids, text


@pytest.mark.parametrize("engine", [DGRAD, WGRAD], ids=lambda e: e.name)
def test_refuses_prologues(engine: Engine) -> None:
    graph = Graph()
    dy = graph.tensor([1, 16, 9, 9], data_type="float16", name="dy")
    other = graph.tensor([16, 4, 3, 3] if engine is DGRAD else [1, 4, 9, 9], data_type="float16")
    if engine is DGRAD:
        graph.conv_dgrad(graph.relu(dy), other, padding=[1, 1]).set_dim([1, 4, 9, 9]).set_output(True)
    else:
        graph.conv_wgrad(graph.relu(other), dy, padding=[1, 1]).set_dim([16, 4, 3, 3]).set_output(True)
    (op,) = fuse(graph.build_operation_graph())
    assert op.prologue
    assert f"{engine.name}.prologue" in {r.rule for r in engine.why_not(Task(op, device_spec("h200")))}

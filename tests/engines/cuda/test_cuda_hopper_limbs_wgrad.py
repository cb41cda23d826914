"""Split-precision filter gradients on compute capability 9.0: on the host against NumPy, and compiled."""

from __future__ import annotations

from functools import partialmethod

import numpy as np
import pytest
from cuda_comparison import compiler, compiles_cleanly, device_kernel, emulated, fused, run_both, text_compiles_cleanly
from disassembly import NO_DISASSEMBLER, instructions
from emulator import Emulated
from exact_sums import check_sums, check_values, operations

from graphdnn.dtypes import ELEMENTS
from graphdnn.engines import Engine
from graphdnn.engines.cuda.sm90.split_precision.hopper_limbs_wgrad import ENGINE, ENGINE_TF32, INTEGERS
from graphdnn.engines.cuda.sm90.split_precision.limb_wgrad_tiles import TILES
from graphdnn.enums import KnobType

_NUMBER = {tile.name: i for i, tile in enumerate(TILES, 1)}
BOTH = pytest.mark.parametrize("engine", [ENGINE, ENGINE_TF32], ids=lambda e: e.name)


def _check(text: str, engine: Engine, tile: str = "64x64", **knobs: int) -> None:
    """Small multiples of a quarter are exact in any order, and in one plane."""
    check_sums(text, engine, TILE_SIZE=_NUMBER[tile], **knobs)


SHORT = [
    "wgrad x=f32[2,12,9,11]nhwc dy=f32[2,24,9,11]nhwc dw=[24,12,3,3] pad=1",
    "wgrad x=f32[2,72,9,11] dy=f32[2,80,5,6] dw=[80,72,3,3] pad=1 stride=2",
]
LONG = [
    "wgrad x=f32[1,13,40]nhwc dy=f32[1,7,40]nhwc dw=[7,13,5] pad=2 spatial=1 mode=conv",
    "wgrad x=f32[1,9,5,6,7]nhwc dy=f32[1,8,5,6,7]nhwc dw=[8,9,3,3,3] pad=1 spatial=3",
    "wgrad x=f32[1,32,9,11]nhwc dy=f32[1,48,9,11]nhwc dw=[48,16,3,3] pad=1",
    "wgrad x=f32[2,130,6,5]nhwc dy=f32[2,72,2,3]nhwc dw=[72,130,3,2] dil=2 out=f16",
]


@emulated
@BOTH
@pytest.mark.parametrize("text", SHORT)
def test_results(text: str, engine: Engine) -> None:
    _check(text, engine, SPLIT_K=1)
    _check(text, engine, SPLIT_K=2)


@emulated
@pytest.mark.long
@BOTH
@pytest.mark.parametrize("tile", _NUMBER)
@pytest.mark.parametrize("text", [*SHORT, *LONG])
def test_more_results(text: str, tile: str, engine: Engine) -> None:
    _check(text, engine, tile, SPLIT_K=1)
    _check(text, engine, tile, SPLIT_K=12)


INTEGER_SHORT = [
    "wgrad x=i8[2,24,9,11]nhwc dy=i8[2,40,9,11]nhwc dw=[40,24,3,3] pad=1 compute=i32 out=i32",
    "wgrad x=i16[2,72,9,11] dy=i16[2,80,5,6] dw=[80,72,3,3] pad=1 stride=2 compute=i64 out=i64",
]
INTEGER_LONG = [
    "wgrad x=i8[1,13,40]nhwc dy=u8[1,7,40]nhwc dw=[7,13,5] pad=2 spatial=1 mode=conv compute=i32 out=f32",
    "wgrad x=u8[1,9,5,6,7]nhwc dy=u8[1,8,5,6,7]nhwc dw=[8,9,3,3,3] pad=1 spatial=3 compute=i64 out=i64",
    "wgrad x=u8[1,32,19,21]nhwc dy=u8[1,48,19,21]nhwc dw=[48,16,3,3] pad=1 compute=i32 out=i32",
    "wgrad x=i16[1,20,19,21]nhwc dy=i16[1,24,19,21]nhwc dw=[24,20,1,1] compute=i32 out=i32",
]


def _check_integers(text: str, draw: str, **knobs: int) -> None:
    ops, rng = operations(text), np.random.default_rng(0)
    op = fused(ops)
    values = {}
    for t in (*op.inputs, *op.outputs):
        row = ELEMENTS[t.data_type]
        if t in op.outputs or draw == "any":
            low, high = (int(row.smallest), int(row.largest)) if np.dtype(row.numpy).kind in "iu" else (-9, 9)
            values[t.uid] = rng.integers(low, high, t.extents, endpoint=True).astype(row.numpy)
        else:  # low: bytes that reach farthest below and above
            values[t.uid] = np.full(t.extents, row.smallest if draw == "low" else row.largest, row.numpy)
            if row.bytes == 2 and draw == "low":
                values[t.uid] += 255
    check_values(ops, INTEGERS, values, TILE_SIZE=_NUMBER["64x64"], **knobs)


@emulated
@pytest.mark.parametrize("text", INTEGER_SHORT)
def test_integers_are_exact(text: str) -> None:
    for draw in ("any", "low", "high"):
        _check_integers(text, draw, SPLIT_K=1)


@emulated
@pytest.mark.long
@pytest.mark.parametrize("text", [*INTEGER_SHORT, *INTEGER_LONG])
def test_more_integers(text: str) -> None:
    for draw in ("any", "low", "high"):
        _check_integers(text, draw, SPLIT_K=1)
        _check_integers(text, draw, SPLIT_K=3)


@emulated
def test_threads_in_the_other_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that multiply come before those that copy. Stages of 64 pixels, and of 32, where three of 64 do not fit."""
    monkeypatch.setattr(Emulated, "launch", partialmethod(Emulated.launch, backward=True))
    _check(SHORT[0], ENGINE, "128x64", SPLIT_K=1)
    _check(SHORT[0], ENGINE, "128x128", SPLIT_K=2)


@emulated
@BOTH
def test_errors(engine: Engine) -> None:
    """Within the stated bound of sums in float64, and infinities where they are."""
    text = "wgrad x=f32[1,16,20,24]nhwc dy=f32[1,16,20,24]nhwc dw=[16,16,1,1]"
    ops, rng = operations(text), np.random.default_rng(0)
    op = fused(ops)
    x, dw, dy = op.anchor.roles  # type: ignore[union-attr]
    for scale in (1.0, 2.0**60, 2.0**-60):
        for draw in (rng.standard_normal, rng.random):
            a, b = (draw(t.extents).astype(np.float32) for t in (x, dy))
            a *= np.float32(scale)
            got, _ = run_both(ops, engine, {x.uid: a, dy.uid: b}, {KnobType.TILE_SIZE: _NUMBER["64x64"]})
            exact, size = (
                np.einsum("nchw,nkhw->kc", f(a.astype(np.float64)), f(b.astype(np.float64)))
                for f in (np.positive, np.abs)
            )
            assert engine.sum_error is not None
            bound = engine.sum_error.units(480) * 2.0**-24 * size
            assert np.all(np.abs(got[dw.uid][:, :, 0, 0] - exact) <= bound)
    a[0, 3, 2, 2], b[0, 5, 7, 7], a[0, 9, 1, 1] = np.inf, -np.inf, np.nan
    got, expected = run_both(ops, engine, {x.uid: a, dy.uid: b}, {KnobType.TILE_SIZE: _NUMBER["64x64"]})
    there = np.isfinite(expected[dw.uid])
    np.testing.assert_array_equal(np.isfinite(got[dw.uid]), there)
    np.testing.assert_array_equal(got[dw.uid][~there], expected[dw.uid][~there])


_LARGE = "wgrad x=f32[32,256,56,56]nhwc dy=f32[32,256,56,56]nhwc dw=[256,256,3,3] pad=1"


@compiler
@pytest.mark.skipif(bool(NO_DISASSEMBLER), reason=NO_DISASSEMBLER)
@BOTH
def test_products_run_on_tensor_cores(engine: Engine) -> None:
    text = device_kernel(operations(_LARGE), engine).steps[-1].text  # type: ignore[union-attr]
    found = instructions(text_compiles_cleanly(text, "sm_90a").cubin)
    assert found["HGMMA"], found
    assert found["UTMALDG"], found


@compiler
@pytest.mark.long
@BOTH
@pytest.mark.parametrize("tile", _NUMBER)
def test_every_tile_compiles_cleanly(tile: str, engine: Engine) -> None:
    compiles_cleanly(operations(_LARGE), engine, "sm_90a", {KnobType.TILE_SIZE: _NUMBER[tile]})

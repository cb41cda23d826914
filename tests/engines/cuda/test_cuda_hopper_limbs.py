"""Split precision on compute capability 9.0: its algebra, and the kernels on the host against the general engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from cuda_comparison import compiled, compiler, compiles_cleanly, device_kernel, emulated, fused, run_both
from disassembly import NO_DISASSEMBLER, instructions
from exact_sums import check_sums, check_values, operations

from graphdnn.dtypes import ELEMENTS, Array
from graphdnn.engines import Engine
from graphdnn.engines.cuda.sm90.split_precision.hopper_limbs import FLOATS, INTEGERS
from graphdnn.engines.cuda.sm90.split_precision.limb_schemes import LimbScheme, limb_scheme_of
from graphdnn.engines.cuda.sm90.split_precision.limb_tiles import TILES
from graphdnn.enums import DataType, KnobType
from graphdnn.tensors import TensorSpec

_NUMBER = {tile.name: i for i, tile in enumerate(TILES, 1)}
SMALL = _NUMBER["64x32"]
_T = DataType
_NAMES = {"i8": _T.INT8, "u8": _T.UINT8, "i16": _T.INT16, "i32": _T.INT32, "i64": _T.INT64}
BYTES = (_T.INT8, _T.UINT8, _T.INT16, _T.INT32)


# The algebra.


def _limbs(values: Array, names: tuple[str, ...]) -> list[Array]:
    words = values.astype(np.int64)
    parts = [(words >> 8 * i) & 255 for i in range(len(names))]
    return [np.where((p > 127) & (n == "s8"), p - 256, p) for p, n in zip(parts, names, strict=True)]


def _by_limbs(scheme: LimbScheme, x: Array, w: Array) -> int:
    """Sums of products of limbs in 32 bits, combined as the kernel combines them."""
    a, b = _limbs(x, scheme.limbs[0]), _limbs(w, scheme.limbs[1])
    sums = [0] * scheme.orders
    for i, j, order in scheme.products:
        sums[order] = (sums[order] + int(np.sum(a[i] * b[j]))) % 2**32
    total = 0
    if scheme.is_packed:
        sums = [*sums[:2], _packed_register(scheme, a, b)]
    for order, value in enumerate(sums):
        unsigned = {(scheme.limbs[0][i], scheme.limbs[1][j]) for i, j, g in scheme.products if g == order} == {
            ("u8", "u8")
        }
        total += (value if unsigned or value < 2**31 else value - 2**32) << 8 * order
    bits = 32 if scheme.compute is _T.INT32 else 64
    return (total + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


def _packed_register(scheme: LimbScheme, a: list[Array], b: list[Array]) -> int:
    """The register that orders 2 and 3 share, which the kernel permutes twice in two MMA K steps."""

    def add(register: int, order: int, block: int) -> int:
        part = slice(block * scheme.mma_k, (block + 1) * scheme.mma_k)
        return register + sum(int(np.sum(a[i][part] * b[j][part])) for i, j, g in scheme.products if g == order)

    register = 0
    for block in range(0, -(-len(a[0]) // scheme.mma_k), 2):
        after_order_2 = add(register, 2, block) % 2**32
        start = after_order_2 >> 8 & 255 | scheme.packed_bias << 16
        register = add(add(start, 3, block), 3, block + 1)
        assert 0 <= register < 2**24
        register = add(register << 8 | after_order_2 & 255, 2, block + 1) % 2**32
    return register % 2**16


@pytest.mark.parametrize("compute", [_T.INT32, _T.INT64])
@pytest.mark.parametrize("b", BYTES)
@pytest.mark.parametrize("a", BYTES)
def test_limbs_give_the_product(a: DataType, b: DataType, compute: DataType) -> None:
    scheme = limb_scheme_of(a, b, compute)
    if scheme is None:
        assert (compute is _T.INT64) == (_T.INT32 in (a, b)) or compute is _T.INT32
        return
    count = min(scheme.max_products or 40_000, 40_000)
    rng = np.random.default_rng(0)
    for draw in ("random", "low", "high", "mixed"):
        x, w = (_drawn(t, count, draw, rng, turn) for turn, t in enumerate((a, b)))
        exact = sum(int(p) * int(q) for p, q in zip(x[:2000], w[:2000], strict=True)) if draw == "random" else None
        if exact is None:
            exact, n = int(x[0]) * int(w[0]) * count, count
        else:
            n = 2000
        bits = 32 if compute is _T.INT32 else 64
        assert _by_limbs(scheme, x[:n], w[:n]) == (exact + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


def _drawn(data_type: DataType, count: int, draw: str, rng: np.random.Generator, turn: int) -> Array:
    row = ELEMENTS[data_type]
    ends = {"low": row.smallest, "high": row.largest, "mixed": (row.smallest, row.largest)[turn]}
    if draw == "random":
        return rng.integers(row.smallest, row.largest, count, endpoint=True)
    return np.full(count, ends[draw])


def test_a_longer_sum_would_overflow() -> None:
    """``max_products`` is no smaller than need be, for the pair that matters most."""
    scheme = limb_scheme_of(_T.INT16, _T.INT16, _T.INT64)
    assert scheme is not None
    assert scheme.max_products == 32896
    low = np.full(scheme.max_products + 1, -(2**15) + 255)  # -128 and 255: the cross sums grow fastest
    assert _by_limbs(scheme, low, low) != int(low[0]) ** 2 * low.size
    assert _by_limbs(scheme, low[:-1], low[:-1]) == int(low[0]) ** 2 * (low.size - 1)


# The kernels, on the host.


def _whole(spec: TensorSpec, rng: np.random.Generator) -> Array:
    """Any number of the type, its ends often."""
    row = ELEMENTS[spec.data_type]
    low, high = int(row.smallest), int(row.largest)
    values = rng.integers(low, high, spec.extents, dtype=row.numpy, endpoint=True)
    values[rng.random(spec.extents) < 0.1] = low
    values[rng.random(spec.extents) < 0.1] = high
    return values


def _check_integers(text: str, seed: int = 0, tile: int = SMALL, **knobs: Any) -> None:
    ops, rng = operations(text), np.random.default_rng(seed)
    op = fused(ops)
    values = {t.uid: _whole(t, rng) for t in (*op.inputs, *op.outputs) if not t.is_constant}
    check_values(ops, INTEGERS, values, TILE_SIZE=tile, **knobs)


SHORT = [
    "conv x=i16[2,24,5,7]nhwc w=i16[40,24,3,3]nhwc pad=1 compute=i64 out=i64",
    "conv x=i32[1,36,6,5]nhwc w=i32[24,36,2,3]nhwc pad=1 compute=i32 out=i32",
]
LONG = [
    "conv x=i16[2,24,5,7]nhwc w=i16[40,24,3,3]nhwc pad=1 compute=i32 out=i32 + relu",
    "conv x=i16[2,72,9,7]nhwc w=i16[40,72,3,2]nhwc pad=2 stride=2 compute=i64 out=i16",
    "conv x=i16[2,24,5,7] w=i16[40,24,3,3] pad=1 dil=2 compute=i64 out=i64",
    "conv x=i16[2,48,5,7]nhwc w=i16[40,24,3,3]nhwc pad=1 compute=i64 out=i64",
    "conv x=i16[2,20,40]nhwc w=i16[33,20,5]nhwc pad=2 spatial=1 compute=i64 out=i64",
    "conv x=i16[1,16,4,5,6]nhwc w=i16[8,16,2,3,2]nhwc pad=1 spatial=3 compute=i64 out=i64",
    "conv x=i16[1,64,6,5]nhwc w=i8[24,64,3,3]nhwc pad=1 compute=i32 out=i32",
    "conv x=u8[1,136,6,5]nhwc w=i16[24,136,3,3]nhwc pad=1 compute=i64 out=i64",
    "conv x=i8[1,136,6,5]nhwc w=u8[24,136,1,1]nhwc compute=i64 out=i64",
    "conv x=i32[1,36,6,5]nhwc w=i16[24,36,2,3]nhwc pad=1 compute=i32 out=i32",
    "conv x=i16[1,36,6,5]nhwc w=i32[24,36,2,3]nhwc pad=1 compute=i32 out=i32",
    "dgrad dy=i16[2,40,5,4]nhwc w=i16[40,24,3,3]nhwc dx=[2,24,9,8] pad=1 stride=2 compute=i64 out=i64",
    "dgrad dy=i32[1,40,5,4]nhwc w=i32[40,24,3,3]nhwc dx=[1,24,5,4] pad=1 compute=i32 out=i32",
]


@emulated
@pytest.mark.parametrize("text", SHORT)
def test_integers(text: str) -> None:
    _check_integers(text)


@emulated
@pytest.mark.parametrize("value", [0x7FFFFFFF, -0x7FFFFF01, -0x7F000001, 0x0000FFFF])
def test_bytes_that_reach_farthest(value: int) -> None:
    """Of the products of order 3, which have 24 bits: all as high or as low as they come."""
    ops = operations("conv x=i32[1,136,6,5]nhwc w=i32[24,136,2,3]nhwc pad=1 compute=i32 out=i32")
    op = fused(ops)
    values = {t.uid: np.full(t.extents, value, np.int32) for t in (*op.inputs, *op.outputs)}
    check_values(ops, INTEGERS, values, TILE_SIZE=SMALL)


@emulated
@pytest.mark.long
@pytest.mark.parametrize("text", LONG)
def test_more_integers(text: str) -> None:
    _check_integers(text)
    _check_integers(text, 1, _NUMBER["128x64"], SPLIT_K=2)


@emulated
def test_a_sum_longer_than_32_bits_hold() -> None:
    """All at the lowest number: 33,024 products, where the cross sums hold 32,896."""
    ops = operations("conv x=i16[1,4128,4,2]nhwc w=i16[8,4128,4,2]nhwc compute=i64 out=i64")
    op = fused(ops)
    values = {t.uid: np.full(t.extents, -(2**15) + 255, ELEMENTS[t.data_type].numpy) for t in (*op.inputs, *op.outputs)}
    check_values(ops, INTEGERS, values, TILE_SIZE=SMALL)


_FLOAT = "conv x=f32[2,40,5,7]nhwc w=f32[36,40,3,3]nhwc pad=1"


def _normal(rng: np.random.Generator, size: Sequence[int]) -> Array:
    return rng.standard_normal(size)


def _positive(rng: np.random.Generator, size: Sequence[int]) -> Array:
    return rng.random(size)


def _wide(rng: np.random.Generator, size: Sequence[int]) -> Array:
    """Exponents from -30 to 30."""
    return rng.standard_normal(size) * 2.0 ** rng.integers(-30, 30, size)


def _convolution(x: Array, w: Array) -> Array:
    """In float64, padded by one."""
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], (2, 3))
    return np.einsum("nchwrs,kcrs->nkhw", windows, w.astype(np.float64))


def _run_floats(text: str, x: Array, w: Array, **knobs: Any) -> Array:
    ops = operations(text)
    op = fused(ops)
    (conv,) = ops
    values = {conv.x.uid: x, conv.w.uid: w}  # type: ignore[attr-defined]
    chosen = {KnobType.TILE_SIZE: SMALL} | {KnobType[k]: v for k, v in knobs.items()}
    got, _ = run_both(op.operations, FLOATS, values, chosen)
    return got[op.outputs[0].uid]


@emulated
@pytest.mark.parametrize("draw", [_normal, _positive, _wide])
def test_floats(draw: Callable[[np.random.Generator, Sequence[int]], Array]) -> None:
    """Far within the bound: a running sum in fp32 of these 360 products is off by about 3e-7 of the result."""
    rng = np.random.default_rng(0)
    x, w = draw(rng, (2, 40, 5, 7)).astype(np.float32), draw(rng, (36, 40, 3, 3)).astype(np.float32)
    got = _run_floats(_FLOAT, x, w)
    error = np.abs(got - _convolution(x, w))
    assert np.all(error <= 2.0**-24 * 17 * _convolution(np.abs(x), np.abs(w)))
    assert np.linalg.norm(error) <= 2e-7 * np.linalg.norm(_convolution(x, w))


@emulated
def test_infinities_and_nans_reach_what_they_meet() -> None:
    rng = np.random.default_rng(1)
    x, w = _normal(rng, (2, 40, 5, 7)).astype(np.float32), _normal(rng, (36, 40, 3, 3)).astype(np.float32)
    x[0, 3, 1, 1], x[1, 7, 2, 2], x[0, 9, 4, 6] = np.inf, np.nan, -np.inf
    w[5, 3, 0, 0], x[1, 1, 0, 5] = np.inf, 3.4e38
    w[:, 1] *= 0.25
    with np.errstate(invalid="ignore", over="ignore"):
        exact = _convolution(x, w).astype(np.float32)
    got = _run_floats(_FLOAT, x, w)
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(exact))
    np.testing.assert_array_equal(got[~np.isfinite(exact)], exact[~np.isfinite(exact)])


@emulated
@pytest.mark.long
@pytest.mark.parametrize(
    "text",
    [
        "conv x=f32[2,32,5,7]nhwc w=f32[40,32,3,3]nhwc pad=1 + bias + relu",
        "conv x=f32[2,64,5,7] w=f32[40,32,3,3] pad=1 stride=2",
        "conv x=f32[1,20,3,5,6]nhwc w=f32[12,20,2,3,2]nhwc pad=1 spatial=3",
        "conv x=f32[1,20,40]nhwc w=f32[12,20,5]nhwc pad=2 spatial=1 out=f16",
        "dgrad dy=f32[2,40,5,4]nhwc w=f32[40,24,3,3]nhwc dx=[2,24,9,8] pad=1 stride=2",
    ],
)
def test_more_floats(text: str) -> None:
    """Small multiples of a quarter are exact in any order."""
    for knobs in ({}, {"SPLIT_K": 3}):
        check_sums(text, FLOATS, TILE_SIZE=SMALL, **knobs)


# Compiled.


@compiler
@pytest.mark.skipif(bool(NO_DISASSEMBLER), reason=NO_DISASSEMBLER)
@pytest.mark.parametrize(
    ("engine", "text", "product"),
    [
        (INTEGERS, "conv x=i16[8,64,56,56]nhwc w=i16[64,64,3,3]nhwc pad=1 compute=i64 out=i64", "IGMMA"),
        (FLOATS, "conv x=f32[8,64,56,56]nhwc w=f32[64,64,3,3]nhwc pad=1 + bias + relu", "HGMMA"),
    ],
)
def test_products_run_on_tensor_cores(engine: Engine, text: str, product: str) -> None:
    """Products of a warpgroup, copies of pixels by the copy unit; nothing spilled, no sums waited for too soon."""
    compiles_cleanly(operations(text), engine, "sm_90a")
    text_of_products = device_kernel(operations(text), engine).steps[1].text  # type: ignore[union-attr]
    found = instructions(compiled(text_of_products, "sm_90a").cubin)
    assert found[product], found
    assert found["UTMALDG"], found
    assert found["LDSM"], found


_ALL = [
    (INTEGERS, f"conv x={a}[8,256,28,28]nhwc w={b}[256,256,3,3]nhwc pad=1 compute={c} out={c}")
    for a in ("i8", "u8", "i16", "i32")
    for b in ("i8", "i16", "i32")
    for c in ("i32", "i64")
    if limb_scheme_of(_NAMES[a], _NAMES[b], _NAMES[c]) is not None
]


@compiler
@pytest.mark.long
@pytest.mark.parametrize(
    ("engine", "text"), [*_ALL, (FLOATS, "conv x=f32[8,256,28,28]nhwc w=f32[256,256,3,3]nhwc pad=1")]
)
def test_every_tile_compiles_cleanly(engine: Engine, text: str) -> None:
    for number in range(1, len(TILES) + 1):
        compiles_cleanly(operations(text), engine, "sm_90a", {KnobType.TILE_SIZE: number})

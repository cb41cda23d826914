"""Conversions of kernel text (types.cuh) against the host's: every storage type with every compute type."""

from __future__ import annotations

import itertools
import struct
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from cuda_comparison import compiled
from emulator import MISSING, Emulated, compile_for_host

import graphdnn
from graphdnn.cuda.nvrtc import KernelText
from graphdnn.dtypes import ELEMENTS, Array, cast
from graphdnn.engines.cuda.codegen import parameters as codegen
from graphdnn.enums import DataType

TYPES = (Path(graphdnn.__file__).parent / "engines/cuda/codegen/include/types.cuh").read_text()
STORAGE = {data_type: name for data_type, name in codegen.STORAGE.items() if data_type is not DataType.BOOLEAN}
COMPUTE = {np.float64: "double", np.float32: "float", np.int32: "int", np.int64: "long long", np.bool_: "bool"}
PAIRS = list(itertools.product(STORAGE, COMPUTE))
PACKS = [(t, v) for t in STORAGE for v in (1, 2, 4, 8, 16, 32) if v * ELEMENTS[t].bytes <= 64]


def test_every_element_type_has_storage_in_kernels() -> None:
    """Engines of any type ask no further: a type without storage would end in a KeyError where kernels are written."""
    assert set(codegen.STORAGE) == set(ELEMENTS), "STORAGE in codegen/parameters.py has a row for each row of ELEMENTS"


@cache
def text() -> str:
    parts = [TYPES, "struct Params { const void* x; void* y; long long n; };\n"]
    each = "for (long long i = blockIdx.x * 256 + threadIdx.x; i < p.n; i += 256 * gridDim.x)"
    for storage, compute in PAIRS:
        s, c = STORAGE[storage], COMPUTE[compute]
        name = f"{s}_{c.replace(' ', '_')}"
        parts.append(f'extern "C" __global__ void widen_{name}(const __grid_constant__ Params p) {{')
        parts.append(f"    {each} (({c}*)p.y)[i] = widen<{c}>(((const {s}*)p.x)[i]);\n}}")
        parts.append(f'extern "C" __global__ void narrow_{name}(const __grid_constant__ Params p) {{')
        parts.append(f"    {each} (({s}*)p.y)[i] = narrow<{s}>(((const {c}*)p.x)[i]);\n}}")
    for storage, v in PACKS:
        s = STORAGE[storage]
        parts.append(f'extern "C" __global__ void reverse_{s}_{v}(const __grid_constant__ Params p) {{')
        parts.append(
            f"    const auto x = load_vec{'_read_only' * (v % 3 == 1)}<{v}>((const {s}*)p.x);\n    Vec<{s}, {v}> y;"
        )
        parts.append(f"    for (int i = 0; i < {v}; ++i) y[i] = x[{v} - 1 - i];\n    store_vec<{v}>(({s}*)p.y, y);\n}}")
    parts.append('extern "C" __global__ void constants(const __grid_constant__ Params p) {')
    parts.append("    float* y = (float*)p.y;\n    y[0] = INFINITY;\n    y[1] = -INFINITY;\n    y[2] = NAN;\n}")
    return "\n".join(parts)


def _name(storage: DataType, compute: type) -> str:
    return f"{STORAGE[storage]}_{COMPUTE[compute].replace(' ', '_')}"


@pytest.fixture(scope="module")
def emulated() -> Emulated:
    if MISSING:
        pytest.skip(MISSING)
    entries = [f"{way}_{_name(*pair)}" for pair in PAIRS for way in ("widen", "narrow")]
    entries += [f"reverse_{STORAGE[t]}_{v}" for t, v in PACKS]
    return compile_for_host(text(), (*entries, "constants"))


def _converted(emulated: Emulated, entry: str, x: Array, to: np.dtype) -> Array:
    y = np.empty(x.shape, to)
    emulated.launch(entry, (8,), 256, 0, struct.pack("<QQq", x.ctypes.data, y.ctypes.data, x.size))
    return y


def _equal(got: Array, expected: Array) -> Array:
    """Bit by bit, except that a NaN is a NaN."""
    assert got.dtype == expected.dtype
    bits = f"u{got.dtype.itemsize}"
    equal = got.view(bits) == expected.view(bits)
    if got.dtype.kind in "fV":
        with np.errstate(invalid="ignore"):
            equal |= np.isnan(got.astype(np.float64)) & np.isnan(expected.astype(np.float64))
    return equal


def stored(storage: DataType) -> Array:
    """Every pattern of the narrow types; random patterns and the extremes of the others."""
    dtype = ELEMENTS[storage].numpy
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.itemsize <= 2:
        return np.arange(1 << 8 * dtype.itemsize, dtype=f"u{dtype.itemsize}").view(dtype)
    return values(dtype.type)


@cache
def values(compute: type) -> Array:
    """What rounding, saturating and NaN depend on, and random patterns."""
    rng = np.random.default_rng(1)
    dtype = np.dtype(compute)
    if dtype.kind == "b":
        return np.array([False, True])
    size = 8 * dtype.itemsize
    patterns = rng.integers(0, 1 << 62, 40_000, dtype=np.uint64) * 4 + 3
    patterns = (patterns >> np.uint64(64 - size)).astype(f"u{dtype.itemsize}").view(dtype)
    if dtype.kind == "i":
        info = np.iinfo(dtype)
        shifted = patterns >> rng.integers(0, size, patterns.size).astype(dtype)  # every number of digits
        powers = np.array([1 << k for k in range(size - 1)], dtype)
        near = (powers[:, None] + np.arange(-3, 4, dtype=dtype)).ravel()
        middles = (powers[:, None] // 512 * np.arange(512, 1024, dtype=dtype)).ravel()
        middles = (middles[:, None] + np.array([-1, 0, 1], dtype)).ravel()
        both = np.concatenate([shifted, near, middles])
        return np.concatenate([both, -both, patterns, [info.min, info.min + 1, info.max, 0]]).astype(dtype)
    with np.errstate(all="ignore"):
        scaled = np.ldexp(rng.standard_normal(60_000), rng.integers(-160, 160, 60_000)).astype(dtype)
        wholes = (rng.integers(-(1 << 17), 1 << 17, 40_000) / 2).astype(dtype)  # with every tie of the small integers
        points = [ELEMENTS[t] for t in STORAGE if t is not DataType.BYTE_BOOLEAN]
        limits = np.array([v for e in points for v in (e.largest, e.smallest)]).astype(dtype)
        narrow = [
            np.arange(1 << 16, dtype=np.uint16).view(ELEMENTS[t].numpy) for t in (DataType.HALF, DataType.BFLOAT16)
        ]
        narrow += [
            np.arange(256, dtype=np.uint8).view(ELEMENTS[t].numpy) for t in (DataType.FP8_E4M3, DataType.FP8_E5M2)
        ]
        # Middles between neighbours of each narrow type, and what lies just beside them.
        sorted_values = [np.unique(n.astype(np.float64)[np.isfinite(n.astype(np.float64))]) for n in narrow]
        middles = np.concatenate([(s[1:] + s[:-1]) / 2 for s in sorted_values]).astype(dtype)
        exact = np.concatenate(
            [*sorted_values, limits, limits + 0.5, limits - 0.5, [np.inf, -np.inf, np.nan, 0.0, -0.0]]
        )
        points = np.concatenate([exact.astype(dtype), middles])
        beside = np.concatenate([np.nextafter(points, dtype.type(np.inf)), np.nextafter(points, dtype.type(-np.inf))])
        floats = np.nextafter(points.astype(np.float32), np.float32(np.inf)).astype(dtype)
    return np.concatenate([patterns, scaled, wholes, points, -points, beside, floats]).astype(dtype)


@pytest.mark.parametrize(("storage", "compute"), PAIRS, ids=lambda v: getattr(v, "name", None) or v.__name__)
def test_widen_is_astype(emulated: Emulated, storage: DataType, compute: type) -> None:
    x = stored(storage)
    got = _converted(emulated, f"widen_{_name(storage, compute)}", x, np.dtype(compute))
    with np.errstate(all="ignore"):
        expected = x.astype(compute)
        if np.dtype(compute).kind == "i" and ELEMENTS[storage].kind == "float":
            # What does not fit is undefined in C: the text promises the lowest integer.
            wide = x.astype(np.float64)
            fits = np.abs(wide) < 2.0 ** (8 * np.dtype(compute).itemsize - 1)
            expected = np.where(fits, expected, np.iinfo(compute).min)
    equal = _equal(got, expected)
    assert equal.all(), (x[~equal][:5], got[~equal][:5], expected[~equal][:5])


@pytest.mark.parametrize(("storage", "compute"), PAIRS, ids=lambda v: getattr(v, "name", None) or v.__name__)
def test_narrow_is_cast(emulated: Emulated, storage: DataType, compute: type) -> None:
    x = values(compute)
    got = _converted(emulated, f"narrow_{_name(storage, compute)}", x, ELEMENTS[storage].numpy)
    expected = cast(x, storage)
    equal = _equal(got, expected)
    assert equal.all(), (x[~equal][:5], got[~equal][:5], expected[~equal][:5])


@pytest.mark.parametrize("storage", [t for t in STORAGE if ELEMENTS[t].kind == "float"])
def test_there_and_back_is_the_same_element(emulated: Emulated, storage: DataType) -> None:
    x = stored(storage)
    wide = _converted(emulated, f"widen_{_name(storage, np.float64)}", x, np.dtype(np.float64))
    back = _converted(emulated, f"narrow_{_name(storage, np.float64)}", wide, x.dtype)
    if storage is DataType.FP8_E5M2:  # its infinities saturate
        x = np.where(np.isinf(wide), np.copysign(ELEMENTS[storage].largest, wide), wide).astype(x.dtype)
    assert _equal(back, x).all()


@pytest.mark.parametrize(("storage", "v"), PACKS)
def test_packs_move_whole(emulated: Emulated, storage: DataType, v: int) -> None:
    dtype = ELEMENTS[storage].numpy
    room = np.zeros(2 * 64 + 16, np.uint8)
    start = -room.ctypes.data % 16
    x, y = (room[start + at :][: v * dtype.itemsize].view(dtype) for at in (0, 64))
    x[...] = np.arange(v) % 2 if dtype.kind == "b" else (np.arange(v) + 1).astype(dtype)
    params = struct.pack("<QQq", x.ctypes.data, y.ctypes.data, v)
    emulated.launch(f"reverse_{STORAGE[storage]}_{v}", (1,), 1, 0, params)
    assert (y == x[::-1]).all()


def test_constants(emulated: Emulated) -> None:
    y = _converted(emulated, "constants", np.zeros(3, np.float32), np.dtype(np.float32))
    assert np.array_equal(y, [np.inf, -np.inf, np.nan], equal_nan=True)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_89", "sm_90a"])
def test_compiles_for_the_device(architecture: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings is not installed: types.cuh is NOT compiled")
    made = compiled(KernelText("types", text()), architecture)
    assert made.cubin
    assert "warning" not in made.log

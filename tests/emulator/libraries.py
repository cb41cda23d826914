"""cuBLAS and cuFFT on host memory: what stands in for them where kernels run in the emulator.

Arguments are checked as strictly as the libraries do, so that a call that passes here has a legal form.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from graphdnn.cuda import cublas, cufft
from graphdnn.cuda.cublas import Gemm
from graphdnn.cuda.cufft import Transform, Transforming
from graphdnn.dtypes import ELEMENTS, Array
from graphdnn.enums import DataType


def _dtype(kind: DataType) -> np.dtype[Any]:
    return np.dtype(np.complex64) if kind is DataType.COMPLEX_FP32 else ELEMENTS[kind].numpy


def _stack(address: int, kind: DataType, batch: int, rows: int, columns: int, leading: int, stride: int) -> Array:
    """A view of a stack of column-major matrices."""
    dtype = _dtype(kind)
    assert address % dtype.itemsize == 0, "misaligned"
    assert leading >= max(1, rows), f"leading dimension {leading} of {rows} rows"
    count = (batch - 1) * stride + (columns - 1) * leading + rows
    memory = np.frombuffer((ctypes.c_char * (count * dtype.itemsize)).from_address(address), dtype)
    size = dtype.itemsize
    return np.lib.stride_tricks.as_strided(
        memory, (batch, rows, columns), (stride * size, size, leading * size), writeable=True
    )


class HostBlas:
    """``graphdnn.cuda.cublas.Blas`` in NumPy: sums in the arithmetic's type, one rounding to the result's."""

    def __init__(self) -> None:
        self.calls: list[Gemm] = []

    def prepare(self) -> None:
        pass

    def gemm(self, call: Gemm, a: int, b: int, c: int, work: int, size: int, stream: int) -> None:
        self.calls.append(call)
        assert min(call.m, call.n, call.k, call.batch) >= 1
        assert work % cublas.WORKSPACE_ALIGNMENT == 0
        ctypes.memset(work, 0x5A, size)  # it is cuBLAS's to write
        if call.type_ab is DataType.INT8:
            assert call.lda % 4 == call.ldb % 4 == call.stride_a % 4 == call.stride_b % 4 == a % 4 == b % 4 == 0
            assert (call.transposed_a, call.transposed_b) == (True, False), "terms are neighbours in both operands"
            assert call.k % 4 == 0
        shape_a = (call.k, call.m) if call.transposed_a else (call.m, call.k)
        shape_b = (call.n, call.k) if call.transposed_b else (call.k, call.n)
        left = _stack(a, call.type_ab, call.batch, *shape_a, call.lda, call.stride_a)
        right = _stack(b, call.type_ab, call.batch, *shape_b, call.ldb, call.stride_b)
        result = _stack(c, call.type_c, call.batch, call.m, call.n, call.ldc, call.stride_c)
        if call.batch > 1:
            assert call.stride_c > 0, "results of a stack may not share memory"
        left = left.transpose(0, 2, 1) if call.transposed_a else left
        right = right.transpose(0, 2, 1) if call.transposed_b else right
        wide = _dtype(call.type_ab) if call.type_ab is DataType.COMPLEX_FP32 else _dtype(call.compute)
        with np.errstate(over="ignore", invalid="ignore"):
            result[...] = np.matmul(left.astype(wide), right.astype(wide)).astype(result.dtype)


class HostFft:
    """``graphdnn.cuda.cufft.Fft`` in NumPy."""

    def prepare(self, transform: Transform) -> Transforming:
        t = transform

        def run(source: int, target: int, work: int, stream: int) -> None:
            assert source % 8 == target % 8 == 0
            ctypes.memset(work, 0x5A, t.work_bytes)
            real, spectrum = (target, source) if t.is_inverse else (source, target)
            planes = np.frombuffer((ctypes.c_char * t.real_bytes).from_address(real), np.float32)
            planes = planes.reshape(t.planes, t.rows, t.columns)
            spectra = np.frombuffer((ctypes.c_char * t.spectrum_bytes).from_address(spectrum), np.complex64)
            spectra = spectra.reshape(t.rows, t.columns // 2 + 1, t.planes)
            if t.is_inverse:
                back = np.fft.irfft2(spectra.transpose(2, 0, 1), (t.rows, t.columns))
                planes[...] = back * (t.rows * t.columns)
                spectra[...] = np.nan  # the library uses it as memory
            else:
                spectra[...] = np.fft.rfft2(planes).transpose(1, 2, 0)

        return run


@contextmanager
def host_libraries() -> Iterator[HostBlas]:
    """Library calls work on host memory, and engines find the libraries."""
    blas = HostBlas()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cublas, "library", lambda: blas)
        patch.setattr(cublas, "missing", lambda: "")
        patch.setattr(cufft, "library", HostFft)
        patch.setattr(cufft, "missing", lambda: "")
        yield blas

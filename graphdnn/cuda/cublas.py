"""Products of stacks of matrices by cuBLAS, with a workspace of the caller's so that nothing is allocated in a call."""

from __future__ import annotations

import ctypes
import threading
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from graphdnn.cuda import vendor_libraries
from graphdnn.enums import DataType, Status

# cudaDataType_t and cublasComputeType_t.
TYPE: dict[DataType, int] = {
    DataType.FLOAT: 0,
    DataType.DOUBLE: 1,
    DataType.HALF: 2,
    DataType.INT8: 3,
    DataType.COMPLEX_FP32: 4,
    DataType.INT32: 10,
    DataType.BFLOAT16: 14,
}
_COMPUTE_32F, _COMPUTE_32F_PEDANTIC, _COMPUTE_64F, _COMPUTE_32I = 68, 69, 70, 72
_DISALLOW_REDUCED_PRECISION_REDUCTION = 16  # math mode: partial sums stay in the compute type
_ALGORITHM_DEFAULT = -1
_NAMES = {
    1: "CUBLAS_STATUS_NOT_INITIALIZED",
    3: "CUBLAS_STATUS_ALLOC_FAILED",
    7: "CUBLAS_STATUS_INVALID_VALUE",
    8: "CUBLAS_STATUS_ARCH_MISMATCH",
    11: "CUBLAS_STATUS_MAPPING_ERROR",
    13: "CUBLAS_STATUS_EXECUTION_FAILED",
    14: "CUBLAS_STATUS_INTERNAL_ERROR",
    15: "CUBLAS_STATUS_NOT_SUPPORTED",
    16: "CUBLAS_STATUS_LICENSE_ERROR",
}
WORKSPACE_ALIGNMENT = 256


@dataclass(frozen=True, slots=True)
class Gemm:
    """c = op(a) op(b) on ``batch`` matrices, column-major: c is m x n. Leading dimensions and strides in elements."""

    transposed_a: bool
    transposed_b: bool
    m: int
    n: int
    k: int
    type_ab: DataType
    type_c: DataType
    compute: DataType  # DOUBLE, FLOAT or INT32
    lda: int
    ldb: int
    ldc: int
    stride_a: int
    stride_b: int
    stride_c: int
    batch: int


class Blas(Protocol):
    """cuBLAS, or what stands in for it."""

    def prepare(self) -> None: ...

    def gemm(self, call: Gemm, a: int, b: int, c: int, work: int, size: int, stream: int) -> None: ...


class _Lent:
    """A handle that one thread has to itself. When the thread ends, the next one gets it: each has device memory."""

    def __init__(self, number: int, free: list[int]) -> None:
        self.number, self._free = number, free

    def __del__(self) -> None:
        self._free.append(self.number)


class Cublas:
    """The library, with one handle for each thread and device: a handle's stream and workspace are its state."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._local = threading.local()
        self._free: defaultdict[int, list[int]] = defaultdict(list)  # handles of threads that ended, by device
        i, p, word = ctypes.c_int, ctypes.c_void_p, ctypes.c_longlong
        matrix = (p, i, i, word)
        library.cublasGemmStridedBatchedEx.argtypes = (
            p, i, i, i, i, i, p, *matrix, *matrix, p, *matrix, i, i, i,
        )  # fmt: skip
        library.cublasSetStream_v2.argtypes = (p, p)
        library.cublasSetWorkspace_v2.argtypes = (p, p, ctypes.c_size_t)
        library.cublasSetMathMode.argtypes = (p, i)
        library.cublasCreate_v2.argtypes = (ctypes.POINTER(p),)

    def prepare(self) -> None:
        """Make the handle now: a call may be recorded into a graph, where nothing can be allocated."""
        self.handle()

    def handle(self) -> int:
        """The handle of the calling thread on the current device."""
        from graphdnn.cuda.driver_api import current_device

        handles: dict[int, _Lent] | None = getattr(self._local, "handles", None)
        if handles is None:
            handles = self._local.handles = {}
        ordinal = current_device()
        lent = handles.get(ordinal)
        if lent is None:
            free = self._free[ordinal]
            try:
                number = free.pop()
            except IndexError:
                number = self._new()
            lent = handles[ordinal] = _Lent(number, free)
        return lent.number

    def _new(self) -> int:
        """A handle allocates, which a capture of the calling thread forbids unless it is told to look away."""
        from graphdnn.cuda.driver_api import beside_captures

        made = ctypes.c_void_p()
        with beside_captures():
            self._call("cublasCreate_v2", ctypes.byref(made))
            self._call("cublasSetMathMode", made, _DISALLOW_REDUCED_PRECISION_REDUCTION)
        return int(made.value or 0)

    def gemm(self, call: Gemm, a: int, b: int, c: int, work: int, size: int, stream: int) -> None:
        handle = self.handle()
        self._call("cublasSetStream_v2", handle, stream)  # takes the workspace away, so it comes first
        self._call("cublasSetWorkspace_v2", handle, work, size)
        one, zero = _scalars(call.compute, call.type_ab is DataType.COMPLEX_FP32)
        kind, kind_c = TYPE[call.type_ab], TYPE[call.type_c]
        self._call(
            "cublasGemmStridedBatchedEx",
            handle, int(call.transposed_a), int(call.transposed_b), call.m, call.n, call.k,
            one, a, kind, call.lda, call.stride_a, b, kind, call.ldb, call.stride_b,
            zero, c, kind_c, call.ldc, call.stride_c, call.batch, _compute(call), _ALGORITHM_DEFAULT,
        )  # fmt: skip

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            known = _NAMES.get(code, "CUBLAS_STATUS")
            vendor_libraries.check("cuBLAS", name, code, known, Status.EXECUTION_FAILED_CUBLAS)


def _compute(call: Gemm) -> int:
    """float32 operands are multiplied as float32, whatever the environment says about TF32."""
    if call.compute is DataType.DOUBLE:
        return _COMPUTE_64F
    if call.compute is DataType.INT32:
        return _COMPUTE_32I
    return _COMPUTE_32F if call.type_ab in (DataType.HALF, DataType.BFLOAT16) else _COMPUTE_32F_PEDANTIC


@cache
def _scalars(compute: DataType, is_complex: bool) -> tuple[Any, Any]:
    """Addresses of 1 and 0 in host memory."""
    kind: Any = {DataType.DOUBLE: ctypes.c_double, DataType.INT32: ctypes.c_int}.get(compute, ctypes.c_float)
    words = kind * (2 if is_complex else 1)
    one, zero = words(1), words(0)
    return ctypes.cast(ctypes.pointer(one), ctypes.c_void_p), ctypes.cast(ctypes.pointer(zero), ctypes.c_void_p)


@cache
def library() -> Blas:
    """Raises ``NotSupported`` where there is none."""
    return Cublas(vendor_libraries.load("cublas"))


def missing() -> str:
    """Why there is no cuBLAS where plans run; an empty text when there is."""
    return vendor_libraries.missing_on_devices("cublas")

"""Batched matrices in the form that cuBLAS takes: unit stride along one axis, one batch stride, column-major results.

A row-major result is computed as its transpose, with the operands exchanged.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphdnn.cuda.cublas import Gemm
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.cost import copy_seconds
from graphdnn.enums import DataType

LARGEST = 2**31 - 1  # sizes, leading dimensions and the number of matrices are 32-bit numbers
_TILE = 64  # rows and columns of the smallest efficient tile
# The part of the peak rate that is reached; the second for fp32 without TF32, measured on an H200.
_SHARE, _FLOAT_SHARE = 0.78, 0.54
LARGEST_SHARE = max(_SHARE, _FLOAT_SHARE)
_PART, _FLOAT_PART = 512, 128  # k elements above which a sum is divided among CTAs; the second for fp32 without TF32
_START = 0.35  # the part of a launch that cuBLAS's kernels do not hide, while kernels of this library do
_OUTSIDE = 0.9  # the part of a result's bytes that is stored after the main loop, if arithmetic is the limit
_ODD_ROWS = 9.3  # factor of the arithmetic's time for 16-bit operands with unaligned rows, measured on an H200
_IDLE = 0.6  # the part of a launch's time that a grid saves if it leaves nearly all SMs idle

# (operand type, compute type) -> result types that cuBLAS supports.
RESULTS: dict[tuple[DataType, DataType], tuple[DataType, ...]] = {
    (DataType.DOUBLE, DataType.DOUBLE): (DataType.DOUBLE,),
    (DataType.FLOAT, DataType.FLOAT): (DataType.FLOAT,),
    (DataType.HALF, DataType.FLOAT): (DataType.FLOAT, DataType.HALF),
    (DataType.BFLOAT16, DataType.FLOAT): (DataType.FLOAT, DataType.BFLOAT16),
    (DataType.INT8, DataType.INT32): (DataType.INT32,),
    (DataType.COMPLEX_FP32, DataType.FLOAT): (DataType.COMPLEX_FP32,),
}
# What the arithmetic of an operation is called here: sums of narrow floats are float32.
ARITHMETIC: dict[DataType, DataType] = {
    DataType.DOUBLE: DataType.DOUBLE,
    DataType.FLOAT: DataType.FLOAT,
    DataType.HALF: DataType.FLOAT,
    DataType.BFLOAT16: DataType.FLOAT,
    DataType.INT32: DataType.INT32,
}
INT8_ALIGNMENT = 4  # bytes that rows of int8 start at
INT8_DEPTH = (2**31 - 1) // 2**14  # terms whose sum fits 32 bits whatever they are


@dataclass(frozen=True, slots=True)
class Matrices:
    """A batch of matrices: the strides of rows, columns and the batch in elements."""

    data_type: DataType
    row: int
    column: int
    batch: int = 0

    @property
    def transposed(self) -> Matrices:
        return Matrices(self.data_type, self.column, self.row, self.batch)


@dataclass(frozen=True, slots=True)
class Sizes:
    """c (m x n) = a (m x k) b (k x n), ``batch`` times."""

    m: int
    n: int
    k: int
    batch: int = 1


# Forms that a matrix may have: (is row-major, ...), in order of preference.
_ANY, _COLUMNS, _ROWS = (False, True), (False,), (True,)


def plan(sizes: Sizes, a: Matrices, b: Matrices, c: Matrices, arithmetic: DataType) -> tuple[Gemm, bool] | None:
    """The call, and whether it exchanges a and b; None if cuBLAS cannot address the strides."""
    if _leading(sizes.m, sizes.n, c, _COLUMNS) is None:
        found = _column_major(
            Sizes(sizes.n, sizes.m, sizes.k, sizes.batch), b.transposed, a.transposed, c.transposed, arithmetic
        )
        return None if found is None else (found, True)
    found = _column_major(sizes, a, b, c, arithmetic)
    return None if found is None else (found, False)


def _column_major(sizes: Sizes, a: Matrices, b: Matrices, c: Matrices, arithmetic: DataType) -> Gemm | None:
    if max(sizes.m, sizes.n, sizes.k, sizes.batch) > LARGEST:
        return None
    is_int8 = a.data_type is DataType.INT8  # tensor cores take its terms as neighbours in both operands
    left = _leading(sizes.m, sizes.k, a, _ROWS if is_int8 else _ANY)
    right = _leading(sizes.k, sizes.n, b, _COLUMNS if is_int8 else _ANY)
    result = _leading(sizes.m, sizes.n, c, _COLUMNS)
    if left is None or right is None or result is None or max(left[1], right[1], result[1]) > LARGEST:
        return None
    if is_int8 and any(v % INT8_ALIGNMENT for v in (left[1], right[1], a.batch, b.batch)):
        return None
    return Gemm(
        left[0], right[0], sizes.m, sizes.n, sizes.k, a.data_type, c.data_type, arithmetic,
        left[1], right[1], result[1], a.batch, b.batch, c.batch, sizes.batch,
    )  # fmt: skip


def _leading(rows: int, columns: int, matrix: Matrices, forms: tuple[bool, ...]) -> tuple[bool, int] | None:
    """Whether the matrix is row-major, and its leading dimension; the first form that fits."""
    unit = INT8_ALIGNMENT if matrix.data_type is DataType.INT8 else 1
    for is_transposed in forms:
        outer, inner, step, unit_step = (
            (rows, columns, matrix.row, matrix.column) if is_transposed else (columns, rows, matrix.column, matrix.row)
        )
        if inner != 1 and unit_step != 1:
            continue
        least = -(-inner // unit) * unit
        leading = step if outer > 1 else least
        if leading >= inner:
            return is_transposed, leading
    return None


def gemm_blocks(sizes: Sizes, operand: DataType) -> int:
    """The number of CTAs with the smallest tiles; long sums are divided among CTAs."""
    part = _FLOAT_PART if operand is DataType.FLOAT else _PART
    return -(-sizes.m // _TILE) * -(-sizes.n // _TILE) * sizes.batch * max(1, sizes.k // part)


def gemm_seconds(sizes: Sizes, operand: DataType, device: DeviceSpec, *, has_odd_rows: bool = False) -> float:
    """Predicted time of the arithmetic, with whole tiles and idle SMs counted."""
    tiles = -(-sizes.m // _TILE) * -(-sizes.n // _TILE) * sizes.batch
    filled = min(1.0, gemm_blocks(sizes, operand) / device.sm_count)
    share = _FLOAT_SHARE if operand is DataType.FLOAT else _SHARE
    seconds = 2.0 * tiles * _TILE * _TILE * sizes.k / (device.rate(operand) * share * filled)
    return seconds * _ODD_ROWS if has_odd_rows else seconds


def leaving_seconds(device: DeviceSpec, result: float) -> float:
    """Seconds of the stores of a result that do not overlap with the arithmetic."""
    return copy_seconds(device, _OUTSIDE * result)


def start_seconds(device: DeviceSpec) -> float:
    """Seconds of a call in addition to a launch."""
    return _START * device.launch


def idle_seconds(device: DeviceSpec, blocks: int) -> float:
    """Seconds that a grid of few CTAs saves: the next launch starts before it ends, and its CTAs share the bandwidth
    with few others.
    """
    return _IDLE * device.launch * max(0.0, 1.0 - blocks / device.sm_count)

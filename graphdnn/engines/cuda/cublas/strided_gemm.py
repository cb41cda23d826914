"""Stacks of matrices as cuBLAS takes them: unit stride along one axis, one stride for the stack, column-major results.

A row-major result is computed as its transpose, with the operands exchanged.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphdnn.cuda.cublas import Gemm
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.cost import copy_seconds
from graphdnn.enums import DataType

LARGEST = 2**31 - 1  # sizes, leading dimensions and the number of matrices are 32-bit numbers
_TILE = 64  # rows and columns of the smallest tiles that keep the units busy
_SHARE, _FLOAT_SHARE = 0.78, 0.54  # of the peak rate; in float32 without TF32, as measured on an H200
LARGEST_SHARE = max(_SHARE, _FLOAT_SHARE)
_PART, _FLOAT_PART = 512, 128  # terms of a sum, beyond which it is divided among blocks; in float32 without TF32
_START = 0.35  # of a launch, that the library's kernels hide less than ours
_OUTSIDE = 0.9  # of a result's bytes, that leave when products are done, where these are what takes the time
_ODD_ROWS = 9.3  # times what products take, where rows of 16-bit operands begin at odd places; measured on an H200
_IDLE = 0.6  # of a launch, that products do not take which leave nearly all multiprocessors idle

# Operand type and arithmetic -> types that the result can have.
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
    """A stack of matrices: elements between neighbours along rows, columns and the stack."""

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
    """The call, and whether a and b change places in it; None when the strides are not of that kind."""
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
    """(is row-major, leading dimension), in the first form that fits."""
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
    """Of the smallest tiles; long sums are divided among blocks."""
    part = _FLOAT_PART if operand is DataType.FLOAT else _PART
    return -(-sizes.m // _TILE) * -(-sizes.n // _TILE) * sizes.batch * max(1, sizes.k // part)


def gemm_seconds(sizes: Sizes, operand: DataType, device: DeviceSpec, *, has_odd_rows: bool = False) -> float:
    """Predicted time of the arithmetic: whole tiles, and fewer of them than the device has multiprocessors."""
    tiles = -(-sizes.m // _TILE) * -(-sizes.n // _TILE) * sizes.batch
    filled = min(1.0, gemm_blocks(sizes, operand) / device.sm_count)
    share = _FLOAT_SHARE if operand is DataType.FLOAT else _SHARE
    seconds = 2.0 * tiles * _TILE * _TILE * sizes.k / (device.rate(operand) * share * filled)
    return seconds * _ODD_ROWS if has_odd_rows else seconds


def leaving_seconds(device: DeviceSpec, result: float) -> float:
    """Of a result of so many bytes, beside the arithmetic."""
    return copy_seconds(device, _OUTSIDE * result)


def start_seconds(device: DeviceSpec) -> float:
    """Besides a launch's."""
    return _START * device.launch


def idle_seconds(device: DeviceSpec, blocks: int) -> float:
    """Of a launch, that one of so few blocks does not take: the next one is there before it ends, and its blocks have
    the memory to themselves.
    """
    return _IDLE * device.launch * max(0.0, 1.0 - blocks / device.sm_count)

"""A forward convolution as hopper_weight_stationary.cu sees it: pixels, steps of k, columns."""

from __future__ import annotations

from graphdnn.engines.batch_invariance import memoize_for_lines
from graphdnn.engines.cuda.conv_geometry.gemm_problem import gemm_problem_of
from graphdnn.engines.cuda.sm90.conv_gemm_shape import sizes_of
from graphdnn.engines.cuda.sm90.epilogue_operands import kept_bytes
from graphdnn.engines.cuda.sm90.gemm_fields import last_slices
from graphdnn.engines.cuda.sm90.tile import ROW, SLICE
from graphdnn.engines.cuda.sm90.weight_stationary.weight_stationary_tiles import Shape
from graphdnn.engines.memoization import memoize
from graphdnn.engines.operation_cost import bytes_moved
from graphdnn.fusion.fused_graph import FusedOp

_ALONE = 50  # times the bytes of a result, where its elements leave one by one
_AWAITED = 1.3  # times the bytes, where threads wait for an operand as large as the result


@memoize
def shape_of(op: FusedOp) -> Shape:
    ((rows, _),) = sizes_of(op).products
    kept, moved = _of_lines(op), bytes_moved(op)
    return kept._replace(rows=rows, moved_bytes=int(moved * _AWAITED) if sizes_of(op).streamed_bytes else moved)


@memoize_for_lines
def _of_lines(op: FusedOp) -> Shape:
    """What images, their lines and pixels do not change."""
    sizes, product = sizes_of(op), gemm_problem_of(op)
    ((_, depth),) = sizes.products
    (residue,) = product.residues
    taps, whole = residue.taps[0] * residue.taps[1] * residue.taps[2], ROW // SLICE
    slices = whole * depth - taps * (whole - last_slices(product))
    leaving = sizes.result_bytes * (_ALONE if sizes.are_alone else 1)
    return Shape(0, depth, slices, sizes.columns, leaving, kept_bytes(op), 0)

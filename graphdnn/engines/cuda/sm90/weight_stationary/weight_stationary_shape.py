"""The shape of a forward convolution that the choice of a weight-stationary tile depends on."""

from __future__ import annotations

from graphdnn.engines.batch_invariance import memoize_for_lines
from graphdnn.engines.cuda.conv_geometry.gemm_problem import gemm_problem_of
from graphdnn.engines.cuda.sm90.conv_gemm_shape import gemm_shape_of
from graphdnn.engines.cuda.sm90.epilogue_operands import column_operand_bytes
from graphdnn.engines.cuda.sm90.fitted_constants import WEIGHT_STATIONARY as FITTED
from graphdnn.engines.cuda.sm90.gemm_fields import tail_mma_steps
from graphdnn.engines.cuda.sm90.tile import MMA_K_BYTES, SWIZZLE_BYTES
from graphdnn.engines.cuda.sm90.weight_stationary.weight_stationary_tiles import Shape
from graphdnn.engines.memoization import memoize
from graphdnn.engines.operation_cost import bytes_moved
from graphdnn.fusion.fused_graph import FusedOp


@memoize
def shape_of(op: FusedOp) -> Shape:
    ((rows, _),) = gemm_shape_of(op).gemms
    base, moved_bytes = _shape_of_lines(op), bytes_moved(op)
    if gemm_shape_of(op).tma_residual_bytes:
        moved_bytes = int(moved_bytes * FITTED.residual_traffic_factor)
    return base._replace(rows=rows, moved_bytes=moved_bytes)


@memoize_for_lines
def _shape_of_lines(op: FusedOp) -> Shape:
    """The shape without rows and moved bytes: it does not depend on the extents of the images."""
    sizes, gemm = gemm_shape_of(op), gemm_problem_of(op)
    ((_, k_tiles),) = sizes.gemms
    (residue,) = gemm.residues
    taps, steps_per_k_tile = residue.taps[0] * residue.taps[1] * residue.taps[2], SWIZZLE_BYTES // MMA_K_BYTES
    mma_k_steps = steps_per_k_tile * k_tiles - taps * (steps_per_k_tile - tail_mma_steps(gemm))
    result_bytes = sizes.result_bytes * (FITTED.scalar_store_factor if sizes.scalar_stores else 1)
    return Shape(0, k_tiles, mma_k_steps, sizes.columns, result_bytes, column_operand_bytes(op), 0)

"""Implicit GEMM of bytes by dp4a: channels are counted in 32-bit words of four bytes."""

from __future__ import annotations

from dataclasses import replace

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.index_space import IndexSpace, is_addressable
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE
from graphdnn.engines.cuda.codegen.vectors import width_for
from graphdnn.engines.cuda.conv_geometry.convolution_roles import CHANNELS, Roles
from graphdnn.engines.cuda.conv_geometry.gemm_problem import GemmProblem, im2col_and_dense
from graphdnn.engines.cuda.simt.implicit_copies import channels_last, copying_seconds, summed_first
from graphdnn.enums import DataType
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.tensors import TensorSpec

QUAD = 4  # bytes of a dp4a operand


def counted(op: FusedOp, product: GemmProblem, device: DeviceSpec, thrifty: bool) -> tuple[GemmProblem, bool]:
    """The GEMM problem with channels counted in words of four bytes, and whether they are counted so.

    The channels of both operands must be contiguous. An operand in another layout is copied if the copy takes less time
    than dp4a saves and the workspace is not limited.
    """
    roles = product.roles
    im2col, dense = im2col_and_dense(roles)
    fits = (
        not product.is_wgrad
        and not op.prologue
        and {im2col.data_type, dense.data_type} <= {DataType.INT8, DataType.UINT8}
        and COMPUTE_TYPE[roles.op.compute_type] == "int"
        and product.channels % QUAD == 0
    )
    if not fits:
        return product, False
    copied = 0 if _are_words(roles.space(im2col), im2col, CHANNELS) else im2col.bytes
    copied += 0 if _are_words(roles.space(dense), dense, summed_axis(roles)) else dense.bytes
    if copied:
        spared = (1 - 1 / QUAD) * 2.0 * roles.problem.macs / device.rate(DataType.INT32)
        if thrifty or copying_seconds(copied, device) > spared:
            return product, False
    return replace(product, channels=product.channels // QUAD), True


def operands_in_words(steps: LaunchSequence, product: GemmProblem) -> tuple[TensorSpec, TensorSpec]:
    """The im2col and the dense operand of a dp4a problem, or their copies with contiguous summed channels."""
    roles = product.roles
    im2col, dense = im2col_and_dense(roles)
    if not _are_words(roles.space(im2col), im2col, CHANNELS):
        im2col = steps.relayout(im2col, channels_last(im2col, roles))
    if not _are_words(roles.space(dense), dense, summed_axis(roles)):
        dense = steps.relayout(dense, summed_first(product, dense))
    return im2col, dense


def _are_words(space: IndexSpace, spec: TensorSpec, axis: int) -> bool:
    return is_addressable(spec) and width_for(space, [spec], axis, QUAD) == QUAD


def summed_axis(roles: Roles) -> int:
    """The summed axis among the filter's coordinates."""
    return 2 if roles.direction == "fprop" else 1

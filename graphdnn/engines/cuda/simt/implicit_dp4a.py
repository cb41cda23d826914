"""Bytes in fours: products whose channels are counted by words, where the device multiplies and adds four at once."""

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

QUAD = 4  # bytes that are multiplied and added at once


def counted(op: FusedOp, product: GemmProblem, device: DeviceSpec, thrifty: bool) -> tuple[GemmProblem, bool]:
    """The product with channels counted in fours, and whether they are.

    Bytes are read as words: both operands' channels have to be neighbours; what is laid out otherwise is copied, where
    that takes less time than is spared and memory may be used.
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
    """The gathered and the plain operand of a counted product, or copies whose summed channels are neighbours."""
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
    """Of the filter's coordinates."""
    return 2 if roles.direction == "fprop" else 1

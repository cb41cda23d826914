"""Operands of a convolution for TMA: the tensors themselves, or copies with contiguous channels.

A row of channels may be followed by padding. TMA does not read the padding: TMA fills a box with zeros beyond the end
of the tensor.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.batch_invariance import memoize_for_images, memoize_for_lines
from graphdnn.engines.cuda.codegen.index_space import IndexSpace, is_addressable
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.conv_geometry.convolution_roles import Roles
from graphdnn.engines.cuda.conv_geometry.gemm_problem import gemm_problem_of, im2col_and_dense
from graphdnn.engines.cuda.simt.implicit_copies import copying_seconds
from graphdnn.engines.cuda.sm90.fitted_constants import FILTER_COPY
from graphdnn.engines.cuda.sm90.wgmma_text import ACROSS_K
from graphdnn.engines.memoization import memoize
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.tensors import TensorSpec

ALIGNMENT = 16  # bytes, of addresses and strides of tensor maps
LARGEST_STRIDE = 2**40


@dataclass(frozen=True)
class Operand:
    """A tensor in memory and the coordinates of a convolution's image or filter."""

    spec: TensorSpec
    space: IndexSpace
    is_filter: bool

    @classmethod
    def of(cls, roles: Roles, spec: TensorSpec) -> Operand:
        space, is_filter = roles.space(spec), spec.uid == roles.op.roles[1].uid
        if is_filter and is_filter_transposed(roles):
            group, k, c, *taps = space.axes
            space = IndexSpace(space.extents, (group, c, k, *taps))
        return cls(spec, space, is_filter)

    @property
    def size(self) -> int:
        return ELEMENTS[self.spec.data_type].bytes

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.space.sizes

    @property
    def strides(self) -> tuple[int, ...]:
        return self.space.strides(self.spec)

    @cached_property
    def is_copied(self) -> bool:
        return not is_tma_readable(self) or self.spec.byte_alignment % ALIGNMENT != 0

    def prepared(self, steps: LaunchSequence) -> Operand:
        """The operand itself, or its copy, which a launch makes."""
        if not self.is_copied:
            return self
        return Operand(steps.relayout(self.spec, channels_last_strides(self)), self.space, self.is_filter)

    def copying_seconds(self, device: DeviceSpec) -> float:
        """Predicted seconds of the copy; 0 without a copy."""
        if not self.is_copied:
            return 0.0
        if self.is_filter:
            return FILTER_COPY.copy_launches * device.launch + 2 * self.spec.bytes / device.bandwidth
        return copying_seconds(self.spec.bytes, device)

    @cached_property
    def tap_stride(self) -> int:
        """Elements from one tap to the next; -1 if the distances differ, in the order with the last axis fastest."""
        tap_step, count = 0, 1
        for size, stride in zip(reversed(self.sizes[3:]), reversed(self.strides[3:]), strict=True):
            if size == 1:
                continue
            if tap_step == 0:
                tap_step = stride
            elif stride != tap_step * count:
                return -1
            count *= size
        return tap_step


def is_filter_transposed(roles: Roles) -> bool:
    """Whether k and c of the filter are exchanged: wgmma reads the MN-major filter of a dgrad for 16-bit types only."""
    im2col, _ = im2col_and_dense(roles)
    return roles.direction == "dgrad" and im2col.data_type not in ACROSS_K


@memoize_for_images
def operands_of_images(op: FusedOp) -> tuple[Operand, Operand]:
    """The operands of a convolution with some number of images, which may differ from that of ``op``."""
    return operands(gemm_problem_of(op).roles)


@memoize_for_lines
def has_copies(op: FusedOp) -> bool:
    """Whether an operand needs a copy."""
    return any(operand.is_copied for operand in operands_of_images(op))


def prepared(op: FusedOp, steps: LaunchSequence) -> tuple[Operand, Operand]:
    """The operands of a convolution for TMA. Without copies the operands are ``operands_of_images``."""
    if not has_copies(op):
        return operands_of_images(op)
    im2col, dense = operands(gemm_problem_of(op).roles)
    return im2col.prepared(steps), dense.prepared(steps)


def copy_seconds_of(op: FusedOp, device: DeviceSpec) -> float:
    """Predicted seconds of the copies that a convolution's operands need."""
    return sum([o.copying_seconds(device) for o in operands(gemm_problem_of(op).roles)]) if has_copies(op) else 0.0


@memoize
def operands(roles: Roles) -> tuple[Operand, Operand]:
    """The im2col operand and the dense operand."""
    im2col, dense = im2col_and_dense(roles)
    return Operand.of(roles, im2col), Operand.of(roles, dense)


def is_tma_readable(operand: Operand) -> bool:
    """Whether channels are contiguous, and all other strides are valid for TMA."""
    if not is_addressable(operand.spec):
        return False
    sizes, strides = operand.sizes, operand.strides
    outer, groups, channels = (1, 0, 2) if operand.is_filter else (0, 1, 2)
    if sizes[channels] > 1 and strides[channels] != 1:
        return False
    group_distance = strides[outer] * sizes[outer] if operand.is_filter else sizes[channels]
    if sizes[groups] > 1 and strides[groups] != group_distance and (not operand.is_filter or sizes[outer] > 1):
        return False
    if operand.is_filter and operand.tap_stride < 0:
        return False
    strided_axes = [j for j in range(6) if sizes[j] > 1 and j != channels and (operand.is_filter or j != groups)]
    byte_strides = [strides[j] * operand.size for j in strided_axes]
    return all(0 < b < LARGEST_STRIDE and b % ALIGNMENT == 0 for b in byte_strides)


def channels_last_strides(operand: Operand) -> tuple[int, ...]:
    """Strides of a copy with contiguous channels: of all groups, for an image. Rows are padded to 16 bytes."""
    spec, axes = operand.spec, operand.space.axes
    alignment_elements = ALIGNMENT // operand.size
    order = [2, 5, 4, 3, 1, 0] if operand.is_filter else [2, 1, 5, 4, 3, 0]
    strides, stride_so_far = [0] * spec.rank, 1
    row_ends_at = 2 if operand.is_filter else 1
    for j in order:
        axis = axes[j]
        if axis.multiplier == 1 and axis.size > 1:  # an axis that holds the groups too is set by its inner part
            strides[axis.logical] = strides[axis.logical] or stride_so_far
        stride_so_far *= axis.size
        if j == row_ends_at:
            stride_so_far = -(-stride_so_far // alignment_elements) * alignment_elements
    return tuple(stride or stride_so_far for stride in strides)

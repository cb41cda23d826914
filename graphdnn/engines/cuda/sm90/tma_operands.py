"""Operands as the copy unit takes them: as they lie, or as a copy with channels next to each other.

A row of channels may end before the next one begins: what lies between is never read, for the copy unit puts zeros
where a tensor ends.
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
from graphdnn.engines.cuda.sm90.wgmma_text import ACROSS_K
from graphdnn.engines.memoization import memoize
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.tensors import TensorSpec

ALIGNMENT = 16  # bytes, of addresses and strides
# Of a filter's copy beside the products: 2.2 us and 0.4 for each MB, between 0.6 and 9 MB, measured on an H200.
_FILTER_START = 0.75  # of a launch
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
        if is_filter and is_exchanged(roles):
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
        return not is_movable(self) or self.spec.byte_alignment % ALIGNMENT != 0

    def prepared(self, steps: LaunchSequence) -> Operand:
        """Itself, or a copy made by a launch."""
        if not self.is_copied:
            return self
        return Operand(steps.relayout(self.spec, channels_first(self)), self.space, self.is_filter)

    def copying_seconds(self, device: DeviceSpec) -> float:
        """Predicted; 0 where it is read as it lies."""
        if not self.is_copied:
            return 0.0
        if self.is_filter:
            return _FILTER_START * device.launch + 2 * self.spec.bytes / device.bandwidth
        return copying_seconds(self.spec.bytes, device)

    @cached_property
    def tap_stride(self) -> int:
        """Elements from one tap to the next; -1 where taps do not lie at one distance, the last axis fastest."""
        step, count = 0, 1
        for size, stride in zip(reversed(self.sizes[3:]), reversed(self.strides[3:]), strict=True):
            if size == 1:
                continue
            if step == 0:
                step = stride
            elif stride != step * count:
                return -1
            count *= size
        return step


def is_exchanged(roles: Roles) -> bool:
    """Whether a filter's k and c change places: tensor cores read only 16-bit types across the summed axis."""
    gathered, _ = im2col_and_dense(roles)
    return roles.direction == "dgrad" and gathered.data_type not in ACROSS_K


@memoize_for_images
def operands_of_images(op: FusedOp) -> tuple[Operand, Operand]:
    """The operands of a convolution and any number of images: of another number than ``op`` has, maybe."""
    return operands(gemm_problem_of(op).roles)


@memoize_for_lines
def are_copied(op: FusedOp) -> bool:
    """Whether one of the operands is."""
    return any(operand.is_copied for operand in operands_of_images(op))


def prepared(op: FusedOp, steps: LaunchSequence) -> tuple[Operand, Operand]:
    """The operands of a convolution as the copy unit takes them. Where none is copied, ``operands_of_images``."""
    if not are_copied(op):
        return operands_of_images(op)
    gathered, plain = operands(gemm_problem_of(op).roles)
    return gathered.prepared(steps), plain.prepared(steps)


def copying_of(op: FusedOp, device: DeviceSpec) -> float:
    """Predicted seconds of the copies that a convolution's operands need."""
    return sum([o.copying_seconds(device) for o in operands(gemm_problem_of(op).roles)]) if are_copied(op) else 0.0


@memoize
def operands(roles: Roles) -> tuple[Operand, Operand]:
    """The one gathered from an image, and the one read as it lies."""
    gathered, plain = im2col_and_dense(roles)
    return Operand.of(roles, gathered), Operand.of(roles, plain)


def is_movable(operand: Operand) -> bool:
    """Channels are neighbours, other strides whole multiples of what the copy unit moves."""
    if not is_addressable(operand.spec):
        return False
    sizes, strides = operand.sizes, operand.strides
    outer, groups, channels = (1, 0, 2) if operand.is_filter else (0, 1, 2)
    if sizes[channels] > 1 and strides[channels] != 1:
        return False
    apart = strides[outer] * sizes[outer] if operand.is_filter else sizes[channels]
    if sizes[groups] > 1 and strides[groups] != apart and (not operand.is_filter or sizes[outer] > 1):
        return False
    if operand.is_filter and operand.tap_stride < 0:
        return False
    counted = [j for j in range(6) if sizes[j] > 1 and j != channels and (operand.is_filter or j != groups)]
    bytes_apart = [strides[j] * operand.size for j in counted]
    return all(0 < b < LARGEST_STRIDE and b % ALIGNMENT == 0 for b in bytes_apart)


def channels_first(operand: Operand) -> tuple[int, ...]:
    """Strides of a copy: channels (of all groups of an image) fastest, their row filled up, then the other axes."""
    spec, axes = operand.spec, operand.space.axes
    quantum = ALIGNMENT // operand.size
    order = [2, 5, 4, 3, 1, 0] if operand.is_filter else [2, 1, 5, 4, 3, 0]
    strides, pace = [0] * spec.rank, 1
    row_ends_at = 2 if operand.is_filter else 1
    for j in order:
        axis = axes[j]
        if axis.multiplier == 1 and axis.size > 1:  # an axis that holds the groups too is set by its inner part
            strides[axis.logical] = strides[axis.logical] or pace
        pace *= axis.size
        if j == row_ends_at:
            pace = -(-pace // quantum) * quantum
    return tuple(stride or pace for stride in strides)

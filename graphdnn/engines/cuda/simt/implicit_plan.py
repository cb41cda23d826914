"""The plan of a SIMT implicit GEMM: its tile, the copies of its operands, and the vector accesses of its threads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.codegen.index_space import IndexSpace, is_addressable
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence, fused_inputs
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE
from graphdnn.engines.cuda.codegen.vectors import width_for
from graphdnn.engines.cuda.conv_geometry.convolution_roles import CHANNELS, Roles
from graphdnn.engines.cuda.conv_geometry.gemm_problem import GemmProblem, gemm_problem_of, im2col_and_dense
from graphdnn.engines.cuda.simt.implicit_copies import (
    is_worth_padding,
    is_worth_relayout,
    outer_first,
    padded_problem,
)
from graphdnn.engines.cuda.simt.implicit_dp4a import QUAD, counted, operands_in_words, summed_axis
from graphdnn.engines.cuda.simt.implicit_tiles import SPLIT, Shape, choose
from graphdnn.engines.engine import Knobs
from graphdnn.enums import DataType
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.tensors import TensorSpec

_VECTOR_BYTES = 16
_FAR = 2**62  # the stride of an axis with one element


class Access(NamedTuple):
    """The loads of one operand."""

    width: int  # elements of a vector load
    k_major: bool  # K-major: consecutive threads read along k


@dataclass(frozen=True, slots=True)
class Plan:
    """A convolution with its tile and its copied operands."""

    op: FusedOp
    product: GemmProblem
    shape: Shape
    im2col: TensorSpec
    im2col_space: IndexSpace
    dense: TensorSpec
    staged: str  # element type of the tiles in shared memory
    compute: str
    has_prologue: bool
    is_dp4a: bool  # channels are counted in words of four bytes

    @classmethod
    def of(cls, op: FusedOp, steps: LaunchSequence, knobs: Knobs) -> Plan:
        """The plan of an operation; the launches of its copies are added to ``steps``."""
        device, thrifty = steps.device, is_thrifty(knobs)
        product, is_dp4a = counted(op, gemm_problem_of(op), device, thrifty)
        roles = product.roles
        im2col, dense = im2col_and_dense(roles)
        x_space, compute = roles.space(im2col), COMPUTE_TYPE[roles.op.compute_type]
        staged = _staged(im2col.data_type, dense.data_type, compute)
        shape = choose(product, device, roles.op.compute_type, knobs)
        if is_dp4a:
            im2col, dense = operands_in_words(steps, product)
        elif not thrifty and is_worth_relayout(product, shape, dense, device):
            dense = steps.relayout(dense, outer_first(product, dense))
        elif not is_addressable(dense):
            dense = steps.relayout(dense)
        has_prologue = bool(op.prologue) or not is_addressable(im2col)
        if not has_prologue and not is_dp4a and not thrifty and is_worth_padding(product, shape, im2col, device):
            product, im2col, x_space = padded_problem(steps, product, im2col, x_space, staged)
        return cls(op, product, shape, im2col, x_space, dense, staged, compute, has_prologue, is_dp4a)

    @property
    def roles(self) -> Roles:
        return self.product.roles

    @property
    def dense_space(self) -> IndexSpace:
        # A copy has a new uid; its coordinates are those of its source.
        return self.roles.space(im2col_and_dense(self.roles)[1])

    @property
    def dense_strides(self) -> tuple[int, ...]:
        return self.dense_space.strides(self.dense)

    @property
    def unit(self) -> int:
        """Elements that the kernel counts as one: 4 with dp4a, otherwise 1."""
        return QUAD if self.is_dp4a else 1

    def word_strides(self, strides: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(-(-stride // self.unit) for stride in strides)

    def name(self, splits: int) -> str:
        """Of sums in so many parts, which short ones have fewer of than were chosen."""
        split = "_split" if splits > 1 else ""
        return f"conv_{self.roles.direction}__simt_{self.shape.tile.name}{split}__{self.op.name}"

    def im2col_access(self) -> Access:
        space, prologue, is_wgrad = self.im2col_space, self.op.prologue, self.product.is_wgrad
        if self.has_prologue:
            width = min(4, width_for(space, fused_inputs(prologue), CHANNELS)) if prologue else 1
        else:
            width = self._width(space, self.im2col, CHANNELS) if is_addressable(self.im2col) else 1
        return Access(width, not is_wgrad if width > 1 or self.is_dp4a else is_wgrad)

    def dense_access(self) -> Access:
        """The loads of the dense operand. Vectors of w lie along c, which fprop sums over and dgrad does not; in wgrad
        vectors of dy lie along its channels.
        """
        direction, space = self.roles.direction, self.dense_space
        if self.is_dp4a:
            return Access(self._width(space, self.dense, summed_axis(self.roles)), True)
        width, k_major = self._width(space, self.dense, CHANNELS), direction == "fprop"
        if width == 1 and direction != "wgrad":  # w along k
            width, k_major = self._width(space, self.dense, 1), direction == "dgrad"
        return Access(width, k_major if width > 1 else self._is_contiguous())

    def _width(self, space: IndexSpace, spec: TensorSpec, axis: int) -> int:
        limit = min(_VECTOR_BYTES, 4 * self.unit * ELEMENTS[spec.data_type].bytes)
        return max(1, width_for(space, [spec], axis, limit) // self.unit)

    def _is_contiguous(self) -> bool:
        """Whether the dense operand's stride along k is smaller than along the outer index."""
        strides = [stride or _FAR for stride in self.dense_strides]
        if self.product.is_wgrad:
            return min(strides[3:]) <= strides[2]
        outer, summed = (strides[1], strides[2]) if self.roles.direction == "fprop" else (strides[2], strides[1])
        return summed <= outer


def is_thrifty(knobs: Knobs) -> bool:
    """Whether the knobs ask for little workspace."""
    return knobs[SPLIT.type] == 1


def _staged(im2col: DataType, dense: DataType, compute: str) -> str:
    """The element type of tiles in shared memory: the compute type, or 32-bit integers where both operands fit."""
    wide = any(t is DataType.INT64 for t in (im2col, dense))
    return "int" if compute == "long long" and not wide else compute

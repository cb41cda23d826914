"""The shape of a direct convolution: everything that its tiles and their cost models depend on."""

from __future__ import annotations

from dataclasses import dataclass

from graphdnn.operations.conv_problem import ConvProblem


@dataclass(frozen=True, slots=True)
class Shape:
    """A direct convolution without its addresses.

    ``in`` names the image operand, which the filter slides over, and ``out`` the tensor whose channels threads own: the
    output, or dy for wgrad.
    """

    problem: ConvProblem  # of one dilation phase, see ``undilated``
    is_dgrad: bool
    is_wgrad: bool
    in_bytes: int  # bytes of an element
    out_bytes: int
    filter_bytes: int
    other_bytes: int  # bytes that the epilogue reads in all
    in_copy_bytes: int  # bytes of the widest copy that the layout allows
    out_copy_bytes: int = 16  # the same of dy, for wgrad

    @property
    def direction(self) -> str:
        return "dgrad" if self.is_dgrad else "wgrad" if self.is_wgrad else "fprop"

    @property
    def group_in(self) -> int:
        """Input channels of a group."""
        return self.problem.k if self.is_dgrad else self.problem.c

    @property
    def group_out(self) -> int:
        """Output channels of a group."""
        return self.problem.c if self.is_dgrad else self.problem.k

    @property
    def channels_out(self) -> int:
        return self.problem.groups * self.group_out

    @property
    def columns(self) -> int:
        """Columns that tiles cover: columns of the output; dgrad begins at a multiple of the stride before them."""
        p = self.problem
        return p.input[1] + p.pre_padding[1] % p.stride[1] if self.is_dgrad else p.output[1]

    @property
    def rows(self) -> int:
        """Steps of the sliding window that complete all output rows of an image."""
        p = self.problem
        if self.is_dgrad:
            return -(-(p.input[0] + p.pre_padding[0] % p.stride[0]) // p.stride[0])
        return p.output[0]

    @property
    def window(self) -> int:
        """Output rows that a thread accumulates at the same time (WINDOW of direct_row_ring.cuh)."""
        p = self.problem
        return max(p.filter[0], p.stride[0]) if self.is_dgrad else -(-p.filter[0] // p.stride[0])

    @property
    def warmup_steps(self) -> int:
        """Steps before the first output row is complete."""
        return (self.problem.filter[0] - 1) // self.problem.stride[0]

    @property
    def in_rows(self) -> int:
        """Image rows that a step reads."""
        return 1 if self.is_dgrad else self.problem.stride[0]

    @property
    def out_rows(self) -> int:
        """Output rows that a step completes."""
        return self.problem.stride[0] if self.is_dgrad else 1

    def image_columns(self, tw: int) -> int:
        """Image columns that a thread with ``tw`` output columns reads."""
        s, stride = self.problem.filter[1], self.problem.stride[1]
        return (tw - 1) // stride + (s - 1) // stride + 1 if self.is_dgrad else (tw - 1) * stride + s

    def step_w(self, tw: int) -> int:
        """Image columns from one thread's tile to the next."""
        return tw // self.problem.stride[1] if self.is_dgrad else tw * self.problem.stride[1]

    def input_channels(self, v: int) -> int:
        """Input channels of a thread with ``v`` output channels."""
        return self.group_in if v <= self.group_out else v // self.group_out * self.group_in

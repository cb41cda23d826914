"""The shape of a direct convolution without addresses, for its tiles and their cost models."""

from __future__ import annotations

from dataclasses import dataclass

from graphdnn.operations.conv_problem import ConvProblem


@dataclass(frozen=True, slots=True)
class Shape:
    """A direct convolution without its addresses. ``out`` is the side whose channels belong to threads."""

    problem: ConvProblem
    is_dgrad: bool
    is_wgrad: bool
    in_bytes: int  # of an element
    out_bytes: int
    filter_bytes: int
    others: int  # bytes that the epilogue reads
    in_piece: int  # bytes of a copy that the layout allows
    out_piece: int = 16  # and of dy, for wgrad

    @property
    def direction(self) -> str:
        return "dgrad" if self.is_dgrad else "wgrad" if self.is_wgrad else "fprop"

    @property
    def group_in(self) -> int:
        return self.problem.k if self.is_dgrad else self.problem.c

    @property
    def group_out(self) -> int:
        return self.problem.c if self.is_dgrad else self.problem.k

    @property
    def channels_out(self) -> int:
        return self.problem.groups * self.group_out

    @property
    def columns(self) -> int:
        """Columns that tiles count: of the output, and for dgrad those before it down to a multiple of the stride."""
        p = self.problem
        return p.input[1] + p.pre_padding[1] % p.stride[1] if self.is_dgrad else p.output[1]

    @property
    def rows(self) -> int:
        """Steps that a whole image's output rows take."""
        p = self.problem
        if self.is_dgrad:
            return -(-(p.input[0] + p.pre_padding[0] % p.stride[0]) // p.stride[0])
        return p.output[0]

    @property
    def window(self) -> int:
        p = self.problem
        return max(p.filter[0], p.stride[0]) if self.is_dgrad else -(-p.filter[0] // p.stride[0])

    @property
    def extra(self) -> int:
        """Steps before the first row is complete."""
        return (self.problem.filter[0] - 1) // self.problem.stride[0]

    @property
    def in_rows(self) -> int:
        return 1 if self.is_dgrad else self.problem.stride[0]

    @property
    def out_rows(self) -> int:
        return self.problem.stride[0] if self.is_dgrad else 1

    def wide(self, tw: int) -> int:
        """Image columns of a thread."""
        s, stride = self.problem.filter[1], self.problem.stride[1]
        return (tw - 1) // stride + (s - 1) // stride + 1 if self.is_dgrad else (tw - 1) * stride + s

    def step_w(self, tw: int) -> int:
        return tw // self.problem.stride[1] if self.is_dgrad else tw * self.problem.stride[1]

    def inputs(self, v: int) -> int:
        """Input channels of a thread with ``v`` output channels."""
        return self.group_in if v <= self.group_out else v // self.group_out * self.group_in

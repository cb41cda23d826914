"""The six coordinates of a convolution's tensors: what a kernel counts in, whichever group form the graph uses.

x counts ``(n, g, c, i0, i1, i2)``, y ``(n, g, k, o0, o1, o2)``, w ``(g, k, c, f0, f1, f2)``; spatial axes
that a problem lacks have one step and come first.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphdnn.convolution import ConvProblem
from graphdnn.engines.cuda.space import Axis, Space
from graphdnn.operations import ConvBackwardData, ConvBackwardFilter, ConvolutionOperation
from graphdnn.tensors import TensorSpec

SPATIAL = 3


@dataclass(frozen=True, slots=True)
class Roles:
    """A convolution's tensors with their spaces."""

    op: ConvolutionOperation
    problem: ConvProblem

    @classmethod
    def of(cls, op: ConvolutionOperation) -> Roles:
        return cls(op, op.problem)

    @property
    def direction(self) -> str:
        if isinstance(self.op, ConvBackwardData):
            return "dgrad"
        return "wgrad" if isinstance(self.op, ConvBackwardFilter) else "fprop"

    @property
    def output(self) -> TensorSpec:
        (spec,) = self.op.outputs().values()
        return spec

    def space(self, spec: TensorSpec) -> Space:
        """The coordinates of x, w or y (or their gradients)."""
        x, w, _ = self.op.roles
        is_filter = spec.uid == w.uid
        p = self.problem
        explicit = len(x.extents) == p.spatial + 3
        sizes = p.w_extents if is_filter else (p.x_extents if spec.uid == x.uid else p.y_extents)
        head = sizes[:3]
        if explicit:
            axes = [Axis(size, i) for i, size in enumerate(head)]
        elif is_filter:
            axes = [Axis(head[0], 0, head[1]), Axis(head[1], 0), Axis(head[2], 1)]
        else:
            axes = [Axis(head[0], 0), Axis(head[1], 1, head[2]), Axis(head[2], 1)]
        first = 3 if explicit else 2
        axes += [Axis(1, 0)] * (SPATIAL - p.spatial)
        axes += [Axis(size, first + d) for d, size in enumerate(sizes[3:])]
        return Space(spec.extents, tuple(axes))


def padded(values: tuple[int, ...], fill: int) -> tuple[int, ...]:
    """Spatial values with ``fill`` for the axes that a problem lacks."""
    return (fill,) * (SPATIAL - len(values)) + values

"""The six coordinates of a convolution's tensors: what a kernel counts in, whichever group form the graph uses.

x counts ``(n, g, c, i0, i1, i2)``, y ``(n, g, k, o0, o1, o2)``, w ``(g, k, c, f0, f1, f2)``; spatial axes
that a problem lacks have one step and come first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from graphdnn.engines.cuda.codegen.index_space import IndexSpace, axis_of
from graphdnn.engines.memoization import memoize_by_identity
from graphdnn.operations import ConvBackwardData, ConvBackwardFilter, ConvolutionOperation
from graphdnn.operations.conv_problem import ConvProblem
from graphdnn.tensors import TensorSpec

CHANNELS = 2  # the index of the channels among the coordinates
SPATIAL = 3  # the most spatial axes


@dataclass(frozen=True, eq=False)
class Roles:
    """The tensors of a convolution in their roles, with their index spaces."""

    op: ConvolutionOperation
    problem: ConvProblem
    _spaces: dict[tuple[int, tuple[int, ...]], IndexSpace] = field(default_factory=dict, compare=False, repr=False)

    @staticmethod
    def of(op: ConvolutionOperation) -> Roles:
        return _roles(op)

    @cached_property
    def direction(self) -> str:
        if isinstance(self.op, ConvBackwardData):
            return "dgrad"
        return "wgrad" if isinstance(self.op, ConvBackwardFilter) else "fprop"

    @cached_property
    def output(self) -> TensorSpec:
        (spec,) = self.op.outputs().values()
        return spec

    def space(self, spec: TensorSpec) -> IndexSpace:
        """The coordinates of x, w or y (or their gradients)."""
        key = spec.uid, spec.extents
        if key not in self._spaces:
            self._spaces[key] = self._space(spec)
        return self._spaces[key]

    def _space(self, spec: TensorSpec) -> IndexSpace:
        x, w, _ = self.op.roles
        is_filter = spec.uid == w.uid
        p = self.problem
        explicit = len(x.extents) == p.spatial + 3
        sizes = p.w_extents if is_filter else (p.x_extents if spec.uid == x.uid else p.y_extents)
        head = sizes[:3]
        if explicit:
            axes = [axis_of(size, i) for i, size in enumerate(head)]
        elif is_filter:
            axes = [axis_of(head[0], 0, head[1]), axis_of(head[1], 0), axis_of(head[2], 1)]
        else:
            axes = [axis_of(head[0], 0), axis_of(head[1], 1, head[2]), axis_of(head[2], 1)]
        first = 3 if explicit else 2
        axes += [axis_of(1, 0)] * (SPATIAL - p.spatial)
        axes += [axis_of(size, first + d) for d, size in enumerate(sizes[3:])]
        return IndexSpace(spec.extents, tuple(axes))


@memoize_by_identity
def _roles(op: ConvolutionOperation) -> Roles:
    return Roles(op, op.problem)


def padded(values: tuple[int, ...], fill: int) -> tuple[int, ...]:
    """Spatial values with ``fill`` for the axes that a problem lacks."""
    return (fill,) * (SPATIAL - len(values)) + values

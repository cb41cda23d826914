"""Convolutions along one axis, or along two of three, as convolutions of planes: the same addresses in other axes.

One axis gets another one of a single step before it. Where a filter has one tap along the first of three axes, images
are so many more planes; where it has one tap along the last two, these are one axis. What the end of the kernel reads
has to have both of two axes that become one, or neither, and nothing may ask for an index along an axis.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from graphdnn.engines.cuda.codegen.index_space import is_addressable
from graphdnn.engines.cuda.codegen.pointwise_program import gen_index_axes
from graphdnn.engines.memoization import memoize
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvolutionOperation, Operation
from graphdnn.tensors import TensorSpec

SETTINGS = {"dilations": 1, "filter_strides": 1, "pre_paddings": 0, "post_paddings": 0}  # of an axis of one tap
Axes = tuple[tuple[int, ...], tuple[int, ...]]  # extents, strides
See = Callable[[TensorSpec, bool], Axes | None]  # the bool: it is the filter


def with_tensors(op: FusedOp, changes: Mapping[int, TensorSpec]) -> FusedOp:
    """The same operations on other tensors, by uid."""

    def changed(step: Operation) -> Operation:
        update = {port: changes[t.uid] for port, t in step.tensors().items() if t.uid in changes}
        return step.model_copy(update=update) if update else step

    def specs(tensors: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
        return tuple(changes.get(t.uid, t) for t in tensors)

    return replace(
        op,
        anchor=None if op.anchor is None else changed(op.anchor),
        epilogue=tuple(changed(step) for step in op.epilogue),
        inputs=specs(op.inputs),
        outputs=specs(op.outputs),
        internal=specs(op.internal),
    )


@memoize
def as_planes(op: FusedOp) -> FusedOp | None:
    """None where the convolution is one of planes already, or cannot be seen as one."""
    anchor = op.anchor
    assert isinstance(anchor, ConvolutionOperation)
    kept, see, joined = _seen(anchor)
    if see is None or gen_index_axes(op.epilogue) or (joined and _repeats_along_one(op, joined)):
        return None
    tensors, rank = (*op.inputs, *op.outputs, *op.internal), len(anchor.roles[0].dims)
    alike = all(len(t.dims) == rank and is_addressable(t) for t in tensors)
    if not alike or rank != anchor.conv.spatial_dims + 2:
        return None
    changes = {}
    for t in tensors:
        axes = see(t, t.uid == anchor.roles[1].uid)
        if axes is None:
            return None
        changes[t.uid] = t.model_copy(update={"dims": axes[0], "strides": axes[1]})
    made = with_tensors(op, changes)
    assert made.anchor is not None
    settings = {
        name: tuple(one if i is None else getattr(anchor.conv, name)[i] for i in kept) for name, one in SETTINGS.items()
    }
    conv = anchor.conv.model_copy(update={"spatial_dims": 2, **settings})
    return replace(made, anchor=made.anchor.model_copy(update={"conv": conv}))


def _seen(anchor: ConvolutionOperation) -> tuple[tuple[int | None, ...], See | None, tuple[int, ...]]:
    """Which axes' settings stay, None for an axis of one step, how a tensor is seen, and which two axes become one."""
    p = anchor.problem
    if p.spatial == 2:
        return (), None, ()
    if p.spatial == 1:
        return (None, 0), _raised, ()
    bare = [
        (taps, stride, before, after) == (1, 1, 0, 0)
        for taps, stride, before, after in zip(p.filter, p.stride, p.pre_padding, p.post_padding, strict=True)
    ]
    if p.spatial == 3 and bare[0]:
        return (1, 2), _more_images, (0, 2)
    if p.spatial == 3 and bare[1] and bare[2]:
        return (0, None), _one_line, (3, 4)
    return (), None, ()


def _repeats_along_one(op: FusedOp, joined: tuple[int, ...]) -> bool:
    """Whether an operand of the epilogue repeats along one of two axes that become one; or the filter is an operand."""
    assert isinstance(op.anchor, ConvolutionOperation)
    (result,) = op.anchor.outputs().values()
    operands = [t for step in op.epilogue for t in step.inputs().values() if t.rank == result.rank]
    whole = tuple(result.dims[axis] for axis in joined)
    repeats = any(tuple(t.dims[axis] for axis in joined) not in (whole, (1, 1)) for t in operands)
    return repeats or op.anchor.roles[1].uid in op.uses.behind


def _raised(t: TensorSpec, is_filter: bool) -> Axes:
    return (*t.dims[:-1], 1, t.dims[-1]), (*t.strides[:-1], t.dims[-1] * t.strides[-1], t.strides[-1])


def _more_images(t: TensorSpec, is_filter: bool) -> Axes | None:
    if is_filter:
        return (*t.dims[:2], *t.dims[3:]), (*t.strides[:2], *t.strides[3:])
    joined = joined_axes(t, 0, 2)
    return joined and ((joined[0], t.dims[1], *t.dims[3:]), (joined[1], t.strides[1], *t.strides[3:]))


def _one_line(t: TensorSpec, is_filter: bool) -> Axes | None:
    joined = joined_axes(t, 3, 4)
    return joined and ((*t.dims[:3], joined[0]), (*t.strides[:3], joined[1]))


def joined_axes(t: TensorSpec, outer: int, inner: int) -> tuple[int, int] | None:
    """Extent and stride of two axes as one."""
    (m, n), (pace, step) = ((values[outer], values[inner]) for values in (t.dims, t.strides))
    if m == 1 or n == 1:
        return (n, step) if m == 1 else (m, pace)
    return (m * n, step) if pace == n * step else None

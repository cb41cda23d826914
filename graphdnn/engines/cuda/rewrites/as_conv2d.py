"""1-D and 3-D convolutions as 2-D convolutions: other axes, the same addresses.

A 1-D convolution gets an axis of extent 1 before its spatial axis. If a 3-D filter has one tap along the first axis,
that axis is merged with the batch. If a 3-D filter has one tap along the last two axes, these two axes are merged. An
epilogue operand must have both merged axes, or neither of them, and no operation may generate an index along an axis.
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

# Convolution settings of an axis with one tap
SETTINGS = {"dilations": 1, "filter_strides": 1, "pre_paddings": 0, "post_paddings": 0}
Axes = tuple[tuple[int, ...], tuple[int, ...]]  # extents, strides
MergeAxes = Callable[[TensorSpec, bool], Axes | None]  # from a tensor, and whether the tensor is the filter


def with_tensors(op: FusedOp, changes: Mapping[int, TensorSpec]) -> FusedOp:
    """The same operations, with the tensors of ``changes`` in place of the tensors with the same uid."""

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
def as_conv2d(op: FusedOp) -> FusedOp | None:
    """The operation as a 2-D convolution; None if the convolution is 2-D already, or has no 2-D form."""
    anchor = op.anchor
    assert isinstance(anchor, ConvolutionOperation)
    kept, merge, merged = _merge(anchor)
    if merge is None or gen_index_axes(op.epilogue) or (merged and _repeats_along_merged(op, merged)):
        return None
    tensors, rank = (*op.inputs, *op.outputs, *op.internal), len(anchor.roles[0].dims)
    is_supported = all(len(t.dims) == rank and is_addressable(t) for t in tensors)
    if not is_supported or rank != anchor.conv.spatial_dims + 2:
        return None
    changes = {}
    for t in tensors:
        axes = merge(t, t.uid == anchor.roles[1].uid)
        if axes is None:
            return None
        changes[t.uid] = t.model_copy(update={"dims": axes[0], "strides": axes[1]})
    with_merged_axes = with_tensors(op, changes)
    assert with_merged_axes.anchor is not None
    settings = {
        name: tuple(one if i is None else getattr(anchor.conv, name)[i] for i in kept) for name, one in SETTINGS.items()
    }
    conv = anchor.conv.model_copy(update={"spatial_dims": 2, **settings})
    return replace(with_merged_axes, anchor=with_merged_axes.anchor.model_copy(update={"conv": conv}))


def _merge(anchor: ConvolutionOperation) -> tuple[tuple[int | None, ...], MergeAxes | None, tuple[int, ...]]:
    """The spatial axes that keep their settings (None: an axis of extent 1), the function that merges the axes of a
    tensor, and the two axes of the result that are merged.
    """
    p = anchor.problem
    if p.spatial == 2:
        return (), None, ()
    if p.spatial == 1:
        return (None, 0), _with_unit_axis, ()
    is_pointwise = [
        (taps, stride, before, after) == (1, 1, 0, 0)
        for taps, stride, before, after in zip(p.filter, p.stride, p.pre_padding, p.post_padding, strict=True)
    ]
    if p.spatial == 3 and is_pointwise[0]:
        return (1, 2), _merge_with_batch, (0, 2)
    if p.spatial == 3 and is_pointwise[1] and is_pointwise[2]:
        return (0, None), _merge_rows_and_columns, (3, 4)
    return (), None, ()


def _repeats_along_merged(op: FusedOp, merged: tuple[int, ...]) -> bool:
    """Whether an epilogue operand is broadcast along one merged axis only, or the filter is an epilogue operand."""
    assert isinstance(op.anchor, ConvolutionOperation)
    (result,) = op.anchor.outputs().values()
    operands = [t for step in op.epilogue for t in step.inputs().values() if t.rank == result.rank]
    whole = tuple(result.dims[axis] for axis in merged)
    repeats = any(tuple(t.dims[axis] for axis in merged) not in (whole, (1, 1)) for t in operands)
    return repeats or op.anchor.roles[1].uid in op.uses.behind


def _with_unit_axis(t: TensorSpec, is_filter: bool) -> Axes:
    return (*t.dims[:-1], 1, t.dims[-1]), (*t.strides[:-1], t.dims[-1] * t.strides[-1], t.strides[-1])


def _merge_with_batch(t: TensorSpec, is_filter: bool) -> Axes | None:
    if is_filter:
        return (*t.dims[:2], *t.dims[3:]), (*t.strides[:2], *t.strides[3:])
    merged = merged_axes(t, 0, 2)
    return merged and ((merged[0], t.dims[1], *t.dims[3:]), (merged[1], t.strides[1], *t.strides[3:]))


def _merge_rows_and_columns(t: TensorSpec, is_filter: bool) -> Axes | None:
    merged = merged_axes(t, 3, 4)
    return merged and ((*t.dims[:3], merged[0]), (*t.strides[:3], merged[1]))


def merged_axes(t: TensorSpec, outer: int, inner: int) -> tuple[int, int] | None:
    """Extent and stride of two axes as one axis; None if no single stride reaches all elements."""
    (m, n), (outer_stride, inner_stride) = ((values[outer], values[inner]) for values in (t.dims, t.strides))
    if m == 1 or n == 1:
        return (n, inner_stride) if m == 1 else (m, outer_stride)
    return (m * n, inner_stride) if outer_stride == n * inner_stride else None

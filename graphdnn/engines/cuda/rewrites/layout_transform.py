"""Rewrite ``layout_transform``: convolutions whose images have contiguous pixels (NCHW), or one spatial axis.

The direct kernels and the stem kernels read 2-D images with contiguous channels (NHWC), and the tensor-core kernels for
compute capabilities below 9.0 are faster with them. One spatial axis becomes two, and three become two where the filter
has taps along at most two; neither changes an address (``as_conv2d.py``). An NCHW image is copied to NHWC by one pass,
and an NCHW result is copied back by another. Such a kernel and its copies take less time than an engine that reads
NCHW.
"""

from __future__ import annotations

from graphdnn.checks import Equals
from graphdnn.engines.batch_invariance import memoize_for_lines
from graphdnn.engines.cuda.codegen.cost import least_seconds_of_delegate
from graphdnn.engines.cuda.codegen.dense_operands import dense_tensor
from graphdnn.engines.cuda.codegen.index_space import is_addressable
from graphdnn.engines.cuda.codegen.tensor_cores import EXACT_OPTIONS
from graphdnn.engines.cuda.conv_geometry.convolution_requirements import is_convolution
from graphdnn.engines.cuda.conv_geometry.convolution_roles import CHANNELS, Roles
from graphdnn.engines.cuda.direct import direct, direct_wgrad
from graphdnn.engines.cuda.direct.grouped import grouped, grouped_wgrad
from graphdnn.engines.cuda.direct.stem import stem, stem_dgrad, stem_wgrad
from graphdnn.engines.cuda.rewrites.as_conv2d import as_planes, with_tensors
from graphdnn.engines.cuda.rewrites.rewrite import (
    Remainder,
    Rewrite,
    Rewritten,
    copied_after,
    copied_before,
    with_passes,
)
from graphdnn.engines.cuda.simt.implicit_copies import channels_last
from graphdnn.engines.cuda.sm80 import mma_gemm
from graphdnn.engines.cuda.sm90.halo import hopper_halo, hopper_halo_dgrad, hopper_halo_wgrad
from graphdnn.engines.engine import Cost, Engine, Task, image_need, kind_need, needs_rule
from graphdnn.engines.memoization import memoize
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvBackwardFilter, ConvolutionOperation
from graphdnn.tensors import TensorSpec

_NARROW: tuple[Engine, ...] = (
    direct.ENGINE, grouped.ENGINE, direct_wgrad.ENGINE, stem.ENGINE, stem_dgrad.ENGINE,
    stem_wgrad.ENGINE, grouped_wgrad.ENGINE,
)  # fmt: skip
_OF_PLANES: tuple[Engine, ...] = (hopper_halo.ENGINE, hopper_halo_wgrad.ENGINE, hopper_halo_dgrad.ENGINE)
_DOUBT = 0.25  # of their time behind copies: by so much products that turn images themselves are predicted too slow


def _all(op: FusedOp) -> tuple[TensorSpec, ...]:
    return (*op.inputs, *op.outputs, *op.internal)


def _turning(seen: FusedOp) -> list[TensorSpec]:
    """Images whose neighbouring channels are not next to each other."""
    assert isinstance(seen.anchor, ConvolutionOperation)
    roles, (x, _, y) = Roles.of(seen.anchor), seen.anchor.roles
    if isinstance(seen.anchor, ConvBackwardFilter):
        return [t for t in (x, y) if _lies_otherwise(t, roles, t)]
    read = seen.uses.entering
    mine = [t for t in (x, y) if t.uid in read]
    whole = [t for t in _all(seen) if t.uid not in read and t.extents == roles.output.extents]
    turning = [t for t in mine if _lies_otherwise(t, roles, t)]
    return turning + [t for t in whole if _lies_otherwise(t, roles, roles.output)]


@memoize
def _transformed(op: FusedOp) -> tuple[Rewritten, ...]:
    """The operation as those engines take it; images that are copied before it, and results that are copied after."""
    planes = as_planes(op)
    seen = planes or op
    assert isinstance(seen.anchor, ConvolutionOperation)
    roles, free, turning = Roles.of(seen.anchor), min(t.uid for t in _all(op)), _turning(seen)
    x, _, y = seen.anchor.roles
    assert all(t.extents in (x.extents, y.extents) for t in turning)
    inside = {t.uid for t in seen.internal}
    last = {t.extents: channels_last(t, roles) for t in (x, y)}
    copies = {
        t.uid: t.model_copy(update={"strides": last[t.extents]})
        if t.uid in inside
        else dense_tensor(t, last[t.extents], uid=free - 1 - i)
        for i, t in enumerate(turning)
    }
    written = {t.uid for t in seen.outputs}
    pairs = [(t, copies[t.uid]) for t in turning if t.uid not in inside]
    blended = _result(op) if seen.anchor.reads_output else None
    before = [
        copied_before(t, copy, f"{t.label()} copied to channels last") for t, copy in pairs if t.uid not in written
    ]
    after = [
        copied_after(copy, t, f"{t.label()} copied from channels last", is_blended=t.uid == blended)
        for t, copy in pairs
        if t.uid in written
    ]
    # General products serve other axes themselves, but other neighbours not as fast.
    without = () if pairs else (mma_gemm.ENGINE,)
    return (Rewritten(with_tensors(seen, copies), tuple(before), tuple(after), without),)


def _lies_otherwise(spec: TensorSpec, roles: Roles, like: TensorSpec) -> bool:
    """True where neighbouring channels are not next to each other."""
    space = roles.space(like)
    both = [axis for axis in (1, CHANNELS) if space.sizes[axis] > 1]
    return bool(both) and space.strides(spec)[both[-1]] != 1


def _is_alone(task: Task) -> bool:
    return not task.op.prologue and task.op.exit is None


def _can_be_turned(task: Task) -> bool:
    """Every tensor has an address for each element."""
    return is_convolution(task) and _is_alone(task) and all(map(is_addressable, _all(task.op)))


def _is_turned(task: Task) -> bool:
    return _can_be_turned(task) and _is_other(task.op)


def _doubted(form: Rewritten, engine: Engine, cost: Cost) -> Cost:
    return cost.plus({"doubt": _DOUBT * cost.seconds}) if form.passes and engine in _OF_PLANES else cost


def _result(op: FusedOp) -> int:
    assert op.anchor is not None
    (result,) = op.anchor.outputs().values()
    return result.uid


@memoize_for_lines
def _is_other(op: FusedOp) -> bool:
    """Whether engines are given another operation, or something is copied."""
    inside = {t.uid for t in op.internal}
    return as_planes(op) is not None or any(t.uid not in inside for t in _turning(op))


def _least(task: Task) -> float:
    if not _is_other(task.op):
        return 0.0  # and is declined
    (form,) = _transformed(task.op)
    traffic = sum(one.bytes for one in form.passes)
    # Operands of the rewritten operation may have fewer gaps.
    return least_seconds_of_delegate(Task(form.op, task.device), len(form.passes), traffic=traffic)


ROW = Rewrite(
    id=92,
    name="layout_transform",
    summary="convolutions along one axis, two of three, or with pixels as neighbours: as planes with channels last",
    why="images are not planes with channels last",
    match=(
        needs_rule("cuda_layout_transform.operation", "conv"),
        kind_need(
            "cuda_layout_transform.prologue",
            "prologue",
            lambda task: len(task.op.prologue),
            Equals(0),
            reason="images are copied as they lie in memory",
            fix="let the pointwise operations before the convolution write their result",
            when=is_convolution,
        ),
        kind_need(
            "cuda_layout_transform.exit",
            "exit",
            lambda task: 0 if task.op.exit is None else 1,
            Equals(0),
            reason="what a reduction reads at the end lies as the graph says",
            fix="reduce in a graph of its own",
            when=is_convolution,
        ),
        image_need(
            "cuda_layout_transform.layout",
            "strides",
            lambda task: "as those engines take them",
            Equals("pixels next to each other, or one spatial axis, and an address for each element"),
            reason="images lie as the engines take them that this one asks",
            fix="nothing to do: those engines serve the operation themselves",
            when=lambda task: is_convolution(task) and _is_alone(task) and not _is_turned(task),
        ),
    ),
    rewrite=_transformed,
    engines=(*_NARROW, *_OF_PLANES, mma_gemm.ENGINE),
    remainder=Remainder("what an engine for planes with channels last serves"),
    weighed=_doubted,
    cost=with_passes("copies"),
    least=_least,
    notes=EXACT_OPTIONS,
)

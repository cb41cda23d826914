"""Rewrite ``layout_transform``: NCHW convolutions, and 1-D and 3-D convolutions, as 2-D convolutions in NHWC.

The direct kernels and the stem kernels read 2-D images in NHWC, and the tensor-core kernels for compute capabilities
below 9.0 are faster in NHWC. A 1-D convolution becomes 2-D. A 3-D convolution becomes 2-D if its filter has taps along
at most two axes. Neither changes an address (``as_conv2d.py``). One pass copies an NCHW image to NHWC, and another pass
copies an NHWC result to NCHW. Such a kernel and its copies take less time than an engine that reads NCHW.
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
from graphdnn.engines.cuda.rewrites.as_conv2d import as_conv2d, with_tensors
from graphdnn.engines.cuda.rewrites.rewrite import (
    DelegateRefusal,
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

_DIRECT: tuple[Engine, ...] = (
    direct.ENGINE, grouped.ENGINE, direct_wgrad.ENGINE, stem.ENGINE, stem_dgrad.ENGINE,
    stem_wgrad.ENGINE, grouped_wgrad.ENGINE,
)  # fmt: skip
_HALO: tuple[Engine, ...] = (hopper_halo.ENGINE, hopper_halo_wgrad.ENGINE, hopper_halo_dgrad.ENGINE)
# Added share of the halo engines' predicted time on copies. GEMM engines that read NCHW images themselves are predicted
# too slow by this share, so without it the copies would be chosen too often.
_MODEL_ERROR = 0.25


def _all(op: FusedOp) -> tuple[TensorSpec, ...]:
    return (*op.inputs, *op.outputs, *op.internal)


def _transposed(conv2d: FusedOp) -> list[TensorSpec]:
    """Images, and tensors of the result's extents, whose channels are not contiguous."""
    assert isinstance(conv2d.anchor, ConvolutionOperation)
    roles, (x, _, y) = Roles.of(conv2d.anchor), conv2d.anchor.roles
    if isinstance(conv2d.anchor, ConvBackwardFilter):
        return [t for t in (x, y) if _has_strided_channels(t, roles, t)]
    read = conv2d.uses.entering
    images = [t for t in (x, y) if t.uid in read]
    results = [t for t in _all(conv2d) if t.uid not in read and t.extents == roles.output.extents]
    transposed = [t for t in images if _has_strided_channels(t, roles, t)]
    return transposed + [t for t in results if _has_strided_channels(t, roles, roles.output)]


@memoize
def _transformed(op: FusedOp) -> tuple[Rewritten, ...]:
    """The 2-D operation in NHWC, with copies of images before it and of results after it."""
    conv2d = as_conv2d(op) or op
    assert isinstance(conv2d.anchor, ConvolutionOperation)
    roles, lowest_uid, transposed = Roles.of(conv2d.anchor), min(t.uid for t in _all(op)), _transposed(conv2d)
    x, _, y = conv2d.anchor.roles
    assert all(t.extents in (x.extents, y.extents) for t in transposed)
    virtual = {t.uid for t in conv2d.internal}
    nhwc_strides = {t.extents: channels_last(t, roles) for t in (x, y)}
    copies = {
        t.uid: t.model_copy(update={"strides": nhwc_strides[t.extents]})
        if t.uid in virtual
        else dense_tensor(t, nhwc_strides[t.extents], uid=lowest_uid - 1 - i)
        for i, t in enumerate(transposed)
    }
    written = {t.uid for t in conv2d.outputs}
    pairs = [(t, copies[t.uid]) for t in transposed if t.uid not in virtual]
    blended = _result(op) if conv2d.anchor.reads_output else None
    before = [
        copied_before(t, copy, f"{t.label()} copied to channels last") for t, copy in pairs if t.uid not in written
    ]
    after = [
        copied_after(copy, t, f"{t.label()} copied from channels last", is_blended=t.uid == blended)
        for t, copy in pairs
        if t.uid in written
    ]
    # The GEMM engine serves 1-D and 3-D convolutions itself. It is slower in NCHW only.
    excluded = () if pairs else (mma_gemm.ENGINE,)
    return (Rewritten(with_tensors(conv2d, copies), tuple(before), tuple(after), excluded),)


def _has_strided_channels(spec: TensorSpec, roles: Roles, like: TensorSpec) -> bool:
    """Whether channels are not contiguous."""
    space = roles.space(like)
    both = [axis for axis in (1, CHANNELS) if space.sizes[axis] > 1]
    return bool(both) and space.strides(spec)[both[-1]] != 1


def _is_without_prologue_and_exit(task: Task) -> bool:
    return not task.op.prologue and task.op.exit is None


def _is_supported(task: Task) -> bool:
    """Whether the convolution has neither prologue nor exit, and every element of every tensor has an address."""
    return is_convolution(task) and _is_without_prologue_and_exit(task) and all(map(is_addressable, _all(task.op)))


def _is_rewritten(task: Task) -> bool:
    return _is_supported(task) and _changes(task.op)


def _with_model_error(form: Rewritten, engine: Engine, cost: Cost) -> Cost:
    """The prediction with the margin for copies, by which the fastest engine is chosen."""
    return cost.plus({"model_error": _MODEL_ERROR * cost.seconds}) if form.passes and engine in _HALO else cost


def _result(op: FusedOp) -> int:
    assert op.anchor is not None
    (result,) = op.anchor.outputs().values()
    return result.uid


@memoize_for_lines
def _changes(op: FusedOp) -> bool:
    """Whether the rewrite changes the operation: it becomes 2-D, or a tensor is copied."""
    virtual = {t.uid for t in op.internal}
    return as_conv2d(op) is not None or any(t.uid not in virtual for t in _transposed(op))


def _least(task: Task) -> float:
    if not _changes(task.op):
        return 0.0  # the rewrite declines the operation
    (form,) = _transformed(task.op)
    traffic = sum(one.bytes for one in form.passes)
    # Operands of the rewritten operation may have fewer gaps.
    return least_seconds_of_delegate(Task(form.op, task.device), len(form.passes), traffic=traffic)


ROW = Rewrite(
    id=92,
    name="layout_transform",
    summary="convolutions in NCHW, or along one or three axes: as 2-D convolutions in NHWC",
    why="images are not 2-D in NHWC",
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
            reason="a final reduction reads the result in the layout of the graph",
            fix="reduce in a graph of its own",
            when=is_convolution,
        ),
        image_need(
            "cuda_layout_transform.layout",
            "strides",
            lambda task: "2-D, channels last",
            Equals("contiguous pixels (NCHW), or one or three spatial axes, and an address for each element"),
            reason="the engines of this rewrite read these images without a copy",
            fix="nothing to do: the engines of this rewrite serve the operation without it",
            when=lambda task: is_convolution(task) and _is_without_prologue_and_exit(task) and not _is_rewritten(task),
        ),
    ),
    rewrite=_transformed,
    engines=(*_DIRECT, *_HALO, mma_gemm.ENGINE),
    refusal=DelegateRefusal("an operation that an engine for 2-D convolutions in NHWC serves"),
    compared=_with_model_error,
    cost=with_passes("copies"),
    least=_least,
    notes=EXACT_OPTIONS,
)

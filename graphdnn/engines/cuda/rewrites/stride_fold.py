"""Rewrite ``stride_fold``: stride 2 over few channels; two adjacent pixels become one pixel.

TMA takes three times as long for a pixel that does not fill 128 bytes. With stride 2, pixels 2i and 2i + 1 of a row
are read as one pixel with twice the channels, and the stride becomes 1. A filter of three taps becomes a filter of two
taps, with zeros for the pixel that has no tap. A launch folds the filters. An infinity or NaN times a zero is NaN, so
an infinity or NaN also spreads to the adjacent window.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from graphdnn.checks import AtMost, Equals
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.codegen.cost import least_seconds_of_delegate
from graphdnn.engines.cuda.codegen.dense_operands import dense_tensor
from graphdnn.engines.cuda.codegen.index_space import INT_MAX, is_addressable
from graphdnn.engines.cuda.codegen.launch import Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import STORAGE, Parameters
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.conv_geometry.convolution_requirements import (
    convolution_of,
    direction_need,
    is_convolution,
    problem_of,
    prologue_need,
)
from graphdnn.engines.cuda.conv_geometry.convolution_roles import padded
from graphdnn.engines.cuda.rewrites.as_conv2d import with_tensors
from graphdnn.engines.cuda.rewrites.rewrite import DelegateRefusal, Pass, Rewrite, Rewritten, with_passes
from graphdnn.engines.cuda.sm90.gemm import hopper_gemm
from graphdnn.engines.cuda.sm90.weight_stationary import hopper_weight_stationary
from graphdnn.engines.engine import Task, image_need, need, needs_rule
from graphdnn.engines.memoization import memoize
from graphdnn.enums import ConvolutionMode, NumericalNote
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvForward, ConvolutionOperation
from graphdnn.operations.conv_problem import ConvProblem
from graphdnn.tensors import TensorSpec, channels_last_strides

_TAG = "conv_fprop"
_TMA_BYTES = 128  # of channels in a TMA load
_THREADS = 256


@dataclass(frozen=True, slots=True)
class _PairWindow:
    """Padding and taps along a row in pixel pairs. ``lead``: pixels of the first pair that are before the first tap."""

    before: int
    after: int
    taps: int
    lead: int

    @classmethod
    def of(cls, p: ConvProblem) -> _PairWindow:
        taps, before = p.filter[-1], -(-p.pre_padding[-1] // 2)
        lead = 2 * before - p.pre_padding[-1]
        pairs = -(-(lead + taps) // 2)
        return cls(before, p.output[-1] - 1 + pairs - p.input[-1] // 2 - before, pairs, lead)


@memoize
def _folded(op: FusedOp) -> tuple[Rewritten, ...]:
    """The convolution of pixel pairs."""
    anchor = op.anchor
    assert isinstance(anchor, ConvForward)
    x, w, p = anchor.x, anchor.w, anchor.problem
    window = _PairWindow.of(p)
    pairs = x.model_copy(
        update={
            "dims": (x.dims[0], 2 * p.c, *x.dims[2:-1], x.dims[-1] // 2),
            "strides": (*x.strides[:-1], 2 * x.strides[-1]),
        }
    )
    dims = (p.k, 2 * p.c, *p.filter[:-1], window.taps)
    uid = min(t.uid for t in (*op.inputs, *op.outputs, *op.internal)) - 1
    filters = dense_tensor(w, uid=uid).model_copy(update={"dims": dims, "strides": channels_last_strides(dims)})
    rewritten = with_tensors(op, {x.uid: pairs, w.uid: filters})
    assert isinstance(rewritten.anchor, ConvolutionOperation)
    conv = anchor.conv.model_copy(
        update={
            "filter_strides": (*p.stride[:-1], 1),
            "pre_paddings": (*p.pre_padding[:-1], window.before),
            "post_paddings": (*p.post_padding[:-1], window.after),
            "mode": ConvolutionMode.CROSS_CORRELATION,
        }
    )
    rewritten = replace(rewritten, anchor=rewritten.anchor.model_copy(update={"conv": conv}))
    fold = Pass(
        "filters folded for pixel pairs",
        filters,
        float(w.bytes + filters.bytes),
        lambda steps: steps.add_early(_folding(steps, p, w, filters)),
    )
    return (Rewritten(rewritten, (fold,)),)


def _is_forward(task: Task) -> bool:
    return is_convolution(task) and task.op.main.tag == _TAG and not task.op.prologue


def _has_stride_two(task: Task) -> bool:
    """Whether the stride along rows is 2, and rows have an even number of pixels."""
    p = problem_of(task)
    if p.spatial < 2 or (p.stride[-1], p.dilation[-1]) != (2, 1) or p.input[-1] % 2 or p.groups != 1:
        return False
    return _PairWindow.of(p).after >= 0


def _has_contiguous_pairs(task: Task) -> bool:
    """Whether the channels of adjacent pixels are contiguous, and x and w are operands of the convolution only."""
    op = convolution_of(task)
    x, w, _ = op.roles
    p = problem_of(task)
    is_read_again = bool(task.op.uses.again)
    is_plain = len(x.dims) == p.spatial + 2 and is_addressable(x) and is_addressable(w)
    return not is_read_again and task.op.exit is None and is_plain and x.strides[1] == 1 and x.strides[-1] == p.c


def _is_supported(task: Task) -> bool:
    return _is_forward(task) and _has_stride_two(task) and _has_contiguous_pairs(task)


def _folding(steps: LaunchSequence, p: ConvProblem, w: TensorSpec, filters: TensorSpec) -> Launch:
    window = _PairWindow.of(p)
    parameters = Parameters(steps.workspace_offsets)
    parameters.tensor("from", w)
    parameters.tensor("to", filters, is_output=True)
    stride_k, stride_c, *strides = w.strides
    sizes, tap_strides = padded(p.filter, 1), padded(tuple(strides), 0)
    first = 0
    if p.flip:  # taps are read in reverse
        first = sum((size - 1) * stride for size, stride in zip(sizes, tap_strides, strict=True))
        tap_strides = tuple(-stride for stride in tap_strides)
    parameters.table({
        "count": filters.elements, "channels": p.c, "pairs": window.taps, "lead": window.lead,
        "taps": sizes[2], "size_1": sizes[1], "upper": prod(sizes[:2]), "first": first,
        "stride_k": stride_k, "stride_c": stride_c,
        "stride_0": tap_strides[0], "stride_1": tap_strides[1], "stride_2": tap_strides[2],
    })  # fmt: skip
    text = kernel_text(
        "fold_filters",
        ["fold_filters.cu"],
        parameters=parameters.text,
        functions=(),
        constants={"THREADS": _THREADS, "Element": STORAGE[w.data_type]},
    )
    blocks = -(-filters.elements // _THREADS)
    return Launch(text, "fold_filters", (blocks, 1, 1), _THREADS, parameters.pack())


ROW = Rewrite(
    id=97,
    name="stride_fold",
    summary="stride 2 over few channels on tensor cores: pixels in pairs; zeros in the folded filters spread NaN",
    why="the stride is 2, and pixels have few channels",
    match=(
        needs_rule("cuda_stride_fold.operation", "conv"),
        direction_need(
            "cuda_stride_fold",
            _TAG,
            reason="gradients do not step through the image in pixel pairs",
            when=lambda task: is_convolution(task) and task.op.main.tag != _TAG,
        ),
        prologue_need("cuda_stride_fold", is_convolution),
        image_need(
            "cuda_stride_fold.stride",
            "conv.filter_strides",
            lambda task: (problem_of(task).stride, problem_of(task).dilation, problem_of(task).input),
            Equals("stride 2 and no dilation along rows of an even number of pixels, one group, two or three axes"),
            reason="a window steps from one pixel pair to the next",
            fix="nothing to do: another engine serves other windows",
            when=lambda task: _is_forward(task) and not _has_stride_two(task),
        ),
        image_need(
            "cuda_stride_fold.channels",
            "x.dims[1]",
            lambda task: problem_of(task).c * ELEMENTS[convolution_of(task).roles[0].data_type].bytes,
            AtMost(_TMA_BYTES // 2),
            reason="pixels of more channels fill the 128 bytes of a TMA load",
            fix="nothing to do: another engine serves more channels",
            when=lambda task: _is_forward(task) and _has_stride_two(task),
        ),
        need(
            "cuda_stride_fold.layout",
            "strides",
            lambda task: convolution_of(task).roles[0].strides,
            Equals("packed NHWC images, operands that only the convolution reads, no final reduction"),
            reason="adjacent pixels become one pixel without a copy, for the convolution only",
            fix="use the packed channels-last layout (NHWC)",
            when=lambda task: _is_forward(task) and _has_stride_two(task) and not _has_contiguous_pairs(task),
        ),
        need(
            "cuda_stride_fold.size",
            "w.dims",
            lambda task: _folded(task.op)[0].before[0].scratch.elements,
            AtMost(INT_MAX),
            reason="elements of folded filters are counted in 32 bits",
            fix="nothing to do: another engine serves it",
            when=_is_supported,
        ),
    ),
    rewrite=_folded,
    engines=(hopper_gemm.ENGINE, hopper_weight_stationary.ENGINE),
    refusal=DelegateRefusal("an operation that an engine for compute capability 9.0 serves with pixel pairs"),
    cost=with_passes("filters"),
    least=lambda task: least_seconds_of_delegate(task, 1),
    notes={"numerical_notes": (NumericalNote.TENSOR_CORE,)},
)

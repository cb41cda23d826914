"""Rewrite ``space_to_depth``: convolutions whose windows do not overlap, with fewer taps and more channels.

If the stride equals the filter extent (patch embeddings, patch merging, upsampling by transposed convolutions), no
pixel is in two windows. In NHWC, the pixels of a window along a row are contiguous in memory, and so are the taps of a
filter row. A row of S pixels becomes one pixel with S times the channels, and a filter row of S taps becomes one tap.
If windows do not overlap along the columns either, fprop and wgrad treat each row of windows as an image of its own.
No address changes. Rows of channels are longer, and strides and taps are fewer, so TMA and strided data gradients serve
the operation. A pass copies operands of a data gradient's epilogue that have one value for each channel: it repeats the
channels S times, because a wide pixel has them S times.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from graphdnn.checks import Equals, OneOf
from graphdnn.engines.cuda.codegen.cost import least_seconds_of_delegate
from graphdnn.engines.cuda.codegen.dense_operands import dense_tensor
from graphdnn.engines.cuda.codegen.index_space import is_addressable
from graphdnn.engines.cuda.codegen.pointwise_program import gen_index_axes
from graphdnn.engines.cuda.codegen.tensor_cores import EXACT_OPTIONS, EXACT_PAIRS, TF32_OPTIONS, TF32_PAIRS, Pairs
from graphdnn.engines.cuda.conv_geometry.convolution_requirements import (
    convolution_of,
    is_convolution,
    problem_of,
    prologue_need,
)
from graphdnn.engines.cuda.rewrites.as_conv2d import SETTINGS, merged_axes, with_tensors
from graphdnn.engines.cuda.rewrites.rewrite import DelegateRefusal, Pass, Rewrite, Rewritten, with_passes
from graphdnn.engines.cuda.sm80 import mma_gemm
from graphdnn.engines.cuda.sm90.gemm import hopper_dgrad_tf32, hopper_gemm
from graphdnn.engines.cuda.sm90.halo import hopper_halo_dgrad
from graphdnn.engines.cuda.sm90.split_precision import hopper_limbs, hopper_limbs_wgrad
from graphdnn.engines.cuda.sm90.weight_stationary import hopper_weight_stationary
from graphdnn.engines.engine import Engine, Task, image_need, kind_need, need, needs_rule
from graphdnn.engines.memoization import memoize
from graphdnn.enums import ConvolutionMode, DataType
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvBackwardData, ConvolutionOperation
from graphdnn.operations.conv_problem import ConvProblem
from graphdnn.rules import Constraint
from graphdnn.tensors import TensorSpec, channels_last_strides


def _is_disjoint(p: ConvProblem, axis: int) -> bool:
    """Whether windows cover an axis without overlap and padding."""
    padding = p.pre_padding[axis], p.post_padding[axis]
    steps = p.stride[axis], p.dilation[axis]
    return padding == (0, 0) and steps == (p.filter[axis], 1) and p.input[axis] == p.stride[axis] * p.output[axis]


def _has_disjoint_windows(p: ConvProblem) -> bool:
    """Whether windows are disjoint along a row, and wider than a pixel."""
    return p.groups == 1 and p.filter[-1] > 1 and _is_disjoint(p, -1)


def _widened(t: TensorSpec, count: int) -> TensorSpec | None:
    """The tensor with ``count`` adjacent pixels as one pixel; None if their channels are not contiguous."""
    channels, pixel = t.dims[1], t.strides[-1]
    if pixel != channels or (channels > 1 and t.strides[1] != 1):
        return None
    dims = (t.dims[0], count * channels, *t.dims[2:-1], t.dims[-1] // count)
    return t.model_copy(update={"dims": dims, "strides": (t.strides[0], 1, *t.strides[2:-1], count * pixel)})


def _rows_as_images(t: TensorSpec, image: TensorSpec, rows: int) -> TensorSpec | None:
    """The tensor with every ``rows`` rows as an image. A tensor that is broadcast along images and rows is unchanged.
    None if no single stride reaches all rows. ``image``: x or y, which has the same rows as the tensor.
    """
    extents = t.dims[0], t.dims[2]
    if t.uid != image.uid and extents == (1, 1):
        return t
    merged = merged_axes(t, 0, 2)
    if merged is None or extents != (image.dims[0], image.dims[2]):
        return None
    count, stride = merged
    dims, strides = (count // rows, t.dims[1], rows, t.dims[3]), (rows * stride, t.strides[1], stride, t.strides[3])
    return t.model_copy(update={"dims": dims, "strides": strides})


def _repeated(t: TensorSpec, count: int, uid: int) -> tuple[TensorSpec, TensorSpec] | None:
    """An operand that is broadcast along rows, seen with ``count`` pixels, and its copy. None for other tensors."""
    if t.dims[-1] != 1 or not is_addressable(t) or t.is_virtual:
        return None
    dims = (*t.dims[:-1], count)
    repeating = t.model_copy(update={"dims": dims, "strides": (*t.strides[:-1], 0)})
    return repeating, dense_tensor(repeating, channels_last_strides(dims), uid=uid)


@memoize
def _space_to_depth(op: FusedOp) -> Rewritten | None:
    """The convolution of wide pixels, with copies of epilogue operands of a data gradient. None if a tensor has no view
    with wide pixels.
    """
    anchor = op.anchor
    assert isinstance(anchor, ConvolutionOperation)
    x, w, y = anchor.roles
    p, tensors = anchor.problem, (*op.inputs, *op.outputs, *op.internal)
    has_addresses = all(len(t.dims) == p.spatial + 2 and is_addressable(t) for t in (x, w, y))
    is_plain = anchor.conv.mode is ConvolutionMode.CROSS_CORRELATION and not gen_index_axes(op.epilogue)
    if not has_addresses or not is_plain or any(t.uid in op.uses.behind for t in anchor.inputs().values()):
        return None
    (result,), width = anchor.outputs().values(), p.filter[-1]
    wide: dict[int, TensorSpec] = {}
    copies: list[tuple[TensorSpec, TensorSpec]] = []
    for t in tensors:
        if t.uid == y.uid or (result.uid == y.uid and t.uid not in (x.uid, w.uid)):
            continue  # a pixel of y is a window
        if t.uid not in (x.uid, w.uid) and (t.elements == 1 or (t.dims[1], t.dims[-1]) == (1, 1)):
            continue
        view = _widened(t, width) if t.uid in (x.uid, w.uid) or t.dims == result.dims else None
        if view is None and isinstance(anchor, ConvBackwardData) and t.uid not in (x.uid, w.uid):
            copy = _repeated(t, width, min(one.uid for one in tensors) - 1 - len(copies))
            if copy is not None:
                copies.append(copy)
                view = _widened(copy[1], width)
        if view is None or not is_addressable(t):
            return None
        wide[t.uid] = view
    row_images = _row_images(anchor, [wide.get(t.uid, t) for t in tensors])
    rewritten = with_tensors(op, wide | row_images)
    assert isinstance(rewritten.anchor, ConvolutionOperation)
    kept = p.spatial - (2 if row_images else 1)
    settings = {
        name: (*getattr(anchor.conv, name)[:kept], *(one,) * (p.spatial - kept)) for name, one in SETTINGS.items()
    }
    conv = anchor.conv.model_copy(update=settings)
    rewritten = replace(rewritten, anchor=rewritten.anchor.model_copy(update={"conv": conv}))
    return Rewritten(rewritten, tuple([_repeating(t, copy, width) for t, copy in copies]))


def _repeating(spec: TensorSpec, copy: TensorSpec, count: int) -> Pass:
    """The pass that repeats an operand. The operand is small, so only written bytes count."""
    summary = f"channels of {spec.label()} repeated {count} times"
    return Pass(summary, copy, float(copy.bytes), lambda steps: steps.copy_into(spec, copy))


def _row_images(anchor: ConvolutionOperation, tensors: list[TensorSpec]) -> dict[int, TensorSpec]:
    """Tensors with rows of windows as images; empty if the stride along columns stays. It stays for a data gradient:
    each tap of a single window writes one row, so products of the other taps would be zeros.
    """
    x, w, y = anchor.roles
    p = anchor.problem
    if p.spatial != 2 or isinstance(anchor, ConvBackwardData) or not _is_disjoint(p, 0):
        return {}
    is_forward = any(t.uid == y.uid for t in anchor.outputs().values())
    images = [t for t in tensors if t.uid in (x.uid, y.uid) or (is_forward and t.uid != w.uid and t.elements > 1)]
    views = {t.uid: _rows_as_images(t, *((x, p.filter[0]) if t.uid == x.uid else (y, 1))) for t in images}
    possible = {uid: t for uid, t in views.items() if t is not None}
    return possible if len(possible) == len(views) else {}


def _types(task: Task) -> tuple[DataType, ...]:
    return tuple(t.data_type for t in convolution_of(task).inputs().values())[:2]


def _layout_need(name: str) -> Constraint:
    return need(
        f"{name}.layout",
        "strides",
        lambda task: convolution_of(task).roles[0].strides,
        Equals("packed NHWC tensors, epilogue operands with whole rows or one value for a row, no final reduction"),
        reason="adjacent pixels become one pixel without a copy",
        fix="use the packed channels-last layout (NHWC)",
        when=lambda task: (
            is_convolution(task)
            and not task.op.prologue
            and _has_disjoint_windows(problem_of(task))
            and (task.op.exit is not None or _space_to_depth(task.op) is None)
        ),
    )


def _rewritten(op: FusedOp) -> tuple[Rewritten, ...]:
    form = _space_to_depth(op)
    return () if form is None else (form,)


def _row(
    id: int, suffix: str, summary: str, types: Pairs, engines: tuple[Engine, ...], notes: dict[str, Any]
) -> Rewrite:
    """The row for operand types ``types``. ``notes``: numerical notes and error factors of ``engines``."""
    name = f"cuda_space_to_depth{suffix}"
    return Rewrite(
        id=id,
        name=f"space_to_depth{suffix}",
        summary=summary,
        why="windows do not overlap",
        match=(
            needs_rule(f"{name}.operation", "conv"),
            kind_need(
                f"{name}.types",
                "data_type",
                _types,
                OneOf(*types),
                reason="the engines of this rewrite multiply these types",
                fix="nothing to do: another engine serves other types",
                when=is_convolution,
            ),
            prologue_need(name, is_convolution),
            image_need(
                f"{name}.windows",
                "conv.filter_strides",
                lambda task: (problem_of(task).stride, problem_of(task).filter, problem_of(task).input),
                Equals("windows that cover rows without overlap or padding, of one group"),
                reason="pixels that belong to one window only become one pixel of more channels",
                fix="nothing to do: another engine serves other windows",
                when=lambda task: (
                    is_convolution(task) and not task.op.prologue and not _has_disjoint_windows(problem_of(task))
                ),
            ),
            _layout_need(name),
        ),
        rewrite=_rewritten,
        engines=engines,
        refusal=DelegateRefusal("an operation that an engine for tensor cores serves with longer rows of channels"),
        cost=with_passes("operands"),
        least=lambda task: least_seconds_of_delegate(task, 0),
        notes=notes,
    )


ROW = _row(
    101,
    "",
    "disjoint windows on tensor cores: the pixels of a window row become one pixel of more channels",
    EXACT_PAIRS,
    (hopper_gemm.ENGINE, hopper_weight_stationary.ENGINE, hopper_halo_dgrad.ENGINE, mma_gemm.ENGINE),
    EXACT_OPTIONS,
)
ROW_TF32 = _row(
    102,
    "_tf32",
    "the same for fp32 operands rounded to TF32; only if TF32 is allowed",
    TF32_PAIRS,
    (
        hopper_gemm.ENGINE_TF32, hopper_dgrad_tf32.ENGINE, hopper_halo_dgrad.ENGINE_TF32,
        hopper_limbs_wgrad.ENGINE_TF32, mma_gemm.ENGINE_TF32,
    ),
    TF32_OPTIONS,
)  # fmt: skip
ROW_BF16X3 = _row(
    103,
    "_bf16x3",
    "the same for fp32 as sums of three bf16 limbs, on the tensor cores of compute capability 9.0",
    TF32_PAIRS,
    (hopper_limbs.FLOATS, hopper_limbs_wgrad.ENGINE),
    {"numerical_notes": hopper_limbs.FLOATS.numerical_notes, "sum_error": hopper_limbs.FLOATS.sum_error},
)

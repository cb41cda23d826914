"""Rewrite ``space_to_depth``: convolutions whose windows do not overlap, with fewer taps and more channels.

Where windows move by as many pixels as a filter has taps (patch embeddings, merged patches, transposed convolutions
that enlarge an image), no pixel is in two windows. With channels last, the pixels of a window along a line are
neighbours in memory, and so are the taps that meet them: they are one pixel of so many times the channels, and one tap.
Where windows move like that from line to line as well, forward and for filter gradients, each row of windows is an
image of its own, along which no window moves. No address changes, but rows of channels are longer, strides and taps
fewer: what the copy unit counts, and products of a strided data gradient, are in reach again. Nothing is copied but
vectors of channels that meet a data gradient: the pixels of a line that are one read them side by side.
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
from graphdnn.engines.cuda.rewrites.as_conv2d import SETTINGS, joined_axes, with_tensors
from graphdnn.engines.cuda.rewrites.rewrite import Pass, Remainder, Rewrite, Rewritten, with_passes
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


def _is_apart(p: ConvProblem, axis: int) -> bool:
    """Windows cover an axis, each pixel once."""
    padding = p.pre_padding[axis], p.post_padding[axis]
    moves = p.stride[axis], p.dilation[axis]
    return padding == (0, 0) and moves == (p.filter[axis], 1) and p.input[axis] == p.stride[axis] * p.output[axis]


def _has_windows(p: ConvProblem) -> bool:
    return p.groups == 1 and p.filter[-1] > 1 and _is_apart(p, -1)


def _wide(t: TensorSpec, by: int) -> TensorSpec | None:
    """So many neighbours along a line as one, if their channels follow each other."""
    channels, pixel = t.dims[1], t.strides[-1]
    if pixel != channels or (channels > 1 and t.strides[1] != 1):
        return None
    dims = (t.dims[0], by * channels, *t.dims[2:-1], t.dims[-1] // by)
    return t.model_copy(update={"dims": dims, "strides": (t.strides[0], 1, *t.strides[2:-1], by * pixel)})


def _rows(t: TensorSpec, whole: TensorSpec, lines: int) -> TensorSpec | None:
    """A plane's lines, so many at a time, as images of their own; what repeats along both stays. ``whole``: what it
    meets.
    """
    ends = t.dims[0], t.dims[2]
    if t.uid != whole.uid and ends == (1, 1):
        return t
    joined = joined_axes(t, 0, 2)
    if joined is None or ends != (whole.dims[0], whole.dims[2]):
        return None
    images, pace = joined
    dims, strides = (images // lines, t.dims[1], lines, t.dims[3]), (lines * pace, t.strides[1], pace, t.strides[3])
    return t.model_copy(update={"dims": dims, "strides": strides})


def _repeated(t: TensorSpec, by: int, uid: int) -> tuple[TensorSpec, TensorSpec] | None:
    """What repeats along lines, channel by channel, so many times side by side, and the copy that is. None: not so."""
    if t.dims[-1] != 1 or not is_addressable(t) or t.is_virtual:
        return None
    dims = (*t.dims[:-1], by)
    repeating = t.model_copy(update={"dims": dims, "strides": (*t.strides[:-1], 0)})
    return repeating, dense_tensor(repeating, channels_last_strides(dims), uid=uid)


@memoize
def _blocked(op: FusedOp) -> Rewritten | None:
    """The convolution of wide pixels; operands of a data gradient's end are copied for it. None where the tensors do
    not lie so.
    """
    anchor = op.anchor
    assert isinstance(anchor, ConvolutionOperation)
    x, w, y = anchor.roles
    p, tensors = anchor.problem, (*op.inputs, *op.outputs, *op.internal)
    alike = all(len(t.dims) == p.spatial + 2 and is_addressable(t) for t in (x, w, y))
    is_plain = anchor.conv.mode is ConvolutionMode.CROSS_CORRELATION and not gen_index_axes(op.epilogue)
    if not alike or not is_plain or any(t.uid in op.uses.behind for t in anchor.inputs().values()):
        return None
    (result,), by = anchor.outputs().values(), p.filter[-1]
    wide: dict[int, TensorSpec] = {}
    copies: list[tuple[TensorSpec, TensorSpec]] = []
    for t in tensors:
        if t.uid == y.uid or (result.uid == y.uid and t.uid not in (x.uid, w.uid)):
            continue  # pixels of y are windows
        if t.uid not in (x.uid, w.uid) and (t.elements == 1 or (t.dims[1], t.dims[-1]) == (1, 1)):
            continue
        seen = _wide(t, by) if t.uid in (x.uid, w.uid) or t.dims == result.dims else None
        if seen is None and isinstance(anchor, ConvBackwardData) and t.uid not in (x.uid, w.uid):
            copy = _repeated(t, by, min(one.uid for one in tensors) - 1 - len(copies))
            if copy is not None:
                copies.append(copy)
                seen = _wide(copy[1], by)
        if seen is None or not is_addressable(t):
            return None
        wide[t.uid] = seen
    of_lines = _of_lines(anchor, [wide.get(t.uid, t) for t in tensors])
    made = with_tensors(op, wide | of_lines)
    assert isinstance(made.anchor, ConvolutionOperation)
    kept = p.spatial - (2 if of_lines else 1)
    settings = {
        name: (*getattr(anchor.conv, name)[:kept], *(one,) * (p.spatial - kept)) for name, one in SETTINGS.items()
    }
    conv = anchor.conv.model_copy(update=settings)
    moving = replace(made, anchor=made.anchor.model_copy(update={"conv": conv}))
    return Rewritten(moving, tuple([_repeating(t, copy, by) for t, copy in copies]))


def _repeating(spec: TensorSpec, copy: TensorSpec, by: int) -> Pass:
    """The pass that repeats an operand. The operand is small, so only the bytes written count."""
    summary = f"{spec.label()} repeated {by} times side by side"
    return Pass(summary, copy, float(copy.bytes), lambda steps: steps.copy_into(spec, copy))


def _of_lines(anchor: ConvolutionOperation, tensors: list[TensorSpec]) -> dict[int, TensorSpec]:
    """Rows of windows as images; nothing where lines keep their stride. A data gradient keeps it: in a window that does
    not move, each tap meets one line, and the products of the others would be zeros.
    """
    x, w, y = anchor.roles
    p = anchor.problem
    if p.spatial != 2 or isinstance(anchor, ConvBackwardData) or not _is_apart(p, 0):
        return {}
    is_forward = any(t.uid == y.uid for t in anchor.outputs().values())
    met = [t for t in tensors if t.uid in (x.uid, y.uid) or (is_forward and t.uid != w.uid and t.elements > 1)]
    found = {t.uid: _rows(t, x, p.filter[0]) if t.uid == x.uid else _rows(t, y, 1) for t in met}
    seen = {uid: t for uid, t in found.items() if t is not None}
    return seen if len(seen) == len(found) else {}


def _types(task: Task) -> tuple[DataType, ...]:
    return tuple(t.data_type for t in convolution_of(task).inputs().values())[:2]


def _layout_need(name: str) -> Constraint:
    return need(
        f"{name}.layout",
        "strides",
        lambda task: convolution_of(task).roles[0].strides,
        Equals("packed channels last, operands of the result that have all of a line or none of it, no sum at the end"),
        reason="neighbouring pixels are one as they lie in memory",
        fix="use the packed channels-last layout (NHWC)",
        when=lambda task: (
            is_convolution(task)
            and not task.op.prologue
            and _has_windows(problem_of(task))
            and (task.op.exit is not None or _blocked(task.op) is None)
        ),
    )


def _rewritten(op: FusedOp) -> tuple[Rewritten, ...]:
    form = _blocked(op)
    return () if form is None else (form,)


def _row(
    id: int, suffix: str, summary: str, types: Pairs, engines: tuple[Engine, ...], notes: dict[str, Any]
) -> Rewrite:
    """``engines``: of these types. ``notes``: theirs."""
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
                reason="these are the types that the engines multiply which this one asks",
                fix="nothing to do: another engine serves other types",
                when=is_convolution,
            ),
            prologue_need(name, is_convolution),
            image_need(
                f"{name}.windows",
                "conv.filter_strides",
                lambda task: (problem_of(task).stride, problem_of(task).filter, problem_of(task).input),
                Equals("windows that cover lines without overlap or padding, of one group"),
                reason="pixels that are in one window only are one pixel of more channels",
                fix="nothing to do: another engine serves other windows",
                when=lambda task: is_convolution(task) and not task.op.prologue and not _has_windows(problem_of(task)),
            ),
            _layout_need(name),
        ),
        rewrite=_rewritten,
        engines=engines,
        remainder=Remainder("what an engine for tensor cores serves with longer rows of channels"),
        cost=with_passes("operands"),
        least=lambda task: least_seconds_of_delegate(task, 0),
        notes=notes,
    )


ROW = _row(
    101,
    "",
    "windows side by side on tensor cores: a window's pixels of a line as one pixel of more channels",
    EXACT_PAIRS,
    (hopper_gemm.ENGINE, hopper_weight_stationary.ENGINE, hopper_halo_dgrad.ENGINE, mma_gemm.ENGINE),
    EXACT_OPTIONS,
)
ROW_TF32 = _row(
    102,
    "_tf32",
    "the same of fp32, operands rounded to TF32; only where that is allowed",
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
    "the same of fp32 in three parts of 16 bits, on the tensor cores of compute capability 9.0",
    TF32_PAIRS,
    (hopper_limbs.FLOATS, hopper_limbs_wgrad.ENGINE),
    {"numerical_notes": hopper_limbs.FLOATS.numerical_notes, "sum_error": hopper_limbs.FLOATS.sum_error},
)

"""Problems of each rewrite, and rewrites that are broken in one way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from engine_rejections import H200, Case
from requirement_cases import from_text

from graphdnn.engines import Engine, Task
from graphdnn.engines.cuda.rewrites import group_packing, layout_transform, space_to_depth
from graphdnn.engines.cuda.rewrites.as_conv2d import with_tensors
from graphdnn.engines.cuda.rewrites.rewrite import Rewrite, Rewritten, copied_before
from graphdnn.engines.cuda.rewrites.rewrite_engine import rewrite_engine
from graphdnn.enums import DataType
from graphdnn.errors import error_for
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.tensors import TensorSpec

PATCHES = "conv x=f16[2,16,8,8]nhwc w=f16[24,16,2,2]nhwc stride=2 + relu"
GROUPS = "conv x=f16[2,32,9,11]nhwc w=f16[32,8,3,3]nhwc pad=1"
PLANES = "conv x=f16[8,64,20,20] w=f16[64,8,3,3] pad=1 + bias"


@dataclass(frozen=True)
class Matched:
    """A problem that a rewrite matches and what plans say, and one that it declines for a rule."""

    text: str
    shown: tuple[str, ...]
    declined: str
    rule: str


MATCHED: dict[str, Matched] = {
    "fp8_upcast": Matched(
        "conv x=e4m3[2,16,9,9]nhwc w=e4m3[24,16,3,3]nhwc pad=1 out=f16 + bias",
        (
            "rewrite: fp8_upcast (an operand is fp8) -> conv_fprop+add of [2, 16, 9, 9] and [24, 16, 3, 3]"
            " by cuda_hopper_gemm, hopper_64x32x16",
            "  before: x (uid 1) copied to HALF",
            "  before: w (uid 2) copied to HALF",
        ),
        PATCHES,
        "cuda_fp8_upcast.data_type",
    ),
    "materialized_prologue": Matched(
        "prologue conv x=f16[2,16,6,7]nhwc w=f16[24,16,3,3]nhwc pad=1",
        (
            "rewrite: materialized_prologue (pointwise operations lead to an operand) -> conv_fprop"
            " of [2, 16, 6, 7] and [24, 16, 3, 3] by cuda_hopper_gemm, hopper_64x32x16",
            "  before: x (uid 1) computed by relu_fwd",
        ),
        PATCHES,
        "cuda_materialized_prologue.prologue",
    ),
    "layout_transform": Matched(
        PLANES,
        (
            "rewrite: layout_transform (images are not 2-D in NHWC) -> conv_fprop+add"
            " of [8, 64, 20, 20] and [64, 8, 3, 3] by cuda_grouped, grouped_c8k8g1m2s2",
            "  before: x (uid 1) copied to channels last",
            "  after: y (uid 5) copied from channels last",
        ),
        PATCHES,
        "cuda_layout_transform.layout",
    ),
    "group_packing": Matched(
        GROUPS,
        (
            "rewrite: group_packing (groups have few channels) -> conv_fprop of [2, 32, 9, 11] and [32, 32, 3, 3]"
            " by cuda_hopper_gemm, hopper_64x32x16",
            "  before: filters of 4 groups packed as one",
        ),
        PATCHES,
        "cuda_group_packing.groups",
    ),
    "space_to_depth": Matched(
        "conv x=f16[32,3,224,224]nhwc w=f16[768,3,16,16]nhwc stride=16 + bias",
        (
            "rewrite: space_to_depth (windows do not overlap) -> conv_fprop+add of [448, 48, 16, 14]"
            " and [768, 48, 16, 1] by cuda_hopper_gemm, hopper_192x192x4",
        ),
        "conv x=f16[2,16,8,8]nhwc w=f16[24,16,3,3]nhwc pad=1 stride=2",
        "cuda_space_to_depth.windows",
    ),
    "space_to_depth_tf32": Matched(
        "dgrad dy=f32[2,24,3,5]nhwc w=f32[24,16,4,4]nhwc dx=[2,16,12,20] stride=4 + bias",
        (
            "rewrite: space_to_depth_tf32 (windows do not overlap) -> conv_dgrad+add of [24, 64, 4, 1]"
            " and [2, 24, 3, 5] by cuda_mma_gemm_tf32, mma_32x32x16s5",
            "  before: channels of bias (uid 4) repeated 4 times",
        ),
        PATCHES,
        "cuda_space_to_depth_tf32.types",
    ),
    "space_to_depth_bf16x3": Matched(
        "conv x=f32[2,3,32,48]nhwc w=f32[24,3,16,16]nhwc stride=16 + bias",
        (
            "rewrite: space_to_depth_bf16x3 (windows do not overlap) -> conv_fprop+add of [4, 48, 16, 3]"
            " and [24, 48, 16, 1] by cuda_hopper_bf16x3, hopper_limbs_float_float_64x32x8",
        ),
        PATCHES,
        "cuda_space_to_depth_bf16x3.types",
    ),
    "stride_fold": Matched(
        "conv x=f16[2,16,9,12]nhwc w=f16[32,16,3,3]nhwc pad=1 stride=2",
        (
            "rewrite: stride_fold (the stride is 2, and pixels have few channels) -> conv_fprop of [2, 32, 9, 6]"
            " and [32, 32, 3, 2] by cuda_hopper_gemm, hopper_64x32x16",
            "  before: filters folded for pixel pairs",
        ),
        GROUPS,
        "cuda_stride_fold.stride",
    ),
}


def _changed(form: Rewritten, uid: int, **update: object) -> Rewritten:
    """One tensor of the rewritten operation is another one."""
    tensors = (*form.op.inputs, *form.op.outputs, *form.op.internal)
    spec = next(t for t in tensors if t.uid == uid)
    return replace(form, op=with_tensors(form.op, {uid: spec.model_copy(update=update)}))


def _result(form: Rewritten) -> TensorSpec:
    return form.op.outputs[0]


def _half(form: Rewritten) -> Rewritten:
    y = _result(form)
    return _changed(form, y.uid, dims=(y.dims[0] // 2, *y.dims[1:]))


def _wide(form: Rewritten) -> Rewritten:
    x = form.op.inputs[0]
    return _changed(form, x.uid, strides=(2 * x.strides[0], *x.strides[1:]))


def _idle(form: Rewritten) -> Rewritten:
    x = form.op.inputs[0]
    copy = x.model_copy(update={"uid": -99})
    return replace(form, before=(copied_before(x, copy, "x copied for nothing"),))


def _gradient(form: Rewritten) -> Rewritten:
    """Of the same tensors, as far as kinds are looked at."""
    (other,) = space_to_depth.ROW.rewrite(
        from_text("wgrad x=f16[2,16,8,8]nhwc dy=f16[2,24,4,4]nhwc dw=[24,16,2,2] stride=2", "h200")().op
    )
    return replace(form, op=replace(form.op, anchor=other.op.anchor))


@dataclass(frozen=True)
class Broken:
    """A row whose rewrite returns something wrong, a problem that it matches, and what the check says."""

    row: Rewrite
    text: str
    break_: Callable[[Rewritten], Rewritten]
    said: str

    def engine(self) -> Engine:
        def rewritten(op: FusedOp) -> tuple[Rewritten, ...]:
            return tuple(map(self.break_, self.row.rewrite(op)))

        return rewrite_engine(replace(self.row, rewrite=rewritten))

    def task(self) -> Task:
        return from_text(self.text, "h200")()


_S2D, _GROUP, _LAYOUT = space_to_depth.ROW, group_packing.ROW, layout_transform.ROW
BROKEN: dict[str, Broken] = {
    "half of the result": Broken(
        _S2D, PATCHES, _half, "it writes 384 elements of HALF of y (uid 4), which has 768 elements of HALF"
    ),
    "an operand beyond its end": Broken(
        _S2D, PATCHES, _wide, "it reads x (uid 1) up to element 3840, and the tensor ends at 2048"
    ),
    "an operand of another type": Broken(
        _S2D,
        PATCHES,
        lambda form: _changed(form, form.op.inputs[0].uid, data_type=DataType.BFLOAT16),
        "it reads 2048 elements of BFLOAT16 of x (uid 1), which has 2048 elements of HALF",
    ),
    "no epilogue": Broken(
        _S2D,
        PATCHES,
        lambda form: replace(form, op=replace(form.op, epilogue=())),
        "its epilogue is empty, and the operation's epilogue is relu_fwd",
    ),
    "another anchor": Broken(
        _S2D, PATCHES, _gradient, "its anchor is conv_wgrad, and the operation's anchor is conv_fprop"
    ),
    "a copy that nothing reads": Broken(_S2D, PATCHES, _idle, "it never reads x (uid -99)"),
    "filters that nothing packs": Broken(
        _GROUP,
        GROUPS,
        lambda form: replace(form, before=()),
        "it reads uid 0, which is neither the operation's nor scratch memory of a pass",
    ),
    "a result that stays in scratch memory": Broken(
        _LAYOUT, PLANES, lambda form: replace(form, after=()), "it never writes y (uid 5)"
    ),
}


def broken_rewrite() -> Case:
    """What the engine of a broken rewrite refuses."""

    def ask() -> None:
        case = BROKEN["half of the result"]
        raise error_for(case.engine().why_not(case.task()))

    return ask


__all__ = ["BROKEN", "H200", "MATCHED", "Broken", "Matched", "broken_rewrite"]

"""RULE_CASES: for each rule of the core, something that breaks it. ``test_rules`` proves that the table is complete."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from device_rule_cases import DEVICE_RULE_CASES
from extension_cases import EXTENSION_RULE_CASES
from legal_problems import (
    CHANNEL,
    IMAGE,
    bernoulli,
    convolution,
    operation,
    pointwise,
    pooling,
    reduction,
    scalar,
    tensor,
)

from graphdnn import build, device_spec, files, graph_to_json, plan_to_json
from graphdnn.device.profiles import device_from_json
from graphdnn.engines import ENGINES, Engine, Knob, Task
from graphdnn.engines.numpy_general import ENGINE as NUMPY
from graphdnn.enums import (
    BehaviorNote,
    BnFinalizeStatsMode,
    DataType,
    HeurMode,
    KnobType,
    NanPropagation,
    NormMode,
    NormPhase,
    NumericalNote,
    PaddingMode,
    PointwiseMode,
    ReductionOperator,
    ResampleMode,
    ReshapeMode,
    RngDistribution,
    TensorReordering,
)
from graphdnn.errors import error_for
from graphdnn.fusion import FusionLimits, fuse
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.heuristics import Filters, Ranking
from graphdnn.operations import Operation

Case = Callable[[], Any]


def op(tag: str, **changes: Any) -> Case:
    return lambda: operation(tag, **changes)


def t(*args: Any, **fields: Any) -> Case:
    return lambda: tensor(*args, **fields)


def overlapping(uid: int, dims: tuple[int, ...], data_type: str = "f32") -> Any:
    return tensor(uid, dims, data_type, strides=(1,) * len(dims))


def small(uid: int) -> Any:
    """A tensor whose extents fit nowhere."""
    return tensor(uid, (1, 3, 1, 1))


# Which tensor each operation writes, for rules about outputs.
MAIN_OUTPUT = {
    "conv_fprop": ("y", (2, 4, 4, 4)), "matmul": ("c", (2, 3, 5)), "pointwise": ("y", IMAGE),
    "reduction": ("y", (2, 4, 1, 1)), "resample_fwd": ("y", (2, 4, 3, 3)), "resample_bwd": ("dx", IMAGE),
    "norm_fwd": ("y", IMAGE), "norm_bwd": ("dx", IMAGE), "concat": ("y", (2, 7)), "reshape": ("y", (3, 4)),
    "transpose": ("y", (4, 2, 3)), "slice": ("y", (2, 3)), "rng": ("y", (4, 6)),
}  # fmt: skip


def _overlap(tag: str) -> Case:
    port, dims = MAIN_OUTPUT[tag]
    return lambda: operation(tag, **{port: overlapping(90, dims)})


def _graph(*operations: Operation) -> Case:
    return lambda: OperationGraph.of(operations)


def softmax(total: tuple[int, ...] = (2, 1, 6, 6), powers: Any = None) -> list[Operation]:
    """Over the channels; ``total``: extents of the sum."""
    most, sums = tensor(80, (2, 1, 6, 6), is_virtual=True), tensor(83, total, is_virtual=True)
    powers = powers or image(82, virtual=True)

    def step(mode: PointwiseMode, x: Any, b: Any, y: Any) -> Operation:
        return operation("pointwise", x=x, b=b, y=y, spec=pointwise(mode))

    return [
        operation("reduction", x=image(1), y=most, spec=reduction(ReductionOperator.MAX)),
        step(PointwiseMode.SUB, image(1), most, image(81, virtual=True)),
        step(PointwiseMode.EXP, image(81, virtual=True), ..., powers),
        operation("reduction", x=powers, y=sums),
        step(PointwiseMode.DIV, powers, sums, image(2)),
    ]


def attention(
    *, depth: int = 8, scores: Any = None, kind: str = "f16", keys: int = 6, wide: bool = False, late: bool = False
) -> list[Operation]:
    """Of one head. ``kind``: of the probabilities; ``wide``: with a bias for two heads; ``late``: v waits for a sum's reader."""

    def made(uid: int, dims: Any, data_type: str = "f32", **fields: Any) -> Any:
        return tensor(uid, dims, data_type=data_type, **{"is_virtual": True, **fields})

    def step(mode: PointwiseMode, x: Any, b: Any, y: Any) -> Operation:
        return operation("pointwise", x=x, b=b, y=y, spec=pointwise(mode))

    heads = 2 if wide else 1
    whole, rows = (heads, 4, keys), (heads, 4, 1)
    q = tensor(1, (1, 4, depth), data_type="f16")
    k = tensor(2, (1, depth, keys), data_type="f16", strides=(keys * depth, 1, depth))
    x, v = scores or made(80, (1, 4, keys)), tensor(3, (1, keys, 8), data_type="f16")
    most, total, powers, p = made(81, rows), made(84, rows), made(83, whole), made(85, whole, kind)
    product = operation("matmul", a=q, b=k, c=x)
    before: list[Operation] = []
    if wide:
        before = [step(PointwiseMode.ADD, x, tensor(4, whole), made(86, whole))]
        x = made(86, whole)
    found = [
        product,
        *before,
        operation("reduction", x=x, y=most, spec=reduction(ReductionOperator.MAX)),
        step(PointwiseMode.SUB, x, most, made(82, whole)),
        step(PointwiseMode.EXP, made(82, whole), ..., powers),
        operation("reduction", x=powers, y=tensor(84, rows) if late else total),
    ]
    if late:
        total = tensor(84, rows)
        found.append(step(PointwiseMode.ADD, total, tensor(8, rows), tensor(5, rows)))
        v = made(87, (1, keys, 8), "f16")
        found.append(
            operation(
                "matmul", a=tensor(6, (1, keys, 8), data_type="f16"), b=tensor(7, (1, 8, 8), data_type="f16"), c=v
            )
        )
    found += [
        step(PointwiseMode.DIV, powers, total, p),
        operation("matmul", a=p, b=v, c=tensor(9, (heads, 4, 8), data_type="f16")),
    ]
    return found


def softmax_gradient(length: int) -> list[Operation]:
    """Of one row."""
    y, dy, dx = (tensor(uid, (1, length)) for uid in (1, 2, 3))
    product, rest = (tensor(uid, (1, length), is_virtual=True) for uid in (80, 82))
    total = tensor(81, (1, 1), is_virtual=True)

    def step(mode: PointwiseMode, x: Any, b: Any, y: Any) -> Operation:
        return operation("pointwise", x=x, b=b, y=y, spec=pointwise(mode))

    return [
        step(PointwiseMode.MUL, y, dy, product),
        operation("reduction", x=product, y=total),
        step(PointwiseMode.SUB, dy, total, rest),
        step(PointwiseMode.MUL, y, rest, dx),
    ]


def add(x: Any, b: Any, y: Any, **fields: Any) -> Operation:
    return operation("pointwise", x=x, b=b, y=y, **fields)


def relu(x: Any, y: Any) -> Operation:
    return operation("pointwise", x=x, b=..., y=y, spec=pointwise(PointwiseMode.RELU_FWD))


def image(uid: int, *, virtual: bool = False, **fields: Any) -> Any:
    return tensor(uid, IMAGE, is_virtual=virtual, **fields)


V = image(50, virtual=True)
SMALL_V = tensor(51, CHANNEL, is_virtual=True)


def conv(y: Any, x: Any = None, w: Any = None, uid: int = 60, **fields: Any) -> Operation:
    """A 1x1 convolution over IMAGE that keeps its extents."""
    return operation("conv_fprop", x=x or image(uid), w=w or tensor(uid + 1, (4, 4, 1, 1)), y=y, **fields)


def fused(*operations: Operation, **limits: Any) -> Case:
    """The stops of a graph, raised so that a case looks like the others."""

    def stops() -> None:
        found = fuse(OperationGraph.of(operations), FusionLimits.of(**limits)).stopped_by
        raise StoppedError([stop.rule for stop in found])

    return stops


class StoppedError(Exception):
    """Carries the rule ids of the edges left unfused."""

    def __init__(self, rules: list[str]) -> None:
        super().__init__(rules)
        self.rules = rules


def plan_case(**bindings: Any) -> Case:
    """Execute x + b -> y with some bindings changed."""

    def run() -> None:
        graph = OperationGraph.of([operation("pointwise")])
        arrays: dict[int, Any] = {1: np.zeros(IMAGE, np.float32), 2: np.zeros(CHANNEL, np.float32)}
        arrays[3] = np.zeros(IMAGE, np.float32)
        changed = {int(uid[1:]): value for uid, value in bindings.items()}
        arrays = {uid: value for uid, value in {**arrays, **changed}.items() if value is not ...}
        build(graph).execute(arrays)

    return run


def two_kernels() -> Any:
    """A plan with workspace: a reduction and what follows it over the full extents."""
    total = tensor(11, CHANNEL, is_virtual=True)
    return build(OperationGraph.of([operation("reduction", x=image(10), y=total), add(image(10), total, image(12))]))


def workspace_case(workspace: Any) -> Case:
    def run() -> None:
        plan = two_kernels()
        arrays = {10: np.zeros(IMAGE, np.float32), 12: np.zeros(IMAGE, np.float32)}
        plan.execute(arrays, arrays[12] if workspace is ... else workspace)

    return run


class OnTheGpu:
    __cuda_array_interface__: dict[str, object] = {}


def _custom(**fields: Any) -> tuple[Engine, ...]:
    return (replace(NUMPY, id=900, name="custom", **fields),)


def ranked(filters: Filters, engines: tuple[Engine, ...] = ENGINES, mode: HeurMode = HeurMode.A) -> Case:
    graph = OperationGraph.of([operation("reduction")])
    return lambda: Ranking(fuse(graph), device_spec(), mode, filters, engines).best


def knob(*chosen: tuple[KnobType, int]) -> Case:
    engine = _custom(knobs=(Knob(KnobType.STAGES, 2, 8, 2, 4, "stages"),))[0]

    def check() -> None:
        raise error_for(engine.knob_problems(chosen))

    return check


def unavailable_knob() -> None:
    """An engine whose kernel has two stages, whatever is set."""
    knobs = (Knob(KnobType.STAGES, 2, 8, 2, 4, "stages"),)
    engine = _custom(knobs=knobs, effective=lambda task, knobs: {KnobType.STAGES: 2})[0]
    task = Task(fuse(GRAPH).operations[0], device_spec())
    raise error_for(engine.unavailable_knobs(task, engine.settings({KnobType.STAGES: 6})))


def declined(engine: str, tag: str) -> Case:
    (found,) = (e for e in ENGINES if e.name == engine)

    def ask() -> None:
        (task,) = fuse(OperationGraph.of([operation(tag)]))
        raise error_for(found.why_not(Task(task, device_spec())))

    return ask


GRAPH = OperationGraph.of([operation("pointwise")])


def graph_file(**changes: Any) -> Case:
    text = json.dumps({**json.loads(graph_to_json(GRAPH)), **changes})
    return lambda: files.graph_from_json(text)


def altered_plan() -> None:
    files.plan_from_json(plan_to_json(build(GRAPH)).replace('"uid": 1', '"uid": 9'))


def device_case(**changes: Any) -> Case:
    return lambda: device_from_json({**device_spec("h200").to_json(), **changes})


READ_ONLY = np.zeros(IMAGE, np.float32)
READ_ONLY.flags.writeable = False
MISALIGNED = np.zeros(2 * 4 * 36 * 4 + 64, np.uint8)
MISALIGNED = MISALIGNED[(4 - MISALIGNED.ctypes.data) % 16 :][: 2 * 4 * 36 * 4].view(np.float32).reshape(IMAGE)
CONV3 = convolution(spatial_dims=1, dilations=(1,), filter_strides=(1,), pre_paddings=(0,), post_paddings=(0,))
GROUP_X, GROUP_W, GROUP_Y = (2, 2, 2, 6, 6), (2, 2, 2, 3, 3), (2, 2, 2, 4, 4)
STATISTIC_PORTS = (
    "y_sq_sum", "scale", "bias", "previous_running_mean", "previous_running_var", "updated_running_mean",
    "updated_running_var", "saved_mean", "saved_inv_std", "eq_scale", "eq_bias",
)  # fmt: skip
WEIGHT_PORTS = ("mean", "inv_std", "scale", "dscale", "dbias", "eq_dy_scale", "eq_x_scale", "eq_bias")
NORM_PORTS = (
    "scale", "bias", "mean", "inv_variance", "input_running_mean", "input_running_var", "output_running_mean",
    "output_running_var", "y",
)  # fmt: skip
RUNNING = ("input_running_mean", "input_running_var", "output_running_mean", "output_running_var", "momentum")
NO_RUNNING = dict.fromkeys(RUNNING, ...)

RULE_CASES: dict[str, Case] = {
    **DEVICE_RULE_CASES,
    **EXTENSION_RULE_CASES,
    # attributes and tensors
    "attr.missing": lambda: tensor(1, (2,)).__class__(uid=1),
    "attr.type": t("7", (2, 3)),
    "attr.unknown": t(1, (2, 3), colour="red"),
    "tensor.dims.rank": t(1, (1,) * 9),
    "tensor.dims.positive": t(1, (2, 0), strides=(1, 1)),
    "tensor.strides.length": t(1, (2, 3), strides=(1,)),
    "tensor.strides.positive": t(1, (2, 3), strides=(0, 1)),
    "tensor.data_type.storage": t(1, (2, 3), DataType.INT8x4),
    "tensor.size.overflow": t(1, (2**40, 2**40), strides=(2**40, 1)),
    "tensor.alignment": t(1, (2, 3), byte_alignment=3),
    "tensor.vector_count": t(1, (2, 3), vector_count=4, vectorized_dimension=1),
    "tensor.vectorized_dimension": t(1, (2, 3), "i8", vector_count=4),
    "tensor.reordering": t(1, (2, 3), reordering=TensorReordering.INT8x32),
    "tensor.by_value.single": t(1, (2, 3), is_by_value=True),
    "tensor.by_value.virtual": t(1, (1, 1), is_by_value=True, is_virtual=True),
    "tensor.constant.by_value": t(1, (1, 1), constant_value=1.0),
    "tensor.constant.value": t(1, (1, 1), "i8", is_by_value=True, constant_value=1.5),
    # convolution
    "convolution.spatial_dims": lambda: convolution(spatial_dims=4),
    **{
        f"convolution.{f}.length": (lambda f=f: convolution(**{f: (1,)}))
        for f in ("dilations", "filter_strides", "pre_paddings", "post_paddings")
    },
    "convolution.dilations.minimum": lambda: convolution(dilations=(0, 1)),
    "convolution.filter_strides.minimum": lambda: convolution(filter_strides=(1, 0)),
    "convolution.pre_paddings.minimum": lambda: convolution(pre_paddings=(-1, 0)),
    "convolution.post_paddings.minimum": lambda: convolution(post_paddings=(0, -1)),
    "conv.rank": op("conv_fprop", conv=CONV3, w=tensor(2, (4, 2, 3))),
    "conv.groups.divide_channels": op("conv_fprop", w=tensor(2, (4, 3, 3, 3))),
    "conv.groups.divide_filters": op("conv_fprop", w=tensor(2, (5, 2, 3, 3))),
    "conv.groups.extents": op("conv_fprop", x=tensor(1, GROUP_X), w=tensor(2, (3, 2, 2, 3, 3)), y=tensor(3, GROUP_Y)),
    "conv.channels": op("conv_fprop", x=tensor(1, GROUP_X), w=tensor(2, (2, 2, 5, 3, 3)), y=tensor(3, GROUP_Y)),
    "conv.filter.fits": op("conv_fprop", w=tensor(2, (4, 2, 9, 3))),
    "conv.y.extents": op("conv_fprop", y=tensor(3, (2, 4, 5, 4))),
    "conv.compute_type": op("conv_fprop", conv=convolution(compute_type="i8")),
    "conv.operand_types": op("conv_fprop", conv=convolution(compute_type="i32")),
    "conv.fast_float_for_fp8": op("conv_fprop", conv=convolution(compute_type=DataType.FAST_FLOAT_FOR_FP8)),
    # products and reductions
    "matmul.rank": op("matmul", b=tensor(2, (4, 5))),
    "matmul.rank.minimum": op("matmul", a=tensor(1, (4,)), b=tensor(2, (4,)), c=tensor(3, (4,))),
    "matmul.inner": op("matmul", b=tensor(2, (2, 6, 5))),
    "matmul.batch": op("matmul", b=tensor(2, (3, 4, 5))),
    "matmul.compute_type": op("matmul", spec=operation("matmul").spec.__class__(compute_type="i8")),
    "matmul.operand_types": op("matmul", spec=operation("matmul").spec.__class__(compute_type="i32")),
    "matmul.c.extents": op("matmul", c=tensor(3, (2, 3, 6))),
    "reduction.operator.integer": lambda: reduction(ReductionOperator.AVG, "i32"),
    "reduction.rank": op("reduction", y=tensor(2, (1, 4))),
    "reduction.y.extents": op("reduction", y=tensor(2, (1, 3, 1, 1))),
    "reduction.compute_type": op("reduction", spec=reduction(compute_type="i8")),
    "reduction.operand_types": op("reduction", spec=reduction(compute_type="i32")),
    # data movement
    "concat.inputs.empty": op("concat", inputs_list=()),
    "concat.rank": op("concat", y=tensor(3, (2, 7, 1))),
    "concat.axis": op("concat", axis=2),
    "concat.inputs.extents": op("concat", inputs_list=(tensor(1, (2, 3)), tensor(2, (3, 4)))),
    "concat.data_type": op("concat", y=tensor(3, (2, 7), "f16")),
    "concat.y.extents": op("concat", y=tensor(3, (2, 8))),
    "reshape.elements": op("reshape", y=tensor(2, (3, 5))),
    "reshape.view.packed": op("reshape", x=tensor(1, (2, 6), strides=(8, 1)), mode=ReshapeMode.VIEW_ONLY),
    "reshape.data_type": op("reshape", y=tensor(2, (3, 4), "f16")),
    "transpose.rank": op("transpose", y=tensor(2, (4, 6))),
    "transpose.permutation": op("transpose", permutation=(0, 0, 1)),
    "transpose.y.extents": op("transpose", y=tensor(2, (2, 3, 4))),
    "transpose.data_type": op("transpose", y=tensor(2, (4, 2, 3), "f16")),
    "slice.rank": op("slice", y=tensor(2, (2, 3, 1))),
    "slice.starts.length": op("slice", starts=(0,)),
    "slice.limits.length": op("slice", limits=(3,)),
    "slice.slice_strides.length": op("slice", slice_strides=(1,)),
    "slice.range": op("slice", limits=(3, 7)),
    "slice.strides.positive": op("slice", slice_strides=(1, 0)),
    "slice.data_type": op("slice", y=tensor(2, (2, 3), "f16")),
    "slice.y.extents": op("slice", y=tensor(2, (2, 4))),
    # statistics and norms
    "genstats.rank": op("genstats", sum=tensor(2, (1, 4))),
    "genstats.channel_axis": op("genstats", x=tensor(1, (4,)), sum=tensor(2, (4,)), sqsum=tensor(3, (4,))),
    "genstats.math_type": op("genstats", math_type="i32"),
    "genstats.sum.extents": op("genstats", sum=small(2)),
    "genstats.sqsum.extents": op("genstats", sqsum=small(3)),
    "bn_finalize.channel_axis": op("bn_finalize", y_sum=tensor(1, (4,))),
    "bn_finalize.math_type": op("bn_finalize", math_type="f16"),
    "bn_finalize.y_sum.extents": op("bn_finalize", y_sum=tensor(1, (2, 4, 1, 1))),
    **{f"bn_finalize.{p}.extents": op("bn_finalize", **{p: small(80)}) for p in STATISTIC_PORTS},
    **{
        f"bn_finalize.{p}.scalar": op("bn_finalize", **{p: tensor(80, CHANNEL)})
        for p in ("accumulation_count", "epsilon", "momentum")
    },
    "bn_finalize.running.complete": op(
        "bn_finalize", mode=BnFinalizeStatsMode.INFERENCE, previous_running_mean=..., previous_running_var=...
    ),
    "bn_bwd_weights.rank": op("bn_bwd_weights", mean=tensor(3, (1, 4))),
    "bn_bwd_weights.channel_axis": op(
        "bn_bwd_weights", x=tensor(1, (4,)), dy=tensor(2, (4,)), **{p: tensor(80, (4,)) for p in WEIGHT_PORTS}
    ),
    "bn_bwd_weights.math_type": op("bn_bwd_weights", math_type="f16"),
    **{f"bn_bwd_weights.{p}.extents": op("bn_bwd_weights", **{p: small(80)}) for p in WEIGHT_PORTS},
    "bn_bwd_weights.dy.extents": op("bn_bwd_weights", dy=tensor(2, (2, 4, 6, 5))),
    "norm_fwd.mode": op("norm_fwd", mode=NormMode.GROUP_NORM),
    "norm_fwd.rank": op("norm_fwd", scale=tensor(5, (1, 4))),
    **{f"norm_fwd.{p}.extents": op("norm_fwd", **{p: small(80)}) for p in NORM_PORTS},
    "norm_fwd.math_type": op("norm_fwd", math_type="i32"),
    "norm_fwd.channel_axis": op("norm_fwd", **{p: tensor(80, (4,)) for p in operation("norm_fwd").tensors()}),
    "norm_bwd.math_type": op("norm_bwd", math_type="i32"),
    "norm_bwd.channel_axis": op("norm_bwd", **{p: tensor(80, (4,)) for p in operation("norm_bwd").tensors()}),
    "norm_fwd.epsilon": op("norm_fwd", epsilon=scalar(3, 4)),
    "norm_fwd.epsilon.missing": op("norm_fwd", epsilon=...),
    "norm_fwd.statistics.pair": op("norm_fwd", phase=NormPhase.INFERENCE, mean=..., **NO_RUNNING),
    "norm_bwd.statistics.pair": op("norm_bwd", mean=...),
    "norm_fwd.mean.rms": op("norm_fwd", mode=NormMode.RMS_NORM, scale=tensor(5, (1, 4, 6, 6)), bias=..., **NO_RUNNING),
    "norm_fwd.inference.statistics": op("norm_fwd", phase=NormPhase.INFERENCE, mean=..., **NO_RUNNING),
    "norm_fwd.running.misplaced": op("norm_fwd", phase=NormPhase.INFERENCE),
    "norm_fwd.running.incomplete": op("norm_fwd", momentum=...),
    "norm_bwd.mode": op("norm_bwd", mode=NormMode.GROUP_NORM),
    "norm_bwd.rank": op("norm_bwd", scale=tensor(5, (1, 4))),
    **{
        f"norm_bwd.{p}.extents": op("norm_bwd", **{p: small(80)})
        for p in ("dy", "dx", "scale", "dscale", "dbias", "mean", "inv_variance")
    },
    "norm_bwd.epsilon": op("norm_bwd", epsilon=scalar(30, 4)),
    "norm_bwd.mean.rms": op("norm_bwd", mode=NormMode.RMS_NORM),
    "norm_bwd.statistics": op("norm_bwd", mean=...),
    # pointwise
    "pointwise.math_type": lambda: pointwise(PointwiseMode.TANH_FWD, "i32"),
    "pointwise.parameter.whole": lambda: pointwise(PointwiseMode.RELU_FWD, "i32", relu_lower_clip_slope=0.5),
    "pointwise.nan_propagation": lambda: pointwise(nan_propagation=NanPropagation.NOT_PROPAGATE_NAN),
    "pointwise.parameter.unused": lambda: pointwise(elu_alpha=2.0),
    "pointwise.port.missing": op("pointwise", b=...),
    "pointwise.port.extra": op("pointwise", t=tensor(9, IMAGE)),
    "pointwise.alpha2.unused": op("pointwise", b=..., alpha2=2.0, spec=pointwise(PointwiseMode.RELU_FWD)),
    "pointwise.alpha1.unused": op("pointwise", b=..., alpha1=2.0, spec=pointwise(PointwiseMode.GEN_INDEX, axis=1)),
    "pointwise.alpha.whole": op(
        "pointwise", x=tensor(1, IMAGE, "i8"), b=tensor(2, CHANNEL, "i8"), spec=pointwise(math_type="i32"), alpha1=0.5
    ),
    "pointwise.rank": op("pointwise", b=tensor(2, (4, 1, 1))),
    "pointwise.broadcast": op("pointwise", b=small(2)),
    "pointwise.operand_types": op("pointwise", spec=pointwise(math_type="i32")),
    "pointwise.axis": op("pointwise", b=..., spec=pointwise(PointwiseMode.GEN_INDEX, axis=4)),
    "pointwise.y.extents": op("pointwise", y=tensor(3, CHANNEL)),
    # resample
    "resample.spatial_dims": lambda: pooling(spatial_dims=0),
    "resample.compute_type": lambda: pooling(compute_type="i8"),
    **{
        f"resample.{f}.length": (lambda f=f: pooling(**{f: (1,)}))
        for f in ("strides", "pre_paddings", "post_paddings", "window_dims")
    },
    **{
        f"resample.{f}.whole": (lambda f=f: pooling(**{f: (Fraction(3, 2), 1)}))
        for f in ("strides", "pre_paddings", "post_paddings", "window_dims")
    },
    "resample.strides.positive": lambda: pooling(strides=(0, 1)),
    "resample.window_dims.positive": lambda: pooling(window_dims=(0, 1)),
    "resample.pre_paddings.minimum": lambda: pooling(pre_paddings=(-1, 0)),
    "resample.post_paddings.minimum": lambda: pooling(post_paddings=(0, -1)),
    "resample.bilinear.window": lambda: pooling(
        mode=ResampleMode.BILINEAR, padding_mode=PaddingMode.EDGE_VAL_PAD, window_dims=(3, 3)
    ),
    "resample.padding_mode.average": lambda: pooling(mode=ResampleMode.AVGPOOL_EXCLUDE_PADDING),
    "resample_fwd.rank": op("resample_fwd", y=tensor(2, (2, 4, 9))),
    "resample_bwd.rank": op("resample_bwd", dx=tensor(2, (2, 4, 9))),
    "resample_fwd.spatial_rank": op(
        "resample_fwd",
        spec=pooling(
            spatial_dims=1, **dict.fromkeys(("strides", "pre_paddings", "post_paddings", "window_dims"), (1,))
        ),
    ),
    "resample_bwd.spatial_rank": op(
        "resample_bwd",
        spec=pooling(
            spatial_dims=1, **dict.fromkeys(("strides", "pre_paddings", "post_paddings", "window_dims"), (1,))
        ),
    ),
    "resample_fwd.window.fits": op("resample_fwd", spec=pooling(window_dims=(9, 2))),
    "resample_bwd.window.fits": op("resample_bwd", spec=pooling(window_dims=(9, 2))),
    "resample_fwd.y.extents": op("resample_fwd", y=tensor(2, (2, 4, 3, 4)), index=...),
    "resample_bwd.y.extents": op("resample_bwd", dy=tensor(1, (2, 4, 3, 4)), index=tensor(3, (2, 4, 3, 4), "i8")),
    "resample_fwd.index.mode": op(
        "resample_fwd", spec=pooling(mode=ResampleMode.AVGPOOL_EXCLUDE_PADDING, padding_mode=PaddingMode.ZERO_PAD)
    ),
    "resample_bwd.index.mode": op(
        "resample_bwd", spec=pooling(mode=ResampleMode.AVGPOOL_EXCLUDE_PADDING, padding_mode=PaddingMode.ZERO_PAD)
    ),
    "resample_fwd.index.extents": op("resample_fwd", index=tensor(3, (2, 4, 3, 4), "i8")),
    "resample_bwd.index.extents": op("resample_bwd", index=tensor(3, (2, 4, 3, 4), "i8")),
    "resample_fwd.index.type": op("resample_fwd", index=tensor(3, (2, 4, 3, 3), "f32")),
    "resample_bwd.index.type": op("resample_bwd", index=tensor(3, (2, 4, 3, 3), "f32")),
    "resample_bwd.maximum.source": op("resample_bwd", index=...),
    "resample_bwd.x.extents": op("resample_bwd", x=small(9)),
    "resample_bwd.forward_output.extents": op("resample_bwd", y=small(9)),
    "resample_fwd.operand_types": op("resample_fwd", spec=pooling(compute_type="i32")),
    "resample_bwd.operand_types": op("resample_bwd", spec=pooling(compute_type="i32")),
    # random numbers
    "rng.parameter.missing": lambda: bernoulli(probability=None),
    "rng.parameter.unused": lambda: bernoulli(mean=1.0),
    "rng.standard_deviation": lambda: bernoulli(
        distribution=RngDistribution.NORMAL, probability=None, mean=0.0, standard_deviation=-1.0
    ),
    "rng.range": lambda: bernoulli(distribution=RngDistribution.UNIFORM, probability=None, minimum=1.0, maximum=0.0),
    "rng.probability": lambda: bernoulli(probability=1.5),
    "rng.seed.scalar": op("rng", seed=tensor(5, (2, 1), "i64")),
    "rng.seed.integer": op("rng", seed=scalar(5, 2)),
    "rng.offset.scalar": op("rng", offset=tensor(5, (2, 1), "i64")),
    "rng.offset.integer": op("rng", offset=scalar(5, 2)),
    **{f"{tag.replace('conv_fprop', 'conv')}.output.overlap": _overlap(tag) for tag in MAIN_OUTPUT},
    # graphs
    "graph.empty": _graph(),
    "graph.operation.type": lambda: OperationGraph.of([image(1)]),
    "graph.uid.conflict": _graph(add(image(1), image(2), V), relu(tensor(50, IMAGE, "f16", is_virtual=True), image(3))),
    "graph.producer.duplicate": _graph(relu(image(1), image(3)), relu(image(1), image(3))),
    "graph.cycle": _graph(add(image(1), image(4), image(3)), relu(image(3), image(4))),
    "graph.virtual.dangling": _graph(relu(V, image(2))),
    "graph.virtual.unread": _graph(relu(image(1), V)),
    "graph.by_value.output": _graph(operation("reduction", x=tensor(1, (2, 3)), y=scalar(2, 2, is_by_value=True))),
    "graph.disconnected": _graph(relu(image(1), image(2)), relu(image(3), image(4))),
    "graph.beta": _graph(conv(V, beta=1.0), relu(V, image(2))),
    # fusion
    "fuse.consumer.kind": fused(conv(V), conv(image(2), x=V, uid=70)),
    "fuse.after_exit": fused(conv(V), operation("reduction", x=V, y=tensor(51, CHANNEL)), relu(V, image(5))),
    "fuse.output.port": fused(
        operation("resample_fwd"), relu(tensor(3, (2, 4, 3, 3), "i8"), tensor(41, (2, 4, 3, 3), "i8"))
    ),
    "fuse.epilogue.extents": fused(operation("reduction", x=image(1), y=SMALL_V), add(image(1), SMALL_V, image(3))),
    "fuse.exit.input": fused(
        conv(tensor(53, CHANNEL, is_virtual=True), x=tensor(60, CHANNEL)),
        operation(
            "bn_bwd_weights", mean=tensor(53, CHANNEL, is_virtual=True), x=tensor(1, CHANNEL), dy=tensor(2, CHANNEL)
        ),
    ),
    "fuse.cycle": fused(
        conv(V),
        operation("reshape", x=V, y=image(54, virtual=True)),
        add(V, image(54, virtual=True), image(3)),
    ),
    "fuse.prologue.port": fused(
        operation(
            "pointwise",
            x=tensor(1, (4, 4, 1, 1)),
            b=tensor(2, (4, 4, 1, 1)),
            y=tensor(55, (4, 4, 1, 1), is_virtual=True),
        ),
        conv(image(3), w=tensor(55, (4, 4, 1, 1), is_virtual=True)),
    ),
    "fuse.prologue.virtual": fused(relu(image(1), image(2)), conv(image(3), x=image(2))),
    "fuse.prologue.consumers": fused(relu(image(1), V), conv(image(3), x=V), conv(image(4), x=V, uid=70)),
    "fuse.prologue.outputs": fused(
        relu(image(1), image(58, virtual=True)),
        relu(image(58, virtual=True), V),
        relu(image(58, virtual=True), image(56)),
        conv(image(3), x=V),
    ),
    "fuse.operand.elsewhere": fused(
        conv(V),
        conv(image(57, virtual=True), uid=70),
        add(V, image(57, virtual=True), image(3)),
    ),
    "fuse.softmax.rows": fused(*softmax(total=(2, 4, 6, 1))),
    "fuse.softmax.virtual": fused(*softmax(powers=image(82))),
    "fuse.softmax.readers": fused(*softmax(), relu(image(82, virtual=True), image(3))),
    "fuse.softmax.length": fused(*softmax_gradient(57345)),
    "fuse.attention.virtual": fused(*attention(scores=tensor(80, (1, 4, 6)))),
    "fuse.attention.readers": fused(*attention(), relu(tensor(80, (1, 4, 6), is_virtual=True), tensor(11, (1, 4, 6)))),
    "fuse.attention.types": fused(*attention(kind="f32")),
    "fuse.attention.extents": fused(*attention(wide=True)),
    "fuse.attention.head": fused(*attention(depth=264)),
    "fuse.attention.layout": fused(*attention(depth=12)),
    "fuse.attention.order": fused(*attention(late=True)),
    "fuse.limits.forbid": fused(conv(V), relu(V, image(2)), forbid=[(50,)]),
    "fuse.limits.bound": fused(conv(V), relu(V, image(2)), bound=1),
    "fuse.limits.force": fused(
        conv(V), relu(V, image(51, virtual=True)), conv(image(2), x=image(51, virtual=True), uid=70), force=[(51, 2)]
    ),
    "limits.entry": fused(conv(V), relu(V, image(2)), bound=0),
    "limits.uid": fused(conv(V), relu(V, image(2)), forbid=[(99,)]),
    "limits.force": fused(conv(V), conv(image(2), x=V, uid=70), force=[(50, 2)]),
    # engines and heuristics
    "knob.unknown": knob((KnobType.SWIZZLE, 1)),
    "knob.value": knob((KnobType.STAGES, 3)),
    "knob.unavailable": unavailable_knob,
    "knob.twice": knob((KnobType.STAGES, 2), (KnobType.STAGES, 4)),
    "numpy_blocked.operation": declined("numpy_blocked", "matmul"),
    "filter.numerical_note": ranked(Filters(without_numerical_notes=frozenset({NumericalNote.STRICT_NAN_PROP}))),
    "filter.allowed_note": ranked(Filters(), _custom(numerical_notes=(NumericalNote.DOWN_CONVERT_INPUTS,))),
    "filter.note": lambda: Filters(without_numerical_notes=["TENSORCORE"]),
    "filter.behavior_note": ranked(
        Filters(without_behavior_notes=frozenset({BehaviorNote.RUNTIME_COMPILATION})),
        _custom(behavior_notes=(BehaviorNote.RUNTIME_COMPILATION,)),
    ),
    "filter.deterministic": ranked(
        Filters(deterministic=True), _custom(numerical_notes=(NumericalNote.NONDETERMINISTIC,))
    ),
    "filter.workspace": ranked(Filters(workspace_limit=100), _custom(workspace=lambda task, knobs: 101)),
    "heuristics.mode": ranked(Filters(), mode=HeurMode.COUNT),
    "device.unknown": lambda: device_spec("gtx480"),
    "device.entry": device_case(sm_count=0),
    # bindings and workspace
    "binding.missing": plan_case(_2=...),
    "binding.extra": plan_case(_9=np.zeros(1)),
    "binding.kind": plan_case(_1="text"),
    "binding.device": plan_case(_1=OnTheGpu()),
    "binding.data_type": plan_case(_1=np.zeros(IMAGE, np.float64)),
    "binding.shape": plan_case(_1=np.zeros((2, 4, 6, 5), np.float32)),
    "binding.strides": plan_case(
        _1=np.zeros(IMAGE[::-1], np.float32).transpose()[:, :, :, :].reshape(IMAGE, order="F")
    ),
    "binding.scalar": lambda: build(OperationGraph.of([operation("rng")])).execute(
        {1: np.zeros((4, 6), np.float32), 2: np.zeros(3)}
    ),
    "binding.scalar.value": lambda: build(OperationGraph.of([operation("rng")])).execute(
        {1: np.zeros((4, 6), np.float32), 2: 2**70}
    ),
    "ledger.unknown": lambda: build(OperationGraph.of([operation("rng")]), "cpu").refusals(kind="edges"),
    "binding.names": lambda: build(OperationGraph.of([operation("pointwise")]), "cpu").execute({"x": np.ones(3)}),
    "binding.mapping": lambda: build(OperationGraph.of([operation("pointwise")]), "cpu").execute([np.ones(3)]),
    "binding.read_only": plan_case(_3=READ_ONLY),
    "binding.alignment": plan_case(_1=MISALIGNED),
    "binding.overlap": lambda: (lambda a: plan_case(_1=a, _3=a)())(np.zeros(IMAGE, np.float32)),
    "plan.bind.input": lambda: build(OperationGraph.of([operation("pointwise")]), "cpu").bind({999: np.ones(3)}),
    "workspace.missing": workspace_case(None),
    "workspace.kind": workspace_case([1, 2, 3]),
    "workspace.small": workspace_case(np.zeros(3, np.uint8)),
    "workspace.overlap": workspace_case(...),
    # files
    "file.unreadable": lambda: files.graph_from_json(graph_to_json(GRAPH)[:-9]),
    "file.text": lambda: files.plan_from_json({}),
    "file.too_large": lambda: files.graph_from_json(" " * (files.LARGEST_FILE + 1)),
    "file.too_deep": lambda: files.graph_from_json("[" * 100 + "]" * 100),
    "file.format": lambda: files.plan_from_json(graph_to_json(GRAPH)),
    "file.version": graph_file(version=2),
    "file.hash": altered_plan,
    "file.content": graph_file(operations=[{"operation": "sort"}]),
}

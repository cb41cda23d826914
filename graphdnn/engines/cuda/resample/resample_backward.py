"""Engine ``cuda_resample_backward``: gradients of pooling and interpolation.

Every element of dx adds the contributions of the outputs that read it, in a fixed order and without atomics. For a
maximum without an index, the forward kernel computes the index from x again and stores it in scratch memory.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from graphdnn.checks import AtMost
from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.codegen.cost import memory_cost
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.codegen.vectors import width_for
from graphdnn.engines.cuda.resample.global_average import global_average_backward
from graphdnn.engines.cuda.resample.pool import has_windows
from graphdnn.engines.cuda.resample.pool_backward import generate_pool_backward, is_supported, pool_backward_of
from graphdnn.engines.cuda.resample.pool_disjoint import are_disjoint, disjoint_windows, generate_pool_disjoint_backward
from graphdnn.engines.cuda.resample.resample_axes import (
    add_counts,
    add_geometry,
    coordinates_need,
    direction_need,
    geometry_constants,
    is_channels_last,
    resample_space,
)
from graphdnn.engines.cuda.resample.resample_forward import BLOCKS_PER_SM, THREADS, generate_forward, read
from graphdnn.engines.engine import Cost, Knobs, Task, need, needs_rule
from graphdnn.enums import DataType, PaddingMode, ResampleMode
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import Operation, ResampleBackward, ResampleForward
from graphdnn.spec import INT64_MAX
from graphdnn.tensors import TensorSpec, ordered_strides, stride_order

_PLACES = (DataType.UINT8, DataType.INT32, DataType.INT64)  # types of a position inside a window


def generate_backward(op: FusedOp, device: DeviceSpec) -> DeviceKernel:
    anchor = op.anchor
    assert isinstance(anchor, ResampleBackward)
    planes = global_average_backward(op, device)
    if planes is not None:
        return planes
    mirrored = _mirrored(anchor)
    if mirrored is not None:
        return generate_forward(replace(op, anchor=mirrored), device, divides_first=True)
    steps = LaunchSequence(op, device)
    pool = pool_backward_of(op, steps.epilogue_tensors(), device)
    if pool is not None:
        return generate_pool_backward(op, steps, pool)
    source = [anchor.x] if anchor.spec.mode is ResampleMode.MAXPOOL and anchor.x is not None else []
    apart = disjoint_windows(anchor, [*source, *steps.epilogue_tensors()], read(op, anchor.dy))
    if apart is not None:
        return generate_pool_disjoint_backward(op, steps, apart)
    index = None
    if anchor.spec.mode is ResampleMode.MAXPOOL:
        index = anchor.index if anchor.index is not None else _found_again(steps, op, anchor, device)
    parameters = Parameters(steps.workspace_offsets)
    compute = COMPUTE_TYPE[anchor.compute_type]
    channels_last = is_channels_last(anchor.dx)
    x_space, y_space = resample_space(anchor.dx, channels_last), resample_space(anchor.dy, channels_last)

    width = width_for(x_space, steps.epilogue_tensors())
    input_width = 1
    if channels_last:
        inputs = [*read(op, anchor.dy), *([] if index is None else [index])]
        input_width = width = min(width, width_for(y_space, inputs))
    prologue = Program(op, parameters, y_space, "y", width=input_width)
    prologue.apply(op.prologue)
    prologue.copy_widened_to("value", anchor.dy, compute)
    functions = [prologue.function("prologue", f"{compute} (&value)[{input_width}]")]
    place = "int"
    if index is not None:
        place = "long long" if index.data_type is DataType.INT64 else "int"
        places = Program(op, parameters, y_space, "i", width=input_width)
        places.copy_widened_to("place", index, place)
        functions.append(places.function("places", f"{place} (&place)[{input_width}]"))
    body = Program(op, parameters, x_space, "x", width=width)
    steps.write_epilogue(body, "acc", compute)
    functions.append(body.function("epilogue", f"const {compute} (&acc)[{width}]"))

    count = add_counts(parameters, x_space, width)
    add_geometry(parameters, anchor)
    name = f"resample_{anchor.spec.mode.name.lower()}_bwd__gather_v{width}__{op.name}"
    text = kernel_text(
        name,
        ["resample_backward.cu"],
        parameters=parameters.text,
        functions=functions,
        constants={
            **geometry_constants(anchor.spec, channels_last),
            "THREADS": THREADS,
            "VEC_WIDTH": width,
            "LOAD_VEC_WIDTH": input_width,
            "Compute": compute,
            "Place": place,
            "Count": "unsigned int" if count < 2**31 else "unsigned long long",
        },
    )
    blocks = min(-(-count // THREADS), BLOCKS_PER_SM * device.sm_count)
    steps.add_early(Launch(text, "resample_backward", (blocks, 1, 1), THREADS, parameters.pack()))
    return steps.kernel(name)


def _mirrored(anchor: ResampleBackward) -> ResampleForward | None:
    """The gradient of an average with stride 1 as an average of dy with mirrored windows.

    Only if all windows have the same divisor, and the forward kernel shares rows.
    """
    spec, x, y = anchor.spec, anchor.dy.extents, anchor.dx.extents
    if spec.mode is not ResampleMode.AVGPOOL_INCLUDE_PADDING or spec.padding_mode is not PaddingMode.ZERO_PAD:
        return None
    if any(stride != 1 for stride in spec.strides):
        return None
    before = tuple(w - 1 - pre for w, pre in zip(spec.window_dims, spec.pre_paddings, strict=True))
    sizes = zip(y[2:], x[2:], before, spec.window_dims, strict=True)
    after = tuple(to - 1 - of - pre + w for to, of, pre, w in sizes)
    if min((*before, *after)) < 0:
        return None
    turned = spec.model_copy(update={"pre_paddings": before, "post_paddings": after})
    forward = ResampleForward(spec=turned, x=anchor.dy, y=anchor.dx, alpha=anchor.alpha, beta=anchor.beta)
    return forward if has_windows(turned, x, y) else None


def _found_again(steps: LaunchSequence, op: FusedOp, anchor: ResampleBackward, device: DeviceSpec) -> TensorSpec:
    """The index of the maxima of x in scratch memory, in the layout of dy."""
    assert anchor.x is not None
    free = min(t.uid for t in (*op.inputs, *op.outputs, *op.internal)) - 1
    dy = anchor.dy
    plain = {"vector_count": 1, "vectorized_dimension": -1, "is_virtual": False, "byte_alignment": 16}
    last = prod(map(int, anchor.spec.window_dims)) - 1
    kind = next(kind for kind in _PLACES if ELEMENTS[kind].largest >= last)
    layout = {"dims": dy.extents, "strides": _packed_like(dy), **plain}
    index = dy.model_copy(update={**layout, "uid": free, "data_type": kind})
    y = dy.model_copy(update={**layout, "uid": free - 1, "data_type": anchor.x.data_type, "is_virtual": True})
    forward = ResampleForward(spec=anchor.spec, x=anchor.x, y=y, index=index)
    steps.workspace_offsets[index.uid] = steps.allocate(index.bytes)
    alone = FusedOp(op.index, "resample", forward, (), (), None, (anchor.x,), (index,), (y,))
    steps.include(generate_forward(alone, device), alone)
    return index


def _recomputes_maxima(op: Operation) -> bool:
    return isinstance(op, ResampleBackward) and op.spec.mode is ResampleMode.MAXPOOL and op.index is None


def _last_place(task: Task) -> int:
    assert isinstance(task.op.main, ResampleBackward)
    return prod(map(int, task.op.main.spec.window_dims)) - 1


def _packed_like(spec: TensorSpec) -> tuple[int, ...]:
    """Strides without gaps in the memory order of a tensor."""
    return ordered_strides(spec.extents, stride_order(spec.dims, spec.strides))


def _cost(task: Task, knobs: Knobs) -> Cost:
    anchor = task.op.anchor
    if not isinstance(anchor, ResampleBackward) or anchor.spec.mode is not ResampleMode.MAXPOOL or anchor.index:
        return memory_cost(task)
    if is_supported(anchor) or are_disjoint(anchor):
        return memory_cost(task)
    return memory_cost(task, 2.0 * prod(anchor.dy.extents), launches=2)


ENGINE = cuda_engine(
    id=39,
    name="cuda_resample_backward",
    summary="gradients of pooling and interpolation as sums in a fixed order",
    needs=(
        needs_rule("cuda_resample_backward.operation", "resample"),
        direction_need("cuda_resample_backward.direction", ResampleBackward),
        coordinates_need("cuda_resample_backward.coordinates"),
        need(
            "cuda_resample_backward.places",
            "window_dims",
            _last_place,
            AtMost(INT64_MAX),
            reason="maxima are found again as positions inside their windows, which are 64-bit numbers",
            fix="use smaller windows",
            when=lambda task: _recomputes_maxima(task.op.main),
        ),
    ),
    cost=_cost,
    generate=lambda op, device, knobs: generate_backward(op, device),
    is_general=True,
)

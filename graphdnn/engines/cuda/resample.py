"""Engine ``cuda_resample_forward``: pooling and interpolation, any mode, type, layout, window and stride.

A thread computes neighbours along the axis that is contiguous in y. Along channels they read the same
windows, so that x is read in vectors too; along a spatial axis each has its own window.
"""

from __future__ import annotations

from math import prod

from graphdnn.device import DeviceSpec
from graphdnn.engines.cuda.cost import memory_cost
from graphdnn.engines.cuda.engine import cuda_engine
from graphdnn.engines.cuda.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.parameters import COMPUTE_TYPE, Parameters
from graphdnn.engines.cuda.program import Program, width_for
from graphdnn.engines.cuda.resample_axes import (
    add_geometry,
    coordinates_need,
    direction_need,
    geometry_constants,
    is_channels_last,
    resample_space,
)
from graphdnn.engines.cuda.source import kernel_text
from graphdnn.engines.cuda.steps import Steps, fused_inputs
from graphdnn.engines.engine import needs_rule
from graphdnn.enums import NanPropagation, ResampleMode
from graphdnn.fusion.fused import FusedOp
from graphdnn.operations import ResampleForward
from graphdnn.tensors import TensorSpec

THREADS = 256
BLOCKS_PER_SM = 32  # beyond this many, a block takes several turns


def generate_forward(op: FusedOp, device: DeviceSpec) -> DeviceKernel:
    anchor = op.anchor
    assert isinstance(anchor, ResampleForward)
    steps = Steps(op, device)
    parameters = Parameters(steps.places)
    compute = COMPUTE_TYPE[anchor.compute_type]
    channels_last = is_channels_last(anchor.y)
    x_space, y_space = resample_space(anchor.x, channels_last), resample_space(anchor.y, channels_last)

    width = width_for(y_space, steps.epilogue_tensors())
    input_width = 1
    if channels_last:
        input_width = width = min(width, width_for(x_space, read(op, anchor.x)))
    prologue = Program(op, parameters, x_space, "x", width=input_width)
    prologue.apply(op.prologue)
    prologue.result("value", anchor.x, compute)
    body = Program(op, parameters, y_space, "y", width=width)
    if anchor.index is not None:
        body.set(anchor.index, "place[e]")
    if _is_wanted(op, anchor.y):
        steps.finish(body, "acc", compute)
    else:
        body.store_outputs((anchor,))

    count = prod(y_space.sizes) // width
    parameters.integer("count", count)
    parameters.integers("size", y_space.sizes)
    add_geometry(parameters, anchor)
    is_maximum = anchor.spec.mode is ResampleMode.MAXPOOL
    name = f"resample_{anchor.spec.mode.name.lower()}__taps_v{width}__{op.name}"
    text = kernel_text(
        name,
        ["resample_axis.cuh", f"resample_{'maximum' if is_maximum else 'linear'}.cuh", "resample_forward.cu"],
        parameters=parameters.text,
        functions=[
            prologue.function("prologue", f"{compute} (&value)[{input_width}]"),
            body.function("epilogue", f"const {compute} (&acc)[{width}], const int (&place)[{width}]"),
        ],
        constants={
            **geometry_constants(anchor.spec, channels_last),
            "THREADS": THREADS,
            "WIDTH": width,
            "INPUT_WIDTH": input_width,
            **({"PROPAGATE": anchor.spec.nan_propagation is NanPropagation.PROPAGATE_NAN} if is_maximum else {}),
            "Compute": compute,
            "Count": "unsigned int" if count < 2**31 else "unsigned long long",
        },
    )
    blocks = min(-(-count // THREADS), BLOCKS_PER_SM * device.sm_count)
    steps.add(Launch(text, "resample_forward", (blocks, 1, 1), THREADS, parameters.pack()))
    return steps.kernel(name)


def _is_wanted(op: FusedOp, y: TensorSpec) -> bool:
    """False where only the index is asked for."""
    after = (*op.epilogue, *(() if op.exit is None else (op.exit,)))
    return any(t.uid == y.uid for t in (*op.outputs, *(t for step in after for t in step.inputs().values())))


def read(op: FusedOp, entering: TensorSpec) -> list[TensorSpec]:
    """What the prologue reads from memory; without one, the operand itself."""
    return fused_inputs(op.prologue) if op.prologue else [entering]


ENGINE = cuda_engine(
    id=33,
    name="cuda_resample_forward",
    summary="pooling and interpolation, any mode and layout",
    needs=(
        needs_rule("cuda_resample_forward.operation", "resample"),
        direction_need("cuda_resample_forward.direction", ResampleForward),
        coordinates_need("cuda_resample_forward.coordinates"),
    ),
    cost=lambda task, knobs: memory_cost(task),
    generate=lambda op, device, knobs: generate_forward(op, device),
)

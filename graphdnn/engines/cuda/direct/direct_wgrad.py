"""Engine ``cuda_direct_wgrad``: the filter gradient with few channels per group, channels last, deterministic.

Rows pass through rings in shared memory (row_ring_wgrad.py). Large filters use tensor cores (sliding_mma_wgrad.py).
Small depthwise filters use threads without shared memory (depthwise_wgrad_rows.py).
"""

from __future__ import annotations

from graphdnn.checks import AtMost
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.cost import device_cost
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.launch import DeviceKernel
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.conv_geometry.convolution_requirements import is_plane, problem_of
from graphdnn.engines.cuda.conv_geometry.convolution_roles import Roles
from graphdnn.engines.cuda.direct.depthwise import depthwise_wgrad_rows
from graphdnn.engines.cuda.direct.depthwise.depthwise_wgrad_rows import Rows
from graphdnn.engines.cuda.direct.direct import DEFAULTS, KNOBS, wishes
from graphdnn.engines.cuda.direct.direct_access import element_bytes, piece_bytes, undilated
from graphdnn.engines.cuda.direct.direct_requirements import direct_needs, shared_memory_need
from graphdnn.engines.cuda.direct.direct_shape import Shape
from graphdnn.engines.cuda.direct.row_ring import row_ring_wgrad
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile import STAGES, Choice
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile_choice import choose
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile_model import DeviceOf
from graphdnn.engines.cuda.direct.sliding_mma import sliding_mma_wgrad
from graphdnn.engines.cuda.direct.sliding_mma.sliding_mma_wgrad import Walk
from graphdnn.engines.engine import Cost, Knob, Knobs, Task, need
from graphdnn.enums import DataType, KnobType, LayoutType, NumericalNote
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvBackwardFilter

_SUMS = 160  # of a thread
_SHORT = 3
_KERNEL = Knob(
    KnobType.KERNEL_CFG,
    0,
    _SHORT,
    1,
    0,
    "1: multiply-adds; 2: tensor cores, where they serve; 3: multiply-adds without shared memory; 0: chosen",
)


def _shape(op: FusedOp) -> Shape:
    anchor = op.anchor
    assert isinstance(anchor, ConvBackwardFilter)
    x, w, y = anchor.roles
    roles = Roles.of(anchor)
    return Shape(
        undilated(anchor.problem), False, True, element_bytes(x), element_bytes(y), element_bytes(w), w.bytes,
        piece_bytes(roles, x), piece_bytes(roles, y),
    )  # fmt: skip


def _choice(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> Choice:
    is_integer = op.main.compute_type is DataType.INT32
    rate = device.rate(DataType.INT32 if is_integer else DataType.FLOAT)
    return choose(_shape(op), DeviceOf.of(device, rate), wishes(knobs))


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    shape, steps = _shape(op), LaunchSequence(op, device)
    rows = _rows(op, device, knobs)
    if rows is not None:
        return depthwise_wgrad_rows.generate(op, shape, steps, rows)
    walk = _divided(op, device, knobs)
    if walk is not None:
        return sliding_mma_wgrad.generate(op, shape, device, steps, walk)
    return row_ring_wgrad.generate(op, shape, device, steps, _choice(op, device, knobs).tile)


def _rows(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> Rows | None:
    """How threads without shared memory divide the work; None where others do it."""
    shape, kernel, asked = _shape(op), knobs[_KERNEL.type], wishes(knobs)
    chosen = kernel == 0 and not asked.asks and asked.stages == STAGES and depthwise_wgrad_rows.is_faster(shape)
    if not depthwise_wgrad_rows.serves(op, shape) or not (kernel == _SHORT or chosen):
        return None
    return depthwise_wgrad_rows.choose(shape, device, asked)


def _divided(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> Walk | None:
    """How tensor cores divide the work; None where multiply-adds do it."""
    shape, kernel = _shape(op), knobs[_KERNEL.type]
    if kernel in (1, _SHORT) or not sliding_mma_wgrad.serves(op, shape):
        return None
    return (
        sliding_mma_wgrad.choose(shape, device, wishes(knobs)) if kernel or sliding_mma_wgrad.is_faster(shape) else None
    )


def _cost(task: Task, knobs: Knobs) -> Cost:
    rows = _rows(task.op, task.device, knobs)
    if rows is not None:
        return device_cost(task, depthwise_wgrad_rows.seconds(_shape(task.op), rows, task.device))
    walk = _divided(task.op, task.device, knobs)
    if walk is not None:
        return device_cost(task, sliding_mma_wgrad.seconds(_shape(task.op), walk, task.device), launches=2)
    return device_cost(task, _choice(task.op, task.device, knobs).seconds, launches=2)


def _sums(task: Task) -> int:
    return problem_of(task).taps * problem_of(task).c


ENGINE = cuda_engine(
    id=12,
    name="cuda_direct_wgrad",
    summary="filter gradient with few channels per group (depthwise too), channels last; repeats to the bit",
    needs=(
        *direct_needs("cuda_direct_wgrad", filter_gradient=True),
        need(
            "cuda_direct_wgrad.sums",
            "w.dims",
            _sums,
            AtMost(_SUMS),
            reason="a thread keeps the sums of all taps and channels of a filter in registers",
            fix="nothing to do: another engine serves larger filters",
            when=lambda task: isinstance(task.op.anchor, ConvBackwardFilter) and is_plane(task),
        ),
        shared_memory_need(
            "cuda_direct_wgrad", lambda task: _choice(task.op, task.device, DEFAULTS), filter_gradient=True
        ),
    ),
    cost=_cost,
    generate=generate,
    layout=LayoutType.PREFERRED_NHWC,
    knobs=(*KNOBS, _KERNEL),
    numerical_notes=(NumericalNote.TENSOR_CORE,),
)

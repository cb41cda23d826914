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
from graphdnn.engines.cuda.direct.direct import DEFAULTS, KNOBS, effective_knobs, wishes
from graphdnn.engines.cuda.direct.direct_access import element_bytes, piece_bytes, undilated
from graphdnn.engines.cuda.direct.direct_requirements import direct_needs, shared_memory_need
from graphdnn.engines.cuda.direct.direct_shape import Shape
from graphdnn.engines.cuda.direct.measured_tiles import HALF
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

Division = Rows | Walk | Choice  # how a kernel divides the work
_SUMS = 160  # of a thread
_MULTIPLY_ADDS, _TENSOR_CORES, _SHORT = 1, 2, 3
_KERNEL = Knob(
    KnobType.KERNEL_CFG,
    0,
    _SHORT,
    1,
    0,
    "1: multiply-adds; 2: tensor cores, where they serve; 3: multiply-adds without shared memory; 0: chosen",
)


def shape_of(op: FusedOp) -> Shape:
    """The filter gradient without its addresses."""
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
    return choose(shape_of(op), DeviceOf.of(device, rate), wishes(knobs))


def _divisions(op: FusedOp, shape: Shape, device: DeviceSpec, knobs: Knobs) -> tuple[Division, ...]:
    """How each kernel that serves the operation, and that the knobs allow, divides the work."""
    kernel, asked = knobs[_KERNEL.type], wishes(knobs)
    has_defaults = not asked.asks and asked.stages == STAGES
    # The model of the kernel in registers was compared with 16-bit images only: conversions of others are not in it.
    is_modelled = has_defaults and shape.in_bytes == shape.out_bytes == HALF
    found: list[Division | None] = []
    if (kernel == _SHORT or (kernel == 0 and is_modelled)) and depthwise_wgrad_rows.serves(op, shape):
        found.append(depthwise_wgrad_rows.choose(shape, device, asked))
    if kernel in (0, _TENSOR_CORES) and sliding_mma_wgrad.serves(op, shape):
        found.append(sliding_mma_wgrad.choose(shape, device, asked))
    if kernel in (0, _MULTIPLY_ADDS) or not any(found):
        found.append(_choice(op, device, knobs))
    return tuple(one for one in found if one is not None)


def _division(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> Division:
    """The kernel with the least predicted time among the kernels that the knobs allow."""
    shape, task = shape_of(op), Task(op, device)
    divisions = _divisions(op, shape, device, knobs)
    if len(divisions) == 1:
        return divisions[0]
    return min(divisions, key=lambda one: _cost_of(task, shape, one).seconds)


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    shape, steps = shape_of(op), LaunchSequence(op, device)
    match _division(op, device, knobs):
        case Rows() as rows:
            return depthwise_wgrad_rows.generate(op, shape, steps, rows)
        case Walk() as walk:
            return sliding_mma_wgrad.generate(op, shape, device, steps, walk)
        case Choice() as choice:
            return row_ring_wgrad.generate(op, shape, device, steps, choice.tile)


def _cost_of(task: Task, shape: Shape, division: Division) -> Cost:
    match division:
        case Rows():
            return device_cost(task, depthwise_wgrad_rows.seconds(shape, division, task.device))
        case Walk():
            return device_cost(task, sliding_mma_wgrad.seconds(shape, division, task.device), launches=2)
        case Choice():
            return device_cost(task, division.seconds, launches=2)


def _cost(task: Task, knobs: Knobs) -> Cost:
    return _cost_of(task, shape_of(task.op), _division(task.op, task.device, knobs))


def _sums(task: Task) -> int:
    return problem_of(task).taps * problem_of(task).c


def _effective(task: Task, knobs: Knobs) -> Knobs:
    """The knob values of the kernel that is launched."""
    match _division(task.op, task.device, knobs):
        case Rows() as rows:
            values = rows.v, rows.tw, rows.rows, rows.lanes, rows.threads, rows.ahead + 1, rows.blocks
            kernel = _SHORT
        case Walk() as walk:
            values = walk.lines, 0, walk.rows, walk.warps, walk.threads, walk.stages, walk.blocks
            kernel = _TENSOR_CORES
        case Choice() as choice:
            return {**effective_knobs(choice.tile), _KERNEL.type: _MULTIPLY_ADDS}
    return {**{knob.type: value for knob, value in zip(KNOBS, values, strict=True)}, _KERNEL.type: kernel}


def _notes(task: Task, knobs: Knobs) -> tuple[NumericalNote, ...]:
    """Tensor cores serve 16-bit images only, and are one of several kernels."""
    is_on_tensor_cores = _effective(task, knobs)[_KERNEL.type] == _TENSOR_CORES
    return (NumericalNote.TENSOR_CORE,) if is_on_tensor_cores else ()


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
    effective=_effective,
    numerical_notes=(NumericalNote.TENSOR_CORE,),
    notes_of=_notes,
)

"""Engine ``cuda_direct``: fprop and dgrad with few channels per group (depthwise, small groups), channels last.

Such convolutions do a few operations for each byte, so the kernels read each byte once. The general kernel passes rows
through a ring in shared memory and keeps accumulators in registers while a CTA slides down the image (row_ring.py).
Small depthwise filters use short CTAs (depthwise_rows.py), 5 x 5 filters use strips in registers
(depthwise_strips.py), and larger filters use tensor cores (sliding_mma.py).
"""

from __future__ import annotations

from types import MappingProxyType

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.cost import device_cost, other_seconds
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.launch import DeviceKernel
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.direct.depthwise import depthwise_registers, depthwise_rows, depthwise_strips
from graphdnn.engines.cuda.direct.depthwise.depthwise_rows import Rows
from graphdnn.engines.cuda.direct.depthwise.depthwise_strips import Strips
from graphdnn.engines.cuda.direct.direct_operands import Sides
from graphdnn.engines.cuda.direct.direct_requirements import direct_needs, shared_memory_need
from graphdnn.engines.cuda.direct.measured_tiles import HALF, is_measured
from graphdnn.engines.cuda.direct.row_ring import row_ring
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile import STAGES, Choice, Wishes
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile_choice import choose
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile_model import DeviceOf
from graphdnn.engines.cuda.direct.sliding_mma import sliding_mma
from graphdnn.engines.cuda.direct.sliding_mma.sliding_mma import Walk
from graphdnn.engines.engine import Cost, Knob, Knobs, Task
from graphdnn.enums import DataType, KnobType, LayoutType, NumericalNote
from graphdnn.fusion.fused_graph import FusedOp

# What a division's numbers are on tensor cores is said by ``choose`` of direct_walk and direct_wgrad_walk.
_CHANNELS = Knob(KnobType.LOAD_SIZE, 0, 8, 1, 0, "channels of a thread, or on tensor cores rows at a time; 0: chosen")
_COLUMNS = Knob(KnobType.TILE_COLS, 0, 16, 1, 0, "columns of a thread, or pairs of channels of a warp; 0: chosen")
_ROWS = Knob(KnobType.TILE_ROWS, 0, 1024, 1, 0, "rows that a block walks down; 0: chosen by the shape")
_LANES = Knob(KnobType.NUM_C_PER_BLOCK, 0, 256, 1, 0, "threads, or warps, of a block along the channels; 0: chosen")
_THREADS = Knob(KnobType.BLOCK_SIZE, 0, 512, 32, 0, "threads of a block at most; 0: chosen by the shape")
_STAGES = Knob(KnobType.STAGES, 2, 8, 1, STAGES, "steps in the ring in shared memory")
_OCCUPANCY = Knob(KnobType.OCCUPANCY, 0, 8, 1, 0, "blocks per multiprocessor that registers are limited for; 0: chosen")
KNOBS = (_CHANNELS, _COLUMNS, _ROWS, _LANES, _THREADS, _STAGES, _OCCUPANCY)

_SHORT, _STRIPS = 3, 4
_KERNEL = Knob(
    KnobType.KERNEL_CFG,
    0,
    _STRIPS,
    1,
    0,
    "1: multiply-adds; 2: tensor cores, where they serve; 3: short blocks; 4: strips; 0: chosen",
)

Division = Rows | Strips | Walk | Choice  # how a kernel divides the work
DEFAULTS: Knobs = MappingProxyType({knob.type: knob.default for knob in (*KNOBS, _KERNEL)})


def wishes(knobs: Knobs) -> Wishes:
    v, tw, rows, lanes, threads, stages, blocks = (knobs[knob.type] for knob in KNOBS)
    return Wishes(v, tw, rows, lanes, threads, stages, blocks)


def _choice(sides: Sides, device: DeviceSpec, knobs: Knobs) -> Choice:
    """The tile of multiply-adds."""
    is_integer = sides.roles.op.compute_type is DataType.INT32
    rate = device.rate(DataType.INT32 if is_integer else DataType.FLOAT)
    return choose(sides.shape, DeviceOf.of(device, rate), wishes(knobs))


def _divided(op: FusedOp, sides: Sides, device: DeviceSpec, knobs: Knobs) -> Walk | None:
    """How tensor cores divide the work; None where multiply-adds do it."""
    kernel = knobs[_KERNEL.type]
    if kernel == 1 or not sliding_mma.serves(op, sides):
        return None
    if not kernel and not _beats_multiply_adds(sides, device):
        return None
    return sliding_mma.choose(sides.shape, device, wishes(knobs))


def _beats_multiply_adds(sides: Sides, device: DeviceSpec) -> bool:
    """As measured for the class, and where nobody measured it as predicted."""
    if is_measured(sides.shape):
        return sliding_mma.is_faster(sides.shape)
    walk = sliding_mma.choose(sides.shape, device, wishes(DEFAULTS))
    if walk is None:
        return False
    return sliding_mma.seconds(sides.shape, walk, device) < _choice(sides, device, DEFAULTS).seconds


def _short(sides: Sides, device: DeviceSpec, knobs: Knobs) -> Rows | None:
    """How short blocks divide the work; None where blocks that walk do it."""
    kernel, asked = knobs[_KERNEL.type], wishes(knobs)
    chosen = kernel == 0 and not asked.asks and asked.stages == STAGES and depthwise_rows.is_faster(sides.shape)
    if not depthwise_registers.serves(sides) or not (kernel == _SHORT or chosen):
        return None
    return depthwise_rows.choose(sides.shape, device, asked)


def _strips(sides: Sides, device: DeviceSpec, knobs: Knobs) -> Strips | None:
    """How threads that walk down strips divide the work; None where others do it."""
    kernel, asked = knobs[_KERNEL.type], wishes(knobs)
    if kernel not in (0, _STRIPS) or not depthwise_registers.serves(sides):
        return None
    tile = depthwise_strips.choose(sides.shape, device, asked)
    if kernel == _STRIPS:
        return tile
    free = not asked.asks and asked.stages == STAGES
    is_faster = free and depthwise_strips.is_faster(sides.shape, device, tile, _choice(sides, device, knobs).seconds)
    return tile if is_faster else None


def _divisions(op: FusedOp, sides: Sides, device: DeviceSpec, knobs: Knobs) -> tuple[Division, ...]:
    """What each kernel that serves the operation would do; knobs have their defaults."""
    # The models of kernels in registers were compared with 16-bit images only: conversions of others are not in them.
    registers = sides.shape.in_bytes == HALF and depthwise_registers.serves(sides)
    walk = sliding_mma.choose(sides.shape, device, wishes(knobs)) if sliding_mma.serves(op, sides) else None
    found = (
        depthwise_rows.choose(sides.shape, device, wishes(knobs)) if registers else None,
        depthwise_strips.choose(sides.shape, device, wishes(knobs)) if registers else None,
        walk,
        _choice(sides, device, knobs),
    )
    return tuple(one for one in found if one is not None)


def _division(op: FusedOp, sides: Sides, device: DeviceSpec, knobs: Knobs) -> Division:
    """The kernel that knobs ask for, or that was measured to be the fastest, or that is predicted to be it."""
    asked = wishes(knobs)
    is_free = not (knobs[_KERNEL.type] or asked.asks) and asked.stages == STAGES
    if is_free and not is_measured(sides.shape):
        task = Task(op, device)
        divisions = _divisions(op, sides, device, knobs)
        return min(divisions, key=lambda one: _cost_of(task, sides, one).seconds)
    rows = _short(sides, device, knobs)
    if rows is not None:
        return rows
    strips = _strips(sides, device, knobs)
    if strips is not None:
        return strips
    return _divided(op, sides, device, knobs) or _choice(sides, device, knobs)


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    sides, steps = Sides.of(op), LaunchSequence(op, device)
    match _division(op, sides, device, knobs):
        case Rows() as rows:
            return depthwise_rows.generate(op, sides, steps, rows)
        case Strips() as strips:
            return depthwise_strips.generate(op, sides, steps, strips)
        case Walk() as walk:
            return sliding_mma.generate(op, sides, steps, walk)
        case Choice() as choice:
            return row_ring.generate(op, sides, steps, choice.tile)


def _cost_of(task: Task, sides: Sides, division: Division) -> Cost:
    shape, device = sides.shape, task.device
    match division:
        case Rows():
            seconds = depthwise_rows.seconds(shape, division, device) + other_seconds(task)
            return device_cost(task, seconds, launches=0).plus({"start": depthwise_rows.START})
        case Strips():
            return device_cost(task, depthwise_strips.seconds(shape, division, device) + other_seconds(task))
        case Walk():
            return device_cost(task, sliding_mma.seconds(shape, division, device))
        case Choice():
            return device_cost(task, division.seconds + other_seconds(task))


def _cost(task: Task, knobs: Knobs) -> Cost:
    sides = Sides.of(task.op)
    return _cost_of(task, sides, _division(task.op, sides, task.device, knobs))


ENGINE = cuda_engine(
    id=11,
    name="cuda_direct",
    summary="fprop and dgrad with few channels per group (depthwise too), channels last; each element read once",
    needs=(
        *direct_needs("cuda_direct", filter_gradient=False),
        shared_memory_need(
            "cuda_direct", lambda task: _choice(Sides.of(task.op), task.device, DEFAULTS), filter_gradient=False
        ),
    ),
    cost=_cost,
    generate=generate,
    layout=LayoutType.PREFERRED_NHWC,
    knobs=(*KNOBS, _KERNEL),
    numerical_notes=(NumericalNote.TENSOR_CORE,),
)

"""Engine ``cuda_direct``: fprop and dgrad with few channels per group (depthwise, small groups), channels last.

Such convolutions do a few operations for each byte, so the kernels read each byte once. The general kernel passes rows
through a ring in shared memory and keeps accumulators in registers while a CTA slides down the image (row_ring.py).
Small depthwise filters use short CTAs (depthwise_rows.py), 5 x 5 filters use strips in registers
(depthwise_strips.py), and larger filters use tensor cores (sliding_mma.py).
"""

from __future__ import annotations

from collections.abc import Sequence
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
from graphdnn.engines.cuda.direct.measured_tiles import HALF
from graphdnn.engines.cuda.direct.row_ring import row_ring
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile import STAGES, Choice, Tile, Wishes
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile_choice import choose
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile_model import DeviceOf
from graphdnn.engines.cuda.direct.sliding_mma import sliding_mma
from graphdnn.engines.cuda.direct.sliding_mma.sliding_mma import Walk
from graphdnn.engines.engine import Cost, Knob, Knobs, Task
from graphdnn.enums import DataType, KnobType, LayoutType, NumericalNote
from graphdnn.fusion.fused_graph import FusedOp

# What the knobs mean on tensor cores is said by ``choose`` of sliding_mma.py and sliding_mma_wgrad.py.
_CHANNELS = Knob(KnobType.LOAD_SIZE, 0, 8, 1, 0, "channels of a thread, or on tensor cores rows at a time; 0: chosen")
_COLUMNS = Knob(KnobType.TILE_COLS, 0, 16, 1, 0, "columns of a thread, or pairs of channels of a warp; 0: chosen")
_ROWS = Knob(KnobType.TILE_ROWS, 0, 1024, 1, 0, "rows that a block walks down; 0: chosen by the shape")
_LANES = Knob(KnobType.NUM_C_PER_BLOCK, 0, 256, 1, 0, "threads, or warps, of a block along the channels; 0: chosen")
_THREADS = Knob(KnobType.BLOCK_SIZE, 0, 512, 32, 0, "threads of a block; 0: chosen by the shape")
_STAGES = Knob(KnobType.STAGES, 2, 8, 1, STAGES, "steps in the ring in shared memory")
_OCCUPANCY = Knob(KnobType.OCCUPANCY, 0, 8, 1, 0, "blocks per multiprocessor that registers are limited for; 0: chosen")
KNOBS = (_CHANNELS, _COLUMNS, _ROWS, _LANES, _THREADS, _STAGES, _OCCUPANCY)

_MULTIPLY_ADDS, _TENSOR_CORES, _SHORT, _STRIPS = 1, 2, 3, 4
_KERNEL = Knob(
    KnobType.KERNEL_CFG,
    0,
    _STRIPS,
    1,
    0,
    "1: multiply-adds; 2: tensor cores, where they serve; 3: short blocks; 4: strips; 0: chosen",
)

Division = Rows | Strips | Walk | Choice  # the work partition of a kernel
DEFAULTS: Knobs = MappingProxyType({knob.type: knob.default for knob in (*KNOBS, _KERNEL)})


def wishes(knobs: Knobs) -> Wishes:
    v, tw, rows, lanes, threads, stages, blocks = (knobs[knob.type] for knob in KNOBS)
    return Wishes(v, tw, rows, lanes, threads, stages, blocks)


def _choice(sides: Sides, device: DeviceSpec, knobs: Knobs) -> Choice:
    """The tile of the kernel on CUDA cores."""
    is_integer = sides.roles.op.compute_type is DataType.INT32
    rate = device.rate(DataType.INT32 if is_integer else DataType.FLOAT)
    return choose(sides.shape, DeviceOf.of(device, rate), wishes(knobs))


def _divisions(op: FusedOp, sides: Sides, device: DeviceSpec, knobs: Knobs) -> tuple[Division, ...]:
    """The work partitions of all kernels that serve the operation and that the knobs allow."""
    kernel, asked = knobs[_KERNEL.type], wishes(knobs)
    has_defaults = not asked.asks and asked.stages == STAGES
    # The cost models of the register-only kernels were fitted to 16-bit images; they count no conversions of other
    # types.
    in_registers = depthwise_registers.serves(sides) and (kernel > 0 or (has_defaults and sides.shape.in_bytes == HALF))
    found: list[Division | None] = []
    if kernel in (0, _SHORT) and in_registers:
        found.append(depthwise_rows.choose(sides.shape, device, asked))
    if kernel in (0, _STRIPS) and in_registers:
        found.append(depthwise_strips.choose(sides.shape, device, asked))
    # A kernel that does not serve gives way to tensor cores, then to multiply-adds: plan files of earlier versions rely
    # on that order. Other callers are refused, because ``_effective`` names the kernel that is launched.
    if kernel != _MULTIPLY_ADDS and (kernel in (0, _TENSOR_CORES) or not any(found)) and sliding_mma.serves(op, sides):
        found.append(sliding_mma.choose(sides.shape, device, asked))
    if kernel in (0, _MULTIPLY_ADDS) or not any(found):
        found.append(_choice(sides, device, knobs))
    return tuple(one for one in found if one is not None)


def _division(op: FusedOp, sides: Sides, device: DeviceSpec, knobs: Knobs) -> Division:
    """The kernel with the least predicted time among the kernels that the knobs allow."""
    divisions, task = _divisions(op, sides, device, knobs), Task(op, device)
    if len(divisions) == 1:
        return divisions[0]
    return min(divisions, key=lambda one: _cost_of(task, sides, one).seconds)


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


def _effective(task: Task, knobs: Knobs) -> Knobs:
    """The knob values of the kernel that is launched."""
    sides = Sides.of(task.op)
    match _division(task.op, sides, task.device, knobs):
        case Rows() as rows:
            return {**_of_thread(rows), _STAGES.type: rows.ahead + 1, _KERNEL.type: _SHORT}
        case Strips() as strips:
            return {**_of_thread(strips), _KERNEL.type: _STRIPS}
        case Walk() as walk:
            values = walk.lines, walk.pairs, walk.rows, walk.warps, 0, walk.stages, walk.blocks
            return {**_named(values), _KERNEL.type: _TENSOR_CORES}
        case Choice() as choice:
            return {**effective_knobs(choice.tile), _KERNEL.type: _MULTIPLY_ADDS}


def _of_thread(division: Rows | Strips) -> dict[KnobType, int]:
    values = division.v, division.tw, division.rows, 0, division.threads, STAGES, division.blocks
    return _named(values)


def _named(values: Sequence[int]) -> dict[KnobType, int]:
    return {knob.type: value for knob, value in zip(KNOBS, values, strict=True)}


def effective_knobs(tile: Tile) -> dict[KnobType, int]:
    """The knob values of a tile on CUDA cores."""
    return _named((tile.v, tile.tw, tile.rows, tile.lanes, tile.threads, tile.stages, tile.blocks))


def _notes(task: Task, knobs: Knobs) -> tuple[NumericalNote, ...]:
    """Only one of the kernels uses tensor cores, and it serves 16-bit images only."""
    is_on_tensor_cores = _effective(task, knobs)[_KERNEL.type] == _TENSOR_CORES
    return (NumericalNote.TENSOR_CORE,) if is_on_tensor_cores else ()


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
    effective=_effective,
    numerical_notes=(NumericalNote.TENSOR_CORE,),
    notes_of=_notes,
)

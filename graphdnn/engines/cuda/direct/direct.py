"""Engine ``cuda_direct``: fprop and dgrad with few channels per group (depthwise, small groups), channels last.

Such convolutions do few operations for each byte, so the kernels read each byte once. The engine has four kernels, and
its cost model chooses one:

1. row_ring.py: rows pass through a ring buffer in shared memory; accumulators stay in registers while a CTA slides down
   the image. The kernel serves every convolution of the engine.
2. sliding_mma.py: the same sliding window on tensor cores, for 16-bit images and large filters.
3. depthwise_rows.py: depthwise convolutions with unit stride by short CTAs without shared memory.
4. depthwise_sliding.py: depthwise convolutions with unit stride by a sliding window in registers.
"""

from __future__ import annotations

from types import MappingProxyType

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.cost import device_cost, other_seconds
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.launch import DeviceKernel
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.direct.depthwise import depthwise_registers, depthwise_rows, depthwise_sliding
from graphdnn.engines.cuda.direct.depthwise.depthwise_rows import RowTile
from graphdnn.engines.cuda.direct.depthwise.depthwise_sliding import SlidingTile
from graphdnn.engines.cuda.direct.direct_operands import Operands
from graphdnn.engines.cuda.direct.direct_requirements import direct_needs, shared_memory_need
from graphdnn.engines.cuda.direct.measured_tiles import HALF_BYTES
from graphdnn.engines.cuda.direct.row_ring import row_ring
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile import STAGES, Choice, Tile, TileRequest
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile_choice import choose
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile_model import DeviceLimits
from graphdnn.engines.cuda.direct.sliding_mma import sliding_mma
from graphdnn.engines.cuda.direct.sliding_mma.sliding_mma import MmaTile
from graphdnn.engines.engine import Cost, Knob, Knobs, Task
from graphdnn.enums import DataType, KnobType, LayoutType, NumericalNote
from graphdnn.fusion.fused_graph import FusedOp

# ``choose`` of sliding_mma.py and of sliding_mma_wgrad.py say what the knobs set on tensor cores.
_CHANNELS = Knob(KnobType.LOAD_SIZE, 0, 8, 1, 0, "channels of a thread; on tensor cores, steps of a stage; 0: chosen")
_COLUMNS = Knob(
    KnobType.TILE_COLS, 0, 16, 1, 0, "columns of a thread; on tensor cores, channel pairs of a warp; 0: chosen"
)
_ROWS = Knob(KnobType.TILE_ROWS, 0, 1024, 1, 0, "output rows of a CTA; 0: chosen by the shape")
_CHANNEL_THREADS = Knob(KnobType.NUM_C_PER_BLOCK, 0, 256, 1, 0, "threads, or warps, of a CTA along the channels")
_THREADS = Knob(KnobType.BLOCK_SIZE, 0, 512, 32, 0, "threads of a CTA; 0: chosen by the shape")
_STAGES = Knob(KnobType.STAGES, 2, 8, 1, STAGES, "stages of the ring buffer in shared memory")
_OCCUPANCY = Knob(KnobType.OCCUPANCY, 0, 8, 1, 0, "CTAs of an SM for which the registers are limited; 0: chosen")
KNOBS = (_CHANNELS, _COLUMNS, _ROWS, _CHANNEL_THREADS, _THREADS, _STAGES, _OCCUPANCY)

_ROW_RING, _TENSOR_CORES, _ROWS_KERNEL, _SLIDING = 1, 2, 3, 4
_KERNEL = Knob(
    KnobType.KERNEL_CFG,
    0,
    _SLIDING,
    1,
    0,
    "1: row ring; 2: tensor cores, where they serve; 3: short CTAs; 4: sliding window in registers; 0: chosen",
)

Partition = RowTile | SlidingTile | MmaTile | Choice  # the work partition of one of the four kernels
DEFAULTS: Knobs = MappingProxyType({knob.type: knob.default for knob in (*KNOBS, _KERNEL)})


def requested_tile(knobs: Knobs) -> TileRequest:
    """The extents that knobs set."""
    return TileRequest(*(knobs[knob.type] for knob in KNOBS))


def _choice(operands: Operands, device: DeviceSpec, knobs: Knobs) -> Choice:
    """The tile of the row ring, with its predicted time."""
    is_integer = operands.roles.op.compute_type is DataType.INT32
    rate = device.rate(DataType.INT32 if is_integer else DataType.FLOAT)
    return choose(operands.shape, DeviceLimits.of(device, rate), requested_tile(knobs))


def _partitions(op: FusedOp, operands: Operands, device: DeviceSpec, knobs: Knobs) -> tuple[Partition, ...]:
    """The work partitions of all kernels that serve the operation and that the knobs allow."""
    kernel, request = knobs[_KERNEL.type], requested_tile(knobs)
    has_defaults = not request.sets_tile and request.stages == STAGES
    # The cost models of the register-only kernels were fitted to 16-bit images and count no conversions of other types.
    is_modelled = has_defaults and operands.shape.in_bytes == HALF_BYTES
    in_registers = depthwise_registers.serves(operands) and (kernel > 0 or is_modelled)
    found: list[Partition | None] = []
    if kernel in (0, _ROWS_KERNEL) and in_registers:
        found.append(depthwise_rows.choose(operands.shape, device, request))
    if kernel in (0, _SLIDING) and in_registers:
        found.append(depthwise_sliding.choose(operands.shape, device, request))
    # If the requested kernel does not serve, tensor cores replace it, or else the row ring: plan files of earlier
    # versions rely on that order. Other callers are refused, because ``_effective`` names the kernel that is launched.
    if kernel != _ROW_RING and (kernel in (0, _TENSOR_CORES) or not any(found)) and sliding_mma.serves(op, operands):
        found.append(sliding_mma.choose(operands.shape, device, request))
    if kernel in (0, _ROW_RING) or not any(found):
        found.append(_choice(operands, device, knobs))
    return tuple(partition for partition in found if partition is not None)


def _partition(op: FusedOp, operands: Operands, device: DeviceSpec, knobs: Knobs) -> Partition:
    """The kernel with the least predicted time among the kernels that the knobs allow."""
    partitions, task = _partitions(op, operands, device, knobs), Task(op, device)
    if len(partitions) == 1:
        return partitions[0]
    return min(partitions, key=lambda partition: _cost_of(task, operands, partition).seconds)


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    """The launches of the chosen kernel."""
    operands, steps = Operands.of(op), LaunchSequence(op, device)
    match _partition(op, operands, device, knobs):
        case RowTile() as tile:
            return depthwise_rows.generate(op, operands, steps, tile)
        case SlidingTile() as tile:
            return depthwise_sliding.generate(op, operands, steps, tile)
        case MmaTile() as tile:
            return sliding_mma.generate(op, operands, steps, tile)
        case Choice() as choice:
            return row_ring.generate(op, operands, steps, choice.tile)


def _cost_of(task: Task, operands: Operands, partition: Partition) -> Cost:
    shape, device = operands.shape, task.device
    match partition:
        case RowTile():
            seconds = depthwise_rows.seconds(shape, partition, device) + other_seconds(task)
            return device_cost(task, seconds, launches=0).plus({"start": depthwise_rows.START})
        case SlidingTile():
            return device_cost(task, depthwise_sliding.seconds(shape, partition, device) + other_seconds(task))
        case MmaTile():
            return device_cost(task, sliding_mma.seconds(shape, partition, device))
        case Choice():
            return device_cost(task, partition.seconds + other_seconds(task))


def _cost(task: Task, knobs: Knobs) -> Cost:
    operands = Operands.of(task.op)
    return _cost_of(task, operands, _partition(task.op, operands, task.device, knobs))


def _effective(task: Task, knobs: Knobs) -> Knobs:
    """The knob values of the kernel that is launched."""
    operands = Operands.of(task.op)
    match _partition(task.op, operands, task.device, knobs):
        case RowTile() as tile:
            return {**_thread_knobs(tile), _STAGES.type: tile.prefetch_rows + 1, _KERNEL.type: _ROWS_KERNEL}
        case SlidingTile() as tile:
            return {**_thread_knobs(tile), _KERNEL.type: _SLIDING}
        case MmaTile() as tile:
            values = tile.steps_per_stage, tile.channel_pairs, tile.rows, tile.warps, 0, tile.stages, tile.ctas_per_sm
            return {**knob_values(*values), _KERNEL.type: _TENSOR_CORES}
        case Choice() as choice:
            return {**effective_knobs(choice.tile), _KERNEL.type: _ROW_RING}


def _thread_knobs(tile: RowTile | SlidingTile) -> dict[KnobType, int]:
    """The knob values of a tile whose rows stay in registers."""
    return knob_values(tile.v, tile.tw, tile.rows, 0, tile.threads, STAGES, tile.ctas_per_sm)


def knob_values(*values: int) -> dict[KnobType, int]:
    """Values in the order of ``KNOBS``."""
    return {knob.type: value for knob, value in zip(KNOBS, values, strict=True)}


def effective_knobs(tile: Tile) -> dict[KnobType, int]:
    """The knob values of a tile of the row ring."""
    values = tile.v, tile.tw, tile.rows, tile.channel_threads, tile.threads, tile.stages, tile.ctas_per_sm
    return knob_values(*values)


def _notes(task: Task, knobs: Knobs) -> tuple[NumericalNote, ...]:
    """The numerical notes of the kernel that is launched: only one of the kernels uses tensor cores."""
    is_on_tensor_cores = _effective(task, knobs)[_KERNEL.type] == _TENSOR_CORES
    return (NumericalNote.TENSOR_CORE,) if is_on_tensor_cores else ()


ENGINE = cuda_engine(
    id=11,
    name="cuda_direct",
    summary="fprop and dgrad with few channels per group (depthwise too), channels last; the image is read once",
    needs=(
        *direct_needs("cuda_direct", filter_gradient=False),
        shared_memory_need(
            "cuda_direct", lambda task: _choice(Operands.of(task.op), task.device, DEFAULTS), filter_gradient=False
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

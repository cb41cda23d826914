"""Engine ``cuda_direct_wgrad``: the filter gradient with few channels per group, channels last, deterministic.

The engine has three kernels, and its cost model chooses one:

1. row_ring_wgrad.py: rows of x and dy pass through ring buffers in shared memory. The kernel serves every convolution
   of the engine.
2. sliding_mma_wgrad.py: the same sliding window on tensor cores, for 16-bit images and large filters.
3. depthwise_wgrad_rows.py: depthwise convolutions with unit stride, with accumulators in registers and no shared memory
   in the main loop.
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
from graphdnn.engines.cuda.direct.depthwise.depthwise_wgrad_rows import RowTile
from graphdnn.engines.cuda.direct.direct import DEFAULTS, KNOBS, effective_knobs, knob_values, requested_tile
from graphdnn.engines.cuda.direct.direct_access import copy_bytes, element_bytes, undilated
from graphdnn.engines.cuda.direct.direct_requirements import direct_needs, shared_memory_need
from graphdnn.engines.cuda.direct.direct_shape import Shape
from graphdnn.engines.cuda.direct.measured_tiles import HALF_BYTES
from graphdnn.engines.cuda.direct.row_ring import row_ring_wgrad
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile import STAGES, Choice
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile_choice import choose
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile_model import DeviceLimits
from graphdnn.engines.cuda.direct.sliding_mma import sliding_mma_wgrad
from graphdnn.engines.cuda.direct.sliding_mma.sliding_mma_wgrad import MmaTile
from graphdnn.engines.engine import Cost, Knob, Knobs, Task, need
from graphdnn.enums import DataType, KnobType, LayoutType, NumericalNote
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvBackwardFilter

Partition = RowTile | MmaTile | Choice  # the work partition of one of the three kernels
_MAX_ACCUMULATORS = 160  # accumulators of a thread
_ROW_RING, _TENSOR_CORES, _ROWS_KERNEL = 1, 2, 3
_KERNEL = Knob(
    KnobType.KERNEL_CFG,
    0,
    _ROWS_KERNEL,
    1,
    0,
    "1: row ring; 2: tensor cores, where they serve; 3: accumulators in registers; 0: chosen",
)


def shape_of(op: FusedOp) -> Shape:
    """The shape of a filter gradient."""
    anchor = op.anchor
    assert isinstance(anchor, ConvBackwardFilter)
    x, w, y = anchor.roles
    roles = Roles.of(anchor)
    return Shape(
        undilated(anchor.problem), False, True, element_bytes(x), element_bytes(y), element_bytes(w), w.bytes,
        copy_bytes(roles, x), copy_bytes(roles, y),
    )  # fmt: skip


def _choice(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> Choice:
    """The tile of the row ring, with its predicted time."""
    is_integer = op.main.compute_type is DataType.INT32
    rate = device.rate(DataType.INT32 if is_integer else DataType.FLOAT)
    return choose(shape_of(op), DeviceLimits.of(device, rate), requested_tile(knobs))


def _partitions(op: FusedOp, shape: Shape, device: DeviceSpec, knobs: Knobs) -> tuple[Partition, ...]:
    """The work partitions of all kernels that serve the operation and that the knobs allow."""
    kernel, request = knobs[_KERNEL.type], requested_tile(knobs)
    has_defaults = not request.sets_tile and request.stages == STAGES
    # The cost model of the third kernel was fitted to 16-bit images and counts no conversions of other types.
    is_modelled = has_defaults and shape.in_bytes == shape.out_bytes == HALF_BYTES
    found: list[Partition | None] = []
    if (kernel == _ROWS_KERNEL or (kernel == 0 and is_modelled)) and depthwise_wgrad_rows.serves(op, shape):
        found.append(depthwise_wgrad_rows.choose(shape, device, request))
    if kernel in (0, _TENSOR_CORES) and sliding_mma_wgrad.serves(op, shape):
        found.append(sliding_mma_wgrad.choose(shape, device, request))
    if kernel in (0, _ROW_RING) or not any(found):
        found.append(_choice(op, device, knobs))
    return tuple(partition for partition in found if partition is not None)


def _partition(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> Partition:
    """The kernel with the least predicted time among the kernels that the knobs allow."""
    shape, task = shape_of(op), Task(op, device)
    partitions = _partitions(op, shape, device, knobs)
    if len(partitions) == 1:
        return partitions[0]
    return min(partitions, key=lambda partition: _cost_of(task, shape, partition).seconds)


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    """The launches of the chosen kernel."""
    shape, steps = shape_of(op), LaunchSequence(op, device)
    match _partition(op, device, knobs):
        case RowTile() as tile:
            return depthwise_wgrad_rows.generate(op, shape, steps, tile)
        case MmaTile() as tile:
            return sliding_mma_wgrad.generate(op, shape, device, steps, tile)
        case Choice() as choice:
            return row_ring_wgrad.generate(op, shape, device, steps, choice.tile)


def _cost_of(task: Task, shape: Shape, partition: Partition) -> Cost:
    match partition:
        case RowTile():
            return device_cost(task, depthwise_wgrad_rows.seconds(shape, partition, task.device))
        case MmaTile():
            return device_cost(task, sliding_mma_wgrad.seconds(shape, partition, task.device), launches=2)
        case Choice():
            return device_cost(task, partition.seconds, launches=2)


def _cost(task: Task, knobs: Knobs) -> Cost:
    return _cost_of(task, shape_of(task.op), _partition(task.op, task.device, knobs))


def _accumulators(task: Task) -> int:
    """Accumulators of a thread for one channel of dy."""
    return problem_of(task).taps * problem_of(task).c


def _effective(task: Task, knobs: Knobs) -> Knobs:
    """The knob values of the kernel that is launched."""
    match _partition(task.op, task.device, knobs):
        case RowTile() as tile:
            values = tile.v, tile.tw, tile.rows, tile.channel_threads, tile.threads, tile.prefetch_rows + 1
            kernel = _ROWS_KERNEL
        case MmaTile() as tile:
            values = tile.steps_per_stage, 0, tile.rows, tile.warps, tile.threads, tile.stages
            kernel = _TENSOR_CORES
        case Choice() as choice:
            return {**effective_knobs(choice.tile), _KERNEL.type: _ROW_RING}
    return {**knob_values(*values, tile.ctas_per_sm), _KERNEL.type: kernel}


def _notes(task: Task, knobs: Knobs) -> tuple[NumericalNote, ...]:
    """The numerical notes of the kernel that is launched: only one of the kernels uses tensor cores."""
    is_on_tensor_cores = _effective(task, knobs)[_KERNEL.type] == _TENSOR_CORES
    return (NumericalNote.TENSOR_CORE,) if is_on_tensor_cores else ()


ENGINE = cuda_engine(
    id=12,
    name="cuda_direct_wgrad",
    summary="filter gradient with few channels per group (depthwise too), channels last; bitwise deterministic",
    needs=(
        *direct_needs("cuda_direct_wgrad", filter_gradient=True),
        need(
            "cuda_direct_wgrad.sums",
            "w.dims",
            _accumulators,
            AtMost(_MAX_ACCUMULATORS),
            reason="a thread keeps the accumulators of all taps and channels of a filter in registers",
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

"""Fprop and dgrad of small groups on tensor cores: supported convolutions, work partition, launches.

The kernel is direct_sliding_mma.cu. For a 7 x 7 depthwise filter only 7 of 24 products are useful, and the others
multiply zeros, but the kernel still issues a third of the instructions of the row ring. For a 3 x 3 filter 3 of 16
products are useful.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from graphdnn.device.multiprocessor import RESERVED
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.index_space import IndexSpace, is_addressable
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program
from graphdnn.engines.cuda.codegen.source import include, kernel_text
from graphdnn.engines.cuda.codegen.vectors import width_for
from graphdnn.engines.cuda.direct.direct_access import effective_dilation, element_bytes, image_space
from graphdnn.engines.cuda.direct.direct_fields import filter_fields, first_fields, image_fields
from graphdnn.engines.cuda.direct.direct_operands import Operands, PackedFilter
from graphdnn.engines.cuda.direct.direct_shape import Shape
from graphdnn.engines.cuda.direct.measured_tiles import MEASURED, class_of
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile import TileRequest, padded_bytes
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile_model import (
    BANDWIDTH_EFFICIENCY,
    issue_utilization,
    overlapped,
    sector_overhead,
)
from graphdnn.engines.cuda.direct.sliding_mma.shared_wavefronts import wavefronts
from graphdnn.enums import DataType
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.tensors import TensorSpec

TILE_COLUMNS = 4  # output columns of a tile (TW)
_OPERAND_SLOTS = 22.0  # issue slots of a filter operand: addresses, comparisons and loads of two elements
_MMA_SLOTS = 4.0  # issue slots of an mma.m16n8k16
_MMA_M = 16  # tiles of a warp
_MAX_REGISTERS = 230  # the most estimated registers of a thread
_MAX_WARPS = 18
_MAX_COPY_PASSES = 32  # the most vectors that a thread copies for a stage


@dataclass(frozen=True, slots=True)
class MmaTile:
    """A work partition of direct_sliding_mma.cu."""

    channel_pairs: int  # channel pairs of a warp
    warps: int
    tiles: int  # tiles of TILE_COLUMNS columns
    steps_per_stage: int
    rows: int  # steps of a CTA that store rows
    stages: int
    ctas_per_sm: int  # CTAs of an SM for which the registers are limited

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return 32 * self.warps

    @property
    def channels(self) -> int:
        """Channels of a CTA."""
        return 2 * self.channel_pairs * self.warps


def sole_output(op: FusedOp, operands: Operands) -> TensorSpec | None:
    """The only output of the kernel, or None if the kernel has several outputs or cannot store 16-byte vectors."""
    if op.exit is not None or len(op.outputs) != 1 or getattr(op.anchor, "beta", 0.0) != 0.0:
        return None
    (output,) = op.outputs
    if output.extents != operands.output.extents or element_bytes(output) not in (2, 4) or not is_addressable(output):
        return None
    space = _output_space(operands, output)
    return output if width_for(space, [output], 1) * element_bytes(output) == 16 else None


def _output_space(operands: Operands, output: TensorSpec) -> IndexSpace:
    return IndexSpace(output.extents, image_space(operands.roles, operands.output).axes)


def serves(op: FusedOp, operands: Operands) -> bool:
    """Whether direct_sliding_mma.cu serves the convolution."""
    shape, image = operands.shape, operands.image
    return (
        image.data_type in (DataType.HALF, DataType.BFLOAT16)
        and operands.filter.data_type is image.data_type
        and COMPUTE_TYPE[operands.roles.op.compute_type] == "float"
        and set(effective_dilation(operands.roles.problem)) == {1}
        and shape.group_in == shape.group_out
        and 8 % shape.group_in == 0
        and shape.in_copy_bytes == 16
        and (not shape.is_dgrad or TILE_COLUMNS % shape.problem.stride[1] == 0)
        and bool(_legal_channel_pairs(shape))
        and sole_output(op, operands) is not None
    )


def _column_groups(shape: Shape) -> int:
    """Groups of TILE_COLUMNS image columns that a tile reads (COLUMN_GROUPS)."""
    return -(-shape.image_columns(TILE_COLUMNS) // TILE_COLUMNS)


def _registers(shape: Shape, channel_pairs: int) -> int:
    """Estimated registers of a thread: filters, accumulators, operands and addresses."""
    filters = shape.problem.filter[0] * channel_pairs * max(1, shape.group_in // 2) * _column_groups(shape)
    return filters + 4 * channel_pairs * shape.window + 4 * channel_pairs * _column_groups(shape) + 50


def _legal_channel_pairs(shape: Shape) -> list[int]:
    """The numbers of channel pairs of a warp that are whole groups and fit into registers."""
    return [n for n in (4, 2) if 2 * n % shape.group_in == 0 and _registers(shape, n) <= _MAX_REGISTERS]


def _row_columns(shape: Shape, tiles: int) -> int:
    """Image columns of a row in the ring buffer (ROW_COLUMNS)."""
    return (tiles - 1) * shape.step_w(TILE_COLUMNS) + _column_groups(shape) * TILE_COLUMNS


def _shared(shape: Shape, tile: MmaTile) -> int:
    """Bytes of shared memory of a CTA: ring buffer, filters and two epilogue buffers."""
    pixel = _pixel_bytes(tile.channels)
    ring = padded_bytes(tile.stages * tile.steps_per_stage * shape.in_rows * _row_columns(shape, tile.tiles) * pixel)
    pixel_vectors = tile.channels * shape.out_bytes // 16
    pixel_stride = tile.channels + (0 if pixel_vectors % 2 else 16 // shape.out_bytes)
    staging = tile.steps_per_stage * shape.out_rows * tile.tiles * TILE_COLUMNS * pixel_stride * shape.out_bytes
    return ring + padded_bytes(tile.channels * shape.group_in * shape.problem.taps * 2) + 2 * staging


def _fits(shape: Shape, tile: MmaTile, device: DeviceSpec) -> bool:
    vectors = tile.steps_per_stage * shape.in_rows * _row_columns(shape, tile.tiles) * tile.channels // 8
    return _shared(shape, tile) <= device.shared_memory - RESERVED and vectors <= _MAX_COPY_PASSES * tile.threads


def choose(shape: Shape, device: DeviceSpec, request: TileRequest) -> MmaTile | None:
    """The work partition with the least predicted time, or None if no partition fits.

    The knob LOAD_SIZE sets the steps of a stage, TILE_COLS the channel pairs of a warp, NUM_C_PER_BLOCK the warps.
    """
    channel_pairs, warps, requested_steps, ctas_per_sm = _warp_tile(shape, request)
    column_blocks = -(-shape.columns // (_MMA_M * TILE_COLUMNS))
    tiles = -(-shape.columns // (column_blocks * TILE_COLUMNS))
    for steps, stages in [(requested_steps, n) for n in range(request.stages, 1, -1)] + [(1, 3), (1, 2)]:
        tile = MmaTile(channel_pairs, warps, tiles, steps, 1, stages, 1)
        if _fits(shape, tile, device):
            break
    else:
        return None
    by_registers = 65536 // (min(255, -(-_registers(shape, channel_pairs) // 8) * 8) * tile.threads)
    by_memory = device.shared_memory // (_shared(shape, tile) + RESERVED)
    ctas_per_sm = min(ctas_per_sm or max(1, min(by_registers, by_memory)), device.warps // warps)
    images_and_blocks = shape.problem.n * -(-shape.channels_out // tile.channels) * column_blocks

    def seconds(rows: int) -> float:
        """Relative time of waves of CTAs: a CTA starts up, and reads more rows than it writes."""
        waves = -(-images_and_blocks * -(-shape.rows // rows) // (device.sm_count * ctas_per_sm))
        return waves * (rows + shape.warmup_steps + 4)

    rows = min(request.rows, shape.rows) or min(segment_rows(shape), key=seconds)
    return replace(tile, rows=rows, ctas_per_sm=ctas_per_sm)


def _warp_tile(shape: Shape, request: TileRequest) -> tuple[int, int, int, int]:
    """Channel pairs of a warp, warps, steps of a stage, and CTAs of an SM, which are 0 if they are not measured."""
    legal, eights = _legal_channel_pairs(shape), -(-shape.channels_out // 8)
    channel_pairs, warps, steps, ctas_per_sm = MEASURED.tensor_cores.get(class_of(shape), (0, 0, 0, 0))
    if request.sets_tile or not warps or eights * 4 // channel_pairs % warps:
        channel_pairs = warps = steps = ctas_per_sm = 0
    channel_pairs = request.tw or channel_pairs
    if channel_pairs not in legal:
        channel_pairs = next((n for n in legal if _registers(shape, n) <= 168), legal[-1])
    unit = 4 // channel_pairs  # warps that share a vector of eight channels
    max_warps = min(_MAX_WARPS, unit * eights)
    if request.channel_threads or warps:
        warps = min(request.channel_threads or warps, max_warps)
    else:
        resident = min(max_warps, 12, 2048 // (_registers(shape, channel_pairs) + 16))  # by the registers of an SM
        warps = next((w for w in range(resident, 0, -1) if w % unit == 0 and unit * eights % w == 0), unit)
    warps = max(unit, warps // unit * unit)
    return channel_pairs, warps, request.v or steps or 1, request.ctas_per_sm or ctas_per_sm


def segment_rows(shape: Shape) -> list[int]:
    """Candidates for the steps of a CTA: even parts of an image."""
    return sorted({-(-shape.rows // segments) for segments in (1, 2, 3, 4, 6, 8)}, reverse=True)


def _pixel_bytes(channels: int) -> int:
    """Bytes between adjacent pixels in shared memory: an odd number of 16-byte vectors, to avoid bank conflicts."""
    return 2 * (channels + (0 if channels // 8 % 2 else 8))


def _slots(shape: Shape, tile: MmaTile, slots: Mapping[str, float]) -> float:
    """Issue slots of a warp for its segment of rows."""
    p, column_groups, rows_in = shape.problem, _column_groups(shape), min(shape.in_rows, shape.problem.filter[0])
    dependent = max(1, shape.group_in // 2)  # dependent MMAs of one accumulator
    operands = p.filter[0] * tile.channel_pairs * dependent * column_groups  # filter operands, each for half of an MMA
    # Each filter row multiplies an image row once, for any number of output rows of a step.
    mmas = operands / 2 * (_MMA_SLOTS + slots["chained"] * (1 - 1 / dependent))
    step_w, pixel = shape.step_w(TILE_COLUMNS), _pixel_bytes(tile.channels)
    lanes = tuple((lane // 4 * step_w + lane % 4) * pixel for lane in range(32))
    loads = 2 * column_groups * rows_in * wavefronts(lanes, 4 * tile.channel_pairs) * slots["wavefront"]
    results = shape.out_rows * tile.channel_pairs * slots["row"]
    of_step = mmas + loads + results + slots["iteration"] / tile.steps_per_stage
    return (tile.rows + shape.warmup_steps) * of_step + operands * _OPERAND_SLOTS


def seconds(
    shape: Shape, tile: MmaTile, device: DeviceSpec, slots: Mapping[str, float] = MEASURED.tensor_core_slots
) -> float:
    """Predicted seconds without the launch: the issue slots of the busiest SM overlap with the memory traffic.

    ``slots``: the constants of measured_h200.json, which benchmarks/fit_direct.py fits.
    """
    p = shape.problem
    column_blocks = -(-shape.columns // (tile.tiles * TILE_COLUMNS))
    ctas = p.n * column_blocks * -(-shape.rows // tile.rows) * -(-shape.channels_out // tile.channels)
    per_sm = -(-ctas // device.sm_count)
    issue = device.rate(DataType.FLOAT) / 64 / device.sm_count  # warp instructions per second of an SM
    utilization = issue_utilization(min(tile.ctas_per_sm, per_sm) * tile.warps, tile.warps)
    arithmetic = per_sm * tile.warps * _slots(shape, tile, slots) / (issue * utilization)
    pixels_in = shape.rows * shape.in_rows * shape.step_w(TILE_COLUMNS) / TILE_COLUMNS
    read = pixels_in * shape.in_bytes * sector_overhead(tile.channels * shape.in_bytes)
    moved = read + shape.rows * shape.out_rows * shape.out_bytes
    memory = (p.n * shape.columns * shape.channels_out * moved + shape.other_bytes) / (
        device.bandwidth * BANDWIDTH_EFFICIENCY
    )
    return overlapped(arithmetic, memory)


def _constants(
    operands: Operands, tile: MmaTile, filter: PackedFilter, output: TensorSpec, width: int
) -> dict[str, int | bool | str]:
    """The compile-time constants of direct_sliding_mma.cu."""
    p, shape = operands.roles.problem, operands.shape
    return {
        "R": p.filter[0], "S": p.filter[1], "STRIDE_H": p.stride[0], "STRIDE_W": p.stride[1],
        "DGRAD": shape.is_dgrad, "FLIP": p.flip, "GROUP_CHANNELS": shape.group_in,
        "IN_ROWS": shape.in_rows, "OUT_ROWS": shape.out_rows, "WINDOW": shape.window,
        "TW": TILE_COLUMNS, "TILES": tile.tiles, "WARPS": tile.warps, "CHANNEL_PAIRS": tile.channel_pairs,
        "THREADS": tile.threads,
        "STEPS_PER_STAGE": tile.steps_per_stage, "STAGES": tile.stages, "CTAS_PER_SM": tile.ctas_per_sm,
        "VEC_WIDTH": width,
        "FILTER_COPY_ELEMS": filter.copy_elements(tile.channels * shape.group_in * p.taps),
        "ImageElement": STORAGE[operands.image.data_type], "Out": STORAGE[output.data_type],
    }  # fmt: skip


def generate(op: FusedOp, operands: Operands, steps: LaunchSequence, tile: MmaTile) -> DeviceKernel:
    """The launch of direct_sliding_mma.cu with the work partition ``tile``."""
    roles, shape, p = operands.roles, operands.shape, operands.roles.problem
    dgrad, output = shape.is_dgrad, sole_output(op, operands)
    assert output is not None
    filter = PackedFilter.of(operands, steps)
    in_space, out_space = image_space(roles, operands.image), image_space(roles, operands.output)
    parameters = Parameters(steps.workspace_offsets)
    width = min(2 * tile.channel_pairs, width_for(out_space, steps.epilogue_tensors(), 1))
    clips = "clip_halves" if width % 2 == 0 else ""
    body = Program(
        op, parameters, out_space, "t", width=width, vector_axis=1, has_column_operands=True, clip_function=clips
    )
    body.define_anchor(roles.op, roles.output, "acc", "float")
    body.apply(op.epilogue)
    body.copy_to("result", output)

    image_in, image_out = (p.output, p.input) if dgrad else (p.input, p.output)
    column_blocks = -(-shape.columns // (TILE_COLUMNS * tile.tiles))
    channel_blocks = -(-shape.channels_out // tile.channels)
    segments = -(-shape.rows // tile.rows)
    parameters.tensor("image", operands.image)
    parameters.tensor("filter", filter.spec)
    parameters.tensor("output", output, is_output=True)
    parameters.table({
        **image_fields("image", in_space.strides(operands.image)),
        **image_fields("output", _output_space(operands, output).strides(output)),
        **filter_fields(filter.strides),
        "filter_elements": filter.elements, "channels": shape.channels_out,
        "in_h": image_in[0], "in_w": image_in[1], "out_h": image_out[0], "out_w": image_out[1],
        "pad_h": p.pre_padding[0], "pad_w": p.pre_padding[1],
        **first_fields(p, is_dgrad=dgrad),
        "rows": shape.rows, "segments": segments, "segment_rows": tile.rows,
        "channel_blocks": channel_blocks, "column_blocks": column_blocks, "zero": 0,
    })  # fmt: skip

    variant = f"r{p.filter[0]}s{p.filter[1]}c{tile.channels}x{tile.tiles}l{tile.steps_per_stage}q{tile.channel_pairs}"
    name = f"conv_{roles.direction}__sliding_mma_{variant}__{op.name}"
    text = kernel_text(
        name,
        ["direct_sliding_mma.cu"],
        parameters=parameters.text,
        functions=[
            include("clip_halves.cuh"),
            body.column_operands_text(),
            body.function(
                "epilogue",
                f"const ColumnOperands& column_operands, const float (&acc)[{width}], Out (&result)[{width}]",
            ),
        ],
        constants=_constants(operands, tile, filter, output, width),
    )
    ctas = p.n * channel_blocks * column_blocks * segments
    steps.add(Launch(text, "direct_sliding_mma", (ctas, 1, 1), tile.threads, parameters.pack(), _shared(shape, tile)))
    return steps.kernel(name)

"""Wgrad of small groups on tensor cores: supported convolutions, work partition, launches.

The kernel is direct_sliding_mma_wgrad.cu. An MMA multiplies 8 channels of dy by 8 channels of x, and only the products
within a group are used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from graphdnn.device.multiprocessor import RESERVED
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.conv_geometry.convolution_roles import Roles
from graphdnn.engines.cuda.direct.direct_access import effective_dilation, image_space
from graphdnn.engines.cuda.direct.direct_fields import image_fields
from graphdnn.engines.cuda.direct.direct_shape import Shape
from graphdnn.engines.cuda.direct.measured_tiles import MEASURED, class_of
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile import TileRequest, padded_bytes, splits_of
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile_model import (
    BANDWIDTH_EFFICIENCY,
    issue_utilization,
    overlapped,
    sector_overhead,
)
from graphdnn.engines.cuda.direct.sliding_mma.shared_wavefronts import wavefronts
from graphdnn.engines.cuda.direct.sliding_mma.sliding_mma import segment_rows
from graphdnn.enums import DataType
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvBackwardFilter
from graphdnn.operations.conv_problem import ConvProblem
from graphdnn.tensors import TensorSpec

MMA_K = 16  # columns of an MMA (TW)
_CHANNELS = 8  # channels of a warp
_MAX_ACCUMULATORS = 130  # accumulator registers of a thread
_MAX_WARPS = 24
_MAX_COPY_PASSES = 32  # the most vectors that a thread copies for a stage
REDUCE_WARPS = 8  # warps of direct_wgrad_sum.cu that divide the splits of one tap


@dataclass(frozen=True, slots=True)
class MmaTile:
    """A work partition of direct_sliding_mma_wgrad.cu."""

    warps: int  # warps along the channels, 8 channels each
    column_warps: int  # warps along the columns, 16 columns each
    steps_per_stage: int
    rows: int  # rows of a work item
    stages: int
    ctas_per_sm: int  # CTAs of an SM for which the registers are limited

    @property
    def threads(self) -> int:
        return 32 * self.warps * self.column_warps

    @property
    def channels(self) -> int:
        return _CHANNELS * self.warps


def serves(op: FusedOp, shape: Shape) -> bool:
    """Whether direct_sliding_mma_wgrad.cu serves the convolution."""
    anchor = op.anchor
    assert isinstance(anchor, ConvBackwardFilter)
    x, _, dy = anchor.roles
    return (
        x.data_type in (DataType.HALF, DataType.BFLOAT16)
        and dy.data_type is x.data_type
        and COMPUTE_TYPE[anchor.compute_type] == "float"
        and set(effective_dilation(anchor.problem)) == {1}
        and shape.group_in == shape.group_out
        and _CHANNELS % shape.group_in == 0
        and shape.in_copy_bytes == shape.out_copy_bytes == 16
        and 4 * shape.problem.filter[0] * _shifts(shape) <= _MAX_ACCUMULATORS
    )


def _shifts(shape: Shape) -> int:
    """Column shifts of x (SHIFTS); the MMAs of a shift compute two taps."""
    s, stride = shape.problem.filter[1], shape.problem.stride[1]
    return s // (2 * stride) * stride + min(s % (2 * stride), stride)


def _registers(shape: Shape) -> int:
    """Estimated registers of a thread."""
    shifts = _shifts(shape)
    return 4 * shape.problem.filter[0] * shifts + 4 * shape.window + 4 * -(-shifts // 2) + 50


def _columns(shape: Shape, tile: MmaTile) -> tuple[int, int]:
    """Columns of x and of dy that a CTA copies for a step."""
    p = shape.problem
    return (MMA_K * tile.column_warps - 1) * p.stride[1] + p.filter[1], MMA_K * tile.column_warps + 1


def _shared(shape: Shape, tile: MmaTile) -> int:
    """Bytes of shared memory of a CTA: the ring buffers, or afterwards the sums of a row of taps."""
    p, (x_columns, dy_columns) = shape.problem, _columns(shape, tile)
    pixel = tile.channels + (0 if tile.warps % 2 else 8)
    images = padded_bytes(tile.stages * tile.steps_per_stage * p.stride[0] * x_columns * pixel * 2)
    gradients = padded_bytes(tile.stages * tile.steps_per_stage * dy_columns * pixel * 2)
    return max(images + gradients, tile.column_warps * p.filter[1] * shape.group_in * tile.channels * 4)


def _fits(shape: Shape, tile: MmaTile, device: DeviceSpec) -> bool:
    vectors = tile.steps_per_stage * shape.problem.stride[0] * max(_columns(shape, tile)) * tile.warps
    return _shared(shape, tile) <= device.shared_memory - RESERVED and vectors <= _MAX_COPY_PASSES * tile.threads


def choose(shape: Shape, device: DeviceSpec, request: TileRequest) -> MmaTile | None:
    """The work partition with the least predicted time, or None if no partition fits.

    The knob LOAD_SIZE sets the steps of a stage, NUM_C_PER_BLOCK the warps along the channels.
    """
    warps, column_warps, requested_steps, ctas_per_sm = _warp_tile(shape, request)
    for steps, stages in [(requested_steps, n) for n in range(request.stages, 1, -1)] + [(1, 3), (1, 2)]:
        tile = MmaTile(warps, column_warps, steps, 1, stages, 1)
        if _fits(shape, tile, device):
            break
    else:
        return None
    by_registers = 65536 // (min(255, -(-_registers(shape) // 8) * 8) * tile.threads)
    by_memory = device.shared_memory // (_shared(shape, tile) + RESERVED)
    ctas_per_sm = min(ctas_per_sm or max(1, min(by_registers, by_memory)), 32 * device.warps // tile.threads)
    channel_blocks = -(-shape.channels_out // (_CHANNELS * warps))

    def seconds(rows: int) -> float:
        """Relative time of the CTA with the most work items."""
        items = shape.problem.n * -(-_column_tiles(shape) // column_warps) * -(-shape.rows // rows)
        splits = splits_of(items, channel_blocks, ctas_per_sm, device.sm_count)
        return -(-items // splits) * (rows + shape.warmup_steps)

    rows = min(request.rows, shape.rows) or min(segment_rows(shape), key=seconds)
    return replace(tile, rows=rows, ctas_per_sm=ctas_per_sm)


def _column_tiles(shape: Shape) -> int:
    """MMA tiles along the columns of dy and one column to their left."""
    return -(-(shape.columns + 1) // MMA_K)


def _warp_tile(shape: Shape, request: TileRequest) -> tuple[int, int, int, int]:
    """Warps along channels and columns, steps of a stage, and CTAs of an SM, which are 0 if they are not measured."""
    total = -(-shape.channels_out // _CHANNELS)
    warps, measured_column_warps, steps, ctas_per_sm = MEASURED.tensor_core_wgrad.get(class_of(shape), (0, 0, 0, 0))
    if request.sets_tile or not warps or total % warps:
        warps = measured_column_warps = steps = ctas_per_sm = 0
    warps = min(request.channel_threads or warps or (3 if total % 3 == 0 else 4), total, _MAX_WARPS)
    column_warps = min(measured_column_warps or 4, _column_tiles(shape), _MAX_WARPS // warps)
    ctas_per_sm = ctas_per_sm * measured_column_warps // column_warps  # CTAs of narrow images have fewer warps
    if request.threads:
        column_warps = max(1, min(column_warps, request.threads // (32 * warps)))
    elif not request.channel_threads:
        warps = max(1, min(warps, 2048 // (column_warps * (_registers(shape) + 16))))  # by the registers of an SM
    return warps, column_warps, request.v or steps or 2, request.ctas_per_sm or ctas_per_sm


def _slots(shape: Shape, tile: MmaTile, slots: Mapping[str, float]) -> float:
    """Issue slots of a warp for one step."""
    p, shifts, rows_in = shape.problem, _shifts(shape), min(shape.problem.stride[0], shape.problem.filter[0])
    pixel = 2 * (tile.channels + (0 if tile.warps % 2 else 8))
    # ldmatrix reads 8 rows of 16 bytes for each of its 4 matrices.
    gradient, image = (
        4 * wavefronts(tuple(row * distance * pixel for row in range(8)), 16) for distance in (1, p.stride[1])
    )
    loads = gradient + -(-shifts // 2) * rows_in * image
    moves = 4 * (shape.window - 1)
    return (
        p.filter[0] * shifts * slots["product"]
        + loads * slots["wavefront"]
        + moves
        + slots["iteration"] / tile.steps_per_stage
    )


def seconds(
    shape: Shape, tile: MmaTile, device: DeviceSpec, slots: Mapping[str, float] = MEASURED.tensor_core_wgrad_slots
) -> float:
    """Predicted seconds without the launches: the issue slots of the busiest SM overlap with the memory traffic.

    ``slots``: the constants of measured_h200.json, which benchmarks/fit_direct.py fits.
    """
    p = shape.problem
    channel_blocks = -(-shape.channels_out // tile.channels)
    items = p.n * -(-_column_tiles(shape) // tile.column_warps) * -(-shape.rows // tile.rows)
    splits = splits_of(items, channel_blocks, tile.ctas_per_sm, device.sm_count)
    per_sm = -(-splits * channel_blocks // device.sm_count)
    warps = tile.warps * tile.column_warps
    steps = per_sm * warps * -(-items // splits) * (tile.rows + shape.warmup_steps)
    issue = device.rate(DataType.FLOAT) / 64 / device.sm_count  # warp instructions per second of an SM
    utilization = issue_utilization(min(tile.ctas_per_sm, per_sm) * warps, warps)
    pixels_in = shape.rows * shape.columns * p.stride[0] * p.stride[1]
    images = p.n * shape.channels_out * (pixels_in * shape.in_bytes + shape.rows * shape.columns * shape.out_bytes)
    # Partial sums are written, and read by the second launch.
    partial = 8.0 * splits * p.taps * shape.group_in * shape.channels_out
    read = images * sector_overhead(_CHANNELS * tile.warps * shape.in_bytes)
    memory = (read + partial) / (device.bandwidth * BANDWIDTH_EFFICIENCY)
    return overlapped(steps * _slots(shape, tile, slots) / (issue * utilization), memory)


def _constants(
    p: ConvProblem, shape: Shape, tile: MmaTile, gradient_columns: int, image_columns: int, x: TensorSpec
) -> dict[str, int | bool | str]:
    """The compile-time constants of direct_sliding_mma_wgrad.cu and direct_wgrad_sum.cu."""
    return {
        "R": p.filter[0], "S": p.filter[1], "STRIDE_H": p.stride[0], "STRIDE_W": p.stride[1],
        "DILATION_H": 1, "DILATION_W": 1, "DGRAD": False, "FLIP": p.flip,
        "IN_ROWS": shape.in_rows, "WINDOW": shape.window, "TW": MMA_K, "TILES": tile.column_warps,
        "WARPS": tile.warps, "THREADS": tile.threads, "STEPS_PER_STAGE": tile.steps_per_stage,
        "X_COPY_COLUMNS": image_columns, "DY_COPY_COLUMNS": gradient_columns,
        "GROUP_IN": shape.group_in, "GROUP_OUT": shape.group_out,
        "STAGES": tile.stages, "CTAS_PER_SM": tile.ctas_per_sm, "REDUCE_WARPS": REDUCE_WARPS,
        "ImageElement": STORAGE[x.data_type], "DyElement": STORAGE[x.data_type], "Accum": "float",
    }  # fmt: skip


def generate(op: FusedOp, shape: Shape, device: DeviceSpec, steps: LaunchSequence, tile: MmaTile) -> DeviceKernel:
    """The launches of direct_sliding_mma_wgrad.cu and direct_wgrad_sum.cu with the work partition ``tile``."""
    anchor = op.anchor
    assert isinstance(anchor, ConvBackwardFilter)
    roles, p = Roles.of(anchor), anchor.problem
    x, _, dy = anchor.roles
    column_blocks = -(-_column_tiles(shape) // tile.column_warps)
    channel_blocks = -(-shape.channels_out // tile.channels)
    segments = -(-shape.rows // tile.rows)
    items = p.n * column_blocks * segments
    splits = splits_of(items, channel_blocks, tile.ctas_per_sm, device.sm_count)
    taps = p.taps * shape.group_in

    parameters = Parameters(steps.workspace_offsets)
    body = Program(op, parameters, roles.space(roles.output), "t")
    steps.write_epilogue(body, "acc", "float")
    parameters.tensor("image", x)
    parameters.tensor("dy", dy)
    parameters.table({
        **image_fields("image", image_space(roles, x).strides(x)),
        **image_fields("dy", image_space(roles, dy).strides(dy)),
        "in_h": p.input[0], "in_w": p.input[1], "out_w": p.output[1], "channels_out": shape.channels_out,
        "in_row": -p.pre_padding[0], "in_column": -p.pre_padding[1],
        "out_h": p.output[0], "segments": segments, "segment_rows": tile.rows,
        "column_blocks": column_blocks, "items": items, "splits": splits,
        "padded_channels": channel_blocks * tile.channels,
    })  # fmt: skip
    parameters.workspace_pointer("partial", "float", steps.allocate(splits * taps * channel_blocks * tile.channels * 4))

    # Columns beyond the image are not copied and stay zero.
    image_columns, gradient_columns = _columns(shape, tile)
    if column_blocks == 1:
        image_columns = max(1, min(image_columns, p.input[1] + p.pre_padding[1]))
        gradient_columns = min(gradient_columns, p.output[1] + 1)
    variant = f"r{p.filter[0]}s{p.filter[1]}c{tile.channels}x{tile.column_warps}l{tile.steps_per_stage}"
    name = f"conv_wgrad__sliding_mma_{variant}__{op.name}"
    text = kernel_text(
        name,
        [
            "direct_sliding_mma_wgrad.cu",
            "direct_wgrad_sum.cu",
        ],
        parameters=parameters.text,
        functions=[body.function("epilogue", "const float (&acc)[1]")],
        constants=_constants(p, shape, tile, gradient_columns, image_columns, x),
    )
    packed = parameters.pack()
    grid = (channel_blocks, splits, 1)
    steps.add(Launch(text, "direct_sliding_mma_wgrad", grid, tile.threads, packed, _shared(shape, tile)))
    sum_grid = (-(-shape.channels_out // 32), taps, 1)
    steps.add_early(Launch(text, "direct_wgrad_sum", sum_grid, 32 * REDUCE_WARPS, packed))
    return steps.kernel(name)

"""Filter gradient of small groups on tensor cores: the supported convolutions, the work partition, the kernel.

The kernel is direct_sliding_mma_wgrad.cu. An MMA computes 8 by 8 channels, and only products within a group are used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from graphdnn.device.multiprocessor import RESERVED
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.conv_geometry.convolution_roles import Roles
from graphdnn.engines.cuda.direct.direct_access import apart, image_space
from graphdnn.engines.cuda.direct.direct_fields import image_fields
from graphdnn.engines.cuda.direct.direct_shape import Shape
from graphdnn.engines.cuda.direct.measured_tiles import MEASURED, class_of
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile import Wishes, padded_bytes, parts_of
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile_model import COPY_SHARE, issue_share, overlapped, whole_sectors
from graphdnn.engines.cuda.direct.sliding_mma.shared_wavefronts import wavefronts
from graphdnn.enums import DataType
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvBackwardFilter

DEPTH = 16  # columns of an MMA, along K
_CHANNELS = 8  # channels of a warp
_SUMS = 130  # the most accumulator registers of a thread
_MOST_WARPS = 24
_MOST_TURNS = 32  # the most vectors that a thread copies for a stage
SLICES = 8  # warps that divide the splits of one tap


@dataclass(frozen=True, slots=True)
class Walk:
    """A work partition, which the engine's cost model ranks."""

    warps: int  # warps along the channels, 8 channels each
    across: int  # warps along the columns, 16 columns each
    lines: int  # steps of a stage
    rows: int  # rows of a work item
    stages: int
    blocks: int  # CTAs of an SM that the register limit allows

    @property
    def threads(self) -> int:
        return 32 * self.warps * self.across

    @property
    def channels(self) -> int:
        return _CHANNELS * self.warps


def serves(op: FusedOp, shape: Shape) -> bool:
    """Whether the kernel on tensor cores serves the convolution; the kernel on CUDA cores serves the others."""
    anchor = op.anchor
    assert isinstance(anchor, ConvBackwardFilter)
    x, _, dy = anchor.roles
    return (
        x.data_type in (DataType.HALF, DataType.BFLOAT16)
        and dy.data_type is x.data_type
        and COMPUTE_TYPE[anchor.compute_type] == "float"
        and set(apart(anchor.problem)) == {1}
        and shape.group_in == shape.group_out
        and _CHANNELS % shape.group_in == 0
        and shape.in_piece == shape.out_piece == 16
        and 4 * shape.problem.filter[0] * _shifts(shape) <= _SUMS
    )


def _shifts(shape: Shape) -> int:
    """Column shifts of x; the MMAs of each shift serve two taps."""
    s, stride = shape.problem.filter[1], shape.problem.stride[1]
    return s // (2 * stride) * stride + min(s % (2 * stride), stride)


def _registers(shape: Shape) -> int:
    """Estimated registers of a thread."""
    shifts = _shifts(shape)
    return 4 * shape.problem.filter[0] * shifts + 4 * shape.window + 4 * -(-shifts // 2) + 50


def _columns(shape: Shape, walk: Walk) -> tuple[int, int]:
    """Columns of x and of dy that a CTA copies."""
    p = shape.problem
    return (DEPTH * walk.across - 1) * p.stride[1] + p.filter[1], DEPTH * walk.across + 1


def _shared(shape: Shape, walk: Walk) -> int:
    """Bytes of shared memory of a CTA, by the constants that the kernel computes."""
    p, (wide, narrow) = shape.problem, _columns(shape, walk)
    pixel = walk.channels + (0 if walk.warps % 2 else 8)
    images = padded_bytes(walk.stages * walk.lines * p.stride[0] * wide * pixel * 2)
    gradients = padded_bytes(walk.stages * walk.lines * narrow * pixel * 2)
    return max(images + gradients, walk.across * p.filter[1] * shape.group_in * walk.channels * 4)


def _fits(shape: Shape, walk: Walk, device: DeviceSpec) -> bool:
    pieces = walk.lines * shape.problem.stride[0] * max(_columns(shape, walk)) * walk.warps
    return _shared(shape, walk) <= device.shared_memory - RESERVED and pieces <= _MOST_TURNS * walk.threads


def choose(shape: Shape, device: DeviceSpec, wishes: Wishes) -> Walk | None:
    """The work partition with the least predicted time, or None where nothing fits; knobs fix the values that they set.

    Here the knob LOAD_SIZE is the steps of a stage, NUM_C_PER_BLOCK the warps along the channels.
    """
    p = shape.problem
    total, most = -(-shape.channels_out // _CHANNELS), -(-(shape.columns + 1) // DEPTH)
    warps, across, lines, blocks = MEASURED.tensor_core_wgrad.get(class_of(shape), (0, 0, 0, 0))
    if wishes.asks or not warps or total % warps:
        warps = across = lines = blocks = 0
    warps = wishes.lanes or warps or (3 if total % 3 == 0 else 4)
    warps = min(warps, total, _MOST_WARPS)
    wide, across = across, min(across or 4, most, _MOST_WARPS // warps)
    blocks = blocks * wide // across  # narrow images: CTAs have fewer warps, so an SM has more of them
    if wishes.threads:
        across = max(1, min(across, wishes.threads // (32 * warps)))
    elif not wishes.lanes:
        # As many warps as one CTA has registers for.
        warps = max(1, min(warps, 2048 // (across * (_registers(shape) + 16))))
    lines = wishes.v or lines or 2
    for lines, stages in [(lines, n) for n in range(wishes.stages, 1, -1)] + [(1, 3), (1, 2)]:
        walk = Walk(warps, across, lines, 1, stages, 1)
        if _fits(shape, walk, device):
            break
    else:
        return None
    by_registers = 65536 // (min(255, -(-_registers(shape) // 8) * 8) * walk.threads)
    by_memory = device.shared_memory // (_shared(shape, walk) + RESERVED)
    resident = min(wishes.blocks or blocks or max(1, min(by_registers, by_memory)), 32 * device.warps // walk.threads)
    height = shape.rows
    rows = min(wishes.rows, height)
    if not rows:

        def seconds(rows: int) -> float:
            items = p.n * -(-most // across) * -(-height // rows)
            parts = parts_of(items, -(-total // warps), resident, device.sm_count)
            return -(-items // parts) * (rows + shape.extra)

        rows = min(sorted({-(-height // parts) for parts in (1, 2, 3, 4, 6, 8)}, reverse=True), key=seconds)
    return Walk(warps, across, lines, rows, stages, resident)


def _slots(shape: Shape, walk: Walk, slots: Mapping[str, float]) -> float:
    """Issue slots of a warp for one step."""
    p, shifts, rows_in = shape.problem, _shifts(shape), min(shape.problem.stride[0], shape.problem.filter[0])
    pixel = 2 * (walk.channels + (0 if walk.warps % 2 else 8))
    # ldmatrix reads 8 rows of 16 bytes for each of its 4 matrices.
    gradient, image = (
        4 * wavefronts(tuple(row * distance * pixel for row in range(8)), 16) for distance in (1, p.stride[1])
    )
    loads = gradient + -(-shifts // 2) * rows_in * image
    moves = 4 * (shape.window - 1)
    return (
        p.filter[0] * shifts * slots["product"] + loads * slots["wavefront"] + moves + slots["iteration"] / walk.lines
    )


def seconds(
    shape: Shape, walk: Walk, device: DeviceSpec, slots: Mapping[str, float] = MEASURED.tensor_core_wgrad_slots
) -> float:
    """Predicted seconds without the launches: issue slots of the busiest SM and memory traffic, overlapped.

    ``slots``: the fitted constants of measured_h200.json; benchmarks/fit_direct.py fits them.
    """
    p = shape.problem
    channel_blocks = -(-shape.channels_out // walk.channels)
    items = p.n * -(-(shape.columns + 1) // (DEPTH * walk.across)) * -(-shape.rows // walk.rows)
    parts = parts_of(items, channel_blocks, walk.blocks, device.sm_count)
    per_sm = -(-parts * channel_blocks // device.sm_count)
    warps = walk.warps * walk.across
    steps = per_sm * warps * -(-items // parts) * (walk.rows + shape.extra)
    issue = device.rate(DataType.FLOAT) / 64 / device.sm_count  # warp instructions per second of an SM
    share = issue_share(min(walk.blocks, per_sm) * warps, warps)
    pixels_in = shape.rows * shape.columns * p.stride[0] * p.stride[1]
    images = p.n * shape.channels_out * (pixels_in * shape.in_bytes + shape.rows * shape.columns * shape.out_bytes)
    # Partial sums are written, and read by the second launch.
    partial = 8.0 * parts * p.taps * shape.group_in * shape.channels_out
    read = images * whole_sectors(_CHANNELS * walk.warps * shape.in_bytes)
    memory = (read + partial) / (device.bandwidth * COPY_SHARE)
    return overlapped(steps * _slots(shape, walk, slots) / (issue * share), memory)


def generate(op: FusedOp, shape: Shape, device: DeviceSpec, steps: LaunchSequence, walk: Walk) -> DeviceKernel:
    anchor = op.anchor
    assert isinstance(anchor, ConvBackwardFilter)
    roles, p = Roles.of(anchor), anchor.problem
    x, _, dy = anchor.roles
    column_blocks = -(-(shape.columns + 1) // (DEPTH * walk.across))
    channel_blocks = -(-shape.channels_out // walk.channels)
    segments = -(-shape.rows // walk.rows)
    items = p.n * column_blocks * segments
    parts = parts_of(items, channel_blocks, walk.blocks, device.sm_count)
    taps = p.taps * shape.group_in

    parameters = Parameters(steps.workspace_offsets)
    body = Program(op, parameters, roles.space(roles.output), "t")
    steps.finish(body, "acc", "float")
    parameters.tensor("image", x)
    parameters.tensor("dy", dy)
    parameters.table({
        **image_fields("image", image_space(roles, x).strides(x)),
        **image_fields("dy", image_space(roles, dy).strides(dy)),
        "in_h": p.input[0], "in_w": p.input[1], "out_w": p.output[1], "channels_out": shape.channels_out,
        "in_row": -p.pre_padding[0], "in_column": -p.pre_padding[1],
        "out_h": p.output[0], "segments": segments, "segment_rows": walk.rows,
        "column_blocks": column_blocks, "items": items, "splits": parts,
        "padded_channels": channel_blocks * walk.channels,
    })  # fmt: skip
    parameters.scratch("partial", "float", steps.allocate(parts * taps * channel_blocks * walk.channels * 4))

    # Columns beyond the image are not copied and stay zero.
    image_columns, gradient_columns = _columns(shape, walk)
    if column_blocks == 1:
        image_columns = max(1, min(image_columns, p.input[1] + p.pre_padding[1]))
        gradient_columns = min(gradient_columns, p.output[1] + 1)
    how = f"r{p.filter[0]}s{p.filter[1]}c{walk.channels}x{walk.across}l{walk.lines}"
    name = f"conv_wgrad__walk_{how}__{op.name}"
    text = kernel_text(
        name,
        [
            "direct_sliding_mma_wgrad.cu",
            "direct_wgrad_sum.cu",
        ],
        parameters=parameters.text,
        functions=[body.function("epilogue", "const float (&acc)[1]")],
        constants={
            "R": p.filter[0], "S": p.filter[1], "STRIDE_H": p.stride[0], "STRIDE_W": p.stride[1],
            "DILATION_H": 1, "DILATION_W": 1, "DGRAD": False, "FLIP": p.flip,
            "IN_ROWS": shape.in_rows, "WINDOW": shape.window, "TW": DEPTH, "TILES": walk.across,
            "WARPS": walk.warps, "THREADS": walk.threads, "STEPS_PER_STAGE": walk.lines,
            "X_COPY_COLUMNS": image_columns, "DY_COPY_COLUMNS": gradient_columns,
            "GROUP_IN": shape.group_in, "GROUP_OUT": shape.group_out,
            "STAGES": walk.stages, "CTAS_PER_SM": walk.blocks, "REDUCE_WARPS": SLICES,
            "ImageElement": STORAGE[x.data_type], "DyElement": STORAGE[x.data_type], "Accum": "float",
        },
    )  # fmt: skip
    packed = parameters.pack()
    grid = (channel_blocks, parts, 1)
    steps.add(Launch(text, "direct_sliding_mma_wgrad", grid, walk.threads, packed, _shared(shape, walk)))
    sums = (-(-shape.channels_out // 32), taps, 1)
    steps.add_early(Launch(text, "direct_wgrad_sum", sums, 32 * SLICES, packed))
    return steps.kernel(name)

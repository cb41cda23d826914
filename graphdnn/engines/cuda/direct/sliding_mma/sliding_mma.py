"""Fprop and dgrad of small groups on tensor cores: the supported convolutions, the work partition, the kernel.

The kernel is direct_sliding_mma.cu. For a 7 x 7 filter only 7 of 24 products are useful, and the others multiply zeros,
but the kernel still issues a third of the instructions of a multiply-add kernel. For a 3 x 3 filter 3 of 16 are useful.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from graphdnn.device.multiprocessor import RESERVED
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.index_space import IndexSpace, is_addressable
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program
from graphdnn.engines.cuda.codegen.source import include, kernel_text
from graphdnn.engines.cuda.codegen.vectors import width_for
from graphdnn.engines.cuda.direct.direct_access import apart, element_bytes, image_space
from graphdnn.engines.cuda.direct.direct_fields import filter_fields, first_fields, image_fields
from graphdnn.engines.cuda.direct.direct_operands import PackedFilter, Sides
from graphdnn.engines.cuda.direct.direct_shape import Shape
from graphdnn.engines.cuda.direct.measured_tiles import MEASURED, class_of
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile import Wishes, padded_bytes
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile_model import COPY_SHARE, issue_share, overlapped, whole_sectors
from graphdnn.engines.cuda.direct.sliding_mma.shared_wavefronts import wavefronts
from graphdnn.enums import DataType
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.tensors import TensorSpec

TILE = 4  # output columns of a tile
_OPERAND_SLOTS = 22.0  # issue slots to assemble a filter operand: addresses, comparisons and loads of two elements
_PRODUCT_SLOTS = 4.0  # issue slots that an mma.m16n8k16 keeps the tensor cores busy
_TILES = 16  # tiles of a warp, M of the MMA
_MOST_REGISTERS = 230  # the most estimated registers of a thread
_MOST_WARPS = 18
_MOST_TURNS = 32  # the most vectors that a thread copies for a stage


@dataclass(frozen=True, slots=True)
class Walk:
    """A work partition, which the engine's cost model ranks."""

    pairs: int  # channel pairs of a warp
    warps: int
    tiles: int  # tiles of columns
    lines: int  # steps of a stage
    rows: int  # steps of a CTA that store rows
    stages: int
    blocks: int  # CTAs of an SM that the register limit allows

    @property
    def threads(self) -> int:
        return 32 * self.warps

    @property
    def channels(self) -> int:
        return 2 * self.pairs * self.warps


def sole_output(op: FusedOp, sides: Sides) -> TensorSpec | None:
    """The only output of the kernel, if its pixels can be stored by vectors of 16 bytes; otherwise None."""
    if op.exit is not None or len(op.outputs) != 1 or getattr(op.anchor, "beta", 0.0) != 0.0:
        return None
    (output,) = op.outputs
    if output.extents != sides.output.extents or element_bytes(output) not in (2, 4) or not is_addressable(output):
        return None
    space = _space(sides, output)
    return output if width_for(space, [output], 1) * element_bytes(output) == 16 else None


def _space(sides: Sides, output: TensorSpec) -> IndexSpace:
    return IndexSpace(output.extents, image_space(sides.roles, sides.output).axes)


def serves(op: FusedOp, sides: Sides) -> bool:
    """Whether the kernel on tensor cores serves the convolution; the kernel on CUDA cores serves the others."""
    shape, image = sides.shape, sides.image
    return (
        image.data_type in (DataType.HALF, DataType.BFLOAT16)
        and sides.filter.data_type is image.data_type
        and COMPUTE_TYPE[sides.roles.op.compute_type] == "float"
        and set(apart(sides.roles.problem)) == {1}
        and shape.group_in == shape.group_out
        and 8 % shape.group_in == 0
        and shape.in_piece == 16
        and (not shape.is_dgrad or TILE % shape.problem.stride[1] == 0)
        and bool(_pairs(shape))
        and sole_output(op, sides) is not None
    )


def _chunks(shape: Shape) -> int:
    """Groups of four image columns that a tile reads."""
    return -(-shape.wide(TILE) // TILE)


def _registers(shape: Shape, pairs: int) -> int:
    """Estimated registers of a thread: filters, accumulators, operands and addresses."""
    filters = shape.problem.filter[0] * pairs * max(1, shape.group_in // 2) * _chunks(shape)
    return filters + 4 * pairs * shape.window + 4 * pairs * _chunks(shape) + 50


def _pairs(shape: Shape) -> list[int]:
    """The possible numbers of channel pairs of a warp."""
    whole = (pairs for pairs in (4, 2) if 2 * pairs % shape.group_in == 0)
    return [pairs for pairs in whole if _registers(shape, pairs) <= _MOST_REGISTERS]


def _wide(shape: Shape, tiles: int) -> int:
    return (tiles - 1) * shape.step_w(TILE) + _chunks(shape) * TILE


def _shared(shape: Shape, walk: Walk) -> int:
    """Bytes of shared memory of a CTA, by the constants that the kernel computes."""
    pixel = _pixel_bytes(walk.channels)
    ring = padded_bytes(walk.stages * walk.lines * shape.in_rows * _wide(shape, walk.tiles) * pixel)
    pieces = walk.channels * shape.out_bytes // 16
    place = walk.channels + (0 if pieces % 2 else 16 // shape.out_bytes)
    hall = walk.lines * shape.out_rows * walk.tiles * TILE * place * shape.out_bytes
    return ring + padded_bytes(walk.channels * shape.group_in * shape.problem.taps * 2) + 2 * hall


def _fits(shape: Shape, walk: Walk, device: DeviceSpec) -> bool:
    pieces = walk.lines * shape.in_rows * _wide(shape, walk.tiles) * walk.channels // 8
    return _shared(shape, walk) <= device.shared_memory - RESERVED and pieces <= _MOST_TURNS * walk.threads


def choose(shape: Shape, device: DeviceSpec, wishes: Wishes) -> Walk | None:
    """The work partition with the least predicted time, or None where nothing fits; knobs fix the values that they set.

    Here the knob LOAD_SIZE is the steps of a stage, TILE_COLS the channel pairs, NUM_C_PER_BLOCK the warps.
    """
    p = shape.problem
    parts = -(-shape.columns // (_TILES * TILE))
    tiles = -(-shape.columns // (parts * TILE))
    legal, eights = _pairs(shape), -(-shape.channels_out // 8)
    pairs, warps, lines, blocks = MEASURED.tensor_cores.get(class_of(shape), (0, 0, 0, 0))
    if wishes.asks or not warps or eights * 4 // pairs % warps:
        pairs = warps = lines = blocks = 0
    pairs = wishes.tw or pairs
    if pairs not in legal:
        pairs = next((n for n in legal if _registers(shape, n) <= 168), legal[-1])
    part = 4 // pairs  # warps that share eight channels
    most = min(_MOST_WARPS, part * eights)
    if wishes.lanes or warps:
        warps = min(wishes.lanes or warps, most)
    else:
        few = min(most, 12, 2048 // (_registers(shape, pairs) + 16))  # as many warps as one CTA has registers for
        warps = next((w for w in range(few, 0, -1) if w % part == 0 and part * eights % w == 0), part)
    warps = max(part, warps // part * part)
    lines = wishes.v or lines or 1
    for lines, stages in [(lines, n) for n in range(wishes.stages, 1, -1)] + [(1, 3), (1, 2)]:
        walk = Walk(pairs, warps, tiles, lines, 1, stages, 1)
        if _fits(shape, walk, device):
            break
    else:
        return None
    by_registers = 65536 // (min(255, -(-_registers(shape, pairs) // 8) * 8) * walk.threads)
    by_memory = device.shared_memory // (_shared(shape, walk) + RESERVED)
    resident = wishes.blocks or blocks or max(1, min(by_registers, by_memory))
    resident = min(resident, device.warps // walk.warps)
    height = shape.rows
    rows = min(wishes.rows, height)
    if not rows:
        strips = p.n * -(-shape.channels_out // walk.channels) * parts

        def seconds(rows: int) -> float:
            """Predicted seconds of waves of CTAs; each CTA has a start-up time and reads more rows than it writes."""
            rounds = -(-strips * -(-height // rows) // (device.sm_count * resident))
            return rounds * (rows + shape.extra + 4)

        rows = min(sorted({-(-height // n) for n in (1, 2, 3, 4, 6, 8)}, reverse=True), key=seconds)
    return Walk(pairs, warps, tiles, lines, rows, stages, resident)


def _pixel_bytes(channels: int) -> int:
    """Bytes from a pixel to the next in shared memory: an odd number of 16-byte vectors."""
    return 2 * (channels + (0 if channels // 8 % 2 else 8))


def _slots(shape: Shape, walk: Walk, slots: Mapping[str, float]) -> float:
    """Issue slots of a warp for its segment of rows."""
    p, chunks, rows_in = shape.problem, _chunks(shape), min(shape.in_rows, shape.problem.filter[0])
    chain = max(1, shape.group_in // 2)  # dependent MMAs of one accumulator
    operands = p.filter[0] * walk.pairs * chain * chunks  # filter operands, each for half of an MMA
    # An image row meets each filter row once, however many output rows a step has.
    products = operands / 2 * (_PRODUCT_SLOTS + slots["chained"] * (1 - 1 / chain))
    step_w, pixel = shape.step_w(TILE), _pixel_bytes(walk.channels)
    lanes = tuple((lane // 4 * step_w + lane % 4) * pixel for lane in range(32))
    loads = 2 * chunks * rows_in * wavefronts(lanes, 4 * walk.pairs) * slots["wavefront"]
    results = shape.out_rows * walk.pairs * slots["row"]
    of_step = products + loads + results + slots["iteration"] / walk.lines
    return (walk.rows + shape.extra) * of_step + operands * _OPERAND_SLOTS


def seconds(
    shape: Shape, walk: Walk, device: DeviceSpec, slots: Mapping[str, float] = MEASURED.tensor_core_slots
) -> float:
    """Predicted seconds without the launch: issue slots of the busiest SM and memory traffic, overlapped.

    ``slots``: the fitted constants of measured_h200.json; benchmarks/fit_direct.py fits them.
    """
    p = shape.problem
    parts = -(-shape.columns // (walk.tiles * TILE))
    blocks = p.n * parts * -(-shape.rows // walk.rows) * -(-shape.channels_out // walk.channels)
    per_sm = -(-blocks // device.sm_count)
    issue = device.rate(DataType.FLOAT) / 64 / device.sm_count  # warp instructions per second of an SM
    share = issue_share(min(walk.blocks, per_sm) * walk.warps, walk.warps)
    arithmetic = per_sm * walk.warps * _slots(shape, walk, slots) / (issue * share)
    pixels_in = shape.rows * shape.in_rows * shape.step_w(TILE) / TILE
    read = pixels_in * shape.in_bytes * whole_sectors(walk.channels * shape.in_bytes)
    moved = read + shape.rows * shape.out_rows * shape.out_bytes
    memory = (p.n * shape.columns * shape.channels_out * moved + shape.others) / (device.bandwidth * COPY_SHARE)
    return overlapped(arithmetic, memory)


def generate(op: FusedOp, sides: Sides, steps: LaunchSequence, walk: Walk) -> DeviceKernel:
    roles, shape, p = sides.roles, sides.shape, sides.roles.problem
    dgrad, output = shape.is_dgrad, sole_output(op, sides)
    assert output is not None
    filter = PackedFilter.of(sides, steps)
    in_space, out_space = image_space(roles, sides.image), image_space(roles, sides.output)
    parameters = Parameters(steps.workspace_offsets)
    width = min(2 * walk.pairs, width_for(out_space, steps.epilogue_tensors(), 1))
    clips = "clip_halves" if width % 2 == 0 else ""
    body = Program(op, parameters, out_space, "t", width=width, vector_axis=1, keeps=True, clips=clips)
    body.anchor(roles.op, roles.output, "acc", "float")
    body.apply(op.epilogue)
    body.hand("result", output)

    image_in, image_out = (p.output, p.input) if dgrad else (p.input, p.output)
    column_blocks = -(-shape.columns // (TILE * walk.tiles))
    channel_blocks = -(-shape.channels_out // walk.channels)
    segments = -(-shape.rows // walk.rows)
    parameters.tensor("image", sides.image)
    parameters.tensor("filter", filter.spec)
    parameters.tensor("output", output, is_output=True)
    parameters.table({
        **image_fields("image", in_space.strides(sides.image)),
        **image_fields("output", _space(sides, output).strides(output)),
        **filter_fields(filter.strides),
        "filter_elements": filter.elements, "channels": shape.channels_out,
        "in_h": image_in[0], "in_w": image_in[1], "out_h": image_out[0], "out_w": image_out[1],
        "pad_h": p.pre_padding[0], "pad_w": p.pre_padding[1],
        **first_fields(p, is_dgrad=dgrad),
        "rows": shape.rows, "segments": segments, "segment_rows": walk.rows,
        "channel_blocks": channel_blocks, "column_blocks": column_blocks, "zero": 0,
    })  # fmt: skip

    how = f"r{p.filter[0]}s{p.filter[1]}c{walk.channels}x{walk.tiles}l{walk.lines}q{walk.pairs}"
    name = f"conv_{roles.direction}__walk_{how}__{op.name}"
    text = kernel_text(
        name,
        ["direct_sliding_mma.cu"],
        parameters=parameters.text,
        functions=[
            include("clip_halves.cuh"), body.keeping(),
            body.function("epilogue",
            f"const ColumnOperands& kept, const float (&acc)[{width}], Out (&result)[{width}]"),
        ],
        constants={
            "R": p.filter[0], "S": p.filter[1], "STRIDE_H": p.stride[0], "STRIDE_W": p.stride[1],
            "DGRAD": dgrad, "FLIP": p.flip, "GROUP_CHANNELS": shape.group_in,
            "IN_ROWS": shape.in_rows, "OUT_ROWS": shape.out_rows, "WINDOW": shape.window,
            "TW": TILE, "TILES": walk.tiles, "WARPS": walk.warps, "CHANNEL_PAIRS": walk.pairs, "THREADS": walk.threads,
            "STEPS_PER_STAGE": walk.lines, "STAGES": walk.stages, "CTAS_PER_SM": walk.blocks, "VEC_WIDTH": width,
            "FILTER_COPY_ELEMS": filter.chunk(walk.channels * shape.group_in * p.taps),
            "ImageElement": STORAGE[sides.image.data_type], "Out": STORAGE[output.data_type],
        },
    )  # fmt: skip
    blocks = p.n * channel_blocks * column_blocks * segments
    steps.add(Launch(text, "direct_sliding_mma", (blocks, 1, 1), walk.threads, parameters.pack(), _shared(shape, walk)))
    return steps.kernel(name)

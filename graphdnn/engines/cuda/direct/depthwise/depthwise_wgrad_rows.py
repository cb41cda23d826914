"""The depthwise filter gradient with accumulators in registers: supported convolutions, work partition, kernel.

The kernel is depthwise_wgrad_rows.cu. A thread owns a tile of an image and the accumulators of all taps. A cluster
adds the sums of few CTAs; a second launch adds the sums of many.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.conv_geometry.convolution_roles import Roles
from graphdnn.engines.cuda.direct.direct_access import apart, image_space
from graphdnn.engines.cuda.direct.direct_shape import Shape
from graphdnn.engines.cuda.direct.measured_tiles import MEASURED
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile import STAGES, Wishes
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile_model import overlapped
from graphdnn.engines.cuda.direct.sliding_mma.sliding_mma_wgrad import SLICES
from graphdnn.enums import DataType
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvBackwardFilter

_ACROSS = 3  # the columns' axis; its stride depends on the number of channels only
_COUNTED = 2**31  # tiles
_PIECE = 4  # bytes of a vector of channels
_LONGEST = 7  # taps along an axis
_SUMS = 100  # the most accumulators of a thread
_PRODUCTS = 5000  # the most multiply-adds of a thread for a tile, as the loops are fully unrolled
_THREADS, _REGISTERS = 512, 128  # threads of a CTA, if a thread needs no more registers than the second number
_FEWER, _MORE = 256, 255
_AROUND = 60  # instructions of a tile beside loads and multiply-adds
_WAITING = 1.6  # time over the issue slots of its instructions
_RESIDENT = 65536  # registers of an SM
_STARTING = 1.2e-6  # seconds until the first rows arrive, and of the cluster's barriers
_LAUNCHED = 1.0e-6  # seconds of the launch that adds the splits
_COPY_SHARE = 0.85  # the part of the data sheet's bandwidth that a copy reaches
_IN_CLUSTER = 8  # the most CTAs of a cluster
_TILES_IN_CLUSTER = 8  # tiles of a CTA in a cluster
_LANES_IN_CLUSTER = 16  # threads along the channels of a CTA in a cluster


@dataclass(frozen=True, slots=True)
class Rows:
    """A work partition, which the engine's cost model ranks."""

    v: int  # channels of a thread
    tw: int  # columns of a tile
    rows: int
    lanes: int  # threads of a CTA along the channels
    tiles: int  # tiles of a CTA at a time
    parts: int  # splits: CTAs with the same channels
    joined: bool  # whether the splits are one cluster
    blocks: int  # CTAs of an SM that the register limit allows
    ahead: int  # rows in flight during the multiply-adds of a row

    @property
    def threads(self) -> int:
        return -(-self.lanes * self.tiles // 32) * 32

    def sums(self, shape: Shape) -> int:
        """Bytes of a CTA's partial sums."""
        return shape.problem.taps * self.lanes * self.v * 4

    def shared(self, shape: Shape) -> int:
        """Bytes of a CTA's shared memory: the sums of its tiles, and the DSMEM buffer in a cluster."""
        fours = -(-self.sums(shape) // 16 // self.parts) * self.parts if self.joined else 0
        return self.tiles * self.sums(shape) + 16 * fours


def serves(op: FusedOp, shape: Shape) -> bool:
    anchor = op.anchor
    assert isinstance(anchor, ConvBackwardFilter)
    p, roles = shape.problem, Roles.of(anchor)
    x, _, dy = anchor.roles
    return (
        shape.group_in == shape.group_out == 1
        and set(p.stride) == {1}
        and set(apart(anchor.problem)) == {1}
        and max(p.filter) <= _LONGEST
        and p.n * shape.rows * shape.columns < _COUNTED
        and all(image_space(roles, t).strides(t)[_ACROSS] < _COUNTED for t in (x, dy))
    )


def _dividing(shape: Shape) -> tuple[int, int] | None:
    """Columns and rows of the tiles that divide the image."""
    tiles = MEASURED.register_wgrad.get(shape.problem.filter, ())
    return next(((w, h) for w, h in tiles if shape.columns % w == shape.rows % h == 0), None)


def choose(shape: Shape, device: DeviceSpec, wishes: Wishes) -> Rows:
    """The work partition with the least predicted time; the knobs LOAD_SIZE, TILE_COLS, TILE_ROWS, NUM_C_PER_BLOCK and
    BLOCK_SIZE fix the values that they set.
    """
    p = shape.problem
    fits = [v for v in (4, 2, 1) if p.groups % v == 0 and v * max(shape.in_bytes, shape.out_bytes) <= _pieces(shape)]
    widest = max(1, _PIECE // max(shape.in_bytes, shape.out_bytes))
    v = wishes.v if wishes.v in fits and p.taps * wishes.v <= _SUMS else next(v for v in fits if v <= widest)
    tw, rows = _dividing(shape) or (4, 4)
    tw, rows = min(wishes.tw or tw, shape.columns), min(wishes.rows or rows, shape.rows)
    while rows > 1 and p.taps * v * tw * rows > _PRODUCTS:
        rows -= 1
    while tw > 1 and _registers(shape, v, tw) > _MORE:
        tw -= 1
    is_small = _registers(shape, v, tw) <= _REGISTERS
    most, registers = (_THREADS, _REGISTERS) if is_small else (_FEWER, _MORE)
    most = min(wishes.threads or most, most)
    count, total = p.n * -(-shape.columns // tw) * -(-shape.rows // rows), p.groups // v

    tiles, lanes = min(_TILES_IN_CLUSTER, -(-count // 2)), wishes.lanes or _divisor(total, _LANES_IN_CLUSTER)
    parts = -(-count // tiles)
    fours = p.taps * lanes * v % 4 == 0  # vectors of four sums, as dsmem_store sends them
    joined = 1 < parts <= _IN_CLUSTER and lanes * tiles <= most and fours and device.compute_capability >= (9, 0)
    if not joined:
        lanes = min(wishes.lanes or _divisor(total, most // 7), most)
        tiles = min(most // lanes, count)
    while tiles > 1 and tiles * p.taps * lanes * v * 4 > device.shared_memory // 2:
        tiles -= 1
    threads = -(-lanes * tiles // 32) * 32
    blocks = min(wishes.blocks or max(1, _RESIDENT // (registers * threads)), device.warps * 32 // threads)
    if not joined:
        parts = min(-(-count // tiles), max(1, device.sm_count * blocks // -(-total // lanes)))
    ahead = 1 if wishes.stages == STAGES else wishes.stages - 1
    return Rows(v, tw, rows, lanes, tiles, parts, joined, blocks, ahead)


def _pieces(shape: Shape) -> int:
    return min(shape.in_piece, shape.out_piece)


def _divisor(total: int, most: int) -> int:
    """The largest divisor of ``total`` up to ``most``, or ``most`` itself if that divisor is much smaller."""
    found = next(n for n in range(min(total, most), 0, -1) if total % n == 0)
    return found if 2 * found >= min(total, most) else min(total, most)


def _registers(shape: Shape, v: int, tw: int) -> int:
    """Estimated registers of a thread."""
    p = shape.problem
    return v * p.taps + v * tw * p.filter[0] + v * shape.wide(tw) + 22


def seconds(shape: Shape, tile: Rows, device: DeviceSpec) -> float:
    """Predicted seconds without the launch: the longer of a CTA's tiles and the memory traffic, and the split
    reduction.
    """
    p, v = shape.problem, tile.v
    count = p.n * -(-shape.columns // tile.tw) * -(-shape.rows // tile.rows)
    read = (tile.rows + p.filter[0] - 1) * shape.wide(tile.tw) + tile.rows * tile.tw
    instructions = v * p.taps * tile.tw * tile.rows + read * (v + 1.5) + _AROUND
    blocks = -(-p.groups // (tile.lanes * v)) * tile.parts
    warps = -(-blocks // device.sm_count) * tile.threads / 32
    issue = device.rate(DataType.FLOAT) / 64 / device.sm_count  # warp instructions per second of an SM
    arithmetic = ceil(count / (tile.parts * tile.tiles)) * warps * instructions * _WAITING / issue
    elements = float(p.n * p.groups * shape.rows * shape.columns)
    # Traffic over x's bytes: neighbouring tiles read some rows twice.
    again = 1 + 0.5 * (p.filter[0] - 1) / tile.rows / 2
    memory = elements * (shape.in_bytes * again + shape.out_bytes) / (device.bandwidth * _COPY_SHARE)
    both = overlapped(arithmetic, memory, 0.25)
    return _STARTING + both + (0.0 if tile.joined else _LAUNCHED)


def generate(op: FusedOp, shape: Shape, steps: LaunchSequence, tile: Rows) -> DeviceKernel:
    anchor = op.anchor
    assert isinstance(anchor, ConvBackwardFilter)
    roles, p = Roles.of(anchor), anchor.problem
    x, _, dy = anchor.roles
    compute = COMPUTE_TYPE[anchor.compute_type]
    x_strides, dy_strides = image_space(roles, x).strides(x), image_space(roles, dy).strides(dy)
    channels = tile.lanes * tile.v
    channel_blocks = -(-p.groups // channels)
    across, down = -(-shape.columns // tile.tw), -(-shape.rows // tile.rows)

    parameters = Parameters(steps.workspace_offsets)
    body = Program(op, parameters, roles.space(roles.output), "t")
    steps.finish(body, "acc", compute)
    parameters.tensor("image", x)
    parameters.tensor("dy", dy)
    parameters.table({
        "image_n": x_strides[0], "image_h": x_strides[2], "dy_n": dy_strides[0], "dy_h": dy_strides[2],
    })  # fmt: skip
    parameters.table({
        "in_h": p.input[0], "in_w": p.input[1], "out_h": p.output[0], "out_w": p.output[1],
        "in_row": -p.pre_padding[0], "in_column": -p.pre_padding[1], "channels_out": p.groups,
        "tiles": p.n * across * down, "tiles_across": across, "tiles_down": down,
        "splits": tile.parts, "padded_channels": channel_blocks * channels, "zero": 0,
    })  # fmt: skip
    if not tile.joined:
        parameters.scratch("partial", compute, steps.allocate(tile.parts * channel_blocks * tile.sums(shape)))

    how = f"r{p.filter[0]}s{p.filter[1]}v{tile.v}w{tile.tw}h{tile.rows}x{tile.tiles}c{channels}"
    name = f"conv_wgrad__rows_{how}{f'j{tile.parts}' if tile.joined else ''}__{op.name}"
    safe_rows, safe_columns = (
        _safe(p.input[i], p.pre_padding[i], p.filter[i], n, step)
        for i, n, step in ((0, down, tile.rows), (1, across, tile.tw))
    )
    text = kernel_text(
        name,
        ["depthwise_wgrad_rows.cu", *(() if tile.joined else ("direct_wgrad_sum.cu",))],
        variants={"SPLITS_IN_CLUSTER": tile.joined},
        parameters=parameters.text,
        functions=[body.function("epilogue", f"const {compute} (&acc)[1]")],
        constants={
            "R": p.filter[0], "S": p.filter[1], "FLIP": p.flip,
            "V": tile.v, "TW": tile.tw, "ROWS": tile.rows, "CHANNEL_THREADS": tile.lanes, "TILES": tile.tiles,
            "THREADS": tile.threads, "CTAS_PER_SM": tile.blocks, "PREFETCH_ROWS": tile.ahead,
            **({"CLUSTER": tile.parts} if tile.joined else {"REDUCE_WARPS": SLICES, "GROUP_IN": 1, "GROUP_OUT": 1}),
            "PITCH": x_strides[_ACROSS], "DY_PITCH": dy_strides[_ACROSS],
            "SAFE_ROW_FROM": safe_rows[0], "SAFE_ROW_TO": safe_rows[1],
            "SAFE_FROM": safe_columns[0], "SAFE_TO": safe_columns[1],
            "WHOLE_COLUMNS": p.output[1] % tile.tw == 0, "WHOLE_ROWS": p.output[0] % tile.rows == 0,
            "WHOLE_CHANNELS": p.groups % channels == 0,
            "ImageElement": STORAGE[x.data_type], "DyElement": STORAGE[dy.data_type], "Accum": compute,
        },
    )  # fmt: skip
    packed = parameters.pack()
    grid = (channel_blocks * tile.parts, 1, 1) if tile.joined else (channel_blocks, tile.parts, 1)
    steps.add_early(Launch(text, "depthwise_wgrad_rows", grid, tile.threads, packed, tile.shared(shape)))
    if not tile.joined:
        sums = (-(-p.groups // 32), p.taps, 1)
        steps.add_early(Launch(text, "direct_wgrad_sum", sums, 32 * SLICES, packed))
    return steps.kernel(name)


def _safe(size: int, padding: int, taps: int, tiles: int, step: int) -> tuple[int, int]:
    """The range of offsets in a tile of x, along one axis, that lie inside the image for every tile."""
    last = (tiles - 1) * step - padding  # the first offset of the last tile
    return padding, max(0, min(step + taps - 1, size - last))

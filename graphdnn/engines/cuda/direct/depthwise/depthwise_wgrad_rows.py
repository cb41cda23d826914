"""Depthwise wgrad with unit stride and accumulators in registers: supported convolutions, work partition, launches.

The kernel is depthwise_wgrad_rows.cu. A thread owns a tile of an image and the accumulators of all taps. Few splits are
added by a cluster, many splits by a second launch.
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
from graphdnn.engines.cuda.direct.direct_access import effective_dilation, image_space
from graphdnn.engines.cuda.direct.direct_shape import Shape
from graphdnn.engines.cuda.direct.measured_tiles import MEASURED
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile import STAGES, TileRequest
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile_model import overlapped
from graphdnn.engines.cuda.direct.sliding_mma.sliding_mma_wgrad import REDUCE_WARPS
from graphdnn.enums import DataType
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvBackwardFilter

_COLUMN_AXIS = 3  # of image_space; its stride depends only on the number of channels
_MAX_TILES = 2**31
_VEC_BYTES = 4  # bytes of a vector of channels
_MAX_TAPS = 7  # along an axis
_MAX_ACCUMULATORS = 100  # the most accumulators of a thread
_MAX_MULTIPLY_ADDS = 5000  # the most multiply-adds of a thread for a tile, whose loops are fully unrolled
_THREADS, _REGISTERS = 512, 128  # threads of a CTA, and the most registers of a thread
_FEWER_THREADS, _MORE_REGISTERS = 256, 255  # the same if a thread needs more registers
_OTHER_INSTRUCTIONS = 60  # instructions of a tile except for loads and multiply-adds
_STALL_FACTOR = 1.6  # time over the issue slots of all instructions
_SM_REGISTERS = 65536  # registers of an SM
_PROLOGUE_SECONDS = 1.2e-6  # seconds until the first rows arrive, and of the cluster's barriers
_SECOND_LAUNCH_SECONDS = 1.0e-6  # seconds of the launch that adds the splits
_BANDWIDTH_EFFICIENCY = 0.85  # the fraction of the data sheet's bandwidth that a copy reaches
_MAX_CLUSTER = 8  # the most CTAs of a cluster
_TILES_IN_CLUSTER = 8  # tiles of a CTA in a cluster
_CHANNEL_THREADS_IN_CLUSTER = 16  # threads along the channels of a CTA in a cluster


@dataclass(frozen=True, slots=True)
class RowTile:
    """A work partition of depthwise_wgrad_rows.cu."""

    v: int  # channels of a thread
    tw: int  # columns of a tile
    rows: int
    channel_threads: int  # threads of a CTA along the channels
    tiles: int  # concurrent tiles of a CTA
    splits: int  # CTAs that divide the tiles of the same channels
    in_cluster: bool  # whether the splits are one cluster
    ctas_per_sm: int  # CTAs of an SM for which the registers are limited
    prefetch_rows: int  # rows in flight during the multiply-adds of a row

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return -(-self.channel_threads * self.tiles // 32) * 32

    def partial_bytes(self, shape: Shape) -> int:
        """Bytes of a CTA's partial sums."""
        return shape.problem.taps * self.channel_threads * self.v * 4

    def shared(self, shape: Shape) -> int:
        """Bytes of a CTA's shared memory: the partial sums of its tiles, and in a cluster the DSMEM buffer."""
        vectors = -(-self.partial_bytes(shape) // 16 // self.splits) * self.splits if self.in_cluster else 0
        return self.tiles * self.partial_bytes(shape) + 16 * vectors


def serves(op: FusedOp, shape: Shape) -> bool:
    """Whether the kernel serves the convolution."""
    anchor = op.anchor
    assert isinstance(anchor, ConvBackwardFilter)
    p, roles = shape.problem, Roles.of(anchor)
    x, _, dy = anchor.roles
    return (
        shape.group_in == shape.group_out == 1
        and set(p.stride) == {1}
        and set(effective_dilation(anchor.problem)) == {1}
        and max(p.filter) <= _MAX_TAPS
        and p.n * shape.rows * shape.columns < _MAX_TILES
        and all(image_space(roles, t).strides(t)[_COLUMN_AXIS] < _MAX_TILES for t in (x, dy))
    )


def _measured_tile(shape: Shape) -> tuple[int, int] | None:
    """Columns and rows of the first measured tile that divides the image."""
    tiles = MEASURED.register_wgrad.get(shape.problem.filter, ())
    return next(((w, h) for w, h in tiles if shape.columns % w == shape.rows % h == 0), None)


def choose(shape: Shape, device: DeviceSpec, request: TileRequest) -> RowTile:
    """The work partition: the measured tile if one divides the image, and the most threads that fit."""
    p = shape.problem
    v, tw, rows = _thread_tile(shape, request)
    is_small = _registers(shape, v, tw) <= _REGISTERS
    max_threads, registers = (_THREADS, _REGISTERS) if is_small else (_FEWER_THREADS, _MORE_REGISTERS)
    max_threads = min(request.threads or max_threads, max_threads)
    count, total = p.n * -(-shape.columns // tw) * -(-shape.rows // rows), p.groups // v

    channel_threads = request.channel_threads or _divisor(total, _CHANNEL_THREADS_IN_CLUSTER)
    tiles = min(_TILES_IN_CLUSTER, -(-count // 2))
    splits = -(-count // tiles)
    has_vectors = p.taps * channel_threads * v % 4 == 0  # dsmem_store sends vectors of four sums
    fits = 1 < splits <= _MAX_CLUSTER and channel_threads * tiles <= max_threads
    in_cluster = fits and has_vectors and device.compute_capability >= (9, 0)
    if not in_cluster:
        channel_threads = min(request.channel_threads or _divisor(total, max_threads // 7), max_threads)
        tiles = min(max_threads // channel_threads, count)
    while tiles > 1 and tiles * p.taps * channel_threads * v * 4 > device.shared_memory // 2:
        tiles -= 1
    threads = -(-channel_threads * tiles // 32) * 32
    ctas_per_sm = request.ctas_per_sm or max(1, _SM_REGISTERS // (registers * threads))
    ctas_per_sm = min(ctas_per_sm, device.warps * 32 // threads)
    if not in_cluster:
        splits = min(-(-count // tiles), max(1, device.sm_count * ctas_per_sm // -(-total // channel_threads)))
    prefetch_rows = 1 if request.stages == STAGES else request.stages - 1
    return RowTile(v, tw, rows, channel_threads, tiles, splits, in_cluster, ctas_per_sm, prefetch_rows)


def _thread_tile(shape: Shape, request: TileRequest) -> tuple[int, int, int]:
    """Channels, columns and rows of a thread's tile."""
    taps, element_bytes = shape.problem.taps, max(shape.in_bytes, shape.out_bytes)
    max_v = min(shape.in_copy_bytes, shape.out_copy_bytes) // element_bytes
    legal = [v for v in (4, 2, 1) if shape.problem.groups % v == 0 and v <= max_v]
    default_v = max(1, _VEC_BYTES // element_bytes)
    is_legal = request.v in legal and taps * request.v <= _MAX_ACCUMULATORS
    v = request.v if is_legal else next(v for v in legal if v <= default_v)
    tw, rows = _measured_tile(shape) or (4, 4)
    tw, rows = min(request.tw or tw, shape.columns), min(request.rows or rows, shape.rows)
    while rows > 1 and taps * v * tw * rows > _MAX_MULTIPLY_ADDS:
        rows -= 1
    while tw > 1 and _registers(shape, v, tw) > _MORE_REGISTERS:
        tw -= 1
    return v, tw, rows


def _divisor(total: int, limit: int) -> int:
    """The largest divisor of ``total`` up to ``limit``, or ``limit`` itself if that divisor is much smaller."""
    found = next(n for n in range(min(total, limit), 0, -1) if total % n == 0)
    return found if 2 * found >= min(total, limit) else min(total, limit)


def _registers(shape: Shape, v: int, tw: int) -> int:
    """Estimated registers of a thread."""
    p = shape.problem
    return v * p.taps + v * tw * p.filter[0] + v * shape.image_columns(tw) + 22


def seconds(shape: Shape, tile: RowTile, device: DeviceSpec) -> float:
    """Predicted seconds without the launch: arithmetic overlaps with memory traffic; then the splits are added."""
    p, v = shape.problem, tile.v
    count = p.n * -(-shape.columns // tile.tw) * -(-shape.rows // tile.rows)
    read = (tile.rows + p.filter[0] - 1) * shape.image_columns(tile.tw) + tile.rows * tile.tw
    instructions = v * p.taps * tile.tw * tile.rows + read * (v + 1.5) + _OTHER_INSTRUCTIONS
    ctas = -(-p.groups // (tile.channel_threads * v)) * tile.splits
    warps = -(-ctas // device.sm_count) * tile.threads / 32
    issue = device.rate(DataType.FLOAT) / 64 / device.sm_count  # warp instructions per second of an SM
    arithmetic = ceil(count / (tile.splits * tile.tiles)) * warps * instructions * _STALL_FACTOR / issue
    elements = float(p.n * p.groups * shape.rows * shape.columns)
    # Traffic over the bytes of x: two tiles read the rows of a halo.
    halo_factor = 1 + 0.5 * (p.filter[0] - 1) / tile.rows / 2
    memory = elements * (shape.in_bytes * halo_factor + shape.out_bytes) / (device.bandwidth * _BANDWIDTH_EFFICIENCY)
    main_loop = overlapped(arithmetic, memory, 0.25)
    return _PROLOGUE_SECONDS + main_loop + (0.0 if tile.in_cluster else _SECOND_LAUNCH_SECONDS)


def _constants(anchor: ConvBackwardFilter, shape: Shape, tile: RowTile) -> dict[str, int | bool | str]:
    """The compile-time constants of depthwise_wgrad_rows.cu and direct_wgrad_sum.cu."""
    roles, p, (x, _, dy) = Roles.of(anchor), anchor.problem, anchor.roles
    tiles = -(-shape.rows // tile.rows), -(-shape.columns // tile.tw)
    row_interior, column_interior = (
        _interior(p.input[axis], p.pre_padding[axis], p.filter[axis], tiles[axis], step)
        for axis, step in ((0, tile.rows), (1, tile.tw))
    )
    sum_constants = {"REDUCE_WARPS": REDUCE_WARPS, "GROUP_IN": 1, "GROUP_OUT": 1}
    return {
        "R": p.filter[0], "S": p.filter[1], "FLIP": p.flip,
        "V": tile.v, "TW": tile.tw, "ROWS": tile.rows, "CHANNEL_THREADS": tile.channel_threads, "TILES": tile.tiles,
        "THREADS": tile.threads, "CTAS_PER_SM": tile.ctas_per_sm, "PREFETCH_ROWS": tile.prefetch_rows,
        **({"CLUSTER": tile.splits} if tile.in_cluster else sum_constants),
        "PITCH": image_space(roles, x).strides(x)[_COLUMN_AXIS],
        "DY_PITCH": image_space(roles, dy).strides(dy)[_COLUMN_AXIS],
        "INTERIOR_ROW_BEGIN": row_interior[0], "INTERIOR_ROW_END": row_interior[1],
        "INTERIOR_BEGIN": column_interior[0], "INTERIOR_END": column_interior[1],
        "WHOLE_COLUMNS": p.output[1] % tile.tw == 0, "WHOLE_ROWS": p.output[0] % tile.rows == 0,
        "WHOLE_CHANNELS": p.groups % (tile.channel_threads * tile.v) == 0,
        "ImageElement": STORAGE[x.data_type], "DyElement": STORAGE[dy.data_type],
    }  # fmt: skip


def generate(op: FusedOp, shape: Shape, steps: LaunchSequence, tile: RowTile) -> DeviceKernel:
    """The launches of depthwise_wgrad_rows.cu and direct_wgrad_sum.cu with the work partition ``tile``."""
    anchor = op.anchor
    assert isinstance(anchor, ConvBackwardFilter)
    roles, p = Roles.of(anchor), anchor.problem
    x, _, dy = anchor.roles
    compute = COMPUTE_TYPE[anchor.compute_type]
    x_strides, dy_strides = image_space(roles, x).strides(x), image_space(roles, dy).strides(dy)
    channels = tile.channel_threads * tile.v
    channel_blocks = -(-p.groups // channels)
    column_tiles, row_tiles = -(-shape.columns // tile.tw), -(-shape.rows // tile.rows)

    parameters = Parameters(steps.workspace_offsets)
    body = Program(op, parameters, roles.space(roles.output), "t")
    steps.write_epilogue(body, "acc", compute)
    parameters.tensor("image", x)
    parameters.tensor("dy", dy)
    parameters.table({
        "image_n": x_strides[0], "image_h": x_strides[2], "dy_n": dy_strides[0], "dy_h": dy_strides[2],
    })  # fmt: skip
    parameters.table({
        "in_h": p.input[0], "in_w": p.input[1], "out_h": p.output[0], "out_w": p.output[1],
        "in_row": -p.pre_padding[0], "in_column": -p.pre_padding[1], "channels_out": p.groups,
        "tiles": p.n * column_tiles * row_tiles, "tiles_across": column_tiles, "tiles_down": row_tiles,
        "splits": tile.splits, "padded_channels": channel_blocks * channels, "zero": 0,
    })  # fmt: skip
    if not tile.in_cluster:
        partial_bytes = tile.splits * channel_blocks * tile.partial_bytes(shape)
        parameters.workspace_pointer("partial", compute, steps.allocate(partial_bytes))

    variant = f"r{p.filter[0]}s{p.filter[1]}v{tile.v}w{tile.tw}h{tile.rows}x{tile.tiles}c{channels}"
    name = f"conv_wgrad__rows_{variant}{f'j{tile.splits}' if tile.in_cluster else ''}__{op.name}"
    text = kernel_text(
        name,
        ["depthwise_wgrad_rows.cu", *(() if tile.in_cluster else ("direct_wgrad_sum.cu",))],
        variants={"SPLITS_IN_CLUSTER": tile.in_cluster},
        parameters=parameters.text,
        functions=[body.function("epilogue", f"const {compute} (&acc)[1]")],
        constants={**_constants(anchor, shape, tile), "Accum": compute},
    )
    packed = parameters.pack()
    grid = (channel_blocks * tile.splits, 1, 1) if tile.in_cluster else (channel_blocks, tile.splits, 1)
    steps.add_early(Launch(text, "depthwise_wgrad_rows", grid, tile.threads, packed, tile.shared(shape)))
    if not tile.in_cluster:
        sum_grid = (-(-p.groups // 32), p.taps, 1)
        steps.add_early(Launch(text, "direct_wgrad_sum", sum_grid, 32 * REDUCE_WARPS, packed))
    return steps.kernel(name)


def _interior(size: int, padding: int, taps: int, tiles: int, step: int) -> tuple[int, int]:
    """The range of offsets in a tile of x along an axis that lie inside the image for every tile.

    ``tiles``: tiles along the axis. ``step``: results of a tile along the axis.
    """
    last = (tiles - 1) * step - padding  # the first offset of the last tile
    return padding, max(0, min(step + taps - 1, size - last))

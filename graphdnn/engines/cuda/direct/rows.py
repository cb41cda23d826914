"""Depthwise fprop and dgrad by short blocks without shared memory: which convolutions, how work is divided, the kernel.

The kernel is direct_rows.cu. It begins and ends sooner than blocks that walk down an image, and keeps what is under way
close together in memory; a thread's filters have to fit into registers. How far columns are apart is a number of its
text: another batch, height or width compiles nothing, another number of channels does.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from graphdnn.device import DeviceSpec
from graphdnn.engines.cuda.direct.geometry import apart, image_space
from graphdnn.engines.cuda.direct.sides import PackedFilter, Sides, safe_places
from graphdnn.engines.cuda.direct.tile import STAGES, Shape, Wishes
from graphdnn.engines.cuda.generator.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.generator.packs import width_for
from graphdnn.engines.cuda.generator.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.generator.program import Program
from graphdnn.engines.cuda.generator.quotient import magic
from graphdnn.engines.cuda.generator.source import file_text, kernel_text
from graphdnn.engines.cuda.generator.steps import Steps
from graphdnn.enums import DataType
from graphdnn.fusion.fused import FusedOp

_PIECE = 8  # bytes of channels that one access reads
_WEIGHTS = 100  # filter elements of a thread
_LONGEST = 7  # taps along an axis
_MOST = 232  # registers of a thread, by the estimate
_PRODUCTS = 3000  # of a thread, each an instruction of the text
_WIDTHS = (4, 7)  # columns of a thread
_MOST_ROWS = 7
_MOST_TAPS = 9
_THREADS = 256  # of a block
_FEWER = 128  # of wide tiles of several rows: their registers leave room for an odd number of blocks of so many
_AROUND = 130  # instructions of a thread beside its filters, loads and sums
_STARTING = 0.3e-6  # seconds until the first loads are there
_ALONE = 3.0  # times the issue slots that a thread's instructions take where nothing else hides their waits
_THREADS_BUSY = 768  # of a multiprocessor that keep memory busy
_COPY_SHARE = 0.85  # of the data sheet's bandwidth that a copy reaches
_MEASURED = 0.9  # of the model's time: mean of 9 layers on an H200, from launch to launch
_LAUNCHED = 1.5e-6  # seconds of that, which are the launch's
_LEAST = 0.5e-6
_RESIDENT = 65536  # registers of a multiprocessor
_COUNTED = 2**31  # threads, and places
_WHOLE_PIECE = 16  # bytes, of which the copy unit asks for whole ones
_ACROSS = 3  # the columns' axis: from one to the next it is as far in all images with as many channels


@dataclass(frozen=True, slots=True)
class Rows:
    """A division of the work."""

    v: int  # channels of a thread
    tw: int  # columns
    rows: int
    threads: int
    blocks: int  # of a multiprocessor, which registers are limited for
    ahead: int  # rows under way while one is added


def serves(sides: Sides) -> bool:
    shape, p = sides.shape, sides.shape.problem
    return (
        shape.group_in == shape.group_out == 1
        and set(p.stride) == {1}
        and max(p.filter) <= _LONGEST
        and p.n * p.groups * shape.rows * shape.columns < _COUNTED
        and image_space(sides.roles, sides.gathered).strides(sides.gathered)[_ACROSS] < _COUNTED
    )


def _registers(shape: Shape, v: int, tw: int) -> int:
    """Of a thread, about."""
    r = shape.problem.filter[0]
    return v * shape.problem.taps + r * tw * v + shape.wide(tw) * max(1, v * shape.in_bytes // 4) + 32


def is_faster(shape: Shape) -> bool:
    """Whether it beats a walk down the image: as measured for 16-bit images, 3 x 3 and smaller, that tiles divide."""
    p = shape.problem
    return (
        shape.in_bytes == 2
        and p.taps <= _MOST_TAPS
        and p.groups % 2 == 0
        and shape.in_piece >= 2 * 2
        and bool(_widths(shape))
    )


def _widths(shape: Shape) -> list[int]:
    """Columns of a thread that divide the image's."""
    return [tw for tw in _WIDTHS if shape.columns % tw == 0]


def choose(shape: Shape, device: DeviceSpec, wishes: Wishes) -> Rows:
    """The division, as far as knobs leave it open. Of those, NUM_C_PER_BLOCK has no part in it."""
    p = shape.problem
    widest = max(1, min(_PIECE, shape.in_piece) // shape.in_bytes)
    fitting = [v for v in (8, 4, 2, 1) if p.groups % v == 0 and v * shape.in_bytes <= shape.in_piece]
    v = wishes.v if wishes.v in fitting else next(v for v in fitting if v <= min(2, widest))
    if wishes.tw or not _widths(shape):
        widths = [min(wishes.tw or _WIDTHS[0], max(1, shape.columns))]
    else:
        widths = _widths(shape)
    found = [_tile(shape, device, wishes, v, tw, rows) for tw in widths for rows in _heights(shape, wishes)]
    return min(found, key=lambda tile: seconds(shape, tile, device))


def _heights(shape: Shape, wishes: Wishes) -> list[int]:
    """Rows of a thread: those that divide the image's, as the others branch."""
    if wishes.rows:
        return [min(wishes.rows, shape.rows)]
    return [rows for rows in range(1, _MOST_ROWS + 1) if shape.rows % rows == 0]


def _tile(shape: Shape, device: DeviceSpec, wishes: Wishes, v: int, tw: int, rows: int) -> Rows:
    while tw > 1 and _registers(shape, v, tw) > _MOST:
        tw -= 1
    rows = min(rows, max(1, _PRODUCTS // (shape.problem.taps * v * tw)))
    taken = -(-min(255, _registers(shape, v, tw)) // 8) * 8
    threads = wishes.threads or (_FEWER if tw > _WIDTHS[0] and rows > 1 else _THREADS)
    most = device.warps * 32 // threads
    blocks = min(wishes.blocks or max(1, _RESIDENT // (taken * threads)), most)
    return Rows(v, tw, rows, threads, blocks, 1 if wishes.stages == STAGES else wishes.stages - 1)


def seconds(shape: Shape, tile: Rows, device: DeviceSpec) -> float:
    """Without the launch: a thread's instructions, alone and beside others in rounds of blocks, or memory's time."""
    p, v = shape.problem, tile.v
    wide = shape.wide(tile.tw)
    loads = (tile.rows + p.filter[0] - 1) * wide * (v + 5)
    instructions = _AROUND + 20 * v + loads + tile.rows * tile.tw * (v * (p.taps + 3.5) + 3)
    resident = tile.blocks * tile.threads
    count = p.n * -(-shape.rows // tile.rows) * -(-shape.columns // tile.tw) * (p.groups // v)
    rounds = count / (device.sm_count * resident)
    together = rounds + 0.3 * (ceil(rounds) - rounds) if rounds > 1 else rounds
    issue = device.rate(DataType.FLOAT) / 64 / device.sm_count  # warp instructions per second of a multiprocessor
    arithmetic = _STARTING + _ALONE * instructions / issue * 4 + together * resident / 32 * instructions / issue
    elements = float(p.n * p.groups * shape.rows * shape.columns)
    again = 1 + 0.16 * (p.filter[0] - 1) / tile.rows / 2  # rows that neighbouring blocks read as well
    moved = elements * (shape.in_bytes * again + shape.out_bytes) + shape.others
    few = float(max(1.0, _THREADS_BUSY / resident) ** 0.1)
    memory = moved / (device.bandwidth * _COPY_SHARE) * few
    measured = _MEASURED * (max(arithmetic, memory) + 0.25 * min(arithmetic, memory))
    return max(_LEAST, measured - _LAUNCHED)


def generate(op: FusedOp, sides: Sides, steps: Steps, tile: Rows) -> DeviceKernel:
    roles, shape, p = sides.roles, sides.shape, sides.roles.problem
    dgrad, distances = shape.is_dgrad, apart(p)
    filter = PackedFilter.of(sides, steps)
    in_space, out_space = image_space(roles, sides.gathered), image_space(roles, sides.output)
    compute = COMPUTE_TYPE[roles.op.compute_type]
    parameters = Parameters(steps.places)
    width = min(tile.v, width_for(out_space, steps.epilogue_tensors(), 1))
    body = Program(
        op, parameters, out_space, "t", width=width, vector_axis=1, keeps=True, written=(_ACROSS,), clips="clip_halves"
    )
    steps.finish(body, "acc", compute)

    image_in, image_out = (p.output, p.input) if dgrad else (p.input, p.output)
    lanes, tiles, row_blocks = p.groups // tile.v, -(-shape.columns // tile.tw), -(-shape.rows // tile.rows)
    parameters.tensor("gathered", sides.gathered)
    parameters.tensor("filter", filter.spec)
    strides = in_space.strides(sides.gathered)
    parameters.table({"gathered_n": strides[0], "gathered_h": strides[2]})
    sign = 1 if dgrad else -1
    parameters.table({
        "in_h": image_in[0], "in_w": image_in[1], "out_h": image_out[0], "out_w": image_out[1],
        "in_row": sign * p.pre_padding[0], "in_column": sign * p.pre_padding[1], "images": p.n,
        "lanes": lanes, "lanes_magic": magic(lanes), "tiles": tiles, "tiles_magic": magic(tiles),
        "row_blocks": row_blocks, "row_blocks_magic": magic(row_blocks), "nothing": 0,
        "first_blocks": steps.device.sm_count * tile.blocks,
    })  # fmt: skip

    safe_rows, safe_columns = safe_places(sides, 0, tile.rows), safe_places(sides, 1, tile.tw)
    how = f"r{p.filter[0]}s{p.filter[1]}v{tile.v}w{tile.tw}h{tile.rows}"
    name = f"conv_{roles.direction}__rows_{how}__{op.name}"
    text = kernel_text(
        name,
        ["next_launch.cuh", "whole_lines.cuh", "load_if.cuh", "quotient.cuh", "direct_remainder.cuh", "direct_rows.cu"],
        parameters=parameters.text,
        functions=[
            file_text("clip_halves.cuh"), body.keeping(),
            body.function("epilogue", f"const Kept& kept, const {compute} (&acc)[{width}]"),
        ],
        constants={
            "R": p.filter[0], "S": p.filter[1], "DILATION_H": distances[0], "DILATION_W": distances[1],
            "DGRAD": dgrad, "FLIP": p.flip, "FILTER_R": filter.strides[2], "FILTER_S": filter.strides[3],
            "FILTER_CHUNK": filter.chunk(tile.v * p.taps),
            "V": tile.v, "TW": tile.tw, "ROWS": tile.rows, "THREADS": tile.threads, "BLOCKS": tile.blocks,
            "AHEAD": tile.ahead, "Offset": "int" if sides.gathered.span < _COUNTED // 2 else "long long",
            "ASKS": set(distances) == {1} and shape.in_piece == _WHOLE_PIECE and strides[_ACROSS] == p.groups,
            "SPAN": -(-tile.threads // lanes) * tile.tw + p.filter[1] - 1,
            "EXACT": image_out[1] % (tile.tw * distances[1]) == 0,
            "PITCH": strides[_ACROSS], "SAFE_ROW_FROM": safe_rows[0], "SAFE_ROW_TO": safe_rows[1],
            "SAFE_FROM": safe_columns[0], "SAFE_TO": safe_columns[1],
            "WHOLE": image_out[0] % (tile.rows * distances[0]) == 0, "WIDTH": width,
            "Gathered": STORAGE[sides.gathered.data_type],
            "Filter": STORAGE[filter.spec.data_type],
            "Accumulator": compute,
        },
    )  # fmt: skip
    threads = shape.problem.n * row_blocks * tiles * lanes
    steps.add_early(Launch(text, "direct_rows", (-(-threads // tile.threads), 1, 1), tile.threads, parameters.pack()))
    return steps.kernel(name)

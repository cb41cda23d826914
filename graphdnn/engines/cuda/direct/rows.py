"""Depthwise fprop and dgrad by short blocks without shared memory: which convolutions, how work is divided, the kernel.

The kernel is direct_rows.cu. It begins and ends sooner than blocks that walk down an image, and keeps what is under way
close together in memory; a thread's filters have to fit into registers.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphdnn.device import DeviceSpec
from graphdnn.engines.cuda.direct.geometry import apart, image_space
from graphdnn.engines.cuda.direct.sides import PackedFilter, Sides
from graphdnn.engines.cuda.direct.tile import STAGES, Shape, Wishes
from graphdnn.engines.cuda.generator.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.generator.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.generator.program import Program, width_for
from graphdnn.engines.cuda.generator.quotient import magic
from graphdnn.engines.cuda.generator.source import kernel_text
from graphdnn.engines.cuda.generator.steps import Steps
from graphdnn.fusion.fused import FusedOp

_PIECE = 8  # bytes of channels that one access reads
_WEIGHTS = 100  # filter elements of a thread
_LONGEST = 7  # taps along an axis
_MOST = 232  # registers of a thread, by the estimate
_PRODUCTS = 3000  # of a thread, each an instruction of the text
_THREADS = 128
_RESIDENT = 65536  # registers of a multiprocessor
_COUNTED = 2**31  # threads, and places


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
    )


def _registers(shape: Shape, v: int, tw: int) -> int:
    """Of a thread, about."""
    r = shape.problem.filter[0]
    return v * shape.problem.taps + r * tw * v + shape.wide(tw) * max(1, v * shape.in_bytes // 4) + 32


def choose(shape: Shape, device: DeviceSpec, wishes: Wishes) -> Rows:
    """The division, as far as knobs leave it open. Of those, NUM_C_PER_BLOCK has no part in it."""
    p = shape.problem
    widest = max(1, min(_PIECE, shape.in_piece) // shape.in_bytes)
    fitting = [v for v in (8, 4, 2, 1) if p.groups % v == 0 and v * shape.in_bytes <= shape.in_piece]
    v = wishes.v if wishes.v in fitting else next(v for v in fitting if v <= widest and v * p.taps <= _WEIGHTS)
    tw = min(wishes.tw or 4, max(1, shape.columns))
    while tw > 1 and _registers(shape, v, tw) > _MOST:
        tw -= 1
    most = max(1, _PRODUCTS // (p.taps * v * tw))
    rows = min(wishes.rows or 7, shape.rows, most)
    threads = wishes.threads or _THREADS
    taken = -(-min(255, _registers(shape, v, tw)) // 8) * 8
    blocks = wishes.blocks or max(1, min(_RESIDENT // (taken * threads), device.warps * 32 // threads))
    ahead = 1 if wishes.stages == STAGES else wishes.stages - 1
    return Rows(v, tw, rows, threads, min(blocks, device.warps * 32 // threads), ahead)


def _safe(sides: Sides, tile: Rows) -> tuple[int, int]:
    """The gathered columns of a tile, counted from its first, that are inside the image for every tile."""
    p, wide = sides.roles.problem, sides.shape.wide(tile.tw)
    if set(apart(p)) != {1}:
        return 0, 0
    size = p.output[1] if sides.shape.is_dgrad else p.input[1]
    first = p.pre_padding[1] - p.filter[1] + 1 if sides.shape.is_dgrad else -p.pre_padding[1]
    last = first + (-(-sides.shape.columns // tile.tw) - 1) * tile.tw  # the first column of the last tile
    return max(0, -first), max(0, min(wide, size - last))


def generate(op: FusedOp, sides: Sides, steps: Steps, tile: Rows) -> DeviceKernel:
    roles, shape, p = sides.roles, sides.shape, sides.roles.problem
    dgrad, distances = shape.is_dgrad, apart(p)
    filter = PackedFilter.of(sides, steps)
    in_space, out_space = image_space(roles, sides.gathered), image_space(roles, sides.output)
    compute = COMPUTE_TYPE[roles.op.compute_type]
    parameters = Parameters(steps.places)
    width = min(tile.v, width_for(out_space, steps.epilogue_tensors(), 1))
    body = Program(op, parameters, out_space, "t", width=width, vector_axis=1, keeps=True)
    steps.finish(body, "acc", compute)

    image_in, image_out = (p.output, p.input) if dgrad else (p.input, p.output)
    lanes, tiles, row_blocks = p.groups // tile.v, -(-shape.columns // tile.tw), -(-shape.rows // tile.rows)
    parameters.tensor("gathered", sides.gathered)
    parameters.tensor("filter", filter.spec)
    for name, value in zip(("n", "c", "h", "w"), in_space.strides(sides.gathered), strict=True):
        if name != "c":
            parameters.integer(f"gathered_{name}", value)
    sign = 1 if dgrad else -1
    for name, value in {
        "in_h": image_in[0], "in_w": image_in[1], "out_h": image_out[0], "out_w": image_out[1],
        "in_row": sign * p.pre_padding[0], "in_column": sign * p.pre_padding[1], "images": p.n,
        "lanes": lanes, "lanes_magic": magic(lanes), "tiles": tiles, "tiles_magic": magic(tiles),
        "row_blocks": row_blocks, "row_blocks_magic": magic(row_blocks),
    }.items():  # fmt: skip
        parameters.integer(name, value)

    safe = _safe(sides, tile)
    how = f"r{p.filter[0]}s{p.filter[1]}v{tile.v}w{tile.tw}h{tile.rows}"
    name = f"conv_{roles.direction}__rows_{how}__{op.name}"
    text = kernel_text(
        name,
        ["next_launch.cuh", "load_if.cuh", "quotient.cuh", "direct_remainder.cuh", "direct_rows.cu"],
        parameters=parameters.text,
        functions=[body.keeping(), body.function("epilogue", f"const Kept& kept, const {compute} (&acc)[{width}]")],
        constants={
            "R": p.filter[0], "S": p.filter[1], "DILATION_H": distances[0], "DILATION_W": distances[1],
            "DGRAD": dgrad, "FLIP": p.flip, "FILTER_R": filter.strides[2], "FILTER_S": filter.strides[3],
            "FILTER_CHUNK": filter.chunk(tile.v * p.taps),
            "V": tile.v, "TW": tile.tw, "ROWS": tile.rows, "THREADS": tile.threads, "BLOCKS": tile.blocks,
            "AHEAD": tile.ahead, "Offset": "int" if sides.gathered.span < _COUNTED // 2 else "long long",
            "EXACT": image_out[1] % (tile.tw * distances[1]) == 0,
            "SAFE_FROM": safe[0], "SAFE_TO": safe[1],
            "WHOLE": image_out[0] % (tile.rows * distances[0]) == 0, "WIDTH": width,
            "Gathered": STORAGE[sides.gathered.data_type],
            "Filter": STORAGE[filter.spec.data_type],
            "Accumulator": compute,
        },
    )  # fmt: skip
    threads = shape.problem.n * row_blocks * tiles * lanes
    steps.add_early(Launch(text, "direct_rows", (-(-threads // tile.threads), 1, 1), tile.threads, parameters.pack()))
    return steps.kernel(name)

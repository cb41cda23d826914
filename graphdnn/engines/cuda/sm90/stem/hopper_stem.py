"""Products of warpgroups for first layers (hopper_stem.cu): how the work is divided, and the map of the image."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from graphdnn.cuda.tensor_map import TensorMap
from graphdnn.device.multiprocessor import RESERVED
from graphdnn.enums import DataType
from graphdnn.operations.conv_problem import ConvProblem

_WIDEST = 96  # channels of a warpgroup's product
_FEW = 64  # channels, with whose sums four warpgroups have registers enough
_STAGES = 4
_ROWS = 8  # output rows of a tile, at most
_BOX = 256  # the longest axis of a copy
_UNIT = 8  # bytes of what the copy unit counts
_SIZE = 2  # bytes of an element


@dataclass(frozen=True, slots=True)
class Warpgroups:
    """A division of the work; elements, unless said otherwise."""

    columns: int  # channels of a block
    threads: int
    rows: int  # output rows of a tile
    stages: int
    shared: int  # bytes


@lru_cache(maxsize=64)
def divide(
    p: ConvProblem,
    slices: int,
    pitch: int,
    panels: int,
    filter_size: int,
    is_bulk: bool,
    sms: int,
    memory: int,
    wanted_rows: int,
) -> Warpgroups | None:
    """None where nothing fits. ``slices``: of the image that a result reads. ``panels``: of 128 bytes of the sum of a
    channel. ``filter_size``: of an element.
    """
    across = -(-p.k // _WIDEST)
    columns = -(-p.k // across // 32) * 32
    fixed = panels * columns * 128 + -(-columns * slices * p.taps * p.c * filter_size // 16) * 16 + RESERVED
    found = []
    for rows in (wanted_rows,) if wanted_rows else range(1, min(_ROWS, p.output[0]) + 1):
        in_rows = (rows - 1) * p.stride[0] + p.filter[0]
        stage = slices * in_rows * pitch * _SIZE
        stages = min(_STAGES, (memory - fixed) // (stage + 16))
        if stages < 2 or (is_bulk and in_rows > _BOX):
            continue
        tiles = p.n * -(-p.output[0] // rows)
        turns = -(-tiles // max(1, sms // across)) * rows
        # Rows that two tiles read come from the cache, but threads copy them twice; few stages wait for memory.
        again = in_rows / (rows * p.stride[0]) - 1
        slower = 1 + (0.15 if is_bulk else 0.4) * again + (0.1 if stages < 3 else 0)
        shared = fixed - RESERVED + stages * (stage + 16)
        found.append((turns * slower, Warpgroups(columns, 512 if columns <= _FEW else 384, rows, stages, shared)))
    return min(found, key=lambda each: each[0], default=(0, None))[1]


def is_copied_in_bulk(p: ConvProblem, pitch: int, strides: tuple[int, ...], alignment: int) -> bool:
    """Whether the copy unit takes the rows: what it counts are 8 bytes, and images and rows begin at 16."""
    row = p.input[1] * p.c * _SIZE
    return (
        row % _UNIT == 0
        and pitch * _SIZE <= _BOX * _UNIT
        and alignment % 16 == 0
        and all(stride * _SIZE % 16 == 0 for stride in (strides[0], *strides[2:-1]))
    )


def image_map(p: ConvProblem, pitch: int, strides: tuple[int, ...], rows: int) -> TensorMap:
    """Of x as rows of 8-byte numbers: a box is the rows of a tile with what lies around them, of all its slices."""
    in_rows = (rows - 1) * p.stride[-2] + p.filter[-2]
    return TensorMap(
        DataType.INT64,
        (p.input[-1] * p.c * _SIZE // _UNIT, *reversed(p.input[:-1]), p.n),
        tuple(stride * _SIZE or 16 for stride in (*reversed(strides[2:-1]), strides[0])),
        box=(pitch * _SIZE // _UNIT, in_rows, *p.filter[:-2], 1),
        row=0,
    )

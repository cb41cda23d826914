"""hopper_stem.cu: the tile of a CTA, and the tensor map of the image."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from graphdnn.cuda.tensor_map import TensorMap
from graphdnn.device.multiprocessor import RESERVED
from graphdnn.engines.cuda.sm90.fitted_constants import STEM
from graphdnn.enums import DataType
from graphdnn.operations.conv_problem import ConvProblem

_MAX_COLUMNS = 96  # channels of a CTA
_FEW_COLUMNS = 64  # channels whose accumulators leave registers for a fourth warpgroup
_STAGES = 4
_MAX_ROWS = 8  # output rows of a tile, at most
_MAX_BOX = 256  # elements of a TMA box along an axis
_TMA_UNIT = 8  # bytes of an element of the tensor map
_SIZE = 2  # bytes of an element


@dataclass(frozen=True, slots=True)
class Warpgroups:
    """The tile of a CTA and its threads."""

    columns: int  # channels of a CTA
    threads: int
    rows: int  # output rows of a tile
    stages: int
    shared: int  # bytes


@lru_cache(maxsize=64)
def divide(
    p: ConvProblem,
    slices: int,
    row_elements: int,
    filter_slabs: int,
    filter_size: int,
    loads_by_tma: bool,
    sms: int,
    memory: int,
    requested_rows: int,
) -> Warpgroups | None:
    """The fastest division of the work; None if none fits.

    ``slices``: depth slices of the image that a result reads. ``row_elements``: elements from row to row.
    ``filter_slabs``: slabs of 128 bytes of K. ``filter_size``: bytes of a filter's element. ``memory``: bytes of shared
    memory.
    """
    tiles_n = -(-p.k // _MAX_COLUMNS)
    columns = -(-p.k // tiles_n // 32) * 32
    fixed = filter_slabs * columns * 128 + -(-columns * slices * p.taps * p.c * filter_size // 16) * 16 + RESERVED
    candidates = []
    for rows in (requested_rows,) if requested_rows else range(1, min(_MAX_ROWS, p.output[0]) + 1):
        in_rows = (rows - 1) * p.stride[0] + p.filter[0]
        stage = slices * in_rows * row_elements * _SIZE
        stages = min(_STAGES, (memory - fixed) // (stage + 16))
        if stages < 2 or (loads_by_tma and in_rows > _MAX_BOX):
            continue
        tiles = p.n * -(-p.output[0] // rows)
        tile_rows = -(-tiles // max(1, sms // tiles_n)) * rows
        # Tiles share rows, which the second one loads from L2. With few stages, consumers wait for memory.
        reload_share = in_rows / (rows * p.stride[0]) - 1
        reload_penalty = STEM.tma_reload_penalty if loads_by_tma else STEM.thread_reload_penalty
        penalty = 1 + reload_penalty * reload_share + (STEM.few_stages_penalty if stages < 3 else 0)
        shared = fixed - RESERVED + stages * (stage + 16)
        candidates.append(
            (tile_rows * penalty, Warpgroups(columns, 512 if columns <= _FEW_COLUMNS else 384, rows, stages, shared))
        )
    return min(candidates, key=lambda each: each[0], default=(0, None))[1]


def is_copied_in_bulk(p: ConvProblem, row_elements: int, strides: tuple[int, ...], alignment: int) -> bool:
    """Whether TMA loads the rows: they are whole elements of 8 bytes, and images and rows are aligned to 16 bytes."""
    row = p.input[1] * p.c * _SIZE
    return (
        row % _TMA_UNIT == 0
        and row_elements * _SIZE <= _MAX_BOX * _TMA_UNIT
        and alignment % 16 == 0
        and all(stride * _SIZE % 16 == 0 for stride in (strides[0], *strides[2:-1]))
    )


def image_map(p: ConvProblem, row_elements: int, strides: tuple[int, ...], rows: int) -> TensorMap:
    """x as rows of 8-byte elements. A box has the rows of a tile with their padding, of all its depth slices."""
    in_rows = (rows - 1) * p.stride[-2] + p.filter[-2]
    return TensorMap(
        DataType.INT64,
        (p.input[-1] * p.c * _SIZE // _TMA_UNIT, *reversed(p.input[:-1]), p.n),
        tuple(stride * _SIZE or 16 for stride in (*reversed(strides[2:-1]), strides[0])),
        box=(row_elements * _SIZE // _TMA_UNIT, in_rows, *p.filter[:-2], 1),
        row=0,
    )

"""The constants and parameters that resample_pool.cu and its gradient share: windows, axes and accesses."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Protocol

from graphdnn.engines.cuda.codegen.fast_division import count_type, magic
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, Parameters
from graphdnn.engines.cuda.resample.pool import Pool
from graphdnn.enums import DataType, NanPropagation, ResampleMode
from graphdnn.operations import ResampleSpec

THREADS = 128


class Tile(Protocol):
    """Elements of an access and of a thread, and CTAs of an SM."""

    @property
    def vec_width(self) -> int: ...
    @property
    def columns(self) -> int: ...
    @property
    def x_vec_width(self) -> int: ...
    @property
    def halo(self) -> int: ...
    @property
    def blocks(self) -> int: ...


def add_sizes(parameters: Parameters, pool: Pool, steps: Sequence[int]) -> None:
    """The run-time parameters; ``steps``: threads along each coordinate."""
    row, column = pool.row, pool.column
    parameters.integer("count", prod(steps))
    parameters.integers("steps", steps)
    parameters.integers("magic", [magic(size) for size in steps])
    parameters.integers("image", (row.x.size, column.x.size))
    parameters.integers("outputs", (row.y.size, column.y.size))
    parameters.integer("top", row.before)


def constants(spec: ResampleSpec, pool: Pool, tile: Tile, steps: Sequence[int], compute: DataType) -> dict[str, Any]:
    row, column = pool.row, pool.column
    return {
        "RANK": len(pool.axes),
        "ROW": pool.place(row),
        "COL": pool.place(column),
        "ALONG": pool.along,
        "WINDOW_H": row.window,
        "WINDOW_W": column.window,
        "STRIDE_H": row.stride,
        "STRIDE_W": column.stride,
        "IS_MAXIMUM": spec.mode is ResampleMode.MAXPOOL,
        "EXCLUDING": spec.mode is ResampleMode.AVGPOOL_EXCLUDE_PADDING,
        "PROPAGATE": spec.nan_propagation is NanPropagation.PROPAGATE_NAN,
        "VEC_WIDTH": tile.vec_width,
        "COLS": tile.columns,
        "X_VEC_WIDTH": tile.x_vec_width,
        "HALO": tile.halo,
        "THREADS": THREADS,
        "BLOCKS": tile.blocks,
        "Compute": COMPUTE_TYPE[compute],
        "Count": count_type(prod(steps)),
    }

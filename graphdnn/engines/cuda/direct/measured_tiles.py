"""What was measured of direct convolutions: measured_h200.json beside this file.

The file has tiles, which take precedence over the tiles that the model would choose, and times, which the constants of
the model are fitted to. The kernel is always the one with the least predicted time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphdnn.engines.cuda.direct.direct_shape import Shape

FILE = Path(__file__).with_name("measured_h200.json")
HALF = 2  # bytes of an element: the type that tiles were measured with

Pair = tuple[int, int]
Class = tuple[str, tuple[int, ...], tuple[int, ...], int]


@dataclass(frozen=True, slots=True)
class RingTile:
    """A tile of the row ring. 0 leaves a number to the model."""

    v: int  # channels of a thread
    tw: int  # columns of a thread
    lanes: int  # threads along the channels; for small images the most
    threads: int  # of a block at most
    rows: int  # of a block
    stages: int
    share: float  # of the model's time that the tile takes


@dataclass(frozen=True, slots=True)
class SmallRingTile:
    """A tile of the row ring for images of ``columns`` columns, and of down to half as many."""

    directions: tuple[str, ...]
    filter: Pair
    columns: int
    tile: RingTile


@dataclass(frozen=True, slots=True)
class MeasuredTiles:
    """The contents of the file."""

    ring: Mapping[tuple[str, tuple[int, ...], tuple[int, ...]], RingTile]
    small_ring: tuple[SmallRingTile, ...]
    ring_shares: Mapping[Class, float]  # measured time over the model's, of tiles that the model chooses
    tensor_cores: Mapping[Class, tuple[int, int, int, int]]  # pairs, warps, lines, blocks
    tensor_core_wgrad: Mapping[Class, tuple[int, int, int, int]]  # warps, across, lines, blocks
    register_wgrad: Mapping[tuple[int, ...], tuple[Pair, ...]]  # columns and rows; the first that divides is taken
    tensor_core_slots: Mapping[str, float]  # issue slots of fprop and dgrad on tensor cores, by what takes them
    tensor_core_wgrad_slots: Mapping[str, float]  # the same of filter gradients

    @classmethod
    def read(cls, file: Path = FILE) -> MeasuredTiles:
        """Raises ValueError where a table does not have as many rows as its header says."""
        tables = json.loads(file.read_text(encoding="utf-8"))
        for name, table in tables.items():
            if table["pairs"] != len(table["rows"]):
                raise ValueError(f"{file.name}: {name} has {len(table['rows'])} rows and says {table['pairs']} pairs")

        def rows(name: str) -> list[dict[str, Any]]:
            return list(tables[name]["rows"])

        ring: dict[tuple[str, tuple[int, ...], tuple[int, ...]], RingTile] = {
            (row["direction"], _pair(row["filter"]), _pair(row["stride"])): _ring(row) for row in rows("ring_tiles")
        }
        small = tuple(
            SmallRingTile(tuple(row["directions"]), _pair(row["filter"]), row["columns"], _ring(row))
            for row in rows("small_ring_tiles")
        )
        forward = {
            _class(row): (row["pairs"], row["warps"], row["lines"], row["blocks"]) for row in rows("tensor_core_tiles")
        }
        gradient = {
            _class(row): (row["warps"], row["across"], row["lines"], row["blocks"])
            for row in rows("tensor_core_wgrad_tiles")
        }
        registers: dict[tuple[int, ...], tuple[Pair, ...]] = {
            _pair(row["filter"]): tuple(_pair(tile) for tile in row["tiles"]) for row in rows("register_wgrad_tiles")
        }
        return cls(
            ring,
            small,
            {_class(row): row["share"] for row in rows("ring_shares")},
            forward,
            gradient,
            registers,
            dict(tables["tensor_core_times"]["constants"]),
            dict(tables["tensor_core_wgrad_times"]["constants"]),
        )


def _pair(values: list[int]) -> Pair:
    first, second = values
    return first, second


def _class(row: Mapping[str, Any]) -> Class:
    return row["direction"], _pair(row["filter"]), _pair(row["stride"]), row["group"]


def _ring(row: Mapping[str, Any]) -> RingTile:
    return RingTile(*(row[name] for name in ("v", "tw", "lanes", "threads", "rows", "stages", "share")))


def class_of(shape: Shape) -> Class:
    return shape.direction, shape.problem.filter, shape.problem.stride, shape.group_in


MEASURED = MeasuredTiles.read()

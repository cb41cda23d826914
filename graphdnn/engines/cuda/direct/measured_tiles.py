"""Measured tiles and times of direct convolutions: measured_h200.json beside this file.

A measured tile takes precedence over the tile that the cost model would choose. The model's constants are fitted to the
measured times. The choice among kernels always follows the predicted times.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphdnn.engines.cuda.direct.direct_shape import Shape

FILE = Path(__file__).with_name("measured_h200.json")
HALF_BYTES = 2  # bytes of an element of the measured problems

Pair = tuple[int, int]
Class = tuple[str, tuple[int, ...], tuple[int, ...], int]  # direction, filter, stride, channels of a group


@dataclass(frozen=True, slots=True)
class RingTile:
    """A tile of the row ring; the cost model chooses values that are 0."""

    v: int  # channels of a thread
    tw: int  # columns of a thread
    channel_threads: int  # threads along the channels; of SmallRingTile, the most
    threads: int  # the most threads of a CTA
    rows: int  # rows of a CTA's segment
    stages: int
    time_ratio: float  # measured time over the model's


@dataclass(frozen=True, slots=True)
class SmallRingTile:
    """A tile of the row ring for images with more than ``columns / 2`` and at most ``columns`` columns."""

    directions: tuple[str, ...]
    filter: Pair
    columns: int
    tile: RingTile


@dataclass(frozen=True, slots=True)
class MeasuredTiles:
    """The contents of the file."""

    ring: Mapping[tuple[str, tuple[int, ...], tuple[int, ...]], RingTile]
    small_ring: tuple[SmallRingTile, ...]
    ring_time_ratios: Mapping[Class, float]  # measured time over the model's, of tiles that the model chooses
    tensor_cores: Mapping[Class, tuple[int, int, int, int]]  # channel pairs, warps, steps of a stage, CTAs of an SM
    tensor_core_wgrad: Mapping[Class, tuple[int, int, int, int]]  # warps, column warps, steps, CTAs of an SM
    register_wgrad: Mapping[tuple[int, ...], tuple[Pair, ...]]  # columns and rows
    tensor_core_slots: Mapping[str, float]  # issue slots of fprop and dgrad on tensor cores
    tensor_core_wgrad_slots: Mapping[str, float]  # the same of filter gradients

    @classmethod
    def read(cls, file: Path = FILE) -> MeasuredTiles:
        """The contents of ``file``.

        Raises:
            ValueError: A table has more or fewer rows than its header says.
        """
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
            _class(row): (row["channel_pairs"], row["warps"], row["steps_per_stage"], row["ctas_per_sm"])
            for row in rows("tensor_core_tiles")
        }
        gradient = {
            _class(row): (row["warps"], row["column_warps"], row["steps_per_stage"], row["ctas_per_sm"])
            for row in rows("tensor_core_wgrad_tiles")
        }
        registers: dict[tuple[int, ...], tuple[Pair, ...]] = {
            _pair(row["filter"]): tuple(_pair(tile) for tile in row["tiles"]) for row in rows("register_wgrad_tiles")
        }
        return cls(
            ring,
            small,
            {_class(row): row["time_ratio"] for row in rows("ring_time_ratios")},
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
    return RingTile(*(row[name] for name in ("v", "tw", "channel_threads", "threads", "rows", "stages", "time_ratio")))


def class_of(shape: Shape) -> Class:
    """The key of the measured tables: direction, filter, stride, and channels of a group."""
    return shape.direction, shape.problem.filter, shape.problem.stride, shape.group_in


MEASURED = MeasuredTiles.read()

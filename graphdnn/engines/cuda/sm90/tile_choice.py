"""The choice of a tile, its stages and parts on compute capability 9.0, by a model of a block's clocks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import NamedTuple

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.sm90.device_limits import Machine
from graphdnn.engines.cuda.sm90.gemm_shape import Sizes
from graphdnn.engines.cuda.sm90.gemm_time import (
    CLUSTERS,
    Division,
    Least,
    Read,
    Work,
    clock_rate,
    clusters_at_once,
    idle_seconds,
    is_slower,
    seconds_of,
    summing,
)
from graphdnn.engines.cuda.sm90.tile import MOST_STAGES, PANEL, ROW, SMALLEST_RING, TILES, USUAL_STAGES, Tile
from graphdnn.engines.cuda.sm90.tile_cycles import TileClocks, copied_clocks
from graphdnn.engines.engine import Knob, Knobs
from graphdnn.enums import KnobType

_ROUNDING = 1 + 1e-9  # a bound may be as high as what it bounds
_LONG = 2.5  # times what idle multiprocessors save of a launch, beyond which their share of the work is more than that
_LEAST_STAGES = 3  # of what is chosen by the shape

TILE = Knob(KnobType.TILE_SIZE, 0, len(TILES), 1, 0, "0: chosen by the shape; else the number of a tile, if it serves")
STAGES = Knob(
    KnobType.STAGES,
    0,
    MOST_STAGES,
    1,
    0,
    "stages of the ring in shared memory, 2 at least, if they fit; 0: as many as fit",
)
PARTS = Knob(KnobType.SPLIT_K, 0, 128, 1, 0, "parts of the sum, computed side by side; 0: chosen by the shape")
_DEEP = 2 * PARTS.maximum  # steps, that may have any number of parts
_BY_LAUNCH, _BY_CLUSTER = 1, 2
JOINING = Knob(
    KnobType.CTA_SPLIT_K_MODE,
    0,
    2,
    1,
    0,
    f"{_BY_LAUNCH}: a launch of its own adds the parts; {_BY_CLUSTER}: the blocks of a cluster do, 8 parts at most; "
    "0: chosen by the shape",
)


@dataclass(frozen=True, slots=True)
class Choice:
    tile: Tile
    stages: int
    parts: int
    seconds: float
    summing: float  # of these seconds, those of the launch that adds the parts
    in_cluster: bool = False  # parts are the blocks of a cluster, which add them
    busy: int = 0  # blocks that have the tiles with steps, where others have those without; 0: nobody is apart
    idle: float = 0.0  # seconds that a launch of so few pieces does not take, which ``seconds`` are without


def choose(sizes: Sizes, device: DeviceSpec, knobs: Knobs) -> Choice:
    """The fastest of the allowed tiles and parts. A tile that does not divide the columns, or a ring that does not fit,
    gives way to what is chosen by the shape.
    """
    machine = Machine.of(device)
    asked = _Asked(knobs[TILE.type], knobs[STAGES.type], knobs[PARTS.type], knobs.get(JOINING.type, _BY_LAUNCH))
    found = _fastest(sizes, machine, asked) or _fastest(sizes, machine, asked._replace(tile=0, stages=0))
    assert found is not None, "the smallest tile fits every device that has the instructions"
    return found


class _Asked(NamedTuple):
    """Values of knobs; 0: chosen by the shape."""

    tile: int
    stages: int
    parts: int
    joining: int


@lru_cache(maxsize=1024)
def _fastest(sizes: Sizes, machine: Machine, asked: _Asked) -> Choice | None:
    """The first in the table of those that take the least. Bounds say which are not worked out."""
    products, columns, groups = sizes.products, sizes.columns, sizes.groups
    clock, parts, joining = clock_rate(machine), asked.parts, asked.joining
    table = _table(sizes._replace(products=(), groups=1, bytes_read=0, bytes_moved=0), machine, asked)
    may_be_split, sms = sizes.may_be_split, machine.sms
    rows, depth = products[0]
    is_one = len(products) == 1
    filled = groups * (rows * depth if is_one else sum([rows * depth for rows, depth in products]))
    # Seconds, place, whether in a cluster, parts; of equals the first.
    best: tuple[float, int, bool, int, TileClocks, Division, Work, int] | None = None
    limit, most_pace, tried = inf, inf, table.tried_first  # clocks, and those of a row and step of k
    # Seconds that memory takes for any tile that busies all multiprocessors.
    floor, is_at_floor, best_place = 0.0 if sizes.bytes_read else sizes.bytes_moved / machine.bandwidth, False, 0
    first = None if tried is None else tried[0]
    for turn, one in enumerate(table.tiles if first is None else (first, *table.tiles)):
        place, pace, across, rows_held, step, start, end, taken, bounds, _, most_in_clusters = one
        if pace > most_pace:
            break  # slower even if they filled the device all the time, as are those that follow
        if is_one:
            count = -(-rows // rows_held) * across * groups
            steps, empty = count * depth, 0
        else:
            count, steps, empty = _counted(products, rows_held, across * groups)
        if is_at_floor and count >= sms and place > best_place:
            continue
        launch = bounds.launch(count, sms) if count < sms else bounds.busy
        least = launch + start + (steps * step + (count if count > sms else sms) * end) / sms
        if least > limit:
            continue
        # Of tiles that are all there at once, the one with the most steps takes the longest.
        each = max([depth for _, depth in products]) if count <= sms else steps / count
        work = Work(count, each, empty)
        of_part = bounds.of_part * count
        is_late = not parts and work.steps * bounds.step + taken.outside[False] + launch > limit  # as a whole
        divisions = [] if is_late else [_division(parts or 1, False, taken.most)]
        if may_be_split and taken.tile.may_be_split:
            room = limit - least - bounds.adding
            if not parts and 2 * of_part <= room:
                several = _parts(min(depth, _DEEP), count, sms)
                divisions += [_division(part, False, taken.most) for part in several if part * of_part <= room]
            # Others take the place of what was asked for only where there are none.
            most = inf if joining == _BY_CLUSTER else limit - launch
            few = count <= most_in_clusters and bounds.may_meet(depth, most)
            if joining == _BY_CLUSTER or (few and joining != _BY_LAUNCH):
                in_clusters = one.in_clusters(depth, count, asked, most)
                divisions = in_clusters if in_clusters and joining == _BY_CLUSTER else divisions + in_clusters
        if tried is not None and one is first:  # in its first turn with this division alone, then with the others
            divisions = [division for division in divisions if (division is tried[1]) is not bool(turn)]
        for division in divisions:
            is_added = division.parts > 1 and not division.in_cluster
            most = limit - bounds.adding - division.parts * of_part if is_added else limit
            if is_slower(taken, bounds, work, division, sms, most):
                continue
            operands = ROW * (min(taken.rows_held, products[0][0]) + min(taken.columns_held, columns))
            read = Read(sizes.bytes_read, division.stages * operands, sizes.is_across, sizes.bytes_moved)
            seconds, busy = seconds_of(taken, work, division, machine, read)
            if best is None or (seconds, place, division.in_cluster, division.parts) < best[:4]:
                best = seconds, place, division.in_cluster, division.parts, taken, division, work, busy
                limit, table.tried_first = seconds * clock * _ROUNDING, (one, division)
                most_pace, is_at_floor, best_place = table.most_pace(limit, filled), seconds <= floor, place
    if best is None:
        return None
    seconds, _, _, _, taken, division, work, busy = best
    adding = 0.0 if division.in_cluster else summing(taken, work.tiles, division.parts, machine)
    stages = max(asked.stages, SMALLEST_RING) if asked.stages else division.stages
    idle = idle_seconds(taken, work.tiles * division.parts, machine)
    return Choice(taken.tile, stages, division.parts, seconds, adding, division.in_cluster, busy, idle)


class _Placed(NamedTuple):
    """A tile that serves, among others of the same columns."""

    place: int  # in the table of tiles
    pace: float  # clocks of each row and step of k of a group, no less, where all multiprocessors are busy
    across: int  # along a group's columns
    rows_held: int
    step: float  # of a bound: of each step, of the whole launch, and of each tile besides
    start: float
    turn: float
    taken: TileClocks
    bounds: Least
    clusters: tuple[tuple[int, Division], ...]  # with the most tiles whose clusters run at the same time
    most_in_clusters: int  # tiles, with the fewest parts

    def in_clusters(self, depth: int, tiles: int, asked: _Asked, limit: float) -> list[Division]:
        """Parts in clusters that run at the same time, unless they were asked for, and none of which take more than
        ``limit`` clocks for sure.
        """
        if asked.parts:
            at_once = depth >= 2 * asked.parts
            is_asked = asked.joining == _BY_CLUSTER
            return [
                d for most, d in self.clusters if d.parts == asked.parts and (is_asked or (at_once and tiles <= most))
            ]
        steps = (limit - self.bounds.in_cluster) / self.bounds.step_in_cluster  # of a block, at most
        return [
            one
            for most, one in self.clusters
            if tiles <= most and depth >= 2 * one.parts and -(-depth // one.parts) <= steps
        ]


class _Table:
    """The tiles that serve products of so many columns, the fastest of large ones first. ``tried_first``: what was the
    fastest of the last products, so that little else has to be worked out for others like them; it decides nothing.
    """

    def __init__(self, kind: Sizes, machine: Machine, asked: _Asked) -> None:
        """``kind``: sizes without products, groups and bytes."""
        taken = _taken(kind._replace(columns=0), asked.tile, asked.stages, asked.parts > 1, machine.shared_memory)
        placed = []
        for place, one in enumerate(taken):
            across = -(-kind.columns // one.columns_held)
            pace = across * one.step / (one.rows_held * machine.sms)
            empty = 1.0 - kind.columns / (across * one.columns_held)
            paced = copied_clocks(kind, one.tile, empty) if empty and not kind.are_followed else 0.0
            held = one if paced <= one.paced else one._replace(paced=paced)
            clusters = _clusters(one.tile, machine.sms, machine.shared_memory, asked.stages, asked.parts > 0)
            least = Least.of(held, machine)
            most = clusters[0][0] if clusters else 0
            bound = held.rows_held, held.step, held.start, least.turn
            placed.append(_Placed(place, pace, across, *bound, held, least, clusters, most))
        self.tiles = tuple(sorted(placed, key=_pace_and_place))
        self._start = min([one.start for one in taken], default=0.0)
        self._busy = min([one.most_idle for one in taken], default=0.0)
        self.tried_first: tuple[_Placed, Division] | None = None

    def most_pace(self, limit: float, filled: int) -> float:
        """Of tiles that may take no more than so many clocks for so many rows and steps, if they fill the device."""
        if not filled:
            return inf
        # Idle multiprocessors add more than a launch takes less, where it is long.
        long, left = _LONG * self._busy, limit - self._start
        return (left - self._busy if left - self._busy > long else min(left, long)) / filled


@lru_cache(maxsize=256)
def _clusters(
    tile: Tile, sms: int, shared_memory: int, least_stages: int, is_asked: bool
) -> tuple[tuple[int, Division], ...]:
    """Divisions with enough stages, the fewest parts first; blocks that share a multiprocessor, and narrow ones, are
    not measured as clusters, and are theirs only where that is asked for.
    """
    found, least = [], max(least_stages, _LEAST_STAGES)
    if (tile.blocks > 1 or tile.bn < PANEL) and not is_asked:
        return ()
    for parts in CLUSTERS:
        stages = min(USUAL_STAGES, tile.stages(shared_memory, tile.inbox(parts)))
        if stages >= least:
            at_once = clusters_at_once(parts, sms) if tile.blocks == 1 else 0
            found.append((at_once, _division(parts, True, stages)))
    return tuple(found)


def _pace_and_place(one: _Placed) -> tuple[float, int]:
    return one.pace, one.place


_table = lru_cache(maxsize=256)(_Table)
_division = lru_cache(maxsize=4096)(Division)


@lru_cache(maxsize=256)
def _taken(kind: Sizes, number: int, stages: int, is_split: bool, shared_memory: int) -> tuple[TileClocks, ...]:
    """The allowed tiles with enough stages that may hold products of such sizes. ``kind``: sizes without extents."""
    tiles = [(tile, tile.stages(shared_memory)) for tile in ((TILES[number - 1],) if number else TILES)]
    least = max(stages, SMALLEST_RING if number else _LEAST_STAGES)
    if kind.is_across:  # nothing is gained by more
        tiles = [(tile, min(USUAL_STAGES, most)) for tile, most in tiles]
    fitting = [(tile, most) for tile, most in tiles if most >= least and (tile.may_be_split or not is_split)]
    return tuple(TileClocks.of(kind, tile, most) for tile, most in fitting if kind.takes(tile))


def _counted(products: tuple[tuple[int, int], ...], rows_held: int, across: int) -> tuple[int, int, int]:
    """Tiles that hold so many rows, steps of all of them, and empty tiles; ``across``: along the columns of all."""
    tiles = [(-(-rows // rows_held) * across, depth) for rows, depth in products]
    steps, every = sum([n * depth for n, depth in tiles]), sum([n for n, _ in tiles])
    count = sum([n for n, depth in tiles if depth]) or every  # of empty ones alone, all are like others
    return count, steps, every - count


@lru_cache(maxsize=4096)
def _parts(depth: int, tiles: int, sms: int) -> tuple[int, ...]:
    """More than one, that give every multiprocessor the same number of pieces. ``depth``: steps, ``_DEEP`` at most."""
    found: list[int] = []
    for waves in (1, 2, 3):
        parts = min(waves * sms // tiles, depth, PARTS.maximum)
        if parts > (found[-1] if found else 1) and depth >= 2 * parts:
            found.append(parts)
    return tuple(found)

"""The choice of a tile, its stages and splits on compute capability 9.0, by a cost model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import NamedTuple

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.sm90.device_limits import Machine
from graphdnn.engines.cuda.sm90.gemm_shape import GemmShape
from graphdnn.engines.cuda.sm90.gemm_time import (
    CLUSTERS,
    LowerBounds,
    MemoryReads,
    SplitConfig,
    TileWork,
    clock_rate,
    clusters_at_once,
    idle_seconds,
    is_slower,
    seconds_of,
    split_reduction_seconds,
)
from graphdnn.engines.cuda.sm90.tile import (
    MAX_STAGES,
    MIN_STAGES,
    SLAB_ROWS,
    SWIZZLE_BYTES,
    TILES,
    USUAL_MAX_STAGES,
    Tile,
)
from graphdnn.engines.cuda.sm90.tile_cycles import TileClocks, copied_clocks
from graphdnn.engines.engine import Knob, Knobs
from graphdnn.enums import KnobType

_ROUNDING = 1 + 1e-9  # a lower bound may equal the cost in floating point
_LONG_LAUNCH = (
    2.5  # multiples of the saved idle clocks; in longer launches, idle multiprocessors cost more than they save
)
_MIN_CHOSEN_STAGES = 3  # of a tile that is not requested

TILE = Knob.row_of(TILES, KnobType.TILE_SIZE, "0: chosen by the shape; else the number of a tile, if the tile serves")
STAGES = Knob(
    KnobType.STAGES,
    0,
    MAX_STAGES,
    1,
    0,
    "stages of the pipeline in shared memory, at least 2, if they fit; 0: as many as fit",
)
SPLITS = Knob(KnobType.SPLIT_K, 0, 128, 1, 0, "splits of the sum, computed side by side; 0: chosen by the shape")
_MANY_K_TILES = 2 * SPLITS.maximum  # K tiles from which on any number of splits is possible
_BY_LAUNCH, _BY_CLUSTER = 1, 2
SPLIT_K_REDUCTION = Knob(
    KnobType.CTA_SPLIT_K_MODE,
    0,
    2,
    1,
    0,
    f"{_BY_LAUNCH}: another launch adds the splits; {_BY_CLUSTER}: a cluster adds them, at most 8 splits; "
    "0: chosen by the shape",
)


@dataclass(frozen=True, slots=True)
class Choice:
    tile: Tile
    stages: int
    splits: int
    seconds: float
    split_reduction_seconds: float  # the part of ``seconds`` of the launch that adds the splits
    in_cluster: bool = False  # the CTAs of a cluster have the splits of a tile, and add them
    mainloop_ctas: int = 0  # CTAs with K tiles, if other CTAs have the tiles without any; 0: CTAs have both
    idle: float = 0.0  # seconds that the launch saves because multiprocessors idle; not part of ``seconds``


def choose(shape: GemmShape, device: DeviceSpec, knobs: Knobs) -> Choice:
    """The fastest of the allowed tiles and splits.

    If a requested tile does not divide the columns, or the requested stages do not fit, the shape determines both.
    """
    machine = Machine.of(device)
    requested = _Requested(
        knobs[TILE.type], knobs[STAGES.type], knobs[SPLITS.type], knobs.get(SPLIT_K_REDUCTION.type, _BY_LAUNCH)
    )
    choice = _fastest(shape, machine, requested) or _fastest(shape, machine, requested._replace(tile=0, stages=0))
    assert choice is not None, "the smallest tile fits every device that has the instructions"
    return choice


def effective_knobs(choice: Choice) -> Knobs:
    """The knob values that a choice has."""
    found = {TILE.type: TILES.index(choice.tile) + 1, STAGES.type: choice.stages, SPLITS.type: choice.splits}
    if choice.splits > 1:
        found[SPLIT_K_REDUCTION.type] = _BY_CLUSTER if choice.in_cluster else _BY_LAUNCH
    return found


class _Requested(NamedTuple):
    """Values of knobs; 0: chosen by the shape."""

    tile: int
    stages: int
    splits: int
    reduction_mode: int


class _Best(NamedTuple):
    """The order of preference: seconds, position in the table of tiles, reduction by a launch, fewer splits."""

    seconds: float
    position: int
    in_cluster: bool
    splits: int


@lru_cache(maxsize=1024)
def _fastest(shape: GemmShape, machine: Machine, requested: _Requested) -> Choice | None:
    """The fastest tile; of equally fast tiles the first of the table. Costs above a lower bound are not computed."""
    gemms, columns, groups = shape.gemms, shape.columns, shape.groups
    clock, splits = clock_rate(machine), requested.splits
    table = _table(shape._replace(gemms=(), groups=1, bytes_read=0, bytes_moved=0), machine, requested)
    may_split_k, sms = shape.may_split_k, machine.sms
    rows, k_tiles = gemms[0]
    is_one = len(gemms) == 1
    row_steps = groups * (rows * k_tiles if is_one else sum([rows * k_tiles for rows, k_tiles in gemms]))
    best: tuple[_Best, TileClocks, SplitConfig, TileWork, int] | None = None
    limit, max_row_step_clocks, tried = inf, inf, table.tried_first
    # Seconds of memory traffic alone, for any tile that uses all multiprocessors.
    floor, is_at_floor, best_position = 0.0 if shape.bytes_read else shape.bytes_moved / machine.bandwidth, False, 0
    first = None if tried is None else tried[0]
    for turn, candidate in enumerate(table.candidates if first is None else (first, *table.candidates)):
        position, row_step_clocks, tiles_n, tile_rows, step, start, end, cost, bounds, *_ = candidate
        if row_step_clocks > max_row_step_clocks:
            break  # this tile and all later ones are slower, even if they used the whole device all the time
        if is_one:
            tiles = -(-rows // tile_rows) * tiles_n * groups
            steps, empty = tiles * k_tiles, 0
        else:
            tiles, steps, empty = _count_tiles(gemms, tile_rows, tiles_n * groups)
        if is_at_floor and tiles >= sms and position > best_position:
            continue
        launch = bounds.launch(tiles, sms) if tiles < sms else bounds.busy
        lower_bound = launch + start + (steps * step + (tiles if tiles > sms else sms) * end) / sms
        if lower_bound > limit:
            continue
        # If all tiles run at the same time, the one with the most K tiles takes the longest.
        work = TileWork(tiles, max([k_tiles for _, k_tiles in gemms]) if tiles <= sms else steps / tiles, empty)
        per_split = bounds.per_split * tiles
        is_slower_unsplit = not splits and work.k_tiles * bounds.step + cost.outside[False] + launch > limit
        configs = [] if is_slower_unsplit else [_split_config(splits or 1, False, cost.most)]
        if may_split_k and cost.tile.may_split_k:
            room = limit - lower_bound - bounds.reduction
            configs = candidate.with_splits(configs, tiles, k_tiles, sms, requested, room, limit - launch)
        if tried is not None and candidate is first:  # tried twice: with its last best splits, then with all others
            configs = [config for config in configs if (config is tried[1]) is not bool(turn)]
        for config in configs:
            is_reduced_by_launch = config.splits > 1 and not config.in_cluster
            most = limit - bounds.reduction - config.splits * per_split if is_reduced_by_launch else limit
            if is_slower(cost, bounds, work, config, sms, most):
                continue
            operands = SWIZZLE_BYTES * (min(cost.tile_rows, gemms[0][0]) + min(cost.tile_columns, columns))
            reads = MemoryReads(shape.bytes_read, config.stages * operands, shape.is_mn_major, shape.bytes_moved)
            seconds, mainloop_ctas = seconds_of(cost, work, config, machine, reads)
            order = _Best(seconds, position, config.in_cluster, config.splits)
            if best is None or order < best[0]:
                best = order, cost, config, work, mainloop_ctas
                limit, table.tried_first = seconds * clock * _ROUNDING, (candidate, config)
                max_row_step_clocks = table.max_row_step_clocks(limit, row_steps)
                is_at_floor, best_position = seconds <= floor, position
    if best is None:
        return None
    order, cost, config, work, mainloop_ctas = best
    reduction = 0.0 if config.in_cluster else split_reduction_seconds(cost, work.tiles, config.splits, machine)
    stages = max(requested.stages, MIN_STAGES) if requested.stages else config.stages
    idle = idle_seconds(cost, work.tiles * config.splits, machine)
    return Choice(cost.tile, stages, config.splits, order.seconds, reduction, config.in_cluster, mainloop_ctas, idle)


class _Candidate(NamedTuple):
    """A tile that serves, for GEMMs of one number of columns."""

    position: int  # in the table of tiles
    row_step_clocks: float  # lower bound for each row and K tile of a group, if all multiprocessors are in use
    tiles_n: int  # along the columns of a group
    tile_rows: int
    step: float  # lower bounds: of each K tile, of the launch, and of each tile without its K tiles
    start: float
    turn: float
    cost: TileClocks
    bounds: LowerBounds
    clusters: tuple[tuple[int, SplitConfig], ...]  # each with the most tiles whose clusters run at the same time
    most_in_clusters: int  # tiles, with the fewest splits

    def with_splits(
        self,
        configs: list[SplitConfig],
        tiles: int,
        k_tiles: int,
        sms: int,
        requested: _Requested,
        room: float,
        cluster_limit: float,
    ) -> list[SplitConfig]:
        """``configs`` with the splits that may be faster. ``room``: clocks for the launch that reduces splits.
        ``cluster_limit``: clocks of a launch whose clusters reduce splits.
        """
        per_split = self.bounds.per_split * tiles
        if not requested.splits and 2 * per_split <= room:
            counts, most = _split_counts(min(k_tiles, _MANY_K_TILES), tiles, sms), self.cost.most
            configs = configs + [_split_config(count, False, most) for count in counts if count * per_split <= room]
        # Other splits replace requested splits only if a cluster is requested and no cluster is possible.
        is_requested = requested.reduction_mode == _BY_CLUSTER
        limit = inf if is_requested else cluster_limit
        may_use_clusters = tiles <= self.most_in_clusters and self.bounds.may_use_clusters(k_tiles, limit)
        if is_requested or (may_use_clusters and requested.reduction_mode != _BY_LAUNCH):
            in_clusters = self.in_clusters(k_tiles, tiles, requested, limit)
            return in_clusters if in_clusters and is_requested else configs + in_clusters
        return configs

    def in_clusters(self, k_tiles: int, tiles: int, requested: _Requested, limit: float) -> list[SplitConfig]:
        """Splits that clusters reduce. Unless they are requested, all clusters run at the same time, and no lower bound
        exceeds ``limit`` clocks.
        """
        if requested.splits:
            is_useful = k_tiles >= 2 * requested.splits
            is_requested = requested.reduction_mode == _BY_CLUSTER
            return [
                config
                for most, config in self.clusters
                if config.splits == requested.splits and (is_requested or (is_useful and tiles <= most))
            ]
        steps = (limit - self.bounds.cluster_start) / self.bounds.cluster_step  # K tiles of a CTA, at most
        return [
            config
            for most, config in self.clusters
            if tiles <= most and k_tiles >= 2 * config.splits and -(-k_tiles // config.splits) <= steps
        ]


class _Table:
    """The tiles that serve GEMMs of one number of columns, the fastest of large GEMMs first.

    ``tried_first``: the fastest tile and splits of the last GEMM. Trying them first gives a low limit, so few other
    costs are computed for a similar GEMM. The choice does not depend on them.
    """

    def __init__(self, kind: GemmShape, machine: Machine, requested: _Requested) -> None:
        """``kind``: a shape without GEMMs, groups and bytes."""
        costs = _costs(
            kind._replace(columns=0), requested.tile, requested.stages, requested.splits > 1, machine.shared_memory
        )
        candidates = []
        for position, any_cost in enumerate(costs):
            tile, tiles_n = any_cost.tile, -(-kind.columns // any_cost.tile_columns)
            row_step_clocks = tiles_n * any_cost.step / (any_cost.tile_rows * machine.sms)
            empty = 1.0 - kind.columns / (tiles_n * any_cost.tile_columns)
            loaded_step = copied_clocks(kind, tile, empty) if empty and not kind.has_next_group else 0.0
            cost = any_cost if loaded_step <= any_cost.loaded_step else any_cost._replace(loaded_step=loaded_step)
            clusters = _clusters(tile, machine.sms, machine.shared_memory, requested.stages, requested.splits > 0)
            bounds = LowerBounds.of(cost, machine)
            most = clusters[0][0] if clusters else 0
            bound = cost.tile_rows, cost.step, cost.start, bounds.turn
            candidates.append(_Candidate(position, row_step_clocks, tiles_n, *bound, cost, bounds, clusters, most))
        self.candidates = tuple(sorted(candidates, key=_by_row_step_clocks))
        self._start = min([cost.start for cost in costs], default=0.0)
        self._busy = min([cost.most_idle for cost in costs], default=0.0)
        self.tried_first: tuple[_Candidate, SplitConfig] | None = None

    def max_row_step_clocks(self, limit: float, row_steps: int) -> float:
        """The most clocks for each row and K tile with which ``row_steps`` of them take no more than ``limit`` clocks,
        if they use the whole device.
        """
        if not row_steps:
            return inf
        # In a long launch, idle multiprocessors cost more than the launch saves by them.
        long, clocks = _LONG_LAUNCH * self._busy, limit - self._start
        return (clocks - self._busy if clocks - self._busy > long else min(clocks, long)) / row_steps


@lru_cache(maxsize=256)
def _clusters(
    tile: Tile, sms: int, shared_memory: int, least_stages: int, is_requested: bool
) -> tuple[tuple[int, SplitConfig], ...]:
    """Cluster sizes with enough stages, the fewest splits first.

    Clusters of narrow tiles, and of two CTAs on a multiprocessor, are not measured. They serve only if requested.
    """
    configs, least_stages = [], max(least_stages, _MIN_CHOSEN_STAGES)
    if (tile.ctas_per_sm > 1 or tile.bn < SLAB_ROWS) and not is_requested:
        return ()
    for splits in CLUSTERS:
        stages = min(USUAL_MAX_STAGES, tile.stages(shared_memory, tile.dsmem_bytes(splits)))
        if stages >= least_stages:
            at_once = clusters_at_once(splits, sms) if tile.ctas_per_sm == 1 else 0
            configs.append((at_once, _split_config(splits, True, stages)))
    return tuple(configs)


def _by_row_step_clocks(candidate: _Candidate) -> tuple[float, int]:
    return candidate.row_step_clocks, candidate.position


_table = lru_cache(maxsize=256)(_Table)
_split_config = lru_cache(maxsize=4096)(SplitConfig)


@lru_cache(maxsize=256)
def _costs(kind: GemmShape, number: int, stages: int, is_split: bool, shared_memory: int) -> tuple[TileClocks, ...]:
    """The costs of the allowed tiles that serve and have enough stages. ``kind``: a shape without extents."""
    tiles = [(tile, tile.stages(shared_memory)) for tile in ((TILES[number - 1],) if number else TILES)]
    least_stages = max(stages, MIN_STAGES if number else _MIN_CHOSEN_STAGES)
    if kind.is_mn_major:  # more stages are not faster
        tiles = [(tile, min(USUAL_MAX_STAGES, most)) for tile, most in tiles]
    fitting = [(tile, most) for tile, most in tiles if most >= least_stages and (tile.may_split_k or not is_split)]
    return tuple(TileClocks.of(kind, tile, most) for tile, most in fitting if kind.allows(tile))


def _count_tiles(gemms: tuple[tuple[int, int], ...], tile_rows: int, tiles_n: int) -> tuple[int, int, int]:
    """Tiles with K tiles, their K tiles, and tiles without any. ``tiles_n``: tiles along the columns of all groups."""
    tiles = [(-(-rows // tile_rows) * tiles_n, k_tiles) for rows, k_tiles in gemms]
    steps, total = sum([n * k_tiles for n, k_tiles in tiles]), sum([n for n, _ in tiles])
    count = sum([n for n, k_tiles in tiles if k_tiles]) or total  # if no tile has K tiles, all tiles count
    return count, steps, total - count


@lru_cache(maxsize=4096)
def _split_counts(k_tiles: int, tiles: int, sms: int) -> tuple[int, ...]:
    """Numbers of splits, more than one, that fill one, two or three waves. ``k_tiles``: at most ``_MANY_K_TILES``."""
    counts: list[int] = []
    for waves in (1, 2, 3):
        splits = min(waves * sms // tiles, k_tiles, SPLITS.maximum)
        if splits > (counts[-1] if counts else 1) and k_tiles >= 2 * splits:
            counts.append(splits)
    return tuple(counts)

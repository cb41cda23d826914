"""Cost model of a whole launch on compute capability 9.0: waves of tiles, reads from memory, reduction of splits.

Its fitted constants are in fitted_h200.json.
"""

from __future__ import annotations

from typing import NamedTuple

from graphdnn.engines.cuda.sm90.device_limits import Machine
from graphdnn.engines.cuda.sm90.fitted_constants import GEMM as FITTED
from graphdnn.engines.cuda.sm90.tile_cycles import EpilogueClocks, TileClocks

_CLUSTERS = {2: 66, 3: 39, 4: 30, 5: 22, 6: 17, 7: 15, 8: 15}  # CTAs of a cluster -> clusters that run at the same time
_CLUSTERS_SMS = 132  # multiprocessors of that measurement, with a CTA on each
CLUSTERS = tuple(_CLUSTERS)  # CTAs of a cluster


def clock_rate(machine: Machine) -> float:
    """The sustained clock rate of wgmma kernels, in Hz."""
    return machine.clock * FITTED.sustained_clock_share


def clusters_at_once(splits: int, sms: int) -> int:
    """Clusters of ``splits`` CTAs, one CTA on a multiprocessor, that run at the same time."""
    return _CLUSTERS[splits] * sms // _CLUSTERS_SMS


class SplitConfig(NamedTuple):
    """The splits of K, whether a cluster reduces the splits, and the stages that fit with these splits."""

    splits: int
    in_cluster: bool
    stages: int


class TileWork(NamedTuple):
    """Tiles and their K tiles. ``empty``: further tiles without K tiles, of residues that no tap reaches."""

    tiles: int
    k_tiles: float  # of a tile: the mean, or the most if all tiles run at the same time
    empty: int = 0


class MemoryReads(NamedTuple):
    """Bytes that are read from memory, bytes in flight of a CTA's stages, and bytes that move otherwise."""

    bytes: float
    in_flight: float
    is_mn_major: bool
    moved: int

    def seconds(self, items: int, ctas_per_sm: int, machine: Machine, in_cluster: bool) -> float:
        """Seconds of the reads of ``items`` work items. Few multiprocessors or few stages do not use all bandwidth."""
        if not self.bytes:
            return self.moved / machine.bandwidth
        if self.is_mn_major:  # both operands are in flight, but clusters leave whole groups of multiprocessors idle
            share = min(1.0, items / machine.sms) ** FITTED.cluster_bandwidth_exponent if in_cluster else 1.0
            return self.bytes / (machine.bandwidth * FITTED.operand_bandwidth_share * share)
        stream_rate = FITTED.sm_memory_bytes_per_second * ctas_per_sm * self.in_flight
        stream_rate /= ctas_per_sm * self.in_flight + FITTED.half_rate_bytes_in_flight
        stream_rate *= 1.0 + FITTED.few_readers_speedup * max(0.0, 1.0 - 2 * items / machine.sms)
        peak, slots = machine.bandwidth * FITTED.operand_bandwidth_share, ctas_per_sm * machine.sms
        full_waves, last_wave = divmod(items, slots)
        seconds = full_waves * slots / min(peak, machine.sms * stream_rate)
        return (
            self.bytes
            / items
            * (seconds + (last_wave / min(peak, min(last_wave, machine.sms) * stream_rate) if last_wave else 0.0))
        )


def seconds_of(
    cost: TileClocks, work: TileWork, split: SplitConfig, machine: Machine, read: MemoryReads
) -> tuple[float, int]:
    """Seconds of all waves of tiles and of the reduction; and the CTAs with K tiles, as in ``Choice``."""
    norm = FITTED.overlap_norm
    splits, in_cluster, stages = split
    ctas_per_sm, epilogue, items = (
        cost.ctas_per_sm,
        cost.partial_sums if splits > 1 else cost.results,
        work.tiles * splits,
    )
    resident_ctas = 1 if items <= machine.sms else ctas_per_sm
    slots = ctas_per_sm * (clusters_at_once(splits, machine.sms) * splits if in_cluster else machine.sms)
    waves = -(-items // slots)
    k_tiles = max(1.0, -(-work.k_tiles // splits))
    loaded_step = cost.step_among(items, machine.sms, in_cluster)
    # With few stages, a CTA that is alone on its multiprocessor waits for loads.
    mainloop = k_tiles * (
        max(loaded_step, FITTED.tma_latency_cycles / stages) if resident_ctas < ctas_per_sm else loaded_step
    )
    epilogue_clocks = epilogue.tile + epilogue.warpgroup + cost.extra
    cta = _cta_clocks(cost, epilogue, mainloop, epilogue_clocks, resident_ctas)
    # Longer than either, if they are similar.
    busy: float = (cta**norm + epilogue.multiprocessor**norm) ** (1 / norm)
    tile_phase, mainloop_ctas = waves * busy, 0
    if cost.tile.pingpong_groups > 1:  # no main loop overlaps the last epilogue
        tile_phase += epilogue_clocks
    if work.empty:
        tile_phase, mainloop_ctas = _wave_clocks(
            TileWork(items, work.k_tiles, work.empty), slots, busy, epilogue_clocks
        )
    clocks = tile_phase + cost.outside[splits > 1] + cost.most_idle
    if in_cluster:
        clocks += _cluster_reduction_clocks(cost, splits, resident_ctas)
    seconds, reads = clocks / clock_rate(machine), read.seconds(items, resident_ctas, machine, in_cluster)
    seconds = (seconds**norm + reads**norm) ** (1 / norm) if cost.is_mn_major else max(seconds, reads)
    reduction = 0.0 if in_cluster else split_reduction_seconds(cost, work.tiles, splits, machine)
    return seconds + reduction - idle_seconds(cost, items, machine), mainloop_ctas


def idle_seconds(cost: TileClocks, items: int, machine: Machine) -> float:
    """Seconds that a launch of ``items`` work items saves because multiprocessors idle."""
    return cost.idle_among(items, machine.sms) / clock_rate(machine)


def _cta_clocks(
    cost: TileClocks, epilogue: EpilogueClocks, mainloop: float, epilogue_clocks: float, resident_ctas: int
) -> float:
    """Clocks of a CTA's tile. The epilogue of one CTA or ping-pong group overlaps the main loop of the other."""
    pingpong_groups = cost.tile.pingpong_groups
    if pingpong_groups > 1:
        return max(mainloop, (mainloop + epilogue_clocks) / pingpong_groups)
    if resident_ctas == 1 and not cost.is_mn_major:
        return mainloop + epilogue_clocks
    if cost.ctas_per_sm == 1 or not cost.is_mn_major:
        return max(mainloop + epilogue_clocks, cost.ctas_per_sm * mainloop + epilogue.alternation)
    return (
        resident_ctas * mainloop
        + FITTED.wgrad_cta_alternation_cycles
        + (epilogue.warpgroup if resident_ctas > 1 else epilogue_clocks)
    )


class LowerBounds(NamedTuple):
    """Clocks of a tile without extents, from which lower bounds of ``seconds_of`` are computed."""

    step: float  # of a K tile
    turn: float  # of a tile without its K tiles, if all multiprocessors are busy
    epilogue_clocks: tuple[float, float]  # not overlapped, of a CTA: without split-K, and with it
    reduction: float  # of the launch that reduces splits
    per_split: float  # of that launch, for each split of a tile
    cluster_step: float  # of a K tile, if a cluster reduces the splits
    cluster_start: float  # further clocks of such a launch
    busy: float  # of a launch, if no multiprocessor idles
    idle: float  # how much less, if all of them do

    @classmethod
    def of(cls, cost: TileClocks, machine: Machine) -> LowerBounds:
        reduction, sms = split_reduction_seconds(cost, 0, 2, machine), machine.sms
        per_split, clock = (split_reduction_seconds(cost, 1, 2, machine) - reduction) / 2, clock_rate(machine)
        is_exposed = cost.tile.pingpong_groups == 1
        epilogue_clocks = [
            is_exposed * (epilogue.tile + epilogue.warpgroup + cost.extra)
            for epilogue in (cost.results, cost.partial_sums)
        ]
        # CTAs that share a multiprocessor alternate.
        alternations = [
            FITTED.wgrad_cta_alternation_cycles + epilogue.warpgroup if cost.is_mn_major else epilogue.alternation
            for epilogue in (cost.results, cost.partial_sums)
        ]
        return cls(
            cost.step_among(0, sms, in_cluster=False),
            min(alternations) / cost.ctas_per_sm if cost.ctas_per_sm > 1 else cost.turn,
            (epilogue_clocks[0], epilogue_clocks[1]),
            reduction * clock,
            per_split * clock,
            cost.step_among(0, sms, in_cluster=True),
            cost.partial_sums.warpgroup + cost.outside[True],
            cost.most_idle,
            cost.idle_among(0, sms),
        )

    def may_use_clusters(self, k_tiles: int, limit: float) -> bool:
        """Whether some cluster may take no more than ``limit`` clocks for ``k_tiles`` K tiles."""
        return k_tiles * self.cluster_step <= CLUSTERS[-1] * (limit - self.cluster_start)

    def launch(self, items: int, sms: int) -> float:
        """Clocks of a launch of ``items`` work items or more."""
        return self.busy - self.idle * (1.0 - items / sms) if items < sms and self.idle > 0 else self.busy


def is_slower(
    cost: TileClocks, bounds: LowerBounds, work: TileWork, split: SplitConfig, sms: int, limit: float
) -> bool:
    """Whether a lower bound of ``seconds_of`` exceeds ``limit`` clocks. It costs a fourth of ``seconds_of``.

    The bound is the clocks of a CTA, or of all stores of a multiprocessor, without the launch that reduces splits.
    """
    splits, in_cluster, _ = split
    ctas_per_sm, items, epilogue = (
        cost.ctas_per_sm,
        work.tiles * splits,
        cost.partial_sums if splits > 1 else cost.results,
    )
    is_filled = items >= sms and not in_cluster
    cta = -(-work.k_tiles // splits) * (cost.loaded_step if is_filled else cost.step_among(items, sms, in_cluster))
    if ctas_per_sm == 1:
        cta += bounds.epilogue_clocks[splits > 1]
    else:
        resident_ctas = 1 if items <= sms else ctas_per_sm
        cta = _cta_clocks(cost, epilogue, cta, bounds.epilogue_clocks[splits > 1], resident_ctas)
    clocks = (
        -(-items // (sms * ctas_per_sm)) * (cta if cta > epilogue.multiprocessor else epilogue.multiprocessor)
        + cost.outside[splits > 1]
    )
    clocks += bounds.busy - bounds.idle * (1.0 - items / sms) if items < sms else bounds.busy
    return clocks > limit or (in_cluster and clocks + _cluster_reduction_clocks(cost, splits, 1) > limit)


def split_reduction_seconds(cost: TileClocks, tiles: int, splits: int, machine: Machine) -> float:
    """Seconds of the launch that reduces the splits, which are in L2."""
    if splits == 1:
        return 0.0
    partial = 4.0 * tiles * cost.tile.bm * cost.tile.bn * splits
    return reduction_seconds(partial, machine.launch, machine.bandwidth)


def reduction_seconds(partial: float, launch: float, bandwidth: float) -> float:
    """Seconds of a launch that reduces ``partial`` bytes of partial sums."""
    return FITTED.split_reduction_launches * launch + partial / bandwidth


class _Waves(NamedTuple):
    clocks: float
    mainloop_ctas: int  # as in ``Choice``


def _wave_clocks(work: TileWork, slots: int, clocks: float, end: float) -> _Waves:
    """The waves of ``slots`` CTAs that take ``clocks`` for a tile, and ``end`` for a tile without K tiles.

    If no CTA has more tiles than it must, other CTAs may be left over, and have all tiles without K tiles.
    """
    waves = -(-work.tiles // slots)
    in_order = waves * clocks + (-(-(work.tiles + work.empty) // slots) - waves) * end
    busy = -(-work.tiles // waves)
    if busy == slots:
        return _Waves(in_order, 0)
    mainloop_ctas = max(waves * clocks, -(-work.empty // (slots - busy)) * end)
    return _Waves(mainloop_ctas, busy) if mainloop_ctas < in_order else _Waves(in_order, 0)


def _cluster_reduction_clocks(cost: TileClocks, splits: int, resident_ctas: int) -> float:
    """Clocks in which a cluster reduces its splits."""
    sent = 4.0 * resident_ctas * cost.tile.bm * cost.tile.bn * (splits - 1) / splits
    return (
        (not cost.is_mn_major) * FITTED.cluster_sync_cycles
        + sent / FITTED.dsmem_bytes_per_cycle
        + cost.results.warpgroup / splits
    )

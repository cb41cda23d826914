"""Time of a whole product on compute capability 9.0: waves of its tiles, bytes from memory, the sum of its parts."""

from __future__ import annotations

from typing import NamedTuple

from graphdnn.engines.cuda.sm90.device_limits import Machine
from graphdnn.engines.cuda.sm90.tile_cycles import Leaving, TileClocks

# Fitted with those of tile_clocks.py.
_PACE = 0.96  # of the highest clock
_LATENCY = 2200.0  # clocks from a copy's request to its end
_NORM = 4.0  # of the longer of what a multiprocessor does and what memory takes
_TURN_ACROSS = 1140.0  # clocks of a filter gradient's tile besides, where two blocks may share a multiprocessor
# Parts that blocks of a cluster add.
_MEETING = 1340.0  # clocks until all of them have met, where operands are not all of the time
_SENT = 20.0  # bytes a clock that a multiprocessor sends to others
_CLUSTERS = {2: 66, 3: 39, 4: 30, 5: 22, 6: 17, 7: 15, 8: 15}  # of so many blocks, at the same time
_OF = 132  # on so many multiprocessors, a block on each
CLUSTERS = tuple(_CLUSTERS)  # their blocks
# Parts that a launch of its own adds.
_SUM = 0.707  # launches' time that a split costs
# Operands from memory.
_STREAM = 49.7e9  # bytes a second from memory to one multiprocessor
_UNDER_WAY = 59.8e3  # of which half remain where so many bytes of operands are on their way
_COPY_PACE = 0.88  # of the bandwidth, of operands
_IN_GROUPS = 0.6  # the share of busy multiprocessors to this power is the share of it that clusters get
_FEW_ASK = 4.3  # times the stream besides, where next to no others ask: none of it where half of them do


def clock_rate(machine: Machine) -> float:
    """Clocks a second, as products keep them up."""
    return machine.clock * _PACE


def clusters_at_once(parts: int, sms: int) -> int:
    """Clusters of so many blocks, each alone on its multiprocessor, that run at the same time."""
    return _CLUSTERS[parts] * sms // _OF


class Division(NamedTuple):
    """Into how many parts, whether blocks of a cluster add them, and the stages that there is room for then."""

    parts: int
    in_cluster: bool
    stages: int


class Work(NamedTuple):
    """Tiles of a size. ``empty``: those of residues that no tap reaches, which are ends alone."""

    tiles: int
    steps: float  # of a tile: in the mean, or of the longest one where all are there at once
    empty: int = 0


class Read(NamedTuple):
    """Bytes from memory: all of them, and those of a block's ring."""

    bytes: float
    under_way: float
    is_across: bool
    moved: int

    def seconds(self, pieces: int, blocks: int, machine: Machine, in_cluster: bool) -> float:
        """Of pieces that each bring as much: a few multiprocessors do not fill memory, nor do short rings."""
        if not self.bytes:
            return self.moved / machine.bandwidth
        if self.is_across:  # of two operands much is under way, but clusters leave whole groups of multiprocessors idle
            share = min(1.0, pieces / machine.sms) ** _IN_GROUPS if in_cluster else 1.0
            return self.bytes / (machine.bandwidth * _COPY_PACE * share)
        of_one = _STREAM * blocks * self.under_way / (blocks * self.under_way + _UNDER_WAY)
        of_one *= 1.0 + _FEW_ASK * max(0.0, 1.0 - 2 * pieces / machine.sms)
        most, places = machine.bandwidth * _COPY_PACE, blocks * machine.sms
        whole, rest = divmod(pieces, places)
        seconds = whole * places / min(most, machine.sms * of_one)
        return self.bytes / pieces * (seconds + (rest / min(most, min(rest, machine.sms) * of_one) if rest else 0.0))


def seconds_of(one: TileClocks, work: Work, division: Division, machine: Machine, read: Read) -> tuple[float, int]:
    """Of all waves of tiles, and of the sum of the parts; and which blocks are busy."""
    parts, in_cluster, stages = division
    blocks, leaving, pieces = one.blocks, one.part if parts > 1 else one.whole, work.tiles * parts
    sharing = 1 if pieces <= machine.sms else blocks
    places = blocks * (clusters_at_once(parts, machine.sms) * parts if in_cluster else machine.sms)
    rounds = -(-pieces // places)
    depth = max(1.0, -(-work.steps // parts))
    paced = one.paced_among(pieces, machine.sms, in_cluster)
    # A block alone on its multiprocessor waits for copies, where its ring is short.
    multiplying = depth * (max(paced, _LATENCY / stages) if sharing < blocks else paced)
    ending = leaving.tile + leaving.own + one.besides
    own = _of_block(one, leaving, multiplying, ending, sharing)
    busy: float = (own**_NORM + leaving.all**_NORM) ** (1 / _NORM)  # more than either, where they are alike
    spent, apart = rounds * busy, 0
    if one.tile.teams > 1:  # nothing is beside the last tile's
        spent += ending
    if work.empty:
        spent, apart = _rounds(Work(pieces, work.steps, work.empty), places, busy, ending)
    clocks = spent + one.outside[parts > 1] + one.most_idle
    if in_cluster:
        clocks += _joining(one, parts, sharing)
    seconds, reading = clocks / clock_rate(machine), read.seconds(pieces, sharing, machine, in_cluster)
    seconds = (seconds**_NORM + reading**_NORM) ** (1 / _NORM) if one.is_across else max(seconds, reading)
    adding = 0.0 if in_cluster else summing(one, work.tiles, parts, machine)
    return seconds + adding - idle_seconds(one, pieces, machine), apart


def idle_seconds(one: TileClocks, pieces: int, machine: Machine) -> float:
    """Of a launch, that one of so few pieces does not take."""
    return one.idle_among(pieces, machine.sms) / clock_rate(machine)


def _of_block(one: TileClocks, leaving: Leaving, multiplying: float, ending: float, sharing: int) -> float:
    """Clocks of a block's tile. One block's or one team's results leave while the other multiplies."""
    teams = one.tile.teams
    if teams > 1:
        return max(multiplying, (multiplying + ending) / teams)
    if sharing == 1 and not one.is_across:
        return multiplying + ending
    if one.blocks == 1 or not one.is_across:
        return max(multiplying + ending, one.blocks * multiplying + leaving.turn)
    return sharing * multiplying + _TURN_ACROSS + (leaving.own if sharing > 1 else ending)


class Least(NamedTuple):
    """Clocks of a tile that extents do not change, for bounds below ``seconds_of``."""

    step: float  # of a block
    turn: float  # of a tile, besides its steps, where all multiprocessors are busy
    endings: tuple[float, float]  # of a block, besides what it multiplies: of whole tiles, and of parts
    adding: float  # of the launch that adds parts
    of_part: float  # of that launch, for each part of a tile
    step_in_cluster: float  # of a block whose sums are added by those of its cluster
    in_cluster: float  # besides, with the first of them
    busy: float  # of a launch, where no multiprocessor idles
    idle: float  # less, where all of them do

    @classmethod
    def of(cls, one: TileClocks, machine: Machine) -> Least:
        adding, sms = summing(one, 0, 2, machine), machine.sms
        of_part, clock = (summing(one, 1, 2, machine) - adding) / 2, clock_rate(machine)
        shown = one.tile.teams == 1
        endings = [shown * (leaving.tile + leaving.own + one.besides) for leaving in (one.whole, one.part)]
        # Blocks that share a multiprocessor take turns: none has one to itself.
        turns = [_TURN_ACROSS + leaving.own if one.is_across else leaving.turn for leaving in (one.whole, one.part)]
        return cls(
            one.paced_among(0, sms, in_cluster=False),
            min(turns) / one.blocks if one.blocks > 1 else one.turn,
            (endings[0], endings[1]),
            adding * clock,
            of_part * clock,
            one.paced_among(0, sms, in_cluster=True),
            one.part.own + one.outside[True],
            one.most_idle,
            one.idle_among(0, sms),
        )

    def may_meet(self, depth: int, limit: float) -> bool:
        """Whether blocks of some cluster may add the sums of so many steps within so many clocks."""
        return depth * self.step_in_cluster <= CLUSTERS[-1] * (limit - self.in_cluster)

    def launch(self, pieces: int, sms: int) -> float:
        """Of a launch of so many pieces, or of more."""
        return self.busy - self.idle * (1.0 - pieces / sms) if pieces < sms and self.idle > 0 else self.busy


def is_slower(one: TileClocks, least: Least, work: Work, division: Division, sms: int, limit: float) -> bool:
    """Whether a bound below ``seconds_of``, in a fourth of its time, is beyond so many clocks: what a block does for
    its tiles, or all that leaves. Without the launch that adds parts.
    """
    parts, in_cluster, _ = division
    blocks, pieces, leaving = one.blocks, work.tiles * parts, one.part if parts > 1 else one.whole
    is_filled = pieces >= sms and not in_cluster
    own = -(-work.steps // parts) * (one.paced if is_filled else one.paced_among(pieces, sms, in_cluster))
    if blocks == 1:
        own += least.endings[parts > 1]
    else:
        sharing = 1 if pieces <= sms else blocks
        own = _of_block(one, leaving, own, least.endings[parts > 1], sharing)
    clocks = -(-pieces // (sms * blocks)) * (own if own > leaving.all else leaving.all) + one.outside[parts > 1]
    clocks += least.busy - least.idle * (1.0 - pieces / sms) if pieces < sms else least.busy
    return clocks > limit or (in_cluster and clocks + _joining(one, parts, 1) > limit)


def summing(one: TileClocks, tiles: int, parts: int, machine: Machine) -> float:
    """Seconds of the launch that adds the parts, which stay in the cache."""
    if parts == 1:
        return 0.0
    partial = 4.0 * tiles * one.tile.bm * one.tile.bn * parts
    return summing_seconds(partial, machine.launch, machine.bandwidth)


def summing_seconds(partial: float, launch: float, bandwidth: float) -> float:
    """Of the launch that adds so many bytes of partial sums."""
    return _SUM * launch + partial / bandwidth


class _Rounds(NamedTuple):
    clocks: float
    busy: int  # blocks, as of a choice


def _rounds(work: Work, places: int, clocks: float, end: float) -> _Rounds:
    """Of so many blocks that take so long for a tile, and for its end alone. Those that are left when no block has a
    tile more than it must may have all the empty ones.
    """
    rounds = -(-work.tiles // places)
    together = rounds * clocks + (-(-(work.tiles + work.empty) // places) - rounds) * end
    busy = -(-work.tiles // rounds)
    if busy == places:
        return _Rounds(together, 0)
    apart = max(rounds * clocks, -(-work.empty // (places - busy)) * end)
    return _Rounds(apart, busy) if apart < together else _Rounds(together, 0)


def _joining(one: TileClocks, parts: int, sharing: int) -> float:
    """Clocks in which the blocks of a cluster add their parts."""
    sent = 4.0 * sharing * one.tile.bm * one.tile.bn * (parts - 1) / parts
    return (not one.is_across) * _MEETING + sent / _SENT + one.whole.own / parts

"""Tiles of the products on compute capability 9.0, and the choice of one: a model of a block's clocks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import inf
from typing import NamedTuple

from graphdnn.device import DeviceSpec
from graphdnn.engines.cuda.hopper.machine import Machine
from graphdnn.engines.engine import Knob, Knobs
from graphdnn.enums import KnobType
from graphdnn.multiprocessor import RESERVED

ROW = 128  # bytes of k in a stage, as in hopper_pipeline.cuh
PANEL = 64  # rows of a panel
SLICE = 32  # bytes of k that an instruction multiplies
_BARRIERS = 16  # bytes for each stage
_MOST_STAGES = 8
SMALLEST_RING = 2  # stages: a product frees the one before its own, so with a single one everybody waits for ever

# The model's constants, fitted by benchmarks/fit_predictions.py to 1,800 pairs of a problem and a tile (convolutions
# and matrix products, of 16-bit floats and TF32), operands from memory, on an H200: the choice is 1.2 % slower than the
# best one.
_PRODUCT = 0.0386  # clocks for each sum of a tile, and step of k
_SHARED = 135.0  # bytes of shared memory a clock, that products read or copies write
_COPIED = 67.5  # bytes a clock from the second level of cache
_STEP = 2.45  # clocks of a step besides
_TILE = 1490.0  # clocks of a tile besides
_APART = 0.137  # of which other warpgroups hide so much, where the ring holds more than a tile's steps
_TURN = 1770.0  # of which remain where two blocks take turns
_LEAVING = 12.5  # bytes a clock of results, and of what is read for them
_STREAMED_SHARE = 0.56  # of the bytes of a residual that comes through the ring
_SUM_OUT = 0.0077  # clocks of a warpgroup for each of its sums
_BYTE_OUT = 0.027  # and for each byte that it moves then
_LEAST_OUT = 2.41  # bytes of an element that leaves: a byte takes instructions as well
_TURNED_BYTE = 0.0553  # clocks of a warpgroup for each of its sums, where they leave turned
# The same where results are bytes, fitted to 36 pairs of 10 layers.
_OF_BYTES = 1540.0  # clocks of a tile besides
_BYTE_LEAVES, _BYTE_MOVES = 2.3, 1.5  # bytes that one counts as, of a warpgroup's and of all that leave
_BYTE_WIDE = 0.075  # clocks for each sum besides: of more than 128 columns
_BYTE_APART = 0.1  # and of turned ones, or of three warpgroups
_NARROW = 128  # columns
# Sums of bytes that leave as words, fitted to 4 layers: clocks of a tile besides.
_LATE_OF_INTEGERS = 2400.0  # where three warpgroups multiply, or results leave turned
_CONVERTED = 24.0  # sums that become floats in one
_NORM = 4.0  # of the longer of what a multiprocessor does and what memory takes
_LAST_OUT = 0.448  # times these clocks: nothing is left to be multiplied while the last tiles leave
# Filter gradients, whose operands both come from memory: fitted to 180 pairs of 34 layers.
_START_ACROSS = 600.0  # clocks of a launch besides
_TURN_ACROSS = 1140.0  # clocks of a tile besides, where two blocks may share a multiprocessor
_THREE_ACROSS = 300.0  # clocks of a tile besides, where three warpgroups multiply
_MOVED_ACROSS = 0.93  # times what moving the bytes of a step takes elsewhere
_IDLE_ACROSS = 0.6  # of the share of multiprocessors that idle, by which a step takes less
_IDLE_IN_CLUSTER = 0.2  # that share at most, in clusters
_SHARING = 1300.0  # clocks of a tile besides, where it shares a panel
_PARTIAL_ROW = 5.0  # clocks of a copied row of less than 128 bytes
# Clocks of the copy unit for a row of 128 bytes, where it is more than the second level of cache takes.
_IN_TWO, _ODD, _PARTIAL, _EMPTY = 2.56, 5.56, 4.12, 9.0
_ALONE, _TURNED_ALONE = 3.03, 0.93  # clocks of a warpgroup for each sum that leaves alone
# Parts that blocks of a cluster add.
_MEETING = 1340.0  # clocks until all of them have met, where operands are not all of the time
_IN_CLUSTER = 1.02  # times what products take elsewhere
_SENT = 20.0  # bytes a clock that a multiprocessor sends to others
_CLUSTERS = {2: 66, 3: 39, 4: 30, 5: 22, 6: 17, 7: 15, 8: 15}  # of so many blocks, at the same time
_OF = 132  # on so many multiprocessors, a block on each
_PIECE = 32  # columns that leave together
_UNIT = 8 * _PIECE  # sums that are sent together
_START = -3190.0  # clocks of a launch: less than others take, as it starts while the one before ends
_PACE = 0.96  # of the highest clock
_ROUNDING = 1 + 1e-9  # a bound may be as high as what it bounds
_SUM = 0.707  # launches' time that a split costs
_SUM_PACE = 1.1  # of the bandwidth, of partial sums that are read
_STREAM = 41.4e9  # bytes a second from memory to one multiprocessor
_UNDER_WAY = 74.8e3  # of which half remain where so many bytes of operands are on their way
_COPY_PACE = 0.88  # of the bandwidth, of operands
_LEAST_STAGES = 3
_OTHER_REGISTERS, _TURNED_REGISTERS = 40, 8  # of a thread, than those of sums; more where they leave turned
_MOST_TURNED_SUMS = 96  # of a thread, beside a residual
_REGISTERS, _MOST_REGISTERS = 65536, 255  # of a multiprocessor, and of a thread


@dataclass(frozen=True)
class Tile:
    """A block's tile of the product. ``blocks``: how many share a multiprocessor, which lets the results of one leave
    while another multiplies. ``is_turned``: its rows are the products' columns, so that more shapes of the other side
    fill the device; sums are not split then. ``shares``: of a filter gradient, whose columns are panels of 64 channels
    at a tap; what is left of ``bn`` beside whole panels is a share of one that neighbouring tiles have the rest of.
    """

    bm: int
    bn: int
    blocks: int = 1
    is_turned: bool = False
    shares: bool = False

    @cached_property
    def consumers(self) -> int:
        """Warpgroups that multiply."""
        return {64: 1, 128: 2, 192: 3, 256: 2}[self.bm]

    @cached_property
    def registers(self) -> tuple[int, int]:
        """Of a thread that multiplies and of one that copies. Together they must not be more than a block begins with
        (``registers_at_start`` for each thread): taking would wait for ever.
        """
        if self.blocks == 2:
            return {1: (208, 40), 2: (104, 24)}[self.consumers]
        return {1: (240, 56), 2: (232, 40), 3: (160, 24)}[self.consumers]

    @property
    def registers_at_start(self) -> int:
        """That the compiler may use for each thread, and therefore does."""
        return min(_MOST_REGISTERS, _REGISTERS // (self.blocks * 128 * (self.consumers + 1))) // 8 * 8

    def holds(self, sets: int) -> bool:
        """Whether so many sets of a tile's sums fit into registers."""
        others = _OTHER_REGISTERS + (_TURNED_REGISTERS if self.is_turned else 0)
        return sets == 1 or sets * self.sums <= self.registers[0] - others

    @property
    def sums(self) -> int:
        """Of a thread."""
        return self.bm // (64 * self.consumers) * self.bn // 2

    @cached_property
    def stage_bytes(self) -> int:
        """A panel of which a tile has a share is copied whole."""
        columns = -(-self.bn // PANEL) * PANEL if self.shares else self.bn
        return (self.bm + columns) * ROW

    @property
    def padded(self) -> int:
        """Sums, in whole pieces of 32 columns."""
        return self.bm * -(-self.bn // _PIECE) * _PIECE

    @cached_property
    def step_clocks(self) -> float:
        """A stage is multiplied while the next one is copied."""
        return max(self.bm * self.bn * _PRODUCT, self._moving_clocks) + _STEP

    @cached_property
    def across_clocks(self) -> float:
        """The same of filter gradients."""
        return max(self.bm * self.bn * _PRODUCT, _MOVED_ACROSS * self._moving_clocks) + _STEP

    @property
    def _moving_clocks(self) -> float:
        moved = self.stage_bytes + self.bm // PANEL * (PANEL + self.bn) * ROW
        return max(moved / _SHARED, self.stage_bytes / _COPIED)

    def leaving_clocks(self, bytes_out: float, are_bytes: bool = False, are_alone: bool = False) -> float:
        """A warpgroup's, for its own sums. ``are_bytes``: the results; ``are_alone``: they leave one by one."""
        other = _TURNED_BYTE if self.is_turned and bytes_out < _LEAST_OUT else 0.0
        if are_bytes:
            other += _BYTE_WIDE * (self.bn > _NARROW) + _BYTE_APART * (self.is_turned or self.consumers == 3)
        counted = _BYTE_LEAVES if are_bytes else max(bytes_out, _LEAST_OUT)
        if are_alone:
            other += _TURNED_ALONE if self.is_turned else _ALONE
        return self.bm * self.bn / self.consumers * (_SUM_OUT + _BYTE_OUT * counted + other)

    def stages(self, shared_memory: int, beside: int = 0) -> int:
        """That there is room for, beside so many other bytes of each block."""
        room = shared_memory // self.blocks - RESERVED - 256 - beside
        return min(_MOST_STAGES, room // (self.stage_bytes + _BARRIERS))

    def inbox(self, parts: int) -> int:
        """Bytes in which a block of a cluster finds what the others have added: units of 8 rows and 32 columns."""
        units = self.padded // _UNIT
        return -(-units // parts) * parts * _UNIT * 4

    @property
    def name(self) -> str:
        kind = (f"b{self.blocks}" if self.blocks > 1 else "") + "t" * self.is_turned + "s" * self.shares
        return f"{self.bm}x{self.bn}{kind}"


_WIDTHS = {  # by blocks and rows
    (1, 128): (256, 192, 160, 128, 96, 64),
    (1, 256): (160, 128, 96, 64),
    (1, 192): (192, 160, 128, 64),
    (1, 64): (256, 192, 128, 64),
    (2, 128): (64,),
    (2, 64): (192, 128, 64),
}
_TURNED = (128, 96), (128, 160), (128, 192), (128, 224), (256, 96)
TILES: tuple[Tile, ...] = (
    *(Tile(bm, bn, blocks) for (blocks, bm), widths in _WIDTHS.items() for bn in widths),
    *(Tile(bm, bn, is_turned=True) for bm, bn in _TURNED),
    Tile(128, 144, shares=True),
)

TILE = Knob(KnobType.TILE_SIZE, 0, len(TILES), 1, 0, "0: chosen by the shape; else the number of a tile, if it serves")
STAGES = Knob(
    KnobType.STAGES,
    0,
    _MOST_STAGES,
    1,
    0,
    "stages of the ring in shared memory, 2 at least, if they fit; 0: as many as fit",
)
PARTS = Knob(KnobType.SPLIT_K, 0, 128, 1, 0, "parts of the sum, computed side by side; 0: chosen by the shape")
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


LARGEST = 256  # rows of a tile


class Pieces(NamedTuple):
    """Rows of 128 bytes that are not one whole line of memory, as shares of an operand's rows."""

    in_two: float = 0.0  # that reach from one line into the next
    odd: float = 0.0  # that do so within a sector of 32 bytes
    partial: float = 0.0  # of which channels fill a part

    def clocks(self) -> float:
        """Of a row, in the mean."""
        whole = 1.0 - self.in_two - self.odd - self.partial
        return whole * ROW / _COPIED + self.in_two * _IN_TWO + self.odd * _ODD + self.partial * _PARTIAL


WHOLE = Pieces()


class Sizes(NamedTuple):
    """What the choice depends on."""

    products: tuple[tuple[int, int], ...]  # rows and steps of k, for each residue
    columns: int  # of each product
    groups: int
    column_unit: int  # columns that a tile holds a whole number of
    result_bytes: int  # of an element that leaves, and of what is read for it
    is_turned: bool = False  # every tile's rows are the products' columns
    is_across: bool = False  # operands lie across k
    sets: int = 1  # of sums: two where tensor cores keep them for a few steps only
    pixel_rows: Pieces = WHOLE  # as channels of pixels are copied
    filter_rows: Pieces = WHOLE  # and those of filters
    few_rows: int = 0  # all of a product's, where a tile may hold more
    are_followed: bool = False  # columns of a group: behind the last one are the next group's
    are_alone: bool = False  # results begin at odd places: they leave one by one
    of_integers: bool = False  # sums
    are_converted: bool = False  # of which floats are made
    may_be_turned: bool = False  # some tiles' rows may be
    may_share: bool = False  # some tiles' columns may end within a panel
    bytes_read: int = 0  # by filter gradients, and products of matrices
    streamed_bytes: int = 0  # of those of a result, what comes through the ring
    bytes_moved: int = 0  # by others: no product is faster than memory, but a launch that adds parts comes on top
    odd_rows: int = 0  # of a product across k, where the last panel is not whole
    odd_blocks: int = 0  # of columns for each tap, where the last one is not whole

    def sides(self, tile: Tile) -> tuple[int, int]:
        """What a tile holds of the products' rows and columns."""
        return (tile.bn, tile.bm) if self.is_turned or tile.is_turned else (tile.bm, tile.bn)

    @property
    def bytes_out(self) -> float:
        """Of an element that leaves, with what threads themselves read for it."""
        return self.result_bytes - (1.0 - _STREAMED_SHARE) * self.streamed_bytes

    def partial_panels(self, tile: Tile) -> int:
        """Of operands across k: those of a tile, at most, whose rows are not whole."""
        missing = -(-self.odd_rows // tile.bm) * tile.bm - self.odd_rows // PANEL * PANEL if self.odd_rows else 0
        return missing // PANEL + (-(-tile.bn // PANEL // self.odd_blocks) if self.odd_blocks else 0)

    def copied_clocks(self, tile: Tile, empty: float = 0.0) -> float:
        """Of the copy unit for a step, by the rows that it copies. ``empty``: the share of the columns that is behind
        the last one, where it fills rows with zeros, as it does behind a product's last row.
        """
        if self.is_across:
            return 0.0
        rows, columns = self.sides(tile)
        none = max(0, rows - self.few_rows) if self.few_rows else 0
        filters = (1.0 - empty) * self.filter_rows.clocks() + empty * _EMPTY
        return (rows - none) * self.pixel_rows.clocks() + none * _EMPTY + columns * filters

    def takes(self, tile: Tile) -> bool:
        if tile.is_turned and not self.may_be_turned:
            return False
        if tile.is_turned and self.streamed_bytes and tile.sums >= _MOST_TURNED_SUMS:
            return False
        if tile.shares:
            return self.may_share
        return tile.holds(self.sets) and (self.column_unit == 1 or self.sides(tile)[1] % self.column_unit == 0)

    @property
    def may_be_split(self) -> bool:
        return len(self.products) == 1 and not self.are_alone


@dataclass(frozen=True, slots=True)
class Choice:
    tile: Tile
    stages: int
    parts: int
    seconds: float
    summing: float  # of these seconds, those of the launch that adds the parts
    in_cluster: bool = False  # parts are the blocks of a cluster, which add them
    busy: int = 0  # blocks that have the tiles with steps, where others have those without; 0: nobody is apart


def choose(sizes: Sizes, device: DeviceSpec, knobs: Knobs) -> Choice:
    """The fastest of the allowed tiles and parts. A tile that does not divide the columns, or a ring that does not fit,
    gives way to what is chosen by the shape.
    """
    # A multiprocessor adds 2048 products of 16-bit numbers a clock.
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


class _Division(NamedTuple):
    """Into how many parts, whether blocks of a cluster add them, and the stages that there is room for then."""

    parts: int
    in_cluster: bool
    stages: int


_division = lru_cache(maxsize=4096)(_Division)


@lru_cache(maxsize=1024)
def _fastest(sizes: Sizes, machine: Machine, asked: _Asked) -> Choice | None:
    """The first in the table of those that take the least. Bounds say which are not worked out."""
    products, columns = sizes.products, sizes.columns
    pace, parts, joining = machine.clock * _PACE, asked.parts, asked.joining
    groups = sizes.groups
    table = _table(sizes._replace(products=(), groups=1, bytes_read=0, bytes_moved=0), machine, asked)
    may_be_split, sms = sizes.may_be_split, machine.sms
    filled = groups * sum([rows * depth for rows, depth in products])
    # Seconds, place, which part; of equals the first.
    best: tuple[float, int, int, _Taken, _Division, _Work, int] | None = None
    limit, first, is_tried = inf, table.tried_first, False  # clocks
    for one in (*first, *table.tiles):
        if table.start + filled * one.pace > limit:
            break  # slower even if they filled the device all the time, as are those that follow
        if first and one is first[0]:
            if is_tried:
                continue
            is_tried = True
        taken = one.taken
        count, steps, empty = one.counted(products, groups)
        least = taken.start + (steps * taken.step + (count if count > sms else sms) * taken.turn) / sms
        if least > limit:
            continue
        work, tile = _Work(count, steps / count, empty), taken.tile
        divisions = [_division(parts or 1, False, taken.most)]
        if may_be_split and not tile.is_turned:
            if not parts and least + pace * _summing(taken, count, 2, machine) <= limit:
                divisions += [_division(part, False, taken.most) for part in _parts(products[0][1], count, sms)]
            if joining != _BY_LAUNCH:
                most = inf if joining == _BY_CLUSTER else limit  # others take their place only where there are none
                in_clusters = one.in_clusters(products[0][1], count, asked, most)
                divisions = in_clusters if in_clusters and joining == _BY_CLUSTER else divisions + in_clusters
        for i, division in enumerate(divisions):
            if _is_slower(taken, work, division, machine, limit):
                continue
            operands = ROW * (min(taken.rows_held, products[0][0]) + min(taken.columns_held, columns))
            read = _Read(sizes.bytes_read, division.stages * operands, sizes.is_across, sizes.bytes_moved)
            seconds, busy = _seconds(taken, work, division, machine, read)
            if best is None or (seconds, one.place, i) < best[:3]:
                best = seconds, one.place, i, taken, division, work, busy
                limit, table.tried_first = seconds * pace * _ROUNDING, (one,)
    if best is None:
        return None
    seconds, _, _, taken, division, work, busy = best
    summing = _summing_of(taken, work.tiles, division, machine)
    stages = max(asked.stages, SMALLEST_RING) if asked.stages else division.stages
    return Choice(taken.tile, stages, division.parts, seconds, summing, division.in_cluster, busy)


class _Placed(NamedTuple):
    """A tile that serves, among others of the same columns."""

    place: int  # in the table of tiles
    pace: float  # clocks of each row and step of k of a group, no less, where all multiprocessors are busy
    across: int  # along a group's columns
    taken: _Taken
    clusters: tuple[tuple[int, _Division], ...]  # with the most tiles whose clusters run at the same time

    def counted(self, products: tuple[tuple[int, int], ...], groups: int) -> tuple[int, int, int]:
        """Tiles, steps of all of them, and empty tiles."""
        if len(products) > 1:
            return _counted(products, self.taken.rows_held, self.across * groups)
        ((rows, depth),) = products
        count = -(-rows // self.taken.rows_held) * self.across * groups
        return count, count * depth, 0

    def in_clusters(self, depth: int, tiles: int, asked: _Asked, limit: float) -> list[_Division]:
        """Parts in clusters that run at the same time, unless they were asked for; none where all of them take more
        than ``limit`` clocks.
        """
        if asked.parts:
            at_once = depth >= 2 * asked.parts
            is_asked = asked.joining == _BY_CLUSTER
            return [
                d for most, d in self.clusters if d.parts == asked.parts and (is_asked or (at_once and tiles <= most))
            ]
        found = [one for most, one in self.clusters if tiles <= most and depth >= 2 * one.parts]
        return [] if not found or _least_in_cluster(self.taken, depth, found[-1].parts) > limit else found


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
            paced = kind.copied_clocks(one.tile, empty) if empty and not kind.are_followed else 0.0
            held = one if paced <= one.paced else replace(one, paced=paced)
            placed.append(_Placed(place, pace, across, held, _clusters(one.tile, machine, asked)))
        self.tiles = tuple(sorted(placed, key=_pace_and_place))
        self.start = min([one.start for one in taken], default=0.0)
        self.tried_first: tuple[_Placed, ...] = ()


def _clusters(tile: Tile, machine: Machine, asked: _Asked) -> tuple[tuple[int, _Division], ...]:
    """Divisions with enough stages, the fewest parts first; blocks that share a multiprocessor are not measured as
    clusters, and are theirs only where that is asked for.
    """
    found, least = [], max(asked.stages, _LEAST_STAGES)
    for parts, most in _CLUSTERS.items():
        stages = tile.stages(machine.shared_memory, tile.inbox(parts))
        if stages >= least and (tile.blocks == 1 or asked.parts):
            at_once = most * machine.sms // _OF if tile.blocks == 1 else 0
            found.append((at_once, _division(parts, True, stages)))
    return tuple(found)


def _pace_and_place(one: _Placed) -> tuple[float, int]:
    return one.pace, one.place


_table = lru_cache(maxsize=256)(_Table)


class _Leaving(NamedTuple):
    """Clocks with which a tile's results leave."""

    own: float  # of a warpgroup, for its own sums
    all: float  # of everything that a multiprocessor's blocks move
    turn: float  # besides, where two blocks take turns
    tile: float  # of a tile besides

    @classmethod
    def of(cls, tile: Tile, bytes_out: float, are_bytes: bool = False, are_alone: bool = False) -> _Leaving:
        own = tile.leaving_clocks(bytes_out, are_bytes, are_alone)
        turn = _TURN + own if tile.blocks > 1 else 0.0
        moved = _BYTE_MOVES if are_bytes else max(bytes_out, _LEAST_OUT)
        return cls(own, tile.blocks * tile.bm * tile.bn * moved / _LEAVING, turn, _OF_BYTES if are_bytes else _TILE)


@dataclass(frozen=True, slots=True)
class _Taken:
    """A tile that serves, with what extents do not change. ``step``, ``turn`` and ``start`` make a bound below what
    ``_seconds`` comes to with any number of parts: clocks of each step, of each tile and of all of them.
    """

    tile: Tile
    most: int  # stages that there is room for
    rows_held: int
    columns_held: int
    paced: float  # clocks of a step, where copied pixels come row by row
    is_across: bool
    besides: float  # clocks of a tile
    whole: _Leaving
    part: _Leaving
    apart: float  # of what a tile takes besides its steps
    step: float
    turn: float
    start: float
    blocks: int  # that share a multiprocessor
    outside: tuple[float, float]  # clocks before and after all tiles: of whole ones, and of parts

    @classmethod
    def of(cls, sizes: Sizes, tile: Tile, most: int) -> _Taken:
        rows_held, columns_held = sizes.sides(tile)
        step = tile.across_clocks if sizes.is_across else tile.step_clocks
        are_bytes = sizes.bytes_out < 2 and sizes.sets == 1
        alone = sizes.are_alone
        leaving = _Leaving.of(tile, sizes.bytes_out, are_bytes, alone), _Leaving.of(tile, 4, are_alone=alone)
        least = min(one.own for one in leaving)
        apart = _APART * (tile.consumers - 1) / tile.consumers
        paced = max(step, sizes.copied_clocks(tile), sizes.partial_panels(tile) * PANEL * _PARTIAL_ROW)
        turn = 0.0 if tile.blocks > 1 else min(one.tile + one.own for one in leaving) * (1.0 - apart)
        start = _LAST_OUT * least + _START + sizes.is_across * _START_ACROSS
        besides = _SHARING * tile.shares
        if tile.consumers == 3:
            besides += sizes.is_across * _THREE_ACROSS
        if sizes.of_integers and not are_bytes:
            besides += _LATE_OF_INTEGERS * (tile.consumers == 3 or tile.is_turned)
            besides += sizes.are_converted * tile.bm * tile.bn / _CONVERTED
        own = _START + sizes.is_across * _START_ACROSS
        outside = own + _LAST_OUT * leaving[0].own, own + _LAST_OUT * leaving[1].own
        return cls(
            tile, most, rows_held, columns_held, paced, sizes.is_across, besides, *leaving, apart, step, turn, start,
            tile.blocks, outside,
        )  # fmt: skip


@lru_cache(maxsize=256)
def _taken(kind: Sizes, number: int, stages: int, is_split: bool, shared_memory: int) -> tuple[_Taken, ...]:
    """The allowed tiles with enough stages that may hold products of such sizes. ``kind``: sizes without extents."""
    tiles = [(tile, tile.stages(shared_memory)) for tile in ((TILES[number - 1],) if number else TILES)]
    least = max(stages, SMALLEST_RING if number else _LEAST_STAGES)
    fitting = [(tile, most) for tile, most in tiles if most >= least and not (tile.is_turned and is_split)]
    return tuple(_Taken.of(kind, tile, most) for tile, most in fitting if kind.takes(tile))


def tiles_of(sizes: Sizes, tile: Tile) -> int:
    return sizes.groups * sum(down * across for down, across in tiles_by_residue(sizes, tile))


def tiles_by_residue(sizes: Sizes, tile: Tile) -> list[tuple[int, int]]:
    """Tiles along the rows and along the columns of each product."""
    rows_held, columns_held = sizes.sides(tile)
    return [(-(-rows // rows_held), -(-sizes.columns // columns_held)) for rows, _ in sizes.products]


def _parts(depth: int, tiles: int, sms: int) -> tuple[int, ...]:
    """More than one, that give every multiprocessor the same number of pieces."""
    found: list[int] = []
    for waves in (1, 2, 3):
        parts = min(waves * sms // tiles, depth, PARTS.maximum)
        if parts > (found[-1] if found else 1) and depth >= 2 * parts:
            found.append(parts)
    return tuple(found)


def _least_in_cluster(one: _Taken, depth: int, most: int) -> float:
    """Clocks that no division into so many parts at most is below, whose clusters run at the same time."""
    multiplying, leaving = -(-depth // most) * _paced(one, 0, 1, False), one.part
    return max(multiplying, leaving.all) + _LAST_OUT * leaving.own + _START + one.whole.own / most


class _Read(NamedTuple):
    """Bytes from memory: all of them, and those of a block's ring."""

    bytes: float
    under_way: float
    is_across: bool
    moved: int

    def seconds(self, pieces: int, blocks: int, machine: Machine) -> float:
        """Of pieces that each bring as much: a few multiprocessors do not fill memory, nor do short rings."""
        if not self.bytes:
            return self.moved / machine.bandwidth
        if self.is_across:  # of two operands much is under way
            return self.bytes / (machine.bandwidth * _COPY_PACE)
        of_one = _STREAM * blocks * self.under_way / (blocks * self.under_way + _UNDER_WAY)
        most, places = machine.bandwidth * _COPY_PACE, blocks * machine.sms
        whole, rest = divmod(pieces, places)
        seconds = whole * places / min(most, machine.sms * of_one)
        return self.bytes / pieces * (seconds + (rest / min(most, min(rest, machine.sms) * of_one) if rest else 0.0))


class _Work(NamedTuple):
    """Tiles of a size. ``empty``: those of residues that no tap reaches, which are ends alone."""

    tiles: int
    steps: float  # of a tile, in the mean
    empty: int = 0


def _counted(products: tuple[tuple[int, int], ...], rows_held: int, across: int) -> tuple[int, int, int]:
    """Tiles that hold so many rows, steps of all of them, and empty tiles; ``across``: along the columns of all."""
    tiles = [(-(-rows // rows_held) * across, depth) for rows, depth in products]
    steps, every = sum([n * depth for n, depth in tiles]), sum([n for n, _ in tiles])
    count = sum([n for n, depth in tiles if depth]) or every  # of empty ones alone, all are like others
    return count, steps, every - count


class _Rounds(NamedTuple):
    clocks: float
    busy: int  # blocks, as of a choice


def _rounds(work: _Work, places: int, clocks: float, end: float) -> _Rounds:
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


def _seconds(one: _Taken, work: _Work, division: _Division, machine: Machine, read: _Read) -> tuple[float, int]:
    """Of all waves of tiles, and of the sum of the parts; and which blocks are busy."""
    parts, in_cluster, stages = division
    blocks, leaving, pieces = one.blocks, one.part if parts > 1 else one.whole, work.tiles * parts
    sharing = 1 if one.is_across and pieces <= machine.sms else blocks
    places = blocks * (parts * (_CLUSTERS[parts] * machine.sms // _OF) if in_cluster else machine.sms)
    rounds = -(-pieces // places)
    depth = max(1.0, -(-work.steps // parts))
    multiplying = depth * _paced(one, pieces, machine.sms, in_cluster)
    # Where a tile follows, warpgroups hide each other's ends.
    hidden = one.apart * min(1.0, (stages - 1) / depth) * (rounds - 1) / rounds if parts == 1 else 0.0
    # One block's results leave while the other multiplies.
    ending = (leaving.tile + leaving.own) * (1.0 - hidden) + one.besides
    if blocks == 1 or not one.is_across:
        own = max(multiplying + ending, blocks * multiplying + leaving.turn)
    else:
        own = sharing * multiplying + _TURN_ACROSS + (leaving.own if sharing > 1 else ending)
    busy: float = (own**_NORM + leaving.all**_NORM) ** (1 / _NORM)  # more than either, where they are alike
    spent, apart = rounds * busy, 0
    if work.empty:
        spent, apart = _rounds(_Work(pieces, work.steps, work.empty), places, busy, ending)
    clocks = spent + _LAST_OUT * leaving.own + _START + one.is_across * _START_ACROSS
    if in_cluster:
        clocks += _joining(one, parts, sharing)
    seconds, reading = clocks / (machine.clock * _PACE), read.seconds(pieces, blocks, machine)
    seconds = (seconds**_NORM + reading**_NORM) ** (1 / _NORM) if one.is_across else max(seconds, reading)
    return seconds + _summing_of(one, work.tiles, division, machine), apart


def _is_slower(one: _Taken, work: _Work, division: _Division, machine: Machine, limit: float) -> bool:
    """Whether a bound below ``_seconds``, in a fourth of its time, is beyond so many clocks: what a block multiplies,
    or all that leaves, and how parts are added.
    """
    parts, in_cluster, _ = division
    blocks, sms, pieces = one.blocks, machine.sms, work.tiles * parts
    sharing = 1 if one.is_across and pieces <= sms else blocks
    leaving = (one.part if parts > 1 else one.whole).all
    multiplying = -(-work.steps // parts) * _paced(one, pieces, sms, in_cluster) * sharing
    rounds = -(-pieces // (sms * blocks))
    clocks = rounds * (multiplying if multiplying > leaving else leaving) + one.outside[parts > 1]
    if parts == 1 or clocks > limit:
        return clocks > limit
    if in_cluster:
        return clocks + _joining(one, parts, sharing) > limit
    return clocks + machine.clock * _PACE * _summing(one, work.tiles, parts, machine) > limit


def _joining(one: _Taken, parts: int, sharing: int) -> float:
    """Clocks in which the blocks of a cluster add their parts."""
    sent = 4.0 * sharing * one.tile.bm * one.tile.bn * (parts - 1) / parts
    return (not one.is_across) * _MEETING + sent / _SENT + one.whole.own / parts


def _paced(one: _Taken, pieces: int, sms: int, in_cluster: bool) -> float:
    """Clocks of a step. Of filter gradients, multiprocessors that idle leave others their share of the cache; blocks of
    a cluster, which have no pixels in common, make use of little of it.
    """
    if not one.is_across:
        return one.paced * (_IN_CLUSTER if in_cluster else 1.0)
    idle = max(0.0, 1.0 - pieces / sms)
    if in_cluster:
        return one.paced / _MOVED_ACROSS * (1.0 - _IDLE_ACROSS * min(idle, _IDLE_IN_CLUSTER))
    return one.paced * (1.0 - _IDLE_ACROSS * idle)


def _summing_of(one: _Taken, tiles: int, division: _Division, machine: Machine) -> float:
    return 0.0 if division.in_cluster else _summing(one, tiles, division.parts, machine)


def _summing(one: _Taken, tiles: int, parts: int, machine: Machine) -> float:
    """Of the launch that adds the parts, which stay in the cache."""
    if parts == 1:
        return 0.0
    partial = 4.0 * tiles * one.tile.bm * one.tile.bn * parts
    return summing_seconds(partial, machine.launch, machine.bandwidth)


def summing_seconds(partial: float, launch: float, bandwidth: float) -> float:
    """Of the launch that adds so many bytes of partial sums."""
    return _SUM * launch + partial / (bandwidth * _SUM_PACE)

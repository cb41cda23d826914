"""Tiles of the implicit GEMM with mma.sync, and the choice of a tile by a model of waves of CTAs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

from graphdnn.device.multiprocessor import RESERVED
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.conv_geometry.gemm_problem import GemmProblem
from graphdnn.engines.cuda.simt.implicit_tiles import SPLITS
from graphdnn.engines.engine import Knob, Knobs
from graphdnn.enums import DataType, KnobType

_ROW = 16  # the fewest bytes of a table entry
_BATCH = 8  # the most K tiles whose index tables are filled at a time
_UNASKED = 48 * 1024  # bytes of shared memory that a kernel may use without opt-in
_REGISTERS = 65_536
_MOST_BLOCKS = 4
_OF_SCATTERED_BYTES = 2  # resident CTAs of an SM: a byte and its address take a register each
_OF_RESIDUES = 24  # registers of the residues' tables
_OF_PLACES = 60  # registers of addresses of single elements


@dataclass(frozen=True, slots=True)
class Tile:
    """The tile of a CTA and of a warp."""

    bm: int
    bn: int
    wm: int
    wn: int

    @property
    def threads(self) -> int:
        return 32 * (self.bm // self.wm) * (self.bn // self.wn)

    @property
    def name(self) -> str:
        return f"{self.bm}x{self.bn}"

    def registers(self, more: int) -> int:
        """Estimated registers of a thread: accumulators, two sets of fragments, addresses, and ``more``."""
        sums, operands = self.wm * self.wn // 32, 2 * (self.wm + self.wn) // 4
        return -(-(sums + operands + 44 + more) // 8) * 8

    def resident(self, more: int) -> int:
        """Resident CTAs of an SM, which bound the registers of a thread."""
        return max(1, min(_MOST_BLOCKS, _REGISTERS // (min(255, self.registers(more)) * self.threads)))


# Largest first, and the faster one first of two equal sizes; the last tiles are for few rows and columns per group.
TILES: tuple[Tile, ...] = (
    Tile(128, 256, 64, 64),
    Tile(256, 128, 64, 64),
    Tile(128, 128, 64, 32),
    Tile(128, 128, 64, 64),
    Tile(256, 64, 64, 32),
    Tile(64, 256, 32, 64),
    Tile(128, 64, 64, 32),
    Tile(64, 128, 32, 64),
    Tile(64, 64, 32, 32),
    Tile(128, 32, 32, 32),
    Tile(32, 128, 32, 32),
    Tile(32, 32, 16, 16),
)

TILE = Knob.row_of(TILES, KnobType.TILE_SIZE, "0: chosen by the shape; else the number of a tile, largest first")
DEPTH = Knob(KnobType.TILEK, 0, 2, 1, 0, "0: chosen by the shape; else 64 or 128 bytes of the sum in a tile")
STAGES = Knob(KnobType.STAGES, 1, 5, 1, 1, "1: as many as fit; else tiles of both operands in shared memory, at most")
OCCUPANCY = Knob(KnobType.OCCUPANCY, 0, 4, 1, 0, "0: chosen by the tile; else blocks that share an SM, at most")
SPLIT = Knob(
    KnobType.SPLIT_K,
    0,
    7,
    1,
    0,
    "0: chosen by the shape; else the sum is computed in up to 2 to the power n-1 parts of whole tiles, side by side",
)
STAY = Knob(KnobType.CTA_COUNT, 0, 2, 1, 0, "0, 1: a block for each tile; 2: blocks stay, if they can")
KNOBS = (TILE, DEPTH, STAGES, OCCUPANCY, STAY, SPLIT)
_MOST_SPLITS = 128  # the most splits that the model chooses
_LEAST_DEPTH = 4  # the fewest K tiles of a split
_MANY = 16  # CTAs for each SM above which further splits only add partial sums
_IDLE_SM_RATE = 0.4  # throughput of an SM with few warps over its full throughput
# Nanoseconds of an SM for a warp's load of operands, for 4, 8 and 16 bytes of a lane alike: twelve layers with odd
# channels took 5 to 7 on an H200.
_ACCESS = 5.2e-9
# The throughput with loads of single elements through registers over the full one, by the bytes of an element.
_SCATTERED = {1: 0.14, 2: 0.24, 4: 0.21}
_ROUNDING = 1 + 1e-9  # a bound may equal the value that it bounds


@dataclass(frozen=True, slots=True)
class Shape:
    """A tile with its stages, the number of splits, and the predicted time."""

    tile: Tile
    bk: int  # elements of a K tile
    stages: int
    resident: int
    splits: int
    seconds: float
    tables: int  # the most bytes of the index tables
    persistent: bool  # whether a CTA computes several work tiles

    @property
    def name(self) -> str:
        return f"{self.tile.name}x{self.bk}s{self.stages}{'_stays' if self.persistent else ''}"

    @property
    def batch(self) -> int:
        return _batch(self.bk, self.stages)

    def shared(self, element: int) -> int:
        """Bytes of dynamic shared memory: the stages, and the epilogue buffer, which may share their memory."""
        tile = self.tile
        stages = self.stages * (tile.bm + tile.bn) * self.bk * element
        epilogue_seconds = tile.threads // 32 * 16 * (tile.wn + 8) * 4
        needed = stages + epilogue_seconds if self.persistent else max(stages, epilogue_seconds)
        # Up to 48 KB, including the tables, need no opt-in.
        return max(needed, _UNASKED + 16) if needed > _UNASKED - self.tables else needed


def choose(product: GemmProblem, device: DeviceSpec, element: int, loads: Loads, knobs: Knobs) -> Shape:
    """The fastest of the allowed tiles and splits by a model of waves of CTAs.  ``element``: bytes.

    Knob values that do not fit are dropped: first the K tile, then the tile.
    """
    sizes = tuple((product.rows(r), product.columns(r), product.depth(r)) for r in product.residues)
    rate = product_rate(device, element)
    machine = _Machine(device.sm_count, rate / device.sm_count, device.bandwidth, device.launch, device.shared_memory)
    groups = product.roles.problem.groups
    loads = loads._replace(are_residues=len(product.residues) > 1)
    asked = knobs[STAGES.type], knobs[OCCUPANCY.type], knobs[SPLIT.type]
    for number, deep in ((knobs[TILE.type], knobs[DEPTH.type]), (knobs[TILE.type], 0), (0, 0)):
        shape = _fastest(machine, sizes, groups, product.results * 4, element, loads, number, deep, *asked)
        if shape is not None:
            break
    assert shape is not None, "the smallest tiles fit every device"
    tiles = -(-sizes[0][2] // shape.bk)  # K tiles
    blocks = blocks_of(product, shape.tile)
    whole = shape.splits == 1 and not (loads.are_residues or loads.are_scattered)
    if knobs[STAY.type] != 2 or not whole or tiles < 2 or blocks <= shape.resident * machine.sms:
        return shape
    stages = min(tiles, max(2, knobs[STAGES.type] if knobs[STAGES.type] > 1 else 5))
    persistent_ctas = _arranged(
        shape.tile, machine, element, loads._replace(persistent=True), shape.bk * element // 64, stages, shape.resident,
        is_asked=True,
    )  # fmt: skip
    return replace(persistent_ctas, splits=shape.splits, seconds=shape.seconds) if persistent_ctas else shape


def effective_knobs(shape: Shape, element: int) -> dict[KnobType, int]:
    """The knob values of a shape, without split-K. ``element``: bytes of an element."""
    return {
        TILE.type: TILES.index(shape.tile) + 1,
        DEPTH.type: shape.bk * element // 64,
        STAGES.type: shape.stages,
        OCCUPANCY.type: shape.resident,
        STAY.type: 2 if shape.persistent else 1,
    }


def product_rate(device: DeviceSpec, element: int) -> float:
    """Operations per second of the tensor cores, for elements of 1, 2 or 4 bytes."""
    if element == 4:
        return device.rates.get("TF32", device.rate(DataType.FLOAT))
    return device.rate(DataType.HALF if element == 2 else DataType.INT8)


class _Machine(NamedTuple):
    sms: int
    rate: float  # operations per second of one SM
    bandwidth: float
    launch: float
    shared: int  # bytes of shared memory of an SM


class Loads(NamedTuple):
    """The loads of operands into shared memory, and the stores of results."""

    are_scattered: bool  # whether some elements are loaded one by one through registers
    widths: tuple[int, int]  # elements of a load of A and of B
    described: int  # k indices of an entry of the index table
    entry: int  # bytes of an entry of the index table
    are_residues: bool = False
    persistent: bool = False  # whether CTAs compute several work tiles

    def accesses(self, tile: Tile) -> float:
        """Load instructions of a warp for each k index."""
        return (tile.bm / self.widths[0] + tile.bn / self.widths[1]) / 32

    def tables(self, tile: Tile, bk: int, stages: int) -> int:
        """Bytes of the index tables: outer indices, coordinates of results, and two batches of k indices."""
        indices = 2 * _batch(bk, stages) * (bk // self.described)
        places = (tile.bm + tile.bn) * _ROW + max(tile.bm, tile.bn) * self.entry
        return places * (2 if self.persistent else 1) + indices * self.entry


def _batch(bk: int, stages: int) -> int:
    """K tiles whose index tables are filled at a time: at least as many as stages."""
    return _BATCH // 2 if bk > 32 and stages <= _BATCH // 2 else _BATCH


def _staged(
    tile: Tile, machine: _Machine, element: int, loads: Loads, bytes_deep: int, wanted: int, resident: int
) -> Shape | None:
    """The tile with the most stages that fit beside the other CTAs of an SM, or None if two stages do not fit."""
    bk = bytes_deep // element
    for blocks in range(resident, 0, -1):
        for stages in range(wanted if wanted > 1 else 5, 1, -1):
            shape = Shape(tile, bk, stages, blocks, 1, 0.0, loads.tables(tile, bk, stages), loads.persistent)
            if blocks * (shape.shared(element) + shape.tables + RESERVED) <= machine.shared:
                return shape
    return None


@lru_cache(maxsize=256)  # the result does not depend on the sizes
def _arranged(
    tile: Tile,
    machine: _Machine,
    element: int,
    loads: Loads,
    deep: int,
    stages: int,
    occupancy: int,
    *,
    is_asked: bool,
) -> Shape | None:
    more = _OF_RESIDUES if loads.are_residues else 0
    if loads.are_scattered:
        if tile.threads < max(tile.bm, tile.bn):
            return None  # too few threads for a row of single elements
        # Staged elements and their addresses.
        more += (tile.bm + tile.bn) * (64 // element) // tile.threads + _OF_PLACES
    if tile.registers(more) > 255 and not is_asked:
        return None
    resident = occupancy or tile.resident(more)
    if loads.are_scattered and element == 1:
        resident = occupancy or min(resident, _OF_SCATTERED_BYTES)
    if deep:
        return _staged(tile, machine, element, loads, 64 * deep, stages, resident)
    if not loads.are_scattered:
        shape = _staged(tile, machine, element, loads, 128, stages, resident)
        if shape is not None and shape.resident == resident and shape.stages >= 3:
            return shape
    return _staged(tile, machine, element, loads, 64, stages, resident)


@lru_cache(maxsize=1024)  # called for the prediction and again for the kernel
def _fastest(
    machine: _Machine,
    sizes: tuple[tuple[int, int, int], ...],
    groups: int,
    results: int,
    element: int,
    loads: Loads,
    number: int,
    deep: int,
    stages: int,
    occupancy: int,
    power: int,
) -> Shape | None:
    """The fastest tile and splits. ``sizes``: M, N and K of each GEMM. ``results``: bytes of all results in fp32."""
    sms = machine.sms
    deepest = max(depth for *_, depth in sizes)
    waiting = []
    for place, tile in enumerate((TILES[number - 1],) if number else TILES):
        arranged = _arranged(tile, machine, element, loads, deep, stages, occupancy, is_asked=number > 0)
        if arranged is None:
            continue
        counted = [(-(-rows // tile.bm) * -(-columns // tile.bn) * groups, depth) for rows, columns, depth in sizes]
        area = 2.0 * tile.bm * tile.bn
        rate = machine.rate * _share(tile) * (_SCATTERED[element] if loads.are_scattered else 1.0)
        least = area * sum([count * (depth + 3 * arranged.bk) for count, depth in counted]) / (sms * rate)
        waiting.append((least, place, arranged, counted, area, rate))
    # Seconds, place, splits; the first one of equal times is taken.
    best: tuple[float, int, int, Shape, int] | None = None
    for least, place, arranged, counted, area, rate in sorted(waiting, key=itemgetter(0)):
        if best is not None and least > best[0] * _ROUNDING:
            break  # slower even at full occupancy
        bk, resident, blocks = arranged.bk, arranged.resident, sum([count for count, _ in counted])
        for i, splits in enumerate((SPLITS[power - 1],) if power else _candidates(resident * sms, blocks)):
            if not power and splits > 1 and (splits * _LEAST_DEPTH * bk > deepest or splits * blocks > _MANY * sms):
                break
            # Mean time of a CTA: its K tiles, and one or two more for prologue and epilogue.
            tiles = sum([count * (-(-depth // (splits * bk)) + 3) for count, depth in counted]) / max(1, blocks)
            # Time of a CTA for a k index: the longer of MMAs and loads.
            seconds_each = max(area / rate, _ACCESS * loads.accesses(arranged.tile))
            work = seconds_each * tiles * bk
            full, rest = divmod(blocks * splits, resident * sms)
            last = -(-rest // sms)  # CTAs of an SM in the last wave; an SM with free slots is less efficient
            filled = _IDLE_SM_RATE + (1 - _IDLE_SM_RATE) * (last / resident)
            seconds = (full * resident + last / filled) * work
            if splits > 1:  # partial sums are written, read and added
                seconds += 2 * results * splits / machine.bandwidth + machine.launch
            if best is None or (seconds, place, i) < best[:3]:
                best = seconds, place, i, arranged, splits
    return None if best is None else replace(best[3], splits=best[4], seconds=best[0])


def _share(tile: Tile) -> float:
    """The part of the device's peak that a tile reaches: for each 16 rows (columns) of its tile, a warp reads the other
    operand once from shared memory.
    """
    return 0.72 / (1 + 8 / tile.wm + 8 / tile.wn)


LARGEST_SHARE = max(map(_share, TILES))


def _candidates(places: int, blocks: int) -> list[int]:
    """Numbers of splits: powers of two, and the numbers that fill the device with one or two waves of CTAs."""
    full = (waves * places // max(1, blocks) for waves in (1, 2))
    return sorted({*SPLITS, *(splits for splits in full if 1 < splits <= _MOST_SPLITS)})


def blocks_of(product: GemmProblem, tile: Tile) -> int:
    """The CTAs of the residue that has the most tiles."""
    groups = product.roles.problem.groups
    return max(-(-product.rows(r) // tile.bm) * -(-product.columns(r) // tile.bn) for r in product.residues) * groups

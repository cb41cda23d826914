"""Tiles of the implicit GEMM on tensor cores (mma.sync), and the choice of one: a model of waves of blocks."""

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

_ROW = 16  # bytes of a table's entry, at least
_BATCH = 8  # tiles of the sum that are described at once, at most
_UNASKED = 48 * 1024  # bytes of shared memory
_REGISTERS = 65_536
_MOST_BLOCKS = 4
_OF_SCATTERED_BYTES = 2  # blocks that share an SM: a byte takes a register, as does where it goes
_OF_RESIDUES = 24  # registers that many products in one launch take
_OF_PLACES = 60  # those of single elements


@dataclass(frozen=True, slots=True)
class Tile:
    """A block's tile of the product and each warp's part of it."""

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
        """Of a thread: its sums, operands twice, places, and ``more``."""
        sums, operands = self.wm * self.wn // 32, 2 * (self.wm + self.wn) // 4
        return -(-(sums + operands + 44 + more) // 8) * 8

    def resident(self, more: int) -> int:
        """Blocks that share an SM, which bounds the registers of each."""
        return max(1, min(_MOST_BLOCKS, _REGISTERS // (min(255, self.registers(more)) * self.threads)))


# Largest first, of two of a size the faster one; the last are for problems with few rows and columns per group.
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
_MOST_SPLITS = 128  # chosen by the shape
_LEAST_DEPTH = 4  # tiles of the sum that a part has at least
_MANY = 16  # blocks for each SM: more parts would only add sums
_IDLE_SM_RATE = 0.4  # of an SM's pace that is left when it is all but empty
# Seconds that a warp's access to operands takes of an SM, whether 4, 8 or 16 bytes for each lane: twelve layers of odd
# channels measured on an H200 come to 5 to 7.
_ACCESS = 5.2e-9
# Of the pace that is left where elements go through registers one by one, by their bytes.
_SCATTERED = {1: 0.14, 2: 0.24, 4: 0.21}
_ROUNDING = 1 + 1e-9  # a bound may be as high as what it bounds


@dataclass(frozen=True, slots=True)
class Shape:
    """A tile with its stages, a number of parts, and the time that the model gives them."""

    tile: Tile
    bk: int  # elements
    stages: int
    resident: int
    splits: int
    seconds: float
    tables: int  # bytes of shared memory, at most
    persistent: bool  # a block computes several tiles of the results

    @property
    def name(self) -> str:
        return f"{self.tile.name}x{self.bk}s{self.stages}{'_stays' if self.persistent else ''}"

    @property
    def batch(self) -> int:
        return _batch(self.bk, self.stages)

    def shared(self, element: int) -> int:
        """Bytes of dynamic shared memory: the stages, and the sums on their way out, there or beside them."""
        tile = self.tile
        stages = self.stages * (tile.bm + tile.bn) * self.bk * element
        epilogue_seconds = tile.threads // 32 * 16 * (tile.wn + 8) * 4
        needed = stages + epilogue_seconds if self.persistent else max(stages, epilogue_seconds)
        # Up to 48 KB are granted unasked, tables included; who asks, asks for more than that.
        return max(needed, _UNASKED + 16) if needed > _UNASKED - self.tables else needed


def choose(product: GemmProblem, device: DeviceSpec, element: int, loads: Loads, knobs: Knobs) -> Shape:
    """The fastest of the allowed tiles and parts by a model of waves. ``element``: bytes.

    What does not fit gives way to what is chosen by the shape: first the depth, then the tile.
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
    tiles = -(-sizes[0][2] // shape.bk)  # of the sum: stages hold those of two places at most
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
    """The knob values that a shape has, without the parts of the sum. ``element``: bytes."""
    return {
        TILE.type: TILES.index(shape.tile) + 1,
        DEPTH.type: shape.bk * element // 64,
        STAGES.type: shape.stages,
        OCCUPANCY.type: shape.resident,
        STAY.type: 2 if shape.persistent else 1,
    }


def product_rate(device: DeviceSpec, element: int) -> float:
    """Operations per second of the tensor cores, with elements of 1, 2 or 4 bytes."""
    if element == 4:
        return device.rates.get("TF32", device.rate(DataType.FLOAT))
    return device.rate(DataType.HALF if element == 2 else DataType.INT8)


class _Machine(NamedTuple):
    sms: int
    rate: float  # of one SM
    bandwidth: float
    launch: float
    shared: int  # bytes of one SM


class Loads(NamedTuple):
    """How operands come into shared memory, and results out of it."""

    are_scattered: bool  # some through registers, element by element
    widths: tuple[int, int]  # elements of an access, of the rows' operand and of the columns'
    described: int  # the indices of the sum that one description serves
    entry: int  # bytes of a description
    are_residues: bool = False
    persistent: bool = False  # blocks compute several tiles of the results

    def accesses(self, tile: Tile) -> float:
        """Of a warp, for each index of the sum."""
        return (tile.bm / self.widths[0] + tile.bn / self.widths[1]) / 32

    def tables(self, tile: Tile, bk: int, stages: int) -> int:
        """Bytes: where operands' rows and results' coordinates are, and two batches of the sum's indices."""
        indices = 2 * _batch(bk, stages) * (bk // self.described)
        places = (tile.bm + tile.bn) * _ROW + max(tile.bm, tile.bn) * self.entry
        return places * (2 if self.persistent else 1) + indices * self.entry


def _batch(bk: int, stages: int) -> int:
    """Tiles of the sum whose indices are described at once: no fewer than stages."""
    return _BATCH // 2 if bk > 32 and stages <= _BATCH // 2 else _BATCH


def _staged(
    tile: Tile, machine: _Machine, element: int, loads: Loads, bytes_deep: int, wanted: int, resident: int
) -> Shape | None:
    """The tile with as many stages as fit beside other blocks; None where two do not."""
    bk = bytes_deep // element
    for blocks in range(resident, 0, -1):
        for stages in range(wanted if wanted > 1 else 5, 1, -1):
            shape = Shape(tile, bk, stages, blocks, 1, 0.0, loads.tables(tile, bk, stages), loads.persistent)
            if blocks * (shape.shared(element) + shape.tables + RESERVED) <= machine.shared:
                return shape
    return None


@lru_cache(maxsize=256)  # it does not depend on the sizes
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
            return None  # threads go along a whole row of single elements
        more += (tile.bm + tile.bn) * (64 // element) // tile.threads + _OF_PLACES  # what waits there, and where
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


@lru_cache(maxsize=1024)  # asked for the prediction, and again for the kernel
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
    """``sizes``: rows, columns and depth of each product. ``results``: bytes of all of them, in fp32."""
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
    best: tuple[float, int, int, Shape, int] | None = None  # seconds, place, which parts; of equals the first is taken
    for least, place, arranged, counted, area, rate in sorted(waiting, key=itemgetter(0)):
        if best is not None and least > best[0] * _ROUNDING:
            break  # slower even if they filled the device all the time
        bk, resident, blocks = arranged.bk, arranged.resident, sum([count for count, _ in counted])
        for i, splits in enumerate((SPLITS[power - 1],) if power else _candidates(resident * sms, blocks)):
            if not power and splits > 1 and (splits * _LEAST_DEPTH * bk > deepest or splits * blocks > _MANY * sms):
                break
            # Of a block, in the mean: its tiles of the sum, and as long again as one or two for start and end.
            tiles = sum([count * (-(-depth // (splits * bk)) + 3) for count, depth in counted]) / max(1, blocks)
            # Of a block's index of the sum: products, or the accesses that bring it.
            seconds_each = max(area / rate, _ACCESS * loads.accesses(arranged.tile))
            work = seconds_each * tiles * bk
            full, rest = divmod(blocks * splits, resident * sms)
            last = -(-rest // sms)  # blocks that share an SM at the end; fewer than it holds leave gaps
            filled = _IDLE_SM_RATE + (1 - _IDLE_SM_RATE) * (last / resident)
            seconds = (full * resident + last / filled) * work
            if splits > 1:  # partial sums are written, read and added
                seconds += 2 * results * splits / machine.bandwidth + machine.launch
            if best is None or (seconds, place, i) < best[:3]:
                best = seconds, place, i, arranged, splits
    return None if best is None else replace(best[3], splits=best[4], seconds=best[0])


def _share(tile: Tile) -> float:
    """Of the device's peak: an operand is read from shared memory once for each 16 rows (columns) of a warp."""
    return 0.72 / (1 + 8 / tile.wm + 8 / tile.wn)


LARGEST_SHARE = max(map(_share, TILES))


def _candidates(places: int, blocks: int) -> list[int]:
    """Numbers of parts: powers of two, and those that fill the device once or twice."""
    full = (waves * places // max(1, blocks) for waves in (1, 2))
    return sorted({*SPLITS, *(splits for splits in full if 1 < splits <= _MOST_SPLITS)})


def blocks_of(product: GemmProblem, tile: Tile) -> int:
    """Of the product with the most tiles."""
    groups = product.roles.problem.groups
    return max(-(-product.rows(r) // tile.bm) * -(-product.columns(r) // tile.bn) for r in product.residues) * groups

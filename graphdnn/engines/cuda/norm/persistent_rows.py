"""Rounds: how the rows of a normalization are divided among blocks that stay (norm_persistent).

All rows at once, or so many after the others that what is read of them is kept: a round costs a wait of blocks
for each other, what is not kept is read again from the cache or from memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.norm.persistent import Residence, pack_sizes, stored_bytes
from graphdnn.engines.cuda.reduction.row_threads import Rows, Tile, power_above
from graphdnn.tensors import TensorSpec

_THREADS = 512
_ROWS = 64  # of a block, where neighbours in memory belong to different ones
_IN_FLIGHT = 128  # bytes of a thread that are on their way, where nothing else was measured
_MOST_STEPS = 8  # packs
_LEAST_PACKS = 2  # of a thread
_FEW = 4  # packs of a thread that are asked for one by one
_MOST_VAIN = 1.34  # loads of a thread for each of its packs
_FEW_PACKS = 6  # of a thread, forward: half as many threads have less to join
_ROW_WIDTH = 32  # bytes of each value that a thread knows of its rows
_SYSTEM = 1024 + 64  # bytes of shared memory that a block cannot have, and what alignment takes
_LEAST_SHARE = 0.8  # of the multiprocessors
_TIMES = (1, 2, 3, 4, 5, 6, 8)  # rounds, as multiples of those that must be
_SHORTEST = 64  # bytes of memory side by side
_OF_LINE = {64: 0.6, 128: 0.92}  # of memory's pace, by bytes side by side
_CACHED = 0.7  # of the last level of cache: what it still has of what was read last
_SMALL = 0.4  # of it: the cache has everything the second time
_CACHE = 1.6  # its pace, as a multiple of memory's
_VAIN = 0.4  # of what a load costs that reads what is known
_BETWEEN_ROUNDS = 4e-6  # seconds
_LOOP = 32  # bytes of a thread that going through rounds takes from its registers


def resident(
    rows: Rows, compute_bytes: int, kept_operands: Sequence[TensorSpec], device: DeviceSpec, *, is_plain: bool
) -> tuple[Rows, Residence] | None:
    """``is_plain``: nothing is fused. None where such blocks would not fill the device."""
    if not rows.along:
        rows = rows.narrowed(_ROW_WIDTH // compute_bytes)
    packs = pack_sizes(rows.width, kept_operands)
    room = _room(rows, len(packs), device) if is_plain else (_IN_FLIGHT, 0)
    best: tuple[float, Residence] | None = None
    for columns in _columns(rows):
        for at_once in _at_once(-(-rows.row_packs // columns), device.sm_count):
            found = _residence(rows, compute_bytes, packs, room, columns, at_once, device)
            if found is None:
                continue
            best = found if best is None or found[0] < best[0] else best
            if found[1].keeps_all:  # more rounds have nothing to give
                break
    return None if best is None else (rows, best[1])


def _columns(rows: Rows) -> list[int]:
    """Threads beside each other: half of them make lines of memory shorter and rounds more."""
    if rows.along:
        return [1]
    most = min(32, power_above(rows.row_packs), max(1, _ROWS // rows.width))
    least = min(most, max(1, _SHORTEST // (rows.width * rows.main_bytes)))
    return [most >> i for i in range(8) if most >> i >= least]


def _at_once(tiles: int, sm_count: int) -> list[int]:
    """How many tiles, where there are more rounds than need be."""
    least = -(-tiles // sm_count)
    return list(dict.fromkeys(-(-tiles // (least * times)) for times in _TIMES if least * times <= tiles))


def _residence(
    rows: Rows,
    compute_bytes: int,
    packs: Sequence[int],
    room: tuple[int, int],
    columns: int,
    at_once: int,
    device: DeviceSpec,
) -> tuple[float, Residence] | None:
    """With the seconds that it takes."""
    in_flight, early_bytes = room
    pack_bytes = stored_bytes(packs)
    tiles = -(-rows.row_packs // columns)
    rounds = -(-tiles // at_once)
    early = max(0, early_bytes - (_LOOP if rounds > 1 else 0)) // pack_bytes
    lanes = _THREADS // columns
    if not rows.along and len(packs) == 1 and -(-rows.packs // lanes) <= _FEW_PACKS * (device.sm_count // at_once):
        lanes //= 2
    turns = -(-rows.packs // lanes)
    splits = min(device.sm_count // at_once, turns)
    count = -(-turns // splits)  # packs of a thread
    tile = Tile(lanes, columns, _steps(count - early, max(1, min(_MOST_STEPS, in_flight // 2 // pack_bytes))))
    # Few rows of many blocks would leave multiprocessors idle, and short ones have nothing to keep.
    share = tiles * splits / (rounds * device.sm_count)
    elements = rows.count * rows.length // rows.width
    if rounds > -(-tiles // device.sm_count) and elements * sum(packs) < _SMALL * device.cache_bytes:
        return None
    if share < _LEAST_SHARE or tile.lanes < rows.row_width or rows.packs < _LEAST_PACKS * splits * tile.lanes:
        return None
    groups = 2 * max(1, -(-(count - early) // (2 * tile.steps)))
    joined = compute_bytes * tile.threads // 32 * (2 * columns * rows.row_width + 1)  # by threads, in shared memory
    round_bytes = tile.threads * sum(packs)
    kept = min((groups - 2) * tile.steps, (device.shared_memory - _SYSTEM - joined) // round_bytes)
    again = ((groups - 2) * tile.steps - kept) * round_bytes * at_once * splits  # of a round
    residence = Residence(
        tile=tile,
        tiles=tiles,
        at_once=at_once,
        splits=splits,
        groups=groups,
        early=early,
        kept=kept,
        pack_bytes=pack_bytes,
        shared=kept * round_bytes,
        read_twice=rounds * max(0, again - int(_CACHED * device.cache_bytes)),
    )
    line = 1.0 if rows.along else _OF_LINE.get(columns * rows.width * rows.main_bytes, 1.0)
    vain = (early + groups * tile.steps) / count - 1  # loads that read nothing new
    memory = elements * (sum(packs) * (1 + _VAIN * vain) + packs[0]) / (line * share) + residence.read_twice
    return memory / device.bandwidth + rounds * (again / (_CACHE * device.bandwidth) + _BETWEEN_ROUNDS), residence


def _steps(count: int, most: int) -> int:
    """Packs of a group: as many as can be, unless too many loads would be for nothing; then so many that few are."""

    def loads(steps: int) -> int:
        return 2 * max(1, -(-count // (2 * steps))) * steps

    least = 1 if count <= _FEW else min(2, most)
    return most if loads(most) <= _MOST_VAIN * count else min(range(most, least - 1, -1), key=loads)


def _room(rows: Rows, values: int, device: DeviceSpec) -> tuple[int, int]:
    """Bytes of a thread that are on their way, and those that its registers keep all the time: the fewer the more rows
    it knows. From compute capability 9.0 on the fastest of those tried on an H200 (64 images of 56 x 56, 128 channels).
    """
    is_tried, is_narrow = device.compute_capability >= (9, 0), rows.main_bytes < 4
    if rows.along:
        if values > 1:
            return _IN_FLIGHT, 192 if is_tried else 224
        return (_IN_FLIGHT, 144) if not is_tried else (192, 32) if is_narrow else (64, 176)
    if rows.row_width > 4:
        return _IN_FLIGHT, (0 if values == 1 else 64) if is_tried else (48 if values == 1 else 64)
    if is_tried:
        return (192, 0) if values == 1 else (_IN_FLIGHT, 64)
    return _IN_FLIGHT, 64 if values == 1 else 128

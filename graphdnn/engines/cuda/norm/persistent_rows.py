"""The division of a normalization's rows among persistent CTAs (norm_persistent).

The device serves all rows at once, or in rounds that are small enough for the cache. Each round costs one wait of the
CTAs for each other. Elements that do not fit into the cache are read again from L2 or from memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.norm.persistent import PersistentTile, stored_bytes, vec_sizes_of
from graphdnn.engines.cuda.reduction.row_threads import Rows, Tile, power_above
from graphdnn.tensors import TensorSpec

_THREADS = 512
_ROWS = 64  # of a CTA, if adjacent elements belong to different rows
_IN_FLIGHT = 128  # bytes of a thread in flight, if no other number was measured
_MOST_STEPS = 8  # vectors
_LEAST_VECS = 2  # vectors of a thread
_FEW = 4  # vectors of a thread that are loaded one by one
_MOST_VAIN = 1.34  # loads of a thread for each of its vectors
_FEW_VECS = 6  # vectors of a thread, forward: half of the threads have less to combine
_FACTOR_BYTES = 32  # of each factor of the rows of a thread
_SYSTEM = 1024 + 64  # bytes of shared memory that the system and alignment take
_LEAST_SHARE = 0.8  # share of the multiprocessors
_TIMES = (1, 2, 3, 4, 5, 6, 8)  # multiples of the least number of rounds
_SHORTEST = 64  # contiguous bytes
_OF_LINE = {64: 0.6, 128: 0.92}  # share of the bandwidth, by contiguous bytes
_CACHED = 0.7  # share of L2 that still holds the elements read last
_SMALL = 0.4  # share of L2 up to which the second read hits
_CACHE = 1.6  # L2 bandwidth as a multiple of memory bandwidth
_VAIN = 0.4  # cost of a redundant load, as a share of a useful one
_BETWEEN_ROUNDS = 4e-6  # seconds
_LOOP = 32  # bytes of a thread's registers that the loop over rounds takes


def choose_persistent_tile(
    rows: Rows, compute_bytes: int, kept_operands: Sequence[TensorSpec], device: DeviceSpec, *, is_plain: bool
) -> tuple[Rows, PersistentTile] | None:
    """``is_plain``: nothing is fused. None if such CTAs would not fill the device."""
    if not rows.along:
        rows = rows.narrowed(_FACTOR_BYTES // compute_bytes)
    vec_sizes = vec_sizes_of(rows.width, kept_operands)
    room = _room(rows, len(vec_sizes), device) if is_plain else (_IN_FLIGHT, 0)
    best: tuple[float, PersistentTile] | None = None
    for columns in _columns(rows):
        for at_once in _at_once(-(-rows.row_vecs // columns), device.sm_count):
            candidate = _persistent_tile(rows, compute_bytes, vec_sizes, room, columns, at_once, device)
            if candidate is None:
                continue
            best = candidate if best is None or candidate[0] < best[0] else best
            if candidate[1].keeps_all:  # more rounds gain nothing
                break
    return None if best is None else (rows, best[1])


def _columns(rows: Rows) -> list[int]:
    """Candidates for threads side by side: fewer of them shorten the contiguous accesses and increase the rounds."""
    if rows.along:
        return [1]
    most = min(32, power_above(rows.row_vecs), max(1, _ROWS // rows.width))
    least = min(most, max(1, _SHORTEST // (rows.width * rows.main_bytes)))
    return [most >> i for i in range(8) if most >> i >= least]


def _at_once(tiles: int, sm_count: int) -> list[int]:
    """Candidates for the number of concurrent tiles, with at least the necessary rounds."""
    least = -(-tiles // sm_count)
    return list(dict.fromkeys(-(-tiles // (least * times)) for times in _TIMES if least * times <= tiles))


def _persistent_tile(
    rows: Rows,
    compute_bytes: int,
    vec_sizes: Sequence[int],
    room: tuple[int, int],
    columns: int,
    at_once: int,
    device: DeviceSpec,
) -> tuple[float, PersistentTile] | None:
    """The division, with its predicted seconds."""
    in_flight, early_bytes = room
    vec_bytes = stored_bytes(vec_sizes)
    tiles = -(-rows.row_vecs // columns)
    rounds = -(-tiles // at_once)
    early = max(0, early_bytes - (_LOOP if rounds > 1 else 0)) // vec_bytes
    threads_per_row = _THREADS // columns
    if (
        not rows.along
        and len(vec_sizes) == 1
        and -(-rows.vecs_per_row // threads_per_row) <= _FEW_VECS * (device.sm_count // at_once)
    ):
        threads_per_row //= 2
    turns = -(-rows.vecs_per_row // threads_per_row)
    splits = min(device.sm_count // at_once, turns)
    count = -(-turns // splits)  # vectors of a thread
    tile = Tile(threads_per_row, columns, _steps(count - early, max(1, min(_MOST_STEPS, in_flight // 2 // vec_bytes))))
    # Few rows with many CTAs would leave multiprocessors idle, and short rows gain nothing from the cache.
    share = tiles * splits / (rounds * device.sm_count)
    elements = rows.count * rows.length // rows.width
    if rounds > -(-tiles // device.sm_count) and elements * sum(vec_sizes) < _SMALL * device.cache_bytes:
        return None
    if (
        share < _LEAST_SHARE
        or tile.threads_per_row < rows.rows_per_thread
        or rows.vecs_per_row < _LEAST_VECS * splits * tile.threads_per_row
    ):
        return None
    groups = 2 * max(1, -(-(count - early) // (2 * tile.steps)))
    # Bytes of the reduction in shared memory
    joined = compute_bytes * tile.threads // 32 * (2 * columns * rows.rows_per_thread + 1)
    round_bytes = tile.threads * sum(vec_sizes)
    kept = min((groups - 2) * tile.steps, (device.shared_memory - _SYSTEM - joined) // round_bytes)
    again = ((groups - 2) * tile.steps - kept) * round_bytes * at_once * splits  # bytes that a round reads again
    persistent = PersistentTile(
        tile=tile,
        tiles=tiles,
        at_once=at_once,
        splits=splits,
        groups=groups,
        early=early,
        kept=kept,
        vec_bytes=vec_bytes,
        shared=kept * round_bytes,
        read_twice=rounds * max(0, again - int(_CACHED * device.cache_bytes)),
    )
    line = 1.0 if rows.along else _OF_LINE.get(columns * rows.width * rows.main_bytes, 1.0)
    vain = (early + groups * tile.steps) / count - 1  # redundant loads
    memory = elements * (sum(vec_sizes) * (1 + _VAIN * vain) + vec_sizes[0]) / (line * share) + persistent.read_twice
    return memory / device.bandwidth + rounds * (again / (_CACHE * device.bandwidth) + _BETWEEN_ROUNDS), persistent


def _steps(count: int, most: int) -> int:
    """Vectors of a group: the most, or, if too many loads would be redundant, the number with the fewest of them."""

    def loads(steps: int) -> int:
        return 2 * max(1, -(-count // (2 * steps))) * steps

    least = 1 if count <= _FEW else min(2, most)
    return most if loads(most) <= _MOST_VAIN * count else min(range(most, least - 1, -1), key=loads)


def _room(rows: Rows, values: int, device: DeviceSpec) -> tuple[int, int]:
    """Bytes of a thread in flight, and bytes that its registers hold throughout. A thread with more rows has less room.
    For compute capability 9.0: the fastest candidates on an H200 (64 images of 56 x 56, 128 channels).
    """
    is_tried, is_narrow = device.compute_capability >= (9, 0), rows.main_bytes < 4
    if rows.along:
        if values > 1:
            return _IN_FLIGHT, 192 if is_tried else 224
        return (_IN_FLIGHT, 144) if not is_tried else (192, 32) if is_narrow else (64, 176)
    if rows.rows_per_thread > 4:
        return _IN_FLIGHT, (0 if values == 1 else 64) if is_tried else (48 if values == 1 else 64)
    if is_tried:
        return (192, 0) if values == 1 else (_IN_FLIGHT, 64)
    return _IN_FLIGHT, 64 if values == 1 else 128

"""Tensor maps for the emulator: plain numbers where the driver would write its encoding, after the same checks.

The bytes are those of ``Map`` in copy_unit.cpp.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from graphdnn.cuda.tensor_map import BYTES, TensorMap
from graphdnn.dtypes import ELEMENTS

_MOST_AXES = 5
_CORNERS = {3: 1 << 15, 4: 1 << 7, 5: 1 << 4}  # by axes: a walk's corners lie this far from the image's


def writer(map: TensorMap, params: bytearray, at: int) -> Callable[[int], None]:
    """As ``TensorMap.writer``: a function that writes the map of a tensor at an address into ``params``."""

    def write(address: int) -> None:
        params[at : at + BYTES] = encoded(map, address)

    return write


def encoded(map: TensorMap, address: int) -> bytes:
    size = ELEMENTS[map.data_type].bytes
    _check(map, address, size)
    axes = range(_MOST_AXES)
    parts = (
        struct.pack("<Q5I", address, *(_at(map.sizes, d, 1) for d in axes)),
        struct.pack("<5Q", size, *(_at(map.strides, d - 1, 0) for d in axes[1:])),
        struct.pack("<5H5B", *(_at(map.box, d, 1) for d in axes), *(_at(map.steps, d, 1) for d in axes)),
        struct.pack("<3h3h", *(_at(map.lower, d, 0) for d in range(3)), *(_at(map.upper, d, 0) for d in range(3))),
        struct.pack("<HH5B", map.channels, map.pixels, len(map.sizes), size, not map.box, map.row, map.is_rounded),
    )  # fmt: skip
    return b"".join(parts).ljust(BYTES, b"\0")


def _at(values: tuple[int, ...], d: int, missing: int) -> int:
    return values[d] if d < len(values) else missing


def _check(map: TensorMap, address: int, size: int) -> None:
    """What cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col refuse."""
    rank = len(map.sizes)
    assert map.row in (0, 32, 64, 128), map
    assert address % 16 == 0, f"an address of {address % 16} modulo 16"
    assert all(1 <= s < 2**32 for s in map.sizes), map
    assert len(map.strides) == rank - 1, map
    assert all(s % 16 == 0 and 0 < s < 2**40 for s in map.strides), map
    assert len(map.steps) in (0, rank), map
    assert all(1 <= s <= 8 for s in map.steps), map
    if map.box:
        assert 1 <= rank <= _MOST_AXES, map
        assert len(map.box) == rank, map
        assert all(1 <= b <= 256 for b in map.box), map
        assert map.box[0] * size == map.row or (not map.row and map.box[0] * size % 16 == 0), map
        assert set(map.steps) <= {1}, "the emulator takes boxes without steps"
        return
    assert rank in _CORNERS, map
    assert len(map.lower) == len(map.upper) == rank - 2, map
    assert all(-_CORNERS[rank] <= c < _CORNERS[rank] for c in (*map.lower, *map.upper)), map
    assert map.channels * size == map.row, map
    assert 1 <= map.pixels <= 1024, map

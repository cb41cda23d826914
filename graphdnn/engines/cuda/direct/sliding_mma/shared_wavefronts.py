"""Wavefronts of a warp's load from shared memory: how often the banks are read, with conflicts counted.

Shared memory has 32 banks of 4 bytes. A wavefront reads at most one word of each bank. Half warps do a load of 8 bytes
for each lane, and quarter warps a load of 16 bytes, so that a group of lanes reads 128 bytes at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

_BANKS, _WORD = 32, 4


@lru_cache(256)
def wavefronts(addresses: Sequence[int], width: int) -> int:
    """The wavefronts of one load.

    Args:
        addresses: The byte address of each lane, aligned to ``width``.
        width: Bytes that a lane loads: 4, 8 or 16.

    Returns:
        The number of wavefronts of all lanes together.
    """
    at_once = _BANKS * _WORD // width
    return sum(_of_group(addresses[i : i + at_once], width) for i in range(0, len(addresses), at_once))


def _of_group(addresses: Sequence[int], width: int) -> int:
    """The wavefronts of one group of lanes: the most distinct words in any bank."""
    words = {(address + offset) // _WORD for address in addresses for offset in range(0, width, _WORD)}
    counts = [0] * _BANKS
    for word in words:
        counts[word % _BANKS] += 1
    return max(counts)

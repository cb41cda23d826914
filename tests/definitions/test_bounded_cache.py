"""BoundedCache never has more entries than its size, removes the oldest, and keeps one value for each key."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from graphdnn.bounded_cache import BoundedCache


def test_the_oldest_entry_is_removed() -> None:
    cache = BoundedCache[str, int](2)
    for key, value in (("a", 1), ("b", 2), ("c", 3)):
        assert cache.remember(key, value) == value
    assert cache == {"b": 2, "c": 3}


def test_the_first_value_of_a_key_stays() -> None:
    cache = BoundedCache[str, list[int]](2)
    first = cache.remember("a", [])
    assert cache.remember("a", []) is first


@pytest.mark.parametrize("size", [1, 7, 64])
def test_threads_never_exceed_the_size_by_more_than_their_number(size: int) -> None:
    cache, threads = BoundedCache[int, int](size), 8
    largest = []

    def fill(thread: int) -> None:
        for i in range(2000):
            key = (i * 7 + thread) % (3 * size)
            found = cache.get(key)
            assert (cache.remember(key, -key) if found is None else found) == -key
            largest.append(len(cache))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(fill, range(threads)))
    finally:
        sys.setswitchinterval(interval)
    assert max(largest) <= size + threads

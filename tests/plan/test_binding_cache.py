"""Blocks of a plan while its places come and go: each is in one list, so that two threads never fill the same one."""

from __future__ import annotations

import threading
from typing import Any

from graphdnn.plan.binding_cache import MOST, BindingCache


class Array:
    __module__ = "cupy"


def _settled(met: BindingCache, address: int) -> Any:
    """A place where the same arrays lay twice, which has blocks of its own."""
    array = Array()
    for _ in range(2):
        place = met.place([array], (id(array),), (address,), are_fixed=True)
    return place


def test_a_block_is_handed_back_once() -> None:
    free: list[Any] = []
    met = BindingCache(free, is_light=True)
    place = _settled(met, -1)
    own = place.blocks
    assert own is not free
    own += [object(), object()]
    blocks = list(own)
    for address in range(MOST):
        _settled(met, address)
    assert sorted(map(id, free)) == sorted(map(id, blocks))
    assert own == [], "a thread that is about to take one from here takes another"
    assert place.blocks is free, "the last arrays are still known by it"


def test_threads_never_hold_the_same_block() -> None:
    """More places than are kept, so that they are forgotten all the time."""
    free: list[Any] = []
    met = BindingCache(free, is_light=True)
    held: set[int] = set()
    wrong: list[str] = []
    guard = threading.Lock()

    def work(first: int) -> None:
        for turn in range(3000):
            blocks = _settled(met, first + turn % (MOST + 3)).blocks
            try:
                block = blocks.pop()
            except IndexError:
                try:
                    block = free.pop()
                except IndexError:
                    block = Array()
            with guard:
                if id(block) in held:
                    wrong.append("held twice")
                held.add(id(block))
            with guard:
                held.discard(id(block))
            blocks.append(block)

    threads = [threading.Thread(target=work, args=(100 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(free) <= MOST + len(threads)


def test_heavy_blocks_stay_everybodys() -> None:
    """Those with work of a library have memory on the device."""
    free: list[Any] = []
    assert _settled(BindingCache(free, is_light=False), 1).blocks is free


def test_new_arrays_with_the_identities_of_deleted_ones_are_not_remembered() -> None:
    """Temporary arrays often get the identities of the arrays of the last call; only arrays that live are remembered."""
    cache = BindingCache([], is_light=True)
    for _ in range(5):
        cache.place([_Array()], (1,), (1,), are_fixed=True)
    assert not cache._sets
    kept = _Array()
    for _ in range(2):
        cache.place([kept], (1,), (1,), are_fixed=True)
    assert list(cache._sets) == [(1,)]


class _Array:
    """An object that weak references may name."""

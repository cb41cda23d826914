"""Files from strangers: bytes changed at random, and trees of JSON with entries changed, from a seed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

from graphdnn.errors import MalformedFile

_VALUES = (
    None,
    True,
    -1,
    0,
    1,
    2**63,
    1e308,
    0.5,
    "",
    "x",
    "FLOAT",
    "graphdnn.lock",
    [],
    {},
    [[]],
    {"tensor": 1},
    "\ud800",
)


def damaged(text: str, count: int, seed: int = 0) -> Iterator[bytes]:
    """Half of them are other bytes, half are JSON with another value, or an entry less, somewhere."""
    rng = random.Random(seed)
    data = json.loads(text)
    places = [place for place in _places(data, ()) if place]
    for i in range(count):
        yield _bytes(text.encode(), rng) if i % 2 else _tree(data, rng.choice(places), rng)


def _bytes(raw: bytes, rng: random.Random) -> bytes:
    out = bytearray(raw)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at, what = rng.randrange(len(out)), rng.randrange(4)
        if what == 0:
            out[at] = rng.randrange(256)
        elif what == 1:
            del out[at : at + rng.choice((1, 1, 5, len(out) // 3))]
        elif what == 2:
            out[at:at] = bytes(rng.choice((b"[", b"{", b'"', b"-", b"9" * 30, b"\x00", b"\xff")))
        else:
            other = rng.randrange(len(out))
            out[at : at + 8] = out[other : other + 8]
        if not out:
            break
    return bytes(out)


def _tree(data: Any, place: tuple[Any, ...], rng: random.Random) -> bytes:
    copy = json.loads(json.dumps(data))
    inner = copy
    for step in place[:-1]:
        inner = inner[step]
    if rng.random() < 0.25:
        del inner[place[-1]]
    else:
        inner[place[-1]] = rng.choice(_VALUES)
    return json.dumps(copy).encode()


def _places(data: Any, at: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    yield at
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield from _places(value, (*at, key))


def assert_checked(load: Callable[[bytes], Any], texts: Iterator[bytes]) -> tuple[int, int]:
    """Each one ends in a value or in ``MalformedFile`` with reasons; returns how many ended in which."""
    values = refused = 0
    for text in texts:
        try:
            load(text)
        except MalformedFile as error:
            assert error.rejections
            assert all(r.reason and r.fix for r in error.rejections)
            refused += 1
        else:
            values += 1
    return values, refused

"""Damage from a seed: bytes of any file, entries of JSON, cells of a database."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

EXTREME = (
    None, True, False, -1, 0, 1, 2, 3, 7, 0.5, -0.0, 1e308, -1e308, 5e-324, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**62,
    2**63 - 1, 2**63, 2**64, -(2**31), -(2**63), -(2**64), 10**30, 10**400, "", "x", "0", "-1", "inf", "nan", "FLOAT",
    "cpu", "h200", "relu", "\ud800", "\x00", "\x1b[31m", "a\nb", "{x}", "%s", "\u00e9", "x" * 5000, [], {}, [[]], [{}], {"": 0},
    [0], [1, 2], [-1], [2**63], ["x"], [None], [True], {"tensor": 1}, {"tensor": []}, {"tensor": None}, {"float": "inf"},
    {"float": "nan"}, {"float": []}, {"float": "x"}, {"float": 10**400}, {"name": "x"},
)  # fmt: skip


def damaged_bytes(raw: bytes, draw: random.Random) -> bytes:
    """Bits flipped, bytes exchanged, pieces cut out, doubled or put in, the end cut off."""
    out = bytearray(raw)
    for _ in range(draw.choice((1, 1, 2, 8))):
        if not out:
            break
        at, size = draw.randrange(len(out)), draw.choice((1, 4, 16, 300))
        kind = draw.randrange(7)
        if kind == 0:
            out[at] ^= 1 << draw.randrange(8)
        elif kind == 1:
            out[at] = draw.randrange(256)
        elif kind == 2:
            del out[at : at + size]
        elif kind == 3:
            out[at:at] = out[at : at + size]
        elif kind == 4:
            out[at:at] = draw.choice(
                (b"[", b"{", b'"', b"-", b"9" * 400, b"\0", b"\xff", b"[" * 5000, b"1e999", b"NaN")
            )
        elif kind == 5:
            out[at : at + size] = draw.randbytes(min(size, len(out) - at))
        else:
            del out[at:]
    return bytes(out)


def damaged_tree(data: Any, draw: random.Random) -> Any:
    """JSON with some entries exchanged for values of another kind or size, taken out, doubled, renamed or nested."""
    copy = deepcopy(data)
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        places = [place for place in places_of(copy) if place]
        if not places:
            break
        place = draw.choice(places)
        inner = at(copy, place[:-1])
        key, kind = place[-1], draw.randrange(8)
        if kind == 0:
            del inner[key]
        elif kind == 1:
            inner[key] = deepcopy(at(copy, draw.choice(places)))  # an entry of another place
        elif kind == 2 and isinstance(inner, list):
            inner.insert(draw.randrange(len(inner) + 1), deepcopy(inner[key]))
        elif kind == 3 and isinstance(inner, dict):
            inner[draw.choice(("x", "", "name", "operation", "dims", "uid", "tensor", "\ud800"))] = inner.pop(key)
        elif kind == 4:
            for _ in range(draw.choice((1, 3, 25, 60))):
                inner[key] = draw.choice(([inner[key]], {"tensor": inner[key]}, {"x": inner[key]}))
        elif kind == 5 and type(inner[key]) in (int, float):
            inner[key] = draw.choice(
                (inner[key] + 1, inner[key] - 1, -inner[key], inner[key] * 2, inner[key] * 1000, 0)
            )
        else:
            inner[key] = deepcopy(draw.choice(EXTREME))
    return copy


def places_of(data: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each entry of a tree."""
    yield here
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield from places_of(value, (*here, key))


def at(data: Any, place: tuple[Any, ...]) -> Any:
    for step in place:
        data = data[step]
    return data


def damage_cells(path: Path, draw: random.Random) -> None:
    """Cells of a database that stays one: values of another kind, and texts of JSON that are damaged inside."""
    connection = sqlite3.connect(path)
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    for _ in range(draw.choice((1, 1, 3))):
        table = draw.choice(("problems", "times", "times"))
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        column = draw.choice(columns)
        found = connection.execute(f"SELECT rowid, {column} FROM {table}").fetchall()
        if not found:
            break
        rowid, before = draw.choice(found)
        value: Any = draw.choice([v for v in EXTREME if v is None or isinstance(v, (bool, float, str)) or (
            isinstance(v, int) and -(2**63) <= v < 2**63)] + [b"", b"\xff\xfe", b"\0" * 9])  # fmt: skip
        if isinstance(before, str) and before[:1] in "[{" and draw.random() < 0.7:
            tree = json.dumps(damaged_tree(json.loads(before), draw)) if _is_json(before) else before
            value = tree if draw.random() < 0.7 else damaged_bytes(tree.encode(), draw).decode("utf-8", "replace")
        if isinstance(value, str):
            value = value.encode("utf-8", "replace").decode("utf-8")
        try:
            connection.execute(f"UPDATE OR IGNORE {table} SET {column} = ? WHERE rowid = ?", (value, rowid))
        except sqlite3.IntegrityError:
            continue
    connection.commit()
    connection.close()


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True

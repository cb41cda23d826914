"""Merging: what another database knows, taken over tuning by tuning where it is not known here, or newer."""

from __future__ import annotations

import sqlite3
from itertools import groupby
from pathlib import Path

from graphdnn.errors import MalformedFile
from graphdnn.files import malformed
from graphdnn.rules import Rule
from graphdnn.tuning import storage
from graphdnn.tuning.database import Database, Problem
from graphdnn.tuning.record import Record

UNREADABLE = Rule(
    id="tuning.database.unreadable",
    expected="a tuning database of schema {schema}",
    reason="the file cannot be read: {detail}",
    fix="check the path; a database in use can be read too",
)


def merged(database: Database, path: Path) -> tuple[int, int, int]:
    """(tunings taken over, tunings left, damaged entries). Raises ``MalformedFile`` for what is no database."""
    try:
        source = Database.on(storage.opened_to_read(path))
    except (OSError, sqlite3.Error, storage.DamagedError) as error:
        raise _unreadable(path, str(error)) from None
    with source:
        newest: dict[object, int] = {}
        for record in database.records():
            newest[record.key] = max(newest.get(record.key, 0), record.measured)
        records, problems = source.records(), source.problems()
        damaged = len(source.damaged)
        taken: list[Record] = []
        wanted: list[tuple[Problem, str]] = []
        left = count = 0
        for key, entries in groupby(records, key=lambda r: r.key):
            group = list(entries)
            if newest.get(key, -1) >= max(r.measured for r in group):
                left += 1
                continue
            count += 1
            taken += group
            problem, graph = problems.get(key[0]), source.graph(key[0])
            if problem is not None and graph is not None:
                wanted.append((problem, source.graph_text(key[0]) or ""))
    database.put(taken, wanted)
    return count, left, damaged


def _unreadable(path: Path, detail: str) -> MalformedFile:
    return malformed(UNREADABLE, "file", str(path), schema=storage.SCHEMA, detail=detail)

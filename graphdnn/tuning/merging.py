"""Merging: what another database knows, beside what is known here: the better time of each configuration."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from graphdnn.errors import MalformedFile
from graphdnn.files import malformed
from graphdnn.rules import Rule
from graphdnn.tuning import storage
from graphdnn.tuning.database import Database, Problem

UNREADABLE = Rule(
    id="tuning.database.unreadable",
    expected="a tuning database of schema {schema}",
    reason="the file cannot be read: {detail}",
    fix="check the path; a database in use can be read too",
)


def merged(database: Database, path: Path) -> tuple[int, int, int]:
    """(tunings of which something is taken over, tunings left, damaged entries).

    Raises ``MalformedFile`` for what is no database.
    """
    try:
        source = Database.on(storage.opened_to_read(path))
    except (OSError, sqlite3.Error, storage.DamagedError) as error:
        raise _unreadable(path, str(error)) from None
    with source:
        records, problems = source.records(), source.problems()
        damaged = len(source.damaged)
        wanted: list[tuple[Problem, str]] = []
        for key in dict.fromkeys(r.problem for r in records):
            problem, graph = problems.get(key), source.graph(key)
            if problem is not None and graph is not None:
                wanted.append((problem, source.graph_text(key) or ""))
    found = database.combine(records, wanted)
    taken = sum(list(before) != list(after) for before, after in found)
    return taken, len(found) - taken, damaged


def _unreadable(path: Path, detail: str) -> MalformedFile:
    return malformed(UNREADABLE, "file", str(path), schema=storage.SCHEMA, detail=detail)

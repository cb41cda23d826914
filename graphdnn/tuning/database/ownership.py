"""Whose file it is: only a tuning database of ours is written to, renamed or deleted.

The proof is the application id, which stands in the first 100 bytes of a file. Earlier versions wrote none: their files
are known by their tables. A damaged file that has neither is nobody's, and stays as it is.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

from graphdnn.tuning.database.schema import APPLICATION, TABLES

_MAGIC = b"SQLite format 3\0"
_HEAD = 100  # bytes of SQLite's header
_ID = slice(68, 72)


def stranger(path: Path) -> str | None:
    """Why the file is not ours; None for one that is, for an empty one, and where there is none.

    The file is read and not locked. Raises ``OSError`` for a file that cannot be read.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return "it is a folder" if stat.S_ISDIR(status.st_mode) else "it is no regular file"
    with path.open("rb") as file:
        head = file.read(_HEAD)
    if not head:
        return None
    if not head.startswith(_MAGIC):
        return "it does not begin as a database does"
    application = int.from_bytes(head[_ID], "big") if len(head) >= _ID.stop else 0
    if application == APPLICATION or (application == 0 and _has_our_tables(path)):
        return None
    return "it is a database that graphdnn did not write"


def is_ours(path: Path) -> bool:
    """Whether a file is there, is no link, and has the proof; one that cannot be read has none."""
    try:
        status = os.lstat(path)
        return stat.S_ISREG(status.st_mode) and status.st_size > 0 and stranger(path) is None
    except OSError:
        return False


def _has_our_tables(path: Path) -> bool:
    """Whether a file without an application id has the tables of ours and no others; nothing of it is changed."""
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.text_factory = bytes
            rows = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL LIMIT 9").fetchall()
    except (sqlite3.Error, UnicodeDecodeError):  # SQLite quotes the file in its messages
        return False
    return {row[0] for row in rows} == {table.encode() for table in TABLES}

"""The database's file: opened with care, set aside when it is damaged, kept in memory where no file can be.

SQLite serialises writers and survives a process that is killed in the middle of a transaction. What it cannot survive,
a file that something else wrote to, is renamed to ``NAME.damaged-N`` with one line on stderr, and a new one begun:
nothing here is worth failing for. Processes that find the damage together take turns by a lock file.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from graphdnn import debug_log
from graphdnn.errors import BadParam
from graphdnn.rules import Rule

SCHEMA = 1
APPLICATION = 0x67646E74  # "gdnt", in the file's header: a database of ours
FILE_NAME = f"tuning-{SCHEMA}.sqlite3"
_SUFFIXES = (".sqlite3", ".sqlite", ".db")
_MAGIC = b"SQLite format 3\0"
_WAIT = 30.0  # seconds for another writer
_STEPS = 50_000_000  # of SQLite's machine in one statement: a file from a stranger must not keep us

TABLES = (
    """CREATE TABLE problems (key TEXT PRIMARY KEY, name TEXT NOT NULL, kernels TEXT NOT NULL, graph TEXT NOT NULL)""",
    """CREATE TABLE times (
 problem TEXT NOT NULL, device TEXT NOT NULL, driver TEXT NOT NULL, version TEXT NOT NULL, texts TEXT NOT NULL,
 choices TEXT NOT NULL, name TEXT NOT NULL, place INTEGER NOT NULL, predicted REAL NOT NULL, median REAL NOT NULL,
 low REAL NOT NULL, high REAL NOT NULL, samples INTEGER NOT NULL, workspace INTEGER NOT NULL, measured INTEGER NOT NULL,
 PRIMARY KEY (problem, device, driver, version, texts, choices))""",
)

FOREIGN = Rule(
    id="tuning.database.foreign",
    expected="a tuning database, or a name that no file has",
    reason="the file is something else, and would be overwritten",
    fix="name another file; graphdnn's end in .sqlite3",
)


class DamagedError(Exception):
    """The file cannot be used as it is."""


class Connection(sqlite3.Connection):
    """A connection to a file that may be anybody's: no statement runs for ever."""

    steps = 0

    def rows(self, statement: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """All rows. Raises ``sqlite3.Error`` and nothing else."""
        self.steps = 0
        try:
            return self.execute(statement, values).fetchall()
        except UnicodeDecodeError:  # SQLite quotes the file in its messages
            raise sqlite3.DatabaseError("malformed text") from None

    def watch(self) -> int:
        """What SQLite calls every 10,000 steps; ends the statement when it is not 0."""
        self.steps += 10_000
        return int(self.steps > _STEPS)

    def __del__(self) -> None:
        """Closed with the last one who holds it; Python 3.13 warns of those that it has to close itself."""
        with suppress(sqlite3.Error):
            self.close()


def opened(path: Path | None) -> tuple[Connection, Path | None]:
    """A connection, and the file behind it: None where the data stays in memory."""
    if path is None:
        debug_log.say("tuning", "there is no folder for the database: results stay in memory")
        return _in_memory(), None
    _refuse_foreign(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            return _connected(path), path
        except DamagedError:
            with _alone(path):
                try:
                    return _connected(path), path  # another process was faster
                except DamagedError as damage:
                    set_aside(path, str(damage))
                    return _connected(path), path
    except (OSError, sqlite3.Error, DamagedError) as error:
        connection = _copied(path)
        what = "cannot be used" if connection is None else "cannot be written"
        debug_log.say("tuning", f"{path} {what} ({error}): results stay in memory")
        return connection or _in_memory(), None


def _copied(path: Path) -> Connection | None:
    """What a file has that can be read and not written, in memory."""
    try:
        source = opened_to_read(path, "ro&immutable=1")
    except (OSError, sqlite3.Error, DamagedError):
        return None
    made = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, factory=Connection)
    try:
        source.backup(made)
    except sqlite3.Error:
        return None
    finally:
        source.close()
    return made


def opened_to_read(path: Path, mode: str = "ro") -> Connection:
    """An existing file that is not written to. Raises ``DamagedError``."""
    name = f"{path.resolve().as_uri()}?mode={mode}"
    connection = sqlite3.connect(name, timeout=_WAIT, isolation_level=None, factory=Connection, uri=True)
    try:
        _harden(connection)
        _check(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def set_aside(path: Path, why: str) -> Path:
    """Rename a damaged file, and what belongs to it; one line says so."""
    number = 1
    while (target := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    os.replace(path, target)
    for suffix in ("-wal", "-shm", "-journal"):
        with suppress(OSError):
            os.replace(f"{path}{suffix}", f"{target}{suffix}")
    debug_log.line("note", "tuning", f"{path} is damaged ({why}): set aside as {target.name} and begun anew")
    return target


def damaged_files(path: Path) -> list[Path]:
    """What was set aside before."""
    return sorted(path.parent.glob(f"{path.name}.damaged-*")) if path.parent.is_dir() else []


def integrity(connection: Connection) -> list[str]:
    """What SQLite finds wrong with the file; empty when nothing is."""
    try:
        found = [str(row[0]) for row in connection.rows("PRAGMA integrity_check(20)")]
    except sqlite3.Error as error:
        return [str(error)]
    return [] if found == ["ok"] else found


def _connected(path: Path) -> Connection:
    """Raises ``DamagedError`` for a file that is not a database of this schema."""
    connection = sqlite3.connect(path, timeout=_WAIT, isolation_level=None, check_same_thread=False, factory=Connection)
    try:
        _harden(connection)
        try:
            if _is_empty(connection):
                _create(connection)
            _check(connection, path)
            with suppress(sqlite3.OperationalError):  # a file system without shared memory: the older journal
                connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
        except sqlite3.OperationalError as error:
            if _is_about_content(error):
                raise DamagedError(str(error)) from None
            raise
        except sqlite3.DatabaseError as error:
            raise DamagedError(str(error)) from None
    except BaseException:
        connection.close()
        raise
    return connection


def _is_about_content(error: sqlite3.OperationalError) -> bool:
    """Busy, full and read-only are the world's trouble, the rest is the file's."""
    words = ("locked", "readonly", "read-only", "unable to open", "full", "disk i/o", "attempt to write")
    return not any(word in str(error).lower() for word in words)


def _harden(connection: Connection) -> None:
    """No functions or views of the file's own, no statement without end, no huge values."""
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.execute("PRAGMA mmap_size = 0")
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    connection.set_progress_handler(connection.watch, 10_000)
    if hasattr(connection, "setlimit"):  # Python 3.11
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 16 * 2**20)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)


def _is_empty(connection: Connection) -> bool:
    return not connection.rows("SELECT count(*) FROM sqlite_master")[0][0]


def _create(connection: Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        if _is_empty(connection):  # and nobody was faster
            for table in TABLES:
                connection.execute(table)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {SCHEMA}")
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def _check(connection: Connection, path: Path) -> None:
    try:
        schema = connection.rows("PRAGMA user_version")[0][0]
        if schema != SCHEMA:
            raise DamagedError(f"it has schema {schema}, this version reads {SCHEMA}")
        found = {row[0] for row in connection.rows("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}
        if found != set(TABLES):
            raise DamagedError("it has other tables")
        problems = [str(row[0]) for row in connection.rows("PRAGMA quick_check(1)")]
        if problems != ["ok"]:
            raise DamagedError(problems[0].splitlines()[-1])
    except sqlite3.OperationalError as error:
        if _is_about_content(error):
            raise DamagedError(str(error)) from None
        raise
    except sqlite3.DatabaseError as error:
        raise DamagedError(str(error)) from None


def _refuse_foreign(path: Path) -> None:
    """A file that was named by mistake is left alone: another program's database, or no database by any sign."""
    try:
        with path.open("rb") as file:
            head = file.read(100)
    except OSError:
        return
    if head.startswith(_MAGIC) and len(head) == 100:
        application = int.from_bytes(head[68:72], "big")
        is_foreign = application not in (0, APPLICATION) and path.name != FILE_NAME
    else:
        is_foreign = bool(head) and not path.name.endswith(_SUFFIXES)
    if is_foreign:
        raise BadParam(FOREIGN.reject("tuning database", "file", str(path)))


def _in_memory() -> Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, factory=Connection)
    _create(connection)
    return connection


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process at a time, where the system has such locks."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with open(f"{path}.lock", "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

"""The database's file: opened with care, set aside when it is damaged, kept in memory where no file can be.

SQLite serialises writers and survives a process that is killed in the middle of a transaction. What it cannot survive,
a file of ours that something else wrote to, is renamed to ``NAME.damaged-N`` with one line on stderr, and a new one
begun: nothing here is worth failing for. A file that is not ours is left as it is.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphdnn import debug_log
from graphdnn.cuda.private import distrust
from graphdnn.errors import Rejection
from graphdnn.rules import Rule
from graphdnn.tuning.database.damaged_files import alone, set_aside
from graphdnn.tuning.database.ownership import stranger
from graphdnn.tuning.database.schema import APPLICATION, SCHEMA, TABLES

FILE_NAME = f"tuning-{SCHEMA}.sqlite3"
_WAIT = 30.0  # seconds for another writer
_STEPS = 50_000_000  # of SQLite's machine in one statement: a file from a stranger must not keep us
_WHERE, _ATTRIBUTE = "tuning database", "file"

FOREIGN = Rule(
    id="tuning.database.foreign",
    expected="a tuning database, or a name that no file has",
    reason="{detail}, so the file is left as it is",
    fix="name another file, or move this one away; graphdnn's end in .sqlite3",
)
NEWER = Rule(
    id="tuning.database.newer",
    expected="a tuning database of schema {schema}",
    reason="a later version of graphdnn wrote the file, and this version would lose some of its content",
    fix="name another file, or use that version",
)
LOCKED = Rule(
    id="tuning.database.locked",
    expected="a tuning database that no other process keeps to itself",
    reason="another process has locked the file, and did not unlock it in {seconds} s",
    fix="end that process or wait for it, then try again",
)
UNWRITABLE = Rule(
    id="tuning.database.unwritable",
    expected="a tuning database that can be written",
    reason="the file cannot be changed: {detail}",
    fix="check the permissions of the file and of its folder, or name another file",
)
BROKEN = Rule(
    id="tuning.database.broken",
    expected="a tuning database that SQLite can read and write",
    reason="the file is damaged: {detail}",
    fix="run graphdnn db prune, which sets it aside and keeps what can be read",
)
NO_FOLDER = Rule(
    id="tuning.database.folder",
    expected="a folder for the tuning database",
    reason="{detail}, so what is tuned stays in memory",
    fix="set GRAPHDNN_CACHE_DIR to a folder that nobody else may write to, or name a file",
)
_OF_THE_WORLD = ("locked", "readonly", "read-only", "unable to open", "full", "disk i/o", "attempt to write")


class DamagedError(Exception):
    """The file cannot be used as it is."""


class ForeignError(Exception):
    """The file is not ours."""


class NewerError(Exception):
    """The file is of a later version."""


FAILURES = OSError, sqlite3.Error, DamagedError, ForeignError, NewerError  # that opening a file may end in


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
        """Closed with its last holder; Python 3.13 warns of a connection that it has to close itself."""
        with suppress(sqlite3.Error):
            self.close()


@dataclass(frozen=True, slots=True)
class Opened:
    """A connection, and the file behind it: None where the data stays in memory."""

    connection: Connection
    path: Path | None
    unwritable: Rejection | None = None  # why what is written stays in memory
    unread: Rejection | None = None  # why what the file holds is not known here


def opened(path: Path | None, *, is_named: bool = False) -> Opened:
    """A connection to the file, or to memory with the reasons for it. Nothing is raised.

    ``is_named``: the caller refuses a file that is not ours, so it is not said that another place is taken for it.
    """
    if path is None:
        debug_log.say("tuning", "there is no folder for the database: results stay in memory")
        return Opened(_in_memory(), None, NO_FOLDER.reject(_WHERE, "folder", "none", detail="there is no home folder"))
    try:
        return Opened(_of_file(path), path)
    except ForeignError as error:
        why = FOREIGN.reject(_WHERE, _ATTRIBUTE, str(path), detail=str(error))
    except NewerError:
        why = NEWER.reject(_WHERE, _ATTRIBUTE, str(path), schema=SCHEMA)
    except (OSError, sqlite3.Error, DamagedError) as error:
        why = refusal_of(error, path)
        connection = _copied(path)
        what = "cannot be used" if connection is None else "cannot be written"
        debug_log.say("tuning", f"{path} {what} ({error}): results stay in memory")
        return Opened(connection or _in_memory(), None, why, None if connection else why)
    if not is_named:
        debug_log.say("tuning", f"{path} cannot be used ({why.reason}): results stay in memory")
    return Opened(_in_memory(), None, why, why)


def opened_beside_cache(folder: Path | None) -> Opened:
    """The database in the kernel cache's folder; a folder that others may write to is not used."""
    why = None if folder is None else distrust(folder)
    if folder is None or why is None:
        return opened(None if folder is None else folder / FILE_NAME)
    debug_log.say("tuning", f"{folder} is not used; {why}: results stay in memory")
    refused = NO_FOLDER.reject(_WHERE, "folder", str(folder), detail=why)
    return Opened(_in_memory(), None, refused, refused)


def refusal_of(error: Exception, path: Path | None) -> Rejection:
    """Why a file was not read or not written, as a refusal."""
    detail = (isinstance(error, OSError) and error.strerror) or str(error)
    value = "memory" if path is None else str(path)
    if is_locked(error):
        return LOCKED.reject(_WHERE, _ATTRIBUTE, value, seconds=f"{_WAIT:.0f}")
    rule = BROKEN if isinstance(error, DamagedError) or is_about_content(error) else UNWRITABLE
    return rule.reject(_WHERE, _ATTRIBUTE, value, detail=detail)


def is_locked(error: Exception) -> bool:
    """Whether another process keeps the file to itself."""
    return isinstance(error, TimeoutError) or (isinstance(error, sqlite3.Error) and "locked" in str(error).lower())


def _of_file(path: Path) -> Connection:
    """A connection to a file of ours, which is made where there is none, and set aside where it is damaged."""
    _refuse_strangers(path)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        return _connected(path)
    except DamagedError:
        with alone(path, _WAIT):
            try:
                return _connected(path)  # another process was faster
            except DamagedError as damage:
                _refuse_strangers(path)
                set_aside(path, str(damage))
                return _connected(path)


def begun_anew(path: Path, why: str) -> None:
    """Set a file of ours aside that turned out to be damaged while it was open. Raises ``OSError``."""
    with alone(path, _WAIT):
        set_aside(path, why)


def _refuse_strangers(path: Path) -> None:
    why = stranger(path)
    if why is not None:
        raise ForeignError(why)


def _copied(path: Path) -> Connection | None:
    """What a file has that can be read and not written, in memory."""
    try:
        source = opened_to_read(path, "ro&immutable=1")
    except FAILURES:
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
    """An existing file that is not written to. Raises one of ``FAILURES``."""
    _refuse_strangers(path)
    name = f"{path.resolve().as_uri()}?mode={mode}"
    connection = sqlite3.connect(name, timeout=_WAIT, isolation_level=None, factory=Connection, uri=True)
    try:
        _harden(connection)
        _check(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


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
            if is_about_content(error):
                raise DamagedError(str(error)) from None
            raise
        except sqlite3.DatabaseError as error:
            raise DamagedError(str(error)) from None
    except BaseException:
        connection.close()
        raise
    return connection


def is_about_content(error: Exception) -> bool:
    """Busy, full and read-only are the world's trouble, the rest of what SQLite says is the file's."""
    return isinstance(error, sqlite3.DatabaseError) and not any(word in str(error).lower() for word in _OF_THE_WORLD)


def sign(connection: Connection) -> None:
    """Write the application id into a file of an earlier version, inside the transaction that is open."""
    if connection.rows("PRAGMA application_id")[0][0] == 0:
        connection.execute(f"PRAGMA application_id = {APPLICATION}")


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
        if schema > SCHEMA and not integrity(connection):
            raise NewerError
        if schema != SCHEMA:
            raise DamagedError(f"it has schema {schema}, this version reads {SCHEMA}")
        found = {row[0] for row in connection.rows("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}
        if found != set(TABLES):
            raise DamagedError("it has other tables")
        problems = [str(row[0]) for row in connection.rows("PRAGMA quick_check(1)")]
        if problems != ["ok"]:
            raise DamagedError((problems[0].splitlines() or ["malformed"])[-1])
    except sqlite3.OperationalError as error:
        if is_about_content(error):
            raise DamagedError(str(error)) from None
        raise
    except sqlite3.DatabaseError as error:
        raise DamagedError(str(error)) from None


def _in_memory() -> Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, factory=Connection)
    _create(connection)
    return connection

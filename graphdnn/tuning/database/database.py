"""Database: what was tuned, to be used again: by problem, device, driver, and the library's version and text."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from graphdnn import debug_log
from graphdnn.device.profiles import DeviceSpec
from graphdnn.enums import HeurMode
from graphdnn.errors import BadParam, MalformedFile, Rejection
from graphdnn.escaped import escaped
from graphdnn.files import graph_from_json, graph_to_json, malformed
from graphdnn.fusion import FusedGraph
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.heuristics import Filters, Ranking
from graphdnn.rules import Rule
from graphdnn.storage import cache_directory
from graphdnn.tuning.database import sqlite_file
from graphdnn.tuning.database.environment import PLACES, TuningEnvironment, setup_of, texts_of, version
from graphdnn.tuning.database.problem_key import problem_key
from graphdnn.tuning.database.record import COLUMNS, ChoiceEntry, Record, entries_of, from_row, to_row
from graphdnn.tuning.database.schema import SCHEMA
from graphdnn.tuning.result import Tuned, Verdict

KIND = Rule(
    id="tuning.database.kind",
    expected="a Database, its file, or True for the one beside the kernel cache",
    reason="the database holds the measured times",
    fix="pass one of these, or leave it out",
)
_REFUSED = (sqlite_file.FOREIGN.id, sqlite_file.NEWER.id)
_NAMES = ", ".join(COLUMNS)
_MARKS = ", ".join("?" * len(COLUMNS))
_GROUP = "problem = ? AND device = ? AND driver = ? AND version = ? AND texts = ?"


@dataclass(frozen=True, slots=True)
class Problem:
    """A tuned graph."""

    key: str
    name: str
    kernels: str

    def __str__(self) -> str:
        return escaped(self.name or self.kernels)


class Database:
    """Measurements in an SQLite file, or in memory without a file. Threads share one; a process opens its own."""

    def __init__(self, path: Path | str | None = None) -> None:
        """``path`` None: beside the kernel cache (GRAPHDNN_CACHE_DIR).

        Raises ``BadParam`` for a named file that is not a tuning database of this version; it is left as it is. Where
        the file beside the cache cannot be used, the data stays in memory: ``unwritable`` and ``unread`` say why.
        """
        self._guard = threading.RLock()
        self._take(
            sqlite_file.opened_beside_cache(cache_directory())
            if path is None
            else sqlite_file.opened(Path(path), is_named=True)
        )
        if path is not None and self.unread is not None and self.unread.rule in _REFUSED:
            self.close()
            raise BadParam(self.unread)
        self.damaged: list[MalformedFile] = []  # entries that were met and not used

    @classmethod
    def on(cls, connection: sqlite_file.Connection) -> Database:
        """A database on an open connection.

        Args:
            connection: The connection.

        Returns:
            The database.
        """
        made = cls.__new__(cls)
        made._guard, made._connection, made.path, made.damaged = threading.RLock(), connection, None, []
        made.unwritable = made.unread = None
        return made

    def _open(self, path: Path | None) -> None:
        self._take(sqlite_file.opened(path))

    def _take(self, found: sqlite_file.Opened) -> None:
        self._connection, self.path = found.connection, found.path
        self.unwritable: Rejection | None = found.unwritable  # why what is written stays in memory
        self.unread: Rejection | None = found.unread  # why what the file holds is not known here

    def close(self) -> None:
        """Close the connection."""
        with self._guard, suppress(sqlite3.Error):
            self._connection.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # Writing.

    def add(self, tuned: Tuned, *, replace_earlier: bool = False) -> Record | None:
        """Add every timed candidate of a tuning to earlier measurements of the same problem and environment.

        The better time of a configuration stays, and configurations that computed wrong results are removed.

        Args:
            tuned: The result of a tuning.
            replace_earlier: True discards the earlier measurements.

        Returns:
            The earlier record that is still faster than this tuning's winner, or None.
        """
        config = tuned.best
        fused, key = config.fused, problem_key(config.fused)
        setup, now = setup_of(config.device), int(time.time())
        timed = [t for t in tuned if t.verdict in (Verdict.FASTEST, Verdict.TIED, Verdict.SLOWER) and t.interval]
        records = []
        for place, trial in enumerate(timed):
            interval = trial.interval
            assert interval is not None
            low, high = min(trial.samples), max(trial.samples)
            if interval.high != float("inf"):
                low, high = interval.low, interval.high
            records.append(
                Record(
                    key.text, setup, entries_of(trial.config, key), trial.name, place, trial.predicted,
                    interval.median, low, high, len(trial.samples), trial.config.workspace_size, now,
                )
            )  # fmt: skip
        faulty = frozenset(entries_of(t.config, key) for t in tuned if t.verdict.is_fault)
        problem = Problem(key.text, fused.graph.name, _kernels(fused)), graph_to_json(fused.graph)
        if replace_earlier:
            self.put(records, [problem])
            return None
        ((_, kept),) = self.combine(records, [problem], faulty) or [((), records)]
        first = kept[0]
        return None if any((r.choices, r.median) == (first.choices, first.median) for r in records) else first

    def combine(
        self,
        records: Iterable[Record],
        problems: Iterable[tuple[Problem, str]],
        faulty: frozenset[tuple[ChoiceEntry, ...]] = frozenset(),
    ) -> list[tuple[Sequence[Record], Sequence[Record]]]:
        """Add records to earlier ones in one transaction. The better time of a configuration stays.

        Args:
            records: The records.
            problems: The problems of the records, each with the text of its graph.
            faulty: The choices of configurations that computed wrong results; their records are removed.

        Returns:
            For each tuning the earlier records and the present ones; empty if nothing could be written.
        """
        problems = tuple(problems)
        groups: dict[tuple[str, TuningEnvironment], list[Record]] = {}
        for record in records:
            groups.setdefault(record.key, []).append(record)
        found: list[tuple[Sequence[Record], Sequence[Record]]] = []

        def combined() -> None:
            found.clear()
            for key, now in groups.items():
                before = self.of(*key)
                found.append((before, _better([r for r in before if r.choices not in faulty], now)))
            self._put([r for _, after in found for r in after], problems)

        return found if self._kept(self._written(combined)) else []

    def put(self, records: Iterable[Record], problems: Iterable[tuple[Problem, str]]) -> None:
        """Write the records of whole tunings in one transaction. Each tuning replaces the one with its key.

        Args:
            records: The records.
            problems: The problems of the records, each with the text of its graph.
        """
        records, problems = tuple(records), tuple(problems)
        self._kept(self._written(lambda: self._put(records, problems)))

    def _written(self, work: Callable[[], None]) -> Exception | None:
        """``work`` as one transaction; returns why it was not done.

        A file that broke in the meantime is opened again, and set aside where it is ours; what can be read stays.
        """
        with self._guard:
            error = self._tried(work)
            if error is None or sqlite_file.is_locked(error):
                return error
            path = self.path
            self.close()
            self._open(path)
            error = self._tried(work)
            if error is None or path is None or self.path != path or not sqlite_file.is_about_content(error):
                return error
            return self._salvaged(path, str(error)) or self._tried(work)

    def _tried(self, work: Callable[[], None]) -> sqlite3.Error | None:
        try:
            with self._writing():
                work()
        except sqlite3.Error as error:
            return error
        return None

    def _salvaged(self, path: Path, why: str) -> Exception | None:
        """Begin a damaged file anew with what can be read of it; returns why that was not done."""
        records, graphs = self.records(), [(p, self.graph_text(p.key)) for p in self.problems().values()]
        self.close()
        try:
            sqlite_file.begun_anew(path, why)
        except OSError as refused:
            self._open(path)
            return refused
        self._open(path)
        return self._tried(lambda: self._put(records, [(p, text) for p, text in graphs if text is not None]))

    def _kept(self, error: Exception | None) -> bool:
        """Whether there is no error; what there is is said, for nothing that is tuned is worth failing for."""
        if error is not None:
            self.unwritable = sqlite_file.refusal_of(error, self.path)
            self._say(error)
        return error is None

    def _changed(self, work: Callable[[], None]) -> None:
        """``work`` as one transaction. Raises ``BadParam`` that says why it was not done."""
        error = self._written(work)
        if error is not None:
            raise BadParam(sqlite_file.refusal_of(error, self.path))

    def _put(self, records: Sequence[Record], problems: Sequence[tuple[Problem, str]]) -> None:
        for problem, graph in problems:
            row = problem.key, problem.name, problem.kernels, graph
            self._connection.execute("INSERT OR REPLACE INTO problems VALUES (?, ?, ?, ?)", row)
        for print_problem, setup in dict.fromkeys(r.key for r in records):
            self._connection.execute(f"DELETE FROM times WHERE {_GROUP}", _group(print_problem, setup))
        rows = [to_row(r) for r in records]
        self._connection.executemany(f"INSERT OR REPLACE INTO times ({_NAMES}) VALUES ({_MARKS})", rows)

    def remove(self, keys: Iterable[tuple[str, TuningEnvironment]]) -> None:
        """Remove whole tunings, and graphs without tunings.

        Args:
            keys: Pairs of a problem's key and an environment.

        Raises:
            BadParam: The file cannot be written.
        """
        keys = tuple(keys)

        def removed() -> None:
            for problem, setup in keys:
                self._connection.execute(f"DELETE FROM times WHERE {_GROUP}", _group(problem, setup))
            self._connection.execute("DELETE FROM problems WHERE key NOT IN (SELECT problem FROM times)")

        self._changed(removed)

    def remove_damaged(self) -> int:
        """Remove records and graphs that cannot be used. If SQLite finds the file damaged, it is set aside and its
        readable part is kept.

        Returns:
            The number of removed records and graphs.

        Raises:
            BadParam: The file cannot be written.
        """
        count = 0
        problems = self.integrity()
        if problems and self.path is not None:
            with self._guard:
                error = self._salvaged(self.path, problems[0])
            if error is not None:
                raise BadParam(sqlite_file.refusal_of(error, self.path))

        def removed() -> None:
            nonlocal count
            graphs = [key for key in self.problems() if self.graph(key) is None]
            bad = [rowid for rowid, row in self._rows("NOT INDEXED") if isinstance(row, MalformedFile)]
            self._connection.executemany("DELETE FROM times WHERE rowid = ?", [(rowid,) for rowid in bad])
            self._connection.executemany("DELETE FROM problems WHERE key = ?", [(key,) for key in graphs])
            count = len(bad) + len(graphs)

        self._changed(removed)
        return count

    @contextmanager
    def _writing(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            sqlite_file.sign(self._connection)
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            raise

    # Reading.

    def records(self) -> list[Record]:
        """All sound records, tuning by tuning, the fastest first. ``damaged`` has the others."""
        return self._sound("NOT INDEXED ORDER BY problem, device, driver, version, texts, place")

    def find(self, fused: FusedGraph, device: DeviceSpec) -> list[Record]:
        """The records of a graph on a device, by this driver and this version of the library, the fastest first.

        Args:
            fused: The fused graph.
            device: The profile of the device.

        Returns:
            The records.
        """
        return self.of(problem_key(fused).text, setup_of(device))

    def of(self, problem: str, setup: TuningEnvironment) -> list[Record]:
        """The records of one tuning, the fastest first.

        Args:
            problem: The key of the problem.
            setup: The environment of the tuning.

        Returns:
            The records.
        """
        return self._sound(f"WHERE {_GROUP} ORDER BY place", _group(problem, setup))

    def ranking(self, fused: FusedGraph, device: DeviceSpec, mode: HeurMode, filters: Filters) -> Ranking:
        """A ranking that begins with the recorded winner, if this version has its engines and the filters accept it.

        Args:
            fused: The fused graph.
            device: The profile of the device.
            mode: The heuristic mode.
            filters: What configurations must not be or cost.

        Returns:
            The ranking.
        """
        from graphdnn.tuning.database.recorded_ranking import RecordedRanking

        return RecordedRanking(self, fused, device, mode, filters)

    def problems(self) -> dict[str, Problem]:
        """Every tuned problem by its key."""
        with self._guard:
            rows = self._select("SELECT key, name, kernels FROM problems")
        return {key: Problem(key, name, kernels) for key, name, kernels in rows if _are_texts(key, name, kernels)}

    def graph(self, key: str) -> OperationGraph | None:
        """The graph of a tuned problem.

        Args:
            key: The key of the problem.

        Returns:
            The graph; None if it is missing or damaged.
        """
        text = self.graph_text(key)
        try:
            return None if text is None else graph_from_json(text)
        except MalformedFile as error:
            self.damaged.append(error)
            return None

    def graph_text(self, key: str) -> str | None:
        """The text of a tuned graph.

        Args:
            key: The key of the problem.

        Returns:
            The text; None if it is missing.
        """
        with self._guard:
            rows = self._select("SELECT graph FROM problems WHERE key = ?", (key,))
        return next((row[0] for row in rows if isinstance(row[0], str)), None)

    def is_current(self, setup: TuningEnvironment) -> bool:
        """Whether this version of the library, with its present kernels, could have made a measurement.

        Args:
            setup: The environment of the measurement. Its driver is not compared.

        Returns:
            True or False.
        """
        return setup.version == version() and setup.texts in map(texts_of, PLACES)

    def integrity(self) -> list[str]:
        """What SQLite finds wrong with the file; empty if it finds nothing."""
        with self._guard:
            return sqlite_file.integrity(self._connection)

    def _sound(self, rest: str, values: tuple[str, ...] = ()) -> list[Record]:
        self.damaged, found = [], []
        with self._guard:
            for _, row in self._rows(rest, values):
                if isinstance(row, Record):
                    found.append(row)
                else:
                    self.damaged.append(row)
        return _combine_renamed(found)

    def _rows(self, rest: str, values: tuple[str, ...] = ()) -> Iterator[tuple[int, Record | MalformedFile]]:
        for rowid, *row in self._select(f"SELECT rowid, {_NAMES} FROM times {rest}", values):
            try:
                yield rowid, from_row(row)
            except MalformedFile as error:
                yield rowid, error

    def _select(self, statement: str, values: tuple[str, ...] = ()) -> list[tuple[Any, ...]]:
        """The rows; none from a file that breaks while it is read."""
        try:
            return self._connection.rows(statement, values)
        except sqlite3.Error as error:
            self.unread = sqlite_file.refusal_of(error, self.path)
            self._say(error)
            return []

    def _say(self, error: Exception) -> None:
        debug_log.say("tuning", f"{self.path or 'the database in memory'}: {error}")


_opened: dict[Path | None, Database] = {}


def default_database() -> Database:
    """The database beside the kernel cache. It is opened once.

    Raises:
        BadParam: The file cannot be opened as a tuning database.
    """
    folder = cache_directory()
    if folder not in _opened:
        _opened[folder] = Database()
    return _opened[folder]


def database_of(given: Any) -> Any:
    """By what names it: its file, or True for the one beside the kernel cache. What ranks is one."""
    if given is True:
        return default_database()
    if isinstance(given, (str, Path)):
        return Database(given)
    if not hasattr(type(given), "ranking"):  # the type has no code of the object's own
        raise BadParam(KIND.reject("AUTOTUNE", "database", given))
    return given


def _better(earlier: Sequence[Record], now: Sequence[Record]) -> list[Record]:
    """The faster record of each configuration, in the order of times; of equals what was measured last. Where the
    fastest is this tuning's, the winner that it named goes before the records that tie with it.
    """
    known = {r.choices: r for r in earlier}
    for record in now:
        other = known.get(record.choices, record)
        known[record.choices] = min(record, other, key=lambda r: (r.median, -r.measured))
    order = sorted(known.values(), key=lambda r: (r.median, r in earlier))
    winner = min(now, key=lambda r: r.place)
    if order[0] in now:
        order.sort(key=lambda r: r != winner)
    return [replace(r, place=place) for place, r in enumerate(order)]


def _combine_renamed(records: list[Record]) -> list[Record]:
    """One record for each configuration. Rows with an engine's earlier and its current name are one configuration.

    Of two times the better one stays, and the order of that tuning becomes the order of the times.
    """
    tunings: dict[tuple[str, TuningEnvironment], list[Record]] = {}
    for record in records:
        tunings.setdefault(record.key, []).append(record)
    return [record for tuning in tunings.values() for record in _combine_tuning(tuning)]


def _combine_tuning(records: list[Record]) -> list[Record]:
    by_time = sorted(records, key=lambda r: (r.median, -r.measured))
    fastest: dict[tuple[ChoiceEntry, ...], Record] = {}
    for record in by_time:
        fastest.setdefault(record.choices, record)
    if len(fastest) == len(records):
        return records
    return [replace(record, place=place) for place, record in enumerate(fastest.values())]


def _group(problem: str, setup: TuningEnvironment) -> tuple[str, ...]:
    return problem, setup.device, setup.driver, setup.version, setup.texts


def _kernels(fused: FusedGraph) -> str:
    return "; ".join(op.name for op in fused)


def _are_texts(*values: object) -> bool:
    return all(isinstance(value, str) for value in values)


__all__ = ["Database", "Problem", "database_of", "default_database"]


UNREADABLE = Rule(
    id="tuning.database.unreadable",
    expected="a tuning database of schema {schema}",
    reason="the file cannot be read: {detail}",
    fix="check the path; a database in use can be read too",
)


def merged(database: Database, path: Path) -> tuple[int, int, int]:
    """(tunings with records that are taken over, tunings left, damaged entries).

    Raises ``MalformedFile`` for what is no database, ``BadParam`` where this one cannot be written.
    """
    try:
        source = Database.on(sqlite_file.opened_to_read(path))
    except sqlite_file.FAILURES as error:
        raise _unreadable(path, str(error) or "a later version wrote it") from None
    with source:
        records, problems = source.records(), source.problems()
        damaged = len(source.damaged)
        wanted: list[tuple[Problem, str]] = []
        for key in dict.fromkeys(r.problem for r in records):
            problem, graph = problems.get(key), source.graph(key)
            if problem is not None and graph is not None:
                wanted.append((problem, source.graph_text(key) or ""))
        if source.unread is not None:
            raise MalformedFile(source.unread)
    found = database.combine(records, wanted)
    if database.unwritable is not None:
        raise BadParam(database.unwritable)
    taken = sum(list(before) != list(after) for before, after in found)
    return taken, len(found) - taken, damaged


def _unreadable(path: Path, detail: str) -> MalformedFile:
    return malformed(UNREADABLE, "file", str(path), schema=SCHEMA, detail=detail)

"""Files of the tuning database: no damage is ever fatal, and many processes write at once."""

from __future__ import annotations

import ast
import json
import multiprocessing
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from repository import ROOT, TESTS
from tuning_records import graph_of, records, tuned

from graphdnn import debug_log
from graphdnn.errors import BadParam
from graphdnn.tuning import Database
from graphdnn.tuning.database import damaged_files, sqlite_file
from graphdnn.tuning.database.environment import TuningEnvironment


@pytest.fixture(autouse=True)
def _said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debug_log, "_said", set())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / sqlite_file.FILE_NAME


def spoilt(path: Path, how: str) -> None:
    data = path.read_bytes()
    if how == "truncated":
        path.write_bytes(data[: len(data) // 2])
    elif how == "a header alone":
        path.write_bytes(data[:100])
    elif how == "random bytes after the header":
        path.write_bytes(data[:100] + random.Random(1).randbytes(len(data) - 100))
    else:
        statements = {
            "older schema": "PRAGMA user_version = 0",
            "other tables": "CREATE TABLE more (x)",
            "a trigger": "CREATE TRIGGER t AFTER INSERT ON times BEGIN DELETE FROM problems; END",
            "a view": "DROP TABLE times; CREATE VIEW times AS SELECT * FROM problems",
        }
        connection = sqlite3.connect(path)
        connection.executescript(statements[how])
        connection.close()


DAMAGE = (
    "truncated", "a header alone", "random bytes after the header", "older schema", "other tables", "a trigger",
    "a view",
)  # fmt: skip


@pytest.mark.parametrize("how", DAMAGE)
def test_damaged_files_are_set_aside(path: Path, how: str, capsys: pytest.CaptureFixture[str]) -> None:
    with Database(path) as database:
        database.put(records(), [])
    capsys.readouterr()
    spoilt(path, how)
    with Database(path) as database:
        assert database.path == path
        assert database.records() == []
        database.put(records(), [])
    err = capsys.readouterr().err
    assert len([line for line in err.splitlines() if "template" not in line]) == 1, err
    assert "set aside as" in err
    assert [p.name for p in damaged_files.damaged_files(path)] == [f"{path.name}.damaged-1"]
    with Database(path) as database:
        assert len(database.records()) == 4
        assert database.integrity() == []
    spoilt(path, how)
    Database(path).close()
    assert len(damaged_files.damaged_files(path)) == 2


def test_damage_while_it_is_open_is_no_error_either(path: Path) -> None:
    with Database(path) as database:
        database.put(records(), [])
        database._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        path.write_bytes(random.Random(1).randbytes(40_000))
        database.put(records(), [])
        assert isinstance(database.records(), list)


@pytest.mark.parametrize("count", [25, pytest.param(5_000, marks=pytest.mark.long)])
def test_mutated_files_end_in_records_or_in_none(tmp_path: Path, count: int) -> None:
    """Whatever a file holds, it is neither an error nor slow, and nothing is imported or executed for it."""
    whole = tmp_path / "whole.sqlite3"
    with Database(whole) as database:
        database.add(tuned(graph_of()))
        database.put(records(30), [])
        database._connection.execute("PRAGMA journal_mode = DELETE")
    script = TESTS / "support" / "tuning_mutations.py"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, str(script), str(whole), str(count), "1"], capture_output=True, text=True, env=environment
    )
    assert run.returncode == 0, run.stderr
    outcomes, seen, is_quick = ast.literal_eval("(" + run.stdout.strip().replace("] ", "], ") + ")")
    assert set(outcomes) <= {"kept", "empty", "tuning.database.foreign", "tuning.database.newer"}
    assert {"kept", "empty"} <= set(outcomes)
    assert seen == []
    assert is_quick


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("median", float("inf")), ("median", -1.0), ("median", "fast"), ("low", 2.0), ("place", -1),
        ("samples", 1.5), ("choices", "{"), ("choices", "[]"), ("choices", '[[[0], "numpy"]]'),
        ("choices", '[[[0], "numpy", {"TILE_SIZE": "big"}]]'), ("choices", '[[["a"], "numpy", {}]]'),
        ("choices", "[" * 100_000), ("device", "{}"), ("device", "h200"), ("name", b"\xff"),
        ("problem", "x" * 300_000), ("predicted", 2**70 * 1.0 * 1e300),
    ],
)  # fmt: skip
def test_values_are_checked_when_they_are_read(path: Path, column: str, value: Any) -> None:
    with Database(path) as database:
        database.put(records(2), [])
        database._connection.execute(f"UPDATE OR IGNORE times SET {column} = ? WHERE place = 0", (value,))
        assert len(database.records()) == 1
        assert [e.rejections[0].rule for e in database.damaged] == ["tuning.record"]
        assert database.remove_damaged() == 1
        assert len(database.records()) == 1
        assert not database.damaged


def foreign_database(path: Path, statements: str) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(statements)
    connection.close()


FOREIGN = {
    "notes.txt": lambda path: path.write_text("my notes", encoding="utf-8"),
    "notes.sqlite3": lambda path: path.write_text("my notes", encoding="utf-8"),
    "magic.sqlite3": lambda path: path.write_bytes(b"SQLite format 3\0"),
    "random.sqlite3": lambda path: path.write_bytes(random.Random(1).randbytes(8000)),
    sqlite_file.FILE_NAME: lambda path: path.write_bytes(bytes(4096)),
    "other.sqlite3": lambda path: foreign_database(path, "PRAGMA application_id = 77; CREATE TABLE t (x)"),
    "plain.sqlite3": lambda path: foreign_database(path, "CREATE TABLE t (x); INSERT INTO t VALUES (1)"),
    "schema.db": lambda path: foreign_database(path, "PRAGMA user_version = 1; CREATE TABLE t (x)"),
    "empty.db": lambda path: foreign_database(path, "PRAGMA user_version = 1"),
    "wal.db": lambda path: foreign_database(path, "PRAGMA journal_mode = WAL; CREATE TABLE t (x)"),
    "folder.sqlite3": lambda path: path.mkdir(),
    "pipe.sqlite3": os.mkfifo,
}


def contents(folder: Path) -> dict[str, bytes | None]:
    return {p.name: p.read_bytes() if p.is_file() else None for p in sorted(folder.iterdir())}


@pytest.mark.parametrize("name", FOREIGN)
def test_files_that_are_not_ours_are_left_alone(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / name
    FOREIGN[name](file)
    before = contents(tmp_path)
    with pytest.raises(BadParam) as caught:
        Database(file)
    assert caught.value.rejections[0].rule == "tuning.database.foreign"
    assert contents(tmp_path) == before
    assert capsys.readouterr().err == "", "the refusal says it"


def test_a_stranger_in_the_default_place_is_left_alone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHDNN_CACHE_DIR", str(path.parent))
    path.parent.mkdir(mode=0o700)
    path.write_text("my notes", encoding="utf-8")
    with Database() as database:
        assert database.path is None
        assert database.unread is not None
        assert database.unread.rule == "tuning.database.foreign"
        database.put(records(), [])
        assert len(database.records()) == 4
    assert contents(path.parent) == {path.name: b"my notes"}


def test_a_file_of_an_earlier_version_gets_its_id_when_it_is_written(path: Path) -> None:
    with Database(path) as database:
        database.put(records(), [])
        database._connection.execute("PRAGMA application_id = 0")
        database._connection.execute("PRAGMA journal_mode = DELETE")
    assert path.read_bytes()[68:72] == bytes(4)
    with Database(path) as database:
        assert len(database.records()) == 4
    assert path.read_bytes()[68:72] == bytes(4)
    with Database(path) as database:
        database.put(records(1, "more"), [])
        assert len(database.records()) == 5
    assert path.read_bytes()[68:72] == b"gdnt"


def test_damage_to_a_file_of_an_earlier_version_is_set_aside_while_its_tables_tell(path: Path) -> None:
    with Database(path) as database:
        database.put(records(200), [])
        database._connection.execute("PRAGMA application_id = 0")
        database._connection.execute("PRAGMA journal_mode = DELETE")
    data = path.read_bytes()
    path.write_bytes(data[:8192] + random.Random(1).randbytes(len(data) - 8192))
    with Database(path) as database:
        assert database.path == path
    assert [p.name for p in damaged_files.damaged_files(path)] == [f"{path.name}.damaged-1"]
    path.write_bytes(bytes(4) + data[4:])
    with pytest.raises(BadParam):
        Database(path)


def test_a_file_of_a_later_version_is_left_alone(path: Path) -> None:
    with Database(path) as database:
        database.put(records(), [])
        database._connection.execute("PRAGMA user_version = 2")
        database._connection.execute("PRAGMA journal_mode = DELETE")
    before = contents(path.parent)
    with pytest.raises(BadParam) as caught:
        Database(path)
    assert caught.value.rejections[0].rule == "tuning.database.newer"
    assert contents(path.parent) == before


def broken(path: Path) -> None:
    """A file that SQLite's quick check accepts: the index of a table lacks what the table holds."""
    with Database(path) as database:
        database.put(records(), [])
        database._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        database._connection.execute("PRAGMA journal_mode = DELETE")
        ((root,),) = database._connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE type = 'index' AND tbl_name = 'times'"
        ).fetchall()
    data = bytearray(path.read_bytes())
    at = 4096 * (root - 1)
    data[at : at + 8] = b"\x0a\0\0\0\0\x10\0\0"  # a leaf without cells
    path.write_bytes(data)


def test_a_file_that_breaks_when_it_is_written_keeps_what_can_be_read(path: Path) -> None:
    broken(path)
    with Database(path) as database:
        assert len(database.records()) == 4
        assert database.integrity()
        database.remove([])  # which deletes the graphs that nothing is known of
        assert database.integrity()
        database._connection.execute("UPDATE times SET median = -1 WHERE place = 2")
        assert database.remove_damaged() == 0  # it was not kept
        assert len(database.records()) == 3
        assert database.integrity() == []
        assert database.path == path
    assert [p.name for p in damaged_files.damaged_files(path)] == [f"{path.name}.damaged-1"]


def test_a_change_that_fails_for_damage_is_made_in_the_file_begun_anew(path: Path) -> None:
    broken(path)
    with Database(path) as database:
        database._changed(lambda: database._connection.execute("DELETE FROM times WHERE place = 0") and None)
        assert [r.place for r in database.records()] == [1, 2, 3]
        assert database.integrity() == []
        assert database.path == path
    assert [p.name for p in damaged_files.damaged_files(path)] == [f"{path.name}.damaged-1"]


def test_only_files_with_our_sign_are_deleted(path: Path) -> None:
    with Database(path) as database:
        database.put(records(), [])
    data = path.read_bytes()
    ours = [path.with_name(f"{path.name}.damaged-{i}") for i in (1, 22)]
    for file in ours:
        file.write_bytes(data[:100])
    ours[0].with_name(f"{ours[0].name}-wal").write_bytes(b"log")
    left = {f"{path.name}.damaged-{end}": text for end, text in (("2", b"x"), ("report", data), ("3-notes", data))}
    for name, content in left.items():
        path.with_name(name).write_bytes(content)
    path.with_name(f"{path.name}.damaged-4").symlink_to(path)
    assert damaged_files.damaged_files(path) == ours
    assert damaged_files.delete_damaged(path) == 2
    assert {name: content for name, content in contents(path.parent).items() if name != path.name} == {
        **left, f"{path.name}.damaged-4": data
    }  # fmt: skip


LOCKS = {
    "a link": lambda lock, victim: lock.symlink_to(victim),
    "another's notes": lambda lock, victim: lock.write_text("my notes", encoding="utf-8"),
    "a pipe": lambda lock, victim: os.mkfifo(lock),
    "a folder": lambda lock, victim: lock.mkdir(),
}


@pytest.mark.parametrize("kind", LOCKS)
def test_a_lock_file_that_is_not_ours_is_neither_followed_nor_emptied(
    tmp_path: Path, path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Database(path) as database:
        database.put(records(), [])
    spoilt(path, "truncated")
    victim, lock = tmp_path / "victim", Path(f"{path}.lock")
    victim.write_text("keep me", encoding="utf-8")
    LOCKS[kind](lock, victim)
    before = contents(path.parent)
    with Database(path) as database:
        assert database.path is None
        assert database.unwritable is not None
        assert database.unwritable.rule == "tuning.database.unwritable"
    assert victim.read_text(encoding="utf-8") == "keep me"
    assert contents(path.parent) == before
    assert "results stay in memory" in capsys.readouterr().err


def test_a_link_to_a_lock_that_is_not_there_makes_no_file(tmp_path: Path, path: Path) -> None:
    path.parent.mkdir()
    Path(f"{path}.lock").symlink_to(tmp_path / "made")
    with pytest.raises(OSError, match="symbolic"), damaged_files.alone(path, 0.0):
        pass
    assert not (tmp_path / "made").exists()


def test_a_lock_is_not_waited_for_without_end(path: Path) -> None:
    path.parent.mkdir()
    with damaged_files.alone(path, 1.0), pytest.raises(TimeoutError), damaged_files.alone(path, 0.1):
        pass
    with damaged_files.alone(path, 0.0):
        pass


def test_without_a_folder_it_stays_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    for _ in range(2):
        with Database(tmp_path / "file" / "below" / "t.sqlite3") as database:
            assert database.path is None
            database.put(records(), [])
            assert len(database.records()) == 4
    monkeypatch.setattr("graphdnn.tuning.database.database.cache_directory", lambda: None)
    for _ in range(2):
        with Database() as database:
            assert database.path is None
    said = [line for line in capsys.readouterr().err.splitlines() if "stay in memory" in line]
    assert len(said) == 2  # once for each reason


def test_a_file_that_cannot_be_written_is_read(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Database(path) as database:
        database.put(records(), [])

    def refused(path: Path) -> Any:
        raise sqlite3.OperationalError("attempt to write a readonly database")

    monkeypatch.setattr(sqlite_file, "_connected", refused)
    before = path.read_bytes()
    with Database(path) as database:
        assert database.path is None
        assert len(database.records()) == 4
        database.put(records(1, "new"), [])
        assert len(database.records()) == 5
    assert path.read_bytes() == before
    assert "cannot be written" in capsys.readouterr().err


def started(writers: list[Any]) -> None:
    with warnings.catch_warnings():  # later Pythons warn of threads, which these children do not use
        warnings.simplefilter("ignore", DeprecationWarning)
        for writer in writers:
            writer.start()


def _write(path: Path, who: int, rounds: int) -> None:
    database = Database(path)
    for i in range(rounds):
        database.put(records(4, f"{who}.{i}"), [])
    os._exit(0)


def test_eight_processes_write_at_once(path: Path) -> None:
    context = multiprocessing.get_context("fork")
    rounds = 6
    writers = [context.Process(target=_write, args=(path, i, rounds)) for i in range(8)]
    started(writers)
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    with Database(path) as database:
        assert len(database.records()) == 8 * rounds * 4
        assert not database.damaged
        assert database.integrity() == []
    assert not damaged_files.damaged_files(path)


def _combine(path: Path, who: int) -> None:
    """One configuration of its own, and one that all have, of one problem."""
    own, shared = (replace(r, median=r.low * (1 + 0.01 * who)) for r in (records(16)[who], records(16)[15]))
    database = Database(path)
    for _ in range(6):
        database.combine([own, shared], [])
    os._exit(0)


def test_processes_that_tune_one_problem_keep_the_better_times_of_all(path: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_combine, args=(path, i)) for i in range(8)]
    started(writers)
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    with Database(path) as database:
        found = {r.choices[0].operations[0]: r.median / r.low - 1 for r in database.records()}
        assert [r.place for r in database.records()] == list(range(9))
    assert found == pytest.approx({**{i: 0.01 * i for i in range(8)}, 15: 0.0})


def test_processes_that_find_damage_together_set_it_aside_once(path: Path) -> None:
    with Database(path) as database:
        database.put(records(), [])
    spoilt(path, "truncated")
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write, args=(path, i, 1)) for i in range(8)]
    started(writers)
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    assert len(damaged_files.damaged_files(path)) == 1
    with Database(path) as database:
        assert len(database.records()) == 8 * 4


def test_killed_writers_leave_whole_tunings(path: Path) -> None:
    context, draw = multiprocessing.get_context("fork"), random.Random(3)
    for turn in range(8):
        writers = [context.Process(target=_write, args=(path, 10 * turn + i, 10_000)) for i in range(2)]
        started(writers)
        time.sleep(draw.uniform(0.02, 0.12))
        for writer in writers:
            assert writer.pid is not None
            os.kill(writer.pid, signal.SIGKILL)
            writer.join(30)
    with Database(path) as database:
        found = database.records()
        assert not database.damaged
        assert database.integrity() == []
        sizes: dict[tuple[str, TuningEnvironment], int] = {}
        for record in found:
            sizes[record.key] = sizes.get(record.key, 0) + 1
        assert sizes
        assert set(sizes.values()) == {4}
    assert not damaged_files.damaged_files(path)


def test_records_are_json_that_people_can_read(path: Path) -> None:
    with Database(path) as database:
        database.add(tuned(graph_of()))
        (row,) = database._connection.execute("SELECT choices, device FROM times WHERE place = 0").fetchall()
    ((operations, engine, knobs),) = json.loads(row[0])
    assert (operations, engine, list(knobs)) == ([0, 1], "numpy_blocked", ["TILE_SIZE"])
    assert json.loads(row[1])["name"] == "cpu"

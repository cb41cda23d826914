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
from graphdnn.tuning.database import sqlite_file
from graphdnn.tuning.database.environment import Setup


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
    elif how == "random bytes":
        path.write_bytes(random.Random(1).randbytes(len(data)))
    elif how == "random bytes after the header":
        path.write_bytes(data[:100] + random.Random(1).randbytes(len(data) - 100))
    elif how == "text":
        path.write_text("this is no database\n" * 100, encoding="utf-8")
    else:
        statements = {
            "newer schema": "PRAGMA user_version = 2",
            "other tables": "CREATE TABLE more (x)",
            "a trigger": "CREATE TRIGGER t AFTER INSERT ON times BEGIN DELETE FROM problems; END",
            "a view": "DROP TABLE times; CREATE VIEW times AS SELECT * FROM problems",
        }
        connection = sqlite3.connect(path)
        connection.executescript(statements[how])
        connection.close()


DAMAGE = (
    "truncated", "a header alone", "random bytes", "random bytes after the header", "text", "newer schema",
    "other tables", "a trigger", "a view",
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
    assert [p.name for p in sqlite_file.damaged_files(path)] == [f"{path.name}.damaged-1"]
    with Database(path) as database:
        assert len(database.records()) == 4
        assert database.integrity() == []
    spoilt(path, how)
    Database(path).close()
    assert len(sqlite_file.damaged_files(path)) == 2


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
    assert set(outcomes) <= {"kept", "empty", "tuning.database.foreign"}
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


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    text, foreign = tmp_path / "notes.txt", tmp_path / "other.sqlite3"
    text.write_text("my notes", encoding="utf-8")
    connection = sqlite3.connect(foreign)
    connection.executescript("PRAGMA application_id = 77; CREATE TABLE t (x)")
    connection.close()
    for file in (text, foreign):
        before = file.read_bytes()
        with pytest.raises(BadParam) as caught:
            Database(file)
        assert caught.value.rejections[0].rule == "tuning.database.foreign"
        assert file.read_bytes() == before


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
    assert not sqlite_file.damaged_files(path)


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
    spoilt(path, "text")
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write, args=(path, i, 1)) for i in range(8)]
    started(writers)
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    assert len(sqlite_file.damaged_files(path)) == 1
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
        sizes: dict[tuple[str, Setup], int] = {}
        for record in found:
            sizes[record.key] = sizes.get(record.key, 0) + 1
        assert sizes
        assert set(sizes.values()) == {4}
    assert not sqlite_file.damaged_files(path)


def test_records_are_json_that_people_can_read(path: Path) -> None:
    with Database(path) as database:
        database.add(tuned(graph_of()))
        (row,) = database._connection.execute("SELECT choices, device FROM times WHERE place = 0").fetchall()
    ((operations, engine, knobs),) = json.loads(row[0])
    assert (operations, engine, list(knobs)) == ([0, 1], "numpy_blocked", ["TILE_SIZE"])
    assert json.loads(row[1])["name"] == "cpu"

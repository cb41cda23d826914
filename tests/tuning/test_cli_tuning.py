"""``graphdnn tune`` and ``graphdnn db``: what people see, what programs read, and every way to be wrong."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import answer, refused

from graphdnn import device_spec, fuse, plan_from_json
from graphdnn.cli.exit_codes import Exit
from graphdnn.problem import parse
from graphdnn.tuning import Database
from graphdnn.tuning.calibration import Case, calibration, cases_of
from graphdnn.tuning.database import sqlite_file
from graphdnn.tuning.database.environment import setup_of
from graphdnn.tuning.database.problem_key import problem_key
from graphdnn.tuning.database.record import Record
from graphdnn.tuning.workers import worker_process

CONV = "conv x=f32[1,4,8,8] w=f32[4,4,3,3] pad=1 + relu"
LARGER = "conv x=f32[2,32,28,28] w=f32[32,32,3,3] pad=1 + relu"  # for the blocked engine, which has a knob
KEY = problem_key(fuse(parse(CONV).build_operation_graph())).text


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRAPHDNN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    monkeypatch.setattr("graphdnn.tuning.database.database._opened", {})
    return tmp_path / "cache"


@pytest.fixture(scope="module", autouse=True)
def _workers() -> Iterator[None]:
    yield
    worker_process._end()


def record(database: Database, place: int = 0, **changes: Any) -> Record:
    """A record of the convolution's first problem."""
    from tuning_records import graph_of, tuned

    database.add(tuned(graph_of(CONV)))
    return replace(database.records()[place], **changes)


def filled(path: Path | None = None, measured: int | None = None) -> None:
    with Database(path) as database:
        record(database)
        if measured is not None:
            changed = [replace(r, measured=measured) for r in database.records()]
            database.put(changed, [])


# tune.


def test_tune_prints_a_table_and_keeps_it(capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    out, err = answer(capsys, "tune", LARGER, "--budget", "20", "--most", "3", "--save-plan", str(plan))
    assert err == ""  # no bar in a pipe
    assert "fastest" in out
    assert "3 candidates were tried" in out
    assert str(folder / sqlite_file.FILE_NAME) in out
    with Database() as database:
        found = database.find(fuse(parse(LARGER).build_operation_graph()), device_spec("cpu"))
    assert len(found) == 3
    assert plan_from_json(plan.read_text(encoding="utf-8")).name == found[0].name
    data = json.loads(answer(capsys, "tune", CONV, "--budget", "20", "--most", "1", "--no-db", "--json")[0])
    assert data["format"] == "graphdnn.tuned"
    assert [t["verdict"] for t in data["trials"]] == ["fastest"]
    # A plan file is a graph as well, and its limits hold.
    answer(capsys, "tune", str(plan), "--budget", "20", "--most", "1", "--no-db")


@pytest.mark.parametrize(
    "more", [("--budget", "0"), ("--budget", "nan"), ("--most", "-1"), ("--limit", "x"), ("--device", "h9000"), ()]
)
def test_wrong_arguments_of_tune(capsys: pytest.CaptureFixture[str], more: tuple[str, ...]) -> None:
    refused(capsys, "tune", *((CONV, *more) if more else ()), code=Exit.USAGE)


def test_tune_for_a_device_that_is_not_here(capsys: pytest.CaptureFixture[str]) -> None:
    if not pytest.importorskip("graphdnn.cuda.driver_api").available():
        pytest.skip("a GPU is here")
    assert "execute.device_absent" in refused(capsys, "tune", CONV, "--device", "h200", code=Exit.NOT_EXECUTED)


def test_tune_needs_a_graph(capsys: pytest.CaptureFixture[str]) -> None:
    refused(capsys, "tune", "conv", code=Exit.USAGE)
    err = refused(capsys, "tune", "conv x=f32[1,2,3,4] w=f32[1,2,3,3] compute=i32", code=Exit.NOT_SUPPORTED)
    assert "rule" in err


def test_tune_refuses_to_write_over_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("mine", encoding="utf-8")
    assert "tuning.database.foreign" in refused(capsys, "tune", CONV, "--db", str(notes), code=Exit.USAGE)
    assert notes.read_text(encoding="utf-8") == "mine"


def test_other_commands_begin_with_it_when_asked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "tuned: nothing recorded" in answer(capsys, "explain", CONV, "--tuned")[0]
    assert "tuned:" not in answer(capsys, "explain", CONV)[0]
    other = tmp_path / "other.sqlite3"
    filled(other)
    out, _ = answer(capsys, "explain", CONV, "--db", str(other))
    assert "the first was measured to take 1.000 ms" in out
    with Database(other) as database:
        fastest = database.records()[0].name
    ran = json.loads(answer(capsys, "run", CONV, "--db", str(other), "--json", "--repeat", "1")[0])
    assert ran["engines"] == [fastest]


# db.


def test_list_and_show(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    assert answer(capsys, "db", "list")[0].strip() == f"0 tunings in {folder / sqlite_file.FILE_NAME}"
    filled()
    out, _ = answer(capsys, "db", "list")
    assert KEY[:12] in out
    assert "conv + relu" in out
    assert "1 tuning in" in out
    assert "stale" not in out
    out, _ = answer(capsys, "db", "show", KEY[:8])
    assert "conv_fprop+relu_fwd" in out
    assert "numpy_blocked" in out
    listed = json.loads(answer(capsys, "db", "list", "--json")[0])
    assert (listed["format"], listed["version"]) == ("graphdnn.db", 1)
    assert listed["problems"][0]["key"] == KEY
    shown = json.loads(answer(capsys, "db", "show", KEY, "--json")[0])
    assert len(shown["tunings"][0]["trials"]) == 4
    assert shown["graph"]["format"] == "graphdnn.graph"


def test_show_needs_one_key(capsys: pytest.CaptureFixture[str]) -> None:
    filled()
    assert "cli.db.files" in refused(capsys, "db", "show", code=Exit.USAGE)
    assert "cli.db.key" in refused(capsys, "db", "show", "nothing", code=Exit.USAGE)
    assert "cli.db.files" in refused(capsys, "db", "merge", code=Exit.USAGE)
    refused(capsys, "db", "dance", code=Exit.USAGE)


def test_merge_takes_what_is_new_or_faster(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Of each configuration the better time, whichever was measured last; of equal times the later one."""
    other, now = tmp_path / "other.sqlite3", int(time.time())
    filled(other, measured=now - 1000)
    assert "1 tuning taken over, 0 as good" in answer(capsys, "db", "merge", str(other))[0]
    assert "0 tunings taken over, 1 as good" in answer(capsys, "db", "merge", str(other))[0]
    filled(other, measured=now + 1000)
    data = json.loads(answer(capsys, "db", "merge", str(other), "--json")[0])
    assert data["merged"][0]["tunings"] == 1
    with Database() as database:
        first, *others = database.records()
        assert {r.measured for r in (first, *others)} == {now + 1000}
        assert database.graph(KEY) is not None
    with Database(other) as database:
        slower = [replace(r, median=r.high, measured=now + 2000) for r in (first, *others[1:])]
        faster = replace(others[0], median=first.low, low=first.low, measured=now - 2000)
        database.put([replace(r, place=i) for i, r in enumerate((faster, *slower))], [])
    assert "1 tuning taken over" in answer(capsys, "db", "merge", str(other))[0]
    with Database() as database:
        assert database.records() == [replace(r, place=i) for i, r in enumerate((faster, first, *others[1:]))]


@pytest.mark.parametrize("content", [None, b"", b"text", b"SQLite format 3\0" + bytes(200)])
def test_merge_refuses_what_is_no_database(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: bytes | None
) -> None:
    other = tmp_path / "other.sqlite3"
    if content is not None:
        other.write_bytes(content)
    assert "tuning.database.unreadable" in refused(capsys, "db", "merge", str(other), code=Exit.USAGE)
    assert (other.read_bytes() if content is not None else None) == content


def test_verify_and_prune_damaged_entries(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    filled()
    path = folder / sqlite_file.FILE_NAME
    assert "4 entries checked" in answer(capsys, "db", "verify")[0]
    connection = sqlite3.connect(path)
    connection.execute("UPDATE times SET median = -1 WHERE place = 2")
    connection.execute("UPDATE problems SET graph = '{'")
    connection.commit()
    connection.close()
    out, _ = answer(capsys, "db", "verify", code=Exit.CHECK_FAILED)
    assert "2 damaged" in out
    assert "fix: graphdnn db prune" in out
    assert json.loads(answer(capsys, "db", "verify", "--json", code=Exit.CHECK_FAILED)[0])["entries"] == 4
    damaged, notes = (path.with_name(f"{path.name}.damaged-{i}") for i in (1, 2))
    damaged.write_bytes(path.read_bytes()[:100])
    notes.write_text("x", encoding="utf-8")
    out, _ = answer(capsys, "db", "verify", code=Exit.CHECK_FAILED)
    assert f"set aside before: {damaged.name}" in out
    assert f"left as it is, for it has no sign of graphdnn: {notes.name}" in out
    assert "2 damaged, 1 file set aside" in answer(capsys, "db", "prune")[0]
    assert not damaged.exists()
    assert notes.read_text(encoding="utf-8") == "x"
    assert "3 entries checked" in answer(capsys, "db", "verify")[0]


ACTIONS = (("list",), ("show", "x"), ("merge", "x"), ("verify",), ("prune",), ("prune", "--all"), ("calibration",))


@pytest.mark.parametrize("words", ACTIONS, ids=lambda words: " ".join(words))
def test_every_action_refuses_a_file_that_is_not_ours(
    capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    named, default = tmp_path / "mine.sqlite3", folder / sqlite_file.FILE_NAME
    connection = sqlite3.connect(named)
    connection.executescript("CREATE TABLE t (x); INSERT INTO t VALUES (1)")
    connection.close()
    folder.mkdir(mode=0o700)
    default.write_bytes(named.read_bytes())
    for more in (("--db", str(named)), ()):
        assert "tuning.database.foreign" in refused(capsys, "db", *words, *more, code=Exit.USAGE)
    assert named.read_bytes() == default.read_bytes()
    assert sorted(p.name for p in (*tmp_path.iterdir(), *folder.iterdir())) == ["cache", named.name, default.name]


@pytest.mark.parametrize("words", [("prune",), ("prune", "--all"), ("merge", "x")], ids=lambda words: " ".join(words))
@pytest.mark.parametrize("moment", ["before it is opened", "after it was opened"])
def test_actions_that_write_refuse_a_file_that_another_process_keeps(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...],
    moment: str,
) -> None:  # fmt: skip
    filled()
    monkeypatch.setattr(sqlite_file, "_WAIT", 0.05)
    path = folder / sqlite_file.FILE_NAME
    if words[0] == "merge":
        other = folder / "other.sqlite3"
        filled(other)
        words = ("merge", str(other))
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        if moment == "before it is opened":
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("UPDATE times SET measured = 1")
        assert "tuning.database.locked" in refused(capsys, "db", *words, code=Exit.USAGE)
    finally:
        connection.close()
    assert "4 entries checked" in answer(capsys, "db", "verify")[0]


@pytest.mark.parametrize("words", [("prune",), ("prune", "--all"), ("merge", "x")], ids=lambda words: " ".join(words))
def test_actions_that_write_refuse_a_file_that_cannot_be_written(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """SQLite says so when a statement writes, not when the file is opened. Root may write anything: it is told to."""
    filled()
    path = folder / sqlite_file.FILE_NAME
    if words[0] == "merge":
        filled(other := folder / "other.sqlite3")
        words = ("merge", str(other))
    connected = sqlite_file._connected

    def read_only(path: Path) -> sqlite_file.Connection:
        connection = connected(path)
        connection.execute("PRAGMA query_only = ON")
        return connection

    monkeypatch.setattr(sqlite_file, "_connected", read_only)
    assert "tuning.database.unwritable" in refused(capsys, "db", *words, code=Exit.USAGE)
    monkeypatch.undo()
    with Database(path) as database:
        assert len(database.records()) == 4


def test_prune_mends_a_file_that_cannot_be_written_for_its_damage(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    from test_tuning_files import broken

    broken(folder / sqlite_file.FILE_NAME)
    out, _ = answer(capsys, "db", "verify", code=Exit.CHECK_FAILED)
    assert "fix: graphdnn db prune" in out
    with Database() as database:
        database._connection.execute("UPDATE times SET median = -1 WHERE place = 2")
    assert "1 file set aside before" in answer(capsys, "db", "prune")[0]
    assert "3 entries checked" in answer(capsys, "db", "verify")[0]


def test_prune_by_age_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    filled(measured=int(time.time()) - 10 * 86400)
    assert "removed 0 tunings" in answer(capsys, "db", "prune", "--days", "20")[0]
    assert "removed 0 tunings" in answer(capsys, "db", "prune", "--stale")[0]
    assert "removed 1 tuning," in answer(capsys, "db", "prune", "--days", "5")[0]
    with Database() as database:
        old = record(database, setup=replace(setup_of(device_spec("cpu")), version="0.0.1"))
        database.put([old], [])
    assert answer(capsys, "db", "list")[0].count("stale") == 1
    assert "removed 1 tuning," in answer(capsys, "db", "prune", "--stale")[0]
    assert json.loads(answer(capsys, "db", "prune", "--all", "--json")[0])["removed"] == 1


# Calibration.


def test_calibration_of_known_cases() -> None:
    right = Case(("conv_fprop",), "cpu", (1.0, 2.0, 3.0), (10.0, 20.0, 30.0))
    wrong = Case(("matmul", "conv_fprop"), "cpu", (1.0, 2.0, 3.0, 4.0), (40.0, 30.0, 20.0, 10.0))
    alone = Case(("norm_fwd",), "cpu", (1.0,), (1.0,))
    rows = {row.kind: row for row in calibration([right, wrong, alone])}
    assert set(rows) == {"conv_fprop", "matmul", "all"}
    matmul, conv = rows["matmul"], rows["conv_fprop"]
    assert (matmul.regret, matmul.top1, matmul.top3, matmul.tau, matmul.rho) == (pytest.approx(4.0), 0, 0, -1, -1)
    assert (conv.problems, conv.candidates, conv.worst) == (2, 7, 4.0)
    assert conv.regret == pytest.approx(2.0)
    assert (conv.top1, conv.tau) == (0.5, 0.0)
    assert rows["all"] == replace(conv, kind="all")


def test_calibration_report(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "nothing to compare" in answer(capsys, "db", "calibration")[0]
    filled()
    with Database() as database:
        (case,) = cases_of(database)
    assert case.kinds == ("conv_fprop",)
    out, _ = answer(capsys, "db", "calibration")
    assert "conv_fprop" in out
    assert "regret" in out
    (row, _) = json.loads(answer(capsys, "db", "calibration", "--json")[0])["rows"]
    assert row["candidates"] == 4
    file = tmp_path / "tuned.json"
    trials = [
        {"predicted_us": p, "median_us": m, "choices": [{"operation": "matmul+add"}]}
        for p, m in ((1, 3), (2, 2), (3, None))
    ]
    file.write_text(json.dumps({"format": "graphdnn.tuned", "device": "h200", "trials": trials}), encoding="utf-8")
    assert "1.500" in answer(capsys, "db", "calibration", str(file))[0]
    tried = [{"plan": "a", "us": 3.0}, {"plan": "b", "failed": "x"}, {"plan": "c", "us": 2.0}]
    results = [{"tried": tried, "fused": [["wgrad"]]}]
    file.write_text(json.dumps({"device": "NVIDIA H200", "results": results}), encoding="utf-8")
    assert "wgrad" in answer(capsys, "db", "calibration", str(file))[0]


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", '{"format": "graphdnn.tuned"}', '{"results": [{"tried": [{"us": -1}], "fused": []}]}']
)
def test_calibration_of_other_files(capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(content, encoding="utf-8")
    refused(capsys, "db", "calibration", str(file), code=Exit.USAGE)

"""The tuning database: equal problems share a record, writers do not disturb each other, and no file is ever fatal."""

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
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graphdnn import Filters, Graph, HeurMode, NumericalNote, OperationGraph, build, device_spec, fuse, rank
from graphdnn.composed import identity
from graphdnn.cuda import debug
from graphdnn.errors import BadParam
from graphdnn.fusion import NO_LIMITS, Limits
from graphdnn.heuristics import Ranking
from graphdnn.problem import parse
from graphdnn.tuning import Database, Trial, Tuned, Verdict, storage
from graphdnn.tuning.intervals import Interval
from graphdnn.tuning.problem_key import problem_key
from graphdnn.tuning.record import Record
from graphdnn.tuning.recorded import RecordedRanking
from graphdnn.tuning.setup import Setup, setup_of
from graphdnn.tuning.tuned import Spent

CONV = "conv x=f32[1,4,8,8] w=f32[4,4,3,3] pad=1 + relu"
CPU = device_spec("cpu")


@pytest.fixture(autouse=True)
def _said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debug, "_said", set())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / storage.FILE_NAME


def graph_of(text: str = CONV) -> OperationGraph:
    return parse(text).build_operation_graph()


def tuned(graph: OperationGraph, order: tuple[int, ...] = (3, 0, 1, 2), step: float = 1e-3) -> Tuned:
    """A tuning that was not run: configurations of mode B in this order, ``step`` seconds apart."""
    ranking = Ranking(fuse(graph), CPU, HeurMode.B)
    trials = []
    for place, i in enumerate(order):
        median = step * (1 + place)
        verdict = Verdict.SLOWER if place else Verdict.FASTEST
        interval = Interval(median, 0.9 * median, 1.1 * median)
        trials.append(Trial(ranking[i], i, verdict, samples=[median] * 7, interval=interval, kernels=1))
    return Tuned(tuple(trials), HeurMode.B, Spent(1.0, 0.9, 0.0), "")


def records(count: int = 4, problem: str = "p") -> list[Record]:
    """A tuning as the database has it."""
    with Database(":memory:") as database:
        database.add(tuned(graph_of()))
        found = database.records()
    return [replace(found[0], problem=problem, place=i, choices=(replace(found[0].choices[0], operations=(i,)),))
            for i in range(count)]  # fmt: skip


# Problems.


def drawn(reverse: bool = False, first: int = 0, names: bool = False, channels: int = 4) -> OperationGraph:
    """Two branches that meet; the order in which they are given, uids and names may differ."""
    g = Graph("named" if names else "", io_data_type="float32", intermediate_data_type="float32")
    x = g.tensor([2, channels, 4, 4], uid=first + 7, name="x" if names else "")
    branches: list[Callable[[], Any]] = [lambda: g.relu(x), lambda: g.tanh(x)]
    made = {i: branches[i]() for i in ((1, 0) if reverse else (0, 1))}
    g.add(made[0], made[1]).set_output(True).set_uid(first + 3)
    return g.build_operation_graph()


def key(graph: OperationGraph, limits: Limits = NO_LIMITS) -> str:
    return problem_key(fuse(graph, limits)).text


def test_equal_problems_have_equal_keys() -> None:
    assert key(drawn()) == key(drawn(first=100)) == key(drawn(names=True))
    apart = Limits(bound=1)  # which operations the pass joins may depend on their order, and belongs to the key
    assert key(drawn(), apart) == key(drawn(reverse=True), apart) != key(drawn())
    different = [
        drawn(channels=5).key, *(key(graph_of(text)) for text in (CONV, CONV + " + tanh", CONV.replace("f32", "f16")))
    ]  # fmt: skip
    assert len({key(drawn()), *different}) == 1 + len(different)


def test_a_tensor_that_is_read_twice_is_not_two_equal_ones() -> None:
    def product(same: bool) -> OperationGraph:
        g = Graph(io_data_type="float32")
        a = g.tensor([2, 3])
        g.mul(a, a if same else g.tensor([2, 3])).set_output(True)
        return g.build_operation_graph()

    assert key(product(True)) != key(product(False))


def test_fusion_is_part_of_the_problem() -> None:
    assert key(graph_of()) != key(graph_of(), Limits(bound=1))


def test_setups() -> None:
    host, gpu = setup_of(CPU), setup_of(device_spec("h200"))
    assert host.device_name == "cpu"
    assert gpu.device_name == "h200"
    assert host.texts != gpu.texts
    assert setup_of(CPU) == host


# What was tuned comes first.


def test_a_recorded_winner_comes_first(path: Path) -> None:
    graph = graph_of()
    result = tuned(graph)
    with Database(path) as database:
        database.add(result)
    with Database(path) as database:
        assert not database.damaged
        found = database.find(fuse(graph), CPU)
        assert [r.place for r in found] == [0, 1, 2, 3]
        assert found[0].median == 1e-3
        ranking = rank(graph, "cpu", tuned=database)
        assert isinstance(ranking, RecordedRanking)
        assert identity(ranking[0]) == identity(result.best)
        plain = [identity(c) for c in rank(graph, "cpu")]
        assert [identity(c) for c in ranking][1:] == [i for i in plain if i != identity(result.best)]
        assert "tuned: the first was measured to take 1.000 ms" in str(ranking)
        assert build(graph, "cpu", tuned=database).name == result.best.name
        assert build(graph, "cpu").name == rank(graph, "cpu").best.name
        assert database.graph(problem_key(fuse(graph)).text) is not None


def test_the_builder_uses_it_when_asked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHDNN_CACHE_DIR", str(path.parent))
    result = tuned(graph_of())
    with Database() as database:
        assert database.path == path
        database.add(result)
    assert parse(CONV).build(tuned=True).name == result.best.name
    assert parse(CONV).build(tuned=path).name == result.best.name
    assert parse(CONV).build(tuned=False).name == parse(CONV).build().name != result.best.name


def test_other_setups_are_not_used(path: Path) -> None:
    graph = graph_of()
    with Database(path) as database:
        database.add(tuned(graph))
        stored = database.records()
        for change in ({"driver": "other"}, {"version": "0"}, {"texts": "0"}, {"device": '{"name": "x"}'}):
            other = replace(stored[0].setup, **change)
            assert not database.of(stored[0].problem, other)
        assert not database.find(fuse(graph), replace(CPU, sm_count=999))
        assert not database.find(fuse(graph_of(CONV.replace("8,8", "9,9"))), CPU)


def test_what_this_version_refuses_is_skipped_with_its_reason(path: Path) -> None:
    graph = graph_of()
    with Database(path) as database:
        database.add(tuned(graph))
        found = database.records()
        first = found[0].choices[0]
        changed = [
            replace(found[0], choices=(replace(first, engine="gone"),)),
            replace(found[1], choices=(replace(first, knobs=(("TILE_SIZE", 99),)),)),
            replace(found[2], choices=(replace(first, knobs=(("NO_KNOB", 1),)),)),
            replace(found[3], choices=(replace(first, operations=(0,)),)),
        ]
        database.put(changed, [])
        ranking = rank(graph, "cpu", tuned=database)
        assert identity(ranking.best) == identity(rank(graph, "cpu").best)
        assert isinstance(ranking, RecordedRanking)
        rules = [r.rule for r in ranking.skipped]
        assert rules == ["tuning.record.engine", "knob.value", "tuning.record", "tuning.record.kernels"]
        assert "no recorded configuration can be used" in str(ranking)


def test_filters_hold_for_recorded_winners(path: Path) -> None:
    graph = graph_of()
    with Database(path) as database:
        database.add(tuned(graph))
        filters = Filters(without_numerical_notes=frozenset({NumericalNote.STRICT_NAN_PROP}))
        ranking = rank(graph, "cpu", HeurMode.A, filters, tuned=database)
        assert isinstance(ranking, RecordedRanking)
        assert list(ranking) == []
        assert {r.rule for r in ranking.skipped} == {"filter.numerical_note"}


def test_a_winner_with_larger_errors_is_not_taken(path: Path) -> None:
    """Tuned in any class, and asked for in that of the ranking's best."""
    graph, device = graph_of("conv x=f32[1,8,8,8] w=f32[8,8,3,3] pad=1"), device_spec("a100")
    configs = {c.name: c for c in rank(graph, device)}
    with Database(path) as database:
        for name in ("cuda_explicit_gemm", "cuda_winograd_4x4"):
            interval = Interval(1e-3, 9e-4, 2e-3)
            trial = Trial(configs[name], 0, Verdict.FASTEST, samples=[1e-3] * 7, interval=interval, kernels=1)
            database.add(Tuned((trial,), HeurMode.B, Spent(1.0, 0.9, 0.0), ""))
            ranking = rank(graph, device, tuned=database)
            assert isinstance(ranking, RecordedRanking)
            if name == "cuda_explicit_gemm":
                assert ranking.best.name == name
                assert not ranking.skipped
        assert ranking.best.name == "cuda_explicit_gemm"  # which the second tuning did not remove
        assert [r.rule for r in ranking.skipped] == ["tuning.record.class"]


def test_the_better_time_of_each_configuration_stays(path: Path) -> None:
    graph = graph_of()
    names = [c.name for c in Ranking(fuse(graph), CPU, HeurMode.B)]

    def known() -> list[tuple[str, float]]:
        assert [r.place for r in database.records()] == list(range(len(database.records())))
        return [(r.name, round(r.median, 9)) for r in database.records()]

    with Database(path) as database:
        assert database.add(tuned(graph, (3, 0, 1, 2))) is None  # 1, 2, 3 and 4 ms
        first = known()
        ahead = database.add(tuned(graph, (0, 3), 1.5e-3))  # 1.5 and 3 ms
        assert ahead is not None
        assert ahead.name == names[3]
        assert known() == [first[0], (names[0], 1.5e-3), *first[2:]]
        assert rank(graph, "cpu", tuned=database).best.name == names[3]
        assert database.add(tuned(graph, (1, 2), 0.5e-3)) is None
        assert [name for name, _ in known()] == [names[i] for i in (1, 2, 3, 0)]
        assert database.add(tuned(graph, (0, 3), 7e-3), replace_earlier=True) is None
        assert known() == [(names[0], 7e-3), (names[3], 14e-3)]


def test_what_turned_out_to_be_wrong_goes(path: Path) -> None:
    graph = graph_of()
    with Database(path) as database:
        database.add(tuned(graph, (3, 0)))
        again = tuned(graph, (0, 3), 9e-3)
        again.trials[1].verdict = Verdict.WRONG
        assert database.add(again) is not None  # of the other one, which was faster then
        assert [r.name for r in database.records()] == [Ranking(fuse(graph), CPU, HeurMode.B)[0].name]


# Files.


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
    assert [p.name for p in storage.damaged_files(path)] == [f"{path.name}.damaged-1"]
    with Database(path) as database:
        assert len(database.records()) == 4
        assert database.integrity() == []
    spoilt(path, how)
    Database(path).close()
    assert len(storage.damaged_files(path)) == 2


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
    script = Path(__file__).parent / "tuning_mutations.py"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
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
    monkeypatch.setattr("graphdnn.tuning.database.cache_directory", lambda: None)
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

    monkeypatch.setattr(storage, "_connected", refused)
    before = path.read_bytes()
    with Database(path) as database:
        assert database.path is None
        assert len(database.records()) == 4
        database.put(records(1, "new"), [])
        assert len(database.records()) == 5
    assert path.read_bytes() == before
    assert "cannot be written" in capsys.readouterr().err


# Many writers. Children are forked: they share nothing but the file.


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
    assert not storage.damaged_files(path)


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
    assert len(storage.damaged_files(path)) == 1
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
    assert not storage.damaged_files(path)


def test_records_are_json_that_people_can_read(path: Path) -> None:
    with Database(path) as database:
        database.add(tuned(graph_of()))
        (row,) = database._connection.execute("SELECT choices, device FROM times WHERE place = 0").fetchall()
    ((operations, engine, knobs),) = json.loads(row[0])
    assert (operations, engine, list(knobs)) == ([0, 1], "numpy_blocked", ["TILE_SIZE"])
    assert json.loads(row[1])["name"] == "cpu"


def test_a_tie_stays_as_the_tuning_decided_it(path: Path) -> None:
    """The simpler of two that tie wins, also where its median is a little longer; a faster one of before goes ahead."""
    of_all = records(3)
    simple, quick, other = (
        replace(r, place=place, median=median, low=0.99 * median, high=1.03 * median)
        for r, place, median in zip(of_all, (0, 1, 0), (1.01e-3, 1.00e-3, 0.5e-3), strict=True)
    )
    with Database(path) as database:
        database.combine([simple, quick], [])
        assert [r.choices for r in database.records()] == [simple.choices, quick.choices]
        database.combine([other], [])
        database.combine([simple, quick], [])
        assert database.records()[0].choices == other.choices

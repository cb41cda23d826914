"""The tuning database: equal problems share a record, and what was tuned comes first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tuning_records import CONV, CPU, graph_of, records, tuned

from graphdnn import Filters, Graph, HeurMode, NumericalNote, OperationGraph, build, debug_log, device_spec, fuse, rank
from graphdnn.analysis.median_statistics import Interval
from graphdnn.fusion import NO_LIMITS, FusionLimits
from graphdnn.heuristics import Ranking
from graphdnn.heuristics.composed import identity
from graphdnn.problem import parse
from graphdnn.tuning import Database, Trial, Tuned, Verdict
from graphdnn.tuning.database import sqlite_file
from graphdnn.tuning.database.environment import setup_of
from graphdnn.tuning.database.problem_key import problem_key
from graphdnn.tuning.database.recorded_ranking import RecordedRanking
from graphdnn.tuning.result import Spent


@pytest.fixture(autouse=True)
def _said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debug_log, "_said", set())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / sqlite_file.FILE_NAME


def drawn(reverse: bool = False, first: int = 0, names: bool = False, channels: int = 4) -> OperationGraph:
    """Two branches that meet; the order in which they are given, uids and names may differ."""
    g = Graph("named" if names else "", io_data_type="float32", intermediate_data_type="float32")
    x = g.tensor([2, channels, 4, 4], uid=first + 7, name="x" if names else "")
    branches: list[Callable[[], Any]] = [lambda: g.relu(x), lambda: g.tanh(x)]
    made = {i: branches[i]() for i in ((1, 0) if reverse else (0, 1))}
    g.add(made[0], made[1]).set_output(True).set_uid(first + 3)
    return g.build_operation_graph()


def key(graph: OperationGraph, limits: FusionLimits = NO_LIMITS) -> str:
    return problem_key(fuse(graph, limits)).text


def test_equal_problems_have_equal_keys() -> None:
    assert key(drawn()) == key(drawn(first=100)) == key(drawn(names=True))
    apart = FusionLimits(bound=1)  # which operations the pass joins may depend on their order, and belongs to the key
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
    assert key(graph_of()) != key(graph_of(), FusionLimits(bound=1))


def test_setups() -> None:
    host, gpu = setup_of(CPU), setup_of(device_spec("h200"))
    assert host.device_name == "cpu"
    assert gpu.device_name == "h200"
    assert host.texts != gpu.texts
    assert setup_of(CPU) == host


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

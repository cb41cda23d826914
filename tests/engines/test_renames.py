"""Files and arguments with earlier names of engines are read as the current names, and only current names are listed."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from command_line import refused, told
from gpu import goals, measured

from graphdnn import ExecutionPlan, Graph, Ranking, device_spec, fuse
from graphdnn.analysis.diagnostics import of_ranking
from graphdnn.bundles import bundle_from_json
from graphdnn.bundles.bundle import ERROR, RunOutcome
from graphdnn.bundles.verified_run import plan_bundle
from graphdnn.cli.exit_codes import Exit
from graphdnn.engines import ENGINE_BY_NAME, Task
from graphdnn.engines.renames import ENGINE_RENAMES, current_name, current_names, matches_name
from graphdnn.errors import BadParam, MalformedFile
from graphdnn.files import digest_of, plan_to_json
from graphdnn.files.plan_files import config_from_json
from graphdnn.heuristics import Choice, EngineConfig
from graphdnn.locks import Lock, check, compare_locks, lock_from_json
from graphdnn.locks.lock_entries import entry_of
from graphdnn.problem import parse
from graphdnn.reducer import by_rule
from graphdnn.rules import RULES
from graphdnn.tuning import Database
from graphdnn.tuning.candidates import Candidates
from graphdnn.tuning.database.environment import setup_of
from graphdnn.tuning.database.problem_key import problem_key
from graphdnn.tuning.database.record import COLUMNS, ChoiceEntry, Record, to_row
from graphdnn.v6.algorithm_table import DEVICE_ENGINES

H200 = device_spec("h200")
CONV = "conv x=f16[8,64,56,56]nhwc w=f16[64,64,3,3]nhwc pad=1"
GONE = "cuda_no_such_engine"
each_rename = pytest.mark.parametrize(("old", "new"), ENGINE_RENAMES.items())
FUSED = fuse(parse(CONV).build_operation_graph())
RANKING = Ranking(FUSED, H200)


def config_with(name: str) -> EngineConfig:
    """The graph by one engine, whether or not the engine supports the graph: readers of files do not ask."""
    engine = ENGINE_BY_NAME[name]
    return EngineConfig(FUSED, H200, tuple(Choice(Task(op, H200), engine, engine.defaults()) for op in FUSED))


def renamed(text: str, new: str, old: str) -> str:
    """The file with the other name in it, and with the hash of its content where it has one."""
    assert new in text
    data = json.loads(text.replace(f'"{new}', f'"{old}'))
    if data.pop("sha256", None):
        data["sha256"] = digest_of(data)
    assert f'"{old}' in json.dumps(data)
    return json.dumps(data)


def plan_text(name: str) -> str:
    return plan_to_json(cast(ExecutionPlan, SimpleNamespace(config=config_with(name))))


def lock_text(name: str) -> str:
    """A lock with the engine's name as the engine of a kernel, in its ranking and in the rule of an unfused edge."""
    best = RANKING.best
    data = json.loads(Lock("0.1.0", {}, ()).with_graphs([entry_of(best, "one")], {"h200": H200}, "0.1.0").to_json())
    (graph,) = data["graphs"]
    graph["kernels"][0]["engine"] = name
    graph["kernels"][0]["ranking"] = {name: 12.5}
    graph["stops"] = [["edge a -> b", f"{name}.operation"]]
    return json.dumps(data)


def bundle_text(name: str) -> str:
    data = json.loads(plan_bundle(config_with(name), "0.1.0").to_json())
    data["ending"] = RunOutcome(ERROR, (f"{name}.operation",), (), f"{name} declined").to_json()
    del data["sha256"]
    return json.dumps({**data, "sha256": digest_of(data)})


def record(name: str, place: int = 0, median: float = 2e-3, problem: str = "p") -> Record:
    choice = ChoiceEntry((0,), name, (("TILE_SIZE", 2),))
    return Record(
        problem, setup_of(H200), (choice,), f"{name}_k40=2", place, 1e-3, median, 0.9 * median, 1.1 * median,
        7, 0, 1_700_000_000,
    )  # fmt: skip


def stored_database(records: list[Record]) -> Database:
    """A database whose rows were written as they are: by an earlier version, which knew the earlier names."""
    database = Database(":memory:")
    marks = ", ".join("?" * len(to_row(records[0])))
    rows = map(to_row, records)
    database._connection.executemany(f"INSERT INTO times ({', '.join(COLUMNS)}) VALUES ({marks})", rows)
    return database


@each_rename
def test_the_table(old: str, new: str) -> None:
    assert current_name(old) == new
    assert current_name(new) == new
    assert old not in list(ENGINE_BY_NAME)
    assert new in list(ENGINE_BY_NAME)
    assert ENGINE_BY_NAME[old] is ENGINE_BY_NAME[new]
    assert current_names(f"{old}.operation") == f"{new}.operation"
    assert current_names(f"{old}_k40=128_k41=64; numpy") == f"{new}_k40=128_k41=64; numpy"
    assert current_names(new) == new
    assert current_names(f"{old}er x{old}") == f"{old}er x{old}"


@each_rename
def test_plans(old: str, new: str) -> None:
    config = config_from_json(renamed(plan_text(new), new, old))
    assert [choice.engine.name for choice in config.choices] == [new] * len(FUSED)
    assert plan_to_json(cast(ExecutionPlan, SimpleNamespace(config=config))) == plan_text(new)


def test_a_plan_keeps_its_seal() -> None:
    """The hash is of the file as it was written: a name that was exchanged afterwards is an altered file."""
    text = plan_text("cuda_hopper_weight_stationary")
    with pytest.raises(MalformedFile, match=r"file\.hash"):
        config_from_json(text.replace('"cuda_hopper_weight_stationary"', '"cuda_hopper_held"'))
    with pytest.raises(MalformedFile, match="unknown engine"):
        config_from_json(renamed(text, "cuda_hopper_weight_stationary", GONE))


@each_rename
def test_locks(old: str, new: str) -> None:
    before, after = lock_from_json(renamed(lock_text(new), new, old)), lock_from_json(lock_text(new))
    assert before == after
    assert before.to_json() == after.to_json()
    assert old not in before.to_json().replace(new, "")
    assert compare_locks(before, after) == []
    (kernel,) = before.graphs[0].kernels
    assert (kernel.engine, dict(kernel.ranking)) == (new, {new: 12.5})
    assert before.graphs[0].stops == (("edge a -> b", f"{new}.operation"),)


def test_a_lock_with_both_names_keeps_the_current_prediction() -> None:
    data = json.loads(lock_text("cuda_im2col"))
    for ranking in ({"cuda_patches": 1.0, "cuda_im2col": 2.0}, {"cuda_im2col": 2.0, "cuda_patches": 1.0}):
        data["graphs"][0]["kernels"][0]["ranking"] = ranking
        assert lock_from_json(json.dumps(data)).graphs[0].kernels[0].ranking == {"cuda_im2col": 2.0}


def test_a_lock_with_an_unknown_engine_says_so() -> None:
    lock = lock_from_json(renamed(lock_text("cuda_im2col"), "cuda_im2col", GONE))
    reasons = [why for movement in check(lock, "0.1.0").movements for why in movement.why]
    assert any("no engine has this name any more" in why for why in reasons)


@each_rename
def test_bundles(old: str, new: str) -> None:
    bundle = bundle_from_json(renamed(bundle_text(new), new, old))
    assert [choice.engine.name for choice in bundle.config().choices] == [new] * len(FUSED)
    assert bundle.ending == RunOutcome(ERROR, (f"{new}.operation",), (), f"{new} declined")
    assert bundle.ending.is_like(bundle_from_json(bundle_text(new)).ending)


def test_a_bundle_of_an_unknown_engine_is_refused() -> None:
    bundle = bundle_from_json(renamed(bundle_text("cuda_im2col"), "cuda_im2col", GONE))
    with pytest.raises(MalformedFile, match="unknown engine"):
        bundle.config()


@each_rename
def test_tuning_databases(old: str, new: str) -> None:
    with stored_database([record(old)]) as database:
        assert database.records() == [record(new)]
        assert database.damaged == []
        database.combine(database.records(), [])
        (row,) = database._select("SELECT choices, name FROM times")
        assert old not in str(row).replace(new, "")


def test_two_rows_of_one_configuration_are_one_record() -> None:
    """The better time stays, whichever name it was recorded by, and the places follow the times."""
    old, new = "cuda_hopper_held", "cuda_hopper_weight_stationary"
    other = record("cuda_hopper_gemm", 1, 1.5e-3)
    for slow, fast in ((old, new), (new, old)):
        with stored_database([record(slow, 0, 2e-3), other, record(fast, 2, 1e-3)]) as database:
            expected = [record(new, 0, 1e-3), other]
            assert database.records() == expected
            assert database.of("p", setup_of(H200)) == expected
            database.combine([record(new, 0, 0.5e-3)], [])
            assert [(r.choices, r.median) for r in database.records()] == [
                (record(new).choices, 0.5e-3), (other.choices, 1.5e-3),
            ]  # fmt: skip
            assert len(list(database._select("SELECT rowid FROM times"))) == 2


def test_records_of_other_tunings_do_not_clash() -> None:
    old, new = "cuda_patches", "cuda_im2col"
    with stored_database([record(old, 0, 2e-3, "p"), record(new, 0, 1e-3, "q")]) as database:
        assert database.records() == [record(new, 0, 2e-3, "p"), record(new, 0, 1e-3, "q")]


def test_a_record_of_an_unknown_engine_is_not_used() -> None:
    with stored_database([record(GONE)]) as database:
        (found,) = database.records()
        key = problem_key(FUSED)
        entry = ChoiceEntry(key.kernels[0], GONE, ())
        with pytest.raises(BadParam, match="the recorded engine is gone"):
            Record(key.text, found.setup, (entry,), "", 0, 1.0, 1.0, 1.0, 1.0, 1, 0, 1).config(FUSED, key, H200)


@each_rename
def test_queries_of_diagnostics(old: str, new: str) -> None:
    diagnostics = of_ranking(RANKING)
    assert diagnostics.only(engine=old) == diagnostics.only(engine=new)
    assert diagnostics.only(rule=old).entries == diagnostics.only(rule=new).entries
    declines = any(declined.engine.name == new for declined in RANKING.declined)
    assert bool(diagnostics.only(engine=old).entries) is declines
    assert {entry.subject.engine for entry in diagnostics.only(engine=old)} <= {new}
    assert {rule.split(".")[0] for rule in diagnostics.rules}.isdisjoint(ENGINE_RENAMES)


def test_unknown_names_in_queries_are_refused() -> None:
    diagnostics = of_ranking(RANKING)
    for query in ({"engine": GONE}, {"rule": f"{GONE}.operation"}, {"rule": "cuda_patches.no_such_rule"}):
        with pytest.raises(BadParam, match=r"ledger\.unknown"):
            diagnostics.only(**cast(Any, query))


def convolution() -> Graph:
    graph = Graph(io_data_type="float16", device="h200")
    x, w = graph.tensor([8, 64, 56, 56]), graph.tensor([64, 64, 3, 3])
    graph.conv_fprop(x, w, padding=[1, 1]).set_output(True)
    return graph


@each_rename
def test_queries_of_graphs(old: str, new: str) -> None:
    graph = convolution()
    assert graph.refusals(engine=old).entries == graph.refusals(engine=new).entries
    graph.deselect_engines(old)
    assert graph._selection.is_deselected(config_with(new))


def test_parts_of_earlier_names_deselect() -> None:
    assert matches_name("held", "cuda_hopper_weight_stationary_k40=3")
    assert matches_name("cuda_hopper_held_k40=3", "cuda_hopper_weight_stationary_k40=3")
    assert matches_name("stationary", "cuda_hopper_weight_stationary_k40=3")
    assert not matches_name("held", "cuda_hopper_gemm")
    graph = convolution()
    graph.deselect_engines("hopper_held")
    assert graph._selection.is_deselected(config_with("cuda_hopper_weight_stationary"))
    assert not graph._selection.is_deselected(config_with("cuda_hopper_gemm"))
    with pytest.raises(BadParam, match=r"builder\.deselect"):
        graph.deselect_engines(GONE)


def test_tuners_and_cuts_deselect_by_earlier_names() -> None:
    candidates = Candidates.__new__(Candidates)
    candidates.without = ("cuda_paired",)
    assert candidates._is_barred(config_with("cuda_stride_fold"))
    assert not candidates._is_barred(config_with("cuda_hopper_gemm"))


@each_rename
def test_predicates_of_the_reducer(old: str, new: str) -> None:
    graph = FUSED.graph
    rules = {r.rule for declined in RANKING.declined for r in declined.rejections if r.rule.startswith(f"{new}.")}
    for rule in sorted(rules)[:1]:
        assert by_rule(rule.replace(new, old, 1), H200)(graph)
    assert not by_rule(f"{old}.no_such_rule", H200)(graph)


def test_reduce_takes_an_earlier_rule(capsys: pytest.CaptureFixture[str]) -> None:
    rule = next(r.rule for d in RANKING.declined for r in d.rejections if r.rule.startswith("cuda_im2col."))
    old = rule.replace("cuda_im2col", "cuda_patches")
    text = told(capsys, "reduce", CONV, "--rule", old, "--device", "h200", "--seconds", "1")
    assert f"rule {rule}" in text
    assert old not in text
    assert "cli.reduce.rule" in refused(
        capsys, "reduce", CONV, "--rule", f"{GONE}.operation", "--device", "h200", code=Exit.USAGE
    )


def test_the_command_line_takes_an_earlier_engine(capsys: pytest.CaptureFixture[str]) -> None:
    texts = [told(capsys, "kernel", CONV, "--device", "h200", "--engine", name) for name in served_renamed()]
    assert len(set(texts)) == 1
    assert "cli.engine" in refused(capsys, "kernel", CONV, "--device", "h200", "--engine", GONE, code=Exit.USAGE)


def served_renamed() -> tuple[str, str]:
    """Earlier and current name of a renamed engine that supports the graph."""
    task = Task(FUSED.operations[0], H200)
    return next((old, new) for old, new in ENGINE_RENAMES.items() if not ENGINE_BY_NAME[new].why_not(task))


def test_the_legacy_table_has_current_names() -> None:
    names = {name for alternatives in DEVICE_ENGINES.values() for names in alternatives for name in names}
    assert names <= set(ENGINE_BY_NAME)


def test_measured_candidates() -> None:
    for old, new in ENGINE_RENAMES.items():
        assert measured._candidate(f"{old} 12.5") == measured._candidate(f"{new} 12.5") is not None
    with pytest.raises(KeyError):
        measured._candidate(f"{GONE} 12.5")


def test_results_of_benchmarks(tmp_path: Path) -> None:
    rows = [{"case": old, "plan": f"{old}_k40=2; numpy"} for old in ENGINE_RENAMES]
    (tmp_path / "gpu_dense.json").write_text(json.dumps({"group": "dense", "results": rows}), encoding="utf-8")
    groups = goals.read(tmp_path)
    assert [row["plan"] for row in groups["dense"].values()] == [
        f"{new}_k40=2; numpy" for new in ENGINE_RENAMES.values()
    ]


def test_listings_have_current_names() -> None:
    assert len(list(ENGINE_BY_NAME)) == len(ENGINE_BY_NAME)
    assert set(ENGINE_BY_NAME).isdisjoint(ENGINE_RENAMES)
    of_ranking(RANKING)
    assert {rule.split(".")[0] for rule in RULES}.isdisjoint(ENGINE_RENAMES)

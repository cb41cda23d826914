"""Locks: what is pinned, what moved since, in which class, and why."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Any

import pytest
from command_line import told
from file_mutations import assert_checked, damaged

from graphdnn import Ranking, __version__, device_spec, fuse, graph_to_json
from graphdnn.cli.exit_codes import Exit
from graphdnn.engines import ENGINES
from graphdnn.errors import MalformedFile
from graphdnn.locks import Lock, check, compare_locks, lock_from_json, lock_of
from graphdnn.problem import parse

CONV = "conv x=f16[8,64,56,56]nhwc w=f16[64,64,3,3]nhwc pad=1 + bias + relu"
CUT = "norm layer x=f32[32,256]"
STOPPED = "pool max x=f32[2,4,8,8] window=2 + relu -> reduce add [1,4,1,1]"


@pytest.fixture(scope="module")
def lock() -> Lock:
    graphs = {text: parse(text).build_operation_graph() for text in (CONV, CUT, STOPPED)}
    return lock_of(graphs, device_spec("h200"), {text: text for text in graphs}, __version__)


def edited(lock: Lock, name: str, **changes: Any) -> Lock:
    """The lock with entries of one graph, or of its first kernel, changed in the file."""
    data = json.loads(lock.to_json())
    entry = next(graph for graph in data["graphs"] if graph["name"] == name)
    for key, value in changes.items():
        (entry["kernels"][0] if key in entry["kernels"][0] else entry)[key] = value
    return lock_from_json(json.dumps(data))


def only(lock: Lock) -> Any:
    """The one movement, with its reasons as one text."""
    (movement,) = check(lock, __version__).movements
    return movement


def test_a_lock_holds_and_is_the_same_every_time(lock: Lock) -> None:
    assert check(lock, __version__).movements == ()
    again = lock_of(
        {g.name: g.operation_graph() for g in lock.graphs},
        device_spec("h200"),
        {g.name: g.problem for g in lock.graphs},
        __version__,
    )
    assert again.to_json() == lock.to_json() == lock_from_json(lock.to_json()).to_json()
    assert json.loads(lock.to_json())["graphs"][0]["kernels"][0]["operations"] == ["conv_fprop", "add", "relu_fwd"]


def test_a_changed_prediction_is_two_lines_of_a_diff(lock: Lock) -> None:
    entry = lock.find(CONV)
    assert entry is not None
    engine = entry.kernels[0].engine
    other = edited(lock, CONV, predicted_us=1.5, ranking={**entry.kernels[0].ranking, engine: 1.5})
    lines = difflib.ndiff(lock.to_json().splitlines(), other.to_json().splitlines())
    assert sum(line[0] in "+-" for line in lines) == 4


def test_an_engine_that_declines_names_its_rule(lock: Lock) -> None:
    movement = only(edited(lock, CONV, engine="cuda_direct"))
    assert movement.kind == "speed"
    assert "engine cuda_direct, then cuda_hopper" in movement.what
    assert any("cuda_direct declines now: " in why and why.endswith("]") for why in movement.why)


def test_an_engine_that_is_gone(lock: Lock) -> None:
    assert "no engine has this name any more" in only(edited(lock, CONV, engine="cuda_gone")).why[0]


def test_a_ranking_that_turned_around(lock: Lock) -> None:
    entry = lock.find(CONV)
    assert entry is not None
    first, second, *_ = entry.kernels[0].ranking
    turned = edited(lock, CONV, engine=second, ranking={second: 7.0, first: 9.5}, predicted_us=7.0)
    movement = only(turned)
    assert movement.kind == "speed"
    assert f"the ranking's order changed: {second} 7 us, {first} 9.5 us; now " in movement.why[0]
    (alone,) = compare_locks(turned, lock)
    assert alone.what == movement.what
    new = edited(lock, CONV, engine=second, ranking={second: 7.0})
    assert f"{first} did not serve it then" in only(new).why


def test_knobs_times_and_texts(lock: Lock) -> None:
    entry = lock.find(CONV)
    assert entry is not None
    (name, value), *_ = entry.kernels[0].knobs.items()
    movement = only(edited(lock, CONV, knobs={**entry.kernels[0].knobs, name: value + 1}))
    assert (movement.kind, movement.why) == ("speed", (f"{name} {value + 1}, then {value}: another default",))
    assert only(edited(lock, CONV, predicted_us=99.0)).what.startswith("predicted 99 us, then ")
    movement = only(edited(lock, CONV, texts={"conv": "0123456789abcdef"}))
    assert movement.kind == "text"
    assert any(why.startswith("conv: 0123456789abcdef, then absent") for why in movement.why)


def test_numbers_that_other_roundings_change(lock: Lock) -> None:
    entry = lock.find(CONV)
    assert entry is not None
    movement = only(edited(lock, CONV, numbers=[entry.numbers[0] + ", operands cut to TF32", *entry.numbers[1:]]))
    assert movement.kind == "numbers"
    assert "operands cut to TF32, then conv_fprop" in movement.why[0]


def test_fusion_that_changed_names_the_stops(lock: Lock) -> None:
    name = "pool max x=f32[2,4,8,8] window=2 + relu"
    apart = "matmul a=f32[4,8] b=f32[8,8] -> reduce add [1,1]"
    graph = parse(apart).build_operation_graph()
    two = lock_of({name: graph}, device_spec("h200"), {name: apart}, __version__)
    data = json.loads(two.to_json())
    kernel = data["graphs"][0]["kernels"][0]
    data["graphs"][0]["kernels"] = [{**kernel, "operations": [op]} for op in kernel["operations"]]
    data["graphs"][0]["stops"] = [["matmul -> reduction through uid 3", "fuse.some.rule"]]
    movement = check(lock_from_json(json.dumps(data)), __version__).movements[0]
    assert movement.kind == "fusion"
    assert movement.what == "matmul ; reduction, then matmul+reduction"
    assert any("[fuse.some.rule]" in why for why in movement.why)


def test_a_graph_that_is_another_or_unreadable(lock: Lock) -> None:
    assert only(edited(lock, CUT, key="0" * 64)).kind == "graph"
    movement = only(edited(lock, CUT, problem="norm strange x=f32[2,3]"))
    assert (movement.kind, movement.what) == ("graph", "this version does not read it")
    assert "[problem.word]" in movement.why[0]


def test_a_graph_that_nothing_serves_any_more(lock: Lock, monkeypatch: pytest.MonkeyPatch) -> None:
    host_only = next(e for e in ENGINES if e.name == "numpy")

    def refusing(graph: Any, device: Any, **_: Any) -> Ranking:
        return Ranking(fuse(graph), device, engines=(host_only,))

    monkeypatch.setattr("graphdnn.locks.lock_check.rank", refusing)
    movement = check(lock, __version__).movements[0]
    assert (movement.kind, movement.what) == ("graph", "no engine serves it")
    assert "[engine.place]" in movement.why[0]


def test_the_version_and_the_profile_are_notes(lock: Lock) -> None:
    data = json.loads(lock.to_json())
    data["library"], data["devices"]["h200"]["bandwidth"] = "0.0.1", 1e12
    checked = check(lock_from_json(json.dumps(data)), __version__)
    assert checked.movements == ()
    assert checked.notes[0] == f"locked by version 0.0.1, this is {__version__}"
    assert "the profile h200 changed: bandwidth 1000000000000.0, then " in checked.notes[1]


def test_commands(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file, other, listed, graph = (str(tmp_path / name) for name in ("a.lock", "b.lock", "layers.txt", "g.json"))
    Path(listed).write_text(f"# layers\n{CUT}\n\n{STOPPED}  # pooling\n", encoding="utf-8")
    Path(graph).write_text(graph_to_json(parse(CONV).build_operation_graph()), encoding="utf-8")
    out = told(capsys, "lock", graph, "--from", listed, "--device", "h200", "-o", file)
    assert "3 graphs on h200" in out
    assert f"graphdnn check {file}" in out
    assert told(capsys, "check", file) == "nothing moved in 3 graphs\n"
    assert told(capsys, "check", file, CUT, graph) == "nothing moved in 2 graphs\n"
    assert "cli.check.absent" in told(capsys, "check", file, "norm rms x=f32[4,4]", code=Exit.USAGE)
    Path(other).write_text(
        Path(file).read_text("utf-8").replace('"predicted_us": ', '"predicted_us": 9'), encoding="utf-8"
    )
    assert "moved: 3 speed" in told(capsys, "check", other, code=Exit.CHECK_FAILED)
    assert "moved: nothing but what is allowed" in told(capsys, "check", other, "--allow", "speed")
    found = json.loads(told(capsys, "diff", file, other, "--json", code=Exit.CHECK_FAILED))
    assert (found["format"], found["verdict"], found["movements"][0]["class"]) == ("graphdnn.check", "moved", "speed")
    assert "written anew" in told(capsys, "check", other, "--update")
    assert Path(other).read_bytes() == Path(file).read_bytes()
    assert told(capsys, "diff", file, other) == "nothing moved\n"


def test_limits_of_the_fusion_are_locked_with_the_plan(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plan, file = str(tmp_path / "plan.json"), str(tmp_path / "a.lock")
    told(capsys, "run", "conv x=f32[1,4,6,6] w=f32[4,4,1,1] + bias + relu", "--bound", "2", "--save-plan", plan)
    told(capsys, "lock", plan, "--device", "h200", "-o", file)
    (entry,) = lock_from_json(Path(file).read_bytes()).graphs
    assert entry.limits["bound"] == 2
    assert [kernel.name for kernel in entry.kernels] == ["conv_fprop+add", "relu_fwd"]
    assert told(capsys, "check", file) == "nothing moved in 1 graph\n"
    Path(file).write_text(Path(file).read_text("utf-8").replace('"bound": 2', '"bound": 1'), encoding="utf-8")
    assert "fusion: kernels: conv_fprop+add ; relu_fwd, then conv_fprop ; add ; relu_fwd" in told(
        capsys, "check", file, code=Exit.CHECK_FAILED
    )


def test_wrong_use(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "cli.lock.empty" in told(capsys, "lock", "-o", str(tmp_path / "x"), code=Exit.USAGE)
    assert "cli.output" in told(capsys, "lock", CUT, "-o", str(tmp_path), code=Exit.USAGE)
    assert "cli.file" in told(capsys, "lock", "--from", str(tmp_path / "none"), code=Exit.USAGE)
    assert "cli.file" in told(capsys, "check", str(tmp_path / "none.lock"), code=Exit.USAGE)
    assert "file.format" in told(
        capsys, "diff", *[_written(tmp_path, '{"format": "graphdnn.graph"}')] * 2, code=Exit.USAGE
    )


def _written(folder: Path, text: str) -> str:
    path = folder / "file.json"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_locks_from_strangers(lock: Lock) -> None:
    values, refused = assert_checked(lock_from_json, damaged(lock.to_json(), 400))
    print(f"{values} files were values, {refused} refused")
    assert refused > 150


def test_an_entry_twice(lock: Lock) -> None:
    data = json.loads(lock.to_json())
    data["graphs"] *= 2
    with pytest.raises(MalformedFile, match="each name once"):
        lock_from_json(json.dumps(data))

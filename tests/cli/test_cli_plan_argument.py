"""What commands work with: a plan file's own engines, knobs and device; codes where a device is not here; files by name."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from command_line import answer, refused
from repository import ROOT

from graphdnn import ExecutionPlan, graph_to_json, plan_to_json, rank
from graphdnn.cli.exit_codes import MEANINGS, Exit
from graphdnn.enums import HeurMode
from graphdnn.problem import parse

LAYER = "conv x=f32[2,8,9,9] w=f32[8,8,3,3] pad=1 + relu"
WITH_A_DEVICE = (
    "run",
    "trace",
    "tune --no-db",
    "kernel --replace {text}",
    "cuts --measure",
    "report --repeat 1 -o {out}",
    "reduce",
)
WITHOUT_ONE = ("explain", "compile", "kernel", "certify", "cuts", "report -o {out}", "lock -o {out}", "repair")


def not_the_best(device: str) -> ExecutionPlan:
    """With an engine that comes later in the ranking, and with knobs of its own."""
    ranking = rank(parse(LAYER).build_operation_graph(), device, HeurMode.B)
    best = ranking.best
    return ExecutionPlan(next(c for c in ranking if c.name != best.name and "=" in c.name))


@pytest.fixture
def plan_file(tmp_path: Path) -> tuple[str, ExecutionPlan]:
    plan = not_the_best("h200")
    path = tmp_path / "plan.json"
    path.write_text(plan_to_json(plan), encoding="utf-8")
    return str(path), plan


def test_a_plan_file_brings_its_engines(
    capsys: pytest.CaptureFixture[str], plan_file: tuple[str, ExecutionPlan]
) -> None:
    file, plan = plan_file
    out, err = answer(capsys, "explain", file)
    assert f"plan file: {plan.name}" in out
    assert f"kernels of {plan.name}" in out
    assert "on h200" in out
    assert err == ""
    assert json.loads(answer(capsys, "explain", file, "--json")[0])["planned"] == plan.name
    assert f"{plan.name} on h200" in answer(capsys, "compile", file)[0]
    assert plan.name in answer(capsys, "certify", file, "--types")[0]
    assert plan.config.choices[0].name in answer(capsys, "kernel", file)[0]
    assert "execute.device_absent" in refused(capsys, "run", file, code=Exit.NOT_EXECUTED)


def test_a_host_plan_file_runs_as_it_was_planned(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    answer(capsys, "run", LAYER, "--engine", "numpy_blocked", "--device", "cpu", "--save-plan", str(file))
    found = json.loads(answer(capsys, "run", str(file), "--json")[0])
    assert found["engines"] == ["numpy_blocked"]
    assert found["verdict"] == "ok"
    assert rank(parse(LAYER).build_operation_graph(), "cpu").best.name != "numpy_blocked"


def test_the_variable_does_not_move_a_plan_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, plan_file: tuple[str, ExecutionPlan]
) -> None:
    monkeypatch.setenv("GRAPHDNN_DEVICE", "cpu")
    _, err = answer(capsys, "run", plan_file[0], code=Exit.NOT_EXECUTED)
    assert err.splitlines()[-1] == f"repeat: graphdnn run {plan_file[0]}"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--device", "h100"), "its engines and knobs are taken to h100"),
        (("--device", "cpu"), "declines [engine.place], so engines are ranked anew"),
        (("--mode", "A"), "give way to --mode: engines are ranked anew"),
        (("--forbid", "4"), "give way to --forbid: engines are ranked anew"),
    ],
)
def test_what_overrides_a_plan_file_is_said(
    capsys: pytest.CaptureFixture[str], plan_file: tuple[str, ExecutionPlan], options: tuple[str, ...], said: str
) -> None:
    _, err = answer(capsys, "explain", plan_file[0], *options)
    assert err.startswith("note: the plan file")
    assert said in err


def test_a_lock_pins_the_engines_of_a_plan_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, plan_file: tuple[str, ExecutionPlan]
) -> None:
    file, plan = plan_file
    lock = tmp_path / "a.lock"
    out, _ = answer(capsys, "lock", file, "-o", str(lock))
    assert plan.config.choices[0].engine.name in out
    assert "on h200" in out
    assert "nothing moved" in answer(capsys, "check", str(lock))[0]
    text = lock.read_text(encoding="utf-8")
    lock.write_text(text.replace('"planned": true', '"planned": false'), encoding="utf-8")
    answer(capsys, "check", str(lock), code=Exit.CHECK_FAILED)  # the ranking's best is another one
    name = plan.config.choices[0].engine.name
    lock.write_text(text.replace(f'"engine": "{name}"', '"engine": "gone"'), encoding="utf-8")
    assert "gone" in answer(capsys, "check", str(lock), code=Exit.CHECK_FAILED)[0]


@pytest.mark.parametrize("command", WITH_A_DEVICE)
@pytest.mark.parametrize("device", ["h200", "cuda"])
def test_commands_that_execute_end_alike_without_the_device(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str, device: str
) -> None:
    text = tmp_path / "mine.cu"
    answer(capsys, "kernel", LAYER, "--device", "h200", "-o", str(text))
    name, *options = command.format(text=text, out=tmp_path / "out").split()
    answer(capsys, name, LAYER, "--device", device, *options, code=Exit.NOT_EXECUTED)


@pytest.mark.parametrize("command", WITHOUT_ONE)
def test_commands_that_need_no_device(capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str) -> None:
    name, *options = command.format(out=tmp_path / "out").split()
    answer(capsys, name, LAYER, "--device", "h200", *options)
    _, err = answer(capsys, name, LAYER, "--device", "cuda", *options, code=Exit.NOT_EXECUTED)  # read from the driver
    assert "cuda.driver" in err


def test_codes_are_documented() -> None:
    page = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    assert all(f"| {int(code)} | {meaning} |" in page for code, meaning in MEANINGS.items())


@pytest.mark.parametrize(
    ("content", "place", "expected"),
    [
        ('{"format": "graphdnn.graph", "version": 1}', "content = incomplete", "an entry 'tensors'"),
        (
            '{"format": "graphdnn.graph", "version": 1, "tensors": [3], "operations": []}',
            "tensors[0]",
            "the documented",
        ),
        (
            '{"format": "graphdnn.graph", "version": 1, "tensors": [], "operations": [{"operation": "relu"}]}',
            "operations[0].operation = relu",
            "one of",
        ),
        (
            '{"format": "graphdnn.graph", "version": 1, "tensors": [], "operations": [{"operation": "pointwise",'
            ' "x": {"tensor": 7}}]}',
            "operations[0].x = 7",
            "the uid of a tensor",
        ),
        (
            '{"format": "graphdnn.graph", "version": 1, "tensors": [{"uid": 1, "data_type": "FLAOT"}]}',
            "tensors[0].data_type = FLAOT",
            "one of FLOAT",
        ),
        ('{"format": "graphdnn.gra', "text = unreadable", "JSON text"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_name_and_place(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str, place: str, expected: str
) -> None:
    file = tmp_path / "mine.json"
    file.write_text(content, encoding="utf-8")
    err = refused(capsys, "run", str(file), code=Exit.USAGE)
    assert err.startswith(f"error: {file}: {place}")
    assert f"expected  {expected}" in err
    assert "Error:" not in err


@pytest.mark.parametrize("command", ["check", "replay", "run LAYER --device", "db calibration"])
def test_other_files_are_named_as_well(capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str) -> None:
    file = tmp_path / "mine.json"
    file.write_text("{", encoding="utf-8")
    words = [LAYER if word == "LAYER" else word for word in command.split()]
    assert str(file) in refused(capsys, *words, str(file), code=Exit.USAGE).splitlines()[0]


def test_stdin_is_read_once(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for text in (LAYER, graph_to_json(parse(LAYER).build_operation_graph()), plan_to_json(not_the_best("cpu"))):
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        answer(capsys, "repair", "-", "--device", "cpu")


@pytest.mark.parametrize(
    "words",
    [
        "kernel LAYER --text main",
        "kernel LAYER --verify",
        "kernel LAYER --seed 3",
        "kernel LAYER --repeat 3",
        "certify LAYER --types --range x=0,1",
        "certify LAYER --types --seed 3",
        "certify LAYER --range x=0,1 --range w=0,1 --seed 3",
        "db list --stale",
        "db show key --days 3",
        "db verify --all",
        "db prune --all --stale",
        "db calibration FILE --db FILE",
        "cache list --limit 3",
        "cache verify --all",
        "cache prune --all --days 3",
        "reduce LAYER --timeout 3",
        "reduce LAYER --still true --rule x",
        "reduce LAYER --rule x --engine numpy",
        "tune LAYER --no-db --db FILE",
        "repair LAYER --apply --json",
    ],
)
def test_nothing_is_accepted_and_ignored(capsys: pytest.CaptureFixture[str], tmp_path: Path, words: str) -> None:
    file = tmp_path / "file"
    given = [LAYER if word == "LAYER" else str(file) if word == "FILE" else word for word in words.split()]
    assert "cli.ignored" in refused(capsys, *given, code=Exit.USAGE)
    assert not file.exists()


@pytest.mark.parametrize("words", ["db list extra", "db verify extra", "db prune extra"])
def test_actions_without_names_take_none(capsys: pytest.CaptureFixture[str], tmp_path: Path, words: str) -> None:
    err = refused(capsys, *words.split(), "--db", str(tmp_path / "a.db"), code=Exit.USAGE)
    assert "cli.db.files" in err


def test_counts_of_zero(capsys: pytest.CaptureFixture[str]) -> None:
    assert "at least 1" in refused(capsys, "tune", LAYER, "--most", "0", code=Exit.USAGE)


def test_certify_names_the_range_that_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    err = refused(capsys, "certify", LAYER, "--range", "x=-1,1", code=Exit.USAGE)
    assert "cli.certify.range" in err
    assert "no range for w (uid 2)" in err


def test_explain_says_which_shared_memory_it_knows(capsys: pytest.CaptureFixture[str]) -> None:
    reduction = "reduce add x=f16[64,128,28,28] y=[1,128,1,1]"
    assert "dynamic shared" in answer(capsys, "explain", reduction, "--device", "h200")[0]
    assert "64 bytes of shared memory" in answer(capsys, "kernel", reduction, "--device", "h200")[0]
    found = json.loads(answer(capsys, "compile", reduction, "--device", "h200", "--json")[0])
    assert found["kernels"][0]["shared"] == 64


@pytest.mark.parametrize(
    "problem",
    [
        LAYER,
        "matmul a=f16[1,16,64] b=f16[1,64,16] + bias + gelu",
        "reduce add x=f32[4,64] y=[4,1]",
        "norm layer x=f32[8,32]",
    ],
)
def test_run_trace_and_certify_allow_the_same(capsys: pytest.CaptureFixture[str], problem: str) -> None:
    """One bound, of graphdnn.analysis.oracle; the certificate's own, which is derived, stands beside it."""
    ran, traced, certified = (
        json.loads(answer(capsys, command, problem, "--device", "cpu", "--seed", "3", "--json")[0])
        for command in ("run", "trace", "certify")
    )
    seen = {entry["uid"]: entry["bound"] for entry in traced["tensors"]}
    allowed = {entry["uid"]: entry["allowed"] for entry in certified["outputs"]}
    for output in ran["outputs"]:
        assert output["bound"] == seen[output["uid"]] == allowed[output["uid"]]


def test_cuts_and_explain_count_the_same_memory(capsys: pytest.CaptureFixture[str]) -> None:
    problem = "conv x=f16[2,8,9,9] w=f16[8,8,3,3] pad=1 + bias + relu"
    for device in ("cpu", "h200"):
        cuts = json.loads(answer(capsys, "cuts", problem, "--device", device, "--json")[0])
        floors = json.loads(answer(capsys, "explain", problem, "--device", device, "--json")[0])["floors"]
        assert cuts["whole"]["bytes"] == sum(entry["bytes"] for entry in floors)


def test_a_plan_and_its_graph_are_two_entries(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plan = not_the_best("cpu")
    files = [tmp_path / name for name in ("plan.json", "graph.json")]
    files[0].write_text(plan_to_json(plan), encoding="utf-8")
    files[1].write_text(graph_to_json(plan.config.fused.graph), encoding="utf-8")
    lock = tmp_path / "a.lock"
    out, _ = answer(capsys, "lock", *map(str, files), "--device", "cpu", "-o", str(lock))
    assert "2 graphs" in out
    assert "nothing moved in 2 graphs" in answer(capsys, "check", str(lock))[0]


def test_a_file_of_text_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "problem.txt"
    file.write_text("conv x=f32[1,2,3,4] w=f32[1,3,3,3]", encoding="utf-8")
    assert refused(capsys, "explain", str(file), code=Exit.USAGE).startswith(f"error: {file}: ")

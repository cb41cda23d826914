"""Runs as files: what a failing run ends with repeats it, here or elsewhere, and says what is as it was."""

from __future__ import annotations

import json
import pickle
import shlex
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import answer
from emulator.runtime import EmulatedRuntime
from file_mutations import assert_checked, damaged
from legal_problems import operation
from threadpoolctl import threadpool_limits

import graphdnn
from graphdnn import OperationGraph, Ranking, __version__, build, device_spec, fuse, graph_to_json, rank
from graphdnn.analysis.oracle import Comparison
from graphdnn.analysis.random_operands import random_operands
from graphdnn.bundles import FOLDER, attempt, bundle_from_json, bundle_of, canonical, print_problem, replay
from graphdnn.cli.exit_codes import Exit
from graphdnn.cuda.errors import cuda_error
from graphdnn.engines import ENGINES
from graphdnn.errors import BadParam, ExecutionFailed, MalformedFile, NotSupported
from graphdnn.files import digest_of
from graphdnn.problem import parse

CONV = "conv x=f16[1,4,6,6]nhwc w=f16[4,4,1,1] + bias + relu"
TEXTS = (
    CONV,
    "conv x=i8[8,64,56,56]nhwc w=i8[64,64,3,3] pad=1 + bias + relu",
    "conv x=f16[4,2,8,28,28] w=f16[2,16,8,3,3] pad=1 stride=2 spatial=2",
    "conv x=f32[1,4,6,6] w=f32[4,4,1,1] pre=1,0 post=0 dil=2 mode=conv + relu(-1,inf)",
    "conv x=f16[1,4,6,6] w=f16[4,4,1,1] compute=f16 out=f32 + relu(0,inf,0.1) + swish(2.5) + elu + scale + residual + gen_index(1)",
    "dgrad dy=f32[8,64,28,28] w=f32[64,32,3,3] dx=[8,32,56,56] pad=1 stride=2 + relu(0,6)",
    "wgrad x=f32[8,32,28,28] dy=f32[8,64,28,28] dw=[64,32,3,3] pad=1",
    "matmul a=f16[8,128,64] b=f16[8,64,256] + bias + gelu",
    "pool max x=f32[2,8,32,32] window=3 stride=2 pad=1",
    "pool avg_include x=f32[2,8,32,32]nhwc window=3,2 stride=2 pad=1",
    "reduce add x=f32[8,64,56,56] y=[1,64,1,1]",
    "norm layer x=f32[32,256] + relu",
    "norm batch x=f16[2,4,4,4]nhwc",
    "pointwise x=f32[8,64,56,56] + mul + tanh",
    "conv x=f32[8,64,56,56] w=f32[64,64,3,3] pad=1 + bias + relu(0,6) -> reduce add [1,64,1,1]",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER, raising=False)


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every result is taken for wrong."""

    def never(graph: Any, *_: Any, **__: Any) -> list[Comparison]:
        return [Comparison(spec, 2.0, 1.0) for spec in graph.outputs]

    for place in ("graphdnn.cli.commands.run", "graphdnn.bundles.verified_run"):
        monkeypatch.setattr(f"{place}.compare", never)


def kept(folder: Path) -> str:
    (path,) = folder.iterdir()
    return str(path)


def altered(path: str, change: Callable[[dict[str, Any]], None]) -> str:
    """The bundle with something else in it, sealed again."""
    data = json.loads(Path(path).read_text("utf-8"))
    change(data)
    data.pop("sha256")
    Path(path).write_text(json.dumps({**data, "sha256": digest_of(data)}), encoding="utf-8")
    return path


# Problem texts.


@pytest.mark.parametrize("text", TEXTS)
def test_a_graph_says_its_problem_text(text: str) -> None:
    graph = parse(text).build_operation_graph()
    assert print_problem(graph) == text


def test_graphs_without_a_text() -> None:
    for tag in ("concat", "rng", "resample_bwd", "genstats"):
        assert print_problem(OperationGraph.of([operation(tag)])) is None
    g = graphdnn.Graph(io_data_type="f32")
    x = g.tensor([2, 3, 4], stride=[13, 4, 1])
    g.relu(x).set_output(True)
    assert print_problem(g.build_operation_graph()) is None  # a text has no gaps


def test_canonical_forgets_names_and_uids() -> None:
    first, second = (parse(CONV).build_operation_graph() for _ in range(2))
    assert canonical(first) == canonical(second)
    assert canonical(first) != canonical(parse(CONV.replace("relu", "tanh")).build_operation_graph())


# Running and replaying.


def test_a_run_is_kept_and_repeated(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out, _ = answer(capsys, "run", CONV, "--save", str(tmp_path), "--seed", "7")
    command = out.splitlines()[-1].partition("graphdnn ")[2]
    assert shlex.split(command) == ["replay", kept(tmp_path)]
    out, _ = answer(capsys, *shlex.split(command))
    assert f"recorded  ok on cpu by version {__version__}, seed 7" in out
    assert "same bits" in out
    assert out.endswith("verdict   ok, as recorded\n")
    found = json.loads(answer(capsys, "replay", kept(tmp_path), "--json")[0])
    assert (found["format"], found["problem"], found["verdict"]) == ("graphdnn.replay", CONV, "ok, as recorded")
    assert found["is_same_plan"]


def test_a_file_in_the_place_of_a_bundle_stays(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    answer(capsys, "run", CONV, "--save", str(tmp_path))
    (file,) = tmp_path.iterdir()
    answer(capsys, "run", CONV, "--save", str(tmp_path))
    assert list(tmp_path.iterdir()) == [file]
    file.write_text("my notes", encoding="utf-8")
    assert "cli.bundle" in answer(capsys, "run", CONV, "--save", str(tmp_path), code=Exit.USAGE)[1]
    assert file.read_text(encoding="utf-8") == "my notes"


def test_a_failing_run_ends_in_its_command(capsys: pytest.CaptureFixture[str], wrong: None, tmp_path: Path) -> None:
    out, _ = answer(capsys, "run", CONV, "--seed", "3", "--engine", "numpy", "--forbid", "5", code=Exit.CHECK_FAILED)
    assert "FAILED\nrepeat " in out
    command = shlex.split(out.splitlines()[-1].partition("graphdnn ")[2])
    assert command == ["run", CONV, "--engine", "numpy", "--seed", "3", "--forbid", "5"]
    answer(capsys, *command, code=Exit.CHECK_FAILED)
    graph = tmp_path / "g.json"
    graph.write_text(graph_to_json(parse(CONV).build_operation_graph()), encoding="utf-8")
    found = json.loads(answer(capsys, "run", str(graph), "--json", code=Exit.CHECK_FAILED)[0])
    assert found["repeat"] == f"graphdnn run {graph}"


def test_a_mismatch_is_repeated_and_then_gone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as patched:
        for place in ("graphdnn.cli.commands.run", "graphdnn.bundles.verified_run"):
            patched.setattr(f"{place}.compare", lambda graph, *_: [Comparison(graph.outputs[0], 2.0, 1.0)])
        monkeypatch.setenv(FOLDER, str(tmp_path))
        out, _ = answer(capsys, "run", CONV, code=Exit.CHECK_FAILED)
        assert f"graphdnn replay {kept(tmp_path)}" in out
        out, _ = answer(capsys, "replay", kept(tmp_path), code=Exit.CHECK_FAILED)
        assert "recorded  mismatch (uid 6) on cpu" in out
        assert out.endswith("the failure is repeated\n")
    assert answer(capsys, "replay", kept(tmp_path))[0].endswith("the recorded failure is gone\n")
    altered(kept(tmp_path), lambda data: data["ending"].update(verdict="error", rules=["a.rule"]))
    assert "the recorded failure is gone" in answer(capsys, "replay", kept(tmp_path))[0]


def test_it_fails_in_another_way_or_now(wrong: None) -> None:
    config = rank(parse(CONV).build_operation_graph()).best
    bundle = bundle_of(attempt(config, 0), __version__)
    assert replay(bundle).verdict == "the failure is repeated"
    data = json.loads(bundle.to_json())
    verdicts = []
    for ending in ({"verdict": "error", "rules": ["a.rule"]}, {"verdict": "ok"}, {"verdict": "not run"}):
        content = {**data, "ending": {"rules": [], "uids": [], "detail": "", **ending}}
        content.pop("sha256")
        again = bundle_from_json(json.dumps({**content, "sha256": digest_of(content)}))
        verdicts.append(replay(again).verdict)
    assert verdicts == ["it fails in another way", "it fails now", "it fails"]


def test_the_default_device_and_limits_are_in_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, wrong: None, tmp_path: Path
) -> None:
    monkeypatch.setenv("GRAPHDNN_DEVICE", "cpu")
    out, _ = answer(capsys, "run", CONV, "--bound", "2", code=Exit.CHECK_FAILED)
    assert out.endswith(f"graphdnn run '{CONV}' --device cpu --bound 2\n")
    answer(capsys, "run", CONV, "--bound", "2", "--save", str(tmp_path), code=Exit.CHECK_FAILED)
    altered(kept(tmp_path), lambda data: data["choices"][0].update(engine="numpy_gone"))
    out, _ = answer(capsys, "replay", kept(tmp_path), code=Exit.CHECK_FAILED)
    assert "plan      numpy_blocked ; numpy\n" in out  # of two kernels, as it was bound


def test_a_device_that_is_not_here(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    _, err = answer(capsys, "run", CONV, "--device", "h200", code=Exit.NOT_EXECUTED)
    assert err.splitlines()[-1] == f"repeat: graphdnn run '{CONV}' --device h200"
    _, err = answer(capsys, "run", CONV, "--device", "h200", "--save", str(tmp_path), code=Exit.NOT_EXECUTED)
    assert err.splitlines()[-1] == f"repeat: graphdnn replay {kept(tmp_path)}"
    out, _ = answer(capsys, "replay", kept(tmp_path), "--device", "cpu")
    assert "recorded on h200, run on cpu as asked" in out
    assert "right here, by another plan" in out
    _, err = answer(capsys, "replay", kept(tmp_path), "--device", "h200", code=Exit.NOT_EXECUTED)
    assert "execute.device_absent" in err


def test_what_is_not_as_it_was(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    answer(capsys, "run", CONV, "--save", str(tmp_path))
    path = kept(tmp_path)
    text = Path(path).read_text("utf-8")
    altered(path, lambda data: data["outputs"].update({"6": "0" * 64}))
    out, _ = answer(capsys, "replay", path, code=Exit.CHECK_FAILED)
    assert "y (uid 6): other bits" in out
    assert out.endswith("the results are right, their bits are others\n")
    altered(path, lambda data: data["inputs"].update({"1": "0" * 64}))
    out, _ = answer(capsys, "replay", path)
    assert "NumPy draws otherwise from this seed" in out
    Path(path).write_text(text, encoding="utf-8")
    altered(path, lambda data: data["choices"][0].update(engine="numpy_gone"))
    out, _ = answer(capsys, "replay", path)
    assert "not the recorded plan: FILE" in out
    Path(path).write_text(text.replace("conv_fprop", "conv_dgrad"), encoding="utf-8")
    assert "file.hash" in answer(capsys, "replay", path, code=Exit.USAGE)[1]


MATMUL = "matmul a=f32[1,64,4096] b=f32[1,4096,64]"


def test_other_bits_name_the_number_of_blas_threads(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The number is recorded. It is a note only where the bits are others."""
    with threadpool_limits(limits=1, user_api="blas"):
        answer(capsys, "run", MATMUL, "--save", str(tmp_path))
        path = kept(tmp_path)
        assert json.loads(Path(path).read_text("utf-8"))["environment"]["BLAS threads"] == "1"
        altered(path, lambda data: data["environment"].update({"BLAS threads": "7"}))
        assert "BLAS threads" not in answer(capsys, "replay", path)[0]
        altered(path, lambda data: data["outputs"].update({"3": "0" * 64}))
        out, _ = answer(capsys, "replay", path, code=Exit.CHECK_FAILED)
    assert "recorded with BLAS threads 7, run with 1" in out


def test_folders_that_cannot_be_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert "cli.bundle" in answer(capsys, "run", CONV, "--save", str(tmp_path / "file"), code=Exit.USAGE)[1]
    assert "cli.file" in answer(capsys, "replay", str(tmp_path / "none.json"), code=Exit.USAGE)[1]
    (tmp_path / "some.json").write_text("{}", encoding="utf-8")
    assert "some.json is in it" in " ".join(answer(capsys, "replay", str(tmp_path), code=Exit.USAGE)[1].split())
    monkeypatch.setenv(FOLDER, str(tmp_path / "file"))
    from graphdnn.bundles import of_plan

    assert "cannot be written" in of_plan(rank(parse(CONV).build_operation_graph()).best)


# Verbose lines.


def test_verbose_lines_end_in_a_command(
    asked: Callable[..., None], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(VERBOSE="1", DEBUG="fusion,rank")
    text = "pool max x=f32[1,2,4,4] window=2 + relu"
    graph = parse(text).build_operation_graph()
    build(graph)
    lines = [line for line in capsys.readouterr().err.splitlines() if ",template," not in line]
    kinds = {line.split(",")[1] for line in lines}
    assert {"build", "fusion", "rank", "declined"} <= kinds
    commands = {"graphdnn" + line.rpartition("graphdnn")[2] for line in lines}
    assert commands == {f"graphdnn run '{text}'", f"graphdnn explain '{text}' --device cpu"}
    asked()
    for command in commands:
        answer(capsys, *shlex.split(command)[1:])
    asked(VERBOSE="1")
    monkeypatch.setenv(FOLDER, str(tmp_path))
    odd = OperationGraph.of([operation("concat")])
    build(odd)
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.endswith(f",graphdnn replay {kept(tmp_path)}")
    asked()
    assert "verdict   ok\n" in answer(capsys, "replay", kept(tmp_path))[0]
    monkeypatch.delenv(FOLDER)
    asked(VERBOSE="1")
    build(OperationGraph.of([operation("concat")], name="other"))
    assert capsys.readouterr().err.splitlines()[-1].endswith(f"key {odd.key[:12]}; set {FOLDER} for a file")


# Strangers.


def test_bundles_from_strangers() -> None:
    config = rank(parse(CONV).build_operation_graph()).best
    text = bundle_of(attempt(config, 0), __version__).to_json()
    assert fuse(bundle_from_json(text).graph())

    def resealed(raw: bytes) -> bytes:
        try:
            data = json.loads(raw)
            data.pop("sha256", None)
            return json.dumps({**data, "sha256": digest_of(data)}).encode()
        except (ValueError, AttributeError, RecursionError):
            return raw

    values, refused = assert_checked(bundle_from_json, map(resealed, damaged(text, 500)))
    print(f"{values} files were values, {refused} refused")
    assert values > 50
    assert refused > 150


@pytest.mark.parametrize("entry", ["graph", "device"])
def test_a_graph_and_a_device_are_read_with_their_bundle(entry: str) -> None:
    data = json.loads(bundle_of(attempt(rank(parse(CONV).build_operation_graph()).best, 0), __version__).to_json())
    data.pop("sha256")
    assert bundle_from_json(json.dumps({**data, "sha256": digest_of(data)}))
    data[entry] = {}
    with pytest.raises(MalformedFile):
        bundle_from_json(json.dumps({**data, "sha256": digest_of(data)}))


def test_choices_are_asked_when_they_are_taken() -> None:
    config = rank(parse(CONV).build_operation_graph()).best
    data = json.loads(bundle_of(attempt(config, 0), __version__).to_json())
    data["choices"] = "none"
    data.pop("sha256")
    bundle = bundle_from_json(json.dumps({**data, "sha256": digest_of(data)}))
    with pytest.raises(MalformedFile):
        bundle.config()
    assert not replay(bundle).is_same_plan


# Errors.


def test_a_plan_that_fails_on_a_device_says_how_to_repeat_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The launch of an emulated device answers as a driver does that met a bad address."""
    runtime = EmulatedRuntime()
    monkeypatch.setattr("graphdnn.plan.device_plan.CudaRuntime", lambda device: runtime)
    graph = parse("pointwise x=f32[2,3] + relu").build_operation_graph()
    plan = build(graph, "h200")

    def launch(stream: int) -> None:
        raise cuda_error("cuLaunchKernelEx", 700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal access", "k", plan.name)

    bindings = plan.to_device(random_operands(graph))
    block = types.SimpleNamespace(launches=[launch], place=None, scratch=0, values=(), fill=lambda *_: None)
    plan._free.append(block)  # type: ignore[attr-defined]
    with pytest.raises(ExecutionFailed) as caught:
        plan.execute(bindings)
    assert str(caught.value).endswith("  repeat: graphdnn run 'pointwise x=f32[2,3] + relu' --device cuda")
    assert str(pickle.loads(pickle.dumps(caught.value))).endswith("CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER]")


def test_refusals_of_a_ranking_know_their_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = parse("pointwise x=f32[2,3] + relu").build_operation_graph()
    host_only = next(e for e in ENGINES if e.name == "numpy")
    with pytest.raises(NotSupported) as caught:
        Ranking(fuse(graph), device_spec("h200"), engines=(host_only,)).best
    assert caught.value.repeat == "graphdnn explain 'pointwise x=f32[2,3] + relu' --device h200"
    with pytest.raises(BadParam) as refused:
        parse("pointwise")
    assert refused.value.repeat == ""

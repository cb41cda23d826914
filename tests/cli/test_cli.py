"""The command line: every command, every exit code, and output that is for people and for programs."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from command_line import answer, refused
from legal_problems import operation
from repository import ROOT

from graphdnn import OperationGraph, __version__, graph_from_json, graph_to_json, plan_from_json
from graphdnn import text_format as text
from graphdnn.analysis.oracle import Comparison
from graphdnn.cli import main
from graphdnn.cli.commands import doctor
from graphdnn.cli.commands.demo import descriptors, photo
from graphdnn.cli.exit_codes import Exit
from graphdnn.errors import GraphdnnError

CONV = "conv x=i8[2,8,9,9]nhwc w=i8[4,8,3,3] pad=1 + bias + relu"
TWO_KERNELS = "pool max x=f32[2,4,8,8] window=2 + relu"


def shell(*arguments: str, stdout: Any = subprocess.PIPE) -> subprocess.Popen[str]:
    """The command as its users start it, with one BLAS thread: tests run side by side."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "graphdnn", *arguments]
    return subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, text=True, env=environment)


@pytest.fixture
def graph_file(tmp_path: Path) -> str:
    path = tmp_path / "graph.json"
    path.write_text(graph_to_json(OperationGraph.of([operation("conv_fprop")], name="layer")), encoding="utf-8")
    return str(path)


# The whole.


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "--version")[0].strip() == f"graphdnn {__version__}"
    out, _ = answer(capsys, "--help")
    for word in ("demo", "run", "explain", "doctor", "exit codes"):
        assert word in out
    for command in ("demo", "run", "explain", "doctor"):
        assert "exit codes" in answer(capsys, command, "--help")[0]
    assert out in refused(capsys, code=Exit.USAGE), "no command at all"
    assert "quotation marks" in refused(capsys, "run", *CONV.split(), code=Exit.USAGE)


@pytest.mark.parametrize(
    "arguments",
    [
        (), ("nothing",), ("run",), ("explain",), ("run", CONV, "--repeat", "0"), ("run", CONV, "--seed", "-1"),
        ("run", CONV, "--mode", "C"), ("explain", CONV, "extra"), ("demo", "nothing"),
    ],
)  # fmt: skip
def test_wrong_arguments(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    assert "usage: graphdnn" in refused(capsys, *arguments, code=Exit.USAGE)


@pytest.mark.parametrize("command", ["run", "explain"])
@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ("", "problem.word"),
        ("conv", "problem.operand"),
        ("conv x=f32[1,2,3,4] w=f32[1,2,3,3] pad=a", "problem.syntax"),
        ("conv x=f32[1,2,3,4] w=f32[1,2,3,3] + nothing", "problem.word"),
        ("conv x=f32[1,2,3,4] w=f32[1,3,3,3]", "conv.groups.divide_channels"),
        ("conv x=f32[0,2,3,4] w=f32[1,2,3,3]", "tensor.dims.positive"),
        ("nowhere.json", "cli.file"),
        (str(ROOT), "cli.file"),
    ],
)
def test_what_is_no_graph(capsys: pytest.CaptureFixture[str], command: str, source: str, rule: str) -> None:
    err = refused(capsys, command, source, code=Exit.USAGE)
    assert rule in err
    assert "  fix  " in err


@pytest.mark.parametrize(
    "content", ["{", "{}", "[]", '{"format": "graphdnn.plan"}', '{"format": "graphdnn.graph", "version": 9}', "\xff"]
)
def test_malformed_files(capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str) -> None:
    path = tmp_path / "graph.json"
    path.write_bytes(content.encode("latin-1"))
    refused(capsys, "explain", str(path), code=Exit.USAGE)


def test_a_long_text_is_not_repeated_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    err = refused(capsys, "explain", "conv " + "x" * 4000, code=Exit.USAGE)
    assert all(len(line) < 400 for line in err.splitlines())


def test_not_supported_has_its_own_code(capsys: pytest.CaptureFixture[str]) -> None:
    err = refused(capsys, "run", "conv x=f32[1,2,3,4] w=f32[1,2,3,3] compute=i32", code=Exit.NOT_SUPPORTED)
    assert "CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE" in err


def test_no_memory_is_no_traceback(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError("Unable to allocate 1 PiB")

    monkeypatch.setattr("graphdnn.cli.commands.run.random_bindings", fail)
    assert "1 PiB" in refused(capsys, "run", CONV, code=Exit.NOT_EXECUTED)


def test_interrupt(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("graphdnn.cli.commands.run.random_bindings", fail)
    assert answer(capsys, "run", CONV, code=Exit.INTERRUPTED) == ("", "interrupted\n")


def test_a_reader_that_goes_away() -> None:
    process = shell("explain", CONV)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.wait(timeout=60) == Exit.BROKEN_PIPE
    assert process.stderr.read() == ""
    process.stderr.close()


# run


def test_run(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = answer(capsys, "run", CONV, "--repeat", "2")
    for fact in (
        "3 operations in 1 kernel",
        "conv_fprop + add + relu_fwd",
        "median of 2",
        "predicted",
        "largest difference",
    ):
        assert fact in out
    assert out.splitlines()[-1].split() == ["verdict", "ok"]


def test_run_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads(answer(capsys, "run", CONV, "--json", "--repeat", "3", "--seed", "5")[0])
    assert data["verdict"] == "ok"
    assert len(data["times_us"]) == 3
    assert min(data["times_us"]) <= data["median_us"] <= max(data["times_us"])
    assert all(output["ok"] for output in data["outputs"])


def test_run_without_verification(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = answer(capsys, "run", CONV, "--no-verify", "--repeat", "1")
    assert "not verified" in out
    assert "largest difference" not in out


@pytest.mark.parametrize("mode", ["INSTANT", "A", "b", "fallback"])
def test_run_in_every_mode(capsys: pytest.CaptureFixture[str], mode: str) -> None:
    out, _ = answer(capsys, "run", CONV, "--mode", mode, "--device", "cpu", "--repeat", "1")
    assert "device     cpu" in out


@pytest.mark.parametrize("engine", ["numpy", "numpy_blocked"])
def test_run_with_an_engine(capsys: pytest.CaptureFixture[str], engine: str) -> None:
    data = json.loads(answer(capsys, "run", CONV, "--engine", engine, "--json", "--repeat", "1")[0])
    assert data["engines"] == [engine]


def test_an_engine_that_does_not_serve(capsys: pytest.CaptureFixture[str]) -> None:
    err = refused(capsys, "run", "matmul a=f32[3,4] b=f32[4,5]", "--engine", "numpy_blocked", code=Exit.NOT_SUPPORTED)
    assert "numpy_blocked.operation" in err


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (("--engine", "nothing"), "cli.engine"),
        (("--device", "nothing"), "device.unknown"),
        (("--save-plan", "/nowhere/plan.json"), "cli.output"),
    ],
)
def test_run_refuses(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], rule: str) -> None:
    assert rule in refused(capsys, "run", CONV, *arguments, code=Exit.USAGE)


def test_run_saves_what_it_ran(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    graph, plan = tmp_path / "graph.json", tmp_path / "plan.json"
    answer(capsys, "run", CONV, "--repeat", "1", "--save-graph", str(graph), "--save-plan", str(plan))
    again = plan_from_json(plan.read_text(encoding="utf-8"))
    assert again.config.fused.graph.key == graph_from_json(graph.read_text(encoding="utf-8")).key
    for source in (graph, plan):
        assert "verdict    ok" in answer(capsys, "run", str(source), "--repeat", "1")[0]


def test_run_with_beta(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The old output takes part: the runs that are timed must not disturb the comparison."""
    path = tmp_path / "graph.json"
    path.write_text(graph_to_json(OperationGraph.of([operation("conv_fprop", beta=0.5)])), encoding="utf-8")
    assert "verdict    ok" in answer(capsys, "run", str(path))[0]


def test_run_that_computes_something_else(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, graph_file: str
) -> None:
    spec = operation("conv_fprop").outputs()["y"]
    monkeypatch.setattr("graphdnn.cli.commands.run.compare", lambda *_: [Comparison(spec, 2.0, 1.0)])
    out, _ = answer(capsys, "run", graph_file, code=Exit.CHECK_FAILED)
    assert "verdict    FAILED" in out


@pytest.mark.parametrize(
    "problem",
    [
        "conv x=f16[2,2,8,9,9] w=f16[2,4,8,3,3] pad=1 stride=2 spatial=2 + bias + relu(0,6)",
        "dgrad dy=f32[2,4,5,5] w=f32[4,6,3,3] dx=[2,6,9,9] pad=1 stride=2",
        "wgrad x=f32[2,6,9,9] dy=f32[2,4,9,9] dw=[4,6,3,3] pad=1",
        "matmul a=bf16[3,8,4] b=bf16[3,4,5] + bias + gelu",
        "reduce add x=i16[4,6] y=[1,6]",
        "norm layer x=f32[8,16]",
        TWO_KERNELS,
    ],
)
def test_run_verifies_every_kind_of_operation(capsys: pytest.CaptureFixture[str], problem: str) -> None:
    assert "verdict    ok" in answer(capsys, "run", problem, "--repeat", "1")[0]


# explain


def test_explain(capsys: pytest.CaptureFixture[str], graph_file: str) -> None:
    out, _ = answer(capsys, "explain", graph_file, "--device", "h200")
    for fact in (
        "graph 'layer': 1 operation in 1 kernel",
        "least time on h200",
        "ranking on h200, mode A",
        "kernels of cuda_implicit_gemm",
    ):
        assert fact in out


def test_explain_says_why_a_prediction_is_below_the_floor(capsys: pytest.CaptureFixture[str]) -> None:
    problem = "conv x={0}[64,64,56,56]nhwc w={0}[64,64,3,3] pad=1"
    out, _ = answer(capsys, "explain", problem.format("f32"), "--device", "h200")
    assert "gets by with\n  fewer products (Winograd, FFT)" in out
    out, _ = answer(capsys, "explain", problem.format("f16"), "--device", "h200")
    assert "fewer products" not in out.split("ranking on")[0]


def test_a_refused_operation_is_answered_with_the_likeliest_edit(capsys: pytest.CaptureFixture[str]) -> None:
    err = refused(capsys, "explain", "matmul a=f16[64,100] b=f16[10,100]", code=Exit.USAGE)
    assert "would be accepted: write b (uid 2) as (100, 10)" in err
    assert "would be accepted" not in refused(capsys, "explain", "conv x=f32[8]", code=Exit.USAGE)


def test_explain_puts_what_can_be_changed_first(capsys: pytest.CaptureFixture[str]) -> None:
    """Refusals that no edit mends take a line or two each."""
    text = "conv x=f16[8,3,14,14] w=f16[64,3,3,3] pad=1"
    assert main(["explain", text, "--device", "h200", "--json"]) == Exit.OK
    entries = json.loads(capsys.readouterr().out)["refusals"]["entries"]
    assert main(["explain", text, "--device", "h200"]) == Exit.OK
    declined = capsys.readouterr().out.split("\ndeclined\n")[1]
    full, rest = declined.split("nothing to do about these")
    assert all(entry["rule"] in declined for entry in entries if entry["kind"] != "pattern")
    foreign = {entry["subject"]["engine"] for entry in entries if entry["kind"] == "pattern"}
    assert f"{len(foreign)} engines for other kinds of operation" in rest
    mended = {e["subject"]["engine"] for e in entries} - {
        e["subject"]["engine"] for e in entries if e["fix"].startswith("nothing to do") or e["kind"] == "pattern"
    }
    assert mended
    assert all(f"  {engine} for " in full for engine in mended)
    assert "    fix " not in rest
    assert len(declined.splitlines()) < 3 * len(entries)


def test_explain_names_what_was_not_fused_and_who_declined(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    path.write_text(_centred(), encoding="utf-8")
    out, _ = answer(capsys, "explain", str(path))
    for fact in ("not fused", "fuse.after_exit", "required", "declined", "numpy_blocked.operation", "all"):
        assert fact in out
    assert f"edits that help: graphdnn repair {path}" in out
    data = json.loads(answer(capsys, "explain", str(path), "--json")[0])
    assert {stop["rule"] for stop in data["fused"]["stopped_by"]} >= {"fuse.after_exit"}
    assert [floor["operation"] for floor in data["floors"]] == [0, 1]
    assert {floor["bound_by"] for floor in data["floors"]} <= {"memory", "arithmetic"}
    assert data["ranking"]["configs"]
    assert {"edge", "pattern"} <= {entry["kind"] for entry in data["refusals"]["entries"]}


def _centred() -> str:
    from graphdnn.builder import Graph
    from graphdnn.enums import ReductionOperator

    graph = Graph("centred", io_data_type="float32")
    y = graph.conv_fprop(graph.tensor([2, 4, 6, 6]), graph.tensor([4, 4, 1, 1]))
    mean = graph.reduction(y, ReductionOperator.AVG).set_dim([1, 4, 1, 1])
    graph.sub(y, mean).set_output(True)
    return graph_to_json(graph.build_operation_graph())


def test_explain_stops_counting_configurations(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Five kernels with two engines each have 32 configurations; the list says that there are more."""
    from graphdnn.builder import Graph

    graph = Graph("deep", io_data_type="float32")
    value = graph.tensor([1, 4, 6, 6])
    for _ in range(5):
        value = graph.conv_fprop(value, graph.tensor([4, 4, 1, 1]))
    value.set_output(True)
    path = tmp_path / "graph.json"
    path.write_text(graph_to_json(graph.build_operation_graph()), encoding="utf-8")
    assert "and more" in answer(capsys, "explain", str(path))[0]
    assert len(json.loads(answer(capsys, "explain", str(path), "--json")[0])["ranking"]["configs"]) == 12


def test_explain_from_stdin(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    monkeypatch.setattr("sys.stdin", io.StringIO(CONV))
    assert "1 kernel" in answer(capsys, "explain", "-")[0]


# doctor


def test_doctor(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GRAPHDNN_CACHE_DIR", str(tmp_path / "kernels"))
    out, _ = answer(capsys, "doctor")
    for name in ("Python", "graphdnn", "numpy", "BLAS", "self-test", "NVIDIA driver", "CuPy", "NVRTC", "cuda-bindings",
                 "scikit-image", "PyTorch", str(tmp_path / "kernels")):  # fmt: skip
        assert name in out
    assert not (tmp_path / "kernels").exists(), "looking must not change anything"
    findings = json.loads(answer(capsys, "doctor", "--json")[0])
    assert {f["state"] for f in findings} <= {"ok", "missing", "broken"}
    assert all(f["fix"] for f in findings if f["state"] != "ok")


def test_doctor_fails_for_what_is_needed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "NEEDED", ("numpy", "no_such_package"))
    out, _ = answer(capsys, "doctor", code=Exit.CHECK_FAILED)
    assert "broken: no_such_package" in out
    assert "pip install --force-reinstall no_such_package" in out


def test_doctor_fails_when_nothing_runs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("illegal instruction")

    monkeypatch.setattr("graphdnn.problem.parse", fail)
    out, _ = answer(capsys, "doctor", code=Exit.CHECK_FAILED)
    assert "RuntimeError: illegal instruction" in out


def test_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("GRAPHDNN_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert doctor.cache_path() == tmp_path / "graphdnn"
    assert doctor.cache_folder().state == "ok"
    blocked = tmp_path / "file"
    blocked.write_text("not a folder", encoding="utf-8")
    monkeypatch.setenv("GRAPHDNN_CACHE_DIR", str(blocked / "cache"))
    finding = doctor.cache_folder()
    assert finding.state == "broken"
    assert "GRAPHDNN_CACHE_DIR" in finding.fix
    assert not finding.is_failure


class _Driver:
    """The driver's library with one GPU, or none."""

    def __init__(self, devices: int) -> None:
        self._devices = devices

    def cuInit(self, flags: int) -> int:
        return 0 if self._devices else 100

    def cuDriverGetVersion(self, out: Any) -> int:
        return self._put(out, 12080)

    def cuDeviceGetCount(self, out: Any) -> int:
        return self._put(out, self._devices)

    def cuDeviceGet(self, out: Any, index: int) -> int:
        return self._put(out, index)

    def cuDeviceGetName(self, text: ctypes.Array[Any], length: int, device: Any) -> int:
        text.value = b"NVIDIA H200"
        return 0

    def cuDeviceTotalMem_v2(self, out: Any, device: Any) -> int:
        return self._put(out, 140 * 2**30)

    def cuDeviceGetAttribute(self, out: Any, number: int, device: Any) -> int:
        return self._put(out, {75: 9, 76: 0, 16: 132}[number])

    def _put(self, out: Any, value: int) -> int:
        out._obj.value = value
        return 0


@pytest.mark.parametrize(
    ("devices", "text"), [(1, "NVIDIA H200, sm_90, 132 multiprocessors, 140.0 GiB"), (0, "CUDA error 100")]
)
def test_gpu(monkeypatch: pytest.MonkeyPatch, devices: int, text: str) -> None:
    monkeypatch.setattr(doctor, "_driver", lambda: _Driver(devices))
    found = list(doctor.gpu())
    assert found[0].detail == "for CUDA 12.8"
    assert text in found[1].detail
    assert not any(f.is_failure for f in found)


# demo


def test_demo() -> None:
    """All of it, as a user starts it."""
    start = time.perf_counter()
    process = shell("demo")
    out, err = process.communicate(timeout=120)
    taken = time.perf_counter() - start
    assert process.returncode == Exit.OK, out + err
    assert err == ""
    assert out.isascii()
    assert [line for line in out.splitlines() if line in ("ok", "FAILED")] == ["ok"] * 3
    for fact in (
        "3 operations in 1 fused operation",
        "largest difference from float64",
        "30 of 30 shifts found",
        "an INT32 accumulator is proven not to overflow",
        "INT64 is chosen",
        "the same in float32",
        "fuse.after_exit",
        "3 of 3 parts ok",
    ):
        assert fact in out
    assert taken < 30


def test_demo_that_fails(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "rounding_bound", lambda *_: 0.0)
    out, _ = answer(capsys, "demo", "descriptors", code=Exit.CHECK_FAILED)
    assert "[FAIL]" in out
    assert "\nFAILED\n" in out
    assert "0 of 1 parts ok" in out


def test_demo_without_the_photograph(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "skimage", None)
    err = refused(capsys, "demo", code=Exit.NOT_EXECUTED)
    assert "pip install 'graphdnn[demo]'" in err
    with pytest.raises(GraphdnnError):
        photo.photograph()


# Text.


@pytest.mark.parametrize(
    ("shown", "wanted"),
    [
        (text.seconds(1.5), "1.5 s"),
        (text.seconds(0.0123), "12.3 ms"),
        (text.seconds(0.5), "500 ms"),
        (text.seconds(123), "123 s"),
        (text.seconds(4.2e-6), "4.2 us"),
        (text.seconds(3e-8), "0.03 us"),
        (text.seconds(0), "0 us"),
        (text.size(0), "0 B"),
        (text.size(1536), "1.5 KiB"),
        (text.size(3 * 2**30), "3 GiB"),
        (text.count(1.5e9), "1.5 G"),
        (text.count(12), "12 "),
        (text.plural(1, "kernel"), "1 kernel"),
        (text.plural(0, "kernel"), "0 kernels"),
        (text.shortened("a  b", 20), "a b"),
        (text.shortened("x" * 50, 25), "x" * 10 + " ... " + "x" * 10),
        (text.table(("a", "b"), [("1", "22"), ("333", "4")], right=(1,)), "a     b\n1    22\n333   4"),
    ],
)
def test_text(shown: str, wanted: str) -> None:
    assert shown == wanted

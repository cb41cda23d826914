"""The command line for a CUDA device, and what is printed when the environment asks for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from command_line import answer
from cuda_comparison import emulated
from device_apis import H200, SUM, compiled
from emulator.runtime import EmulatedRuntime
from legal_problems import operation
from test_builder_on_device import expected, layer, values

from graphdnn import BadParam, NotSupported, OperationGraph, build
from graphdnn.cli.exit_codes import Exit
from graphdnn.cuda.kernel_cache import KernelCache


@emulated
@pytest.mark.parametrize("problem", [SUM, "reduce add x=f32[40,6] y=[1,6] + relu"])
def test_run_on_a_device(capsys: pytest.CaptureFixture[str], runtime: EmulatedRuntime, problem: str) -> None:
    data = json.loads(answer(capsys, "run", problem, "--device", H200, "--repeat", "2", "--json")[0])
    assert data["verdict"] == "ok"
    assert data["device"] == H200
    assert all(name.startswith("cuda_") for name in data["engines"])
    assert len(data["times_us"]) == len(data["device_times_us"]) == 2
    out, _ = answer(capsys, "run", problem, "--device", H200, "--repeat", "2")
    for fact in ("device     h200", "until it returns", "median of 2", "verdict    ok"):
        assert fact in out


@compiled
def test_run_for_a_device_that_is_not_here(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, cache: KernelCache, tmp_path: Any
) -> None:
    """The plan is built and saved, which needs no device; then the refusal is a clear one."""
    monkeypatch.setattr("graphdnn.cuda.driver_api.available", lambda: "the driver finds no device")
    file = tmp_path / "plan.json"
    out, err = answer(capsys, "run", SUM, "--device", H200, "--save-plan", str(file), code=Exit.NOT_EXECUTED)
    assert out == ""
    assert "execute.device_absent" in err
    assert file.exists()
    with pytest.raises(NotSupported):
        build(OperationGraph.of([operation("pointwise")]), H200).new_workspace()


def test_explain_for_a_device(capsys: pytest.CaptureFixture[str]) -> None:
    problem = "conv x=f16[2,8,9,9] w=f16[4,8,3,3] pad=1 + bias + relu"
    out, _ = answer(capsys, "explain", problem, "--device", H200)
    assert "kernels of cuda_" in out
    assert "numpy" not in out
    out, _ = answer(capsys, "explain", problem, "--device", H200, "--source")
    assert "// operation 0: conv_fprop" in out
    _, _, text = out.partition("source of ")
    head, _, source = text.partition("\n\n")
    assert head.count("// operation ") == 3
    for i, tag in enumerate(("conv_fprop", "add", "relu_fwd")):
        assert f"// operation {i}: {tag}" in head
        assert f"// operation {i}: " in source
    assert "__global__" in source
    data = json.loads(answer(capsys, "explain", problem, "--device", H200, "--source", "--json")[0])
    (kernel,) = data["kernels"]
    assert {step["kernel"] for step in kernel["steps"]} == set(kernel["source"])
    assert all(step["block"] for step in kernel["steps"])


def test_explain_on_the_host_has_no_source(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = answer(capsys, "explain", SUM, "--device", "cpu", "--source")
    assert "no generated text, NumPy computes it" in out


def events(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    lines = [line.split(",") for line in capsys.readouterr().err.splitlines()]
    assert all(line[0] == "graphdnn" for line in lines)
    return [line[1:] for line in lines if line[1] != "template"]


@emulated
@pytest.mark.parametrize(("device", "cache_state"), [(H200, "hit"), ("cpu", "none")])
def test_plans_report_what_they_do(
    asked: Callable[..., None],
    runtime: EmulatedRuntime,
    capsys: pytest.CaptureFixture[str],
    device: str,
    cache_state: str,
) -> None:
    asked(VERBOSE="1")
    g, x, y = layer(device)
    out = np.empty((2, 4, 6, 6), np.float32)
    g.build()
    g.execute({x: values(), y: out})
    np.testing.assert_array_equal(out, expected(values()))
    built, executed = events(capsys)
    assert built[0] == "build"
    assert built[2:4] == [g.plan.config.device.name, cache_state]
    assert executed[:3] == ["execute", g.plan.name, g.plan.config.device.name]
    assert float(built[4]) >= 0 <= float(executed[3])
    assert built[5:] == executed[4:]  # the command that repeats it
    assert ",".join(built[5:]).startswith(("graphdnn run 'pointwise ", "key "))
    asked()
    g.execute({x: values(), y: out})
    quiet, x, y = layer(device)
    quiet.build()
    quiet.execute({x: values(), y: out})
    assert [line for line in events(capsys) if line[1] != g.plan.name] == []


def test_fusion_and_ranking_are_printed_on_request(
    asked: Callable[..., None], runtime: EmulatedRuntime, capsys: pytest.CaptureFixture[str]
) -> None:
    asked(DEBUG="fusion,rank")
    g, *_ = layer()
    g.build()
    found = events(capsys)
    kinds = {line[0] for line in found}
    assert {"fusion", "unfused", "rank", "declined"} <= kinds
    assert "build" not in kinds
    (first, *_) = (line for line in found if line[0] == "rank")
    assert first[1:5] == ["layer", H200, "A", "0"]
    assert [line[4] for line in found if line[0] == "fusion"] == ["reduction", "add"]
    with pytest.raises(BadParam):
        g.execute({})

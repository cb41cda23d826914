"""Plans for a GPU that is not here: the same words and the same order as on it, everything but the execution."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from command_line import answer, refused
from file_mutations import damaged
from problems import EXAMPLES
from random_problems.families import FAMILIES, Case, draw
from repository import DATA, ROOT

from graphdnn import (
    PROFILES,
    DeviceSpec,
    Graph,
    MalformedFile,
    NotSupported,
    Ranking,
    build,
    fuse,
    plan_from_json,
    plan_to_json,
    rank,
)
from graphdnn.analysis.random_operands import random_operands
from graphdnn.cli.commands.explain import as_text
from graphdnn.cli.exit_codes import Exit
from graphdnn.cuda import cublas, cufft, device_query, nvrtc, vendor_libraries
from graphdnn.device.multiprocessor import MULTIPROCESSORS
from graphdnn.device.profiles import SOURCES, device_from_json
from graphdnn.enums import HeurMode
from graphdnn.files import spec_from_json, spec_to_json
from graphdnn.plan import ExecutionPlan
from graphdnn.problem import parse

H200 = json.loads((DATA / "h200_device.json").read_text(encoding="utf-8"))
LAYER = "conv x=f16[8,64,28,28]nhwc w=f16[64,64,3,3] pad=1 + bias + relu"
GPUS = [name for name, spec in PROFILES.items() if spec.kind == "cuda"]


def graph_of(text: str) -> Any:
    return parse(text).build_operation_graph()


@pytest.fixture
def an_h200(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's answers, as an H200 gave them."""
    answers = {
        "cuDeviceGet": 0,
        "cuDeviceGetName": H200["name"].encode() + b"\0" * 16,
        "cuDeviceTotalMem": H200["memory"],
    }
    monkeypatch.setattr(device_query, "device_count", lambda: 1)
    monkeypatch.setattr(device_query, "current_device", lambda: 0)
    monkeypatch.setattr(device_query, "check_versions", lambda: None)
    monkeypatch.setattr(device_query, "called", lambda call, *_: answers[call])
    monkeypatch.setattr(device_query, "_attribute", lambda _, name: H200["attributes"][name])
    monkeypatch.setattr(device_query, "_spec", device_query._spec.__wrapped__)  # type: ignore[attr-defined]


@pytest.mark.usefixtures("an_h200")
def test_the_profile_is_what_the_device_says_of_itself() -> None:
    """So a ranking for one is the ranking for the other: nothing else of a device is looked at."""
    found = device_query.present_device()
    assert found.to_json() == H200["spec"]
    assert found.ordinal == 0
    assert replace(found, ordinal=None) == PROFILES["h200"] == device_from_json(H200["spec"])


@pytest.mark.usefixtures("an_h200")
def test_rankings_are_told_in_the_same_words() -> None:
    device = device_query.present_device()
    for i, family in enumerate(FAMILIES):
        graph = draw(Case(family, 7 + i, large=True)).graph
        assert as_text(rank(graph, device)) == as_text(rank(graph, PROFILES["h200"]))


@pytest.mark.parametrize(("library", "name"), [(cublas, "cublas"), (cufft, "cufft")])
def test_libraries_are_taken_to_be_where_the_device_is(
    library: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vendor_libraries, "missing", lambda _: "no file")
    monkeypatch.setattr(vendor_libraries, "available", lambda: "no driver")
    assert library.missing() == ""
    monkeypatch.setattr(vendor_libraries, "available", lambda: "")
    assert library.missing() == "no file"
    monkeypatch.setattr(vendor_libraries, "missing", lambda _: "")
    assert vendor_libraries.missing_on_devices(name) == ""


# Plans.


@pytest.fixture
def no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphdnn.plan.cuda_runtime.CudaRuntime.is_here", lambda _: False)


@pytest.fixture
def plan(no_device: None) -> ExecutionPlan:
    return build(graph_of(LAYER), "h200")


def test_a_plan_can_be_looked_at(plan: ExecutionPlan) -> None:
    (kernel,) = plan.kernels
    assert "__global__" in kernel.source
    assert all(launch.resources.registers > 0 for launch in kernel.launches)
    assert all(launch.architecture == "sm_90a" for launch in kernel.launches)
    assert plan.source_lines[0]
    assert plan.workspace_size > 0
    assert "on h200" in str(plan)
    again = plan_from_json(plan_to_json(plan))
    assert (again.name, again.config.device) == (plan.name, PROFILES["h200"])


@pytest.mark.parametrize(
    "ask",
    [
        lambda plan, given: plan.execute(given),
        lambda plan, given: plan.load(),
        lambda plan, given: plan.new_workspace(),
        lambda plan, given: plan.new_array(plan.config.fused.graph.outputs[0]),
        lambda plan, given: plan.to_device(given),
        lambda plan, given: plan.to_host(given),
        lambda plan, given: plan.queue(),
        lambda plan, given: plan.capture(given),
        lambda plan, given: plan.timings(lambda: None, 1),
    ],
    ids=("execute", "load", "new_workspace", "new_array", "to_device", "to_host", "queue", "capture", "timings"),
)
def test_what_needs_the_device_is_refused(plan: ExecutionPlan, ask: Callable[[ExecutionPlan, Any], Any]) -> None:
    given = random_operands(plan.config.fused.graph)
    with pytest.raises(NotSupported) as caught:
        ask(plan, given)
    (found,) = caught.value.rejections
    assert found.rule == "execute.device_absent"
    assert "h200" in found.reason
    assert "9.0" in found.expected


def test_the_builder_refuses_as_well(no_device: None) -> None:
    g = Graph("layer", io_data_type="float16", compute_data_type="float32", device="h200")
    x = g.tensor([8, 64, 8, 8])
    y = g.relu(x).set_output(True)
    g.build()
    with pytest.raises(NotSupported, match=r"execute\.device_absent"):
        g.execute({x: 1 << 20, y: 1 << 21})
    with pytest.raises(NotSupported, match=r"execute\.device_absent"):
        g.run({x: 1 << 20})


@pytest.mark.parametrize("device", GPUS)
def test_every_profile_compiles(device: str) -> None:
    spec: DeviceSpec = PROFILES[device]
    (kernel,) = build(graph_of("pointwise x=f16[8,64,28,28]nhwc + mul + tanh"), device).kernels
    arch = nvrtc.arch_of(spec.compute_capability)
    assert [launch.architecture for launch in kernel.launches] == [arch] * len(kernel.launches)
    assert all(not launch.resources.spill_stores for launch in kernel.launches)


@pytest.mark.parametrize("device", GPUS)
def test_every_profile_plans_and_explains(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    """By engines of its own generation, in one order wherever it is asked."""
    for text in (
        LAYER,
        "matmul a=f16[4,512,512] b=f16[4,512,512] + gelu",
        "norm layer x=f32[64,512]",
        "reduce add x=f32[8,64,28,28] y=[1,64,1,1]",
        "conv x=i8[8,64,28,28]nhwc w=i8[64,64,3,3] pad=1 compute=i32 + relu",
    ):
        ranking = rank(graph_of(text), device)
        assert ranking.best.predicted_seconds > 0
        assert PROFILES[device].compute_capability == (9, 0) or "hopper" not in " ".join(c.name for c in ranking)
        assert f"ranking on {device}" in answer(capsys, "explain", text, "--device", device)[0]
    assert SOURCES[device] in answer(capsys, "device", device)[0]


def test_the_page_of_devices_names_every_profile() -> None:
    page = (ROOT / "docs" / "cuda.md").read_text(encoding="utf-8")
    assert ", ".join(f"`{name}`" for name in GPUS) in page, "docs/cuda.md, Which device: the row of the profiles"


def test_a_multiprocessor_is_known_for_every_profile() -> None:
    """The most shared memory that a multiprocessor has, as its capability has it."""
    for name in GPUS:
        spec = PROFILES[name]
        known = MULTIPROCESSORS.get(spec.compute_capability)
        assert known, f"{name}: add {spec.compute_capability} to MULTIPROCESSORS in device/multiprocessor.py"
        assert spec.shared_memory == known.shared, name


# Devices in files.


def test_a_device_in_a_file_is_the_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.json"
    out, _ = answer(capsys, "device", "a100", "-o", str(file))
    assert "compute capability 8.0" in out
    assert spec_from_json(file.read_text(encoding="utf-8")) == PROFILES["a100"]
    known, read = (answer(capsys, "explain", LAYER, "--device", name)[0] for name in ("a100", str(file)))
    assert known.replace("--device a100", f"--device {file}") == read  # the command that it ends with names the file
    assert spec_from_json(answer(capsys, "device", "h200", "--json")[0]) == PROFILES["h200"]
    assert "cores" in answer(capsys, "device", "cpu")[0]


def test_a_device_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.json"
    mine = replace(PROFILES["l40s"], name="mine", sm_count=58, compute_capability=(8, 9))
    file.write_text(spec_to_json(mine), encoding="utf-8")
    assert "ranking on mine" in answer(capsys, "explain", LAYER, "--device", str(file))[0]
    assert "for sm_89" in answer(capsys, "compile", "pointwise x=f16[8,64] + tanh", "--device", str(file))[0]
    assert "cli.file" in refused(capsys, "device", str(tmp_path / "no.json"), code=Exit.USAGE)
    file.write_text(spec_to_json(mine).replace("58", "0"), encoding="utf-8")
    assert "device.entry" in refused(capsys, "device", str(file), code=Exit.USAGE)
    file.write_text(spec_to_json(replace(mine, shared_memory=1024)), encoding="utf-8")
    assert "102400" in refused(capsys, "device", str(file), code=Exit.USAGE)


@EXAMPLES
def test_devices_from_strangers(examples: int) -> None:
    """Any bytes are a device that graphs can be ranked for, or one error class."""
    graph, served = graph_of(LAYER), 0
    for bytes_ in damaged(spec_to_json(PROFILES["a100"]), 200 * examples):
        try:
            spec = spec_from_json(bytes_)
        except MalformedFile:
            continue
        with contextlib.suppress(NotSupported):  # an old capability, or no engine for what is left
            Ranking(fuse(graph), spec).best
            served += 1
    assert served > 10


# The command.


def test_compile(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = answer(capsys, "compile", LAYER, "--device", "h200")
    assert "for sm_90a in " in out
    assert "conv_fprop" in out
    assert max(map(len, out.splitlines())) <= 100
    found = json.loads(answer(capsys, "compile", LAYER, "--device", "h200", "--json")[0])
    assert (found["format"], found["version"], found["device"]) == ("graphdnn.compiled", 1, "h200")
    for entry in found["kernels"]:
        assert entry["registers"] > 0
        assert entry["spill_stores"] == entry["spill_loads"] == entry["stack"] == 0
        assert entry["cubin_bytes"] > 0
        assert 0 < entry["occupancy"] <= 1


def test_compile_again(capsys: pytest.CaptureFixture[str]) -> None:
    text = "pointwise x=f16[8,64,28,28]nhwc + mul + tanh"
    found = json.loads(answer(capsys, "compile", text, "--device", "l40s", "--fresh", "--json")[0])
    assert [(entry["from"], entry["architecture"]) for entry in found["kernels"]] == [("compiled", "sm_89")]
    assert found["kernels"][0]["milliseconds"] > 10


def test_compile_what_has_no_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert "nothing to compile" in answer(capsys, "compile", LAYER)[0]
    product = "matmul a=f32[8,64,64] b=f32[8,64,64]"
    out, _ = answer(capsys, "compile", product, "--device", "a100", "--engine", "cuda_matmul_cublas")
    assert "(library)" in out


def test_compile_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert "device.unknown" in refused(capsys, "compile", LAYER, "--device", "abacus", code=Exit.USAGE)
    assert "cli.engine" in refused(capsys, "compile", LAYER, "--engine", "none", code=Exit.USAGE)


@pytest.mark.parametrize("shared", [1, 1500, 48 * 1024])
def test_a_limit_on_shared_memory_leaves_an_answer(shared: int) -> None:
    """An engine that serves the rest, or reasons: no tile is chosen that does not fit."""
    device = replace(PROFILES["h200"], shared_memory=shared)
    for i, family in enumerate(FAMILIES):
        ranking = rank(draw(Case(family, i, large=True)).graph, device)
        for config in (ranking.best, *islice(ranking, 3)):
            for choice in config.choices:
                choice.engine.compile(choice.task, choice.knobs)


def test_what_the_driver_does_not_launch_is_not_ranked() -> None:
    graph = graph_of("reduce add x=f32[2147483647,2,70000] y=[2147483647,1,70000]")
    (refused,) = [r for d in rank(graph, "h200").declined if d.engine.name == "cuda_reduction" for r in d.rejections]
    assert refused.rule == "cuda.grid"
    assert "(73400319966, 1, 1)" in refused.shown_value
    large = graph_of("conv x=f16[100000,8,640,640]nhwc w=f16[4,8,3,3]")
    ranking = rank(large, "h200", HeurMode.B)
    with pytest.raises(NotSupported, match=r"launch\.grid"):  # only with knobs of one's own
        ExecutionPlan(next(c for c in ranking if c.name == "cuda_implicit_gemm_k2=12"))

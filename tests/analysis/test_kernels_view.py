"""Kernels as one looks at them, the way between operations and lines, and a text put in place of a kernel's own."""

from __future__ import annotations

import json
import re
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pytest
from emulator import MISSING
from emulator.libraries import host_libraries
from emulator.runtime import EmulatedRuntime

from graphdnn import Graph, build, fuse, rank
from graphdnn.analysis import report
from graphdnn.analysis.cuts import cuts_of
from graphdnn.analysis.kernels import Occupancy, occupancy
from graphdnn.analysis.oracle import compare
from graphdnn.cli import main
from graphdnn.cli.exit_codes import Exit
from graphdnn.cuda import kernel_cache, nvrtc
from graphdnn.device.profiles import device_spec
from graphdnn.engines import ENGINE_BY_NAME
from graphdnn.errors import BadParam
from graphdnn.heuristics import Ranking
from graphdnn.plan import DevicePlan, ExecutionPlan
from graphdnn.problem import parse, random_bindings

CONV = "conv x=f16[2,16,8,8]nhwc w=f16[32,16,3,3]nhwc pad=1 + bias + relu"
NORM = "norm batch x=f16[8,64,28,28]nhwc + relu"
CHAIN = "pointwise x=f32[4,64] + relu + tanh"


def plan_of(text: str, device: str = "h200") -> ExecutionPlan:
    return build(parse(text).build_operation_graph(), device)


def on_emulator(text: str) -> DevicePlan:
    config = Ranking(fuse(parse(text).build_operation_graph()), device_spec("h200")).best
    return DevicePlan(config, EmulatedRuntime())


def run(plan: ExecutionPlan) -> dict[int, Any]:
    bindings = random_bindings(plan.config.fused.graph)
    plan.execute(bindings, plan.new_workspace())
    return bindings


def test_a_kernel_says_everything() -> None:
    plan = plan_of(CONV)
    (kernel,) = plan.kernels
    assert [op.label() for op in kernel.operations] == ["conv_fprop", "add", "relu_fwd"]
    assert kernel.vanished == tuple(t.uid for t in plan.config.fused.operations[0].internal)
    assert kernel.architecture == "sm_90a"
    assert "--gpu-architecture=sm_90a" in kernel.options
    (launch,) = kernel.launches
    found = nvrtc.resources(launch.compiled().log)[launch.entry]
    assert (kernel.registers, kernel.spills, kernel.stack) == (found.registers, 0, 0)
    assert kernel.shared == found.shared + launch.dynamic_shared
    assert len(kernel.cubin_hash) == 64
    assert kernel.source == launch.text.text
    assert 0 < kernel.roofline_share() < 1
    assert kernel.roofline_share(kernel.floor_seconds) == 1
    page = str(kernel)
    for word in ("vanished", "registers", "occupancy", "roofline", kernel.cubin_hash, "relu_fwd"):
        assert word in page
    json.dumps(kernel.to_json())


def test_a_view_runs_nothing() -> None:
    graph = Graph("view", io_data_type="float16", device="h200")
    x, y = graph.tensor([2, 64, 32]), graph.tensor([2, 64, 48])
    graph.matmul(graph.transpose(x, [0, 2, 1]), y).set_output(True)
    view, product = graph.build().kernels
    assert view.is_view
    assert not product.is_view
    assert view.roofline_share() == 1
    assert "a view" in str(view)
    assert "a view of the operand" in report.page(report.contents_of(graph.ranking))


@pytest.mark.parametrize("device", ["a100", "l40s", "h200"])
def test_several_launches_and_architectures(device: str) -> None:
    (kernel,) = plan_of(NORM, device).kernels
    assert len(kernel.launches) > 1
    assert kernel.architecture == {"a100": "sm_80", "l40s": "sm_89", "h200": "sm_90a"}[device]
    for launch in kernel.launches:
        assert launch.occupancy.blocks > 0
        assert launch.waves > 0
    assert kernel.main.name in {line.kernel for line in kernel.source_lines}
    assert len(kernel.texts) == len({text.name for text in kernel.texts}) <= len(kernel.launches)


def test_what_a_library_does_has_no_text() -> None:
    graph = parse("conv x=f32[2,8,8,8] w=f32[8,8,3,3] pad=1").build_operation_graph()
    ranking = Ranking(fuse(graph), device_spec("h200"), engines=[ENGINE_BY_NAME["cuda_explicit_gemm"]])
    with host_libraries():
        (kernel,) = DevicePlan(ranking.best, EmulatedRuntime()).kernels
    (library,) = [launch for launch in kernel.launches if launch.is_library]
    assert (library.text, library.resources, library.occupancy, library.cubin_hash) == (None, None, None, "")
    assert kernel.registers > 0, "of the launches around it"
    assert "library" in str(kernel)
    assert {"library": library.name} in kernel.to_json()["launches"]


def test_on_the_host_it_is_numpy() -> None:
    (kernel,) = plan_of("pointwise x=f32[4,4] + relu", "cpu").kernels
    assert kernel.is_on_host
    assert (kernel.registers, kernel.cubin_hash, kernel.occupancy, kernel.launches) == (0, "", None, ())
    assert "_relu" in kernel.source
    assert "numpy.tanh" in plan_of(CHAIN, "cpu").kernels[0].source
    assert "def fprop" in plan_of(CONV, "cpu").kernels[0].source
    assert "matmul" in plan_of("matmul a=f32[2,4,4] b=f32[2,4,4]", "cpu").kernels[0].source


def test_occupancy() -> None:
    """By hand, and as the calculator of the toolkit gives it."""
    assert occupancy((9, 0), 256, 32, 0) == Occupancy(8, 64, 64, "threads")
    assert occupancy((9, 0), 256, 240, 131_200).blocks == 1
    assert occupancy((8, 0), 128, 64, 0) == Occupancy(8, 32, 64, "registers")
    assert occupancy((8, 0), 128, 32, 40 * 1024) == Occupancy(4, 16, 64, "shared memory")
    assert occupancy((8, 9), 32, 16, 0) == Occupancy(24, 24, 48, "blocks")
    assert occupancy((8, 9), 1024, 33, 0).blocks == 1
    assert occupancy((9, 0), 256, 32, 300 * 1024).blocks == 0
    assert occupancy((7, 0), 256, 32, 0) is None


def test_where() -> None:
    plan = plan_of(CONV)
    op = plan.config.fused.operations[0]
    gone = op.internal[0].uid
    places = plan.where(gone)
    assert [(p.role, p.operation.label(), p.is_vanished) for p in places] == [
        ("writes", "conv_fprop", True), ("reads", "add", True),
    ]  # fmt: skip
    text = plan.kernels[0].source.splitlines()
    for place in (*places, *plan.where("relu_fwd"), *plan.where("y")):
        (line,) = place.lines
        assert re.match(r"\s*// operation \d+: ", text[line.line - 1])
        assert f":{line.line}" in str(place)
        json.dumps(place.to_json())
    assert [p.role for p in plan.where("x")] == ["reads"]
    assert plan_of(CONV, "cpu").where("y")[0].lines == ()
    for unknown in (99, "nobody", ""):
        with pytest.raises(BadParam, match=r"kernels\.subject"):
            plan.where(unknown)


def test_looking_costs_nothing_before_it_is_done() -> None:
    plan = plan_of(CHAIN)
    start = process_time()
    for _ in range(100):
        assert len(plan.kernels) == 1
    assert (process_time() - start) / 100 < 1e-3, "views are made, nothing is compiled or generated"


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_another_text_in_place_of_a_kernels_own() -> None:
    plan = on_emulator(CHAIN)
    old = plan.kernels[0]
    same = plan.with_source(0, old.source + "\n// mine\n")
    graph = plan.config.fused.graph
    assert all(c.ok for c in compare(graph, run(same)))
    new = same.kernels[0]
    assert new.source.endswith("// mine\n")
    assert new.launches[0].name.startswith(old.launches[0].name + "__edited_")
    assert [line.line for line in new.source_lines] == [line.line for line in old.source_lines]
    changed = plan.with_source(0, old.source.replace("tanhf(", "expf("))
    assert not all(c.ok for c in compare(graph, run(changed)))
    assert all(c.ok for c in compare(graph, run(plan))), "the plan itself is as it was"
    twice = changed.with_source(0, old.source)
    assert twice.kernels[0].launches[0].name.count("__edited_") == 1
    assert np.array_equal(run(twice)[graph.outputs[0].uid], run(plan)[graph.outputs[0].uid])


def test_an_edited_text_has_a_place_of_its_own_in_the_cache() -> None:
    plan = plan_of(CHAIN)
    old = plan.kernels[0].launches[0]
    new = plan.with_source(0, old.text.text.replace("tanhf(", "expf(")).kernels[0].launches[0]
    assert new.cubin_hash != old.cubin_hash
    assert kernel_cache.default_cache().load(old.text, "sm_90a").cubin == old.compiled().cubin


def test_texts_that_do_not_fit() -> None:
    plan = plan_of(CHAIN)
    own = plan.kernels[0].source
    struct = re.search(r"struct[^{]*Params\s*\{", own)
    assert struct is not None
    wrong = {
        "kernels.text": ["", own.replace("extern", "static").replace(plan.kernels[0].launches[0].entry, "other"),
                         own.replace(struct[0], struct[0] + "long long more; ")],
        "kernels.compilation": [own + "\nint broken("],
    }  # fmt: skip
    for rule, texts in wrong.items():
        for text in texts:
            with pytest.raises(BadParam, match=re.escape(rule)):
                plan.with_source(0, text)
    for index in (-1, 1):
        with pytest.raises(BadParam, match=r"kernels\.index"):
            plan.with_source(index, own)
    with pytest.raises(BadParam, match=r"kernels\.index"):
        plan.with_source(0, own, "no such text")
    with pytest.raises(BadParam, match="NumPy computes"):
        plan_of(CHAIN, "cpu").with_source(0, own)


# The command.


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "mine.cu"
    assert main(["kernel", CHAIN, "--device", "h200", "-o", str(mine)]) == Exit.OK
    assert "roofline" in capsys.readouterr().out
    assert "struct" in mine.read_text()
    mine.write_text(mine.read_text().replace("tanhf(", "expf("))
    assert main(["kernel", CHAIN, "--device", "h200", "--replace", str(mine), "--verify"]) == Exit.NOT_EXECUTED
    out = capsys.readouterr().out
    assert "registers" in out
    assert "nothing was executed" in out
    assert main(["kernel", CHAIN, "--device", "h200", "--replace", str(mine), "--json"]) == Exit.NOT_EXECUTED
    data = json.loads(capsys.readouterr().out)
    assert data["launches"][0]["own"]["cubin_sha256"] != data["launches"][0]["this"]["cubin_sha256"]
    assert main(["kernel", CHAIN, "--device", "h200", "--json"]) == Exit.OK
    assert json.loads(capsys.readouterr().out)["format"] == "graphdnn.kernel"
    assert main(["kernel", CHAIN, "-o", str(tmp_path / "host.py")]) == Exit.OK
    assert "_relu" in (tmp_path / "host.py").read_text()


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_the_command_runs_both_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    """Where the device is: here the emulator stands for it."""
    monkeypatch.setattr("graphdnn.plan.device_plan.CudaRuntime", lambda device: EmulatedRuntime())
    mine = tmp_path / "mine.cu"
    assert main(["kernel", CHAIN, "--device", "h200", "-o", str(mine)]) == Exit.OK
    capsys.readouterr()
    own = mine.read_text()
    for text, code, verdict in (
        (own + "// mine\n", Exit.OK, "ok"),
        (own.replace("tanhf(", "expf("), Exit.CHECK_FAILED, "FAILED"),
    ):
        mine.write_text(text)
        assert main(["kernel", CHAIN, "--device", "h200", "--replace", str(mine), "--verify"]) == code
        out = capsys.readouterr().out
        assert f"verdict  {verdict}" in out
        assert f"results  {'the same' if code == Exit.OK else 'other'} bits" in out
        assert re.search(r"time +\S+ .?s +\S+ .?s", out)
    assert main(["kernel", CHAIN, "--device", "h200", "--replace", str(mine), "--json"]) == Exit.OK
    data = json.loads(capsys.readouterr().out)
    assert data["own"]["median_us"] > 0
    assert data["this"]["median_us"] > 0
    assert data["verdict"] is None


def test_wrong_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken, binary = tmp_path / "broken.cu", tmp_path / "binary.cu"
    broken.write_text("int x;")
    binary.write_bytes(b"\xff\xfe\x00")
    wrong = {
        "kernels.index": ["--index", "7"],
        "cli.ignored": ["--verify"],
        "kernels.text": ["--replace", str(broken)],
        "cli.kernel.text": ["--replace", str(binary)],
    }
    for rule, arguments in wrong.items():
        assert main(["kernel", CHAIN, "--device", "h200", *arguments]) == Exit.USAGE
        assert rule in capsys.readouterr().err
    assert main(["kernel", CHAIN, "--device", "h200", "--replace", str(tmp_path / "absent")]) == Exit.USAGE
    assert main(["kernel", CHAIN, "--replace", str(broken)]) == Exit.USAGE
    assert "NumPy computes" in capsys.readouterr().err


def test_what_a_prompt_shows_is_a_line() -> None:
    """Without the text of kernels, or the graph again in each of its parts."""
    graph = parse("conv x=f16[8,64,28,28]nhwc w=f16[64,64,3,3]nhwc pad=1 + bias + relu").build_operation_graph()
    ranking = rank(graph, "h200")
    plan = ExecutionPlan(ranking.best)
    (kernel,) = plan.kernels
    shown = [graph, ranking, ranking.best, ranking.fused, *ranking.fused, plan, kernel, *kernel.launches]
    shown += [*plan.repairs(), *cuts_of(graph, "h200"), *plan.where(graph.outputs[0].uid)]
    for value in shown:
        assert len(repr(value)) < 250, repr(value)
        assert repr(value).startswith(f"<{type(value).__name__.lstrip('_')}") or value is plan

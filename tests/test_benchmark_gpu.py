"""The GPU benchmark without a GPU: every case at small extents on the host engines, and the machinery with a fake device."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from gpu import contest, convolutions, groups, host, integers, isolation, memory, recurrent, report, run, table, timing
from gpu.buffers import TORCH_TYPES, allocate, fill
from gpu.check import Checked, compare, definition
from gpu.device import CudaDevice
from gpu.fills import Integers, Normal, Uniform
from gpu.groups import GROUPS, chosen
from gpu.layers import DIRECT_LAYERS, LAYERS, TEMPLATE_MATCHING, Layer
from gpu.options import Options
from gpu.problem import Case, Group, Peer, Problem
from gpu.result import PeerResult, Result, result_from_json
from gpu.timing import Timed

import graphdnn
from graphdnn import DataType, TensorSpec
from graphdnn.engines.host.memory import binding_layout

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
SMALL = {
    "dense": Layer("dense", 2, 8, 7, 6, 16, 3, 3, 1, 1),
    "depthwise": Layer("depthwise", 2, 8, 7, 7, 8, 3, 3, 2, 1, 8),
    "groups": Layer("groups", 2, 8, 6, 6, 8, 3, 3, 1, 1, 2),
    "stem": Layer("stem", 1, 3, 16, 16, 8, 7, 7, 2, 3),
}


@pytest.fixture(autouse=True)
def short_series(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake clock does not need long ones."""
    monkeypatch.setattr(timing, "SERIES_US", 200.0)


class FakeLaunches:
    def __init__(self, device: FakeDevice, calls: Sequence[Any], *, foreign: bool, captured: bool) -> None:
        self.device, self.calls, self.foreign = device, calls, foreign
        self.count, self.captured = len(calls), captured

    def run(self) -> None:
        for call in self.calls:
            call()

    def microseconds(self) -> float:
        self.run()
        return self.device.clock(self)


class FakeDevice:
    """The host in the place of a GPU: NumPy engines, PyTorch on the CPU, and a clock that the test sets."""

    name = engine_device = "cpu"
    cache_bytes = 2**12
    torch = torch

    def __init__(self, clock: Any = None) -> None:
        self.clock = clock or (lambda launches: 20.0 if launches.foreign else 10.0)
        self.dead = False
        self.made: list[FakeLaunches] = []

    def array(self, raw: Any, spec: TensorSpec) -> Any:
        dtype, shape, strides = binding_layout(spec)
        return np.ndarray(shape, dtype, buffer=raw.numpy(), strides=strides)

    @contextmanager
    def active(self) -> Iterator[None]:
        yield

    def launches(self, calls: Sequence[Any], *, foreign: bool, capture: bool = True) -> FakeLaunches:
        self.made.append(FakeLaunches(self, calls, foreign=foreign, captured=capture))
        return self.made[-1]

    def synchronize(self) -> None: ...

    def is_alive(self) -> bool:
        return not self.dead

    def release(self) -> None: ...

    def about(self) -> dict[str, Any]:
        return {"device": "fake"}


def measured(problem: Problem, device: FakeDevice | None = None, **options: Any) -> Result:
    group = Group("test", "test", ())
    case = Case("case", lambda: problem)
    return contest.measure(group, case, device or FakeDevice(), Options(repeats=2, **options))


def assert_right(result: Result) -> None:
    assert (result.status, result.reason) == ("ok", "")
    assert result.ours is not None
    assert result.peer is not None
    assert result.ratio == pytest.approx(2)


# The cases.


@pytest.mark.parametrize("layout", memory.LAYOUTS)
@pytest.mark.parametrize("kind", memory.TYPES)
@pytest.mark.parametrize("operation", memory.OPERATIONS)
def test_memory_case_is_right_and_agrees_with_its_peer(operation: str, kind: str, layout: str) -> None:
    problem = memory.memory_problem(operation, kind, layout, (4, 8, 6, 4))
    result = measured(problem)
    if "not implemented for 'Half'" in result.peers[0].error:  # PyTorch has no such kernel on the CPU
        assert result.status == "ok"
        return
    assert_right(result)
    assert all(check["right"] for check in result.checks)
    # PyTorch rounds between its kernels, and its own sums of fp16 are coarse; still the same function.
    for peer in (p for p in result.peers if p.time):
        assert float(peer.error.split()[1 if ":" in peer.error else 0]) < 5e-3


@pytest.mark.parametrize("layer", SMALL.values(), ids=SMALL)
@pytest.mark.parametrize("direction", ["fprop", "dgrad", "wgrad"])
def test_convolution_case_is_right(direction: str, layer: Layer) -> None:
    kinds = {"fprop": convolutions.fused_problem, "dgrad": convolutions.dgrad_problem}
    problem = kinds.get(direction, convolutions.wgrad_problem)(layer, "f16")
    result = measured(problem)
    assert_right(result)
    assert result.flops == layer.flops


@pytest.mark.parametrize("kind", ["bf16", "tf32", "f32"])
def test_dense_case_is_right_in_every_type(kind: str) -> None:
    result = measured(convolutions.fused_problem(SMALL["dense"], kind))
    assert_right(result)


def test_clipped_activation_has_cudnn_fused_call_as_part_only() -> None:
    result = measured(convolutions.fused_problem(SMALL["depthwise"], "f16", clip=6.0))
    assert_right(result)
    assert {p.label: p.part for p in result.peers} == {
        "conv2d, activation": False, "cudnn fused, no clip": True, "conv2d alone": True
    }  # fmt: skip
    assert "cudnn" in next(p.error for p in result.peers if p.label.startswith("cudnn")).lower()


def test_strict_case_gives_the_peer_both_formats() -> None:
    result = measured(convolutions.strict_problem(SMALL["dense"]))
    assert_right(result)
    assert [p.label for p in result.peers] == ["conv2d nhwc", "conv2d nchw"]


@pytest.mark.parametrize(
    ("data_type", "result_type", "values"),
    [("int16", "int32", integers.PIXELS), ("int16", "int64", integers.INT16), ("int8", "int32", integers.INT8)],
)
def test_integer_case_is_exact(data_type: str, result_type: str, values: Integers) -> None:
    layer = Layer("small", 1, 1, 12, 12, 3, 12, 12, 1, 4)
    problem = integers.integer_problem(layer, data_type, result_type, values, channels_last=False, peer_type="float32")
    result = measured(problem)
    assert_right(result)
    assert result.right == "exact"


@pytest.mark.parametrize("result_type", ["int8", "float32", "int32"])
def test_case_of_bytes(result_type: str) -> None:
    layer = Layer("small", 2, 24, 9, 8, 32, 3, 3, 1, 1)
    problem = integers.byte_problem(layer, result_type)
    result = measured(problem)
    assert result.status == "ok", result.reason  # cuDNN has no bytes here, and PyTorch no fused half
    assert [p.label for p in result.peers] == ["cudnn int8", "cudnn int8, its first choice", "cudnn float16"]
    assert len(problem.inputs) == (2 if result_type == "int32" else 4)


@pytest.mark.parametrize("describe", [recurrent.inference, recurrent.training])
def test_recurrent_case(describe: Any) -> None:
    result = measured(describe(recurrent.network(steps=3, batch=2, hidden=5)))
    assert result.status == "ok", result.reason
    assert all(float(p.error) < recurrent.GRADIENT_BOUND for p in result.peers)


def test_every_case_describes_itself_in_full_size() -> None:
    for group, _ in GROUPS.values():
        if group is host.HOST:
            continue
        for case in group.cases:
            problem = case.describe()
            assert problem.peers, case.name
            assert set(problem.inputs) == set(problem.fills), case.name
            assert problem.moved > 0


def test_case_names_are_unique_and_some_are_quick() -> None:
    for group, _ in GROUPS.values():
        names = [case.name for case in group.cases]
        assert len(set(names)) == len(names)
        assert 0 < len(chosen(group, quick=True)) < len(names)
    assert len(LAYERS) == 17


@pytest.mark.parametrize("layer", [*LAYERS.values(), *DIRECT_LAYERS.values(), TEMPLATE_MATCHING], ids=lambda v: v.name)
def test_layer_extents_are_pytorchs(layer: Layer) -> None:
    with torch.device("meta"):
        x, w = torch.empty(layer.x_dims), torch.empty(layer.w_dims)
        y = torch.nn.functional.conv2d(x, w, None, layer.stride, layer.padding, 1, layer.groups)
    assert tuple(y.shape) == layer.y_dims


def test_known_amounts_of_work() -> None:
    assert LAYERS["vgg_3x3_256"].flops / 1e9 == pytest.approx(118.38, abs=0.01)
    assert memory.memory_problem("relu", "f16", "nhwc").moved == 2 * 2 * 64 * 128 * 56 * 56


def test_cases_are_chosen_by_word_and_pattern() -> None:
    group = memory.MEMORY
    assert {c.name for c in chosen(group, ["softmax"])} == {
        f"softmax_channel_{k}_{v}" for k in memory.TYPES for v in memory.LAYOUTS
    }
    assert [c.name for c in chosen(group, ["relu_f16_*"])] == ["relu_f16_nhwc", "relu_f16_nchw"]
    assert all(c.quick for c in chosen(group, quick=True))


# Buffers and checks.


def small(kind: str = "f16") -> Problem:
    return convolutions.fused_problem(SMALL["dense"], kind)


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32"])
def test_poison_is_seen_in_every_element(kind: str) -> None:
    problem, device = small(kind), FakeDevice()
    buffers = allocate(problem, device)
    fill(problem, buffers, device, 0)
    buffers.poison()
    expected = definition(problem, buffers.tensors, torch)
    (check,) = compare(problem, {"y": buffers.outputs["y"].tensor}, expected, torch)
    assert not check.is_right
    assert check.unwritten == buffers.outputs["y"].tensor.numel()


def test_arrays_and_tensors_are_one_memory_in_the_described_layout() -> None:
    problem = small()
    buffers = allocate(problem, FakeDevice())
    x = buffers.inputs["x"]
    x.tensor[1, 2, 3, 4] = 7
    assert x.array[1, 2, 3, 4] == 7
    assert x.tensor.is_contiguous(memory_format=torch.channels_last)
    assert set(buffers.bindings) == {spec.uid for spec in problem.graph.bound}


def test_a_single_wrong_integer_is_found() -> None:
    layer = Layer("small", 1, 1, 4, 4, 2, 3, 3, 1, 1)
    problem = integers.integer_problem(layer, "int8", "int32", integers.INT8, channels_last=False, peer_type="float32")
    expected = {"y": torch.arange(32, dtype=torch.float64).reshape(1, 2, 4, 4)}
    found = expected["y"].to(torch.int32)
    assert compare(problem, {"y": found}, expected, torch)[0].is_right
    found[0, 1, 2, 3] += 1
    (check,) = compare(problem, {"y": found}, expected, torch)
    assert not check.is_right
    assert str(check) == "y: 1 elements differ"


def test_nan_is_never_right() -> None:
    assert not Checked("y", float("nan"), 1.0, 0).is_right


@pytest.mark.parametrize("values", [Normal(2.0, 1.0), Uniform(0.5, 1.5), Integers(-3, 3)])
def test_fills_are_random_and_repeatable(values: Any) -> None:
    like = torch.empty(500)
    first, second = (values.draw(torch, like, torch.Generator().manual_seed(1)) for _ in range(2))
    assert torch.equal(first, second)
    assert first.unique().numel() > 4
    if isinstance(values, Integers):
        assert (int(first.min()), int(first.max())) == (-3, 3)


# Wrong, refused and failing cases.


def broken(problem: Problem) -> Problem:
    """The same graph with another definition: as if the engine computed something else."""
    formula = problem.formula
    return replace(problem, formula=lambda t, x: {name: value + 1 for name, value in formula(t, x).items()})


def test_a_wrong_result_has_no_time_but_the_peer_has() -> None:
    result = measured(broken(small()))
    assert result.status == "wrong"
    assert result.ours is None
    assert result.ratio is None
    assert result.peer is not None
    assert "over" in result.right
    assert "WRONG" in table.line(result)


def test_a_result_that_goes_wrong_in_the_timed_launches_has_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, device = small(), FakeDevice()
    kind = type(graphdnn.build(problem.graph, "cpu"))
    execute = kind.execute
    calls = []

    def later_wrong(self: Any, bindings: Any, workspace: Any = None) -> None:
        execute(self, bindings, workspace)
        calls.append(0)
        if len(calls) > 8:
            bindings[problem.outputs["y"].uid][...] = 0

    monkeypatch.setattr(kind, "execute", later_wrong)
    result = measured(problem, device)
    assert result.status == "wrong"
    assert result.reason.startswith("after the timed launches")
    assert result.ours is None


def test_a_failing_peer_leaves_its_reason() -> None:
    def refuse(torch: Any, tensors: Any) -> Any:
        raise RuntimeError("unable to find an engine")

    problem = replace(small(), peers=(Peer("bad", refuse, ("y",)),))
    result = measured(problem)
    assert result.status == "ok"
    assert result.peer is None
    assert "unable to find an engine" in result.peers[0].error


def test_an_unsupported_problem_is_told_from_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    reasons = graphdnn.Filters(workspace_limit=-1)
    result = measured(replace(small(), filters=reasons))
    assert result.status == "unsupported"
    assert result.peer is not None

    def fail(*_: Any) -> Any:
        raise RuntimeError("boom")

    monkeypatch.setattr(contest, "ExecutionPlan", fail)
    result = measured(small())
    assert result.status == "failed"
    assert "boom" in result.reason


def test_a_case_that_cannot_be_described_is_a_result() -> None:
    def describe() -> Any:
        raise ValueError("no such layer")

    result = contest.measure(Group("g", "g", ()), Case("c", describe), FakeDevice(), Options())
    assert (result.status, result.ours) == ("failed", None)
    assert "no such layer" in result.reason


def test_nothing_more_is_tried_on_a_dead_context(monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeDevice()

    def fail(*_: Any) -> Any:
        device.dead = True
        raise RuntimeError("illegal memory access")

    monkeypatch.setattr(contest, "ExecutionPlan", fail)
    result = measured(small(), device)
    assert result.status == "failed"
    assert not result.peers


def test_settings_of_cudnn_are_restored() -> None:
    before = torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32
    with contest.precision(torch, tf32=not before[1]):
        assert torch.backends.cudnn.allow_tf32 is not before[1]
    assert (torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32) == before


# Timing.


def test_the_fastest_whole_peer_counts_and_the_spread_is_of_rounds() -> None:
    values = iter([1.0] * 1000)
    device = FakeDevice(lambda launches: 30.0 * next(values) if launches.foreign else 10.0)
    result = measured(small(), device)
    assert result.ratio == pytest.approx(3)
    assert (result.ratio_low, result.ratio_high) == (pytest.approx(3), pytest.approx(3))
    assert result.times_copy == pytest.approx(1 / 3)


def test_contestants_take_turns_and_the_first_round_does_not_count() -> None:
    order: list[str] = []

    class Spy:
        count, captured = 1, True

        def __init__(self, name: str) -> None:
            self.name = name

        def microseconds(self) -> float:
            order.append(self.name)
            return float(len(order))

    times = timing.alternate({"a": Spy("a"), "b": Spy("b")}, 2)  # type: ignore[dict-item]
    assert order == ["a", "b"] * 3
    assert times == {"a": [3.0, 5.0], "b": [4.0, 6.0]}


def test_rotation_is_cold_where_time_allows() -> None:
    cache = 60 * 2**20
    big = timing.rotation(200 * 2**20, 50.0, cache)
    assert (big.sets, big.cold) == (2, True)
    small_sets = timing.rotation(2**20, 10.0, cache)
    assert small_sets.cold
    assert (small_sets.sets - 1) * 2**20 >= 2 * cache
    slow = timing.rotation(2**20, 10_000.0, cache)
    assert (slow.sets, slow.cold) == (6, False)


def test_series_use_every_set_equally_and_results_rotate() -> None:
    device = FakeDevice()
    used: list[int] = []

    def prepare(i: int) -> Any:
        return lambda: used.append(i)

    launches = timing.series(timing.Contestant(prepare, foreign=True), 100.0, 3, device)
    used.clear()
    launches.run()  # type: ignore[attr-defined]
    assert launches.count == 3
    assert used == [0, 1, 2]
    launches = timing.series(timing.Contestant(prepare, foreign=True), 10.0, 3, device)
    used.clear()
    launches.run()  # type: ignore[attr-defined]
    assert launches.count == 21
    assert [used.count(i) for i in range(3)] == [7, 7, 7]
    assert used[:6] == [0, 1, 2, 0, 1, 2]


def test_slow_launches_get_fewer_repeats() -> None:
    assert timing.repeats_for(15, [10.0, 20.0]) == 15
    assert timing.repeats_for(15, [10.0, 200_000.0]) == 3


def test_timed_sets_are_all_used_and_checked() -> None:
    device = FakeDevice()
    result = measured(small(), device)
    assert result.cold
    assert result.sets > 2
    assert all(made.count % result.sets == 0 for made in device.made if made.captured)


def test_tuning_takes_the_fastest_right_configuration() -> None:
    result = measured(convolutions.strict_problem(SMALL["dense"]), tune=3)
    assert_right(result)
    assert 1 <= len(result.tried) <= 3
    assert all("us" in row for row in result.tried)


def test_a_tuned_configuration_replaces_the_first_choice() -> None:
    problem = convolutions.strict_problem(SMALL["dense"])
    first = graphdnn.build(problem.graph, "cpu").name

    def clock(launches: FakeLaunches) -> float:
        if launches.foreign:
            return 20.0
        names = {call.func.__self__.name for call in launches.calls}
        return 10.0 if names == {first} else 5.0

    result = measured(problem, FakeDevice(clock), tune=6)
    assert result.tuned
    assert result.ours is not None
    assert result.first_choice is not None
    assert (result.ours.us, result.first_choice.us, result.ratio) == (5.0, 10.0, 4.0)


# Host figures.


def test_host_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "CALLS", 2)
    monkeypatch.setattr(host, "FRESH_BUILDS", 1)
    for case in host.HOST.cases:
        result = host.measure(host.HOST, case, FakeDevice(), Options(repeats=2))
        assert (result.status, result.reason) == ("ok", ""), case.name
        assert result.ours is not None
        assert result.ours.us > 0


def test_host_time_counts_calls_not_waiting() -> None:
    calls: list[str] = []
    times = host.in_turns({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, FakeDevice(), 3, 5)
    assert calls[:2] == ["a", "b"]
    assert calls[2:12] == ["a"] * 5 + ["b"] * 5
    assert times["a"].repeats == 3


def test_a_failing_new_process_is_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeDevice()
    device.engine_device = "no such device"  # type: ignore[misc]
    cold = next(case for case in host.HOST.cases if case.name.endswith("cold"))
    result = host.measure(host.HOST, cold, device, Options())
    assert result.status == "failed"
    assert "new process failed" in result.reason


# Results, table, files.


def example(**fields: Any) -> Result:
    time = Timed(10.0, 9.0, 11.0, 15, 20, captured=True)
    peer = PeerResult("conv2d", time=replace(time, us=25.0))
    part = PeerResult("alone", part=True, time=replace(time, us=5.0))
    plain: dict[str, Any] = {"status": "ok", "plan": "engine", "ours": time, "peers": [part, peer], "right": "1e-4"}
    return Result("g", "c", **plain | {"copy": replace(time, us=8.0), "flops": 10**9} | fields)


def test_result_survives_a_file() -> None:
    result = example(ratio_low=2.4, ratio_high=2.6, cold=True)
    data = json.loads(json.dumps(result.to_json()))
    assert result_from_json(data) == result
    assert data["ratio"] == 2.5
    assert data["share_of_copy"] == pytest.approx(0.8)
    assert data["tera_flops"] == pytest.approx(100)


def test_the_table_says_what_is_special() -> None:
    text = table.line(example(ratio_low=2.4, ratio_high=2.6, cold=False, repeatable=False, tuned="engine_k40=128"))
    for word in ("2.50", "2.40-2.60", "1.25", "100.0", "engine_k40=128", "warm", "bits differ", "alone 5.0"):
        assert word in text
    assert "host" not in table.line(example(status="skipped", ours=None, copy=None, peers=[], reason="late"))
    assert "late" in table.line(example(status="skipped", ours=None, copy=None, peers=[], reason="late"))


def test_the_summary_counts_and_averages() -> None:
    slow = example(ours=Timed(100.0, 100.0, 100.0, 1, 1, captured=True))
    text = table.summary([example(), slow, Result("g", "d", reason="x")])
    assert "2 ok, 1 failed" in text
    assert "1 below 1" in text
    assert "0.79" in text
    assert "first choice" not in text


def test_the_summary_says_what_the_ranking_lost() -> None:
    """A first choice that nothing beat counts as 1; without another one tried there is nothing to say."""
    tried = [{"plan": "a"}, {"plan": "b"}]
    better = example(tried=tried, first_choice=Timed(20.0 * 1.21, 24.0, 25.0, 1, 1, captured=True))
    text = table.summary([replace(better, ours=Timed(20.0, 20.0, 20.0, 1, 1, captured=True)), example(tried=tried)])
    assert "first choice / best tried: 1.100, at worst 1.21" in text
    assert example(tried=tried[:1]).regret is None


def test_the_report_has_versions_and_method(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "gpu_g.json"
    report.write(path, report.about({"device": "fake"}, "g", "title"), [example(), Result("g", "d")])
    data = json.loads(path.read_text())
    assert data["device"] == "fake"
    assert "poisoned" in data["method"]
    assert data["geometric_mean_ratio"] == pytest.approx(2.5)
    assert [row["case"] for row in data["results"]] == ["c", "d"]


def test_parts_of_a_group_do_not_replace_its_results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tiny_groups(monkeypatch, [Case("first", small, quick=True), Case("second", small)])
    monkeypatch.setattr(run, "RESULTS", tmp_path)
    for part in ("--only=first", "--quick"):
        assert run.main(["tiny", "--repeats=2", part], FakeDevice) == 0
    assert not list(tmp_path.iterdir())
    assert run.main(["tiny", "--repeats=2"], FakeDevice) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["gpu_tiny.json"]


def test_repeats_follow_from_the_options() -> None:
    for flags, repeats in (([], 15), (["--quick"], 10), (["--quick", "--repeats=3"], 3)):
        assert run.Runner(run._parser().parse_args(flags), None).options.repeats == repeats


# The command.


def tiny_groups(monkeypatch: pytest.MonkeyPatch, cases: Sequence[Case], measure: Any = contest.measure) -> None:
    monkeypatch.setitem(groups.GROUPS, "tiny", (Group("tiny", "tiny cases", tuple(cases)), measure))


def test_one_failing_case_does_not_stop_the_rest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> Any:
        raise RuntimeError("bad case")

    tiny_groups(monkeypatch, [Case("first", small), Case("second", fail), Case("third", small)])
    assert run.main(["tiny", "--repeats=2", f"--json={tmp_path}"], FakeDevice) == 1
    data = json.loads((tmp_path / "gpu_tiny.json").read_text())
    assert [(r["case"], r["status"]) for r in data["results"]] == [
        ("first", "ok"), ("second", "failed"), ("third", "ok")
    ]  # fmt: skip
    assert "bad case" in capsys.readouterr().out


def test_the_time_limit_skips_what_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def slow() -> Any:
        time.sleep(0.3)
        return small()

    tiny_groups(monkeypatch, [Case("first", slow), Case("second", small)])
    assert run.main(["tiny", "--repeats=2", "--time-limit=0.2", f"--json={tmp_path}"], FakeDevice) == 0
    data = json.loads((tmp_path / "gpu_tiny.json").read_text())
    assert [r["status"] for r in data["results"]] == ["ok", "skipped"]
    assert "limit" in data["results"][1]["reason"]


def test_after_a_lost_context_child_processes_go_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    device = FakeDevice()

    def measure(group: Group, case: Case, device: Any, options: Options) -> Result:
        device.dead = case.name == "second"
        return Result(group.name, case.name, status="failed" if device.dead else "ok")

    asked: list[list[str]] = []

    def elsewhere(group: str, names: Sequence[str], *_: Any) -> Iterator[Any]:
        asked.append(list(names))
        yield isolation.ABOUT, {"device": "child"}
        for name in names:
            yield isolation.RESULT, Result(group, name, status="ok")

    tiny_groups(monkeypatch, [Case(n, small) for n in ("first", "second", "third")], measure)
    monkeypatch.setattr(isolation, "isolated", elsewhere)
    assert run.main(["tiny", f"--json={tmp_path}"], lambda: device) == 1
    assert asked == [["third"]]
    data = json.loads((tmp_path / "gpu_tiny.json").read_text())
    assert [r["status"] for r in data["results"]] == ["ok", "failed", "ok"]


def test_the_worker_reports_each_case_on_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny_groups(monkeypatch, [Case(n, small) for n in ("first", "second", "third")])
    assert run.main(["tiny", "--worker", "--cases=first,third", "--repeats=2"], FakeDevice) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(isolation.ABOUT)
    found = [result_from_json(json.loads(text.removeprefix(isolation.RESULT))) for text in lines[1:]]
    assert [(r.case, r.status) for r in found] == [("first", "ok"), ("third", "ok")]


def test_the_command_refuses_politely(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["nonsense"], FakeDevice) == 2
    assert "memory" in capsys.readouterr().err

    def nothing() -> Any:
        raise RuntimeError("PyTorch sees no GPU")

    assert run.main([], nothing) == 2
    assert "PyTorch sees no GPU" in capsys.readouterr().err


CHILD = """
import json, sys, time
sys.path[:0] = {path!r}
from gpu import isolation
from gpu.result import Result
for name in sys.argv[1].split(","):
    if name == "hangs":
        time.sleep(60)
    if name == "dies":
        sys.exit(7)
    print("noise")
    isolation.announce(isolation.RESULT, Result("g", name, status="ok").to_json())
    if name == "loses":
        sys.exit(isolation.CONTEXT_LOST)
"""


def test_children_that_hang_or_die_cost_one_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "START_SECONDS", 8.0)
    script = CHILD.format(path=[p for p in sys.path if p])
    names = ["a", "dies", "b", "loses", "c", "hangs", "d"]

    def command(rest: Sequence[str]) -> list[str]:
        return [sys.executable, "-c", script, ",".join(rest)]

    found = [content for _, content in isolation.isolated("g", names, command, limit=1.0)]
    assert [(r.case, r.status) for r in found] == [
        ("a", "ok"), ("dies", "failed"), ("b", "ok"), ("loses", "ok"), ("c", "ok"), ("hangs", "failed"), ("d", "ok")
    ]  # fmt: skip
    assert "status 7" in found[1].reason
    assert "nothing in" in found[5].reason


def test_children_stop_at_the_deadline() -> None:
    script = CHILD.format(path=[p for p in sys.path if p])
    found = list(
        isolation.isolated("g", ["a"], lambda rest: [sys.executable, "-c", script, "a"], 1.0, time.monotonic() - 1)
    )
    assert found == []


# The real device, on stand-ins for CuPy and PyTorch that note what is asked of them.


class Scope:
    def __init__(self, log: list[str], name: str) -> None:
        self.log, self.name, self.ptr = log, name, 1

    def __enter__(self) -> None:
        self.log.append(f"enter {self.name}")

    def __exit__(self, *_: object) -> None:
        self.log.append(f"leave {self.name}")


class StandInStream(Scope):
    def begin_capture(self) -> None:
        self.log.append("begin cupy")

    def end_capture(self) -> Any:
        self.log.append("end cupy")
        return SimpleNamespace(launch=lambda stream: self.log.append("launch cupy"))


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Any:
    """(CudaDevice, log of what happened)"""
    log: list[str] = []

    class Graph:
        def capture_begin(self, capture_error_mode: str) -> None:
            log.append("begin torch")

        def capture_end(self) -> None:
            log.append("end torch")

        def replay(self) -> None:
            log.append("launch torch")

    class Event:
        def __init__(self, enable_timing: bool) -> None: ...

        def record(self) -> None:
            log.append("record")

        def synchronize(self) -> None: ...

        def elapsed_time(self, other: Event) -> float:
            return 0.5

    part = SimpleNamespace
    fake_torch = part(
        zeros=lambda *_, **__: torch.zeros(1),
        version=part(cuda="13.0"),
        __version__="2",
        backends=part(cudnn=part(version=lambda: 91900)),
        cuda=part(
            is_available=lambda: True,
            ExternalStream=lambda pointer: Scope(log, "torch"),
            stream=lambda stream: stream,
            get_device_properties=lambda i: part(L2_cache_size=60 * 2**20, multi_processor_count=132),
            get_device_name=lambda i: "stand-in",
            CUDAGraph=Graph,
            Event=Event,
            _sleep=lambda cycles: log.append("spin"),
            synchronize=lambda: None,
            empty_cache=lambda: None,
        ),
    )
    fake_cupy = part(
        cuda=part(Stream=lambda non_blocking: StandInStream(log, "cupy")),
        get_default_memory_pool=lambda: part(free_all_blocks=lambda: None),
        __version__="14",
    )
    monkeypatch.setitem(sys.modules, "torch", fake_torch)
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy)
    return CudaDevice(), log


def test_graphdnn_is_captured_by_cupy_and_timed_between_events(cuda: Any) -> None:
    device, log = cuda
    launches = device.launches([lambda: log.append("call")] * 4, foreign=False)
    assert (launches.captured, launches.count) == (True, 4)
    inside = ["enter torch", "enter cupy", "begin cupy", *["call"] * 4, "end cupy", "leave cupy", "leave torch"]
    assert log == inside
    log.clear()
    assert launches.microseconds() == pytest.approx(125)
    assert log[2:-2] == ["spin", "record", "launch cupy", "record"]


def test_peers_are_captured_by_pytorch(cuda: Any) -> None:
    device, log = cuda
    launches = device.launches([lambda: log.append("call")], foreign=True)
    assert launches.captured
    assert log[2:-2] == ["begin torch", "call", "end torch"]
    log.clear()
    launches.run()
    assert log == ["launch torch"]


@pytest.mark.parametrize("foreign", [False, True])
def test_what_cannot_be_captured_is_timed_call_by_call(cuda: Any, foreign: bool) -> None:
    device, log = cuda

    def call() -> None:
        if "begin" in log[-1]:
            raise RuntimeError("not while capturing")
        log.append("call")

    launches = device.launches([call, call], foreign=foreign)
    assert not launches.captured
    assert any(entry.startswith("end") for entry in log)
    launches.microseconds()
    assert log[-6:] == ["record", "call", "call", "record", "leave cupy", "leave torch"]


def test_a_lost_context_is_not_hidden_by_the_fallback(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    device, _ = cuda
    monkeypatch.setattr(device, "is_alive", lambda: False)

    def call() -> None:
        raise RuntimeError("illegal memory access")

    with pytest.raises(RuntimeError, match="illegal"):
        device.launches([call], foreign=False)


def test_the_device_describes_itself(cuda: Any) -> None:
    device, _ = cuda
    about = device.about()
    assert device.is_alive()
    device.release()
    assert about["cudnn"] == 91900
    assert "cudnn 91900" in table.machine(about)


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32"])
def test_cupy_sees_pytorchs_memory_in_place(kind: str) -> None:
    cupy = pytest.importorskip("cupy")
    device = CudaDevice.__new__(CudaDevice)
    device._cupy = cupy
    spec = small(kind).inputs["x"]
    raw = torch.empty(spec.bytes, dtype=torch.uint8)
    array = device.array(raw, spec)
    dtype, shape, strides = binding_layout(spec)
    assert (array.dtype, array.shape, array.strides, array.data.ptr) == (dtype, shape, strides, raw.data_ptr())


def test_types_of_every_problem_have_memory() -> None:
    kinds = {DataType.HALF, DataType.BFLOAT16, DataType.FLOAT, DataType.INT8, DataType.INT16, DataType.INT64}
    assert kinds <= set(TORCH_TYPES)

"""Tuning on the host: the fastest right candidate wins, and no candidate can stop, spoil or delay the run."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import tuning_faulty_engines

from graphdnn import BadParam, NotSupported, OperationGraph, device_spec, rank
from graphdnn.cuda import nvrtc
from graphdnn.cuda.cache_maintenance import stored
from graphdnn.engines import Engine
from graphdnn.engines.numpy_blocked import ENGINE as BLOCKED
from graphdnn.engines.numpy_general import ENGINE as NUMPY
from graphdnn.errors import ExecutionFailed
from graphdnn.problem import parse
from graphdnn.tuning import Tuned, Verdict, autotune
from graphdnn.tuning.startup import means_gpu
from graphdnn.tuning.workers import worker_process
from graphdnn.tuning.workers.compile_ahead import CompileAhead


@pytest.fixture(scope="module", autouse=True)
def _workers() -> Iterator[None]:
    """Workers find the module with the misbehaving engines where this process does; one BLAS thread is enough."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENBLAS_NUM_THREADS", "1")
        yield
    worker_process._end()


def small() -> OperationGraph:
    return parse("conv x=f32[1,4,8,8] w=f32[4,4,3,3] pad=1 + relu").build_operation_graph()


def tuned_with(*names: str, budget: float = 8.0, **options: Any) -> Tuned:
    engines = tuple(tuning_faulty_engines.ENGINES[name] for name in names)
    return autotune(
        small(),
        budget=budget,
        engines=(*engines, NUMPY),
        initializer="tuning_faulty_engines",
        any_class=True,
        **options,
    )


def verdicts(tuned: Tuned) -> dict[str, Verdict]:
    return {trial.name: trial.verdict for trial in tuned}


def test_knobs_are_tried_and_the_result_runs() -> None:
    graph = parse("conv x=f32[2,32,28,28] w=f32[32,32,3,3] pad=1 + relu").build_operation_graph()
    tuned = autotune(graph, budget=30.0, most=3, engines=(BLOCKED,), initializer="tuning_faulty_engines")
    assert len(tuned) == 3
    assert len({t.config.choices[0].knobs[BLOCKED.knobs[0].type] for t in tuned}) == 3
    first = tuned.trials[0]
    assert first.verdict is Verdict.FASTEST
    assert first.interval is not None
    assert 0 < first.interval.low <= first.interval.median <= first.interval.high < float("inf")
    assert all(t.interval is not None for t in tuned)
    assert tuned.plan.config is tuned.best
    text = str(tuned)
    assert "fastest" in text
    assert "95 % interval" in text
    data = json.loads(json.dumps(tuned.to_json()))
    assert (data["format"], data["version"], data["best"]) == ("graphdnn.tuned", 1, first.name)
    assert len(data["trials"]) == len(tuned)


# What each of the misbehaving engines ends with, and words of the reason.
REASONS = {
    "compiles_not": (Verdict.RAISED, "RuntimeError: nothing compiles here"),
    "raises": (Verdict.RAISED, "ZeroDivisionError: one by nothing"),
    "exhausts_memory": (Verdict.MEMORY, "host.memory"),
    "is_wrong": (Verdict.WRONG, "largest difference"),
    "leaves_some_out": (Verdict.WRONG, "nan"),
    "wrong_later": (Verdict.WRONG, "largest difference"),
    # These take the process with them.
    "exits": (Verdict.CRASHED, "ended with code 7"),
    "kills_itself": (Verdict.CRASHED, "SIGKILL"),
    "crashes": (Verdict.CRASHED, "SIGSEGV"),
    "spoils_inputs": (Verdict.WRONG, "wrote to its inputs: uid 1"),
    "hangs": (Verdict.TIMED_OUT, "no answer within 1.5 s"),
    "hangs_later": (Verdict.TIMED_OUT, "no answer within 1.5 s"),
}
SHORT = ("raises", "exhausts_memory", "leaves_some_out", "wrong_later", "exits", "hangs_later")


@pytest.mark.parametrize("names", [SHORT, pytest.param(tuple(REASONS), marks=pytest.mark.long)], ids=("short", "all"))
def test_what_misbehaves_has_its_verdict_and_cannot_win(names: tuple[str, ...]) -> None:
    tuned = tuned_with(*names, budget=30.0, candidate_seconds=1.5)
    found = {trial.name: trial for trial in tuned}
    assert set(found) == {*names, "numpy"}
    assert tuned.best.name == "numpy"
    for name in names:
        verdict, words = REASONS[name]
        assert found[name].verdict is verdict, found[name].reason
        assert words in found[name].reason
        assert found[name].verdict.is_fault
        assert found[name].interval is None


def test_every_engine_that_misbehaves_has_its_row() -> None:
    assert set(REASONS) == set(tuning_faulty_engines.ENGINES) - {
        "prints",
        "steady",
        "bimodal",
        "wrong_inside",
        "slow",
        "writes_zeros",
        "is_one_percent_off",
    }


def test_what_is_wrong_on_an_image_that_was_not_looked_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is found when it is to win, and the slower one that is right wins."""
    monkeypatch.setattr(sys.modules["graphdnn.tuning.verification.reference"], "_FIRST", 0.0)
    tuned = autotune(
        parse("conv x=f32[5,4,8,8] w=f32[4,4,3,3] pad=1 + relu").build_operation_graph(), budget=20.0,
        any_class=True, initializer="tuning_faulty_engines",
        engines=tuple(tuning_faulty_engines.ENGINES[name] for name in ("wrong_inside", "steady")),
    )  # fmt: skip
    assert verdicts(tuned) == {"steady": Verdict.FASTEST, "wrong_inside": Verdict.WRONG}
    assert "largest difference 1" in tuned.trials[1].reason
    assert tuned.checked == "in full"


@pytest.mark.long
def test_two_speeds() -> None:
    """Its fast executions alone would win; its median does not."""
    tuned = autotune(
        small(), budget=3.0, any_class=True, initializer="tuning_faulty_engines",
        engines=tuple(tuning_faulty_engines.ENGINES[name] for name in ("bimodal", "steady")),
    )  # fmt: skip
    assert tuned.best.name == "steady"


def test_what_takes_longer_than_the_budget_is_executed_three_times() -> None:
    """Checked, timed, and looked at again: without executions that warm up, and without a race of one."""
    engines = (tuning_faulty_engines.ENGINES["slow"],)
    tuned = autotune(small(), budget=0.3, any_class=True, initializer="tuning_faulty_engines", engines=engines)
    first = tuned.trials[0]
    assert first.verdict is Verdict.FASTEST
    assert first.median == pytest.approx(tuning_faulty_engines.SLOW, rel=0.5)
    assert 3 <= tuned.spent.kernels / tuning_faulty_engines.SLOW < 4
    assert tuned.stopped == "every candidate was tried; the race ended with the time"


def test_what_kernels_print_disturbs_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    tuned = tuned_with("prints", budget=2.0)
    assert not any(t.verdict.is_fault for t in tuned)
    assert capfd.readouterr() == ("", "")


def test_a_process_that_does_not_start() -> None:
    with pytest.raises(ExecutionFailed, match="No module named 'no_such_module'") as caught:
        autotune(small(), budget=0.5, initializer="no_such_module")
    assert caught.value.rejections[0].rule == "tuning.process"


def test_no_process_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python that is inside another program names no interpreter, or one that is not there."""
    worker_process._end()
    monkeypatch.setattr(sys, "executable", "/nothing/is/here")
    with pytest.raises(ExecutionFailed, match="no process starts"):
        autotune(small(), budget=0.5)
    CompileAhead(is_useful=True).close()


def test_nothing_left() -> None:
    tuned = autotune(
        small(), budget=2.0, initializer="tuning_faulty_engines", engines=(tuning_faulty_engines.ENGINES["is_wrong"],)
    )
    with pytest.raises(NotSupported) as caught:
        tuned.plan
    assert caught.value.rejections[0].rule == "tuning.none_left"
    assert tuned.to_json()["best"] is None
    assert "wrong result" in str(tuned)


def test_kernels_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: arrays copied there and back, results judged beside the search, equal kernels found out."""
    monkeypatch.setattr(sys.modules["graphdnn.tuning.tuner"], "_ordinal", lambda device: None)
    # Engines that do not state what settings launch, so that two settings have one kernel.
    monkeypatch.setattr(Engine, "effective_knobs", lambda self, task, knobs: knobs)
    graph = parse("conv x=f32[1,4,8,8] w=f32[4,4,3,3] + relu").build_operation_graph()
    tuned = autotune(
        graph, "a100", budget=60.0, most=4, initializer="tuning_emulated_worker", without=("layout_transform",)
    )
    found = {t.verdict for t in tuned}
    assert {Verdict.FASTEST, Verdict.SAME} <= found, str(tuned)
    assert not any(t.verdict.is_fault and t.verdict is not Verdict.REFUSED for t in tuned), str(tuned)
    assert tuned.trials[0].kernels == len(tuned.plan.launches)  # type: ignore[attr-defined]


def test_what_reaches_the_floor_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can beat a candidate that takes the least time the device could."""
    monkeypatch.setattr(sys.modules["graphdnn.tuning.search"], "_floor", lambda config: 1e-9)
    tuned = autotune(small(), budget=20.0, initializer="tuning_faulty_engines", tie=1e9)
    assert len(tuned) == 1
    assert tuned.stopped == "no candidate can be faster than 0.001 us on this device"


def test_the_builder_takes_the_fastest() -> None:
    graph = parse("conv x=f32[2,32,28,28] w=f32[32,32,3,3] pad=1 + relu")
    graph.deselect_engines(["k2=3"])
    tuned = graph.autotune(budget=20.0, most=4, initializer="tuning_faulty_engines")
    assert graph.plan.name == tuned.best.name
    assert not any("k2=3" in t.name for t in tuned)
    assert graph.build() is graph.plan


def test_kernels_are_compiled_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process of their own, for whoever shares the folder; one that is gone is no loss."""
    if nvrtc_missing():
        pytest.skip("no NVRTC")
    monkeypatch.setenv("GRAPHDNN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("graphdnn.tuning.workers.compile_ahead._CORES", 1)
    device = device_spec("a100")
    first, other = islice(rank(small(), device), 2)
    ahead = CompileAhead(is_useful=True)
    ahead.offer([first])
    ahead.offer([first])
    generated, *compiled = ahead.wait(first, 60.0)
    assert compiled
    for began, ended in compiled:
        assert generated[0] < generated[1] <= began < ended < generated[0] + 60
    until = time.monotonic() + 60
    while len(stored(tmp_path)) < 3:  # with the kernels that look at results
        assert time.monotonic() < until
        time.sleep(0.05)
    assert ahead._process is not None
    os.kill(ahead._process._process.pid, signal.SIGKILL)
    ahead.offer([other])
    assert ahead.wait(other, 1.0) == []
    assert ahead._process is None
    ahead.close()


def test_processes_for_a_gpu_are_started_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRAPHDNN_DEVICE", raising=False)
    meant = [means_gpu(d) for d in (None, "cpu", "CPU", "cuda:1", "h200", device_spec("a100"))]
    assert meant == [False] * 3 + [True] * 3
    with pytest.raises(BadParam, match="device = 3, expected one of cpu"):
        autotune(small(), 3, budget=0.5)  # type: ignore[arg-type]
    monkeypatch.setenv("GRAPHDNN_DEVICE", "cuda")
    assert means_gpu(None)


def nvrtc_missing() -> bool:
    try:
        nvrtc.loaded_version()
    except NotSupported:
        return True
    return False


def test_the_current_folder_is_none_of_the_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of a name like that of the standard library is not taken for it."""
    for name in ("json", "hashlib", "numpy"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(99)\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    process = worker_process.WorkerProcess()
    process.ask({"do": "close", "key": 0}, 60.0)
    process.kill()

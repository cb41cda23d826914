"""A run beside an earlier one, kernels beside the first choice, and plans that are built before measuring."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from benchmark_fakes import FakeDevice, example, measured, small
from cuda_comparison import compiler
from gpu import contest, earlier
from gpu.convolutions import DIRECT
from gpu.kernels import every_kernel
from gpu.options import Options
from gpu.prebuild import prebuild
from gpu.problem import Case, Group
from gpu.result import Result
from gpu.timing import Timed

from graphdnn import Filters
from graphdnn.device.profiles import device_spec
from graphdnn.enums import KnobType
from graphdnn.fusion import fuse

pytestmark = pytest.mark.torch


def _took(case: str, us: float) -> Result:
    time = Timed(us, us, us, 15, 20, captured=True)
    return replace(example(), group="dense", case=case, ours=time)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An earlier run: two cases of 10 microseconds, and one without a time."""
    rows = [_took("a", 10.0).to_json(), _took("b", 10.0).to_json(), replace(example(ours=None), case="c").to_json()]
    (tmp_path / "gpu_dense.json").write_text(json.dumps({"results": rows}), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("results", "is_slower"),
    [
        ([_took("a", 10.0), _took("b", 10.0)], False),
        ([_took("a", 10.1), _took("b", 10.1)], False),
        ([_took("a", 10.0), _took("b", 10.5)], True),
        ([_took("a", 5.0), replace(_took("b", 1.0), status="wrong", ours=None)], True),
        ([_took("a", 10.0), replace(_took("b", 1.0), status="skipped", ours=None)], False),
        ([_took("another", 1.0)], True),
        ([replace(_took("a", 1.0), group="no file")], True),
        ([], True),
    ],
    ids=["equal", "noise", "slower", "lost", "not measured", "nothing in common", "no file", "nothing"],
)
def test_a_slower_run_is_found(results: list[Result], is_slower: bool, folder: Path) -> None:
    assert earlier.is_slower(earlier.compare(results, folder)) is is_slower


def test_the_first_choice_is_compared(folder: Path) -> None:
    """Another configuration that was tried beside it does not hide a first choice that became slower."""
    slow = replace(_took("a", 9.0), first_choice=_took("a", 20.0).ours)
    (comparison,) = earlier.compare([slow], folder)
    assert comparison.ratios == {"a": 0.5}


def test_a_run_alone_has_no_peers() -> None:
    result = measured(small(), FakeDevice(), alone=True)
    assert (result.status, result.peers, result.copy) == ("ok", [], None)
    assert result.ours is not None


def test_every_kernel_is_tried_once() -> None:
    h200 = device_spec("h200")
    problem = next(case for case in DIRECT.cases if case.name == "g4_5x5_fprop").describe()
    configs = list(every_kernel(fuse(problem.graph), h200, Filters()))
    names = [config.name for config in configs]
    assert len(names) == len(set(names)) > 4
    kernels = {c.choices[0].knobs[KnobType.KERNEL_CFG] for c in configs if c.choices[0].engine.name == "cuda_direct"}
    assert {1, 2} <= kernels


def test_kernels_of_a_group_take_part() -> None:
    group = Group("test", "test", (), every_kernel=True)
    result = contest.measure(group, Case("case", small), FakeDevice(), Options(repeats=2))
    assert result.status == "ok"
    assert result.tried


@compiler
def test_prebuilding_compiles_and_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHDNN_CACHE_DIR", str(tmp_path))
    counts = prebuild(
        [("dense", "c5_3x3_f16"), ("memory", "relu_f16_nhwc"), ("host", "execute")], device_spec("h200"), 1
    )
    assert counts == {"built": 2, "failed": 0}
    assert any(tmp_path.rglob("*"))

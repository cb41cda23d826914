"""What building a plan does not do: load what ``prepare`` has loaded, open a library, write a known text again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from problems import tensor
from repository import ROOT

from graphdnn import OperationGraph, build, device_spec, prepare, rank
from graphdnn.cuda import kernel_cache
from graphdnn.cuda.nvrtc import KernelText
from graphdnn.enums import PointwiseMode
from graphdnn.operations import PointwiseOperation, PointwiseSpec
from graphdnn.plan import DevicePlan
from graphdnn.problem import parse

FRESH = """
import json, sys
from graphdnn import build, prepare
from graphdnn.problem import parse
graph = parse("conv x=f16[1,16,8,8]nhwc w=f16[16,16,3,3]nhwc pad=1 + bias + relu").build_operation_graph()
prepare(sys.argv[1])
before = set(sys.modules)
build(graph, sys.argv[1])
print(json.dumps([sorted(set(sys.modules) - before), "cuda.bindings.nvrtc" in sys.modules]))
"""


def test_prepare_gives_the_device() -> None:
    assert prepare("h200") is device_spec("h200")
    assert prepare("cpu").kind == prepare().kind == "cpu"


@pytest.mark.skipif(find_spec("cuda") is None, reason="needs cuda-bindings")
@pytest.mark.parametrize("device", ["h200", "cpu"])
def test_the_first_plan_of_a_process_loads_nothing(device: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GRAPHDNN_CACHE_DIR": str(tmp_path)}
    runs = [
        subprocess.run(
            [sys.executable, "-c", FRESH, device], capture_output=True, text=True, env=environment, check=True
        )
        for _ in range(2)
    ]
    loaded, opened = json.loads(runs[1].stdout)
    assert not loaded
    assert not opened, "the compiler, when the kernel is kept"


def kernel_texts(text: str) -> list[KernelText]:
    plan = build(parse(text).build_operation_graph(), "h200")
    assert isinstance(plan, DevicePlan)
    return [launch.text for launch in plan.launches]


@pytest.mark.parametrize(
    "text",
    [
        "conv x=f16[{n},16,8,8]nhwc w=f16[16,16,3,3]nhwc pad=1 + bias + relu",
        "conv x=f32[{n},16,8,8] w=f32[16,16,3,3] pad=1 + bias",
        "matmul a=f32[{n},64,64] b=f32[{n},64,64] + relu",
        "reduce add x=f32[{n},64,64] y=[1,64,64]",
    ],
)
def test_another_shape_has_the_same_text(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The object itself: neither the text nor what it is known by in the kernel cache is worked out again."""
    monkeypatch.setattr(kernel_cache, "default_cache", lambda: _Kept())
    first, second = (kernel_texts(text.format(n=n)) for n in (24, 26))
    assert [id(t) for t in first] == [id(t) for t in second]


class _Kept:
    """A kernel cache that has everything."""

    def load(self, kernel: KernelText, arch: str) -> kernel_cache.Cached:
        return kernel_cache.Cached(b"", "", "memory", 0.0)


def relu(name: str, **settings: float) -> OperationGraph:
    spec = PointwiseSpec(mode=PointwiseMode.RELU_FWD, math_type="f32", **settings)
    x, y = (tensor(uid, (4, 8), name=f"{name}{uid}") for uid in (1, 2))
    return OperationGraph.of([PointwiseOperation(spec=spec, x=x, y=y, name=name)])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("r", {"relu_lower_clip": 0.0}), ("r", {"relu_lower_clip": -0.0})),
        (("r", {"relu_upper_clip": 6.0}), ("r", {"relu_upper_clip": float("inf")})),
        (("r", {}), ("other name", {})),
    ],
)
def test_rankings_of_graphs_that_differ_are_kept_apart(first: Any, second: Any) -> None:
    a, b = (rank(relu(name, **settings), "cpu") for name, settings in (first, second))
    assert a is not b
    assert rank(relu(first[0], **first[1]), "cpu") is a
    assert rank(relu(second[0], **second[1]), "cpu") is b

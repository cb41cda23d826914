"""What building a plan does not do: load what ``prepare`` has loaded, open a library, write a known text again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from graphdnn import build, device_spec, prepare
from graphdnn.cuda import cache
from graphdnn.cuda.nvrtc import KernelText
from graphdnn.plan import DevicePlan
from graphdnn.problem import parse

ROOT = Path(__file__).resolve().parents[1]
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
    monkeypatch.setattr(cache, "default_cache", lambda: _Kept())
    first, second = (kernel_texts(text.format(n=n)) for n in (24, 26))
    assert [id(t) for t in first] == [id(t) for t in second]


class _Kept:
    """A kernel cache that has everything."""

    def load(self, kernel: KernelText, arch: str) -> cache.Cached:
        return cache.Cached(b"", "", "memory", 0.0)

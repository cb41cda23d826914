"""What building a plan does not do: it loads nothing that ``prepare`` has loaded, and opens no library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from graphdnn import device_spec, prepare

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

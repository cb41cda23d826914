"""What ends a process, or needs one of its own: a kernel that fails, a context of the caller's, PyTorch's allocator."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]

ROOT = Path(__file__).resolve().parents[2]
BEGIN = """
    import json, sys
    sys.path[:0] = ["tests", "tests/gpu"]
    import cupy
    from gpu_plans import SUM, THROUGH_WORKSPACE, arrays_for, expected, plan_for, results
    from graphdnn.errors import GraphdnnError

    def refused(call):
        try:
            call()
        except GraphdnnError as error:
            return [r.rule for r in error.rejections], getattr(error, "is_sticky", False), str(error)
        return [], False, ""

    graph, plan = plan_for(SUM)
    bound = arrays_for(graph, 0)
"""
with_torch = pytest.mark.skipif(find_spec("torch") is None, reason="no PyTorch")


def told(code: str, **variables: str) -> Any:
    """What ``code`` prints as JSON in its last line."""
    run = subprocess.run(
        [sys.executable, "-c", dedent(BEGIN) + dedent(code)], cwd=ROOT, timeout=120, capture_output=True, text=True,
        env=os.environ | variables,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-2000:]
    return json.loads(run.stdout.splitlines()[-1])


def test_a_kernel_that_reads_where_nothing_is() -> None:
    """With GRAPHDNN_VERBOSE the plan is named; afterwards everything on the device says so, and the host still works."""
    code = """
        other_graph, other = plan_for(THROUGH_WORKSPACE)
        arrays, workspace = arrays_for(other_graph, 0), other.new_workspace()
        captured = other.capture(arrays, workspace)
        x = next(uid for uid in bound if uid not in {t.uid for t in graph.outputs})
        nowhere = cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(1 << 44, 1 << 20, None, 0), 0)
        bound[x] = cupy.ndarray((64, 64), cupy.float32, nowhere)
        found = [refused(call) for call in (
            lambda: plan.execute(bound), captured.launch, lambda: other.execute(arrays, workspace),
            lambda: plan_for("pointwise x=f32[7,9] + relu + tanh"), other.new_workspace,
        )]
        from graphdnn import build
        from graphdnn.problem import random_bindings
        build(graph, "cpu").execute(random_bindings(graph, 0))
        print(json.dumps(found))
        sys.stdout.flush()
        import os
        os._exit(0)  # CuPy cannot free what it has any more
    """
    first, *later = told(code, GRAPHDNN_VERBOSE="1")
    assert first[:2] == [["cuda.driver.call"], True]
    assert "of plan cuda_pointwise: cuStreamSynchronize = CUDA_ERROR_ILLEGAL_ADDRESS (700)" in first[2]
    assert "earlier one" not in first[2]
    assert len(later) == 4
    for rules, is_sticky, text in later:
        assert (rules, is_sticky) == (["cuda.driver.call"], True)
        assert "or of an earlier one" in text


def test_a_context_of_the_callers_own() -> None:
    code = """
        from cuda.bindings import driver
        wanted = expected(graph, plan, 0)
        for _ in range(3):
            plan.execute(bound)
        device = driver.cuDeviceGet(0)[1]
        try:
            status, made = driver.cuCtxCreate(None, 0, device)
        except TypeError:  # of CUDA 12
            status, made = driver.cuCtxCreate(0, device)
        assert not int(status)
        found = refused(lambda: plan.execute(bound))[0] + refused(lambda: plan.execute(dict(bound)))[0]
        driver.cuCtxPopCurrent()
        plan.execute(bound)
        cupy.cuda.Device().synchronize()
        print(json.dumps([found, results(graph, bound) == wanted]))
    """
    assert told(code) == [["execute.other_context"] * 2, True]


@with_torch
def test_addresses_in_memory_that_grows_by_pieces() -> None:
    code = """
        import torch
        if not torch.cuda.is_available():
            print(json.dumps("no CUDA"))
            raise SystemExit
        graph, plan = plan_for("pointwise x=f32[4096,4096] + relu")
        (y,) = (t.uid for t in graph.outputs)
        tensors = [{t.uid: torch.randn(t.dims, device="cuda") for t in graph.bound} for _ in range(2)]
        torch.cuda.synchronize()
        right = []
        for given in tensors:
            plan.execute({uid: tensor.data_ptr() for uid, tensor in given.items()})
            torch.cuda.synchronize()
            (x,) = (tensor for uid, tensor in given.items() if uid != y)
            right.append(bool((given[y] == x.relu()).all()))
        small = torch.empty(1 << 20, device="cuda")
        far = small.data_ptr() + (1 << 40)
        print(json.dumps([right, refused(lambda: plan.execute({**given, y: far}))[0]]))
    """
    found = told(code, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
    if found == "no CUDA":
        pytest.skip("this PyTorch has no CUDA")
    assert found == [[True, True], ["binding.address"]]

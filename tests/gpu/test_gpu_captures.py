"""Captured plans: replays repeat their bits, outlive their plan, and nothing is loaded or given back in between."""

from __future__ import annotations

import ctypes
import gc

import numpy as np
import pytest
from gpu_plans import (
    CONVOLUTION,
    OF_LIBRARIES,
    SUM,
    THROUGH_WORKSPACE,
    arrays_for,
    expected,
    in_a_new_thread,
    plan_for,
    results,
)

from graphdnn.errors import BadParam

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]  # warnings of other libraries are theirs


@pytest.mark.parametrize("text", [CONVOLUTION, THROUGH_WORKSPACE])
def test_a_thousand_replays_give_equal_bits(text: str) -> None:
    import cupy

    graph, plan = plan_for(text)
    wanted, bound = expected(graph, plan, 0), arrays_for(graph, 0)
    captured = plan.capture(bound)
    reference = {uid: cupy.asarray(np.frombuffer(value, np.uint8)) for uid, value in wanted.items()}
    differences = cupy.zeros((), cupy.int64)
    for _ in range(1000):
        for uid in reference:
            bound[uid][...] = 0
        captured.launch()
        for uid, value in reference.items():
            differences += (cupy.ascontiguousarray(bound[uid]).reshape(-1).view(cupy.uint8) != value).sum()
    assert int(differences) == 0


def test_replays_read_what_memory_holds_then() -> None:
    import cupy

    graph, plan = plan_for(SUM)
    bound = arrays_for(graph, 0)
    captured = plan.capture(bound)
    (y,) = (bound[t.uid] for t in graph.outputs)
    inputs = [bound[t.uid] for t in graph.bound if t not in graph.outputs]
    for value in (1.0, 2.0):
        for array in inputs:
            array[...] = value
        captured.launch()
        assert bool((y == 2 * value).all())
    with cupy.cuda.Stream(non_blocking=True) as stream:
        captured.launch(stream)
        stream.synchronize()


def test_one_plan_captured_twice() -> None:
    """On the same arrays and on others; replays take turns, in streams of any form."""
    import cupy

    graph, plan = plan_for(THROUGH_WORKSPACE)
    wanted = [expected(graph, plan, seed) for seed in (0, 1)]
    bound = [arrays_for(graph, seed) for seed in (0, 1)]
    captured = [plan.capture(bound[0]), plan.capture(bound[1]), plan.capture(bound[0])]
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    for form in (stream, int(stream.ptr), ctypes.c_void_p(stream.ptr)):
        for arrays in bound:
            for t in graph.outputs:
                arrays[t.uid].fill(0)
        cupy.cuda.Device().synchronize()
        for one in captured:
            one.launch(form)
        stream.synchronize()
        assert [results(graph, arrays) for arrays in bound] == wanted


def test_execution_inside_the_users_own_capture() -> None:
    import cupy

    graph, plan = plan_for(THROUGH_WORKSPACE)
    wanted, bound, workspace = expected(graph, plan, 3), arrays_for(graph, 3), plan.new_workspace()
    cupy.cuda.Device().synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        plan.execute(bound, workspace)
        plan.execute(bound, workspace, stream)
        recorded = stream.end_capture()
    assert results(graph, bound) != wanted, "a capture runs nothing"
    recorded.launch(stream)
    stream.synchronize()
    assert results(graph, bound) == wanted


@pytest.mark.parametrize("engine", [None, "cuda_matmul_cublas", "cuda_fft"])
def test_a_graph_outlives_the_plan_it_was_captured_with(engine: str | None) -> None:
    """Kernels stay loaded, and what a library made for them stays as well, while others come and go."""
    import cupy

    text = OF_LIBRARIES.get(engine, CONVOLUTION)
    graph, plan = plan_for(text, engine)
    wanted, bound, workspace = expected(graph, plan, 5), arrays_for(graph, 5), plan.new_workspace()
    cupy.cuda.Device().synchronize()
    with cupy.cuda.Stream(non_blocking=True) as stream:
        stream.begin_capture()
        plan.execute(bound, workspace)
        recorded = stream.end_capture()
    del plan
    gc.collect()
    for _ in range(4):
        expected(*plan_for(text, engine), 6)
    for t in graph.outputs:
        bound[t.uid].fill(0)
    cupy.cuda.Device().synchronize()
    recorded.launch(stream)
    stream.synchronize()
    assert results(graph, bound) == wanted


@pytest.mark.parametrize("engine", [None, "cuda_matmul_cublas", "cuda_fft"])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_plan_goes_away_while_a_stream_is_captured(engine: str | None, elsewhere: bool) -> None:
    """The collector may find one at any time, in any thread; a capture of all threads forbids them to give back memory."""
    import cupy

    graph, plan = plan_for(SUM)
    wanted, bound = expected(graph, plan, 2), arrays_for(graph, 2)
    other, old = plan_for(OF_LIBRARIES.get(engine, CONVOLUTION), engine)
    expected(other, old, 0)
    kept = [old]
    del old
    with cupy.cuda.Stream(non_blocking=True) as stream:
        stream.begin_capture(cupy.cuda.runtime.streamCaptureModeGlobal)
        plan.execute(bound)
        if elsewhere:
            in_a_new_thread(kept.clear)
        kept.clear()
        plan_for(OF_LIBRARIES.get(engine, CONVOLUTION), engine)
        recorded = stream.end_capture()
    recorded.launch(stream)
    stream.synchronize()
    assert results(graph, bound) == wanted


def test_a_capture_inside_a_capture_is_refused() -> None:
    import cupy

    graph, plan = plan_for(SUM)
    bound = arrays_for(graph, 0)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        try:
            with pytest.raises(BadParam, match=r"capture\.nested"):
                plan.capture(bound)
        finally:
            stream.end_capture()


def test_a_new_plan_executes_first_inside_a_capture() -> None:
    """Nothing is loaded late: what a first execution would have to do is done when the plan is built."""
    import cupy

    graph, plan = plan_for("pointwise x=f32[37,53] + residual + tanh")
    bound = arrays_for(graph, 0)
    cupy.cuda.Device().synchronize()
    plan.capture(bound).launch()
    a, b = (bound[t.uid] for t in graph.bound if t not in graph.outputs)
    (y,) = (bound[t.uid] for t in graph.outputs)
    cupy.testing.assert_allclose(y, cupy.tanh(a + b), rtol=1e-5)

"""One plan in many threads and streams: each set of arrays gets its own results, in the order that the streams say."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from gpu_plans import (
    CONVOLUTION,
    SUM,
    THROUGH_WORKSPACE,
    arrays_for,
    device_array,
    expected,
    in_a_new_thread,
    plan_for,
    results,
)

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]  # warnings of other libraries are theirs


@pytest.mark.parametrize("text", [CONVOLUTION, THROUGH_WORKSPACE, SUM])
def test_one_plan_in_threads_on_streams_of_their_own(text: str) -> None:
    import cupy

    graph, plan = plan_for(text)
    wanted = [expected(graph, plan, seed) for seed in range(8)]
    found: list[list[dict[int, bytes]]] = [[] for _ in wanted]

    def work(seed: int) -> None:
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            bound, workspace = arrays_for(graph, seed), plan.new_workspace()
            for turn in range(40):
                for t in graph.outputs:
                    bound[t.uid][...] = -1
                plan.execute(bound, workspace, stream if turn % 2 else None)
                if turn % 8 == 7:
                    stream.synchronize()
                    found[seed].append(results(graph, bound))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(len(wanted))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed, all_of_one in enumerate(found):
        assert len(all_of_one) == 5
        assert all(one == wanted[seed] for one in all_of_one)


@pytest.mark.parametrize("text", [CONVOLUTION, THROUGH_WORKSPACE, SUM])
def test_sets_of_arrays_in_any_order(text: str) -> None:
    """More than a plan knows: the same arrays, views of them, their addresses, and new ones where others lay."""
    graph, plan = plan_for(text)
    wanted = [expected(graph, plan, seed) for seed in range(24)]
    sets, workspaces = [arrays_for(graph, seed) for seed in range(24)], [plan.new_workspace() for _ in range(3)]
    order = [turn % 3 for turn in range(30)] + [turn % 24 for turn in range(60)]
    order += [int(i) for i in np.random.default_rng(1).integers(0, 24, 60)]
    for turn, i in enumerate(order):
        if turn % 11 == 10:
            sets[i] = arrays_for(graph, i)  # the old ones' memory and identities are free for the next
        for t in graph.outputs:
            sets[i][t.uid][...] = -1
        given = {uid: array.view() for uid, array in sets[i].items()} if turn % 5 == 4 else dict(sets[i])
        if turn % 7 == 6:
            given = {uid: int(array.data.ptr) for uid, array in sets[i].items()}
        plan.execute(given, workspaces[turn % 3])
        assert results(graph, sets[i]) == wanted[i], turn


@pytest.mark.parametrize("text", [CONVOLUTION, THROUGH_WORKSPACE])
@pytest.mark.parametrize("seen_before", [False, True])
def test_a_thread_that_never_met_the_device(text: str, seen_before: bool) -> None:
    """Bare addresses and a stream's number: nothing in the thread has made a context current."""
    import cupy

    graph, plan = plan_for(text)
    wanted, bound, workspace = expected(graph, plan, 11), arrays_for(graph, 11), plan.new_workspace()
    stream = cupy.cuda.Stream(non_blocking=True)
    scratch = None if workspace is None else int(workspace.data.ptr)
    given = bound if seen_before else {uid: int(array.data.ptr) for uid, array in bound.items()}
    if seen_before:
        plan.execute(given, scratch, int(stream.ptr))
        stream.synchronize()
        for t in graph.outputs:
            bound[t.uid].fill(0)
    cupy.cuda.Device().synchronize()  # addresses do not say which stream fills what lies there
    in_a_new_thread(plan.execute, given, scratch, int(stream.ptr))
    stream.synchronize()
    assert results(graph, bound) == wanted


@pytest.mark.parametrize("text", [CONVOLUTION, THROUGH_WORKSPACE])
def test_known_arrays_in_the_default_stream_of_a_new_thread(text: str) -> None:
    import cupy

    graph, plan = plan_for(text)
    wanted, bound, workspace = expected(graph, plan, 13), arrays_for(graph, 13), plan.new_workspace()
    for _ in range(3):
        plan.execute(bound, workspace)
    for t in graph.outputs:
        bound[t.uid].fill(0)
    cupy.cuda.Device().synchronize()
    in_a_new_thread(plan.execute, bound, workspace)
    cupy.cuda.Device().synchronize()
    assert results(graph, bound) == wanted


@pytest.mark.parametrize("text", [CONVOLUTION, THROUGH_WORKSPACE])
def test_a_thread_that_never_met_the_device_captures(text: str) -> None:
    import cupy

    graph, plan = plan_for(text)
    wanted, bound = expected(graph, plan, 12), arrays_for(graph, 12)
    cupy.cuda.Device().synchronize()
    in_a_new_thread(plan.capture, bound).launch()
    cupy.cuda.Device().synchronize()
    assert results(graph, bound) == wanted


def test_one_thread_with_many_streams_and_workspaces() -> None:
    import cupy

    graph, plan = plan_for(THROUGH_WORKSPACE)
    wanted = [expected(graph, plan, seed) for seed in range(6)]
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in wanted]
    bound = [arrays_for(graph, seed) for seed in range(6)]
    workspaces = [plan.new_workspace() for _ in wanted]
    cupy.cuda.Device().synchronize()
    for _ in range(20):
        for arrays, workspace, stream in zip(bound, workspaces, streams, strict=True):
            plan.execute(arrays, workspace, stream.ptr)
    for stream in streams:
        stream.synchronize()
    assert [results(graph, arrays) for arrays in bound] == wanted


def test_execution_waits_for_the_producer_of_a_torch_tensor() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    import cupy

    graph, plan = plan_for(SUM)
    (y,) = (t.uid for t in graph.outputs)
    wide = torch.randn(4096, 4096, device="cuda")
    bound = {t.uid: torch.zeros(t.dims, device="cuda") for t in graph.bound}
    torch.cuda.synchronize()
    here = cupy.cuda.Stream(non_blocking=True)
    producer = torch.cuda.Stream()
    with torch.cuda.stream(producer):
        for _ in range(20):
            wide = wide @ wide * 1e-3
        for uid, tensor in bound.items():
            if uid != y:
                tensor.fill_(2.0)
        plan.execute(bound, None, here)
    here.synchronize()
    assert bool((bound[y] == 4).all())


def test_the_current_stream_is_the_default() -> None:
    """What was put into CuPy's current stream before comes before, and what comes after waits."""
    import cupy

    graph, plan = plan_for("pointwise x=f32[4096,4096] + relu")
    bound = {t.uid: device_array(t, None) for t in graph.bound}
    y = bound[graph.outputs[0].uid]
    (x,) = (array for array in bound.values() if array is not y)
    for _ in range(3):
        with cupy.cuda.Stream(non_blocking=True) as stream:
            x[...] = -1.0
            for _ in range(30):
                x += 1.0
            plan.execute(bound)
            total = y.sum()
            stream.synchronize()
            assert float(total) == 29.0 * y.size

"""An execution neither waits nor allocates, a thread that ends leaves nothing behind, and too little memory is said."""

from __future__ import annotations

import time
from typing import Any

import pytest
from gpu_plans import THROUGH_WORKSPACE, arrays_for, device_array, expected, in_a_new_thread, plan_for, results

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]  # warnings of other libraries are theirs


@pytest.mark.alone
def test_execution_neither_waits_nor_allocates() -> None:
    import cupy

    graph, plan = plan_for("pointwise x=f32[16384,16384] + relu")  # 2 GiB of traffic, half a millisecond and more
    bound = {t.uid: device_array(t, None) for t in graph.bound}
    stream = cupy.cuda.Stream(non_blocking=True)
    for _ in range(3):
        plan.execute(bound, None, stream)
    stream.synchronize()
    counted = _Counted()
    free = cupy.cuda.Device().mem_info[0]
    with counted:
        start = time.perf_counter()
        for _ in range(100):
            plan.execute(bound, None, stream)
        put = time.perf_counter() - start
        stream.synchronize()
        done = time.perf_counter() - start
    assert counted.calls == 0, "CuPy's pool was asked for memory"
    assert abs(cupy.cuda.Device().mem_info[0] - free) < 64 * 2**20  # the driver may have had needs of its own
    assert put < 0.5 * done, f"putting 100 launches took {put * 1e3:.1f} ms of {done * 1e3:.1f} ms"


def _counting_hook() -> Any:
    import cupy

    class Hook(cupy.cuda.memory_hook.MemoryHook):
        name = "count"

        def __init__(self) -> None:
            self.calls = 0

        def alloc_preprocess(self, **_: Any) -> None:
            self.calls += 1

        def malloc_preprocess(self, **_: Any) -> None:
            self.calls += 1

    return Hook()


class _Counted:
    """Counts what CuPy's allocator is asked for."""

    def __init__(self) -> None:
        self._hook = _counting_hook()

    @property
    def calls(self) -> int:
        return int(self._hook.calls)

    def __enter__(self) -> None:
        self._hook.__enter__()

    def __exit__(self, *rest: Any) -> None:
        self._hook.__exit__(*rest)


def test_a_plan_with_a_workspace_allocates_nothing() -> None:
    import cupy

    graph, plan = plan_for(THROUGH_WORKSPACE)
    bound, workspace = arrays_for(graph, 0), plan.new_workspace()
    plan.execute(bound, workspace)
    counted = _Counted()
    with counted:
        for _ in range(50):
            plan.execute(bound, workspace)
            plan.execute({uid: int(a.data.ptr) for uid, a in bound.items()}, workspace)
    cupy.cuda.Device().synchronize()
    assert counted.calls == 0


@pytest.mark.alone
def test_threads_that_end_leave_no_memory_of_a_library() -> None:
    import cupy

    graph, plan = plan_for("matmul a=f32[4,192,160] b=f32[4,160,136]", "cuda_matmul_cublas")
    bound, workspace = arrays_for(graph, 0), plan.new_workspace()
    plan.execute(bound, workspace)
    free: list[int] = []
    for _ in range(20):
        in_a_new_thread(plan.execute, bound, workspace)
        cupy.cuda.Device().synchronize()
        free.append(cupy.cuda.Device().mem_info[0])
    assert free[0] - free[-1] < 16 * 2**20


def test_no_memory_for_a_workspace() -> None:
    import cupy

    graph, plan = plan_for(THROUGH_WORKSPACE)
    assert plan.workspace_size > 0
    pool = cupy.get_default_memory_pool()
    bound = arrays_for(graph, 0)
    pool.free_all_blocks()
    limit = pool.get_limit()
    pool.set_limit(size=max(1, pool.total_bytes()))
    try:
        with pytest.raises(MemoryError, match=r"cuda\.memory"):
            [plan.new_workspace() for _ in range(100_000)]
    finally:
        pool.set_limit(size=limit)
    plan.execute(bound, plan.new_workspace())
    assert results(graph, bound) == expected(graph, plan, 0)

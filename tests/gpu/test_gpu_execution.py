"""What only a GPU can show: threads and streams, captures, arrays of other libraries, no waiting, no allocation."""

from __future__ import annotations

import ctypes
import gc
import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from graphdnn import ExecutionPlan, OperationGraph, build, rank
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.host.memory import binding_layout
from graphdnn.errors import BadParam, NotSupported
from graphdnn.plan import DevicePlan
from graphdnn.problem import parse
from graphdnn.tensors import TensorSpec

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]  # warnings of other libraries are theirs

CONVOLUTION = "conv x=f16[4,32,20,20]nhwc w=f16[64,32,3,3]nhwc pad=1 + bias + residual + relu"
# Two kernels at least, with a tensor or partial sums between them.
THROUGH_WORKSPACE = "conv x=f32[4,16,14,14] w=f32[16,16,3,3] pad=1 + relu -> reduce add [1,16,1,1]"
SUM = "pointwise x=f32[64,64] + residual"


# Problems for the engines that call a library.
OF_LIBRARIES = {
    "cuda_matmul_cublas": "matmul a=f32[2,96,64] b=f32[2,64,80]",
    "cuda_fft": "conv x=f32[2,8,20,20] w=f32[8,8,5,5] pad=2",
}


def plan_for(text: str, engine: str | None = None) -> tuple[OperationGraph, DevicePlan]:
    """The best plan, or one with an engine."""
    graph = parse(text).build_operation_graph()
    ranking = rank(graph, "cuda")
    configs = (c for c in ranking if engine in (None, *(choice.engine.name for choice in c.choices)))
    plan = ExecutionPlan(next(configs))
    assert isinstance(plan, DevicePlan)
    return graph, plan


def device_array(spec: TensorSpec, rng: np.random.Generator | None) -> Any:
    """A CuPy array as described, of random numbers or of NaN."""
    import cupy

    dtype, shape, strides = binding_layout(spec)
    memory = cupy.full(spec.bytes, 0xFF, cupy.uint8)
    array = cupy.ndarray(shape, dtype, memory.data, strides=strides)
    if rng is not None:
        element = ELEMENTS[spec.data_type]
        values = rng.standard_normal(shape) if element.kind == "float" else rng.integers(-9, 9, shape)
        array[...] = cupy.asarray(values.astype(dtype))
    return array


def arrays_for(graph: OperationGraph, seed: int) -> dict[int, Any]:
    rng = np.random.default_rng(seed)
    written = {t.uid for t in graph.outputs}
    return {t.uid: device_array(t, None if t.uid in written else rng) for t in graph.bound}


def results(graph: OperationGraph, bound: Mapping[int, Any]) -> dict[int, bytes]:
    return {t.uid: bound[t.uid].get().tobytes() for t in graph.outputs}


def expected(graph: OperationGraph, plan: DevicePlan, seed: int) -> dict[int, bytes]:
    import cupy

    bound = arrays_for(graph, seed)
    plan.execute(bound, plan.new_workspace())
    cupy.cuda.get_current_stream().synchronize()
    found = results(graph, bound)
    assert all(value[:4] != b"\xff\xff\xff\xff" for value in found.values()), "nothing was written"
    return found


# Concurrency.


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
    failed: list[BaseException] = []

    def work() -> None:
        try:
            plan.execute(given, scratch, int(stream.ptr))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not failed, failed
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
    failed: list[BaseException] = []

    def work() -> None:
        try:
            plan.execute(bound, workspace)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not failed, failed
    cupy.cuda.Device().synchronize()
    assert results(graph, bound) == wanted


@pytest.mark.parametrize("text", [CONVOLUTION, THROUGH_WORKSPACE])
def test_a_thread_that_never_met_the_device_captures(text: str) -> None:
    import cupy

    graph, plan = plan_for(text)
    wanted, bound, kept = expected(graph, plan, 12), arrays_for(graph, 12), []
    cupy.cuda.Device().synchronize()
    thread = threading.Thread(target=lambda: kept.append(plan.capture(bound)))
    thread.start()
    thread.join()
    kept[0].launch()
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


# Captures.


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
            thread = threading.Thread(target=kept.clear)
            thread.start()
            thread.join()
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


# Arrays of any library.


class Interface:
    """Nothing but ``__cuda_array_interface__``."""

    def __init__(self, array: Any) -> None:
        self.__cuda_array_interface__ = array.__cuda_array_interface__
        self._kept = array


class Exchanged:
    """Nothing but DLPack."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, **rest: Any) -> Any:
        return self._array.__dlpack__(**rest)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


FORMS = {
    "cupy": lambda a: a,
    "address": lambda a: int(a.data.ptr),
    "numpy integer": lambda a: np.uint64(a.data.ptr),
    "ctypes": lambda a: ctypes.c_void_p(a.data.ptr),
    "interface": Interface,
    "dlpack": Exchanged,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("text", [CONVOLUTION, THROUGH_WORKSPACE])
def test_arrays_in_every_form(text: str, form: str) -> None:
    import cupy

    graph, plan = plan_for(text)
    wanted, bound = expected(graph, plan, 1), arrays_for(graph, 1)
    workspace = plan.new_workspace()
    for _ in range(2):
        given = None if workspace is None else FORMS[form](workspace)
        plan.execute({uid: FORMS[form](array) for uid, array in bound.items()}, given)
    cupy.cuda.Device().synchronize()
    assert results(graph, bound) == wanted


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
def test_torch_tensors(kind: str) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    graph, plan = plan_for(f"pointwise x={kind}[33,65] + residual + relu")
    dtype = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[kind]
    bound = {t.uid: torch.randn(t.dims, dtype=dtype, device="cuda") for t in graph.bound}
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    for given in (torch.cuda.current_stream(), stream, stream.cuda_stream):
        (y,) = (t.uid for t in graph.outputs)
        bound[y].fill_(float("nan"))
        torch.cuda.synchronize()
        plan.execute(bound, None, given)
        torch.cuda.synchronize()
        a, b = (v for uid, v in bound.items() if uid != y)
        torch.testing.assert_close(bound[y], torch.relu(a + b))


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


# Asynchrony.


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


def test_a_plan_keeps_no_array_alive() -> None:
    import gc
    import weakref

    graph, plan = plan_for(SUM)
    bound = arrays_for(graph, 0)
    plan.execute(bound)
    watched = [weakref.ref(array) for array in bound.values()]
    del bound
    gc.collect()
    assert all(w() is None for w in watched)


def test_arrays_that_were_freed_are_not_taken_for_new_ones() -> None:
    """New arrays may get the identity of old ones; each has to be looked at."""
    import cupy

    graph, plan = plan_for(SUM)
    (y,) = (t.uid for t in graph.outputs)
    kept = []
    for i in range(200):
        bound = {t.uid: cupy.full(t.dims, float(i), cupy.float32) for t in graph.bound}
        plan.execute(bound)
        if i % 7 == 0:
            kept.append(bound)  # so that addresses vary
        assert float(bound[y][3, 5]) == 2.0 * i


def test_scalars_by_value_are_read_on_every_call() -> None:
    import cupy
    from problems import scalar, tensor

    from graphdnn.enums import PointwiseMode
    from graphdnn.operations import PointwiseOperation, PointwiseSpec

    spec = PointwiseSpec(mode=PointwiseMode.MUL, math_type="f32")
    op = PointwiseOperation(spec=spec, x=tensor(1, (300,)), b=scalar(2, 1), y=tensor(3, (300,)))
    plan = build(OperationGraph.of([op]), "cuda")
    x, y = cupy.arange(300, dtype=cupy.float32), cupy.empty(300, cupy.float32)
    for value in (2.0, -0.5, np.float32(3.0), np.array([7.0])):
        plan.execute({1: x, 2: value, 3: y})
        assert bool((y == x * float(np.asarray(value).reshape(()))).all())


def test_threads_that_end_leave_no_memory_of_a_library() -> None:
    import cupy

    from graphdnn import rank

    graph = parse("matmul a=f32[4,192,160] b=f32[4,160,136]").build_operation_graph()
    config = next(c for c in rank(graph, "cuda") if c.choices[0].engine.name == "cuda_matmul_cublas")
    plan = DevicePlan(config)
    bound, workspace = arrays_for(graph, 0), plan.new_workspace()
    plan.execute(bound, workspace)
    free: list[int] = []
    for _ in range(20):
        thread = threading.Thread(target=plan.execute, args=(bound, workspace))
        thread.start()
        thread.join()
        cupy.cuda.Device().synchronize()
        free.append(cupy.cuda.Device().mem_info[0])
    assert free[0] - free[-1] < 16 * 2**20


# Other devices, no memory.


def test_a_plan_for_another_device_is_refused() -> None:
    from graphdnn.cuda.present import present_device

    other = "a100" if present_device().compute_capability != (8, 0) else "h200"
    graph = parse(SUM).build_operation_graph()
    plan = build(graph, other)
    with pytest.raises(NotSupported, match=r"execute\.device_absent"):
        plan.execute(arrays_for(graph, 0))


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

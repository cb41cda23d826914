"""Two GPUs in one process: a plan belongs to one of them, and whatever is of the other is refused with nothing lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from gpu_plans import CONVOLUTION, THROUGH_WORKSPACE, arrays_for, expected, plan_for, results

from graphdnn import OperationGraph, build, rank
from graphdnn.cuda.driver_api import available, current_device, device_count
from graphdnn.errors import BadParam
from graphdnn.plan import DevicePlan
from graphdnn.problem import parse

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(bool(available()) or device_count() < 2, reason="needs two GPUs"),
]
MATMUL = "matmul a=f32[2,64,96] b=f32[2,96,80]"
TEXTS = [CONVOLUTION, THROUGH_WORKSPACE, MATMUL]
# Work of libraries, which goes wherever their handles and streams are.
LIBRARIES = {
    "cuda_matmul_cublas": "matmul a=f32[4,192,160] b=f32[4,160,136]",
    "cuda_fft": "conv x=f32[2,3,40,40] w=f32[4,3,9,9] pad=4",
}


@pytest.fixture(autouse=True)
def first() -> Iterator[None]:
    """Every test begins and ends where the first device is current."""
    import cupy

    with cupy.cuda.Device(0):
        yield
        assert current_device() == 0


def on(ordinal: int) -> Any:
    import cupy

    return cupy.cuda.Device(ordinal)


def plan_on(ordinal: int, text: str) -> tuple[OperationGraph, DevicePlan]:
    graph = parse(text).build_operation_graph()
    plan = build(graph, f"cuda:{ordinal}")
    assert isinstance(plan, DevicePlan)
    return graph, plan


def library_plan(ordinal: int, engine: str) -> tuple[OperationGraph, DevicePlan]:
    graph = parse(LIBRARIES[engine]).build_operation_graph()
    config = next(c for c in rank(graph, f"cuda:{ordinal}") if c.choices[0].engine.name == engine)
    return graph, DevicePlan(config)


@pytest.mark.parametrize("text", TEXTS)
def test_a_device_by_number(text: str) -> None:
    """Built where the first device is current, for the second: it is loaded there, and nothing of ours moves."""
    graph, plan = plan_on(1, text)
    assert plan.loaded_on == 1
    assert current_device() == 0
    wanted = expected(*plan_for(text), 3)
    with on(1):
        bound = arrays_for(graph, 3)
        plan.execute(bound, plan.new_workspace())
        on(1).synchronize()
        assert results(graph, bound) == wanted


@pytest.mark.parametrize("text", TEXTS)
def test_memory_made_by_a_plan_is_on_its_device(text: str) -> None:
    graph, plan = plan_on(1, text)
    made = [plan.new_array(t) for t in graph.bound] + [plan.new_workspace()]
    assert {array.device.id for array in made if array is not None} == {1}
    hosts = {uid: _host(array) for uid, array in arrays_for(graph, 4).items()}
    there = plan.to_device(hosts)
    with on(1):
        plan.execute(there, plan.new_workspace())
    back = plan.to_host(there)
    wanted = expected(*plan_for(text), 4)
    assert {uid: back[uid].tobytes() for uid in wanted} == wanted


def _host(array: Any) -> Any:
    """A copy in host memory with the same strides."""
    copy = np.ndarray(array.shape, array.dtype, strides=array.strides)
    copy[...] = array.get()
    return copy


@pytest.mark.parametrize("text", TEXTS)
def test_two_threads_each_on_its_own_device(text: str) -> None:
    wanted = expected(*plan_for(text), 5)
    failed: list[BaseException] = []

    def work(ordinal: int) -> None:
        try:
            with on(ordinal):
                graph, plan = plan_on(ordinal, text)
                bound, workspace = arrays_for(graph, 5), plan.new_workspace()
                for _ in range(50):
                    plan.execute(bound, workspace)
                on(ordinal).synchronize()
                assert results(graph, bound) == wanted
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(i % 2,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed


def test_a_plan_where_another_device_is_current() -> None:
    """Refused for new arrays and for those of the last call, and for arrays of either device."""
    graph, plan = plan_for(CONVOLUTION)
    wanted, mine = expected(graph, plan, 6), arrays_for(graph, 6)
    with on(1):
        theirs = arrays_for(graph, 6)
        for bound in (theirs, arrays_for(graph, 7), mine):
            with pytest.raises(BadParam, match=r"execute\.other_device"):
                plan.execute(bound, plan.new_workspace())
    plan.execute(mine, plan.new_workspace())
    on(0).synchronize()
    assert results(graph, mine) == wanted
    with on(1), pytest.raises(BadParam, match=r"execute\.other_device"):
        plan.execute(mine, plan.new_workspace())  # which were not looked at again
    plan.execute(mine, plan.new_workspace())
    on(0).synchronize()
    assert results(graph, mine) == wanted


@pytest.mark.parametrize("form", ["cupy", "torch", "address", "dlpack"])
def test_memory_of_the_other_device(form: str) -> None:
    graph, plan = plan_for(CONVOLUTION)
    wanted, bound = expected(graph, plan, 8), arrays_for(graph, 8)
    with on(1):
        theirs = arrays_for(graph, 8)
    for uid in bound:
        with pytest.raises(BadParam, match=r"binding\.(other_device|address)"):
            plan.execute({**bound, uid: _as(form, theirs[uid])}, plan.new_workspace())
    plan.execute(bound, plan.new_workspace())
    on(0).synchronize()
    assert results(graph, bound) == wanted


def _as(form: str, array: Any) -> Any:
    if form == "cupy":
        return array
    if form == "address":
        return array.data.ptr
    torch = pytest.importorskip("torch")
    if form == "torch":
        with torch.cuda.device(1), torch.cuda.stream(torch.cuda.Stream(1)):
            return torch.from_dlpack(array)

    class Bare:
        def __dlpack__(self, **options: Any) -> Any:
            return array.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return array.__dlpack_device__()

    return Bare()


def test_a_workspace_of_the_other_device() -> None:
    graph, plan = plan_for(THROUGH_WORKSPACE)
    wanted, bound = expected(graph, plan, 9), arrays_for(graph, 9)
    with on(1):
        other = plan_on(1, THROUGH_WORKSPACE)[1].new_workspace()
    with pytest.raises(BadParam, match=r"binding\.other_device"):
        plan.execute(bound, other)
    plan.execute(bound, plan.new_workspace())
    on(0).synchronize()
    assert results(graph, bound) == wanted


@pytest.mark.parametrize("text", TEXTS)
def test_a_stream_of_the_other_device(text: str) -> None:
    import cupy

    graph, plan = plan_for(text)
    wanted, bound = expected(graph, plan, 10), arrays_for(graph, 10)
    with on(1):
        stream = cupy.cuda.Stream(non_blocking=True)
    with pytest.raises(BadParam, match=r"execute\.other_stream"):
        plan.execute(bound, plan.new_workspace(), stream)
    on(0).synchronize()
    assert all(value.count(b"\xff") == len(value) for value in results(graph, bound).values()), "something was written"
    plan.execute(bound, plan.new_workspace())
    on(0).synchronize()
    assert results(graph, bound) == wanted


@pytest.mark.parametrize("engine", LIBRARIES)
def test_a_library_works_on_the_plans_device_only(engine: str) -> None:
    """Also with arrays of the last call, which are not looked at again."""
    import cupy

    graph, plan = library_plan(0, engine)
    bound, workspace = arrays_for(graph, 11), plan.new_workspace()
    for _ in range(3):
        plan.execute(bound, workspace)
    on(0).synchronize()
    wanted = results(graph, bound)
    with on(1):
        stream = cupy.cuda.Stream(non_blocking=True)
        for given in (None, stream):
            with pytest.raises(BadParam, match=r"execute\.other_device"):
                plan.execute(bound, workspace, given)
    for t in graph.outputs:
        bound[t.uid].fill(0)
    with pytest.raises(BadParam, match=r"execute\.other_stream"):
        plan.execute(bound, workspace, stream)
    on(0).synchronize()
    on(1).synchronize()
    assert not any(any(value) for value in results(graph, bound).values()), "something was written"
    plan.execute(bound, workspace, cupy.cuda.Stream(non_blocking=True))
    on(0).synchronize()
    assert results(graph, bound) == wanted
    there = library_plan(1, engine)[1]
    with on(1):
        theirs = arrays_for(graph, 11)
        there.execute(theirs, there.new_workspace(), stream)
        on(1).synchronize()
    assert results(graph, theirs) == wanted


@pytest.mark.parametrize("text", TEXTS)
def test_addresses_on_the_second_device(text: str) -> None:
    graph, plan = plan_on(1, text)
    wanted = expected(*plan_for(text), 13)
    with on(1):
        bound, workspace = arrays_for(graph, 13), plan.new_workspace()
        scratch = None if workspace is None else int(workspace.data.ptr)
        plan.execute({uid: int(array.data.ptr) for uid, array in bound.items()}, scratch)
        on(1).synchronize()
    assert results(graph, bound) == wanted


def test_a_capture_on_the_second_device() -> None:
    graph, plan = plan_on(1, CONVOLUTION)
    wanted = expected(*plan_for(CONVOLUTION), 12)
    with on(1):
        bound = arrays_for(graph, 12)
        captured = plan.capture(bound, plan.new_workspace())
        for _ in range(20):
            captured.launch()
        on(1).synchronize()
        assert results(graph, bound) == wanted


def test_what_the_driver_says_of_an_address() -> None:
    """An address of the second device, asked where the first is current: not one of the first's."""
    from graphdnn.cuda.allocations import allocation

    with on(1):
        import cupy

        memory = cupy.empty(1 << 20, cupy.uint8)
        assert allocation(memory.data.ptr) is not None
    assert allocation(memory.data.ptr) is None

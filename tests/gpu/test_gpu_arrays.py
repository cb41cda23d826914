"""Arrays of any library, in every form that names device memory, and scalars by value."""

from __future__ import annotations

import ctypes
import gc
import weakref
from typing import Any

import numpy as np
import pytest
from gpu_plans import CONVOLUTION, SUM, THROUGH_WORKSPACE, arrays_for, expected, plan_for, results
from problems import scalar, tensor

from graphdnn import OperationGraph, build
from graphdnn.enums import PointwiseMode
from graphdnn.operations import PointwiseOperation, PointwiseSpec

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]  # warnings of other libraries are theirs


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
def test_torch_tensors(torch: Any, kind: str) -> None:
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


@pytest.fixture
def torch() -> Any:
    found = pytest.importorskip("torch")
    if not found.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    return found


_CYCLES = 200_000_000  # of a spinning kernel: 0.1 s
_LARGE = "pointwise x=f32[64,1024,1024] + relu"


def _slow(torch: Any, like: Any) -> Any:
    """Ones, after work that takes the stream a tenth of a second."""
    torch.cuda._sleep(_CYCLES)
    return torch.ones_like(like)


def test_readers_of_tensors_need_no_stream(torch: Any) -> None:
    """Producer, execution and reader are in PyTorch's current stream, which is not CuPy's."""
    graph, plan = plan_for(_LARGE)
    (x,), (y,) = ([t.uid for t in graph.inputs], [t.uid for t in graph.outputs])
    shape = graph.tensors[x].dims
    with torch.cuda.stream(torch.cuda.Stream()):
        for i in range(3):
            given = {x: torch.zeros(shape, device="cuda"), y: torch.full(shape, -1.0, device="cuda")}
            given[y].sum()  # PyTorch loads a kernel when it is first launched, which may wait for the device
            torch.cuda.synchronize()
            given[x].copy_(_slow(torch, given[x]))
            plan.execute(given)
            read = given[y].sum()
            assert read.item() == given[x].numel(), f"call {i}"


def test_a_reader_in_another_stream_would_be_early(torch: Any) -> None:
    """The test above can fail: if another stream is stated, PyTorch reads the poison."""
    graph, plan = plan_for(_LARGE)
    (x,), (y,) = ([t.uid for t in graph.inputs], [t.uid for t in graph.outputs])
    shape = graph.tensors[x].dims
    with torch.cuda.stream(torch.cuda.Stream()):
        given = {x: torch.ones(shape, device="cuda"), y: torch.full(shape, -1.0, device="cuda")}
        other = torch.cuda.Stream()
        given[y].sum()
        torch.cuda._sleep(1)
        torch.cuda.synchronize()
        with torch.cuda.stream(other):
            torch.cuda._sleep(_CYCLES)
        plan.execute(given, None, other)
        assert given[y].sum().item() == -given[x].numel()


@pytest.mark.parametrize("by", ["graphdnn", "torch"])
def test_captures_of_tensors(torch: Any, by: str) -> None:
    graph, plan = plan_for("pointwise x=f32[33,65] + residual + relu")
    bound = {t.uid: torch.randn(t.dims, device="cuda") for t in graph.bound}
    (y,) = (t.uid for t in graph.outputs)
    a, b = (v for uid, v in bound.items() if uid != y)
    plan.execute(bound)
    torch.cuda.synchronize()
    if by == "graphdnn":
        replay = plan.capture(bound).launch
    else:
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            plan.execute(bound)
        replay = captured.replay
    for _ in range(2):
        a.normal_()
        bound[y].fill_(float("nan"))
        torch.cuda.synchronize()
        replay()
        torch.cuda.synchronize()
        torch.testing.assert_close(bound[y], torch.relu(a + b))


def test_a_plan_keeps_no_array_alive() -> None:
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

    spec = PointwiseSpec(mode=PointwiseMode.MUL, math_type="f32")
    op = PointwiseOperation(spec=spec, x=tensor(1, (300,)), b=scalar(2, 1), y=tensor(3, (300,)))
    plan = build(OperationGraph.of([op]), "cuda")
    x, y = cupy.arange(300, dtype=cupy.float32), cupy.empty(300, cupy.float32)
    for value in (2.0, -0.5, np.float32(3.0), np.array([7.0])):
        plan.execute({1: x, 2: value, 3: y})
        assert bool((y == x * float(np.asarray(value).reshape(()))).all())

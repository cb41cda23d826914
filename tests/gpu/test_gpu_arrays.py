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

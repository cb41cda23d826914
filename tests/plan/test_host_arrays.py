"""Arrays as callers have them, bound to a plan of the host: read as what they are, or refused; never read as something else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphdnn import BadParam, build
from graphdnn.dtypes import Array
from graphdnn.plan import HostPlan
from graphdnn.problem import parse

TEXTS = {
    "pointwise": "pointwise x=f32[8,6] + mul",
    "sum": "reduce add x=f32[8,6] y=[1,6]",
    "maximum": "reduce max x=f32[8,6] y=[8,1]",
    "norm": "norm layer x=f32[8,6]",
    "matmul": "matmul a=f32[8,6] b=f32[6,8]",
    "convolution": "conv x=f32[1,4,8,8] w=f32[4,4,3,3] pad=1 + relu -> reduce add [1,4,1,1]",
}


def case(name: str) -> tuple[HostPlan, dict[int, Any], set[int]]:
    """A plan, arrays of random numbers, and the uids of its outputs."""
    graph = parse(TEXTS[name]).build_operation_graph()
    plan = build(graph, "cpu")
    assert isinstance(plan, HostPlan)
    rng, outputs = np.random.default_rng(0), {t.uid for t in graph.outputs}
    arrays = {t.uid: plan.new_array(t) for t in graph.bound}
    for array in arrays.values():
        array[...] = rng.standard_normal(array.shape)
    return plan, arrays, outputs


class Loud(np.ndarray):
    """Whose arithmetic is not NumPy's."""

    def __array_ufunc__(self, *arguments: Any, **rest: Any) -> Any:
        raise AssertionError("a plan computes with what lies in memory")


def matrix(array: Array) -> Array:
    """Whose product is that of matrices, and whose axes are always two."""
    return array.view(np.matrix) if array.ndim == 2 else array


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize("kind", [matrix, lambda a: a.view(Loud), lambda a: a.view(np.ma.MaskedArray)])
@pytest.mark.parametrize("name", TEXTS)
def test_subclasses_are_their_memory(name: str, kind: Callable[[Array], Array]) -> None:
    plan, arrays, outputs = case(name)
    workspace = plan.new_workspace()
    plan.execute(arrays, workspace)
    wanted = {uid: arrays[uid].copy() for uid in outputs}
    for _ in range(2):
        for uid in outputs:
            arrays[uid].fill(np.nan)
        plan.execute(
            {uid: kind(array) for uid, array in arrays.items()}, None if workspace is None else kind(workspace)
        )
        for uid in outputs:
            np.testing.assert_array_equal(arrays[uid], wanted[uid])


def rules_of(call: Callable[[], Any]) -> list[str]:
    with pytest.raises(BadParam) as caught:
        call()
    return [rejection.rule for rejection in caught.value.rejections]


@pytest.mark.parametrize("uid", [1, 3])
def test_a_mask_is_not_passed_over(uid: int) -> None:
    plan, arrays, _ = case("pointwise")
    masked = np.ma.masked_array(arrays[uid], mask=arrays[uid] > 0)
    assert rules_of(lambda: plan.execute({**arrays, uid: masked})) == ["binding.kind"]
    plan.execute({**arrays, uid: masked.data})


class Raising:
    def __init__(self, error: Exception) -> None:
        self._error = error

    def __dlpack__(self, **rest: Any) -> Any:
        raise self._error

    @property
    def __array_interface__(self) -> Any:
        raise self._error


@pytest.mark.parametrize(
    "error", [KeyError("shape"), IndexError(1), OSError("gone"), Exception("odd"), StopIteration()]
)
def test_whatever_a_protocol_raises_is_the_reason(error: Exception) -> None:
    plan, arrays, _ = case("pointwise")
    assert rules_of(lambda: plan.execute({**arrays, 1: Raising(error)})) == ["binding.kind"]


def test_a_capsule_is_taken_once() -> None:
    plan, arrays, _ = case("pointwise")

    class Once:
        def __init__(self, array: Array) -> None:
            self._capsule, self._device = array.__dlpack__(), array.__dlpack_device__()

        def __dlpack__(self, **rest: Any) -> Any:
            return self._capsule

        def __dlpack_device__(self) -> Any:
            return self._device

    given = {**arrays, 1: Once(arrays[1])}
    plan.execute(given)
    assert rules_of(lambda: plan.execute(given)) == ["binding.kind"]


def test_a_tensor_that_is_the_negative_of_its_memory() -> None:
    torch = pytest.importorskip("torch")
    plan, arrays, _ = case("pointwise")
    negative = torch._neg_view(torch.from_numpy(arrays[1].copy()))
    assert rules_of(lambda: plan.execute({**arrays, 1: negative})) == ["binding.kind"]
    plan.execute({**arrays, 1: negative.resolve_neg()})


@pytest.mark.parametrize("given", [None, [], 5, "x", object()])
def test_what_is_no_mapping(given: Any) -> None:
    plan, _, _ = case("pointwise")
    assert rules_of(lambda: plan.execute(given)) == ["binding.mapping"]


@pytest.mark.parametrize("stream", [1, -1, "s", object(), np.array([1, 2]), True, 0.0])
def test_what_is_no_stream_of_the_host(stream: Any) -> None:
    plan, arrays, _ = case("pointwise")
    plan.execute(arrays, None, 0)
    assert rules_of(lambda: plan.execute(arrays, None, stream)) == ["execute.host_stream"]

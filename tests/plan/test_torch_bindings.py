"""PyTorch's tensors as arrays of a device plan: read at each call, and checked completely only where a layout is new.

The tensors are in host memory, where the emulator executes the kernels; PyTorch calls this device -1.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from emulator import MISSING
from emulator.runtime import EmulatedRuntime

from graphdnn import rank
from graphdnn.dtypes import Array
from graphdnn.errors import BadParam, Rejection
from graphdnn.plan import DevicePlan
from graphdnn.plan.binding_check import BindingCheck
from graphdnn.plan.binding_validation import Expected
from graphdnn.plan.device_arrays import shadow_at
from graphdnn.problem import parse

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)
OF_TORCH = 0x90  # its current stream
HOST = -1  # as ``Tensor.get_device()`` numbers it
TEXT = "pointwise x=f32[2,8,4,4] + bias + relu"


class Watched(EmulatedRuntime):
    """Counts the complete checks, and the orders that are asked of PyTorch's stream."""

    def __init__(self) -> None:
        super().__init__()
        self.checks, self.orders = 0, []  # type: ignore[var-annotated]

    def stream_of_torch(self, device: int) -> int:
        return OF_TORCH

    def order(self, producer: int, consumer: int) -> None:
        self.orders.append((producer, consumer))

    def shadows(
        self, expected: Sequence[Expected], arrays: Sequence[Any], stream: int
    ) -> tuple[list[Array], list[Rejection]]:
        self.checks += 1
        found = [t.detach().resolve_neg().numpy() for t in arrays]
        return [shadow_at(a.ctypes.data, a.dtype, a.shape, a.strides) for a in found], []


@pytest.fixture
def plan() -> DevicePlan:
    made = DevicePlan(rank(parse(TEXT).build_operation_graph(), "h200").best, Watched())
    made.load()
    made.loaded_on = HOST
    made._binding_check = BindingCheck(made._expected)  # not the one that all equal plans share
    made._find = made._binding_check.find
    return made


def aligned(shape: Sequence[int], fill: float | None = None) -> Any:
    """A tensor at an aligned address, as those of PyTorch's device allocator are."""
    count = int(np.prod(shape))
    raw = torch.empty(count + 64)
    found = raw[(-raw.data_ptr() % 256) // 4 :][:count].view(*shape)
    return found.normal_() if fill is None else found.fill_(fill)


def tensors(plan: DevicePlan) -> dict[int, Any]:
    """Inputs drawn, and a poisoned output."""
    return {e.spec.uid: aligned(e.spec.dims, float("nan") if e.is_output else None) for e in plan._expected}


def check(plan: DevicePlan, given: dict[int, Any]) -> None:
    plan.execute(given)
    x, b, y = (given[e.spec.uid] for e in sorted(plan._expected, key=lambda e: (e.is_output, -e.spec.bytes)))
    torch.testing.assert_close(y, torch.relu(x + b), rtol=0, atol=0)


def runtime(plan: DevicePlan) -> Watched:
    assert isinstance(plan._runtime, Watched)
    return plan._runtime


def test_one_complete_check_is_enough_for_other_tensors(plan: DevicePlan) -> None:
    kept = [tensors(plan) for _ in range(40)]
    for given in kept:
        check(plan, given)
    for given in kept[:3]:
        check(plan, given)
    assert runtime(plan).checks == 1
    assert runtime(plan).orders == [(OF_TORCH, OF_TORCH)] * 42, "once for each call, not for each tensor"


def test_parameters_are_tensors(plan: DevicePlan) -> None:
    for _ in range(2):
        given = tensors(plan)
        bias = min((e for e in plan._expected if not e.is_output), key=lambda e: e.spec.bytes).spec.uid
        given[bias] = torch.nn.Parameter(given[bias], requires_grad=False)
        check(plan, given)
    assert runtime(plan).checks == 1


def test_memory_that_a_tensor_changes_is_followed(plan: DevicePlan) -> None:
    """The same objects, other memory: a plan that knew them by identity would read the first memory."""
    given = tensors(plan)
    check(plan, given)
    for _ in range(3):
        before = {uid: t.data_ptr() for uid, t in given.items()}
        for uid, fresh in tensors(plan).items():
            given[uid].data = fresh
        assert all(given[uid].data_ptr() != address for uid, address in before.items())
        check(plan, given)
        gc.collect()
    assert runtime(plan).checks == 1


def _transposed(t: Any) -> Any:
    return t.transpose(2, 3)


def _longer(t: Any) -> Any:
    return t[:1]


def _double(t: Any) -> Any:
    return t.double()


@pytest.mark.parametrize("change", [_transposed, _longer, _double])
def test_other_layouts_are_refused_after_right_ones(plan: DevicePlan, change: Callable[[Any], Any]) -> None:
    given = tensors(plan)
    check(plan, given)
    x = max((e for e in plan._expected if not e.is_output), key=lambda e: e.spec.bytes).spec.uid
    given[x] = change(given[x])
    with pytest.raises(BadParam):
        plan.execute(given)
    assert runtime(plan).checks == 2


def _sparse(t: Any) -> Any:
    return t.to_sparse()


def _negative(t: Any) -> Any:
    return torch._neg_view(t)


class Subclass(torch.Tensor):  # type: ignore[misc]
    """Its values may be others than those in memory."""


def _subclass(t: Any) -> Any:
    return t.as_subclass(Subclass)


def _elsewhere(t: Any) -> Any:
    return t.to("meta")


@pytest.mark.parametrize("change", [_sparse, _negative, _subclass, _elsewhere])
def test_tensors_that_are_not_their_memory_pass_the_complete_check(
    plan: DevicePlan, change: Callable[[Any], Any]
) -> None:
    given = tensors(plan)
    check(plan, given)
    arrays = list(plan._pick(given))
    assert plan._binding_check.where(arrays, None, HOST, ()) is not None
    for i, array in enumerate(arrays):
        others = [*arrays[:i], change(array), *arrays[i + 1 :]]
        assert plan._binding_check.where(others, None, HOST, ()) is None


def test_tensors_of_another_device_and_shared_memory_pass_the_complete_check(plan: DevicePlan) -> None:
    given = tensors(plan)
    check(plan, given)
    arrays = list(plan._pick(given))
    assert plan._binding_check.where(arrays, None, 0, ()) is None
    x, y = (i for i, e in enumerate(plan._expected) if len(set(e.spec.dims)) > 2)
    assert plan._binding_check.where([arrays[y] if i == x else a for i, a in enumerate(arrays)], None, HOST, ()) is None


class OfAnother:
    """An array of another library."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def detach(self) -> Any:
        return self.tensor


@pytest.mark.parametrize("is_first", [True, False])
def test_outputs_decide_the_stream_unless_one_is_stated(plan: DevicePlan, is_first: bool) -> None:
    """The readers of outputs are in their library's stream; inputs may still be written in the other one."""
    seen: list[int] = []
    given = tensors(plan)
    if not is_first:
        plan.execute(given)
    for place in (*plan._free, *(b for p in plan._binding_cache.places.values() for b in p.blocks)):
        place.launches = [seen.append]  # type: ignore[list-item]
    plan.execute(given)
    plan.execute(given, None, 77)
    plan.execute({uid: OfAnother(t) for uid, t in given.items()})
    assert all(producer == OF_TORCH for producer, _ in runtime(plan).orders)
    runtime(plan).orders.clear()
    outputs = {e.spec.uid for e in plan._expected if e.is_output}
    written = {uid: t if uid in outputs else OfAnother(t) for uid, t in given.items()}
    plan.execute(written)
    assert (0, OF_TORCH) in runtime(plan).orders
    read = {uid: OfAnother(t) if uid in outputs else t for uid, t in given.items()}
    plan.execute(read)
    assert seen == [OF_TORCH, 77, 0, OF_TORCH, 0]
    assert plan.queue(None, given) == plan.queue(None, written) == OF_TORCH
    assert plan.queue(None, read) == 0
    assert plan.queue(None, {}) == plan.queue(0, given) == 0

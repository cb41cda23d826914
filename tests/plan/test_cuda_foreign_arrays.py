"""Arrays of other libraries on a device: what their interfaces promise, and in which order work is done."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from binding_rule_cases import ADDRESS, OneDevice, bound, device_plan, driver
from device_apis import rules_of
from legal_problems import IMAGE, operation, tensor

from graphdnn.plan.device_arrays import shadow_of, workspace_address

STREAM = 0x7000
CAPTURED = 0x8000  # a stream that is being captured


class OfTorch:
    """A CUDA tensor as far as plans look at one."""

    __module__ = "torch"
    is_cuda, device, dtype = True, SimpleNamespace(index=0), "torch.float32"

    def __init__(self, address: int = ADDRESS, shape: tuple[int, ...] = IMAGE, *, negative: bool = False) -> None:
        self._address, self.shape, self._negative = address, shape, negative

    def data_ptr(self) -> int:
        return self._address

    def stride(self) -> tuple[int, ...]:
        return tuple(int(np.prod(self.shape[i + 1 :])) for i in range(len(self.shape)))

    def is_neg(self) -> bool:
        return self._negative


class Sparse(OfTorch):
    __module__ = "torch"

    def data_ptr(self) -> int:
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage\nmore")


class Module:
    """Of PyTorch, and no tensor."""

    __module__ = "torch.nn"


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Its current stream is 9; the list has (producer, consumer) of every wait."""
    waits: list[tuple[int, int]] = []
    current = SimpleNamespace(current_stream=lambda device: SimpleNamespace(cuda_stream=9))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=current))
    monkeypatch.setattr("graphdnn.cuda.stream_order.is_capturing", lambda stream: stream == CAPTURED)
    monkeypatch.setattr("graphdnn.cuda.stream_order.wait_for", lambda *streams: waits.append(streams))
    monkeypatch.setattr("graphdnn.plan.device_arrays.data_type_of", _float)
    return waits


def _float(dtype: str) -> Any:
    from graphdnn.enums import DataType

    return DataType.FLOAT


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda: OfTorch(negative=True), "resolve_neg()"),
        (Sparse, "Cannot access data pointer"),
        (lambda: OfTorch(address=0), "no memory"),
        (Module, "neither an array nor an address"),
    ],
)
def test_tensors_that_are_not_their_memory(torch: list[Any], given: Callable[[], Any], words: str) -> None:
    plan = device_plan()
    with driver():
        shadow, found = shadow_of(plan._expected[0], given(), 0, STREAM)
        assert shadow is None
        assert found is not None
        assert found.rule == "binding.device_kind"
        assert words in found.reason
        assert rules_of(lambda: plan.execute(bound(plan, _1=given()))) == ["binding.device_kind"]
    assert not torch


def test_a_workspace_waits_for_its_producer(torch: list[tuple[int, int]]) -> None:
    """What PyTorch's stream still does with the memory comes before, in the stream of the execution."""
    memory = OfTorch(ADDRESS, (4096,))
    assert workspace_address(memory, 4096, 0, STREAM) == (ADDRESS, None)
    assert torch == [(9, STREAM)]
    workspace_address(memory, 4096, 0, 9)
    assert len(torch) == 1, "in one stream the order is there"
    workspace_address(memory, 4096, 0, CAPTURED)
    assert len(torch) == 1, "a recorded graph is launched later"


def test_a_plan_hands_its_stream_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    class Runtime(OneDevice):
        def workspace_address(self, workspace: Any, size: int, stream: int = 0) -> Any:
            seen.append(stream)
            return ADDRESS + (1 << 19), None

        def prepare(self, launch: Any, plan: str) -> Any:
            return SimpleNamespace(params=bytearray(launch.params.data), launch=lambda stream: None)

    total = tensor(11, (1, 4, 1, 1), is_virtual=True)
    plan = device_plan(
        operation("reduction", x=tensor(10, IMAGE), y=total),
        operation("pointwise", x=tensor(10, IMAGE), b=total, y=tensor(12, IMAGE)),
        runtime=Runtime,
    )
    assert plan.workspace_size
    with driver():
        plan.execute(bound(plan), object(), 77)
        plan.execute(bound(plan), object())
    assert seen == [77, 0]


class Interface:
    def __init__(self, *, read_only: bool, address: int = ADDRESS) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, read_only), "shape": IMAGE, "typestr": "<f4", "strides": None, "version": 3,
        }  # fmt: skip


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy, which takes what is read-only for writable."""

    def asarray(given: Any) -> Any:
        interface = given.__cuda_array_interface__
        strides = np.empty(interface["shape"], np.float32).strides
        memory = SimpleNamespace(ptr=interface["data"][0], device_id=0)
        return SimpleNamespace(shape=interface["shape"], dtype=np.dtype(np.float32), strides=strides, data=memory)

    stream = SimpleNamespace(null=nullcontext(), from_external=lambda bare: nullcontext())
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(asarray=asarray, cuda=SimpleNamespace(Stream=stream)))


@pytest.mark.usefixtures("cupy")
def test_memory_that_must_not_be_written() -> None:
    """Inputs may be read-only, outputs and workspaces may not."""
    plan = device_plan()
    (output,) = (e.spec.uid for e in plan._expected if e.is_output)
    arrays = bound(plan)
    with driver():
        arrays[output] = Interface(read_only=True, address=arrays[output])
        assert rules_of(lambda: plan.execute(arrays)) == ["binding.read_only"]
        (inner, *_) = (e.spec.uid for e in plan._expected if not e.is_output and e.spec.dims == IMAGE)
        shadow, found = shadow_of(plan._expected[0], Interface(read_only=True), 0, STREAM)
        assert found is None
        assert shadow is not None
        assert not shadow.flags.writeable
        assert inner
    address, problem = workspace_address(Interface(read_only=True), 64, 0, STREAM)
    assert problem is not None
    assert (address, problem.rule, problem.value) == (0, "workspace.kind", "read-only")
    assert workspace_address(Interface(read_only=False), 64, 0, STREAM) == (ADDRESS, None)


class Raising:
    """A protocol of somebody else, with a mistake in it."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    @property
    def __cuda_array_interface__(self) -> Any:
        raise self._error


@pytest.mark.usefixtures("cupy")
@pytest.mark.parametrize(
    "error", [KeyError("shape"), IndexError("1"), OSError("gone"), Exception("odd"), StopIteration()]
)
def test_whatever_a_protocol_raises_is_the_reason(error: Exception) -> None:
    plan = device_plan()
    with driver():
        assert rules_of(lambda: plan.execute(bound(plan, _1=Raising(error)))) == ["binding.device_kind"]
    assert workspace_address(Raising(error), 64, 0, STREAM)[1] is not None


@pytest.mark.parametrize("address", [ADDRESS + (1 << 64), ADDRESS - (1 << 64), 1 << 70, -1])
def test_numbers_that_are_no_addresses(address: int) -> None:
    """Of which the driver, by ctypes, would see the last 64 bits."""
    plan = device_plan()
    with driver():
        assert rules_of(lambda: plan.execute(bound(plan, _1=address))) == ["binding.address"]

"""Bindings, streams and devices that plans for a device refuse, with a driver that is pretended."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from emulator.runtime import EmulatedRuntime
from engine_rejections import Case
from legal_problems import IMAGE, operation

from graphdnn import build
from graphdnn.cuda.errors import cuda_error
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.operations import Operation
from graphdnn.pipeline import rank
from graphdnn.plan import DevicePlan
from graphdnn.plan.device_arrays import shadow_of, workspace_address

ADDRESS, ALLOCATED = 1 << 40, 1 << 20


class OneDevice(EmulatedRuntime):
    """Bindings are looked at as CUDA's runtime looks at them; nothing is launched."""

    def shadows(self, expected: Sequence[Any], arrays: Sequence[Any], stream: int) -> Any:
        pairs = [shadow_of(want, given, 0, stream) for want, given in zip(expected, arrays, strict=True)]
        return [s for s, _ in pairs if s is not None], [r for _, r in pairs if r is not None]

    def workspace_address(self, workspace: Any, size: int, stream: int = 0) -> Any:
        return workspace_address(workspace, size, 0, stream)


class Elsewhere(OneDevice):
    def is_here(self) -> bool:
        return False


@contextmanager
def driver(device: int | None = 0, allocated: int = ALLOCATED) -> Iterator[None]:
    """A driver that knows one allocation, on ``device``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("graphdnn.cuda.driver_api.pointer_device", lambda address: device)
        patch.setattr("graphdnn.cuda.allocations.room", lambda address, wanted: ADDRESS + allocated - address)
        yield


def device_plan(*operations: Operation, runtime: type[OneDevice] = OneDevice) -> DevicePlan:
    graph = OperationGraph.of(operations or (operation("pointwise"),))
    return DevicePlan(rank(graph, "h200").best, runtime())


def bound(plan: DevicePlan, **changed: Any) -> dict[int, Any]:
    """Addresses in the one allocation, each tensor's 64 KiB from the next."""
    arrays: dict[int, Any] = {t.uid: ADDRESS + (i << 16) for i, t in enumerate(plan.config.fused.graph.bound)}
    return arrays | {int(uid[1:]): value for uid, value in changed.items()}


def device_case(device: int | None = 0, allocated: int = ALLOCATED, **changed: Any) -> Case:
    """x + b -> y executed with some bindings changed."""

    def run() -> None:
        plan = device_plan()
        with driver(device, allocated):
            plan.execute(bound(plan, **changed))

    return run


def elsewhere() -> None:
    """Executed where another device is current than the one that the plan was loaded on."""
    plan = device_plan()
    plan.load()
    with driver(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(OneDevice, "ordinal", lambda self: 1)
        plan.execute(bound(plan))


def other_context() -> None:
    """A context of the caller's own, on the same device."""
    plan = device_plan()
    plan.load()
    with driver(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(OneDevice, "is_current", lambda self: False)
        plan.execute(bound(plan))


def other_stream() -> None:
    plan = device_plan(runtime=_Refusing)
    with driver():
        plan.execute(bound(plan), None, 77)


class _Refusing(OneDevice):
    """The driver takes no stream of another device."""

    def prepare(self, launch: Any, plan: str) -> Any:
        return SimpleNamespace(params=bytearray(launch.params.data), launch=self._launch)

    def _launch(self, stream: int) -> None:
        raise cuda_error("cuLaunchKernelEx", 400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle")

    def stream_device(self, stream: int) -> int:
        return 1


def absent() -> None:
    plan = device_plan(runtime=Elsewhere)
    plan.execute(bound(plan))


def no_stream() -> None:
    device_plan().queue("stream")


def nested_capture() -> None:
    stream = SimpleNamespace(ptr=7)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(get_current_stream=lambda: stream)))
        patch.setattr("graphdnn.cuda.driver_api.is_capturing", lambda stream: stream == 7)
        plan = device_plan()
        plan.capture(bound(plan))


def on_the_host(**call: Any) -> None:
    arrays: dict[int, Any] = {1: np.zeros(IMAGE, np.float32), 2: np.zeros((1, 4, 1, 1), np.float32)}
    arrays[3] = np.zeros(IMAGE, np.float32)
    build(OperationGraph.of([operation("pointwise")]), "cpu").execute(arrays, **call)

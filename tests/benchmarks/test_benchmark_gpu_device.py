"""The benchmark's real device, on stand-ins for CuPy and PyTorch that note what is asked of them."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from benchmark_fakes import small
from gpu import table
from gpu.buffers import TORCH_TYPES
from gpu.device import CudaDevice

from graphdnn import DataType
from graphdnn.engines.host.memory import binding_layout

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


class Scope:
    def __init__(self, log: list[str], name: str) -> None:
        self.log, self.name, self.ptr = log, name, 1

    def __enter__(self) -> None:
        self.log.append(f"enter {self.name}")

    def __exit__(self, *_: object) -> None:
        self.log.append(f"leave {self.name}")


class StandInStream(Scope):
    def begin_capture(self) -> None:
        self.log.append("begin cupy")

    def end_capture(self) -> Any:
        self.log.append("end cupy")
        return SimpleNamespace(launch=lambda stream: self.log.append("launch cupy"))


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Any:
    """(CudaDevice, log of what happened)"""
    log: list[str] = []

    class Graph:
        def capture_begin(self, capture_error_mode: str) -> None:
            log.append("begin torch")

        def capture_end(self) -> None:
            log.append("end torch")

        def replay(self) -> None:
            log.append("launch torch")

    class Event:
        def __init__(self, enable_timing: bool) -> None: ...

        def record(self) -> None:
            log.append("record")

        def synchronize(self) -> None: ...

        def elapsed_time(self, other: Event) -> float:
            return 0.5

    part = SimpleNamespace
    fake_torch = part(
        zeros=lambda *_, **__: torch.zeros(1),
        version=part(cuda="13.0"),
        __version__="2",
        backends=part(cudnn=part(version=lambda: 91900)),
        cuda=part(
            is_available=lambda: True,
            ExternalStream=lambda pointer: Scope(log, "torch"),
            stream=lambda stream: stream,
            get_device_properties=lambda i: part(L2_cache_size=60 * 2**20, multi_processor_count=132),
            get_device_name=lambda i: "stand-in",
            CUDAGraph=Graph,
            Event=Event,
            _sleep=lambda cycles: log.append("spin"),
            synchronize=lambda: None,
            empty_cache=lambda: None,
        ),
    )
    fake_cupy = part(
        cuda=part(Stream=lambda non_blocking: StandInStream(log, "cupy")),
        get_default_memory_pool=lambda: part(free_all_blocks=lambda: None),
        __version__="14",
    )
    monkeypatch.setitem(sys.modules, "torch", fake_torch)
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy)
    return CudaDevice(), log


def test_graphdnn_is_captured_by_cupy_and_timed_between_events(cuda: Any) -> None:
    device, log = cuda
    launches = device.launches([lambda: log.append("call")] * 4, foreign=False)
    assert (launches.captured, launches.count) == (True, 4)
    inside = ["enter torch", "enter cupy", "begin cupy", *["call"] * 4, "end cupy", "leave cupy", "leave torch"]
    assert log == inside
    log.clear()
    assert launches.microseconds() == pytest.approx(125)
    assert log[2:-2] == ["spin", "record", "launch cupy", "record"]


def test_peers_are_captured_by_pytorch(cuda: Any) -> None:
    device, log = cuda
    launches = device.launches([lambda: log.append("call")], foreign=True)
    assert launches.captured
    assert log[2:-2] == ["begin torch", "call", "end torch"]
    log.clear()
    launches.run()
    assert log == ["launch torch"]


@pytest.mark.parametrize("foreign", [False, True])
def test_what_cannot_be_captured_is_timed_call_by_call(cuda: Any, foreign: bool) -> None:
    device, log = cuda

    def call() -> None:
        if "begin" in log[-1]:
            raise RuntimeError("not while capturing")
        log.append("call")

    launches = device.launches([call, call], foreign=foreign)
    assert not launches.captured
    assert any(entry.startswith("end") for entry in log)
    launches.microseconds()
    assert log[-6:] == ["record", "call", "call", "record", "leave cupy", "leave torch"]


def test_a_lost_context_is_not_hidden_by_the_fallback(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    device, _ = cuda
    monkeypatch.setattr(device, "is_alive", lambda: False)

    def call() -> None:
        raise RuntimeError("illegal memory access")

    with pytest.raises(RuntimeError, match="illegal"):
        device.launches([call], foreign=False)


def test_the_device_describes_itself(cuda: Any) -> None:
    device, _ = cuda
    about = device.about()
    assert device.is_alive()
    device.release()
    assert about["cudnn"] == 91900
    assert "cudnn 91900" in table.machine(about)


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32"])
def test_cupy_sees_pytorchs_memory_in_place(kind: str) -> None:
    cupy = pytest.importorskip("cupy")
    device = CudaDevice.__new__(CudaDevice)
    device._cupy = cupy
    spec = small(kind).inputs["x"]
    raw = torch.empty(spec.bytes, dtype=torch.uint8)
    array = device.array(raw, spec)
    dtype, shape, strides = binding_layout(spec)
    assert (array.dtype, array.shape, array.strides, array.data.ptr) == (dtype, shape, strides, raw.data_ptr())


def test_types_of_every_problem_have_memory() -> None:
    kinds = {DataType.HALF, DataType.BFLOAT16, DataType.FLOAT, DataType.INT8, DataType.INT16, DataType.INT64}
    assert kinds <= set(TORCH_TYPES)

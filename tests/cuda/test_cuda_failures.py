"""Calls that fail while plans execute: which plan and kernel, what is left as it was, and what the caller is told."""

from __future__ import annotations

import pickle
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from binding_rule_cases import OneDevice, bound, device_plan, driver
from device_apis import H200, rules_of
from emulator import MISSING

from graphdnn import build, debug_log, device_spec
from graphdnn.cuda import driver_library
from graphdnn.cuda.errors import CudaError, OutOfMemory, cuda_error
from graphdnn.engines.cuda.codegen.launch import LibraryCall
from graphdnn.enums import Status
from graphdnn.errors import BadParam
from graphdnn.plan import DevicePlan
from graphdnn.plan.cuda_graph import capture
from graphdnn.plan.cuda_runtime import CudaRuntime
from graphdnn.problem import parse
from graphdnn.v6.enums import cudnnStatus_t
from graphdnn.v6.errors import legacy_status

ILLEGAL = 700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"


class Failing(OneDevice):
    """Launches answer what a test says; the device that is current can change."""

    launched: CudaError | None = None
    waited: CudaError | None = None
    current = 0
    afterwards = 0  # what is current once a launch has failed

    def prepare(self, launch: Any, plan: str) -> Any:
        return SimpleNamespace(params=bytearray(launch.params.data), launch=self._launch)

    def _launch(self, stream: int) -> None:
        if self.launched is not None:
            self.current = self.afterwards
            raise self.launched

    def ordinal(self) -> int:
        return self.current

    def stream_device(self, stream: int) -> int:
        return stream // 100

    def synchronize(self, stream: int) -> None:
        if self.waited is not None:
            raise self.waited


def failing() -> tuple[DevicePlan, Failing]:
    plan = device_plan(runtime=Failing)
    assert isinstance(plan._runtime, Failing)
    return plan, plan._runtime


def test_a_thread_that_has_met_no_device_meets_the_plans() -> None:
    """Known arrays are not looked at, and the default stream is one of a context."""
    launched: list[bool] = []

    class Runtime(OneDevice):
        has_met = True

        def adopt(self, ordinal: int) -> bool:
            is_new, Runtime.has_met = not Runtime.has_met, True
            return is_new

        def prepare(self, launch: Any, plan: str) -> Any:
            return SimpleNamespace(params=bytearray(launch.params.data), launch=self._launch)

        def _launch(self, stream: int) -> None:
            launched.append(Runtime.has_met)
            if not Runtime.has_met:
                raise cuda_error("cuLaunchKernelEx", 201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context")

    plan = device_plan(runtime=Runtime)
    with driver():
        plan.execute(bound(plan))
        Runtime.has_met = False
        plan.execute(bound(plan))
        Runtime.has_met = False
        plan._find = lambda *_: SimpleNamespace(place=next(iter(plan._binding_cache.places.values())))  # type: ignore[assignment]
        plan.execute(bound(plan))
    assert launched[-2:] == [False, True]


def test_an_error_that_stays_is_not_hidden_by_the_next() -> None:
    """After it the driver answers nothing else, not even which device is current."""
    plan, runtime = failing()
    plan.load()
    with driver():
        plan.execute(bound(plan))
        runtime.launched = cuda_error("cuLaunchKernelEx", *ILLEGAL, kernel="k", plan="p")
        runtime.afterwards = 1
        with pytest.raises(CudaError, match="kernel k of plan p") as caught:
            plan.execute(bound(plan))
        assert caught.value.is_sticky
        runtime.current = 0
        runtime.launched = cuda_error("cuLaunchKernelEx", 400, "CUDA_ERROR_INVALID_HANDLE", "invalid")
        assert rules_of(lambda: plan.execute(bound(plan))) == ["execute.other_device"]
        runtime.current, runtime.launched = 0, None
        plan.execute(bound(plan))


def test_an_error_of_a_launch_may_be_an_earlier_ones() -> None:
    late = str(cuda_error("cuLaunchKernelEx", *ILLEGAL, kernel="k", plan="p"))
    assert "or of an earlier one (GRAPHDNN_VERBOSE=1 waits for each execution, and names the one)" in late
    assert "start a new process" in late
    assert "earlier" not in str(cuda_error("cuMemAlloc", 2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"))
    named = cuda_error("cuStreamSynchronize", *ILLEGAL).of("gemm", "conv")
    assert "kernel gemm of plan conv: cuStreamSynchronize" in str(named)
    assert "earlier" not in str(named)
    assert (named.code, named.is_sticky) == (700, True)


def test_verbose_executions_name_the_plan_that_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(debug_log, "verbose", True)
    monkeypatch.setattr(debug_log, "watches", True)
    plan, runtime = failing()
    runtime.waited = cuda_error("cuStreamSynchronize", *ILLEGAL)
    with driver(), pytest.raises(CudaError) as caught:
        plan.execute(bound(plan))
    assert (caught.value.kernel, caught.value.plan) == (plan.compiled[0].name, plan.name)
    assert caught.value.repeat, "the command that repeats it"
    assert "graphdnn,execute," not in capsys.readouterr().err


def test_ranges_are_closed_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    ranges: list[str] = []
    nvtx = SimpleNamespace(RangePush=ranges.append, RangePop=lambda: ranges.append("pop"))
    monkeypatch.setitem(sys.modules, "cupy.cuda", SimpleNamespace(nvtx=nvtx))
    monkeypatch.setattr(debug_log, "marks_ranges", True)
    monkeypatch.setattr(debug_log, "watches", True)
    plan, runtime = failing()
    with driver():
        plan.execute(bound(plan))
        runtime.launched = cuda_error("cuLaunchKernelEx", *ILLEGAL)
        with pytest.raises(CudaError):
            plan.execute(bound(plan))
    assert ranges == [plan.name, plan.compiled[0].name, "pop", "pop"] * 2


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_a_librarys_call_where_another_device_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would work there, on addresses of this device; arrays of the last call are not looked at again."""
    calls: list[int] = []
    function = lambda addresses, scratch, stream: calls.append(stream)
    plan, runtime = failing()
    (kernel,) = plan._device_kernels
    changed = type(kernel)(kernel.name, (LibraryCall("gemm", lambda: function),))
    plan = DevicePlan(plan.config, runtime, compiled=(changed,))
    arrays = bound(plan)
    with driver():
        plan.execute(arrays, None, 3)
        block = plan._free[-1]
        runtime.current = 1
        with pytest.raises(BadParam, match=r"execute\.other_device"):
            block.launches[0](3)
        assert calls == [3]
        runtime.current = 0
        block.launches[0](4)
        for stream in (104, 105):
            with pytest.raises(BadParam, match=r"execute\.other_stream"):
                plan.execute(arrays, None, stream)
        assert calls == [3, 4]
        plan.execute(arrays, None, 5)
    assert calls == [3, 4, 5]


# Memory.


class Exhausted(MemoryError):
    """CuPy's."""


def test_no_memory_is_an_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*given: Any) -> Any:
        raise Exhausted("Out of memory allocating 4,096 bytes (allocated so far: 1 bytes).")

    memory = SimpleNamespace(OutOfMemoryError=Exhausted)  # as CuPy's is one of MemoryError
    cuda = SimpleNamespace(alloc=none_left, memory=memory)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda, empty=none_left, uint8=np.uint8))
    runtime = CudaRuntime(device_spec(H200))
    spec = build(parse("pointwise x=f32[8,8] + relu").build_operation_graph(), "cpu")._expected[0].spec
    for call in (lambda: runtime.memory(4096), lambda: runtime.array(spec)):
        with pytest.raises(MemoryError) as caught:
            call()
        error = caught.value
        assert isinstance(error, OutOfMemory)
        assert (error.code, error.is_sticky) == (2, False)
        assert error.status is Status.INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED
        assert legacy_status(error.status) is cudnnStatus_t.CUDNN_STATUS_ALLOC_FAILED
        (rejection,) = error.rejections
        assert rejection.rule == "cuda.memory"
        assert "4,096 bytes" in rejection.reason
        assert "workspace_limit" in rejection.fix
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), copy.code, str(copy)) == (OutOfMemory, 2, str(error))


def test_errors_of_cupys_calls_are_errors_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a kernel has failed, making and copying arrays fails as well."""

    class Failed(RuntimeError):
        status = 700

    def fails(*given: Any) -> Any:
        raise Failed("cudaErrorIllegalAddress: an illegal memory access was encountered")

    cuda = SimpleNamespace(alloc=fails, memory=SimpleNamespace(OutOfMemoryError=Exhausted))
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda, empty=fails, uint8=np.uint8))
    monkeypatch.setattr(driver_library, "bindings", lambda: None)
    monkeypatch.setattr(driver_library, "_said", lambda module, code: ILLEGAL[1:])
    runtime = CudaRuntime(device_spec(H200))
    array = SimpleNamespace(data=SimpleNamespace(copy_from_host_async=fails, copy_to_host_async=fails))
    host = np.zeros(4, np.float32)
    calls = {
        "cuMemAlloc": lambda: runtime.memory(16),
        "cuMemcpyHtoDAsync": lambda: runtime.copy_in(host, array, 16),
        "cuMemcpyDtoHAsync": lambda: runtime.copy_out(array, host, 16),
    }
    for name, call in calls.items():
        with pytest.raises(CudaError, match=name) as caught:
            call()
        assert caught.value.is_sticky


# Captures.


class _Stream:
    """CuPy's, whose capture ends in an error of its own once it is invalid."""

    ptr = 5
    ended = 0
    is_broken = False

    def __init__(self, non_blocking: bool) -> None: ...

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *rest: object) -> None: ...

    def begin_capture(self) -> None: ...

    def end_capture(self) -> str:
        _Stream.ended += 1
        if self.is_broken:
            raise RuntimeError("cudaErrorStreamCaptureInvalidated")
        return "graph"


@pytest.mark.parametrize("is_broken", [False, True])
def test_a_failing_capture_says_what_failed(monkeypatch: pytest.MonkeyPatch, is_broken: bool) -> None:
    """Not that the capture is invalid for it; and the capture is ended."""
    monkeypatch.setattr(_Stream, "is_broken", is_broken)
    monkeypatch.setattr(_Stream, "ended", 0)
    current = SimpleNamespace(ptr=0)
    cuda = SimpleNamespace(Stream=_Stream, get_current_stream=lambda: current)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr("graphdnn.cuda.driver_api.is_capturing", lambda stream: False)
    plan, runtime = failing()
    with driver():
        assert rules_of(lambda: capture(plan, {})) == ["binding.missing"] * 3
        runtime.launched = cuda_error("cuLaunchKernelEx", 901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "invalidated")
        with pytest.raises(CudaError, match="begin the capture again"):
            capture(plan, bound(plan))
        assert _Stream.ended == 2
        runtime.launched = None
        if not is_broken:
            assert capture(plan, bound(plan)).name == plan.name

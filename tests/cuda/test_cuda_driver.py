"""What the library says to the CUDA driver and makes of its answers, with a driver made of Python objects."""

from __future__ import annotations

import pickle
import sys
from typing import Any

import pytest
from expect_rejection import refusal
from fake_driver import FakeDriver

from graphdnn.cuda import device_query, driver_api, driver_library, kernel_launch, nvrtc
from graphdnn.cuda.device_query import of_profile, present_device, profile_of, rates_of
from graphdnn.cuda.driver_api import CudaError, PreparedLaunch, aligned_buffer
from graphdnn.cuda.errors import STICKY, cuda_error
from graphdnn.device.profiles import PROFILES
from graphdnn.enums import Status
from graphdnn.errors import BadParam

pytestmark = pytest.mark.usefixtures("unknown_driver")


# Why there is no driver.


def test_no_bindings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    assert "cannot be imported" in driver_api.available()
    refusal("cuda.bindings", driver_api.device_count)


def test_no_library(fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(flags: int) -> None:
        raise RuntimeError("Failed to dlopen libcuda.so.1. Ensure this and that\nmore")

    monkeypatch.setattr(fake_driver, "cuInit", fails)
    assert (
        driver_api.available() == "the driver's library does not load or does not start: Failed to dlopen libcuda.so.1"
    )
    refusal("cuda.driver.library", lambda: present_device())


def test_a_driver_that_does_not_start(fake_driver: FakeDriver) -> None:
    fake_driver.init = 803
    assert "words of the driver" in driver_api.available()
    assert "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)" in refusal("cuda.driver.library", driver_api.device_count)


@pytest.mark.parametrize(("init", "count"), [(100, 0), (0, 0)])
def test_no_device(fake_driver: FakeDriver, init: int, count: int) -> None:
    fake_driver.init, fake_driver.count = init, count
    assert driver_api.available() == "the driver finds no device (CUDA_ERROR_NO_DEVICE)"
    assert "CUDA_VISIBLE_DEVICES" in refusal("cuda.driver.device", present_device)


def test_a_driver(fake_driver: FakeDriver) -> None:
    assert driver_api.available() == ""
    assert driver_api.device_count() == 1


@pytest.mark.parametrize(
    ("number", "version"), [(12080, (12, 8)), (12090, (12, 9)), (13000, (13, 0)), (13010, (13, 1))]
)
def test_versions_of_a_driver(fake_driver: FakeDriver, number: int, version: tuple[int, int]) -> None:
    fake_driver.version = number
    assert driver_api.driver_version() == version


@pytest.mark.parametrize(("version", "made", "ok"), [(12080, (13, 0), False), (13000, (13, 5), True),
                                                     (13010, (12, 9), True), (11080, (12, 9), False)])  # fmt: skip
def test_driver_and_compiler(
    fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, version: int, made: tuple[int, int], ok: bool
) -> None:
    """Within a major version, and from older compilers: NVIDIA's minor version compatibility."""
    fake_driver.version = version
    monkeypatch.setattr(nvrtc, "version", lambda: made)
    if ok:
        assert present_device().name == "h200"
    else:
        assert f"expected a driver for CUDA {made[0]}.0 or later" in refusal("cuda.driver.version", present_device)


def test_no_launch_function(fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_library.ctypes, "CDLL", lambda name: object())
    refusal("cuda.driver.version", driver_library.launch_function)

    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(driver_library.ctypes, "CDLL", missing)
    refusal("cuda.driver.library", driver_library.launch_function)


# Errors.


def test_error_texts(fake_driver: FakeDriver) -> None:
    fake_driver.answer = 700
    with pytest.raises(CudaError) as raised:
        driver_api.synchronize(7)
    error = raised.value
    assert (error.code, error.name, error.description) == (700, "CUDA_ERROR_ILLEGAL_ADDRESS", "words of the driver")
    assert error.is_sticky
    assert error.status is Status.EXECUTION_FAILED_CUDA_DRIVER
    for word in ("cuStreamSynchronize = CUDA_ERROR_ILLEGAL_ADDRESS (700)", "words of the driver", "new process",
                 "compute-sanitizer", "cuda.driver.call"):  # fmt: skip
        assert word in str(error)


def test_kernel_and_plan_are_named() -> None:
    error = cuda_error("cuLaunchKernelEx", 701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many", "gemm", "conv[0]")
    assert str(error).startswith("kernel gemm of plan conv[0]: cuLaunchKernelEx = ")
    assert not error.is_sticky
    assert (error.kernel, error.plan) == ("gemm", "conv[0]")
    assert str(cuda_error("cuInit", 3, "N", "d")).startswith("CUDA driver: cuInit")


def test_errors_travel_between_processes() -> None:
    error = cuda_error("cuLaunchKernelEx", 716, "NAME", "words", "kernel", "plan")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.code, again.kernel, again.is_sticky) == (str(error), 716, "kernel", True)


def test_no_memory_has_a_status_of_its_own() -> None:
    error = cuda_error("cuMemAlloc", 2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory")
    assert error.status is Status.INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED
    assert "smaller workspace" in str(error)


def test_a_code_that_nobody_knows(fake_driver: FakeDriver) -> None:
    for code in (998, 4711):
        error = driver_library.error_of("cuMemGetInfo", code)
        assert f"CUDA error {code} ({code})" in str(error)
        assert not error.is_sticky
        assert "{" not in str(error)


@pytest.mark.parametrize("code", sorted(STICKY))
def test_sticky_errors_ask_for_a_new_process(code: int) -> None:
    assert "start a new process" in str(cuda_error("cuLaunchKernelEx", code, "NAME", "words"))


def test_small_answers(fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    def pointer_attribute(ordinal: Any, attribute: int, address: Any) -> int:
        ordinal._obj.value = 0
        return fake_driver.answer

    monkeypatch.setattr(driver_api, "_pointer_attribute", lambda: pointer_attribute)
    assert driver_api.memory_info() == (5, 8)
    assert driver_api.current_device() == 0, "the default of the runtime, where no context is current"
    fake_driver.current = (0, 3)
    assert driver_api.current_device() == 3
    assert driver_api.pointer_device(4096) == 0
    fake_driver.answer = 1
    assert driver_api.pointer_device(4096) is None
    fake_driver.answer = 700
    for call in (lambda: driver_api.pointer_device(4096), driver_api.memory_info):
        with pytest.raises(CudaError):
            call()
    fake_driver.current = (700, 0)
    with pytest.raises(CudaError):
        driver_api.current_device()


# Launches.


def test_buffers_are_aligned_and_zero() -> None:
    for size in (0, 1, 8, 127, 128, 4000):
        buffer = aligned_buffer(size)
        assert len(buffer) == size
        assert bytes(buffer) == bytes(size)
        assert not buffer.readonly
        if size:
            assert kernel_launch.ctypes.addressof(kernel_launch.ctypes.c_ubyte.from_buffer(buffer)) % 128 == 0


def test_a_launch_that_fails(fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_launch, "launch_function", lambda: lambda *_: 700)
    prepared = PreparedLaunch(1, (1, 1, 1), (32, 1, 1), 0, aligned_buffer(8), kernel="gemm", plan="conv")
    with pytest.raises(CudaError, match="kernel gemm of plan conv: cuLaunchKernelEx"):
        prepared.launch(0)


def test_a_buffer_that_cannot_be_written(fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_launch, "launch_function", lambda: lambda *_: 0)
    with pytest.raises(TypeError):
        PreparedLaunch(1, (1, 1, 1), (32, 1, 1), 0, memoryview(b"12345678"))


# Devices.


def test_a_present_device_with_a_profile(fake_driver: FakeDriver) -> None:
    spec, profile = present_device(), PROFILES["h200"]
    assert (spec.name, spec.kind, spec.compute_capability, spec.sm_count) == ("h200", "cuda", (9, 0), 132)
    assert dict(spec.rates) == pytest.approx(dict(profile.rates))
    assert spec.bandwidth == profile.bandwidth
    assert (spec.memory, spec.cache_bytes) == (141 << 30, 60 << 20)
    assert present_device(0) is spec


def test_a_part_of_a_device(fake_driver: FakeDriver) -> None:
    """A MIG slice, or a PCIe board: the profile's rates by its share, its own memory."""
    fake_driver.name = b"NVIDIA H200 MIG 3g.71gb"
    fake_driver.attributes |= {"MULTIPROCESSOR_COUNT": 66, "GLOBAL_MEMORY_BUS_WIDTH": 3072}
    spec = present_device()
    assert spec.name == "nvidia_h200_mig_3g_71gb"
    assert spec.rates["HALF"] == pytest.approx(PROFILES["h200"].rates["HALF"] / 2)
    assert spec.bandwidth == pytest.approx(2 * 3201e6 * 3072 / 8)


def test_a_device_without_a_profile(fake_driver: FakeDriver) -> None:
    fake_driver.name = b"NVIDIA GeForce RTX 3090"
    fake_driver.attributes |= {"COMPUTE_CAPABILITY_MAJOR": 8, "COMPUTE_CAPABILITY_MINOR": 6, "MULTIPROCESSOR_COUNT": 82,
                        "CLOCK_RATE": 1695000, "MEMORY_CLOCK_RATE": 9751000, "GLOBAL_MEMORY_BUS_WIDTH": 384}  # fmt: skip
    spec = present_device()
    assert spec.name == "nvidia_geforce_rtx_3090"
    assert spec.rates["FLOAT"] == pytest.approx(35.6e12, rel=0.01)
    assert spec.bandwidth == pytest.approx(936e9, rel=0.01)
    fake_driver.attributes["CLOCK_RATE"] = fake_driver.attributes["MEMORY_CLOCK_RATE"] = 0
    device_query._spec.cache_clear()
    assert present_device().rates["FLOAT"] > 0
    assert present_device().bandwidth > 0


def test_an_old_device(fake_driver: FakeDriver) -> None:
    fake_driver.name = b"Tesla V100-SXM2-16GB"
    fake_driver.attributes |= {"COMPUTE_CAPABILITY_MAJOR": 7}
    assert "Tesla V100-SXM2-16GB" in refusal("cuda.capability", present_device)


@pytest.mark.parametrize("ordinal", [-1, 1, 99])
def test_a_device_that_is_not_there(fake_driver: FakeDriver, ordinal: int) -> None:
    refusal("cuda.device.ordinal", lambda: present_device(ordinal), BadParam)


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        ("NVIDIA H200", "h200"), ("NVIDIA H100 80GB HBM3", "h100"), ("NVIDIA H100 PCIe", "h100"),
        ("NVIDIA A100-SXM4-80GB", "a100"), ("NVIDIA L40S", "l40s"), ("NVIDIA L40", None), ("NVIDIA A10", None),
        ("NVIDIA GeForce RTX 4090", "rtx4090"), ("NVIDIA GeForce RTX 5090", "rtx5090"), ("NVIDIA L4", "l4"), ("NVIDIA B200", "b200"), ("RTX 4080", None), ("NVIDIA A1000", None), ("", None),
    ],
)  # fmt: skip
def test_names_of_devices(name: str, profile: str | None) -> None:
    assert profile_of(name) == profile


_BOOST_CLOCKS = {
    "h200": 1.83e9, "h100": 1.83e9, "a100": 1.41e9, "l40s": 2.52e9, "l4": 2.04e9, "rtx4090": 2.52e9, "b200": 1.86e9,
    "rtx5090": 2.407e9,
}  # fmt: skip


@pytest.mark.parametrize("name", PROFILES)
def test_computed_rates_agree_with_the_profiles(name: str) -> None:
    """The rates per cycle give the data sheets' figures at the boards' boost clocks."""
    assert name in _BOOST_CLOCKS, f"add the boost clock of {name} to _BOOST_CLOCKS"
    profile = PROFILES[name]
    computed = rates_of(profile.compute_capability, profile.sm_count, _BOOST_CLOCKS[name])
    assert computed.keys() == profile.rates.keys()
    for kind in ("FLOAT", "HALF", "INT8", "TF32", "DOUBLE", "FP8_E4M3"):
        is_halved = name.startswith("rtx") and kind in ("HALF", "TF32", "FP8_E4M3")  # with sums in fp32, on GeForce
        assert computed[kind] / (1 + is_halved) == pytest.approx(profile.rates[kind], rel=0.08), (
            f"{kind} of {name}: _PER_CYCLE in device_query.py and the profile disagree"
        )


def test_every_capability_has_rates() -> None:
    for capability in ((8, 0), (8, 7), (8, 9), (9, 0), (10, 3), (11, 0), (12, 1), (15, 0)):
        rates = rates_of(capability, 1, 1e9)
        assert rates["HALF"] >= 1024e9
        assert {(rate / 1e9).hex().split("p")[0] for rate in rates.values()} == {"0x1.0000000000000"}, "powers of two"


def test_a_profile_keeps_its_name_on_the_full_board() -> None:
    assert of_profile(PROFILES["h100"], PROFILES["h100"]) == PROFILES["h100"]

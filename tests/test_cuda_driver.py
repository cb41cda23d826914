"""What the library says to the CUDA driver and makes of its answers: with stand-ins, for there need be no GPU.

Refusals and errors meet a driver made of Python objects. Everything else runs with the real cuda-bindings on a stub of
libcuda (``driver_stub/libcuda.c``), in processes of its own.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from enum import IntEnum
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from graphdnn.cuda import debug, driver, launch, library, nvrtc, present
from graphdnn.cuda.driver import CudaError, PreparedLaunch, aligned_buffer
from graphdnn.cuda.failure import STICKY, cuda_error
from graphdnn.cuda.present import of_profile, present_device, profile_of, rates_of
from graphdnn.device import PROFILES
from graphdnn.enums import Status
from graphdnn.errors import BadParam, GraphdnnError, NotSupported

ROOT = Path(__file__).resolve().parents[1]
NAMES = {1: "CUDA_ERROR_INVALID_VALUE", 2: "CUDA_ERROR_OUT_OF_MEMORY", 100: "CUDA_ERROR_NO_DEVICE",
         700: "CUDA_ERROR_ILLEGAL_ADDRESS", 803: "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"}  # fmt: skip
ATTRIBUTES = {
    "COMPUTE_CAPABILITY_MAJOR": 9, "COMPUTE_CAPABILITY_MINOR": 0, "MULTIPROCESSOR_COUNT": 132,
    "MEMORY_CLOCK_RATE": 3201000, "GLOBAL_MEMORY_BUS_WIDTH": 6144, "CLOCK_RATE": 1980000,
    "L2_CACHE_SIZE": 60 << 20, "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 233472,
}  # fmt: skip
Attribute = IntEnum("Attribute", {f"CU_DEVICE_ATTRIBUTE_{name}": i for i, name in enumerate(ATTRIBUTES)})


class FakeDriver:
    """cuda.bindings.driver with one GPU. Every answer is an attribute that a test changes."""

    CUdevice_attribute = Attribute
    CUpointer_attribute = types.SimpleNamespace(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL=9)

    def __init__(self) -> None:
        self.init, self.count, self.version, self.name = 0, 1, 13000, b"NVIDIA H200"
        self.attributes = dict(ATTRIBUTES)
        self.current: tuple[int, int] = (201, 0)
        self.answer = 0

    def CUresult(self, code: int) -> int:
        if code > 1000:
            raise ValueError(f"{code} is not a valid CUresult")
        return code

    def cuInit(self, flags: int) -> tuple[int]:
        return (self.init,)

    def cuDeviceGetCount(self) -> tuple[int, int]:
        return self.init, self.count

    def cuDriverGetVersion(self) -> tuple[int, int]:
        return 0, self.version

    def cuGetErrorName(self, code: int) -> tuple[int, bytes | None]:
        return (0, NAMES[code].encode()) if code in NAMES else (1, None)

    def cuGetErrorString(self, code: int) -> tuple[int, bytes | None]:
        return 0, b"words of the driver"

    def cuCtxGetDevice(self) -> tuple[int, int]:
        return self.current

    def cuDeviceGet(self, ordinal: int) -> tuple[int, int]:
        return 0, ordinal

    def cuDeviceGetName(self, size: int, device: int) -> tuple[int, bytes]:
        return 0, self.name.ljust(size, b"\0")

    def cuDeviceTotalMem(self, device: int) -> tuple[int, int]:
        return 0, 141 << 30

    def cuDeviceGetAttribute(self, attribute: Attribute, device: int) -> tuple[int, int]:
        return 0, self.attributes[attribute.name.removeprefix("CU_DEVICE_ATTRIBUTE_")]

    def cuStreamSynchronize(self, stream: int) -> tuple[int]:
        return (self.answer,)

    def cuMemGetInfo(self) -> tuple[int, int, int]:
        return self.answer, 5, 8

    def cuPointerGetAttribute(self, attribute: int, address: int) -> tuple[int, int]:
        return self.answer, 0


def _forget() -> None:
    for remembered in (library._state, library.launch_function, present._spec):
        remembered.cache_clear()
    driver._contexts.clear()


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Nothing is remembered of a driver, before and after."""
    _forget()
    yield
    _forget()


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    made = FakeDriver()
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", made)
    monkeypatch.setattr(nvrtc, "version", lambda: (13, 0))
    return made


def refusal(rule: str, call: Callable[[], Any], kind: type[GraphdnnError] = NotSupported) -> str:
    with pytest.raises(kind) as raised:
        call()
    (rejection,) = raised.value.rejections
    assert rejection.rule == rule
    assert "{" not in rejection.reason + rejection.fix + rejection.expected
    return str(raised.value)


# Why there is no driver.


def test_no_bindings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    assert "does not import" in driver.available()
    refusal("cuda.bindings", driver.device_count)


def test_no_library(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(flags: int) -> None:
        raise RuntimeError("Failed to dlopen libcuda.so.1. Ensure this and that\nmore")

    monkeypatch.setattr(fake, "cuInit", fails)
    assert driver.available() == "the driver's library does not load or does not start: Failed to dlopen libcuda.so.1"
    refusal("cuda.driver.library", lambda: present_device())


def test_a_driver_that_does_not_start(fake: FakeDriver) -> None:
    fake.init = 803
    assert "words of the driver" in driver.available()
    assert "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)" in refusal("cuda.driver.library", driver.device_count)


@pytest.mark.parametrize(("init", "count"), [(100, 0), (0, 0)])
def test_no_device(fake: FakeDriver, init: int, count: int) -> None:
    fake.init, fake.count = init, count
    assert driver.available() == "the driver finds no device (CUDA_ERROR_NO_DEVICE)"
    assert "CUDA_VISIBLE_DEVICES" in refusal("cuda.driver.device", present_device)


def test_a_driver(fake: FakeDriver) -> None:
    assert driver.available() == ""
    assert driver.device_count() == 1
    assert driver.driver_version() == (13, 0)


@pytest.mark.parametrize(("version", "made", "ok"), [(12080, (13, 0), False), (13000, (13, 5), True),
                                                     (13010, (12, 9), True), (11080, (12, 9), False)])  # fmt: skip
def test_driver_and_compiler(
    fake: FakeDriver, monkeypatch: pytest.MonkeyPatch, version: int, made: tuple[int, int], ok: bool
) -> None:
    """Within a major version, and from older compilers: NVIDIA's minor version compatibility."""
    fake.version = version
    monkeypatch.setattr(nvrtc, "version", lambda: made)
    if ok:
        assert present_device().name == "h200"
    else:
        assert f"expected a driver for CUDA {made[0]}.0 or later" in refusal("cuda.driver.version", present_device)


def test_no_launch_function(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library.ctypes, "CDLL", lambda name: object())
    refusal("cuda.driver.version", library.launch_function)

    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(library.ctypes, "CDLL", missing)
    refusal("cuda.driver.library", library.launch_function)


# Errors.


def test_error_texts(fake: FakeDriver) -> None:
    fake.answer = 700
    with pytest.raises(CudaError) as raised:
        driver.synchronize(7)
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


def test_a_code_that_nobody_knows(fake: FakeDriver) -> None:
    for code in (998, 4711):
        error = library.error_of("cuMemGetInfo", code)
        assert f"CUDA error {code} ({code})" in str(error)
        assert not error.is_sticky
        assert "{" not in str(error)


@pytest.mark.parametrize("code", sorted(STICKY))
def test_sticky_errors_ask_for_a_new_process(code: int) -> None:
    assert "start a new process" in str(cuda_error("cuLaunchKernelEx", code, "NAME", "words"))


def test_small_answers(fake: FakeDriver) -> None:
    assert driver.memory_info() == (5, 8)
    assert driver.current_device() == 0, "the default of the runtime, where no context is current"
    fake.current = (0, 3)
    assert driver.current_device() == 3
    assert driver.pointer_device(4096) == 0
    fake.answer = 1
    assert driver.pointer_device(4096) is None
    fake.answer = 700
    for call in (lambda: driver.pointer_device(4096), driver.memory_info):
        with pytest.raises(CudaError):
            call()
    fake.current = (700, 0)
    with pytest.raises(CudaError):
        driver.current_device()


# Launches.


def test_buffers_are_aligned_and_zero() -> None:
    for size in (0, 1, 8, 127, 128, 4000):
        buffer = aligned_buffer(size)
        assert len(buffer) == size
        assert bytes(buffer) == bytes(size)
        assert not buffer.readonly
        if size:
            assert launch.ctypes.addressof(launch.ctypes.c_ubyte.from_buffer(buffer)) % 128 == 0


def test_a_launch_that_fails(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "launch_function", lambda: lambda *_: 700)
    prepared = PreparedLaunch(1, (1, 1, 1), (32, 1, 1), 0, aligned_buffer(8), kernel="gemm", plan="conv")
    with pytest.raises(CudaError, match="kernel gemm of plan conv: cuLaunchKernelEx"):
        prepared.launch(0)


def test_a_buffer_that_cannot_be_written(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "launch_function", lambda: lambda *_: 0)
    with pytest.raises(TypeError):
        PreparedLaunch(1, (1, 1, 1), (32, 1, 1), 0, memoryview(b"12345678"))


# Devices.


def test_a_present_device_with_a_profile(fake: FakeDriver) -> None:
    spec, profile = present_device(), PROFILES["h200"]
    assert (spec.name, spec.kind, spec.compute_capability, spec.sm_count) == ("h200", "cuda", (9, 0), 132)
    assert dict(spec.rates) == pytest.approx(dict(profile.rates))
    assert spec.bandwidth == profile.bandwidth
    assert (spec.memory, spec.cache_bytes) == (141 << 30, 60 << 20)
    assert present_device(0) is spec


def test_a_part_of_a_device(fake: FakeDriver) -> None:
    """A MIG slice, or a PCIe board: the profile's rates by its share, its own memory."""
    fake.name = b"NVIDIA H200 MIG 3g.71gb"
    fake.attributes |= {"MULTIPROCESSOR_COUNT": 66, "GLOBAL_MEMORY_BUS_WIDTH": 3072}
    spec = present_device()
    assert spec.name == "nvidia_h200_mig_3g_71gb"
    assert spec.rates["HALF"] == pytest.approx(PROFILES["h200"].rates["HALF"] / 2)
    assert spec.bandwidth == pytest.approx(2 * 3201e6 * 3072 / 8)


def test_a_device_without_a_profile(fake: FakeDriver) -> None:
    fake.name = b"NVIDIA GeForce RTX 3090"
    fake.attributes |= {"COMPUTE_CAPABILITY_MAJOR": 8, "COMPUTE_CAPABILITY_MINOR": 6, "MULTIPROCESSOR_COUNT": 82,
                        "CLOCK_RATE": 1695000, "MEMORY_CLOCK_RATE": 9751000, "GLOBAL_MEMORY_BUS_WIDTH": 384}  # fmt: skip
    spec = present_device()
    assert spec.name == "nvidia_geforce_rtx_3090"
    assert spec.rates["FLOAT"] == pytest.approx(35.6e12, rel=0.01)
    assert spec.bandwidth == pytest.approx(936e9, rel=0.01)
    fake.attributes["CLOCK_RATE"] = fake.attributes["MEMORY_CLOCK_RATE"] = 0
    present._spec.cache_clear()
    assert present_device().rates["FLOAT"] > 0
    assert present_device().bandwidth > 0


def test_an_old_device(fake: FakeDriver) -> None:
    fake.name = b"Tesla V100-SXM2-16GB"
    fake.attributes |= {"COMPUTE_CAPABILITY_MAJOR": 7}
    assert "Tesla V100-SXM2-16GB" in refusal("cuda.capability", present_device)


@pytest.mark.parametrize("ordinal", [-1, 1, 99])
def test_a_device_that_is_not_there(fake: FakeDriver, ordinal: int) -> None:
    refusal("cuda.device.ordinal", lambda: present_device(ordinal), BadParam)


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        ("NVIDIA H200", "h200"), ("NVIDIA H100 80GB HBM3", "h100"), ("NVIDIA H100 PCIe", "h100"),
        ("NVIDIA A100-SXM4-80GB", "a100"), ("NVIDIA L40S", "l40s"), ("NVIDIA L40", None), ("NVIDIA A10", None),
        ("NVIDIA GeForce RTX 4090", "rtx4090"), ("NVIDIA L4", "l4"), ("NVIDIA B200", "b200"), ("RTX 4080", None), ("NVIDIA A1000", None), ("", None),
    ],
)  # fmt: skip
def test_names_of_devices(name: str, profile: str | None) -> None:
    assert profile_of(name) == profile


@pytest.mark.parametrize("name", PROFILES)
def test_computed_rates_agree_with_the_profiles(name: str) -> None:
    """The rates per cycle give the data sheets' figures at the boards' boost clocks."""
    clocks = {"h200": 1.83e9, "h100": 1.83e9, "a100": 1.41e9, "l40s": 2.52e9, "l4": 2.04e9, "rtx4090": 2.52e9,
              "b200": 1.86e9}  # fmt: skip
    profile = PROFILES[name]
    computed = rates_of(profile.compute_capability, profile.sm_count, clocks[name])
    assert computed.keys() == profile.rates.keys()
    for kind in ("FLOAT", "HALF", "INT8", "TF32", "DOUBLE", "FP8_E4M3"):
        is_halved = name == "rtx4090" and kind in ("HALF", "TF32", "FP8_E4M3")  # with sums in fp32, on GeForce
        assert computed[kind] / (1 + is_halved) == pytest.approx(profile.rates[kind], rel=0.08), kind


def test_every_capability_has_rates() -> None:
    for capability in ((8, 0), (8, 7), (8, 9), (9, 0), (10, 3), (11, 0), (12, 1), (15, 0)):
        assert rates_of(capability, 1, 1e9)["HALF"] >= 1024e9


def test_a_profile_keeps_its_name_on_the_full_board() -> None:
    assert of_profile(PROFILES["h100"], PROFILES["h100"]) == PROFILES["h100"]


# The real bindings on the stub.

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
on_the_stub = pytest.mark.skipif(
    COMPILER is None or find_spec("cuda") is None or not sys.platform.startswith("linux"),
    reason="needs Linux, a C compiler and cuda-bindings",
)


@pytest.fixture(scope="session")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stub")
    source = ROOT / "tests" / "driver_stub" / "libcuda.c"
    assert COMPILER is not None
    command = [COMPILER, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", folder / "libcuda.so.1", source, "-ldl"]
    subprocess.run(command, check=True)
    return folder


def stubbed(stub: Path, code: str, **settings: object) -> Any:
    """What ``code`` prints as JSON, in a process with the stub for a driver."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CUDA")}
    environment |= {"PYTHONPATH": str(ROOT), "LD_LIBRARY_PATH": str(stub)}
    environment |= {f"STUB_{name}": str(value) for name, value in settings.items()}
    script = "import ctypes, json\nfrom graphdnn.cuda import driver, nvrtc, present\nnvrtc.version = lambda: (13, 0)\n"
    run = subprocess.run(
        [sys.executable, "-c", script + dedent(code)], capture_output=True, text=True, env=environment, timeout=120
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@on_the_stub
def test_stub_devices(stub: Path) -> None:
    code = """
        driver.make_current(1)
        driver.make_current(1)
        spec = present.present_device()
        print(json.dumps([driver.available(), driver.device_count(), driver.current_device(), spec.to_json(),
                          driver.memory_info(), driver.is_capturing(7), driver.is_capturing(0),
                          driver.pointer_device(64), driver.pointer_device(1 << 40), driver.driver_version()]))
    """
    why, count, current, spec, memory, capturing, not_capturing, host, device, version = stubbed(stub, code, DEVICES=2)
    assert (why, count, current) == ("", 2, 1)
    assert (spec["name"], spec["sm_count"], spec["compute_capability"]) == ("h200", 132, [9, 0])
    assert memory == [100 << 30, 141 << 30]
    assert (capturing, not_capturing, host, device, version) == (True, False, None, 0, [13, 0])


@on_the_stub
def test_stub_without_a_device(stub: Path) -> None:
    code = "print(json.dumps(driver.available()))"
    assert "CUDA_ERROR_NO_DEVICE" in stubbed(stub, code, INIT=100)
    assert "CUDA_ERROR_UNKNOWN" not in stubbed(stub, code, DEVICES=0)
    assert "does not start" in stubbed(stub, code, INIT=999)


LAUNCH = """
    class Launch(ctypes.Structure):
        _fields_ = [(n, ctypes.c_uint64 * 3) for n in ("grid", "block")] + [
            (n, ctypes.c_uint64) for n in ("shared", "stream", "attribute_count", "function", "params", "first", "flags")]
    def last():
        found = Launch()
        ctypes.CDLL("libcuda.so.1").stub_launch(ctypes.byref(found))
        return {n: list(v) if hasattr(v, "__len__") else v for n, v in ((n, getattr(found, n)) for n, _ in Launch._fields_)}
    driver.make_current(0)
    module = driver.load(b"\\x7fELF" + bytes(60))
    function = module.function("scale", 100_000)
    params = driver.aligned_buffer(256)
    prepared = driver.PreparedLaunch(function, (70_000, 2, 3), (128, 2, 1), 100_000, params, kernel="scale", plan="p")
"""


@on_the_stub
def test_stub_launch(stub: Path) -> None:
    """The configuration arrives whole, 64-bit streams and patched parameters too, and the buffer is used in place."""
    code = """
        launches = []
        for stream, value in ((0, 1), (2**47 + 5, 2**63 + 9)):
            params[:8] = value.to_bytes(8, "little")
            prepared.launch(stream)
            launches.append(last())
        address = ctypes.addressof(ctypes.c_ubyte.from_buffer(params))
        print(json.dumps([launches, function, address]))
    """
    (first, second), function, address = stubbed(stub, dedent(LAUNCH) + dedent(code))
    assert first == {
        "grid": [70_000, 2, 3], "block": [128, 2, 1], "shared": 100_000, "stream": 0, "attribute_count": 0,
        "function": function, "params": address, "first": 1, "flags": 0,
    }  # fmt: skip
    assert (second["stream"], second["first"]) == (2**47 + 5, 2**63 + 9)
    assert address % 128 == 0


@on_the_stub
@pytest.mark.parametrize("cooperative", [False, True])
@pytest.mark.parametrize("early", [False, True])
def test_stub_launch_attributes(stub: Path, cooperative: bool, early: bool) -> None:
    """CU_LAUNCH_ATTRIBUTE_COOPERATIVE is 2, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION 6."""
    code = f"""
        how = {{"is_cooperative": {cooperative}, "starts_early": {early}}}
        driver.PreparedLaunch(function, (1, 1, 1), (32, 1, 1), 0, params, **how).launch(0)
        print(json.dumps([last()["attribute_count"], last()["flags"]]))
    """
    assert stubbed(stub, dedent(LAUNCH) + dedent(code)) == [cooperative + early, 4 * cooperative + 64 * early]


@on_the_stub
def test_stub_launch_allocates_nothing(stub: Path) -> None:
    """A thousand launches leave nothing behind."""
    code = """
        import gc, tracemalloc
        prepared.launch(5)
        tracemalloc.start()
        gc.disable()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(1000):
            prepared.launch(5)
        print(json.dumps(tracemalloc.get_traced_memory()[0] - before))
    """
    assert stubbed(stub, dedent(LAUNCH) + dedent(code)) < 1000


@on_the_stub
def test_stub_modules(stub: Path) -> None:
    """A cubin is loaded once in a context, a function once in a module, and shared memory only ever raised."""
    code = """
        def calls():
            found = (ctypes.c_int * 3)()
            ctypes.CDLL("libcuda.so.1").stub_calls(found)
            return list(found)
        facts = [calls(), driver.load(b"\\x7fELF" + bytes(60)) is module]
        facts += [module.function("scale") == function, module.function("scale", 1000) == function, calls()]
        driver.load(b"\\x7fELF" + bytes(61)).function("small", 40_000)
        driver.make_current(1)
        driver.load(b"\\x7fELF" + bytes(60))
        print(json.dumps([*facts, calls()]))
    """
    facts = stubbed(stub, dedent(LAUNCH) + dedent(code), DEVICES=2)
    assert facts == [[1, 1, 100_000], True, True, True, [1, 1, 100_000], [3, 2, 100_000]]


ERRORS = {
    "launch": ("prepared.launch(3)", 700, "kernel scale of plan p: cuLaunchKernelEx"),
    "synchronize": ("driver.synchronize(3)", 700, "cuStreamSynchronize"),
    "pointer": ("driver.pointer_device(0x77777777)", 700, "cuPointerGetAttribute"),
    "cubin": ("driver.load(b'no cubin', 'gemm')", 200, "kernel gemm: cuModuleLoadData"),
    "entry": ("module.function('absent')", 500, "kernel absent: cuModuleGetFunction"),
    "shared": ("module.function('scale', 10**6)", 1, "cuFuncSetAttribute"),
    "device": ("driver.make_current(8)", 101, "cuDeviceGet"),
}


@on_the_stub
@pytest.mark.parametrize("name", ERRORS)
def test_stub_errors(stub: Path, name: str) -> None:
    call, code, text = ERRORS[name]
    script = f"""
        try:
            {call}
        except driver.CudaError as error:
            print(json.dumps([error.code, error.is_sticky, str(error)]))
    """
    answered = stubbed(stub, dedent(LAUNCH) + dedent(script), LAUNCH=700)
    assert answered[:2] == [code, code == 700]
    assert text in answered[2]


@on_the_stub
def test_stub_doctor(stub: Path) -> None:
    code = """
        from graphdnn.cli import doctor
        print(json.dumps([[f.name, f.state, f.detail] for f in (*doctor.gpu(), doctor.cuda_engines())]))
    """
    found = {name: (state, detail) for name, state, detail in stubbed(stub, code)}
    assert found["GPU 0"] == ("ok", "NVIDIA H200, sm_90, 132 multiprocessors, 141.0 GiB")
    assert found["CUDA engines"] == ("ok", "kernels for sm_90a, rates of the profile h200")
    found = {name: (state, detail) for name, state, detail in stubbed(stub, code, CAPABILITY=75, NAME="Tesla T4")}
    assert found["GPU 0"][0] == "broken"
    assert found["CUDA engines"][0] == "missing"
    found = {name: (state, detail) for name, state, detail in stubbed(stub, code, VERSION=12080)}
    assert "NVRTC 13.0 makes cubins" in found["CUDA engines"][1]


# The environment switches.


@pytest.fixture
def switched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    def switch(**variables: str) -> None:
        for name in (debug.VERBOSE, debug.DEBUG):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(f"GRAPHDNN_{name}", value)
        debug._said.clear()
        debug._named.clear()
        debug.read_environment()

    yield switch
    monkeypatch.undo()
    switch()


def test_nothing_is_printed_unasked(switched: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    for value in ("", "0", " 0 "):
        switched(VERBOSE=value)
        assert not debug.verbose
        assert not any(map(debug.asks, debug.SWITCHES))
    assert capsys.readouterr().err == ""


def test_switches(switched: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    switched(VERBOSE="1", DEBUG="source, ptxas,,colour")
    assert debug.verbose
    assert debug.asks("source")
    assert debug.asks("ptxas")
    assert not debug.asks("rank")
    err = capsys.readouterr().err
    assert "graphdnn,note,GRAPHDNN_DEBUG,colour is none of fusion rank" in err


def test_lines(switched: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    """One line each, whatever is in the fields; the first says what the fields are."""
    switched()
    debug.line("build", "conv, bias\n+ relu", "h200", "miss", 1.5)
    debug.line("build", "conv", "h200", "hit", 0.5, repeat="graphdnn run 'relu, x=f32[1,2]'")
    debug.say("a", "b")
    debug.say("a", "b")
    assert capsys.readouterr().err.splitlines() == [
        "graphdnn,template,build,plan,device,hit or miss,ms,repeat",
        "graphdnn,build,conv; bias + relu,h200,miss,1.5",
        "graphdnn,build,conv,h200,hit,0.5,graphdnn run 'relu, x=f32[1,2]'",
        "graphdnn,template,note,about,what",
        "graphdnn,note,a,b",
    ]


@pytest.mark.parametrize("stream", [None, types.SimpleNamespace()])
def test_nobody_reads(switched: Callable[..., None], monkeypatch: pytest.MonkeyPatch, stream: Any) -> None:
    switched()
    if stream is not None:

        def write(_: str) -> None:
            raise ValueError("I/O operation on closed file")

        stream.write = write
    monkeypatch.setattr(sys, "stderr", stream)
    debug.say("a", "b")

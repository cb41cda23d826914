"""The real cuda-bindings on a stub of libcuda (``driver_stub/libcuda.c``), in processes of their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from repository import ROOT

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
    script = "import ctypes, json\nfrom graphdnn.cuda import device_query, driver_api, nvrtc\nnvrtc.version = lambda: (13, 0)\n"
    run = subprocess.run(
        [sys.executable, "-c", script + dedent(code)], capture_output=True, text=True, env=environment, timeout=120
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@on_the_stub
@pytest.mark.parametrize("settings", [{}, {"DEVICES": 2}, {"INIT": 999}, {"DEVICES": 0}])
def test_a_glance_says_what_the_bindings_say(stub: Path, settings: dict[str, int]) -> None:
    """Or nothing, where they would refuse."""
    code = """
        import sys
        from graphdnn.cuda.device_probe import NUMBERS, glance
        seen = [glance(), glance(1)]
        loaded = "cuda.bindings.driver" in sys.modules
        def asked(ordinal):
            try:
                return device_query.present_device(ordinal)
            except Exception:
                return None
        same = [one == other for one, other in zip(seen, (asked(None), asked(1)))]
        import cuda.bindings.driver as bindings
        kinds = bindings.CUdevice_attribute
        numbers = {n: int(getattr(kinds, f"CU_DEVICE_ATTRIBUTE_{n}")) for n in NUMBERS}
        print(json.dumps([[s is not None for s in seen], same, loaded, numbers == NUMBERS]))
    """
    found, same, loaded, numbers = stubbed(stub, code, **settings)
    works = not settings.get("INIT") and settings.get("DEVICES", 1) > 0
    assert found == [works, works and settings.get("DEVICES", 1) > 1]
    assert same == [True, True]
    assert not loaded
    assert numbers


@on_the_stub
def test_stub_devices(stub: Path) -> None:
    code = """
        driver_api.make_current(1)
        driver_api.make_current(1)
        spec = device_query.present_device()
        print(json.dumps([driver_api.available(), driver_api.device_count(), driver_api.current_device(), spec.to_json(),
                          driver_api.memory_info(), driver_api.is_capturing(7), driver_api.is_capturing(0),
                          driver_api.pointer_device(64), [driver_api.pointer_device(1 << bits) for bits in (40, 41)],
                          driver_api.driver_version()]))
    """
    why, count, current, spec, memory, capturing, not_capturing, host, device, version = stubbed(stub, code, DEVICES=2)
    assert (why, count, current) == ("", 2, 1)
    assert (spec["name"], spec["sm_count"], spec["compute_capability"]) == ("h200", 132, [9, 0])
    assert memory == [100 << 30, 141 << 30]
    assert (capturing, not_capturing, host, device, version) == (True, False, None, [0, 1], [13, 0])


@on_the_stub
def test_stub_without_a_device(stub: Path) -> None:
    code = "print(json.dumps(driver_api.available()))"
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
    driver_api.make_current(0)
    module = driver_api.load(b"\\x7fELF" + bytes(60))
    function = module.function("scale", 100_000)
    params = driver_api.aligned_buffer(256)
    prepared = driver_api.PreparedLaunch(function, (70_000, 2, 3), (128, 2, 1), 100_000, params, kernel="scale", plan="p")
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
        driver_api.PreparedLaunch(function, (1, 1, 1), (32, 1, 1), 0, params, **how).launch(0)
        print(json.dumps([last()["attribute_count"], last()["flags"]]))
    """
    assert stubbed(stub, dedent(LAUNCH) + dedent(code)) == [cooperative + early, 4 * cooperative + 64 * early]


@on_the_stub
def test_stub_launch_allocates_nothing(stub: Path) -> None:
    """A thousand launches leave nothing behind; what Python keeps from the first ones on is none of it."""
    code = """
        import gc, tracemalloc
        prepared.launch(5)
        tracemalloc.start()
        gc.disable()
        for turn in range(2):
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
        facts = [calls(), driver_api.load(b"\\x7fELF" + bytes(60)) is module]
        facts += [module.function("scale") == function, module.function("scale", 1000) == function, calls()]
        driver_api.load(b"\\x7fELF" + bytes(61)).function("small", 48 * 1024 - 32)
        driver_api.make_current(1)
        driver_api.load(b"\\x7fELF" + bytes(60))
        print(json.dumps([*facts, calls()]))
    """
    facts = stubbed(stub, dedent(LAUNCH) + dedent(code), DEVICES=2)
    assert facts == [[1, 1, 100_000], True, True, True, [1, 1, 100_000], [3, 2, 100_000]]


@on_the_stub
def test_stub_static_shared_memory_counts(stub: Path) -> None:
    """48 KiB are what a block may have unasked in all: the stub's functions have 32 bytes of their own."""
    code = """
        driver_api.load(b"\\x7fELF" + bytes(61)).function("more", 48 * 1024 - 31)
        found = (ctypes.c_int * 3)()
        ctypes.CDLL("libcuda.so.1").stub_calls(found)
        print(found[2])
    """
    assert stubbed(stub, dedent(LAUNCH) + dedent(code)) == 48 * 1024 - 31


ERRORS = {
    "launch": ("prepared.launch(3)", 700, "kernel scale of plan p: cuLaunchKernelEx"),
    "synchronize": ("driver_api.synchronize(3)", 700, "cuStreamSynchronize"),
    "pointer": ("driver_api.pointer_device(0x77777777)", 700, "cuPointerGetAttribute"),
    "cubin": ("driver_api.load(b'no cubin', 'gemm')", 200, "kernel gemm: cuModuleLoadData"),
    "entry": ("module.function('absent')", 500, "kernel absent: cuModuleGetFunction"),
    "shared": ("module.function('scale', 10**6)", 1, "cuFuncSetAttribute"),
    "device": ("driver_api.make_current(8)", 101, "cuDeviceGet"),
}


@on_the_stub
@pytest.mark.parametrize("name", ERRORS)
def test_stub_errors(stub: Path, name: str) -> None:
    call, code, text = ERRORS[name]
    script = f"""
        try:
            {call}
        except driver_api.CudaError as error:
            print(json.dumps([error.code, error.is_sticky, str(error)]))
    """
    answered = stubbed(stub, dedent(LAUNCH) + dedent(script), LAUNCH=700)
    assert answered[:2] == [code, code == 700]
    assert text in answered[2]


@on_the_stub
def test_stub_doctor(stub: Path) -> None:
    code = """
        from graphdnn.cli.commands import doctor
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

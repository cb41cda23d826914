"""The driver's library: found and initialised once, or the reason why it cannot be used."""

from __future__ import annotations

import ctypes
import importlib
import sys
from functools import cache
from typing import Any

from graphdnn.cuda.errors import CudaError, cuda_error
from graphdnn.cuda.nvrtc import NO_BINDINGS
from graphdnn.enums import Status
from graphdnn.errors import NotSupported, Rejection
from graphdnn.rules import Rule

_NO_DEVICE_CODE = 100
LIBRARIES = ("nvcuda.dll",) if sys.platform == "win32" else ("libcuda.so.1", "libcuda.so")

NO_DRIVER = Rule(
    id="cuda.driver.library",
    expected="a working NVIDIA driver",
    reason="the driver's library does not load or does not start: {detail}",
    fix="install the NVIDIA driver, or use the device cpu",
    status=Status.NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING,
)
NO_DEVICE = Rule(
    id="cuda.driver.device",
    expected="a device that the driver shows to this process",
    reason="the driver finds {count} ({detail})",
    fix="check nvidia-smi and CUDA_VISIBLE_DEVICES, or use the device cpu",
    status=Status.NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING,
)
OLD_DRIVER = Rule(
    id="cuda.driver.version",
    expected="a driver for CUDA {wanted} or later",
    reason="{why}",
    fix="update the NVIDIA driver, or install graphdnn[cuda12] for a driver of CUDA 12",
    status=Status.NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER,
)


def available() -> str:
    """An empty text when a device can be used, else the reason, in one sentence."""
    refusal = _state()[1]
    return "" if refusal is None else refusal.reason


def bindings() -> Any:
    """The module ``cuda.bindings.driver``, initialised. Raises ``NotSupported`` with the reason."""
    module, refusal = _state()
    if refusal is not None:
        raise NotSupported(refusal)
    return module


def called(call: str, *arguments: Any, kernel: str = "", plan: str = "") -> Any:
    """Call the driver by name: its one result, a tuple of several, or None. Raises ``CudaError``."""
    status, *results = getattr(bindings(), call)(*arguments)
    if int(status):
        raise error_of(call, int(status), kernel=kernel, plan=plan)
    return results[0] if len(results) == 1 else tuple(results) if results else None


def error_of(call: str, code: int, *, kernel: str = "", plan: str = "") -> CudaError:
    return cuda_error(call, code, *_said(bindings(), code), kernel=kernel, plan=plan)


def driver_version() -> tuple[int, int]:
    """The newest CUDA that the driver knows."""
    number = called("cuDriverGetVersion")
    return number // 1000, number % 1000 // 10


@cache
def launch_function() -> Any:
    """``cuLaunchKernelEx`` for ctypes, which takes arguments made beforehand; the bindings make theirs at each call."""
    return driver_functions("cuLaunchKernelEx", since="11.8")[0]


def driver_functions(*names: str, since: str) -> list[Any]:
    """Functions of the driver for ctypes. They have no argument types, so pointers are passed as ctypes objects.

    ``since``: the CUDA version that they came with, for the refusal of an older driver.
    """
    bindings()
    for name in LIBRARIES:
        try:
            library = ctypes.CDLL(name)  # the bindings have loaded it; this finds the same one
        except OSError:
            continue
        found = [getattr(library, function, None) for function in names]
        for function, known in zip(names, found, strict=True):
            if known is None:
                why = f"{function} came with CUDA {since}"
                raise NotSupported(OLD_DRIVER.reject("CUDA driver", function, "missing", wanted=since, why=why))
            known.restype = ctypes.c_int
        return found
    raise NotSupported(NO_DRIVER.reject("CUDA driver", "library", "not loaded", detail=" ".join(LIBRARIES)))


@cache
def _state() -> tuple[Any, Rejection | None]:
    """(bindings, None) or (None, why not); looked at once, for a driver does not come and go."""
    where = "CUDA driver"
    try:
        module = importlib.import_module("cuda.bindings.driver")
    except ImportError as error:
        return None, NO_BINDINGS.reject(where, "cuda-bindings", "missing", detail=str(error))
    try:
        code = int(module.cuInit(0)[0])
        status, count = module.cuDeviceGetCount() if not code else (code, 0)
    except Exception as error:
        # The bindings load the library on the first call; what they raise differs by version.
        detail = (str(error).strip() or type(error).__name__).splitlines()[0].split(". ")[0]
        return None, NO_DRIVER.reject(where, "library", "not loaded", detail=detail)
    if int(status) == _NO_DEVICE_CODE or (not int(status) and count == 0):
        return None, NO_DEVICE.reject(where, "device count", 0, count="no device", detail=_said(module, 100)[0])
    if int(status):
        name, description = _said(module, int(status))
        return None, NO_DRIVER.reject(where, "cuInit", f"{name} ({int(status)})", detail=description)
    return module, None


def _said(module: Any, code: int) -> tuple[str, str]:
    """The driver's name of a code and its words for it."""
    texts = []
    for ask, otherwise in ((module.cuGetErrorName, f"CUDA error {code}"), (module.cuGetErrorString, "no description")):
        try:
            status, text = ask(module.CUresult(code))
        except ValueError:  # a code that is newer than the bindings
            status, text = 1, None
        texts.append(text.decode(errors="replace") if not int(status) and text else otherwise)
    return texts[0], texts[1]

"""CUDA's own libraries (cuBLAS, cuFFT) through ctypes: found once, or the reason why not.

CuPy's bindings set the stream themselves, which drops the workspace of a cuBLAS handle, so the few functions that are
needed here are called directly. The libraries come from the wheels that PyTorch and CuPy use, or from a toolkit.
"""

from __future__ import annotations

import ctypes
import importlib
from functools import cache
from typing import Any

from graphdnn.cuda import library_record
from graphdnn.cuda.driver_library import available
from graphdnn.cuda.errors import CudaError, OutOfMemory
from graphdnn.enums import Status
from graphdnn.errors import NotSupported, Rejection
from graphdnn.rules import Rule

_VERSIONS = (13, 12, 11)

MISSING = Rule(
    id="cuda.library.missing",
    expected="the shared library of {library}",
    reason="the engine calls that library",
    fix="pip install {package}, or choose another engine",
    status=Status.NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE,
)
CALL = Rule(
    id="cuda.library.call",
    expected="success",
    reason="{library} answers {name} ({code})",
    fix="report it with the problem; another engine serves it as well",
    status=Status.EXECUTION_FAILED,
)


@cache
def find(name: str) -> tuple[Any, Rejection | None]:
    """(the loaded library, None) or (None, why not). ``name``: "cublas", "cufft"."""
    try:
        path = importlib.import_module("cuda.pathfinder").load_nvidia_dynamic_lib(name).abs_path
        library = ctypes.CDLL(path)
        library_record.keep(name)
        return library, None
    except Exception as error:  # whatever keeps it from loading is the reason
        text = str(error).strip()
        detail = text.splitlines()[0].partition(": No such file")[0] if text else type(error).__name__
    for version in _VERSIONS:
        try:
            return ctypes.CDLL(f"lib{name}.so.{version}"), None
        except OSError:
            continue
    return None, MISSING.reject(
        "CUDA libraries", name, f"not loaded ({detail})", library=name, package=f"nvidia-{name}"
    )


def load(name: str) -> Any:
    """The library. Raises ``NotSupported`` with the reason."""
    library, refusal = find(name)
    if refusal is not None:
        raise NotSupported(refusal)
    return library


def missing(name: str) -> str:
    """An empty text when the library loads, or did before in this environment; else what came of it."""
    if library_record.note_of(name) is not None:
        return ""
    refusal = find(name)[1]
    return "" if refusal is None else str(refusal.value)


def missing_on_devices(name: str) -> str:
    """As ``missing``, but empty without a driver: then no plan runs here, and where one will, CUDA has its libraries.

    So a ranking for the profile of a device is the one that the device's own machine makes.
    """
    reason = missing(name)
    return reason if reason and not available() else ""


def check(library: str, call: str, code: int, name: str, status: Status) -> None:
    """Raise for a code other than 0."""
    if name.endswith("ALLOC_FAILED"):
        raise OutOfMemory.of_library(library, call, name)
    if code:
        rejection = CALL.reject(library, call, f"{name} ({code})", status=status, library=library, name=name, code=code)
        raise CudaError(rejection, code, name, call)

"""doctor: show what the library finds on this machine, and how to get what is missing"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

import graphdnn
from graphdnn.cli.exit_codes import Exit
from graphdnn.cuda.cache_maintenance import stored
from graphdnn.cuda.device_query import present_device
from graphdnn.cuda.kernel_cache import LIMIT_BYTES
from graphdnn.cuda.library_record import looking
from graphdnn.cuda.nvrtc import CAPABILITY, OLDEST, arch_of, loaded_version
from graphdnn.cuda.private import FIX as PRIVATE
from graphdnn.cuda.private import distrust
from graphdnn.device.profiles import PROFILES
from graphdnn.errors import GraphdnnError
from graphdnn.storage import cache_directory
from graphdnn.text_format import facts, indented, plural, size, table

OLDEST_PYTHON = (3, 10)
NEEDED = ("numpy", "pydantic", "networkx", "ml_dtypes", "scipy")
CUDA = "for an NVIDIA GPU: pip install 'graphdnn[cuda12]' (graphdnn[cuda13] for a driver of CUDA 13)"
NO_GPU = "nothing to do: without a GPU the NumPy engines serve everything"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line. ``needed``: the library does not work without it."""

    name: str
    state: str  # "ok", "missing" or "broken"
    detail: str
    fix: str = ""
    needed: bool = False

    @property
    def is_failure(self) -> bool:
        return self.needed and self.state != "ok"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the same as JSON")


def run(arguments: argparse.Namespace) -> Exit:
    with looking():
        findings = list(examine())
    print(json.dumps([asdict(f) for f in findings], indent=1) if arguments.json else as_text(findings))
    return Exit.CHECK_FAILED if any(f.is_failure for f in findings) else Exit.OK


def as_text(findings: list[Finding]) -> str:
    heads = table(("", ""), [(f.name, f.state) for f in findings]).splitlines()
    widest = max(map(len, heads))
    lines = []
    for finding, head in zip(findings, heads, strict=True):
        lines.append(facts([(head.ljust(widest), finding.detail)], by=""))
        if finding.fix and finding.state != "ok":
            lines.append(indented(f"fix: {finding.fix}", " " * 4))
    failures = [f.name for f in findings if f.is_failure]
    lines.append("\nbroken: " + ", ".join(failures) if failures else "\neverything that is needed is there")
    return "\n".join(lines)


def examine() -> Iterator[Finding]:
    """Every finding, the needed things first."""
    yield python()
    yield Finding("graphdnn", "ok", f"{graphdnn.__version__} in {Path(graphdnn.__file__).parent}", needed=True)
    for package in NEEDED:
        yield needed_package(package)
    yield blas()
    yield self_test()
    yield cache_folder()
    yield from gpu()
    yield cuda_engines()
    yield optional("CuPy", lambda: _imported("cupy"), CUDA)
    yield optional("NVRTC", nvrtc, CUDA)
    yield optional("cuda-bindings", lambda: version("cuda-bindings"), CUDA)
    yield optional("scikit-image", lambda: _imported("skimage"), "pip install 'graphdnn[demo]' (for graphdnn demo)")
    yield optional("PyTorch", lambda: version("torch"), "pip install torch (only to compare with its operators)")


def python() -> Finding:
    ok = sys.version_info >= OLDEST_PYTHON
    detail = (
        f"{platform.python_version()} ({platform.python_implementation()}) on {platform.system()} {platform.machine()}"
    )
    return Finding("Python", "ok" if ok else "broken", detail, "use Python 3.10 or later", needed=True)


def needed_package(name: str) -> Finding:
    try:
        return Finding(name, "ok", _imported(name), needed=True)
    except Exception as error:
        # Whatever an import may raise: a missing package, a wrong ABI, a missing shared library.
        return Finding(name, "broken", _said(error), f"pip install --force-reinstall {name}", needed=True)


def blas() -> Finding:
    """Products of matrices run there; how many threads it takes is its own decision."""
    known = np.show_config(mode="dicts")
    entry = known.get("Build Dependencies", {}).get("blas", {}) if isinstance(known, dict) else {}
    threads = blas_threads()
    said = plural(threads, "thread") if threads else "threads unknown"
    return Finding(
        "BLAS", "ok", f"{entry.get('name', 'unknown')} {entry.get('version', '')}, {said} of {cores()} cores"
    )


def blas_threads() -> int | None:
    """From the OpenBLAS that NumPy's wheels carry, else from the environment."""
    folder = Path(np.__file__).parent
    for library in sorted([*folder.parent.glob("numpy.libs/*openblas*"), *folder.glob(".dylibs/*openblas*")]):
        for symbol in ("scipy_openblas_get_num_threads64_", "scipy_openblas_get_num_threads"):
            try:
                return int(getattr(ctypes.CDLL(str(library)), symbol)())
            except (OSError, AttributeError):
                continue
    for variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        if os.environ.get(variable, "").isdigit():
            return int(os.environ[variable])
    return None


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def self_test() -> Finding:
    """A small convolution in integers, built and run: the whole way from graph to result."""
    from graphdnn.problem import parse, random_bindings

    try:
        graph = parse("conv x=i8[1,4,6,6] w=i8[4,4,3,3] pad=1").build_operation_graph()
        plan = graphdnn.build(graph)
        plan.execute(random_bindings(graph, 0), plan.new_workspace())
    except Exception as error:
        return Finding("self-test", "broken", _said(error), "reinstall graphdnn; if it stays, report it", needed=True)
    return Finding("self-test", "ok", f"a convolution ran on engine {plan.name}", needed=True)


def cache_folder() -> Finding:
    """Where compiled kernels are kept. Only a GPU needs it, so that it is not writable breaks nothing."""
    folder = cache_path()
    fix = "set GRAPHDNN_CACHE_DIR to a folder that can be written"
    if folder is None:
        return Finding("cache folder", "missing", "no home folder: kernels stay in memory", fix)
    why = distrust(folder)
    if why is not None:
        return Finding("cache folder", "broken", f"{folder}: {why}; kernels stay in memory", PRIVATE)
    existing = next((p for p in (folder, *folder.parents) if p.exists()), Path(folder.anchor))
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        return Finding("cache folder", "broken", f"{folder}: {error.strerror}", fix)
    if not folder.exists():
        return Finding("cache folder", "ok", f"{folder} (made when it is needed)")
    files = stored(folder)
    amount = size(sum(file.bytes for file in files))
    return Finding("cache folder", "ok", f"{folder}, {plural(len(files), 'kernel')}, {amount} of {size(LIMIT_BYTES)}")


def cache_path() -> Path | None:
    return cache_directory()


# The GPU, through the driver's own library: it is there exactly when the driver is.


def gpu() -> Iterator[Finding]:
    driver = _driver()
    if driver is None:
        yield Finding("NVIDIA driver", "missing", "no libcuda", NO_GPU)
        return
    number = ctypes.c_int()
    status = driver.cuInit(0)
    driver.cuDriverGetVersion(ctypes.byref(number))
    yield Finding("NVIDIA driver", "ok", f"for CUDA {number.value // 1000}.{number.value % 1000 // 10}")
    devices = ctypes.c_int()
    if status or driver.cuDeviceGetCount(ctypes.byref(devices)) or not devices.value:
        yield Finding("GPU", "missing", f"the driver finds none (CUDA error {status})", NO_GPU)
        return
    for index in range(devices.value):
        yield _device(driver, index)


def _driver() -> ctypes.CDLL | None:
    for name in ("libcuda.so.1", "nvcuda.dll"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def _device(driver: ctypes.CDLL, index: int) -> Finding:
    """``NVIDIA H200, sm_90, 132 multiprocessors, 139.8 GiB``."""
    device, text, memory = ctypes.c_int(), ctypes.create_string_buffer(128), ctypes.c_size_t()
    driver.cuDeviceGet(ctypes.byref(device), index)
    driver.cuDeviceGetName(text, len(text), device)
    driver.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR, MULTIPROCESSOR_COUNT
    major, minor, processors = (_attribute(driver, device, number) for number in (75, 76, 16))
    name, gibibytes = text.value.decode(errors="replace"), memory.value / 2**30
    detail = f"{name}, sm_{major}{minor}, {processors} multiprocessors, {gibibytes:.1f} GiB"
    if (major, minor) < OLDEST:
        return Finding(f"GPU {index}", "broken", f"{detail}: too old", CAPABILITY.fix)
    return Finding(f"GPU {index}", "ok", detail)


def _attribute(driver: ctypes.CDLL, device: ctypes.c_int, number: int) -> int:
    value = ctypes.c_int()
    driver.cuDeviceGetAttribute(ctypes.byref(value), number, device)
    return value.value


def cuda_engines() -> Finding:
    """Everything that a plan on the GPU needs, asked for as a plan does: bindings, driver, compiler, capability."""
    try:
        spec = present_device()
    except GraphdnnError as error:
        first = error.rejections[0]
        return Finding("CUDA engines", "missing", first.reason, first.fix)
    known = f"rates of the profile {spec.name}" if spec.name in PROFILES else "rates from its clock"
    return Finding("CUDA engines", "ok", f"kernels for {arch_of(spec.compute_capability)}, {known}")


# Packages that add something.


def optional(name: str, find: Callable[[], str], fix: str) -> Finding:
    """``find`` returns the version; not finding the package is no failure, one that does not load is worth a word."""
    try:
        return Finding(name, "ok", find())
    except (ModuleNotFoundError, PackageNotFoundError):
        return Finding(name, "missing", "not installed", fix)
    except Exception as error:
        return Finding(name, "broken", _said(error), fix)


def nvrtc() -> str:
    """The compiler's version, from the library that cuda-bindings loads."""
    try:
        return "{}.{}".format(*loaded_version())
    except GraphdnnError as error:
        cause = error.__cause__
        raise (cause if isinstance(cause, Exception) else error) from None


def _imported(name: str) -> str:
    return str(importlib.import_module(name).__version__)


def _said(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__

"""Kernel text to a cubin, through NVRTC. Needs the compiler's library, neither a GPU nor a driver.

The text is one string without includes, so what NVRTC reads is exactly what the kernel cache hashes. Arithmetic
is IEEE: denormals are kept and division is exact, because no option here says otherwise.
"""

from __future__ import annotations

import importlib
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

from graphdnn import debug_log
from graphdnn.cuda import library_record
from graphdnn.enums import Status
from graphdnn.errors import InternalError, NotSupported
from graphdnn.rules import Rule

OLDEST = (8, 0)
ALWAYS = ("--std=c++17", "-default-device", "--ptxas-options=-v")
_ARCHITECTURE_SPECIFIC = {(9, 0): "sm_90a"}  # wgmma and TMA are in the "a" set only
_ERROR_LINES = 6

NO_BINDINGS = Rule(
    id="cuda.bindings",
    expected="the package cuda-bindings",
    reason="NVRTC and the driver are called through cuda-bindings, which cannot be imported: {detail}",
    fix="pip install 'graphdnn[nvrtc]' compiles for device profiles; graphdnn[cuda13] or [cuda12] also executes",
    status=Status.NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING,
)
NO_LIBRARY = Rule(
    id="cuda.nvrtc.library",
    expected="NVRTC's shared library",
    reason="kernels are compiled on this machine, and the compiler does not load: {detail}",
    fix="pip install nvidia-cuda-nvrtc (nvidia-cuda-nvrtc-cu12 for CUDA 12)",
    status=Status.NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING,
)
ARCHITECTURE = Rule(
    id="cuda.nvrtc.architecture",
    expected="one of {known}",
    reason="NVRTC {version} does not compile for this architecture",
    fix="install a newer nvidia-cuda-nvrtc, or compile for an architecture that it knows",
    status=Status.NOT_SUPPORTED_ARCH_MISMATCH,
)
CAPABILITY = Rule(
    id="cuda.capability",
    expected="compute capability 8.0 or later",
    reason="the kernels use instructions that came with Ampere (bf16 and tf32 tensor cores, cp.async)",
    fix="use an Ampere, Ada, Hopper or later GPU, or the device cpu",
    status=Status.NOT_SUPPORTED_ARCH_MISMATCH,
)
COMPILATION = Rule(
    id="cuda.nvrtc.compilation",
    expected="text that compiles",
    reason="NVRTC {version} answers {result} to the text in {path}:{errors}",
    fix="report it with that file: kernel text is the library's own",
    status=Status.INTERNAL_ERROR_COMPILATION_FAILED,
)


@dataclass(frozen=True, slots=True)
class KernelText:
    """What is compiled. ``name`` is stable: it is the program's file name, and what errors and reports say."""

    name: str
    text: str
    options: tuple[str, ...] = ()  # besides the options of every kernel


@dataclass(frozen=True, slots=True)
class Compiled:
    cubin: bytes
    log: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Resources:
    """What one entry takes, in registers per thread and bytes, from the compiler's log."""

    registers: int = 0
    stack: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    shared: int = 0  # static; what a launch adds is not known here
    warnings: tuple[str, ...] = ()


def version() -> tuple[int, int]:
    """NVRTC's version; of the one that loaded here before, as long as this process has not opened it.

    Raises ``NotSupported`` when it cannot be loaded.
    """
    if not _loaded.cache_info().currsize:
        note = library_record.note_of("nvrtc")
        if note is not None and note.version is not None:
            return note.version
    return loaded_version()


def loaded_version() -> tuple[int, int]:
    """What NVRTC itself says, which opens it. Raises ``NotSupported`` when it cannot be loaded."""
    return _loaded()[1]


def arch_of(compute_capability: tuple[int, int], device: str = "device") -> str:
    """The architecture to compile for: ``sm_90a`` for (9, 0). Raises ``NotSupported`` below 8.0."""
    major, minor = compute_capability
    if (major, minor) < OLDEST:
        raise NotSupported(CAPABILITY.reject(device, "compute capability", f"{major}.{minor}"))
    return _ARCHITECTURE_SPECIFIC.get((major, minor), f"sm_{major}{minor}")


def options_of(kernel: KernelText, arch: str) -> tuple[str, ...]:
    """All options, in the order in which they are passed."""
    lines = ("-lineinfo",) if debug_log.asks("lineinfo") else ()
    return (f"--gpu-architecture={arch}", *ALWAYS, *lines, *kernel.options)


def compile_text(kernel: KernelText, arch: str) -> Compiled:
    """Compile for one architecture. Raises ``NotSupported`` or ``InternalError``, which says why."""
    nvrtc, _ = _loaded()
    _check_architecture(arch, kernel.name)
    if debug_log.asks("source"):
        debug_log.line("source", kernel.name, _saved(kernel))
    options = [option.encode() for option in options_of(kernel, arch)]
    start = time.perf_counter()
    result, program = nvrtc.nvrtcCreateProgram(kernel.text.encode(), f"{kernel.name}.cu".encode(), 0, [], [])
    if int(result):
        raise _failure(kernel, arch, result.name, "")
    try:
        (result,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        log = _bytes_of(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
        text = log.rstrip(b"\0 \n").decode(errors="replace")
        if int(result):
            raise _failure(kernel, arch, result.name, text)
        cubin = _bytes_of(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    if debug_log.asks("ptxas"):
        for entry, r in resources(text).items():
            fields = (r.registers, r.stack, r.spill_stores, r.spill_loads, r.shared)
            debug_log.line("resources", kernel.name, entry, *fields)
    return Compiled(cubin, text, time.perf_counter() - start)


def resources(log: str) -> dict[str, Resources]:
    """Per entry, what ptxas says of it. Warnings that name no entry belong to every one."""
    found: dict[str, dict[str, int]] = {}
    warnings: list[str] = []
    entry: dict[str, int] = {}
    for line in log.splitlines():
        if match := re.search(r"Compiling entry function '([^']+)'", line):
            entry = found.setdefault(match[1], {})
        elif "warning" in line.lower() or "Potential Performance Loss" in line:
            warnings.append(line.strip())
        else:
            entry |= {
                field: int(match[1]) for field, pattern in _AMOUNTS.items() if (match := re.search(pattern, line))
            }
    named = {name: [w for w in warnings if f"'{name}'" in w] for name in found}
    common = [w for w in warnings if not any(w in own for own in named.values())]
    return {name: Resources(**amounts, warnings=(*named[name], *common)) for name, amounts in found.items()}


_AMOUNTS: Mapping[str, str] = MappingProxyType({
    "registers": r"Used (\d+) registers",
    "stack": r"(\d+) bytes stack frame",
    "spill_stores": r"(\d+) bytes spill stores",
    "spill_loads": r"(\d+) bytes spill loads",
    "shared": r"(\d+) bytes smem",
})  # fmt: skip


@cache
def _loaded() -> tuple[Any, tuple[int, int]]:
    """NVRTC's module and version; a failure is not kept, so an installation in a running process is seen."""
    where = "NVRTC"
    try:
        nvrtc = importlib.import_module("cuda.bindings.nvrtc")
    except ImportError as error:
        raise NotSupported(NO_BINDINGS.reject(where, "cuda-bindings", "missing", detail=str(error))) from error
    try:
        result, major, minor = nvrtc.nvrtcVersion()
    except Exception as error:
        # The bindings load the library on the first call; what they raise differs by version.
        detail = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise NotSupported(NO_LIBRARY.reject(where, "library", "not loaded", detail=detail)) from error
    if int(result):
        raise NotSupported(NO_LIBRARY.reject(where, "library", result.name, detail="nvrtcVersion fails"))
    found = int(major), int(minor)
    library_record.keep("nvrtc", found)
    return nvrtc, found


@cache
def _architectures() -> tuple[int, ...]:
    result, known = _loaded()[0].nvrtcGetSupportedArchs()
    return () if int(result) else tuple(number for number in known if divmod(number, 10) >= OLDEST)


def _check_architecture(arch: str, name: str) -> None:
    match = re.fullmatch(r"sm_(\d+)[af]?", arch)
    if match is None or int(match[1]) not in _architectures():
        known = ", ".join(f"sm_{number}" for number in _architectures())
        rejection = ARCHITECTURE.reject(f"kernel {name}", "architecture", arch, known=known, version=_version_text())
        raise NotSupported(rejection)


def _bytes_of(size_of: Any, get: Any, program: Any) -> bytes:
    result, size = size_of(program)
    if int(result):
        return b""
    # The bindings write into a bytes object. One byte more than needed: Python shares all objects of one byte,
    # and writing into b" " would change that byte everywhere in the process.
    buffer = b" " * (size + 1)
    (result,) = get(program, buffer)
    return b"" if int(result) else buffer[:size]


def _failure(kernel: KernelText, arch: str, result: str, log: str) -> InternalError:
    errors = "".join(f"\n    {line}" for line in first_errors(log)) or " (no log)"
    rejection = COMPILATION.reject(
        f"kernel {kernel.name}", "text", f"for {arch}",
        version=_version_text(), result=result, errors=errors, path=_saved(kernel),
    )  # fmt: skip
    return InternalError(rejection)


def _version_text() -> str:
    return "{}.{}".format(*loaded_version())


def first_errors(log: str) -> Sequence[str]:
    """The lines with the first errors, each with the two that show the place; all of a log without any."""
    lines = [line.rstrip() for line in log.splitlines() if line.strip()]
    at = [i for i, line in enumerate(lines) if "error" in line.lower()]
    return [line for i in at for line in lines[i : i + 3]][:_ERROR_LINES] or lines[:_ERROR_LINES]


def _saved(kernel: KernelText) -> str:
    """The text in a file of its own, for whoever looks into it; where it cannot be written, why."""
    import tempfile  # only here: it would make every `import graphdnn` slower

    stem = re.sub(r"[^\w.-]+", "_", kernel.name)[:80]
    try:
        handle, path = tempfile.mkstemp(prefix=f"graphdnn-{stem}-", suffix=".cu")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(kernel.text)
    except OSError as error:
        return f"not saved ({error.strerror})"
    return path

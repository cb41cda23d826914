"""Compiles kernel text for the host and launches it there.

Kernel text and what stands in for CUDA (cuda_on_host.h) become one small shared library per text; the scheduler is
a library of its own, compiled once. Both are kept by content under the temporary directory, so that test processes
share them. Pointers in the parameters are addresses of host memory: `array.ctypes.data`.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import math
import os
import re
import shutil
import subprocess
import tempfile
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).resolve().parent
COMPILER = shutil.which("g++")
# Tests mark themselves with pytest.mark.skipif(MISSING, reason=MISSING).
MISSING = "" if COMPILER else "g++ is not installed: kernels are NOT run on the host"
OPTIONS = (
    "-std=c++17",
    "-shared",
    "-fPIC",
    "-w",
    "-fstack-clash-protection",
    "-fno-strict-aliasing",
    "-fwrapv",
    "-U_FORTIFY_SOURCE",
)
KEPT_SECONDS = 86_400
MAX_THREADS, MAX_SHARED, MAX_GRID = 1024, 227 * 1024, (2**31 - 1, 65_535, 65_535)
CANARY = 0xA5

_HEADERS = ("scheduler.h", "tensor_unit.h")
_PARTS = ("scheduler.cpp", "shared_accesses.cpp", "copy_unit.cpp", "warpgroup_products.cpp")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_CLUSTER = re.compile(r"^constexpr int CLUSTER = (\d+);", re.MULTILINE)  # blocks of a cluster run at the same time
_WAITS = re.compile(r"\b(__sync|__shfl_|__ballot_|__any_sync|__all_sync|__reduce_|__nanosleep|emulated_)")
_DYNAMIC_SHARED = re.compile(r"\bextern\b([^;{}\"]*)\b__shared__\b([^;{}\"]*?)\b(\w+)\s*\[\s*\]\s*;")
_CODE = re.compile(r"<([^<>]*)\+([0-9a-f]+)>")  # shared_accesses.cpp says it
_ALIGNMENT = re.compile(r"(__align__|alignas|__attribute__)\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")


class EmulationError(Exception):
    """The text does not compile, or a launch would have hung, or have been undefined, on the device."""


class Emulated:
    """Compiled text. ``launch`` runs an entry to its end."""

    def __init__(self, library: ctypes.CDLL, entries: tuple[str, ...], text: str, watched: bool = False) -> None:
        self._library, self._watched = library, watched
        self._entries = entries
        self.text = text
        self._cluster = int((_CLUSTER.search(text) or (0, 0))[1])
        self._fibers = bool(_WAITS.search(_COMMENT.sub(" ", text)))

    def launch(
        self,
        entry: str,
        grid: Sequence[int],
        block: Sequence[int] | int,
        shared: int = 0,
        params: bytes | bytearray | memoryview | NDArray[Any] = b"",
        *,
        backward: bool = False,
        exits_allowed: bool = False,
        together: bool = False,
    ) -> None:
        """Runs ``entry`` with a copy of the struct's bytes in ``params``; raises ``EmulationError``.

        ``together`` is a cooperative launch: blocks may wait for each other.
        ``backward`` runs the threads from the last to the first: a missing barrier shows in one of the two orders.
        ``exits_allowed`` lets threads return before a barrier that others wait at, as the hardware does.
        """
        if entry not in self._entries:
            raise EmulationError(f"{entry} is not one of the entries {self._entries}")
        grid, block = _three(grid), _three(block)
        _check_limits(grid, block, shared)
        given = memoryview(params).cast("B")
        expected = int(getattr(self._library, f"emulated_size_{entry}")())
        if len(given) != expected:
            raise EmulationError(f"{entry} takes {expected} bytes of parameters, got {len(given)}")
        memory = np.empty(len(given) + 128, np.uint8)
        start = -memory.ctypes.data % 128  # as a tensor map wants it
        arguments = memory[start : start + len(given)]
        arguments[:] = given
        message, address = ctypes.create_string_buffer(2048), ctypes.c_void_p()
        failed = _scheduler().emulated_launch(
            getattr(self._library, f"emulated_run_{entry}"), ctypes.c_void_p(arguments.ctypes.data),
            (ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(*block), ctypes.c_uint(shared),
            self._library.emulated_fixed_shared, int(self._fibers), int(together) or self._cluster, int(backward), int(exits_allowed),
            int(self._watched),
            message, ctypes.c_size_t(len(message)), ctypes.byref(address),
        )  # fmt: skip
        if failed:
            said = _CODE.sub(_line_of, message.value.decode())
            raise EmulationError(f"{entry}: {said}{_nearest_array(address.value)}")
        _check_margins(entry)


def compile_for_host(text: str, entries: Sequence[str], *, watched: bool = False) -> Emulated:
    """``text`` compiled as C++; ``entries`` are its kernels, each with one struct as its only argument.

    ``watched``: a launch fails where threads touch the same byte of shared memory in no order, one of them writing it.
    """
    entries = tuple(entries)
    lines = [f'#include "{HERE / "cuda_on_host.h"}"', "namespace {", '#line 1 "kernel.cu"', _host_text(text), "}"]
    lines += [f"EMULATED_ENTRY({entry})" for entry in entries]
    lines += ["EMULATED_FIXED_SHARED", ""]
    source = "\n".join(lines)
    headers = "".join(map(_file, ("cuda_on_host.h", *_HEADERS)))
    scheduler = _scheduler_path()
    # The machine's own instructions make fmaf and rint more than calls; a * b + c stays two operations.
    options = ["-O1", "-march=native", "-ffp-contract=off", "-Wl,--no-as-needed"]
    options += (
        ["-g1", "-fsanitize=thread"] if watched else []
    )  # calls before accesses: shared_accesses.cpp answers them
    options += ["-nostdlib"]  # linking takes a third of the time; kernel text asks for nothing but these
    library = _compiled(source, options, (str(scheduler), "-lm", "-lgcc", "-lc"), headers + str(scheduler))
    return Emulated(ctypes.CDLL(str(library)), entries, text, watched)


def guarded(array: NDArray[Any]) -> NDArray[Any]:
    """A copy whose end, rounded up to 16 bytes, is the end of accessible memory.

    A kernel that reads or writes behind it, or writes the few bytes between, fails. Before it there is an
    inaccessible page too, but up to a page of margin where only writes are noticed.
    """
    array = np.ascontiguousarray(array) if array.ndim else array
    space = -(-array.nbytes // 16) * 16
    inner = max(1, -(-space // 4096)) * 4096
    base = _scheduler().emulated_guarded(ctypes.c_size_t(inner))
    if not base:
        raise MemoryError(f"no guarded memory of {inner} bytes")
    memory = np.frombuffer((ctypes.c_ubyte * inner).from_address(base), np.uint8)
    memory[:] = CANARY
    start = inner - space
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    _GUARDED[base] = (start, array.nbytes, inner)
    weakref.finalize(memory.base, _forget, base, inner)
    return copy


_GUARDED: dict[int, tuple[int, int, int]] = {}  # address of the pages: where the array starts, its bytes, all bytes


def _forget(base: int, inner: int) -> None:
    _GUARDED.pop(base, None)
    _scheduler().emulated_release(ctypes.c_void_p(base), ctypes.c_size_t(inner))


def _check_margins(entry: str) -> None:
    for base, (start, nbytes, inner) in list(_GUARDED.items()):
        memory = np.frombuffer((ctypes.c_ubyte * inner).from_address(base), np.uint8)
        before, behind = memory[:start], memory[start + nbytes :]
        if (before != CANARY).any():
            raise EmulationError(f"{entry}: wrote {start - int(np.argmax(before != CANARY))} bytes before a guarded array of {nbytes} bytes")  # fmt: skip
        if (behind != CANARY).any():
            raise EmulationError(f"{entry}: wrote {int(np.argmax(behind != CANARY))} bytes behind a guarded array of {nbytes} bytes")  # fmt: skip


def _nearest_array(address: int | None) -> str:
    for base, (start, nbytes, inner) in _GUARDED.items():
        if address is not None and base - 4096 <= address < base + inner + 4096:
            return f": {address - base - start} bytes from the start of a guarded array of {nbytes} bytes"
    return ""


def _line_of(code: re.Match[str]) -> str:
    """A place in a library as a line of kernel text."""
    asked = ["addr2line", "-i", "-e", code[1], code[2]]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    lines = re.findall(r"/(?:<stdin>|kernel\.cu):(\d+)", done.stdout)
    return "line " + ", called in line ".join(lines) if lines else f"{code[2]} of the library"


def _three(extent: Sequence[int] | int) -> tuple[int, int, int]:
    given = (extent,) if isinstance(extent, int) else tuple(extent)
    return (*given, 1, 1, 1)[:3]  # type: ignore[return-value]


def _check_limits(grid: tuple[int, ...], block: tuple[int, ...], shared: int) -> None:
    if not all(1 <= g <= most for g, most in zip(grid, MAX_GRID, strict=True)):
        raise EmulationError(f"a grid of {grid} is not between 1 and {MAX_GRID}")
    if min(block) < 1 or math.prod(block) > MAX_THREADS or block[2] > 64:
        raise EmulationError(f"a block of {block} is not between 1 and {MAX_THREADS} threads, 64 of them in z")
    if not 0 <= shared <= MAX_SHARED:
        raise EmulationError(f"{shared} bytes of dynamic shared memory are not between 0 and {MAX_SHARED}")


def _host_text(text: str) -> str:
    """``extern __shared__ T name[];`` as a pointer to the launch's memory; line numbers stay."""

    def pointer(found: re.Match[str]) -> str:
        kind = " ".join(_ALIGNMENT.sub(" ", found[1] + " " + found[2]).split())
        return f"{kind}* const {found[3]} = ({kind}*)emulated_dynamic_shared;" + "\n" * found[0].count("\n")

    return _DYNAMIC_SHARED.sub(pointer, text)


@functools.cache
def _file(name: str) -> str:
    return (HERE / name).read_text()


@functools.cache
def _directory() -> Path:
    """Where libraries are kept; what nobody used for a day is removed."""
    path = Path(tempfile.gettempdir()) / f"graphdnn-emulated-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    if path.stat().st_uid != os.getuid():
        path = Path(tempfile.mkdtemp(prefix="graphdnn-emulated-"))
    for old in path.iterdir():
        with contextlib.suppress(OSError):
            if time.time() - old.stat().st_mtime > KEPT_SECONDS:
                old.unlink()
    return path


@functools.cache
def _compiler_version() -> str:
    return subprocess.run([COMPILER or "g++", "--version"], capture_output=True, text=True, check=True).stdout


def _compiled(source: str, options: Sequence[str], libraries: Sequence[str], also: str) -> Path:
    if not COMPILER:
        raise EmulationError(MISSING)
    command = [COMPILER, *OPTIONS, *options, f"-I{HERE}"]
    key = hashlib.sha256("\0".join((source, also, *command, *libraries, _compiler_version())).encode()).hexdigest()[:32]
    library = _directory() / f"{key}.so"
    if library.exists():
        os.utime(library)
        return library
    building = library.with_suffix(f".{os.getpid()}.so")  # replaces the name when it is whole: others may build it too
    if "-fsanitize=thread" in options:  # compiled so, and linked without the compiler's own runtime
        middle = building.with_suffix(".o")
        calls = [
            [*command, "-x", "c++", "-", "-c", "-o", str(middle)],
            [COMPILER, "-shared", "-nostdlib", "-Wl,--no-as-needed", str(middle), *libraries, "-o", str(building)],
        ]
    else:
        calls = [[*command, "-x", "c++", "-", "-x", "none", *libraries, "-o", str(building)]]
    for call in calls:
        done = subprocess.run(call, input=source, capture_output=True, text=True, check=False)
        if done.returncode:
            raise EmulationError(f"g++ does not compile the text:\n{done.stderr[:4000]}")
    building.replace(library)
    return library


@functools.cache
def _scheduler_path() -> Path:
    """The scheduler, and the parts of the processor that work beside threads."""
    source = "".join(f'#line 1 "{name}"\n{_file(name)}' for name in _PARTS)
    return _compiled(source, ("-O2", "-march=native"), ("-lpthread",), "".join(map(_file, _HEADERS)))


@functools.cache
def _scheduler() -> ctypes.CDLL:
    library = ctypes.CDLL(str(_scheduler_path()))
    library.emulated_guarded.restype = ctypes.c_void_p
    return library

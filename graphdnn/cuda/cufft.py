"""Real transforms of many planes by cuFFT, with a work area of the caller's so that executions may run side by side."""

from __future__ import annotations

import ctypes
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from graphdnn.cuda import vendor_libraries
from graphdnn.enums import Status
from graphdnn.errors import NotSupported
from graphdnn.rules import Rule

_REAL_TO_COMPLEX, _COMPLEX_TO_REAL = 0x2A, 0x2C
_NAMES = {
    1: "CUFFT_INVALID_PLAN",
    2: "CUFFT_ALLOC_FAILED",
    3: "CUFFT_INVALID_TYPE",
    4: "CUFFT_INVALID_VALUE",
    5: "CUFFT_INTERNAL_ERROR",
    6: "CUFFT_EXEC_FAILED",
    7: "CUFFT_SETUP_FAILED",
    8: "CUFFT_INVALID_SIZE",
    11: "CUFFT_INVALID_DEVICE",
    13: "CUFFT_NO_WORKSPACE",
    14: "CUFFT_NOT_IMPLEMENTED",
    16: "CUFFT_NOT_SUPPORTED",
}

WORK_AREA = Rule(
    id="cuda.cufft.work_area",
    expected="at most {size} bytes",
    reason="cuFFT asks for more scratch memory for this transform than the plan has set aside",
    fix="use another engine, and report it with the problem",
    status=Status.NOT_SUPPORTED,
)


@dataclass(frozen=True, slots=True)
class Transform:
    """Planes of float32, one after the other, to spectra or back.

    Spectra are ``[frequency][plane]`` with ``rows * (columns // 2 + 1)`` frequencies; nothing is scaled. The way back
    spoils the spectra.
    """

    rows: int
    columns: int
    planes: int
    is_inverse: bool = False

    @property
    def frequencies(self) -> int:
        return self.rows * (self.columns // 2 + 1)

    @property
    def real_bytes(self) -> int:
        return 4 * self.planes * self.rows * self.columns

    @property
    def spectrum_bytes(self) -> int:
        return 8 * self.planes * self.frequencies

    @property
    def work_bytes(self) -> int:
        """Scratch memory that is set aside for cuFFT: two copies of the spectra."""
        return 2 * self.spectrum_bytes


# (source, target, work area, stream) -> None; asynchronous
Transforming = Callable[[int, int, int, int], None]


class Fft(Protocol):
    """cuFFT, or what stands in for it."""

    def prepare(self, transform: Transform) -> Transforming: ...


class _Plan:
    """One plan of the library. It is never destroyed: a graph that was captured holds the library's kernels without
    knowing of it, and destroying ends every capture that is under way in the process.
    """

    def __init__(self, library: Any, transform: Transform) -> None:
        self._library, self._transform = library, transform
        handle = ctypes.c_int()
        _check("cufftCreate", library.cufftCreate(ctypes.byref(handle)))
        self._handle = handle.value
        try:
            self._describe()
        except BaseException:
            library.cufftDestroy(self._handle)  # which nobody has executed
            raise

    def _describe(self) -> None:
        library, t, size = self._library, self._transform, ctypes.c_size_t()
        _check("cufftSetAutoAllocation", library.cufftSetAutoAllocation(self._handle, 0))
        pair = ctypes.c_longlong * 2
        real, spectrum = pair(t.rows, t.columns), pair(t.rows, t.columns // 2 + 1)
        plane = (real, 1, t.rows * t.columns)
        frequency = (spectrum, t.planes, 1)
        before, after = (frequency, plane) if t.is_inverse else (plane, frequency)
        kind = _COMPLEX_TO_REAL if t.is_inverse else _REAL_TO_COMPLEX
        _check(
            "cufftMakePlanMany64",
            library.cufftMakePlanMany64(
                self._handle, 2, pair(t.rows, t.columns), *before, *after, kind, t.planes, ctypes.byref(size)
            ),
        )
        if size.value > t.work_bytes:
            raise NotSupported(WORK_AREA.reject("cuFFT", "work area", f"{size.value} bytes", size=t.work_bytes))

    def __call__(self, source: int, target: int, work: int, stream: int) -> None:
        library, name = self._library, "cufftExecC2R" if self._transform.is_inverse else "cufftExecR2C"
        _check("cufftSetStream", library.cufftSetStream(self._handle, stream))
        _check("cufftSetWorkArea", library.cufftSetWorkArea(self._handle, work))
        _check(name, getattr(library, name)(self._handle, source, target))


class _Lent:
    """A plan that one caller has to itself, as its stream and work area are its state; the next one gets it then."""

    def __init__(self, plan: _Plan, free: list[_Plan]) -> None:
        self._plan, self._free = plan, free

    def __call__(self, source: int, target: int, work: int, stream: int) -> None:
        self._plan(source, target, work, stream)

    def __del__(self) -> None:
        self._free.append(self._plan)


class Cufft:
    """The library, with plans for each device and transform, as many as are in use at once."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._free: defaultdict[tuple[int, Transform], list[_Plan]] = defaultdict(list)
        i, p, word = ctypes.c_int, ctypes.c_void_p, ctypes.c_longlong
        words, layout = ctypes.POINTER(word), (ctypes.POINTER(word), word, word)
        library.cufftMakePlanMany64.argtypes = (i, i, words, *layout, *layout, i, word, ctypes.POINTER(ctypes.c_size_t))
        library.cufftSetStream.argtypes = library.cufftSetWorkArea.argtypes = (i, p)
        library.cufftExecR2C.argtypes = library.cufftExecC2R.argtypes = (i, p, p)

    def prepare(self, transform: Transform) -> Transforming:
        from graphdnn.cuda.driver_api import beside_captures, current_device

        free = self._free[current_device(), transform]
        try:
            plan = free.pop()
        except IndexError:
            with beside_captures():  # it allocates
                plan = _Plan(self._library, transform)
        return _Lent(plan, free)


def _check(call: str, code: int) -> None:
    if code:
        vendor_libraries.check("cuFFT", call, code, _NAMES.get(code, "CUFFT_ERROR"), Status.EXECUTION_FAILED)


@cache
def library() -> Fft:
    """Raises ``NotSupported`` where there is none."""
    return Cufft(vendor_libraries.load("cufft"))


def missing() -> str:
    """Why there is no cuFFT where plans run; an empty text when there is."""
    return vendor_libraries.missing_on_devices("cufft")

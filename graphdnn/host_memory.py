"""Host memory at an address that a caller gives: whether it can be read and written, asked without touching it.

A number that was taken for an address, or memory that is gone, would end the process with a signal. The operating
system answers instead: ``msync`` says whether every page is there, and a byte that is written from an address to a
pipe, or read back from the pipe to it, fails with EFAULT where the program itself would be stopped.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

FIRST = 4096  # no system gives out what is below: a small number that was taken for an address
_LAST = 2**64 - 1
_MS_ASYNC = 1  # asks for nothing that is not done anyway
_KNOWN = 4096  # addresses that are not asked for again


class UnreadableError(ValueError):
    """Memory that cannot be read, or not be written; the text says why."""


def at(address: int, size: int, *, is_written: bool = False) -> memoryview:
    """``size`` bytes at an address, which the caller keeps alive. Raises ``UnreadableError``."""
    check(address, size, is_written=is_written)
    return memoryview((ctypes.c_char * size).from_address(address))


def at_known(address: int, size: int, *, is_written: bool = False) -> memoryview:
    """As ``at``, for calls that come again with the same memory: the system is asked once for each address."""
    _checked_once(address, size, is_written)
    return memoryview((ctypes.c_char * size).from_address(address))


@lru_cache(maxsize=_KNOWN)
def _checked_once(address: int, size: int, is_written: bool) -> None:
    check(address, size, is_written=is_written)


def check_known(address: int, size: int, *, is_written: bool = False) -> None:
    """As ``check``; the system is asked once for each address."""
    _checked_once(address, size, is_written)


def check(address: int, size: int, *, is_written: bool = False) -> None:
    """Raise ``UnreadableError`` unless ``size`` bytes at an address can be read, and written where that is asked."""
    if size == 0:
        return
    last = address + size - 1
    if not FIRST <= address <= last <= _LAST:
        raise UnreadableError(f"no memory lies at {_span(address, size)}")
    library = _library()
    if library is None:  # a system without these calls
        return
    page = address - address % mmap.PAGESIZE
    length = min(last + 1 - page, _LAST - mmap.PAGESIZE)
    if library.msync(ctypes.c_void_p(page), ctypes.c_size_t(length), _MS_ASYNC) and ctypes.get_errno() == errno.ENOMEM:
        raise UnreadableError(f"no memory lies at {_span(address, size)}")
    _pass_through_pipe(library, sorted({address, last}), address, size, is_written=is_written)


def _pass_through_pipe(library: Any, places: list[int], address: int, size: int, *, is_written: bool) -> None:
    try:
        reader, writer = os.pipe()
    except OSError:  # no file descriptor is left to ask with
        return
    try:
        for place in places:
            if _fails(library.write, writer, place):
                raise UnreadableError(f"memory at {_span(address, size)} cannot be read")
            if is_written and _fails(library.read, reader, place):  # the byte that is there already
                raise UnreadableError(f"memory at {_span(address, size)} cannot be written")
    finally:
        os.close(reader)
        os.close(writer)


def _fails(call: Callable[..., int], pipe: int, place: int) -> bool:
    return call(pipe, ctypes.c_void_p(place), ctypes.c_size_t(1)) < 0 and ctypes.get_errno() == errno.EFAULT


def _span(address: int, size: int) -> str:
    return f"{address:#x}, {size} byte{'s' if size > 1 else ''}"


@cache
def _library() -> Any:
    """The C library's calls; None on systems that are not POSIX."""
    return ctypes.CDLL(None, use_errno=True) if os.name == "posix" else None

"""Module: a cubin loaded into a context, and the functions in it."""

from __future__ import annotations

import threading
from typing import Any

from graphdnn.cuda.driver_library import bindings, called

_DEFAULT_SHARED = 48 * 1024  # bytes that a block may have without having said so before, its static ones among them


class Module:
    """A loaded cubin. It belongs to the context that was current when it was loaded, and stays until the end."""

    __slots__ = ("_functions", "_guard", "_handle")

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._functions: dict[str, tuple[Any, int]] = {}  # the handle, and the shared memory it may take
        self._guard = threading.Lock()

    def function(self, entry: str, shared: int = 0) -> int:
        """The handle to launch ``entry`` with, allowed to take ``shared`` bytes of dynamic shared memory."""
        with self._guard:
            if entry in self._functions:
                handle, allowed = self._functions[entry]
            else:
                handle = called("cuModuleGetFunction", self._handle, entry.encode(), kernel=entry)
                # The driver loads a function when it is first needed, which is not allowed during a capture.
                # Asking for an attribute loads it now.
                attribute = bindings().CUfunction_attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
                allowed = _DEFAULT_SHARED - int(called("cuFuncGetAttribute", attribute, handle, kernel=entry))
            if shared > allowed:
                attribute = bindings().CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                called("cuFuncSetAttribute", handle, attribute, shared, kernel=entry)
                allowed = shared
            self._functions[entry] = handle, allowed
            return int(handle)


_loaded: dict[tuple[int, bytes], Module] = {}
_guard = threading.Lock()


def load(cubin: bytes, kernel: str = "", context: int = 0) -> Module:
    """The module of a cubin in the current context; the same one for the same bytes. ``context``: it, where known."""
    key = context or int(called("cuCtxGetCurrent")), cubin  # an object of bytes knows its hash from the second time on
    with _guard:
        if key not in _loaded:
            _loaded[key] = Module(called("cuModuleLoadData", cubin, kernel=kernel))
        return _loaded[key]

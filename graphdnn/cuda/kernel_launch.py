"""PreparedLaunch: a kernel launch worked out beforehand, so that executing it is one call into the driver.

The kernel takes one struct. Its bytes stay where they are; whoever owns the buffer writes pointers into it, and the
driver copies it during the call. Two threads must not patch and launch the same one at a time.
"""

from __future__ import annotations

import ctypes
from functools import cache
from struct import Struct
from typing import Any, NoReturn

from graphdnn.cuda.driver_library import error_of, launch_function

ALIGNMENT = 128  # of a tensor map, the strictest thing a struct may hold


# CUlaunchConfig: grid, block and shared memory (seven words of 32 bits), stream, attributes and their number; then
# the array of one address as which the kernel's parameters are passed. Packed at once: field by field takes longer.
_CONFIG = Struct("@7I4xQQI4xQ")
_STREAM, _POINTERS = slice(32, 40), 56  # bytes


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute: a number and the bytes of a union; those of a flag begin with 1."""

    _fields_ = (("id", ctypes.c_uint), ("padding", ctypes.c_uint), ("value", ctypes.c_uint * 16))


_COOPERATIVE = 2  # CU_LAUNCH_ATTRIBUTE_COOPERATIVE
_PROGRAMMATIC = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION


@cache
def _attributes(is_cooperative: bool, starts_early: bool) -> tuple[Any, int, int]:
    """These attributes, which launches share and nobody writes to, their address, and how many there are."""
    asked = [id for id, is_asked in ((_COOPERATIVE, is_cooperative), (_PROGRAMMATIC, starts_early)) if is_asked]
    attributes = (_Attribute * 2)(*(_Attribute(id, 0, (1,)) for id in asked))
    return attributes, ctypes.addressof(attributes) if asked else 0, len(asked)


_Words = ctypes.c_ubyte * _CONFIG.size


def aligned_buffer(size: int) -> memoryview:
    """``size`` zero bytes at a multiple of 128, writable."""
    owner = (ctypes.c_ubyte * (size + ALIGNMENT))()
    start = -ctypes.addressof(owner) % ALIGNMENT
    return memoryview(owner).cast("B")[start : start + size]


class PreparedLaunch:
    """A function with its grid, block, dynamic shared memory and parameters.

    ``params`` is a writable buffer with the struct's bytes, best one of ``aligned_buffer``; it is used in place, at
    ``address``.
    ``is_cooperative``: the driver refuses the launch unless all blocks run at the same time.
    ``starts_early``: the kernel may start before the launch ahead of it in the stream is through, and waits for it
    itself; from compute capability 9.0 on.
    """

    __slots__ = (
        "_alive",
        "_call",
        "_config",
        "_function",
        "_pointers",
        "_stream",
        "_written",
        "address",
        "kernel",
        "params",
        "plan",
    )

    def __init__(
        self,
        function: int,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared: int,
        params: bytearray | memoryview,
        *,
        is_cooperative: bool = False,
        starts_early: bool = False,
        kernel: str = "",
        plan: str = "",
    ) -> None:
        self.params = params
        self.kernel = kernel
        self.plan = plan
        # Arguments in the form that ctypes gives them at each call otherwise, made once; a word is written fastest
        # through a memoryview.
        argument = ctypes.c_void_p.from_param
        attributes, where, count = _attributes(is_cooperative, starts_early)
        struct, words = ctypes.c_ubyte.from_buffer(params), _Words()
        self.address, config = ctypes.addressof(struct), ctypes.addressof(words)
        _CONFIG.pack_into(words, 0, *grid, *block, shared, 0, where, count, self.address)
        self._call: Any = launch_function()
        self._config: Any = argument(config)
        self._function: Any = argument(function)
        self._pointers: Any = argument(config + _POINTERS)
        self._stream = memoryview(words).cast("B")[_STREAM].cast("Q")
        self._written = 0  # there
        self._alive = struct, words, attributes  # only their addresses were taken

    def launch(self, stream: int) -> None:
        """Put the kernel into the stream. Raises ``CudaError``, also for what an earlier launch did wrong."""
        if stream != self._written:
            self._stream[0] = self._written = stream
        code = self._call(self._config, self._function, self._pointers, None)
        if code:
            self._fail(code)

    def _fail(self, code: int) -> NoReturn:
        raise error_of("cuLaunchKernelEx", code, kernel=self.kernel, plan=self.plan)

"""PreparedLaunch: a kernel launch worked out beforehand, so that executing it is one call into the driver.

The kernel takes one struct. Its bytes stay where they are; whoever owns the buffer writes pointers into it, and the
driver copies it during the call. Two threads must not patch and launch the same one at a time.
"""

from __future__ import annotations

import ctypes
from typing import Any, NoReturn

from graphdnn.cuda.library import error_of, launch_function

ALIGNMENT = 128  # of a tensor map, the strictest thing a struct may hold


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid_x", ctypes.c_uint), ("grid_y", ctypes.c_uint), ("grid_z", ctypes.c_uint),
        ("block_x", ctypes.c_uint), ("block_y", ctypes.c_uint), ("block_z", ctypes.c_uint),
        ("shared", ctypes.c_uint), ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p), ("attribute_count", ctypes.c_uint),
    )  # fmt: skip


def aligned_buffer(size: int) -> memoryview:
    """``size`` zero bytes at a multiple of 128, writable."""
    owner = (ctypes.c_ubyte * (size + ALIGNMENT))()
    start = -ctypes.addressof(owner) % ALIGNMENT
    return memoryview(owner).cast("B")[start : start + size]


class PreparedLaunch:
    """A function with its grid, block, dynamic shared memory and parameters.

    ``params`` is a writable buffer with the struct's bytes, best one of ``aligned_buffer``; it is used in place.
    """

    __slots__ = ("_call", "_config", "_config_at", "_function", "_params_at", "_pointers", "kernel", "params", "plan")

    def __init__(
        self,
        function: int,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared: int,
        params: bytearray | memoryview,
        *,
        kernel: str = "",
        plan: str = "",
    ) -> None:
        self.params = params
        self.kernel = kernel
        self.plan = plan
        self._call: Any = launch_function()
        self._function = function
        self._config = _Config(*grid, *block, shared)
        self._config_at = ctypes.addressof(self._config)
        struct = (ctypes.c_ubyte * len(params)).from_buffer(params)  # keeps the buffer where it is
        self._pointers = (ctypes.c_void_p * 1)(ctypes.addressof(struct)), struct
        self._params_at = ctypes.addressof(self._pointers[0])

    def launch(self, stream: int) -> None:
        """Put the kernel into the stream. Raises ``CudaError``, also for what an earlier launch did wrong."""
        self._config.stream = stream
        code = self._call(self._config_at, self._function, self._params_at, None)
        if code:
            self._fail(code)

    def _fail(self, code: int) -> NoReturn:
        raise error_of("cuLaunchKernelEx", code, kernel=self.kernel, plan=self.plan)

"""Picked: slices of an array of a device, put together where they are.

The oracle is compared with some channels or rows of a result. Copying all of it to the host, where these lie far apart,
would take longer than the other steps of a trial together.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from graphdnn.cuda.nvrtc import KernelText
from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import Array
from graphdnn.engines.cuda.codegen.included_files import file_text
from graphdnn.engines.cuda.codegen.launch import Launch
from graphdnn.engines.cuda.codegen.parameters import PackedParams
from graphdnn.engines.host.memory import axes_of
from graphdnn.plan.cuda_runtime import Prepared, Runtime

_PARAMS = struct.Struct("<QQQqqqq")  # addresses of the array, of the slices, of their numbers; extents
_BLOCKS = 8  # of a multiprocessor


def launch(device: DeviceSpec) -> Launch:
    text = KernelText("picked", file_text("array_gather.cu"))
    return Launch(text, "array_gather", (_BLOCKS * device.sm_count, 1, 1), 256, PackedParams(bytes(_PARAMS.size), ()))


def lying(array: Any, axis: int) -> tuple[int, int, int]:
    """Of an array without gaps: how many blocks of slices along ``axis`` it is, slices in each, and bytes of one."""
    axes = axes_of(array)
    place = axes.index(axis)
    extents = [array.shape[a] for a in axes]
    return prod(extents[:place]), extents[place], prod(extents[place + 1 :]) * array.itemsize


class DeviceGather:
    """The kernel, compiled and loaded."""

    def __init__(self, runtime: Runtime, device: DeviceSpec) -> None:
        self._runtime = runtime
        self._prepared: Prepared = runtime.prepare(launch(device), "tuning")

    def of(self, array: Any, axis: int, kept: Sequence[int]) -> Array:
        return self.at(array.data.ptr, lying(array, axis), kept)

    def at(self, address: int, shape: tuple[int, int, int], kept: Sequence[int]) -> Array:
        runtime, (outer, extent, inner) = self._runtime, shape
        found, numbers = np.empty(outer * len(kept) * inner, np.uint8), np.array(kept, np.int64)
        which, slices = runtime.memory(numbers.nbytes), runtime.memory(found.nbytes)
        places = [runtime.workspace_address(m, m.nbytes)[0] for m in (slices, which)]
        runtime.copy_in(numbers.view(np.uint8), which, numbers.nbytes)
        self._prepared.params[:] = _PARAMS.pack(address, *places, outer, extent, inner, len(kept))
        self._prepared.launch(runtime.current_stream())
        runtime.copy_out(slices, found, found.nbytes)
        return found

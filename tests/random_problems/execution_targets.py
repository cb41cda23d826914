"""Places where a device plan runs: CUDA memory, or the host's with the emulator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from graphdnn.device.profiles import DeviceSpec
from graphdnn.device_selection import device_spec
from graphdnn.engines.host.memory import binding_layout
from graphdnn.heuristics import EngineConfig
from graphdnn.plan import DevicePlan
from random_problems.configurations import generated
from random_problems.memory_images import Image

_MARGIN = 256  # behind the workspace


class Place(Protocol):
    @property
    def device(self) -> DeviceSpec: ...

    def plan(self, config: EngineConfig) -> DevicePlan: ...

    def admits(self, config: EngineConfig) -> bool: ...

    def run(
        self, plan: DevicePlan, images: Mapping[int, Image], scalars: Mapping[int, Any], poison: int, form: int
    ) -> str:
        """Execute once; the images then hold what memory holds. Returns what is wrong with the workspace."""


class Emulated:
    """Host memory, kernels compiled by g++. ``libraries``: the caller is within ``host_libraries()``. ``watched``: what
    threads do to shared memory has to be ordered (emulator/shared_accesses.cpp).
    """

    def __init__(self, libraries: bool = False, *, watched: bool = False) -> None:
        self.device, self._libraries, self._watched = device_spec("h200"), libraries, watched

    def plan(self, config: EngineConfig) -> DevicePlan:
        from emulator.runtime import EmulatedRuntime

        return DevicePlan(config, EmulatedRuntime(watched=self._watched))

    def admits(self, config: EngineConfig) -> bool:
        return self._libraries or generated(config)

    def run(
        self, plan: DevicePlan, images: Mapping[int, Image], scalars: Mapping[int, Any], poison: int, form: int
    ) -> str:
        size = plan.workspace_size
        raw = np.full(size + 256 + _MARGIN, poison, np.uint8)
        start = -raw.ctypes.data % 256
        workspace = raw[start : start + size] if size else None
        plan.execute({**{uid: image.array for uid, image in images.items()}, **scalars}, workspace)
        behind = raw[start + size : start + size + _MARGIN]
        return "wrote behind the workspace" if size and (behind != poison).any() else ""


class Cuda:
    """The GPU that is here. ``form`` 0 binds addresses, 1 CuPy arrays."""

    def __init__(self) -> None:
        self.device = device_spec("cuda")

    def plan(self, config: EngineConfig) -> DevicePlan:
        return DevicePlan(config)

    def admits(self, config: EngineConfig) -> bool:
        return True

    def run(
        self, plan: DevicePlan, images: Mapping[int, Image], scalars: Mapping[int, Any], poison: int, form: int
    ) -> str:
        import cupy

        held = {uid: cupy.asarray(image.bytes) for uid, image in images.items()}
        bound = {uid: _binding(image, held[uid], form) for uid, image in images.items()}
        size = plan.workspace_size
        memory = cupy.full(size + _MARGIN, poison, cupy.uint8) if size else None
        workspace = None if memory is None else memory[:size] if form else int(memory.data.ptr)
        plan.execute({**bound, **scalars}, workspace)
        cupy.cuda.get_current_stream().synchronize()
        for uid, image in images.items():
            image.bytes[...] = held[uid].get()
        return "wrote behind the workspace" if memory is not None and bool((memory[size:] != poison).any()) else ""


def _binding(image: Image, memory: Any, form: int) -> Any:
    import cupy

    if form == 0:
        return int(memory.data.ptr) + image.offset
    dtype, shape, strides = binding_layout(image.spec)
    if dtype.kind == "V":  # element types that CuPy lacks travel as unsigned integers
        dtype = np.dtype(f"uint{dtype.itemsize * 8}")
    pointer = cupy.cuda.MemoryPointer(memory.data.mem, memory.data.ptr - memory.data.mem.ptr + image.offset)
    return cupy.ndarray(shape, dtype, pointer, strides=strides)

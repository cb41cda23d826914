"""A glance at a device: its spec, from the driver's library alone.

``present_device`` says the same and more (what is wrong with a driver), through bindings that take 0.07 s to load.
A tuning works out its candidates by a glance, and asks properly while their kernels are compiled.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from graphdnn.cuda.device_query import spec_of
from graphdnn.cuda.driver_library import LIBRARIES
from graphdnn.device.profiles import DeviceSpec

# As ``CUdevice_attribute`` numbers them, without CU_DEVICE_ATTRIBUTE_.
NUMBERS = {
    "CLOCK_RATE": 13, "MULTIPROCESSOR_COUNT": 16, "MEMORY_CLOCK_RATE": 36, "GLOBAL_MEMORY_BUS_WIDTH": 37,
    "L2_CACHE_SIZE": 38, "COMPUTE_CAPABILITY_MAJOR": 75, "COMPUTE_CAPABILITY_MINOR": 76,
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 81,
}  # fmt: skip
_NO_CONTEXT = 201
_NAME = 128  # bytes


def glance(ordinal: int | None = None) -> DeviceSpec | None:
    """Of a device, None for the current one. None where anything is not as it should be: ``present_device`` says what.

    Raises ``NotSupported`` below compute capability 8.0.
    """
    driver = library()
    if driver is None or driver.cuInit(0):
        return None
    device = ctypes.c_int(0)
    if ordinal is None:
        status = driver.cuCtxGetDevice(ctypes.byref(device))
        if status not in (0, _NO_CONTEXT):
            return None
        ordinal = 0 if status else device.value
    name, memory = ctypes.create_string_buffer(_NAME), ctypes.c_size_t()
    if (
        driver.cuDeviceGet(ctypes.byref(device), ordinal)
        or driver.cuDeviceGetName(name, _NAME, device)
        or driver.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    ):
        return None
    try:
        return spec_of(_attributes(driver, device), name.value, memory.value, ordinal)
    except OSError:
        return None


def _attributes(driver: Any, device: ctypes.c_int) -> Callable[[str], int]:
    def attribute(name: str) -> int:
        value = ctypes.c_int()
        if driver.cuDeviceGetAttribute(ctypes.byref(value), NUMBERS[name], device):
            raise OSError(f"the driver does not say {name}")
        return value.value

    return attribute


def library() -> Any:
    """The driver's, None where there is none; not initialised."""
    for name in LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None

"""Loading: what the first tuning of a process waits for, with as little as possible in its way."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from graphdnn.device import DeviceSpec
from graphdnn.engines import engines_of
from graphdnn.machine import VARIABLE


def means_gpu(device: DeviceSpec | str | None) -> bool:
    """Without asking the driver."""
    if isinstance(device, DeviceSpec):
        return device.kind == "cuda"
    return (device or os.environ.get(VARIABLE) or "cpu").lower() != "cpu"


def begin() -> None:
    """Start the driver and load a GPU's engines, beside what follows."""
    for work in (_start_driver, _load_engines):
        threading.Thread(target=work, daemon=True).start()


def _start_driver() -> None:
    """While its bindings are loaded, which takes as long. What is wrong with it is said where it is asked."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libcuda.so.1").cuInit(0)


def _load_engines() -> None:
    engines_of("cuda")


@contextmanager
def uncollected() -> Iterator[None]:
    """No passes of the garbage collector: what is loaded is many objects and no garbage."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()

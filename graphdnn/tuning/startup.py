"""Loading: what the first tuning of a process waits for, with as little as possible in its way."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module

from graphdnn.device.profiles import DeviceSpec
from graphdnn.device_selection import VARIABLE, device_spec
from graphdnn.engines import engines_of


def means_gpu(device: DeviceSpec | str | None) -> bool:
    """Without asking the driver."""
    return device.kind == "cuda" if isinstance(device, DeviceSpec) else _name(device) not in ("", "cpu")


def device_meant(device: DeviceSpec | str | None) -> DeviceSpec:
    """By a glance where that is enough; what is wrong with a device or its driver is said as everywhere."""
    kind, _, ordinal = _name(device).partition(":")
    if kind == "cuda" and (not ordinal or ordinal.isdecimal()):
        from graphdnn.cuda.device_probe import glance

        seen = glance(int(ordinal) if ordinal else None)
        if seen is not None:
            return seen
    return device_spec(device)


def _name(device: DeviceSpec | str | None) -> str:
    """In lower case; of the default one, too. Empty for what is none."""
    meant = os.environ.get(VARIABLE) if device is None else device
    return meant.lower() if isinstance(meant, str) else ""


def begin() -> None:
    """Start the driver and load a GPU's engines, beside what follows, which imports nothing before they are there."""
    import_module("graphdnn.cuda.device_probe")
    for work in (_start_driver, _load_engines):
        threading.Thread(target=work, daemon=True).start()


def _start_driver() -> None:
    """What is wrong with it is said where it is asked."""
    from graphdnn.cuda.device_probe import library

    driver = library()
    if driver is not None:
        with suppress(AttributeError):
            driver.cuInit(0)


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

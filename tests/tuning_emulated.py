"""The worker's initializer for plans of a GPU that is not here: their kernels run on the emulator."""

from __future__ import annotations

from emulator.runtime import EmulatedRuntime

from graphdnn.cuda import driver
from graphdnn.plan import device


def register() -> None:
    driver.synchronize = lambda stream=0: None
    device.CudaRuntime = lambda spec: EmulatedRuntime()  # type: ignore[assignment, misc]
    device.DevicePlan.prepare = classmethod(lambda cls, spec: None)  # type: ignore[assignment]

"""The worker's initializer for plans of a GPU that is not here: their kernels run on the emulator."""

from __future__ import annotations

from emulator.runtime import EmulatedRuntime

from graphdnn.cuda import driver_api
from graphdnn.plan import device_plan


def register() -> None:
    driver_api.synchronize = lambda stream=0: None
    device_plan.CudaRuntime = lambda spec: EmulatedRuntime()  # type: ignore[assignment, misc]
    device_plan.DevicePlan.prepare = classmethod(lambda cls, spec: None)  # type: ignore[assignment]

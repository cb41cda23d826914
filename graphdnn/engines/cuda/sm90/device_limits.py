"""Machine: what a choice of tiles looks at of a device. Devices that agree on it share what was chosen."""

from __future__ import annotations

from typing import NamedTuple

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.memoization import memoize_by_identity
from graphdnn.enums import DataType

_PER_CLOCK = 4096  # operations in 16-bit floats of a multiprocessor's tensor cores


class Machine(NamedTuple):
    sms: int
    clock: float  # Hz
    shared_memory: int  # bytes of a block
    bandwidth: float  # bytes a second
    launch: float  # seconds

    @staticmethod
    def of(device: DeviceSpec) -> Machine:
        return _machine_of(device)


@memoize_by_identity
def _machine_of(device: DeviceSpec) -> Machine:
    clock = device.rate(DataType.HALF) / (device.sm_count * _PER_CLOCK)
    return Machine(device.sm_count, clock, device.shared_memory, device.bandwidth, device.launch)

"""Machine: the properties of a device that the choice of a tile depends on. Equal machines share cached choices."""

from __future__ import annotations

from typing import NamedTuple

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.memoization import memoize_by_identity
from graphdnn.enums import DataType

_PER_CLOCK = 4096  # 16-bit floating-point operations of a multiprocessor's tensor cores in a clock


class Machine(NamedTuple):
    sms: int
    clock: float  # Hz
    shared_memory: int  # bytes of a CTA
    bandwidth: float  # bytes per second
    launch: float  # seconds

    @staticmethod
    def of(device: DeviceSpec) -> Machine:
        return _machine_of(device)


@memoize_by_identity
def _machine_of(device: DeviceSpec) -> Machine:
    clock = device.rate(DataType.HALF) / (device.sm_count * _PER_CLOCK)
    return Machine(device.sm_count, clock, device.shared_memory, device.bandwidth, device.launch)

"""Which device is meant: a profile, this host, or a GPU that is present."""

from __future__ import annotations

import os

from graphdnn.device import profiles
from graphdnn.device.profiles import DeviceSpec

VARIABLE = "GRAPHDNN_DEVICE"


def device_spec(device: DeviceSpec | str | None = None) -> DeviceSpec:
    """A spec by name (or by a ``torch.device``, which is one), or the default device for None.

    "cpu" is this host; "cuda" the current GPU and "cuda:1" that one, read from the driver (plans are loaded there and
    execute where it is current); "h200", "a100" ... are
    profiles, to rank and compile for a device that is not here. The default is what ``GRAPHDNN_DEVICE`` names, and
    without it the host, because that is where NumPy's arrays are. Raises when there is no such device.
    """
    if device is None:
        device = os.environ.get(VARIABLE) or None
    elif type(device).__module__ == "torch":
        device = str(device)
    if isinstance(device, str) and device.lower().split(":")[0] == "cuda":
        from graphdnn.cuda.device_query import present_device

        ordinal = device.partition(":")[2]
        if not ordinal or ordinal.isdecimal():
            return present_device(int(ordinal) if ordinal else None)
    return profiles.device_spec(device)

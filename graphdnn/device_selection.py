"""Which device is meant: a profile, this host, or a GPU that is present."""

from __future__ import annotations

import os

from graphdnn.device import profiles
from graphdnn.device.profiles import DeviceSpec

VARIABLE = "GRAPHDNN_DEVICE"


def device_spec(device: DeviceSpec | str | None = None) -> DeviceSpec:
    """The profile of a device.

    "cpu" is this host. "cuda" is the current GPU and "cuda:1" the second one, as the driver describes them. "h200",
    "a100" and so on are profiles: graphs can be ranked and compiled for a device that is not present.

    Args:
        device: A profile, its name, or a ``torch.device``. None takes the name in ``GRAPHDNN_DEVICE``, or else the
            host.

    Returns:
        The profile.

    Raises:
        BadParam: There is no such profile.
        NotSupported: The GPU is not present.
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

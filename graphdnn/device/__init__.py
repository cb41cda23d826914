"""Devices: what a profile says of one, and the profiles that come with the library."""

from graphdnn.device.profiles import PROFILES, DeviceSpec, device_from_json, device_spec, this_cpu

__all__ = ["PROFILES", "DeviceSpec", "device_from_json", "device_spec", "this_cpu"]

"""The DeviceSpec of a GPU that is present: known rates where its name has a profile, else rates from its clock.

A profile is of the full board. A smaller one of the same name (PCIe, fewer multiprocessors, a MIG slice) gets the
profile's rates by its share of multiprocessors, and the bandwidth of its own memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from types import MappingProxyType

from graphdnn.cuda import nvrtc
from graphdnn.cuda.driver_api import current_device, device_count, driver_version
from graphdnn.cuda.driver_library import OLD_DRIVER, bindings, called
from graphdnn.device.profiles import PROFILES, DeviceSpec
from graphdnn.errors import BadParam, NotSupported
from graphdnn.rules import Rule

_LAUNCH = 3e-6  # seconds, as in the profiles

ORDINAL = Rule(
    id="cuda.device.ordinal",
    expected="0 to {last}",
    reason="the driver counts the devices that CUDA_VISIBLE_DEVICES leaves visible from 0",
    fix="pass one of these, or None for the current device",
)

# Operations in one cycle of one multiprocessor, dense, a multiply-add counting two; from the tuning guides and the
# data sheets. A capability that is missing here is served by the nearest row before it.
_PER_CYCLE: dict[tuple[int, int], dict[str, int]] = {
    (8, 0): {"DOUBLE": 64, "FLOAT": 128, "TF32": 1024, "HALF": 2048, "INT8": 4096, "FP8": 128, "INT32": 128},
    (8, 6): {"DOUBLE": 4, "FLOAT": 256, "TF32": 512, "HALF": 1024, "INT8": 2048, "FP8": 256, "INT32": 128},
    (8, 9): {"DOUBLE": 4, "FLOAT": 256, "TF32": 512, "HALF": 1024, "INT8": 2048, "FP8": 2048, "INT32": 128},
    (9, 0): {"DOUBLE": 128, "FLOAT": 256, "TF32": 2048, "HALF": 4096, "INT8": 8192, "FP8": 8192, "INT32": 128},
    (10, 0): {"DOUBLE": 128, "FLOAT": 256, "TF32": 4096, "HALF": 8192, "INT8": 16384, "FP8": 16384, "INT32": 128},
    (12, 0): {"DOUBLE": 4, "FLOAT": 256, "TF32": 512, "HALF": 1024, "INT8": 2048, "FP8": 2048, "INT32": 128},
}


def present_device(ordinal: int | None = None) -> DeviceSpec:
    """What the cost models need to know of a device; None is the current one.

    Raises ``NotSupported`` without a driver or device, for a driver older than NVRTC, and below compute capability 8.0.
    """
    return _spec(current_device() if ordinal is None else ordinal)


def check_versions() -> None:
    """A driver takes the cubins of every NVRTC of its own major version and before. Raises ``NotSupported``."""
    known, made = driver_version(), nvrtc.version()
    if known[0] < made[0]:
        why = "NVRTC {}.{} makes cubins that a driver for CUDA {}.{} does not load".format(*made, *known)
        raise NotSupported(
            OLD_DRIVER.reject("CUDA driver", "version", "{}.{}".format(*known), wanted=f"{made[0]}.0", why=why)
        )


def profile_of(name: str) -> str | None:
    """The profile that the driver's name of a device means: ``NVIDIA H100 80GB HBM3`` is ``h100``."""
    words = re.split(r"[\s\-]+", name.lower())
    words = [*words, *map("".join, pairwise(words))]  # RTX 4090 is rtx4090
    return next((profile for profile in PROFILES if profile in words), None)


@cache
def _spec(ordinal: int) -> DeviceSpec:
    count = device_count()
    if not 0 <= ordinal < count:
        raise BadParam(ORDINAL.reject("DEVICEPROP", "ordinal", ordinal, last=count - 1))
    check_versions()
    device = called("cuDeviceGet", ordinal)
    name, memory = called("cuDeviceGetName", 128, device).split(b"\0")[0], int(called("cuDeviceTotalMem", device))
    return spec_of(partial(_attribute, device), name, memory, ordinal)


def spec_of(attribute: Callable[[str], int], driver_name: bytes, memory: int, ordinal: int) -> DeviceSpec:
    """By what the driver says: numbers by name, the device's name, its memory in bytes.

    Raises ``NotSupported`` below compute capability 8.0.
    """
    name = driver_name.decode(errors="replace").strip()
    capability = attribute("COMPUTE_CAPABILITY_MAJOR"), attribute("COMPUTE_CAPABILITY_MINOR")
    nvrtc.arch_of(capability, name)  # refuses what is too old, by name
    sm_count = attribute("MULTIPROCESSOR_COUNT")
    # Two transfers in a clock, of the bus's width in bits; 0 where the driver does not say.
    bandwidth = 2e3 * attribute("MEMORY_CLOCK_RATE") * attribute("GLOBAL_MEMORY_BUS_WIDTH") / 8
    measured = DeviceSpec(
        name=re.sub(r"\W+", "_", name.lower()).strip("_") or "cuda",
        kind="cuda",
        sm_count=sm_count,
        rates=rates_of(capability, sm_count, 1e3 * attribute("CLOCK_RATE")),
        bandwidth=bandwidth or 1e12,
        launch=_LAUNCH,
        cache_bytes=attribute("L2_CACHE_SIZE"),
        shared_memory=attribute("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
        memory=memory,
        compute_capability=capability,
        ordinal=ordinal,
    )
    profile = profile_of(name)
    return measured if profile is None else of_profile(measured, PROFILES[profile])


def of_profile(measured: DeviceSpec, profile: DeviceSpec) -> DeviceSpec:
    """The profile's rates on the multiprocessors and the memory that are there; its name for the full board only."""
    share = measured.sm_count / profile.sm_count
    return replace(
        measured,
        name=profile.name if share == 1 else measured.name,
        rates=MappingProxyType({kind: rate * share for kind, rate in profile.rates.items()}),
        bandwidth=min(measured.bandwidth, profile.bandwidth),
    )


def rates_of(capability: tuple[int, int], sm_count: int, clock: float) -> Mapping[str, float]:
    """Operations per second by type, for a device without a profile."""
    row = _PER_CYCLE[max(known for known in _PER_CYCLE if known <= capability)]
    cycles = sm_count * (clock or 1.5e9)
    amounts = {
        "DOUBLE": row["DOUBLE"], "FLOAT": row["FLOAT"], "TF32": row["TF32"], "HALF": row["HALF"],
        "BFLOAT16": row["HALF"], "FP8_E4M3": row["FP8"], "FP8_E5M2": row["FP8"], "INT8": row["INT8"],
        "UINT8": row["INT8"], "INT32": row["INT32"], "INT64": row["INT32"] / 4, "INT16": row["INT32"],
    }  # fmt: skip
    return MappingProxyType({kind: amount * cycles for kind, amount in amounts.items()})


def _attribute(device: object, name: str) -> int:
    attribute = getattr(bindings().CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    return int(called("cuDeviceGetAttribute", attribute, device))

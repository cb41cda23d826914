"""DeviceSpec: what the cost models know of a machine, as data.

Rates are dense peaks from the vendors' data sheets, in operations per second (a
multiply-add counts two); the cost models apply their own efficiencies. Ranking
for a device needs only its spec, so it works without the device.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from graphdnn.device.multiprocessor import LEAST_WARPS, MULTIPROCESSORS
from graphdnn.enums import DataType, shown
from graphdnn.errors import BadParam, raise_if
from graphdnn.rules import Rule
from graphdnn.text_format import meant

TERA = 1e12
GIGA = 1e9
MIB, GIB = 2**20, 2**30

UNKNOWN_DEVICE = Rule(
    id="device.unknown",
    expected="one of {known}",
    reason="no profile has this name, and no such device is present",
    fix="{meant}use one of the profiles, or a DeviceSpec of your own",
)


MALFORMED = Rule(
    id="device.entry",
    expected="{expected}",
    reason="the cost models divide by these numbers",
    fix="start from DeviceSpec.to_json() of a known device",
)


# Compute types whose arithmetic is that of fp32: ``rates`` has the pace of tensor cores for the narrow ones.
_IN_FLOAT = (DataType.FLOAT, DataType.HALF, DataType.BFLOAT16)
_NAMES = {data_type: data_type.name for data_type in DataType}  # an enum takes ten times as long to say its name


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """A device as the cost models know it.

    Args:
        name: The name in reports.
        kind: "cuda" or "cpu".
        sm_count: The number of multiprocessors, or of cores.
        rates: Operations per second by arithmetic type; a multiply-add counts as two operations.
        bandwidth: Bytes per second between the chip and its memory.
        launch: Seconds that a launch takes.
        cache_bytes: Bytes of the last-level cache.
        shared_memory: Bytes of shared memory of a multiprocessor; 0 for a CPU.
        memory: Bytes of memory.
        compute_capability: (major, minor); (0, 0) for a CPU.
        ordinal: The number of a GPU that is present, as the driver counts. Files do not hold it.
    """

    name: str
    kind: str  # "cuda" or "cpu"
    sm_count: int  # multiprocessors, or cores
    rates: Mapping[str, float]
    bandwidth: float
    launch: float
    cache_bytes: int  # last level
    shared_memory: int  # bytes per multiprocessor; 0 for a CPU
    memory: int
    compute_capability: tuple[int, int] = (0, 0)
    ordinal: int | None = None  # of a GPU that is present, as the driver counts; no part of the plain data

    def rate(self, data_type: DataType) -> float:
        """The rate of an arithmetic type. A type without a rate has the rate of FLOAT.

        Args:
            data_type: The type.

        Returns:
            Operations per second.
        """
        rate = self.rates.get(_NAMES[data_type])
        return self.rates["FLOAT"] if rate is None else rate

    def compute_rate(self, compute_type: DataType) -> float:
        """The rate of arithmetic in a compute type, without tensor cores.

        Compute types narrower than fp32 have the rate of FLOAT, in which they are computed.

        Args:
            compute_type: The compute type of an operation.

        Returns:
            Operations per second.
        """
        return self.rate(DataType.FLOAT if compute_type in _IN_FLOAT else compute_type)

    @property
    def warps(self) -> int:
        """The number of warps that a multiprocessor holds."""
        known = MULTIPROCESSORS.get(self.compute_capability)
        return LEAST_WARPS if known is None else known.warps

    def to_json(self) -> dict[str, Any]:
        """Plain data; ``device_from_json`` reads it."""
        plain = {name: getattr(self, name) for name in _KINDS}
        return plain | {"rates": dict(self.rates), "compute_capability": list(self.compute_capability)}

    def __reduce__(self) -> tuple[Any, ...]:
        return device_from_json, (self.to_json(),)


def device_from_json(data: Mapping[str, Any]) -> DeviceSpec:
    """A spec from plain data. Raises ``BadParam`` when an entry is missing, unknown or of the wrong kind."""
    where = "DEVICEPROP"
    found = [
        MALFORMED.reject(where, name, "missing", expected=kind)
        for name, (_, kind) in _KINDS.items()
        if name not in data
    ]
    found += [MALFORMED.reject(where, name, "given", expected="no such entry") for name in data if name not in _KINDS]
    for name, (check, kind) in _KINDS.items():
        if name in data and not check(data[name]):
            found.append(MALFORMED.reject(where, name, data[name], expected=kind))
    raise_if(found)
    shared, capability = data["shared_memory"], tuple(data["compute_capability"])
    if data["kind"] == "cuda" and capability >= (8, 0) and shared < _LEAST_SHARED:
        expected = f"at least {_LEAST_SHARED} bytes, which every device of compute capability 8.0 and later has"
        raise_if([MALFORMED.reject(where, "shared_memory", shared, expected=expected)])
    entries = dict(data)
    entries["rates"] = MappingProxyType({str(key): float(value) for key, value in data["rates"].items()})
    entries["compute_capability"] = tuple(data["compute_capability"])
    return DeviceSpec(**entries)


def _is_count(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _is_between(value: object, least: float, most: float) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value <= most


def _is_rates(value: object) -> bool:
    return isinstance(value, Mapping) and "FLOAT" in value and all(_is_between(v, 1e6, 1e21) for v in value.values())


def _is_capability(value: object) -> bool:
    return isinstance(value, (list, tuple)) and len(value) == 2 and all(_is_count(v, 999) for v in value)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 64 and value.isascii() and value.isprintable()


_LEAST_SHARED = 100 * 1024
_BYTES = "bytes, up to 2**50"
_KINDS: dict[str, tuple[Callable[[object], bool], str]] = {
    "name": (_is_name, "a name of at most 64 letters"),
    "kind": (lambda v: v in ("cuda", "cpu"), "cuda or cpu"),
    "sm_count": (lambda v: _is_count(v, 2**16) and v != 0, "a count from 1 to 65536"),
    "rates": (_is_rates, "operations per second by type, FLOAT among them, 1e6 to 1e21"),
    "bandwidth": (lambda v: _is_between(v, 1e6, 1e18), "bytes per second, 1e6 to 1e18"),
    "launch": (lambda v: _is_between(v, 1e-9, 1.0), "seconds, 1e-9 to 1"),
    "cache_bytes": (lambda v: _is_count(v, 2**50), _BYTES),
    "shared_memory": (lambda v: _is_count(v, 2**50), _BYTES),
    "memory": (lambda v: _is_count(v, 2**50), _BYTES),
    "compute_capability": (_is_capability, "[major, minor]"),
}


def _board(
    name: str,
    capability: tuple[int, int],
    sm_count: int,
    bandwidth: float,
    l2_mib: int,
    shared_kib: int,
    memory: int,
    source: str,
    **rates: float,
) -> tuple[DeviceSpec, str]:
    """A profile and the source of its figures. ``bandwidth`` is in GB/s, and rates are in TFLOP/s or TOP/s."""
    spec = DeviceSpec(
        name=name,
        kind="cuda",
        sm_count=sm_count,
        rates=MappingProxyType({key: value * TERA for key, value in rates.items()}),
        bandwidth=bandwidth * GIGA,
        launch=3e-6,
        cache_bytes=l2_mib * MIB,
        shared_memory=shared_kib * 1024,
        memory=memory,
        compute_capability=capability,
    )
    return spec, source


_TUNING_GUIDE = "shared memory: NVIDIA's tuning guide of the architecture"
# Name, compute capability, multiprocessors, GB/s, MiB of L2, KiB of shared memory of a multiprocessor, bytes of memory.
# Rates are dense peaks with sums in fp32. TF32 is the tensor-core rate for float data; FLOAT and DOUBLE are the rates
# without tensor cores. Rates of integers but INT8 and UINT8 are without tensor cores as well.
_BOARDS: tuple[tuple[DeviceSpec, str], ...] = (
    _board(
        "h200", (9, 0), 132, 4800, 60, 228, 150_109_880_320,
        "NVIDIA H200 (SXM) data sheet; cache and memory as its driver tells them (tests/data/h200_device.json)",
        DOUBLE=33.5, FLOAT=66.9, TF32=494.7, HALF=989.4, BFLOAT16=989.4,
        FP8_E4M3=1978.9, FP8_E5M2=1978.9, INT8=1978.9, UINT8=1978.9, INT32=33.5, INT64=8.4, INT16=33.5,
    ),
    _board(
        "h100", (9, 0), 132, 3350, 50, 228, 80 * GIB,
        f"NVIDIA H100 (SXM) data sheet; {_TUNING_GUIDE}",
        DOUBLE=33.5, FLOAT=66.9, TF32=494.7, HALF=989.4, BFLOAT16=989.4,
        FP8_E4M3=1978.9, FP8_E5M2=1978.9, INT8=1978.9, UINT8=1978.9, INT32=33.5, INT64=8.4, INT16=33.5,
    ),
    _board(
        "a100", (8, 0), 108, 2039, 40, 164, 80 * GIB,
        f"NVIDIA A100 (SXM, 80 GB) data sheet; {_TUNING_GUIDE}",
        DOUBLE=9.7, FLOAT=19.5, TF32=156, HALF=312, BFLOAT16=312,
        FP8_E4M3=19.5, FP8_E5M2=19.5, INT8=624, UINT8=624, INT32=19.5, INT64=4.9, INT16=19.5,
    ),
    _board(
        "l40s", (8, 9), 142, 864, 96, 100, 48 * GIB,
        f"NVIDIA L40S data sheet; {_TUNING_GUIDE}",
        DOUBLE=1.4, FLOAT=91.6, TF32=183, HALF=362, BFLOAT16=362,
        FP8_E4M3=733, FP8_E5M2=733, INT8=733, UINT8=733, INT32=45.8, INT64=11.4, INT16=45.8,
    ),
    _board(
        "l4", (8, 9), 58, 300, 48, 100, 24 * GIB,
        f"NVIDIA L4 data sheet (halved: it counts sparsity), Ada GPU architecture V2.01; {_TUNING_GUIDE}",
        DOUBLE=0.49, FLOAT=30.3, TF32=60, HALF=121, BFLOAT16=121,
        FP8_E4M3=242, FP8_E5M2=242, INT8=242, UINT8=242, INT32=15.1, INT64=3.8, INT16=15.1,
    ),
    _board(
        "rtx4090", (8, 9), 128, 1008, 72, 100, 24 * GIB,
        f"NVIDIA Ada GPU architecture V2.01 (fp32 accumulation, halved on GeForce); {_TUNING_GUIDE}",
        DOUBLE=1.29, FLOAT=82.6, TF32=82.6, HALF=165.2, BFLOAT16=165.2,
        FP8_E4M3=330.3, FP8_E5M2=330.3, INT8=660.6, UINT8=660.6, INT32=41.3, INT64=10.3, INT16=41.3,
    ),
    _board(
        "b200", (10, 0), 148, 7672, 126, 228, 191_501_854_310,
        "NVIDIA HGX B200 data sheet, of one GPU; SMs, L2, memory, bandwidth: as a driver told pytorch/ao#4002",
        DOUBLE=37, FLOAT=75, TF32=1125, HALF=2250, BFLOAT16=2250,
        FP8_E4M3=4500, FP8_E5M2=4500, INT8=4500, UINT8=4500, INT32=37.5, INT64=9.4, INT16=37.5,
    ),
    _board(
        "rtx5090", (12, 0), 170, 1792, 96, 100, 32 * GIB,
        "NVIDIA GeForce RTX 5090 specifications; tensor cores and integers: rates per cycle of compute capability 12.0 "
        "at 2.407 GHz (fp32 accumulation, halved on GeForce); shared memory: CUDA C++ Programming Guide",
        DOUBLE=1.64, FLOAT=104.8, TF32=104.8, HALF=209.5, BFLOAT16=209.5,
        FP8_E4M3=419, FP8_E5M2=419, INT8=838, UINT8=838, INT32=52.4, INT64=13.1, INT16=52.4,
    ),
)  # fmt: skip
PROFILES: dict[str, DeviceSpec] = {spec.name: spec for spec, _ in _BOARDS}
SOURCES: dict[str, str] = {spec.name: source for spec, source in _BOARDS}


@cache
def this_cpu() -> DeviceSpec:
    """The processor of this machine: cores, vector width and clock from the system, the rest by a rule of thumb.

    Vector units are taken to start two fused multiply-adds a cycle, memory to give 8 GB/s per core.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    text = _cpuinfo()
    lanes = 16 if "avx512f" in text else 8 if "avx2" in text or platform.machine() in ("arm64", "aarch64") else 4
    clock = max((float(mhz) for mhz in re.findall(r"cpu MHz\s*:\s*([\d.]+)", text)), default=2500.0) * 1e6
    clock = round(clock, -8)  # frequency scaling must not change a ranking
    flops = cores * clock * lanes * 4
    # No BLAS for integers: NumPy's own loops vectorise poorly.
    rates = {"FLOAT": flops, "DOUBLE": flops / 2, "INT32": flops / 64, "INT64": flops / 128}
    return DeviceSpec(
        name="cpu",
        kind="cpu",
        sm_count=cores,
        rates=MappingProxyType(rates),
        bandwidth=8 * GIGA * cores,
        launch=10e-6,
        cache_bytes=16 * MIB,
        shared_memory=0,
        memory=_memory(),
    )


def _cpuinfo() -> str:
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 8 * 2**30


def device_spec(device: DeviceSpec | str | None = None) -> DeviceSpec:
    """A spec by name ("h200", "cpu", ...), or the machine the library runs on for None."""
    if isinstance(device, DeviceSpec):
        return device
    if device is None:
        return this_cpu()
    word = device.lower() if isinstance(device, str) else shown(device)
    if word == "cpu" and device == "cpu":
        return this_cpu()
    if word in PROFILES:
        return PROFILES[word]
    known = ("cpu", "cuda", "cuda:0", *PROFILES)
    hint = meant("cuda" if word.startswith("gpu") else word, known)  # which resembles cpu more
    raise BadParam(UNKNOWN_DEVICE.reject("DEVICEPROP", "device", device, known=", ".join(known), meant=hint))

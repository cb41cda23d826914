"""Setup: what a measured time depends on beside the problem: device, driver, and the library's own text."""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from graphdnn.device.profiles import DeviceSpec

_PACKAGE = Path(__file__).resolve().parents[2]
_TEXTS = {"cpu": ("engines/*.py", "engines/host"), "cuda": ("engines/*.py", "engines/cuda")}
PLACES = tuple(_TEXTS)


@dataclass(frozen=True, slots=True)
class TuningEnvironment:
    """Times are used where all four are equal."""

    device: str  # JSON: name, compute capability, multiprocessors
    driver: str
    version: str  # of the library
    texts: str  # hash of the engines and their kernel text

    @property
    def device_name(self) -> str:
        return str(json.loads(self.device)["name"])


def setup_of(device: DeviceSpec) -> TuningEnvironment:
    """The setup of this process."""
    facts = {
        "name": device.name,
        "compute_capability": list(device.compute_capability),
        "sm_count": device.sm_count,
    }
    return TuningEnvironment(json.dumps(facts, sort_keys=True), _driver(device), version(), texts_of(device.kind))


def _driver(device: DeviceSpec) -> str:
    """Of a GPU the driver's CUDA version, "-" without one; of a host the processor and what multiplies matrices."""
    if device.kind == "cuda":
        from graphdnn.cuda.driver_api import available, driver_version

        return "-" if available() else "CUDA {}.{}".format(*driver_version())
    return f"numpy {np.__version__}, {_processor()}"


@cache
def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def version() -> str:
    return str(sys.modules["graphdnn"].__version__)  # the package, which is loaded before anything in it


@cache
def texts_of(kind: str) -> str:
    """Hash of every file that decides what the kernels of a kind of device are."""
    single, folder = _TEXTS[kind]
    files = [*_PACKAGE.glob(single), *(p for p in (_PACKAGE / folder).rglob("*") if p.suffix in (".py", ".cu", ".cuh"))]
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(path.relative_to(_PACKAGE).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]

"""Fingerprints and slices of arrays on a device: as the formula says, and as NumPy takes them. Kernels are emulated."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
from emulator.runtime import EmulatedRuntime

from graphdnn import PROFILES
from graphdnn.cuda.nvrtc import compile_text, resources
from graphdnn.engines.host.memory import as_it_lies, axes_of
from graphdnn.tuning.workers import device_digests, device_gather
from graphdnn.tuning.workers.device_digests import Fingerprints
from graphdnn.tuning.workers.device_gather import DeviceGather

DEVICE = replace(PROFILES["h200"], sm_count=1)
RNG = np.random.default_rng(5)


def wanted(data: bytes) -> int:
    """The formula with Python's integers."""
    mask, total = (1 << 64) - 1, 0
    for place in range(-(-len(data) // 8)):
        word = int.from_bytes(data[8 * place : 8 * place + 8], "little")
        word ^= (place + 1) * 0x9E3779B97F4A7C15 & mask
        word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & mask
        word = (word ^ word >> 27) * 0x94D049BB133111EB & mask
        total += word ^ word >> 31
    return total & mask


def test_fingerprints_are_those_of_the_bytes() -> None:
    sizes = (0, 1, 7, 8, 9, 64, 1000, 20_003)
    arrays = [RNG.integers(0, 256, max(size, 1)).astype(np.uint8) for size in sizes]
    found = Fingerprints(EmulatedRuntime(), DEVICE).of(
        [(array.ctypes.data, size) for array, size in zip(arrays, sizes, strict=True)]
    )
    assert found == [wanted(array.tobytes()[:size]) for array, size in zip(arrays, sizes, strict=True)]


def test_one_bit_and_one_exchange_show() -> None:
    prints = Fingerprints(EmulatedRuntime(), DEVICE)
    array = RNG.integers(0, 256, 4096).astype(np.uint8)
    seen = prints.of([(array.ctypes.data, array.nbytes)])
    for place, bit in ((0, 1), (4095, 128)):
        array[place] ^= bit
        assert prints.of([(array.ctypes.data, array.nbytes)]) != seen
        array[place] ^= bit
    array[:16] = np.roll(array[:16], 8)  # two words change places
    assert prints.of([(array.ctypes.data, array.nbytes)]) != seen


@pytest.mark.parametrize("axis", range(3))
def test_slices_are_those_along_an_axis(axis: int) -> None:
    array = RNG.standard_normal((3, 5, 7)).astype(np.float32).transpose(2, 0, 1)
    kept = (0, 2)
    found = DeviceGather(EmulatedRuntime(), DEVICE).at(array.ctypes.data, device_gather.lying(array, axis), kept)
    assert found.tobytes() == as_it_lies(np.take(as_it_lies(array), kept, axes_of(array).index(axis))).tobytes()


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90a"])
@pytest.mark.parametrize("own", [device_digests, device_gather])
def test_they_compile(own: ModuleType, arch: str) -> None:
    launch = own.launch(DEVICE)
    found = resources(compile_text(launch.text, arch).log)[launch.entry]
    assert not found.spill_stores
    assert not found.stack
    assert not found.warnings

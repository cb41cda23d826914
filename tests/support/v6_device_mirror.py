"""Tests written for the host, run on a device: each call gets copies of its memory there, and gives them back after it.

A test keeps NumPy arrays and a handle of the host. While a ``Mirror`` stands, handles are those of a device, and what an
argument's memory holds goes there whole (what lies between its elements as well) and comes back before the call returns.
So a value test says of the device what it says of the host.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from types import ModuleType
from typing import Any, Protocol

import numpy as np
import pytest
from emulator.libraries import host_libraries
from emulator.runtime import EmulatedRuntime

from graphdnn import v6
from graphdnn.bounded_cache import BoundedCache
from graphdnn.v6 import device_memory, plan_cache
from graphdnn.v6.descriptor_values import Handle
from graphdnn.v6.functions import Function, functions

_MEMORY = ("data", "inout", "out", "workspace")
_BLOCKS = ("cudnnGetRNNLinLayerMatrixParams", "cudnnGetRNNLinLayerBiasParams")


class Memory(Protocol):
    """Device memory as buffers of bytes."""

    def buffer(self, size: int) -> Any: ...
    def write(self, buffer: Any, host: np.ndarray) -> None: ...
    def read(self, buffer: Any, host: np.ndarray) -> None: ...
    def address(self, buffer: Any) -> int: ...
    def view(self, buffer: Any, offset: int, like: np.ndarray) -> Any: ...


class OnDevice(np.ndarray):
    """An array as CuPy's looks: its memory has an address, and is not the host's to read."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.__array_interface__


class EmulatedMemory:
    """Other memory of the host."""

    def buffer(self, size: int) -> Any:
        raw = np.full(size + 256, 0xA5, np.uint8)
        start = -raw.ctypes.data % 256
        return raw[start : start + size]

    def write(self, buffer: Any, host: np.ndarray) -> None:
        buffer[...] = host

    def read(self, buffer: Any, host: np.ndarray) -> None:
        host[...] = buffer

    def address(self, buffer: Any) -> int:
        return int(buffer.ctypes.data)

    def view(self, buffer: Any, offset: int, like: np.ndarray) -> Any:
        return np.ndarray(like.shape, like.dtype, buffer.data, offset, like.strides).view(OnDevice)


class CudaMemory:
    """CuPy's."""

    def buffer(self, size: int) -> Any:
        import cupy

        return cupy.empty(size, cupy.uint8)

    def write(self, buffer: Any, host: np.ndarray) -> None:
        buffer.set(host)

    def read(self, buffer: Any, host: np.ndarray) -> None:
        buffer.get(out=host)

    def address(self, buffer: Any) -> int:
        return int(buffer.data.ptr)

    def view(self, buffer: Any, offset: int, like: np.ndarray) -> Any:
        import cupy

        return cupy.ndarray(like.shape, like.dtype, buffer.data + offset, like.strides)


class _Block:
    """One array's own memory, and its copy on the device."""

    def __init__(self, owner: np.ndarray, start: int, stop: int, memory: Memory) -> None:
        self.owner, self.start, self.stop, self.memory = owner, start, stop, memory
        self.bytes = np.ndarray((stop - start,), np.uint8, (ctypes.c_char * (stop - start)).from_address(start))
        self.buffer = memory.buffer(stop - start)

    @property
    def address(self) -> int:
        return self.memory.address(self.buffer)

    def to_device(self) -> None:
        self.memory.write(self.buffer, self.bytes)

    def to_host(self) -> None:
        if self.owner.flags.writeable:
            self.memory.read(self.buffer, self.bytes)


class Mirror:
    """Calls on a device, for tests that know nothing of it. ``calls`` counts what ran there, by function."""

    def __init__(self, handle: Handle, memory: Memory) -> None:
        self.handle, self.memory = handle, memory
        self._blocks: dict[int, _Block] = {}  # by the address of their first byte; of every array that was seen
        self._states: list[_Block] = []  # what descriptors of dropout hold on to

    def wrapped(self, row: Function, call: Callable[..., Any]) -> Callable[..., Any]:
        kinds = {p.name: p.kind for p in row.inputs}

        @wraps(call)
        def mirrored(*args: Any, **named: Any) -> Any:
            used: list[_Block] = list(self._states)
            given = [self._moved(row.name, p.name, p.kind, a, used) for p, a in zip(row.inputs, args, strict=False)]
            given += args[len(given) :]
            words = {name: self._moved(row.name, name, kinds.get(name, ""), a, used) for name, a in named.items()}
            for block in used:
                block.to_device()
            try:
                result = call(*given, **words)
            finally:
                for block in used:
                    block.to_host()
            if row.name in _BLOCKS:  # the host's own answer, for tests that write to it
                return self._same_place(call(*args, **named), result)
            return self._on_host(result) if row.name == "cudnnGetDropoutDescriptor" else result

        return mirrored

    def _moved(self, function: str, name: str, kind: str, given: Any, used: list[_Block]) -> Any:
        if isinstance(given, Handle) and given.device.kind == "cpu" and not given.destroyed:
            return self.handle
        if kind not in _MEMORY or not ((isinstance(given, np.ndarray) and given.size) or type(given) is int):
            return given
        found = self._block_at(given) if isinstance(given, int) else self._block_of(given)
        if found is None:
            return pytest.skip("an address in memory that no call has seen") if given else given
        if name == "states" and found not in self._states:
            self._states.append(found)
        if found not in used:
            used.append(found)
        if isinstance(given, int):
            return found.address + given - found.start
        return self.memory.view(found.buffer, given.ctypes.data - found.start, given)

    def _block_of(self, given: np.ndarray) -> _Block:
        owner = given
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        start, stop = np.lib.array_utils.byte_bounds(owner)
        known = self._blocks.get(start)
        if known is None or known.stop != stop:
            known = self._blocks[start] = _Block(owner, start, stop, self.memory)
        return known

    def _block_at(self, address: int) -> _Block | None:
        return next((b for b in self._blocks.values() if b.start <= address < b.stop), None)

    def _same_place(self, here: Any, there: int | None) -> Any:
        if here is None or there is None:
            assert here is there is None
            return here
        address = here if isinstance(here, int) else here.ctypes.data
        block = self._block_at(address)
        assert block is not None
        assert there - block.address == address - block.start
        return here

    def _on_host(self, result: Sequence[Any]) -> tuple[Any, ...]:
        """States that a descriptor holds, as the caller's memory."""
        back = {block.address: block.bytes for block in self._states}
        return tuple(back.get(value, value) if type(value) is int else value for value in result)


@contextmanager
def mirrored(handle: Handle, memory: Memory) -> Iterator[Mirror]:
    """Inside, legacy calls with a handle of the host run with this one."""
    mirror = Mirror(handle, memory)
    with pytest.MonkeyPatch.context() as patch:
        for name, row in functions().items():
            patch.setattr(v6, name, mirror.wrapped(row, getattr(v6, name)))
        yield mirror


@contextmanager
def emulated() -> Iterator[EmulatedRuntime]:
    """Inside, every device plan runs on the emulator; plans that are kept are not those of other tests."""
    made = EmulatedRuntime()
    with pytest.MonkeyPatch.context() as patch, host_libraries():
        patch.setattr("graphdnn.plan.device_plan.CudaRuntime", lambda device: made)
        patch.setattr(plan_cache, "_kept", BoundedCache(plan_cache._kept.size))
        patch.setattr(device_memory, "_planned", BoundedCache(device_memory._planned.size))
        patch.setattr(device_memory.driver_api, "synchronize", lambda stream: None)
        yield made


def cases_of(
    *modules: ModuleType, without: Sequence[str] = (), long_but: Sequence[str] | None = None
) -> dict[str, type]:
    """The modules' tests, as a class for each module. ``long_but``: all are marked long, these excepted."""
    return {
        f"Test{module.__name__.removeprefix('test_').title().replace('_', '')}": type(
            "Cases",
            (),
            {
                name: staticmethod(test if long_but is None or name in long_but else _long(test))
                for name, test in vars(module).items()
                if name.startswith("test_") and name not in without
            },
        )
        for module in modules
    }


def _long(test: Any) -> Any:
    """As a test of its own: marks stay with the function that they are given to."""

    @pytest.mark.long
    @wraps(test)
    def marked(**given: Any) -> None:
        test(**given)

    return marked

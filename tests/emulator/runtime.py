"""EmulatedRuntime: CUDA for a device plan where there is none. Arrays are NumPy's, kernels run on the emulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from emulator.emulate import Emulated, compile_for_host
from emulator.tensor_maps import writer
from graphdnn.cuda.nvrtc import KernelText
from graphdnn.dtypes import Array
from graphdnn.engines.cuda.codegen.launch import Launch
from graphdnn.engines.cuda.codegen.parameters import WORD, MapSlot
from graphdnn.engines.host.memory import empty
from graphdnn.errors import Rejection
from graphdnn.plan.binding_validation import Expected
from graphdnn.plan.device_arrays import address_of, is_raw, shadow_at
from graphdnn.tensors import TensorSpec

_COMPILED: dict[tuple[str, str, bool], Emulated] = {}


@dataclass
class _Prepared:
    step: Launch
    params: bytearray
    streams: list[int]
    watched: bool

    def launch(self, stream: int) -> None:
        self.streams.append(stream)
        key = self.step.text.text, self.step.entry, self.watched
        if key not in _COMPILED:
            _COMPILED[key] = compile_for_host(self.step.text.text, (self.step.entry,), watched=self.watched)
        _COMPILED[key].launch(
            self.step.entry,
            self.step.grid,
            self.step.block,
            self.step.shared,
            bytes(self.params),
            together=self.step.is_cooperative,
        )


class EmulatedRuntime:
    """As ``graphdnn.plan.cuda_runtime.Runtime``. Addresses are those of host memory; each launch's stream is noted."""

    compiled = 0

    def __init__(self, *, watched: bool = False) -> None:
        self.streams: list[int] = []
        self.watched = watched

    def compile(self, text: KernelText) -> bytes:
        return b""

    def is_here(self) -> bool:
        return True

    def look(self) -> None:
        pass

    def ordinal(self) -> int:
        return 0

    def adopt(self, ordinal: int) -> bool:
        return False

    def is_current(self) -> bool:
        return self.ordinal() == self.wanted()

    def stream_device(self, stream: int) -> int:
        return self.ordinal()

    def wanted(self) -> int:
        return 0

    def device(self, ordinal: int) -> AbstractContextManager[None]:
        return nullcontext()

    def current_stream(self) -> int:
        return 0

    def stream_of_torch(self, device: int) -> int:
        return 0

    def order(self, producer: int, consumer: int) -> None:
        """The emulator executes each launch at once."""

    def array_type(self) -> type | None:
        return None

    def prepare(self, launch: Launch, plan: str) -> _Prepared:
        return _Prepared(launch, bytearray(launch.params.data), self.streams, self.watched)

    def map_writer(self, prepared: _Prepared, slot: MapSlot) -> Callable[[int], None]:
        assert slot.map is not None
        return writer(slot.map, prepared.params, slot.word * WORD)

    def shadows(
        self, expected: Sequence[Expected], arrays: Sequence[Any], stream: int
    ) -> tuple[list[Array], list[Rejection]]:
        return [_array_of(want, given) for want, given in zip(expected, arrays, strict=True)], []

    def memory(self, size: int) -> Array:
        raw = np.full(size + 256, 0xA5, np.uint8)
        start = -raw.ctypes.data % 256
        return raw[start : start + size]

    def workspace_address(self, workspace: Any, size: int, stream: int = 0) -> tuple[int, Rejection | None]:
        if is_raw(workspace):
            return address_of(workspace), None
        assert workspace.nbytes >= size
        return workspace.ctypes.data, None

    def array(self, spec: TensorSpec) -> Array:
        return empty(spec)

    def array_at(self, want: Expected, address: int) -> Array:
        return shadow_at(address, *want.layout)

    def copy_in(self, host: Array, array: Array, size: int) -> None:
        array[...] = host

    def copy_out(self, array: Array, host: Array, size: int) -> None:
        host[...] = array

    def synchronize(self, stream: int) -> None:
        pass

    def timings(self, call: Callable[[], None], repeat: int, stream: int | None = None) -> list[float]:
        found = []
        for _ in range(repeat):
            start = perf_counter()
            call()
            found.append(perf_counter() - start)
        return found


def _array_of(want: Expected, given: Any) -> Array:
    """The array at a bare address, or what was given."""
    return shadow_at(address_of(given), *want.layout) if is_raw(given) else given  # type: ignore[no-any-return]

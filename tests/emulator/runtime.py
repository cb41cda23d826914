"""EmulatedRuntime: CUDA for a device plan where there is none. Arrays are NumPy's, kernels run on the emulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from emulator.emulate import Emulated, compile_for_host
from graphdnn.cuda.nvrtc import KernelText
from graphdnn.dtypes import Array
from graphdnn.engines.cuda.launch import Launch
from graphdnn.errors import Rejection
from graphdnn.plan.bindings import Expected

_COMPILED: dict[tuple[str, str], Emulated] = {}


@dataclass
class _Prepared:
    step: Launch
    params: bytearray

    def launch(self, stream: int) -> None:
        key = self.step.text.text, self.step.entry
        if key not in _COMPILED:
            _COMPILED[key] = compile_for_host(self.step.text.text, (self.step.entry,))
        _COMPILED[key].launch(self.step.entry, self.step.grid, self.step.block, self.step.shared, bytes(self.params))


class EmulatedRuntime:
    """As ``graphdnn.plan.runtime.Runtime``."""

    def compile(self, text: KernelText) -> bytes:
        return b""

    def is_here(self) -> bool:
        return True

    def ordinal(self) -> int:
        return 0

    def current_stream(self) -> int:
        return 0

    def array_type(self) -> type | None:
        return None

    def prepare(self, launch: Launch, plan: str) -> _Prepared:
        return _Prepared(launch, bytearray(launch.params.data))

    def shadows(
        self, expected: Sequence[Expected], arrays: Sequence[Any], stream: int
    ) -> tuple[list[Array], list[Rejection]]:
        return list(arrays), []

    def memory(self, size: int) -> Array:
        raw = np.full(size + 256, 0xA5, np.uint8)
        start = -raw.ctypes.data % 256
        return raw[start : start + size]

    def workspace_address(self, workspace: Array, size: int) -> tuple[int, Rejection | None]:
        assert workspace.nbytes >= size
        return workspace.ctypes.data, None

"""Pending: an array whose contents a recording has still to compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphdnn.dtypes import Array


class Pending:
    """Reading it runs what is recorded. Calls take it as they take arrays."""

    __slots__ = ("_run", "memory")

    def __init__(self, memory: Array, run: Callable[[], None]) -> None:
        self.memory = memory
        self._run = run

    def read(self) -> Array:
        self._run()
        return self.memory

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        found = self.read()
        return found.copy() if copy and dtype is None else found if dtype is None else found.astype(dtype)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self.read().__array_interface__

    @property
    def shape(self) -> tuple[int, ...]:
        return self.memory.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.memory.dtype

    @property
    def ndim(self) -> int:
        return self.memory.ndim

    @property
    def size(self) -> int:
        return self.memory.size

    @property
    def nbytes(self) -> int:
        """What calls that take a size in bytes are told."""
        return self.memory.nbytes

    def __len__(self) -> int:
        return len(self.memory)

    def __getitem__(self, key: Any) -> Any:
        return self.read()[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        """What is recorded so far runs on what was there before."""
        self.read()[key] = value

    def reshape(self, *shape: int) -> Pending:
        """The same memory with other extents, still to be computed."""
        return Pending(self.memory.reshape(*shape), self._run)

    def __repr__(self) -> str:
        return f"<pending {np.dtype(self.memory.dtype)} {self.memory.shape}>"

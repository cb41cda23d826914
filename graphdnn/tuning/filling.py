"""Bytes of arrays set to one value, wherever they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphdnn.engines.host.memory import as_it_lies


def fill(array: Any, byte: int, size: int) -> None:
    """Host or device; there in the current stream."""
    if isinstance(array, np.ndarray):
        as_it_lies(array).view(np.uint8).fill(byte)
    else:
        array.data.memset_async(byte, size)

"""What tests of the NumPy engine compute on: random numbers, layouts, bounds."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import numpy as np
import pytest

without_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
FLOATS = [np.float32, np.float64]
NEAR = {np.float32: {"rtol": 2e-5, "atol": 2e-5}, np.float64: {"rtol": 1e-11, "atol": 1e-12}}


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def layouts(x: np.ndarray) -> Iterator[np.ndarray]:
    """x with other strides: as it is, axes reversed in memory, every second element of a larger buffer, mirrored."""
    yield x
    yield np.asarray(x.T.copy()).T
    spaced = np.zeros([2 * extent for extent in x.shape], x.dtype)[tuple(slice(None, None, 2) for _ in x.shape)]
    spaced[...] = x
    yield spaced
    mirrored = tuple(slice(None, None, -1) for _ in x.shape)
    yield np.ascontiguousarray(x[mirrored])[mirrored]

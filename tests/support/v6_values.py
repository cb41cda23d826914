"""What values of the legacy calls are compared with: drawn arrays, old contents, blends, bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
from v6_tools import NUMPY

from graphdnn import v6

RNG = np.random.default_rng(5)
BLENDS = [(1.0, 0.0), (0.5, 0.0), (2.0, -0.5), (1.0, 1.0)]


def drawn(dims: Any, kind: Any = v6.CUDNN_DATA_FLOAT) -> np.ndarray:
    if kind in (v6.CUDNN_DATA_INT8, v6.CUDNN_DATA_INT32):
        return RNG.integers(-9, 10, dims).astype(NUMPY[kind])
    return RNG.standard_normal(dims).astype(NUMPY[kind])


def before(dims: Any, beta: float, kind: Any = v6.CUDNN_DATA_FLOAT) -> np.ndarray:
    """Old contents of an output: NaN where nobody may read them."""
    old = drawn(dims, kind)
    if beta == 0 and old.dtype.kind == "f":
        old[...] = np.nan
    return old


def blended(result: Any, alpha: float, beta: float, old: np.ndarray) -> np.ndarray:
    """What an output becomes, in double."""
    result = alpha * np.asarray(result, np.float64)
    return result if beta == 0 else result + beta * old.astype(np.float64)


def close(found: np.ndarray, wanted: np.ndarray, bound: float = 2e-5) -> None:
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=bound, atol=bound)

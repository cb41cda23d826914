"""What tests of the graph builder begin with."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphdnn import Graph
from graphdnn.builder import Tensor

RNG = np.random.default_rng(0)


def graph(**fields: Any) -> Graph:
    return Graph(**{"name": "test", "io_data_type": "f32", **fields})


def values(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return (RNG.standard_normal(shape) * 4).astype(dtype)


def conv_bias_relu(g: Graph) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    x, w, b = g.tensor([2, 8, 6, 6]), g.tensor([4, 8, 3, 3]), g.tensor([1, 4, 1, 1])
    return x, w, b, g.relu(g.bias(g.conv_fprop(x, w, padding=[1, 1]), b)).set_output()

"""PyTorch's element types, and the host memory of its tensors as NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphdnn.dtypes import CARRIERS, ELEMENTS, Array, data_type_of


def torch_type(dtype: np.dtype[Any]) -> Any:
    """PyTorch's element type for one of NumPy or ml_dtypes. The names are equal."""
    import torch

    return getattr(torch, dtype.name)


def as_numpy(tensor: Any) -> Array:
    """The memory of a PyTorch tensor on the host. The bits of types that NumPy lacks travel as unsigned integers.

    Raises:
        TypeError: The tensor is the negative of what is in memory, or it is not in host memory.
    """
    if tensor.is_neg():
        raise TypeError("this tensor is the negative of what is in memory; pass tensor.resolve_neg()")
    data_type = data_type_of(tensor.dtype)
    bits = tensor.detach()
    if data_type in CARRIERS:
        bits = bits.view(torch_type(np.dtype(CARRIERS[data_type])))
    return np.asarray(bits.numpy()).view(ELEMENTS[data_type].numpy)

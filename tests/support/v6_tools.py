"""Descriptors in one line, and legal arguments for any implemented legacy function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import recurrent_tools

from graphdnn import v6
from graphdnn.v6.functions import Function

NUMPY = {
    v6.CUDNN_DATA_FLOAT: np.float32,
    v6.CUDNN_DATA_DOUBLE: np.float64,
    v6.CUDNN_DATA_HALF: np.float16,
    v6.CUDNN_DATA_INT8: np.int8,
    v6.CUDNN_DATA_INT32: np.int32,
}


def tensor(dims: Sequence[int], fmt: Any = v6.CUDNN_TENSOR_NCHW, kind: Any = v6.CUDNN_DATA_FLOAT) -> Any:
    desc = v6.cudnnCreateTensorDescriptor()
    v6.cudnnSetTensorNdDescriptorEx(desc, fmt, kind, len(dims), dims)
    return desc


def strided(array: np.ndarray, kind: Any = v6.CUDNN_DATA_FLOAT) -> Any:
    """The descriptor of an array as it lies in memory."""
    desc = v6.cudnnCreateTensorDescriptor()
    strides = [s // array.itemsize for s in array.strides]
    v6.cudnnSetTensorNdDescriptor(desc, kind, array.ndim, array.shape, strides)
    return desc


def filter_of(dims: Sequence[int], fmt: Any = v6.CUDNN_TENSOR_NCHW, kind: Any = v6.CUDNN_DATA_FLOAT) -> Any:
    desc = v6.cudnnCreateFilterDescriptor()
    v6.cudnnSetFilterNdDescriptor(desc, kind, fmt, len(dims), dims)
    return desc


def convolution(
    padding: Sequence[int] = (0, 0), stride: Sequence[int] = (1, 1), dilation: Sequence[int] = (1, 1),
    mode: Any = v6.CUDNN_CROSS_CORRELATION, compute: Any = v6.CUDNN_DATA_FLOAT, groups: int = 1,
) -> Any:  # fmt: skip
    desc = v6.cudnnCreateConvolutionDescriptor()
    v6.cudnnSetConvolutionNdDescriptor(desc, len(padding), padding, stride, dilation, mode, compute)
    v6.cudnnSetConvolutionGroupCount(desc, groups)
    return desc


def pooling(mode: Any, window: Sequence[int], padding: Sequence[int], stride: Sequence[int], nan: Any = 0) -> Any:
    desc = v6.cudnnCreatePoolingDescriptor()
    v6.cudnnSetPoolingNdDescriptor(desc, mode, nan, len(window), window, padding, stride)
    return desc


def activation(mode: Any, coef: float = 0.0, nan: Any = v6.CUDNN_NOT_PROPAGATE_NAN) -> Any:
    desc = v6.cudnnCreateActivationDescriptor()
    v6.cudnnSetActivationDescriptor(desc, mode, nan, coef)
    return desc


def _descriptor(kind: str, parameter: str) -> Any:
    """One of each kind, such that every function works on them together: x, w and y of 1x1x1x1."""
    if kind == "TensorDescriptor":
        return tensor((1, 1, 1, 1))
    if kind == "FilterDescriptor":
        return filter_of((1, 1, 1, 1))
    if kind == "ConvolutionDescriptor":
        return convolution()
    if kind == "PoolingDescriptor":
        return pooling(v6.CUDNN_POOLING_MAX, (1, 1), (0, 0), (1, 1))
    if kind in recurrent_tools.DESCRIPTORS:
        return recurrent_tools.DESCRIPTORS[kind]()
    if kind == "ActivationDescriptor":
        return activation(v6.CUDNN_ACTIVATION_RELU)
    desc = getattr(v6, f"cudnnCreate{kind}")()
    settings = {
        "OpTensorDescriptor": (0, 0, 0),
        "ReduceTensorDescriptor": (0, 0, 0, 0, 0),
        "SpatialTransformerDescriptor": (0, 0, 4, [1, 1, 1, 1]),
        "CTCLossDescriptor": (0,),
        "LRNDescriptor": (5, 1e-4, 0.75, 2.0),
    }
    setter = "cudnnSetSpatialTransformerNdDescriptor" if kind.startswith("Spatial") else f"cudnnSet{kind}"
    getattr(v6, setter)(desc, *settings[kind])
    return desc


_SHAPES = {"theta": (1, 2, 3), "dtheta": (1, 2, 3), "grid": (1, 1, 1, 2), "dgrid": (1, 1, 1, 2)}


def good_arguments(row: Function) -> list[Any]:
    """Arguments that a function accepts."""
    special = {"nbDims": 4, "arrayLength": 2, "valuePtr": 1.0, "format": 0, "lrnN": 5}
    found: list[Any] = []
    for p in row.inputs:
        if p.kind == "Handle":
            found.append(v6.cudnnCreate())
        elif p.kind.endswith("Descriptor") or p.kind in recurrent_tools.DESCRIPTORS:
            found.append(_descriptor(p.kind, p.name))
        elif p.kind in ("data", "inout", "out"):
            found.append(np.ones(_SHAPES.get(p.name, (1, 1, 1, 1)), np.float32))
        elif p.kind == "ints":
            length = found[-1] if row.inputs[len(found) - 1].name == "nbDims" else 4
            found.append([1] * max(4, length if isinstance(length, int) else 4))
        elif p.kind in ("workspace", "cudaStream"):
            found.append(None)
        else:
            found.append(special.get(p.name, 0 if p.name.startswith(("pad", "vertical", "horizontal")) else 1))
        if p.name in ("mode", "dataType", "computeType", "type", "reluNanOpt") or (
            p.kind[0].isupper()
            and p.kind.endswith(
                ("Mode", "Type", "Algo", "Algorithm", "Op", "Propagation", "Indices", "Format", "Preference")
            )
        ):
            found[-1] = 0
        if p.name in ("verticalStride", "horizontalStride", "windowHeight", "windowWidth"):
            found[-1] = 1
    special_here = recurrent_tools.special_arguments(row.name)
    found = [special_here.get(p.name, value) for p, value in zip(row.inputs, found, strict=True)]
    if row.name == "cudnnReduceTensor":  # something has to be reduced
        names = [p.name for p in row.inputs]
        found[names.index("aDesc")] = tensor((1, 1, 1, 2))
        found[names.index("A")] = np.ones((1, 1, 1, 2), np.float32)
    return found

"""From formats to strides, and from legacy element types to those of the core."""

from __future__ import annotations

from collections.abc import Sequence

from graphdnn.enums import DataType
from graphdnn.tensors import channels_last_strides, packed_strides
from graphdnn.v6.descriptor_values import Filter, Tensor
from graphdnn.v6.enums import cudnnDataType_t, cudnnTensorFormat_t

_VECTORS = {
    cudnnDataType_t.CUDNN_DATA_INT8x4: (DataType.INT8, 4),
    cudnnDataType_t.CUDNN_DATA_UINT8x4: (DataType.UINT8, 4),
    cudnnDataType_t.CUDNN_DATA_INT8x32: (DataType.INT8, 32),
}
_BYTES = {DataType.FLOAT: 4, DataType.DOUBLE: 8, DataType.HALF: 2, DataType.INT8: 1, DataType.UINT8: 1,
          DataType.INT32: 4}  # fmt: skip


def element_of(data_type: cudnnDataType_t) -> tuple[DataType, int]:
    """(element type, elements of a vector)."""
    return _VECTORS.get(data_type) or (DataType(int(data_type)), 1)


def is_vector(data_type: cudnnDataType_t) -> bool:
    return data_type in _VECTORS


def bytes_of(data_type: cudnnDataType_t) -> int:
    """Bytes of what strides count: an element, or a whole vector."""
    element, vector = element_of(data_type)
    return _BYTES[element] * vector


def format_strides(tensor_format: cudnnTensorFormat_t, dims: Sequence[int], vector: int = 1) -> tuple[int, ...]:
    """Strides of a packed tensor; with vectors they count vectors, and extents in memory are C/vector."""
    if tensor_format is cudnnTensorFormat_t.CUDNN_TENSOR_NHWC:
        return channels_last_strides(dims)
    if tensor_format is cudnnTensorFormat_t.CUDNN_TENSOR_NCHW_VECT_C:
        return packed_strides((dims[0], dims[1] // vector, *dims[2:]))
    return packed_strides(dims)


def filter_strides(value: Filter) -> tuple[int, ...]:
    return format_strides(value.format, value.dims, element_of(value.data_type)[1])


def span_of(value: Tensor) -> int:
    """Elements (or vectors) from the first to the last in memory."""
    vector = element_of(value.data_type)[1]
    dims = (value.dims[0], value.dims[1] // vector, *value.dims[2:]) if vector > 1 else value.dims
    return 1 + sum((extent - 1) * abs(stride) for extent, stride in zip(dims, value.strides, strict=True))


def size_of(value: Tensor) -> int:
    """Bytes from the first to the last element, gaps included."""
    return span_of(value) * bytes_of(value.data_type)

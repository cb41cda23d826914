"""Filter descriptors: with a format, or in the form of version 3, which is always KCRS."""

from __future__ import annotations

from graphdnn.v6.descriptor_checks import DIM_MAX, counted, entries, rank_in
from graphdnn.v6.descriptor_values import Descriptor, Filter, Ints
from graphdnn.v6.enums import cudnnDataType_t, cudnnTensorFormat_t
from graphdnn.v6.errors import CudnnError
from graphdnn.v6.layouts import is_vector
from graphdnn.v6.registry import implements
from graphdnn.v6.rules import SAME_DIMS, VECTOR

_NCHW = cudnnTensorFormat_t.CUDNN_TENSOR_NCHW
_VECT_C = cudnnTensorFormat_t.CUDNN_TENSOR_NCHW_VECT_C


def _keep(where: str, desc: Descriptor, data_type: cudnnDataType_t, tensor_format: cudnnTensorFormat_t,
          dims: Ints) -> None:  # fmt: skip
    entries(where, 1, dims=dims)
    if is_vector(data_type) is not (tensor_format is _VECT_C):
        expected = "a vector type with CUDNN_TENSOR_NCHW_VECT_C, any other type with another format"
        reason = "NCHW_VECT_C stores channels in vectors, and only the x4 and x32 types are vectors"
        value = f"{tensor_format.name} with {data_type.name}"
        raise CudnnError(VECTOR.reject(where, "format", value, expected=expected, reason=reason))
    desc.value = Filter(data_type, tensor_format, dims)


@implements("cudnnSetFilter4dDescriptor")
def set_4d(desc: Descriptor, data_type: cudnnDataType_t, tensor_format: cudnnTensorFormat_t, *dims: int) -> None:
    _keep("cudnnSetFilter4dDescriptor", desc, data_type, tensor_format, dims)


@implements("cudnnSetFilter4dDescriptor_v3")
def set_4d_v3(desc: Descriptor, data_type: cudnnDataType_t, *dims: int) -> None:
    _keep("cudnnSetFilter4dDescriptor_v3", desc, data_type, _NCHW, dims)


@implements("cudnnSetFilterNdDescriptor")
def set_nd(desc: Descriptor, data_type: cudnnDataType_t, tensor_format: cudnnTensorFormat_t, rank: int,
           dims: Ints) -> None:  # fmt: skip
    _set_nd("cudnnSetFilterNdDescriptor", desc, data_type, tensor_format, rank, dims)


@implements("cudnnSetFilterNdDescriptor_v3")
def set_nd_v3(desc: Descriptor, data_type: cudnnDataType_t, rank: int, dims: Ints) -> None:
    _set_nd("cudnnSetFilterNdDescriptor_v3", desc, data_type, _NCHW, rank, dims)


def _set_nd(where: str, desc: Descriptor, data_type: cudnnDataType_t, tensor_format: cudnnTensorFormat_t, rank: int,
            dims: Ints) -> None:  # fmt: skip
    rank_in(where, "nbDims", rank, 3, DIM_MAX)
    (dims,) = counted(where, rank, filterDimA=dims)
    _keep(where, desc, data_type, tensor_format, dims)


def _four(where: str, desc: Descriptor) -> Filter:
    value: Filter = desc.value
    if len(value.dims) != 4:
        reason = "the call has room for four extents"
        raise CudnnError(SAME_DIMS.reject(where, "dims", value.dims, expected="4 axes", reason=reason))
    return value


@implements("cudnnGetFilter4dDescriptor")
def get_4d(desc: Descriptor) -> tuple[cudnnDataType_t | cudnnTensorFormat_t | int, ...]:
    value = _four("cudnnGetFilter4dDescriptor", desc)
    return (value.data_type, value.format, *value.dims)


@implements("cudnnGetFilter4dDescriptor_v3")
def get_4d_v3(desc: Descriptor) -> tuple[cudnnDataType_t | int, ...]:
    value = _four("cudnnGetFilter4dDescriptor_v3", desc)
    return (value.data_type, *value.dims)


@implements("cudnnGetFilterNdDescriptor")
def get_nd(desc: Descriptor, requested: int) -> tuple[cudnnDataType_t, cudnnTensorFormat_t, int, Ints]:
    entries("cudnnGetFilterNdDescriptor", 0, nbDimsRequested=requested)
    value: Filter = desc.value
    return value.data_type, value.format, len(value.dims), value.dims[:requested]


@implements("cudnnGetFilterNdDescriptor_v3")
def get_nd_v3(desc: Descriptor, requested: int) -> tuple[cudnnDataType_t, int, Ints]:
    entries("cudnnGetFilterNdDescriptor_v3", 0, nbDimsRequested=requested)
    value: Filter = desc.value
    return value.data_type, len(value.dims), value.dims[:requested]

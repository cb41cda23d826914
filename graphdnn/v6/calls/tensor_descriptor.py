"""Tensor descriptors: 4-d, N-d, with formats or strides."""

from __future__ import annotations

from graphdnn.enums import Status
from graphdnn.v6.descriptor_checks import DIM_MAX, counted, entries, rank_in
from graphdnn.v6.descriptor_values import Descriptor, Ints, Tensor
from graphdnn.v6.enums import cudnnBatchNormMode_t, cudnnDataType_t, cudnnTensorFormat_t
from graphdnn.v6.errors import CudnnError, refuse_if
from graphdnn.v6.layouts import element_of, format_strides, is_vector, size_of, span_of
from graphdnn.v6.registry import implements
from graphdnn.v6.rules import SAME_DIMS, TENSOR_SIZE, VECTOR

MOST_ELEMENTS = 2**31
_VECT_C = cudnnTensorFormat_t.CUDNN_TENSOR_NCHW_VECT_C


def vector_problem(where: str, tensor_format: cudnnTensorFormat_t, data_type: cudnnDataType_t, channels: int) -> None:
    """Vector types and the vector format belong together."""
    vector = element_of(data_type)[1]
    if is_vector(data_type) is not (tensor_format is _VECT_C):
        expected = "a vector type with CUDNN_TENSOR_NCHW_VECT_C, any other type with another format"
        reason = "NCHW_VECT_C stores channels in vectors, and only the x4 and x32 types are vectors"
        refuse_if([VECTOR.reject(where, "format", f"{tensor_format.name} with {data_type.name}", expected=expected,
                                 reason=reason)])  # fmt: skip
    if vector > 1 and channels % vector:
        expected = f"a multiple of {vector}"
        reason = f"channels are stored in vectors of {vector}"
        refuse_if([VECTOR.reject(where, "c", channels, expected=expected, reason=reason)])


def _with_format(where: str, desc: Descriptor, tensor_format: cudnnTensorFormat_t, data_type: cudnnDataType_t,
                 dims: Ints) -> None:  # fmt: skip
    entries(where, 1, dims=dims)
    vector_problem(where, tensor_format, data_type, dims[1])
    _keep(where, desc, Tensor(data_type, dims, format_strides(tensor_format, dims, element_of(data_type)[1])))


def _keep(where: str, desc: Descriptor, value: Tensor) -> None:
    span = span_of(value) * element_of(value.data_type)[1]
    if span > MOST_ELEMENTS:
        raise CudnnError(TENSOR_SIZE.reject(where, "dims", f"{span} elements"))
    desc.value = value


@implements("cudnnSetTensor4dDescriptor")
def set_4d(desc: Descriptor, tensor_format: cudnnTensorFormat_t, data_type: cudnnDataType_t, n: int, c: int, h: int,
           w: int) -> None:  # fmt: skip
    _with_format("cudnnSetTensor4dDescriptor", desc, tensor_format, data_type, (n, c, h, w))


@implements("cudnnSetTensor4dDescriptorEx")
def set_4d_ex(desc: Descriptor, data_type: cudnnDataType_t, *sizes: int) -> None:
    where = "cudnnSetTensor4dDescriptorEx"
    entries(where, 1, strides=sizes[4:])
    _with_strides(where, desc, data_type, sizes[:4], sizes[4:])


@implements("cudnnSetTensorNdDescriptor")
def set_nd(desc: Descriptor, data_type: cudnnDataType_t, rank: int, dims: Ints, strides: Ints) -> None:
    where = "cudnnSetTensorNdDescriptor"
    rank_in(where, "nbDims", rank, 3, DIM_MAX)
    dims, strides = counted(where, rank, dimA=dims, strideA=strides)
    entries(where, 1, strides=tuple(map(abs, strides)))  # negative ones can be kept, calls refuse them
    _with_strides(where, desc, data_type, dims, strides)


def _with_strides(where: str, desc: Descriptor, data_type: cudnnDataType_t, dims: Ints, strides: Ints) -> None:
    entries(where, 1, dims=dims)
    if is_vector(data_type):
        vector_problem(where, _VECT_C, data_type, dims[1])
    _keep(where, desc, Tensor(data_type, dims, strides))


@implements("cudnnSetTensorNdDescriptorEx")
def set_nd_ex(desc: Descriptor, tensor_format: cudnnTensorFormat_t, data_type: cudnnDataType_t, rank: int,
              dims: Ints) -> None:  # fmt: skip
    where = "cudnnSetTensorNdDescriptorEx"
    rank_in(where, "nbDims", rank, 3, DIM_MAX)
    (dims,) = counted(where, rank, dimA=dims)
    _with_format(where, desc, tensor_format, data_type, dims)


@implements("cudnnGetTensor4dDescriptor")
def get_4d(desc: Descriptor) -> tuple[cudnnDataType_t | int, ...]:
    value: Tensor = desc.value
    if len(value.dims) != 4:
        reason = "the call has room for four extents"
        raise CudnnError(
            SAME_DIMS.reject("cudnnGetTensor4dDescriptor", "dims", value.dims, expected="4 axes", reason=reason)
        )
    return (value.data_type, *value.dims, *value.strides)


@implements("cudnnGetTensorNdDescriptor")
def get_nd(desc: Descriptor, requested: int) -> tuple[cudnnDataType_t, int, Ints, Ints]:
    """(type, true rank, extents, strides): of the last two as many as were asked for."""
    entries("cudnnGetTensorNdDescriptor", 0, nbDimsRequested=requested)
    value: Tensor = desc.value
    return value.data_type, len(value.dims), value.dims[:requested], value.strides[:requested]


@implements("cudnnGetTensorSizeInBytes")
def size_in_bytes(desc: Descriptor) -> int:
    return size_of(desc.value)


@implements("cudnnDeriveBNTensorDescriptor")
def derive_batch_norm(derived: Descriptor, x_desc: Descriptor, mode: cudnnBatchNormMode_t) -> None:
    """1xCx1x1, or 1xCxHxW per activation; FLOAT for HALF data."""
    where, x = "cudnnDeriveBNTensorDescriptor", x_desc.value
    rank_in(where, "xDesc", len(x.dims), 4, 5, Status.BAD_PARAM)
    per_activation = mode is cudnnBatchNormMode_t.CUDNN_BATCHNORM_PER_ACTIVATION
    dims = (1, *x.dims[1:]) if per_activation else (1, x.dims[1], *(1,) * (len(x.dims) - 2))
    half = x.data_type is cudnnDataType_t.CUDNN_DATA_HALF
    data_type = cudnnDataType_t.CUDNN_DATA_FLOAT if half else x.data_type
    derived.value = Tensor(data_type, dims, format_strides(cudnnTensorFormat_t.CUDNN_TENSOR_NCHW, dims))

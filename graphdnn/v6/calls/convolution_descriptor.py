"""Convolution descriptors, and the extents that a convolution gives."""

from __future__ import annotations

from graphdnn.enums import Status
from graphdnn.operations.conv_problem import output_extent
from graphdnn.v6.descriptor_checks import DIM_MAX, counted, entries, rank_in
from graphdnn.v6.descriptor_values import Convolution, ConvolutionDescriptor, Descriptor, Filter, Ints, Tensor
from graphdnn.v6.enums import cudnnConvolutionMode_t, cudnnDataType_t, cudnnMathType_t
from graphdnn.v6.errors import CudnnError, refuse_if
from graphdnn.v6.registry import implements
from graphdnn.v6.rules import SAME_DIMS, UPSCALE

_FLOAT = cudnnDataType_t.CUDNN_DATA_FLOAT


def _keep(where: str, desc: ConvolutionDescriptor, padding: Ints, stride: Ints, dilation: Ints,
          mode: cudnnConvolutionMode_t, compute_type: cudnnDataType_t | None) -> None:  # fmt: skip
    entries(where, 0, pad=padding)
    entries(where, 1, stride=stride, dilation=dilation)
    desc.value = Convolution(padding, stride, dilation, mode, compute_type, desc.groups, desc.math_type)


@implements("cudnnSetConvolution2dDescriptor")
def set_2d(desc: ConvolutionDescriptor, pad_h: int, pad_w: int, u: int, v: int, dilation_h: int, dilation_w: int,
           mode: cudnnConvolutionMode_t, compute_type: cudnnDataType_t | None = None) -> None:  # fmt: skip
    """With eight arguments, as in 5.1, the pair before the mode are upscaling factors; with nine, dilations."""
    where = "cudnnSetConvolution2dDescriptor"
    if compute_type is None:
        refuse_if(
            UPSCALE.reject(where, name, value)
            for name, value in (("upscalex", dilation_h), ("upscaley", dilation_w))
            if value != 1
        )
    _keep(where, desc, (pad_h, pad_w), (u, v), (dilation_h, dilation_w), mode, compute_type)


@implements("cudnnSetConvolution2dDescriptor_v4")
def set_2d_v4(desc: ConvolutionDescriptor, pad_h: int, pad_w: int, u: int, v: int, dilation_h: int, dilation_w: int,
              mode: cudnnConvolutionMode_t) -> None:  # fmt: skip
    where = "cudnnSetConvolution2dDescriptor_v4"
    _keep(where, desc, (pad_h, pad_w), (u, v), (dilation_h, dilation_w), mode, None)


@implements("cudnnSetConvolutionNdDescriptor")
def set_nd(desc: ConvolutionDescriptor, length: int, padding: Ints, stride: Ints, dilation: Ints,
           mode: cudnnConvolutionMode_t, compute_type: cudnnDataType_t) -> None:  # fmt: skip
    where = "cudnnSetConvolutionNdDescriptor"
    entries(where, 0, arrayLength=length)
    rank_in(where, "arrayLength", length, 0, DIM_MAX)
    padding, stride, dilation = counted(where, length, padA=padding, filterStrideA=stride, dilationA=dilation)
    _keep(where, desc, padding, stride, dilation, mode, compute_type)


def _two(where: str, desc: Descriptor) -> Convolution:
    value: Convolution = desc.value
    if len(value.padding) != 2:
        found = f"{len(value.padding)} spatial axes"
        raise CudnnError(SAME_DIMS.reject(where, "convDesc", found, expected="2 spatial axes",
                                          reason="the call has room for two"))  # fmt: skip
    return value


@implements("cudnnGetConvolution2dDescriptor")
def get_2d(desc: Descriptor) -> tuple[int | cudnnConvolutionMode_t | cudnnDataType_t, ...]:
    value = _two("cudnnGetConvolution2dDescriptor", desc)
    return (*value.padding, *value.stride, *value.dilation, value.mode, value.compute_type or _FLOAT)


@implements("cudnnGetConvolution2dDescriptor_v4")
def get_2d_v4(desc: Descriptor) -> tuple[int | cudnnConvolutionMode_t, ...]:
    value = _two("cudnnGetConvolution2dDescriptor_v4", desc)
    return (*value.padding, *value.stride, *value.dilation, value.mode)


@implements("cudnnGetConvolutionNdDescriptor")
def get_nd(desc: Descriptor, requested: int) -> tuple[int, Ints, Ints, Ints, cudnnConvolutionMode_t, cudnnDataType_t]:
    where = "cudnnGetConvolutionNdDescriptor"
    entries(where, 0, arrayLengthRequested=requested)
    rank_in(where, "arrayLengthRequested", requested, 0, DIM_MAX)
    value: Convolution = desc.value
    arrays = (value.padding[:requested], value.stride[:requested], value.dilation[:requested])
    return (len(value.padding), *arrays, value.mode, value.compute_type or _FLOAT)


@implements("cudnnSetConvolutionMathType")
def set_math_type(desc: ConvolutionDescriptor, math_type: cudnnMathType_t) -> None:
    """A permission: results keep the compute type's accuracy here."""
    desc.keep(math_type=math_type)


@implements("cudnnGetConvolutionMathType")
def get_math_type(desc: ConvolutionDescriptor) -> cudnnMathType_t:
    return desc.math_type


@implements("cudnnSetConvolutionGroupCount")
def set_group_count(desc: ConvolutionDescriptor, groups: int) -> None:
    entries("cudnnSetConvolutionGroupCount", 1, groupCount=groups)
    desc.keep(groups=groups)


@implements("cudnnGetConvolutionGroupCount")
def get_group_count(desc: ConvolutionDescriptor) -> int:
    return desc.groups


def output_dims(where: str, conv: Convolution, x: Tensor, w: Filter) -> Ints:
    """Extents of y. Raises for ranks, channels and sizes that do not fit together."""
    rank = len(x.dims)
    if rank != len(w.dims) or rank != len(conv.padding) + 2:
        found = f"input {rank}, filter {len(w.dims)}, convolution {len(conv.padding)} + 2"
        reason = "input and filter have two axes more than the convolution"
        raise CudnnError(SAME_DIMS.reject(where, "dims", found, expected="equal ranks", reason=reason))
    if x.dims[1] != w.dims[1] * conv.groups or w.dims[0] % conv.groups:
        found = f"{x.dims[1]} channels, filter {w.dims}, {conv.groups} groups"
        expected = "input channels = filter channels * groups, and outputs that divide among the groups"
        reason = "each filter reads the channels of its group"
        raise CudnnError(SAME_DIMS.reject(where, "filterDesc.dims", found, expected=expected, reason=reason))
    axes = zip(x.dims[2:], w.dims[2:], conv.padding, conv.padding, conv.stride, conv.dilation, strict=True)
    spatial = tuple(output_extent(*axis) for axis in axes)
    if min(spatial) < 1:
        reason = "no output position is left"
        expected = "a dilated filter no larger than the padded input"
        raise CudnnError(SAME_DIMS.reject(where, "filterDesc.dims", w.dims, expected=expected, reason=reason))
    return (x.dims[0], w.dims[0], *spatial)


@implements("cudnnGetConvolution2dForwardOutputDim")
def output_dim_2d(desc: Descriptor, x: Descriptor, w: Descriptor) -> Ints:
    where = "cudnnGetConvolution2dForwardOutputDim"
    return output_dims(where, _two(where, desc), x.value, w.value)


@implements("cudnnGetConvolutionNdForwardOutputDim")
def output_dim_nd(desc: Descriptor, x: Descriptor, w: Descriptor, count: int) -> Ints:
    where = "cudnnGetConvolutionNdForwardOutputDim"
    rank_in(where, "nbDims", count, 0, len(x.value.dims), Status.BAD_PARAM)
    return output_dims(where, desc.value, x.value, w.value)[:count]

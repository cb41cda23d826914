"""Pooling descriptors, and the extents that pooling gives."""

from __future__ import annotations

from graphdnn.enums import Status
from graphdnn.v6.descriptor_checks import DIM_MAX, counted, entries, rank_in
from graphdnn.v6.descriptor_values import Descriptor, Ints, Pooling, Tensor
from graphdnn.v6.enums import cudnnNanPropagation_t, cudnnPoolingMode_t
from graphdnn.v6.errors import CudnnError
from graphdnn.v6.registry import implements
from graphdnn.v6.rules import SAME_DIMS

_IGNORES_NAN = cudnnNanPropagation_t.CUDNN_NOT_PROPAGATE_NAN  # what version 3 did, which has no such argument


def _keep(where: str, desc: Descriptor, mode: cudnnPoolingMode_t, nan: cudnnNanPropagation_t, window: Ints,
          padding: Ints, stride: Ints) -> None:  # fmt: skip
    entries(where, 1, window=window, stride=stride)
    entries(where, 0, padding=padding)
    desc.value = Pooling(mode, nan, window, padding, stride)


@implements("cudnnSetPooling2dDescriptor")
def set_2d(desc: Descriptor, mode: cudnnPoolingMode_t, nan: cudnnNanPropagation_t, *sizes: int) -> None:
    _keep("cudnnSetPooling2dDescriptor", desc, mode, nan, sizes[:2], sizes[2:4], sizes[4:])


@implements("cudnnSetPooling2dDescriptor_v3")
def set_2d_v3(desc: Descriptor, mode: cudnnPoolingMode_t, *sizes: int) -> None:
    _keep("cudnnSetPooling2dDescriptor_v3", desc, mode, _IGNORES_NAN, sizes[:2], sizes[2:4], sizes[4:])


@implements("cudnnSetPoolingNdDescriptor")
def set_nd(desc: Descriptor, mode: cudnnPoolingMode_t, nan: cudnnNanPropagation_t, rank: int, window: Ints,
           padding: Ints, stride: Ints) -> None:  # fmt: skip
    _set_nd("cudnnSetPoolingNdDescriptor", desc, mode, nan, rank, window, padding, stride)


@implements("cudnnSetPoolingNdDescriptor_v3")
def set_nd_v3(desc: Descriptor, mode: cudnnPoolingMode_t, rank: int, window: Ints, padding: Ints,
              stride: Ints) -> None:  # fmt: skip
    _set_nd("cudnnSetPoolingNdDescriptor_v3", desc, mode, _IGNORES_NAN, rank, window, padding, stride)


def _set_nd(where: str, desc: Descriptor, mode: cudnnPoolingMode_t, nan: cudnnNanPropagation_t, rank: int,
            window: Ints, padding: Ints, stride: Ints) -> None:  # fmt: skip
    rank_in(where, "nbDims", rank, 1, DIM_MAX - 2)
    window, padding, stride = counted(where, rank, windowDimA=window, paddingA=padding, strideA=stride)
    _keep(where, desc, mode, nan, window, padding, stride)


def _two(where: str, desc: Descriptor) -> Pooling:
    value: Pooling = desc.value
    if len(value.window) != 2:
        found = f"{len(value.window)} spatial axes"
        raise CudnnError(SAME_DIMS.reject(where, "poolingDesc", found, expected="2 spatial axes",
                                          reason="the call has room for two"))  # fmt: skip
    return value


@implements("cudnnGetPooling2dDescriptor")
def get_2d(desc: Descriptor) -> tuple[int, ...]:
    value = _two("cudnnGetPooling2dDescriptor", desc)
    return (value.mode, value.nan, *value.window, *value.padding, *value.stride)


@implements("cudnnGetPooling2dDescriptor_v3")
def get_2d_v3(desc: Descriptor) -> tuple[int, ...]:
    value = _two("cudnnGetPooling2dDescriptor_v3", desc)
    return (value.mode, *value.window, *value.padding, *value.stride)


@implements("cudnnGetPoolingNdDescriptor")
def get_nd(desc: Descriptor, requested: int) -> tuple[cudnnPoolingMode_t, cudnnNanPropagation_t, int, Ints, Ints, Ints]:
    value, arrays = _arrays("cudnnGetPoolingNdDescriptor", desc, requested)
    return value.mode, value.nan, len(value.window), *arrays


@implements("cudnnGetPoolingNdDescriptor_v3")
def get_nd_v3(desc: Descriptor, requested: int) -> tuple[cudnnPoolingMode_t, int, Ints, Ints, Ints]:
    value, arrays = _arrays("cudnnGetPoolingNdDescriptor_v3", desc, requested)
    return value.mode, len(value.window), *arrays


def _arrays(where: str, desc: Descriptor, requested: int) -> tuple[Pooling, tuple[Ints, Ints, Ints]]:
    rank_in(where, "nbDimsRequested", requested, 0, DIM_MAX)
    value: Pooling = desc.value
    return value, (value.window[:requested], value.padding[:requested], value.stride[:requested])


def output_dims(where: str, pooling: Pooling, x: Tensor) -> Ints:
    """Extents of y: the floor, never the ceiling."""
    if len(x.dims) != len(pooling.window) + 2:
        found = f"input {len(x.dims)}, pooling {len(pooling.window)} + 2"
        reason = "the input has two axes more than the window"
        raise CudnnError(SAME_DIMS.reject(where, "dims", found, expected="equal ranks", reason=reason))
    axes = zip(x.dims[2:], pooling.window, pooling.padding, pooling.stride, strict=True)
    spatial = tuple(1 + (size + 2 * pad - window) // stride for size, window, pad, stride in axes)
    if min(spatial) < 1:
        reason = "no output position is left"
        expected = "a window no larger than the padded input"
        raise CudnnError(SAME_DIMS.reject(where, "poolingDesc", pooling.window, expected=expected, reason=reason))
    return (*x.dims[:2], *spatial)


@implements("cudnnGetPooling2dForwardOutputDim")
def output_dim_2d(desc: Descriptor, x: Descriptor) -> Ints:
    where = "cudnnGetPooling2dForwardOutputDim"
    return output_dims(where, _two(where, desc), x.value)


@implements("cudnnGetPoolingNdForwardOutputDim")
def output_dim_nd(desc: Descriptor, x: Descriptor, count: int) -> Ints:
    where = "cudnnGetPoolingNdForwardOutputDim"
    rank_in(where, "nbDims", count, len(x.value.dims), len(x.value.dims), Status.BAD_PARAM)
    return output_dims(where, desc.value, x.value)

"""Questions before a convolution: which algorithm, and how large a workspace.

On the host every algorithm computes the same, so the answer is the one that the manual's support tables give the
widest range to. A query refuses what the call itself would refuse.
"""

from __future__ import annotations

from typing import Any

from graphdnn.v6.calls.convolution import prepare_data, prepare_filter, prepare_forward
from graphdnn.v6.enums import (
    cudnnConvolutionBwdDataAlgo_t,
    cudnnConvolutionBwdFilterAlgo_t,
    cudnnConvolutionFwdAlgo_t,
    cudnnDataType_t,
)
from graphdnn.v6.objects import Convolution, Descriptor, Handle
from graphdnn.v6.registry import implements

Forward = cudnnConvolutionFwdAlgo_t
Data = cudnnConvolutionBwdDataAlgo_t
Filters = cudnnConvolutionBwdFilterAlgo_t


def _is_dilated(conv: Convolution) -> bool:
    return any(d != 1 for d in conv.dilation)


@implements("cudnnGetConvolutionForwardAlgorithm")
def forward_algorithm(handle: Handle, x: Descriptor, w: Descriptor, conv: Descriptor, y: Descriptor, preference: Any,
                      limit: int) -> Forward:  # fmt: skip
    """IMPLICIT_GEMM, which takes any layout and dilation; IMPLICIT_PRECOMP_GEMM for integers, as in the manual."""
    floats = (
        cudnnDataType_t.CUDNN_DATA_FLOAT,
        cudnnDataType_t.CUDNN_DATA_DOUBLE,
        cudnnDataType_t.CUDNN_DATA_HALF,
    )
    is_float = x.value.data_type in floats
    chosen = (
        Forward.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM
        if is_float
        else Forward.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM
    )
    prepare_forward(
        handle, x.value, w.value, conv.value, y.value, chosen, 1.0, 0.0, "cudnnGetConvolutionForwardAlgorithm"
    )
    return chosen


@implements("cudnnGetConvolutionForwardWorkspaceSize")
def forward_workspace_size(handle: Handle, x: Descriptor, w: Descriptor, conv: Descriptor, y: Descriptor,
                           algorithm: Forward) -> int:  # fmt: skip
    """0: calls on the host allocate what they need."""
    prepare_forward(
        handle, x.value, w.value, conv.value, y.value, algorithm, 1.0, 0.0, "cudnnGetConvolutionForwardWorkspaceSize"
    )
    return 0


@implements("cudnnGetConvolutionBackwardDataAlgorithm")
def data_algorithm(handle: Handle, w: Descriptor, dy: Descriptor, conv: Descriptor, dx: Descriptor, preference: Any,
                   limit: int) -> Data:  # fmt: skip
    """ALGO_1, the deterministic one; ALGO_0 where there is dilation."""
    dilated = _is_dilated(conv.value)
    chosen = Data.CUDNN_CONVOLUTION_BWD_DATA_ALGO_0 if dilated else Data.CUDNN_CONVOLUTION_BWD_DATA_ALGO_1
    prepare_data(
        handle, w.value, dy.value, conv.value, dx.value, chosen, 1.0, 0.0, "cudnnGetConvolutionBackwardDataAlgorithm"
    )
    return chosen


@implements("cudnnGetConvolutionBackwardDataWorkspaceSize")
def data_workspace_size(handle: Handle, w: Descriptor, dy: Descriptor, conv: Descriptor, dx: Descriptor,
                        algorithm: Data) -> int:  # fmt: skip
    """0: calls on the host allocate what they need."""
    where = "cudnnGetConvolutionBackwardDataWorkspaceSize"
    prepare_data(handle, w.value, dy.value, conv.value, dx.value, algorithm, 1.0, 0.0, where)
    return 0


@implements("cudnnGetConvolutionBackwardFilterAlgorithm")
def filter_algorithm(handle: Handle, x: Descriptor, dy: Descriptor, conv: Descriptor, dw: Descriptor, preference: Any,
                     limit: int) -> Filters:  # fmt: skip
    """ALGO_1, the deterministic one; ALGO_0 where there is dilation, or a third dimension."""
    plain = not _is_dilated(conv.value) and len(conv.value.padding) == 2
    chosen = Filters.CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1 if plain else Filters.CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0
    prepare_filter(
        handle, x.value, dy.value, conv.value, dw.value, chosen, 1.0, 0.0, "cudnnGetConvolutionBackwardFilterAlgorithm"
    )
    return chosen


@implements("cudnnGetConvolutionBackwardFilterWorkspaceSize")
def filter_workspace_size(handle: Handle, x: Descriptor, dy: Descriptor, conv: Descriptor, dw: Descriptor,
                          algorithm: Filters) -> int:  # fmt: skip
    """0: calls on the host allocate what they need."""
    where = "cudnnGetConvolutionBackwardFilterWorkspaceSize"
    prepare_filter(handle, x.value, dy.value, conv.value, dw.value, algorithm, 1.0, 0.0, where)
    return 0

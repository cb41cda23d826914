"""Question: a convolution that a legacy call asks about, whatever its direction."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

from graphdnn.v6.descriptor_values import Convolution, Filter, Tensor
from graphdnn.v6.enums import cudnnConvolutionFwdAlgo_t, cudnnDataType_t

_FLOAT, _DOUBLE = cudnnDataType_t.CUDNN_DATA_FLOAT, cudnnDataType_t.CUDNN_DATA_DOUBLE
INTEGERS = (cudnnDataType_t.CUDNN_DATA_INT8, cudnnDataType_t.CUDNN_DATA_INT8x4)


@dataclass(frozen=True)
class ConvolutionQuery:
    """``x``, ``w``, ``y`` play their parts in all three directions; ``algorithm`` says which it is."""

    x: Tensor
    w: Filter
    conv: Convolution
    y: Tensor
    algorithm: IntEnum
    names: tuple[str, str, str] = ("xDesc", "wDesc", "yDesc")

    @property
    def is_forward(self) -> bool:
        return type(self.algorithm) is cudnnConvolutionFwdAlgo_t

    @property
    def is_integer(self) -> bool:
        """Forward, on the integer types of 6.0."""
        return self.is_forward and self.x.data_type in INTEGERS

    @cached_property
    def types(self) -> tuple[cudnnDataType_t, cudnnDataType_t, cudnnDataType_t]:
        """Data, compute type, output; without a compute type (5.1) it follows the data."""
        compute = self.conv.compute_type
        if compute is None:
            compute = _DOUBLE if self.x.data_type is _DOUBLE else _FLOAT
        return self.x.data_type, compute, self.y.data_type

    @property
    def spatial(self) -> int:
        return len(self.conv.padding)

    @property
    def sides(self) -> tuple[int, ...]:
        """Spatial extents of the filter."""
        return self.w.dims[2:]

"""Handles and descriptors. A descriptor is a mutable box around an immutable value, so values can be keys of plans."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

from graphdnn.device.profiles import DeviceSpec
from graphdnn.v6.enums import (
    cudnnActivationMode_t,
    cudnnConvolutionMode_t,
    cudnnDataType_t,
    cudnnDirectionMode_t,
    cudnnIndicesType_t,
    cudnnMathType_t,
    cudnnNanPropagation_t,
    cudnnOpTensorOp_t,
    cudnnPoolingMode_t,
    cudnnReduceTensorIndices_t,
    cudnnReduceTensorOp_t,
    cudnnRNNAlgo_t,
    cudnnRNNInputMode_t,
    cudnnRNNMode_t,
    cudnnSamplerType_t,
    cudnnTensorFormat_t,
)

Ints = tuple[int, ...]


class Tensor(NamedTuple):
    """Strides count elements, or vectors of four for INT8x4; ``dims`` always has the true channel count."""

    data_type: cudnnDataType_t
    dims: Ints
    strides: Ints


class Filter(NamedTuple):
    """``dims``: K, C, spatial, whatever the format; filters are packed."""

    data_type: cudnnDataType_t
    format: cudnnTensorFormat_t
    dims: Ints


class Convolution(NamedTuple):
    padding: Ints
    stride: Ints
    dilation: Ints
    mode: cudnnConvolutionMode_t
    compute_type: cudnnDataType_t | None  # None: set with the argument list of 5.1, follows the tensors
    groups: int = 1
    math_type: cudnnMathType_t = cudnnMathType_t.CUDNN_DEFAULT_MATH


class OpTensor(NamedTuple):
    op: cudnnOpTensorOp_t
    compute_type: cudnnDataType_t
    nan: cudnnNanPropagation_t


class ReduceTensor(NamedTuple):
    op: cudnnReduceTensorOp_t
    compute_type: cudnnDataType_t
    nan: cudnnNanPropagation_t
    indices: cudnnReduceTensorIndices_t
    indices_type: cudnnIndicesType_t


class Pooling(NamedTuple):
    mode: cudnnPoolingMode_t
    nan: cudnnNanPropagation_t
    window: Ints
    padding: Ints
    stride: Ints


class Activation(NamedTuple):
    mode: cudnnActivationMode_t
    nan: cudnnNanPropagation_t
    coef: float  # ceiling of CLIPPED_RELU, alpha of ELU


class LRN(NamedTuple):
    n: int
    alpha: float
    beta: float
    k: float


class CTCLoss(NamedTuple):
    compute_type: cudnnDataType_t


class SpatialTransformer(NamedTuple):
    sampler: cudnnSamplerType_t
    data_type: cudnnDataType_t
    dims: Ints


class Dropout(NamedTuple):
    """``states``: bytes that hold seed and counter of the random numbers; None while only the rest is set."""

    probability: float  # of being zeroed
    states: Any
    seed: int


class RNN(NamedTuple):
    hidden: int
    layers: int
    dropout: Descriptor  # read when the RNN runs, as it may be seeded again
    input_mode: cudnnRNNInputMode_t
    direction: cudnnDirectionMode_t
    mode: cudnnRNNMode_t
    algo: cudnnRNNAlgo_t
    data_type: cudnnDataType_t  # of the arithmetic


class PersistentPlan(NamedTuple):
    batch: int
    data_type: cudnnDataType_t


class Handle:
    """A device and a stream. What cudnnCreate returns."""

    __slots__ = ("destroyed", "device", "stream")

    def __init__(self, device: DeviceSpec) -> None:
        self.device = device
        self.stream = 0
        self.destroyed = False

    def __repr__(self) -> str:
        return f"<cudnnHandle_t on {self.device.name}{', destroyed' if self.destroyed else ''}>"


class Descriptor:
    """``value`` is None until it is set."""

    __slots__ = ("destroyed", "value")
    c_type: ClassVar[str]
    default: ClassVar[Any] = None

    def __init__(self) -> None:
        self.value: Any = self.default
        self.destroyed = False

    def __repr__(self) -> str:
        state = "destroyed" if self.destroyed else "not set" if self.value is None else repr(self.value)
        return f"<{self.c_type}: {state}>"


class ConvolutionDescriptor(Descriptor):
    """Group count and math type survive a later Set of the geometry."""

    __slots__ = ("groups", "math_type")
    c_type = "cudnnConvolutionDescriptor_t"

    def __init__(self) -> None:
        super().__init__()
        self.groups = 1
        self.math_type = cudnnMathType_t.CUDNN_DEFAULT_MATH

    def keep(self, **fields: Any) -> None:
        """Change group count or math type, in the value as well if there is one."""
        for name, value in fields.items():
            setattr(self, name, value)
        if self.value is not None:
            self.value = self.value._replace(**fields)


class RNNDescriptor(Descriptor):
    """Math type and plan survive a later Set."""

    __slots__ = ("math_type", "plan")
    c_type = "cudnnRNNDescriptor_t"

    def __init__(self) -> None:
        super().__init__()
        self.math_type = cudnnMathType_t.CUDNN_DEFAULT_MATH
        self.plan: Descriptor | None = None


def _kind(name: str, default: Any = None) -> type[Descriptor]:
    fields = {"__slots__": (), "c_type": f"cudnn{name}_t", "default": default, "__module__": __name__}
    return type(name, (Descriptor,), fields)


# By kind, as the function table calls them.
DESCRIPTORS: dict[str, type[Descriptor]] = {
    "ConvolutionDescriptor": ConvolutionDescriptor,
    "RNNDescriptor": RNNDescriptor,
    "LRNDescriptor": _kind("LRNDescriptor", LRN(5, 1e-4, 0.75, 2.0)),
    **{
        name: _kind(name)
        for name in (
            "TensorDescriptor",
            "FilterDescriptor",
            "OpTensorDescriptor",
            "ReduceTensorDescriptor",
            "PoolingDescriptor",
            "ActivationDescriptor",
            "SpatialTransformerDescriptor",
            "CTCLossDescriptor",
            "DropoutDescriptor",
            "PersistentRNNPlan",
        )
    },
}

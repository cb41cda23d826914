"""The calls by family. Importing this package registers every implementation."""

from graphdnn.v6.calls import (
    activation,
    convolution,
    convolution_descriptor,
    convolution_queries,
    descriptors,
    dropout,
    elementwise,
    filter_descriptor,
    handle,
    normalization,
    pooling,
    pooling_descriptor,
    reduction,
    softmax,
    tensor_descriptor,
)

__all__ = [
    "activation",
    "convolution",
    "convolution_descriptor",
    "convolution_queries",
    "descriptors",
    "dropout",
    "elementwise",
    "filter_descriptor",
    "handle",
    "normalization",
    "pooling",
    "pooling_descriptor",
    "reduction",
    "softmax",
    "tensor_descriptor",
]

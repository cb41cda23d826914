"""Names that manuals print and no header has, and hints for names that nobody has."""

from __future__ import annotations

from collections.abc import Collection

from graphdnn.text_format import meant

# What the manual of 5.1 prints, and the names that its text and the headers mean.
MISPRINTS = {
    "cudnnSetFilterDescriptor": "cudnnSetFilter4dDescriptor or cudnnSetFilterNdDescriptor",
    "cudnnSetConvolutionDescriptor": "cudnnSetConvolution2dDescriptor or cudnnSetConvolutionNdDescriptor",
    "cudnnSetPoolingDescriptor": "cudnnSetPooling2dDescriptor or cudnnSetPoolingNdDescriptor",
    "cudnnConvolutionBackwardFilter_v3": "cudnnConvolutionBackwardFilter",
    "cudnnConvolutionBackwardData_v3": "cudnnConvolutionBackwardData",
    "cudnnCreateTensorDescriptor_t": "cudnnTensorDescriptor_t",
    "CUDNN_STATUS_UNSUPPORTED": "CUDNN_STATUS_NOT_SUPPORTED",
    "CUDNN_INVALID_VALUE": "CUDNN_STATUS_INVALID_VALUE",
    "CUDNN_BATCHNORM_MODE_PER_ACTIVATION": "CUDNN_BATCHNORM_PER_ACTIVATION",
    "CUDNN_BATCHNORM_MODE_SPATIAL": "CUDNN_BATCHNORM_SPATIAL",
}


def unknown_name(module: str, name: str, known: Collection[str]) -> str:
    """The text of an ``AttributeError``."""
    text = f"module {module!r} has no attribute {name!r}"
    if name in MISPRINTS:
        return f"{text}: the manual's misprint of {MISPRINTS[name]}"
    near = meant(name, sorted(known)).removesuffix(" else ")
    return f"{text}: {near}" if near else text

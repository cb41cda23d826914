"""The operators of ONNX that are served, by family. ``table`` has the rows."""

from graphdnn.onnx.operators import (
    activations,
    arithmetic,
    bits,
    casts,
    comparisons,
    convolution,
    matrix_products,
    movement,
    normalization,
    old_broadcasting,
    ordering,
    pooling,
    positions,
    quantization,
    recurrent,
    reductions,
    resizing,
    sampling,
    slicing,
    transforms,
    trigonometry,
    unpooling,
)
from graphdnn.onnx.operators.table import OPERATORS, Need, Operator, operator_of

FAMILIES = (
    convolution,
    matrix_products,
    pooling,
    unpooling,
    normalization,
    activations,
    arithmetic,
    trigonometry,
    comparisons,
    bits,
    old_broadcasting,
    reductions,
    movement,
    slicing,
    positions,
    ordering,
    casts,
    quantization,
    resizing,
    sampling,
    recurrent,
    transforms,
)

__all__ = ["FAMILIES", "OPERATORS", "Need", "Operator", "operator_of"]

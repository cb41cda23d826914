"""The operators of ONNX that are served, by family. ``table`` has the rows."""

from graphdnn.onnx.operators import (
    activations,
    arithmetic,
    casts,
    convolution,
    matrix_products,
    movement,
    normalization,
    pooling,
    quantization,
    recurrent,
    reductions,
    resizing,
    sampling,
    sequences,
)
from graphdnn.onnx.operators.table import OPERATORS, Need, Operator, operator_of

FAMILIES = (
    convolution, matrix_products, pooling, normalization, activations, arithmetic, reductions, movement, casts,
    quantization, resizing, sampling, recurrent, sequences,
)  # fmt: skip

__all__ = ["FAMILIES", "OPERATORS", "Need", "Operator", "operator_of"]

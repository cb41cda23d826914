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
    reductions,
)
from graphdnn.onnx.operators.table import OPERATORS, Need, Operator, operator_of

FAMILIES = (
    convolution, matrix_products, pooling, normalization, activations, arithmetic, reductions, movement, casts,
)  # fmt: skip

__all__ = ["FAMILIES", "OPERATORS", "Need", "Operator", "operator_of"]

"""The operators of ONNX that are served, by family. ``table`` has the rows."""

from graphdnn.onnx.operators import activations, arithmetic, convolution
from graphdnn.onnx.operators.table import OPERATORS, Need, Operator, operator_of

FAMILIES = (convolution, activations, arithmetic)

__all__ = ["FAMILIES", "OPERATORS", "Need", "Operator", "operator_of"]

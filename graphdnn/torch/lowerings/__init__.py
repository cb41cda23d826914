"""The lowerings of ATen's operators, by family. An import fills ``LOWERINGS``."""

from graphdnn.torch.lowering import LOWERINGS
from graphdnn.torch.lowerings import (
    attention,
    convolution,
    gradients,
    matmul,
    normalization,
    pointwise,
    pooling,
    reduction,
    shape,
)

ELEMENTWISE = gradients.ELEMENTWISE | pointwise.ELEMENTWISE  # operators that broadcast their operands

__all__ = [
    "ELEMENTWISE",
    "LOWERINGS",
    "attention",
    "convolution",
    "gradients",
    "matmul",
    "normalization",
    "pointwise",
    "pooling",
    "reduction",
    "shape",
]

"""The graph builder: ``Graph`` with the method names of cuDNN's Python frontend."""

from graphdnn.builder.graph import Graph
from graphdnn.builder.tensor import Tensor

__all__ = ["Graph", "Tensor"]

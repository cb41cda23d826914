"""graphdnn for PyTorch: ``torch.compile(model, backend="graphdnn")``.

The module needs PyTorch, which is no dependency of the package.
"""

from graphdnn.torch.compiler import backend

__all__ = ["backend"]

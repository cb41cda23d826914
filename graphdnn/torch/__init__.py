"""graphdnn for PyTorch: ``torch.compile(model, backend="graphdnn")`` and ``explain(model, inputs)``.

The package needs PyTorch, which ``import graphdnn`` alone does not load.
"""

from graphdnn.torch.compiler import Compilation, backend
from graphdnn.torch.explanation import Explanation, explain
from graphdnn.torch.partition import Fallback

__all__ = ["Compilation", "Explanation", "Fallback", "backend", "explain"]

"""graphdnn for PyTorch: ``torch.compile(model, backend="graphdnn")``, ``explain(model, inputs)``, operators.

The package needs PyTorch, which is loaded when one of these names is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphdnn.torch.compiler import Compilation, backend
    from graphdnn.torch.convolution_operators import conv1d, conv2d, conv3d
    from graphdnn.torch.explanation import Explanation, explain
    from graphdnn.torch.partition import Fallback

__all__ = ["Compilation", "Explanation", "Fallback", "backend", "conv1d", "conv2d", "conv3d", "explain"]

_MODULES = {
    "Compilation": "compiler", "backend": "compiler", "Explanation": "explanation", "explain": "explanation",
    "Fallback": "partition",
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), "convolution_operators"),
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import_module("torch.fx")
    except ImportError as error:
        raise ImportError("graphdnn.torch needs PyTorch 2.4 or later: pip install torch") from error
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)

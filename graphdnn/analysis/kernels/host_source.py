"""What NumPy does for a kernel of the host: the text of the function behind each operation."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from graphdnn.heuristics import Choice
from graphdnn.operations import ConvolutionOperation, Operation, PointwiseOperation


def host_source(choice: Choice) -> str:
    """One part for each operation: its operands, and the function that computes it."""
    operations = enumerate(choice.task.op.operations)
    return "\n\n".join(f"# operation {i}: {op.line()}\n{_text(_function(op, choice))}" for i, op in operations)


def _function(op: Operation, choice: Choice) -> Any:
    """What computes the operation, under what all operations of its kind share."""
    from graphdnn.engines.host import convolution, convolution_taps
    from graphdnn.engines.host.semantics import SEMANTICS

    if isinstance(op, PointwiseOperation):
        return op.spec.row.numpy
    if isinstance(op, ConvolutionOperation):
        direction = op.tag.removeprefix("conv_")
        blocked = choice.engine.name == "numpy_blocked"
        return getattr(convolution, direction) if blocked else getattr(convolution_taps, f"{direction}_by_taps")
    return SEMANTICS[type(op)]


def _text(function: Callable[..., Any]) -> str:
    """Without the wrapper that keeps NumPy from warning; a function of NumPy's own by its name."""
    inner = inspect.unwrap(function)
    try:
        return inspect.getsource(inner).rstrip()
    except (OSError, TypeError):
        return f"numpy.{getattr(inner, '__name__', inner)}"

"""Descriptors of dropout, recurrent networks and the CTC loss in one line, and legal arguments for their functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphdnn import v6


def dropout(probability: float = 0.0, seed: int = 1, states: bool = True) -> Any:
    desc, size = v6.cudnnCreateDropoutDescriptor(), 16
    memory = np.zeros(size, np.uint8) if states else None
    v6.cudnnSetDropoutDescriptor(desc, v6.cudnnCreate(), probability, memory, size, seed)
    return desc


# Descriptors that a legal call takes, by kind.
DESCRIPTORS = {
    "DropoutDescriptor": dropout,
}


def special_arguments(function: str) -> dict[str, Any]:
    """Where the arguments of a function differ from those of every other, by parameter."""
    if "DropoutDescriptor" in function:
        return {"states": np.zeros(16, np.uint8), "stateSizeInBytes": 16, "dropout": 0.5}
    if function.startswith("cudnnDropout"):
        return {"reserveSpace": np.full(4, 255, np.uint8), "reserveSpaceSizeInBytes": 4}
    return {}

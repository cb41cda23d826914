"""Tuning: which configuration is the fastest here, measured in a process of its own, and remembered when asked.

Names are loaded when they are asked for: a process that measures or compiles needs none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphdnn.tuning.database.database import Database, default_database
    from graphdnn.tuning.result import Trial, Tuned, Verdict
    from graphdnn.tuning.tuner import autotune

__all__ = ["Database", "Trial", "Tuned", "Verdict", "autotune", "default_database"]

_PLACES = {
    "Database": "database.database", "Trial": "result", "Tuned": "result", "Verdict": "result", "autotune": "tuner",
    "default_database": "database.database",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)

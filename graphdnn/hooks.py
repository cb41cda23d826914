"""HOOKS: questions of a layer that a later layer answers.

An error, a plan or a log line offers what later layers work out: repairs, certificates, commands. The earlier layer
calls a hook by its name and knows nothing else. ``graphdnn/hook_functions.py``, at the top, fills the table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

HOOKS: dict[str, Callable[..., Any]] = {}


def register(name: str, function: Callable[..., Any]) -> None:
    """Let a function answer a hook. It imports what it needs when it is called."""
    HOOKS[name] = function


def call_hook(name: str, *arguments: Any, **options: Any) -> Any:
    """What the later layer answers. Raises ``KeyError`` for a name that no layer registered."""
    return HOOKS[name](*arguments, **options)

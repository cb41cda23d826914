"""Memoization of functions of operations: every engine asks the same questions about each operation."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar, cast

from graphdnn.bounded_cache import BoundedCache

Subject = TypeVar("Subject")
Result = TypeVar("Result")
_KEPT = 64  # subjects of one function: more than one graph has


def memoize(function: Callable[[Subject], Result]) -> Callable[[Subject], Result]:
    """Cache a function of an immutable subject that compares by identity, such as a fused operation or a task."""
    return cast(Callable[[Subject], Result], lru_cache(maxsize=_KEPT)(function))


def memoize_by_identity(function: Callable[[Subject], Result]) -> Callable[[Subject], Result]:
    """Cache a function of subjects that compare by value or have no hash: the key is the identity of the subject. The
    cache keeps its subjects alive.
    """
    kept = BoundedCache[int, tuple[Subject, Result]](_KEPT)

    def remembered(subject: Subject) -> Result:
        found = kept.get(id(subject))
        if found is None:
            found = kept.remember(id(subject), (subject, function(subject)))
        return found[1]

    remembered.__name__, remembered.__doc__ = function.__name__, function.__doc__
    return remembered


def memoize_for_task(function: Callable[[Any], Result]) -> Callable[[Any], Result]:
    """Cache a function of a task (``op``, ``device``) by the identities of both, which the cache keeps alive: rankings
    and plans make tasks of one operation anew.
    """
    kept = BoundedCache[tuple[int, int], tuple[Any, Result]](_KEPT)

    def remembered(task: Any) -> Result:
        key = id(task.op), id(task.device)
        found = kept.get(key)
        if found is None:
            found = kept.remember(key, (task, function(task)))
        return found[1]

    remembered.__name__, remembered.__doc__ = function.__name__, function.__doc__
    return remembered

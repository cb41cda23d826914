"""once: what a function says of an operation, worked out once, as every engine asks the same of what it is offered."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Subject = TypeVar("Subject")
Result = TypeVar("Result")
_KEPT = 64  # subjects of one function: more than one graph has


def once(function: Callable[[Subject], Result]) -> Callable[[Subject], Result]:
    """``function`` of an immutable subject, remembered by its identity, which is kept alive meanwhile.

    Comparing subjects would take longer than most answers do.
    """
    kept: dict[int, tuple[Subject, Result]] = {}

    def remembered(subject: Subject) -> Result:
        found = kept.get(id(subject))
        if found is None:
            if len(kept) >= _KEPT:
                kept.clear()
            found = kept[id(subject)] = subject, function(subject)
        return found[1]

    remembered.__name__, remembered.__doc__ = function.__name__, function.__doc__
    return remembered

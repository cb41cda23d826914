"""Checks: conditions that can be called and that print what they expect.

Plain classes: a dozen dataclasses would cost every import of the library several milliseconds.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from graphdnn.enums import shown


class Check:
    """A predicate on one value; ``str`` completes the sentence "expected ..."."""

    __slots__ = ()

    def __call__(self, value: Any) -> bool:
        raise NotImplementedError


class OneOf(Check):
    """Membership in a small set; an empty set refuses everything."""

    def __init__(self, *allowed: object) -> None:
        self.allowed = allowed

    def __call__(self, value: Any) -> bool:
        return value in self.allowed

    def __str__(self) -> str:
        names = [shown(item) if type(item) is tuple else str(item) for item in self.allowed]
        return names[0] if len(names) == 1 else "one of " + ", ".join(names)


class Each(Check):
    """Every element of a tuple passes ``check``."""

    def __init__(self, check: Check) -> None:
        self.check = check

    def __call__(self, value: Any) -> bool:
        return all(self.check(item) for item in value)

    def __str__(self) -> str:
        return f"every element {self.check}"


class MultipleOf(Check):
    def __init__(self, divisor: int) -> None:
        self.divisor = divisor

    def __call__(self, value: Any) -> bool:
        return bool(value % self.divisor == 0)

    def __str__(self) -> str:
        return f"a multiple of {self.divisor}"


class AtLeast(Check):
    def __init__(self, minimum: float) -> None:
        self.minimum = minimum

    def __call__(self, value: Any) -> bool:
        return bool(value >= self.minimum)

    def __str__(self) -> str:
        return f"at least {self.minimum}"


class AtMost(Check):
    def __init__(self, maximum: float) -> None:
        self.maximum = maximum

    def __call__(self, value: Any) -> bool:
        return bool(value <= self.maximum)

    def __str__(self) -> str:
        return f"at most {self.maximum}"


class InRange(Check):
    """``minimum <= value <= maximum``."""

    def __init__(self, minimum: float, maximum: float) -> None:
        self.minimum = minimum
        self.maximum = maximum

    def __call__(self, value: Any) -> bool:
        return bool(self.minimum <= value <= self.maximum)

    def __str__(self) -> str:
        return f"{self.minimum} to {self.maximum}"


class Equals(Check):
    def __init__(self, wanted: object) -> None:
        self.wanted = wanted

    def __call__(self, value: Any) -> bool:
        return bool(value == self.wanted)

    def __str__(self) -> str:
        return str(self.wanted)


class Empty(Check):
    """Nothing was found that stands in the way; prints what that means."""

    def __init__(self, meaning: str) -> None:
        self.meaning = meaning

    def __call__(self, value: Any) -> bool:
        return not value

    def __str__(self) -> str:
        return self.meaning


class LengthIn(Check):
    """A collection of ``minimum`` to ``maximum`` elements."""

    def __init__(self, minimum: int, maximum: int) -> None:
        self.minimum = minimum
        self.maximum = maximum

    def __call__(self, value: Any) -> bool:
        return isinstance(value, Collection) and self.minimum <= len(value) <= self.maximum

    def __str__(self) -> str:
        if self.minimum == self.maximum:
            return f"{self.minimum} element{'s' if self.minimum != 1 else ''}"
        return f"{self.minimum} to {self.maximum} elements"


class BroadcastsTo(Check):
    """Same rank, each extent equal to the target's or 1."""

    def __init__(self, extents: tuple[int, ...]) -> None:
        self.extents = extents

    def __call__(self, value: Any) -> bool:
        return len(value) == len(self.extents) and all(v in (1, e) for v, e in zip(value, self.extents, strict=True))

    def __str__(self) -> str:
        return f"{self.extents}, or 1 on any axis"


class Present(Check):
    """Anything but None."""

    def __call__(self, value: Any) -> bool:
        return value is not None

    def __str__(self) -> str:
        return "a value"

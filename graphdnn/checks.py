"""Checks: conditions that can be called and that print what they expect."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any


class Check:
    """A predicate on one value; ``str`` completes the sentence "expected ..."."""

    __slots__ = ()

    def __call__(self, value: Any) -> bool:
        raise NotImplementedError


@dataclass(frozen=True)
class OneOf(Check):
    """Membership in a small set; an empty set refuses everything."""

    allowed: tuple[object, ...]

    def __init__(self, *allowed: object) -> None:
        object.__setattr__(self, "allowed", allowed)

    def __call__(self, value: Any) -> bool:
        return value in self.allowed

    def __str__(self) -> str:
        names = [str(item) for item in self.allowed]
        return names[0] if len(names) == 1 else "one of " + ", ".join(names)


@dataclass(frozen=True)
class Each(Check):
    """Every element of a tuple passes ``check``."""

    check: Check

    def __call__(self, value: Any) -> bool:
        return all(self.check(item) for item in value)

    def __str__(self) -> str:
        return f"every element {self.check}"


@dataclass(frozen=True)
class MultipleOf(Check):
    divisor: int

    def __call__(self, value: Any) -> bool:
        return bool(value % self.divisor == 0)

    def __str__(self) -> str:
        return f"a multiple of {self.divisor}"


@dataclass(frozen=True)
class AtLeast(Check):
    minimum: float

    def __call__(self, value: Any) -> bool:
        return bool(value >= self.minimum)

    def __str__(self) -> str:
        return f"at least {self.minimum}"


@dataclass(frozen=True)
class AtMost(Check):
    maximum: float

    def __call__(self, value: Any) -> bool:
        return bool(value <= self.maximum)

    def __str__(self) -> str:
        return f"at most {self.maximum}"


@dataclass(frozen=True)
class InRange(Check):
    """``minimum <= value <= maximum``."""

    minimum: float
    maximum: float

    def __call__(self, value: Any) -> bool:
        return bool(self.minimum <= value <= self.maximum)

    def __str__(self) -> str:
        return f"{self.minimum} to {self.maximum}"


@dataclass(frozen=True)
class Equals(Check):
    wanted: object

    def __call__(self, value: Any) -> bool:
        return bool(value == self.wanted)

    def __str__(self) -> str:
        return str(self.wanted)


@dataclass(frozen=True)
class LengthIn(Check):
    """A collection of ``minimum`` to ``maximum`` elements."""

    minimum: int
    maximum: int

    def __call__(self, value: Any) -> bool:
        return isinstance(value, Collection) and self.minimum <= len(value) <= self.maximum

    def __str__(self) -> str:
        if self.minimum == self.maximum:
            return f"{self.minimum} element{'s' if self.minimum != 1 else ''}"
        return f"{self.minimum} to {self.maximum} elements"


@dataclass(frozen=True)
class BroadcastsTo(Check):
    """Same rank, each extent equal to the target's or 1."""

    extents: tuple[int, ...]

    def __call__(self, value: Any) -> bool:
        return len(value) == len(self.extents) and all(v in (1, e) for v, e in zip(value, self.extents, strict=True))

    def __str__(self) -> str:
        return f"{self.extents}, or 1 on any axis"


@dataclass(frozen=True)
class Present(Check):
    """Anything but None."""

    def __call__(self, value: Any) -> bool:
        return value is not None

    def __str__(self) -> str:
        return "a value"

"""The conditions that constraints are made of: what each accepts, and how it is said behind "expected"."""

from __future__ import annotations

from typing import Any

import pytest

from graphdnn.checks import (
    AtLeast,
    AtMost,
    BroadcastsTo,
    Check,
    Each,
    Empty,
    Equals,
    InRange,
    LengthIn,
    MultipleOf,
    OneOf,
    Present,
)

# a check, how it is said, what it accepts, what it refuses
CHECKS: list[tuple[Check, str, list[Any], list[Any]]] = [
    (OneOf(3), "3", [3], [2, "3", None]),
    (OneOf(3, 5), "one of 3, 5", [3, 5], [4]),
    (OneOf((1, 2), (3,)), "one of (1, 2), (3,)", [(1, 2), (3,)], [1, ()]),
    (OneOf(), "one of ", [], [0, None]),
    (Each(AtLeast(1)), "every element at least 1", [(), (1, 2)], [(0,), (1, 0)]),
    (MultipleOf(4), "a multiple of 4", [0, 4, -8], [2, 5]),
    (AtLeast(2), "at least 2", [2, 2.5], [1, 1.9]),
    (AtMost(2), "at most 2", [2, -3], [3, 2.1]),
    (InRange(2, 4), "2 to 4", [2, 3, 4], [1, 5]),
    (Equals((1, 2)), "(1, 2)", [(1, 2)], [(2, 1), None]),
    (Empty("no tensor twice"), "no tensor twice", [[], "", None], [[0], "a"]),
    (LengthIn(1, 1), "1 element", [(0,)], [(), (1, 2), 1]),
    (LengthIn(2, 2), "2 elements", ["ab"], ["a", "abc"]),
    (LengthIn(0, 2), "0 to 2 elements", [(), (1, 2)], [(1, 2, 3), 0]),
    (BroadcastsTo((2, 3)), "(2, 3), or 1 on any axis", [(2, 3), (1, 3), (1, 1)], [(3, 2), (3,), (2, 3, 1)]),
    (Present(), "a value", [0, "", ()], [None]),
]


@pytest.mark.parametrize(
    ("check", "said", "accepted", "refused"), CHECKS, ids=lambda v: str(v) if isinstance(v, Check) else ""
)
def test_checks(check: Check, said: str, accepted: list[Any], refused: list[Any]) -> None:
    assert str(check) == said
    for value in accepted:
        assert check(value) is True, value
    for value in refused:
        assert check(value) is False, value


def test_all_of_them() -> None:
    assert {type(check) for check, *_ in CHECKS} == {
        c for c in Check.__subclasses__() if c.__module__ == Check.__module__
    }

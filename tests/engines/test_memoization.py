"""memoize: an answer about an object is worked out once while it is among the last ones, and never another object's."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest

from graphdnn.engines import memoization
from graphdnn.engines.memoization import memoize, memoize_by_identity, memoize_for_task

Decorator = Callable[[Callable[[Any], Any]], Callable[[Any], Any]]
both = pytest.mark.parametrize("once", [memoize, memoize_by_identity])


class Subject:
    """Without an order, an equality or a hash of its own."""

    def __init__(self, value: int) -> None:
        self.value = value


@both
def test_each_subject_is_asked_once(once: Decorator) -> None:
    asked: list[int] = []

    @once
    def double(subject: Subject) -> int:
        """Twice the value."""
        asked.append(subject.value)
        return 2 * subject.value

    subjects = [Subject(i) for i in range(5)]
    assert [double(s) for s in subjects * 3] == [0, 2, 4, 6, 8] * 3
    assert asked == [0, 1, 2, 3, 4]
    assert (double.__name__, double.__doc__) == ("double", "Twice the value.")


@both
def test_what_is_kept_is_bounded_and_right(once: Decorator) -> None:
    """Identities are used again by new objects once the old ones are gone."""
    living: weakref.WeakSet[Subject] = weakref.WeakSet()

    @once
    def value(subject: Subject) -> int:
        return subject.value

    for i in range(20 * memoization._KEPT):
        subject = Subject(i)
        living.add(subject)
        assert value(subject) == i
        assert len(living) <= memoization._KEPT + 1


def test_equal_subjects_are_told_apart_by_identity() -> None:
    first, second = [1], [1]  # equal, and without a hash
    asked: list[int] = []

    @memoize_by_identity
    def length(subject: list[int]) -> int:
        asked.append(id(subject))
        return len(subject)

    assert [length(first), length(second), length(first)] == [1, 1, 1]
    assert asked == [id(first), id(second)]


class Device(Subject):
    """In place of a device."""


class Asked:
    """A task, as each ranking makes it anew."""

    def __init__(self, op: Subject, device: Device) -> None:
        self.op, self.device = op, device


def test_tasks_of_one_operation_and_device_are_one() -> None:
    asked: list[tuple[int, int]] = []

    @memoize_for_task
    def both_values(task: Asked) -> tuple[int, int]:
        """The values of both."""
        asked.append((task.op.value, task.device.value))
        return task.op.value, task.device.value

    ops, devices = [Subject(i) for i in range(3)], [Device(i) for i in range(2)]
    wanted = [(op.value, device.value) for op in ops for device in devices]
    for _ in range(3):
        assert [both_values(Asked(op, device)) for op in ops for device in devices] == wanted
    assert asked == wanted
    assert (both_values.__name__, both_values.__doc__) == ("both_values", "The values of both.")


def test_few_tasks_are_kept() -> None:
    living: weakref.WeakSet[Subject] = weakref.WeakSet()
    device = Device(0)

    @memoize_for_task
    def value(task: Asked) -> int:
        return task.op.value

    for i in range(20 * memoization._KEPT):
        op = Subject(i)
        living.add(op)
        assert value(Asked(op, device)) == i
        assert len(living) <= memoization._KEPT + 1

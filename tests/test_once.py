"""once: an answer about an object is worked out once while it is among the last ones, and never another object's."""

from __future__ import annotations

from graphdnn.engines import once as module
from graphdnn.engines.once import once


class Subject:
    """Without an order, an equality or a hash of its own."""

    def __init__(self, value: int) -> None:
        self.value = value


def test_each_subject_is_asked_once() -> None:
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


def test_what_is_kept_is_bounded_and_right() -> None:
    """Identities are used again by new objects once the old ones are gone."""

    @once
    def value(subject: Subject) -> int:
        return subject.value

    for i in range(20 * module._KEPT):
        assert value(Subject(i)) == i
    (kept,) = [cell.cell_contents for cell in value.__closure__ or () if isinstance(cell.cell_contents, dict)]
    assert len(kept) <= module._KEPT

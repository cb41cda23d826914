"""``frozen`` is ``dataclass(frozen=True, slots=True)`` whose objects are made more quickly: nothing else differs."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, asdict, field, fields, replace

import pytest

from graphdnn.frozen import frozen


@frozen()
class Point:
    x: int
    y: int = 2
    names: Mapping[str, int] = field(default_factory=dict)
    like: str | None = field(default=None, init=False, compare=False)


@frozen()
class Weighted(Point):
    weight: float = 1.0


@frozen(eq=False)
class Checked:
    size: int

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError("negative")


def test_objects_are_made_as_by_dataclass() -> None:
    assert Point(1) == Point(x=1, y=2, names={}) != Point(1, 3)
    assert Point(1).names is not Point(1).names, "a factory is asked each time"
    assert (Point(1).like, Weighted(1, weight=2.0).weight, Weighted(1, 5).y) == (None, 2.0, 5)
    assert list(inspect.signature(Weighted).parameters) == ["x", "y", "names", "weight"]
    assert [f.name for f in fields(Weighted)] == ["x", "y", "names", "like", "weight"]
    assert replace(Point(1), y=7) == Point(1, 7)
    assert asdict(Point(1)) == {"x": 1, "y": 2, "names": {}, "like": None}
    assert repr(Point(1)) == "Point(x=1, y=2, names={}, like=None)"
    assert pickle.loads(pickle.dumps(Weighted(3))) == Weighted(3)


def test_objects_do_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        Point(1).x = 2  # type: ignore[misc]
    assert not hasattr(Point(1), "__dict__")


def test_what_checks_itself_does_so() -> None:
    with pytest.raises(ValueError, match="negative"):
        Checked(-1)
    assert Checked(1) != Checked(1), "compared by identity"


@pytest.mark.parametrize("arguments", [(), (1, 2, {}, 3)])
def test_arguments_that_do_not_fit_are_refused(arguments: tuple[object, ...]) -> None:
    with pytest.raises(TypeError, match="argument"):
        Point(*arguments)  # type: ignore[arg-type]

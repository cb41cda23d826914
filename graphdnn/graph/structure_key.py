"""Structure keys: everything that a graph's operations say but extents and strides, as a number, and the extents.

Graphs that differ only in extents and strides are of one class, and have its number. Fusion and rankings keep what they
found out about a class, and about a graph that is equal to another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import EnumMeta
from functools import cache
from itertools import count
from operator import itemgetter
from struct import Struct
from typing import Any

from graphdnn.bounded_cache import BoundedCache
from graphdnn.operations import Operation
from graphdnn.spec import Spec
from graphdnn.tensors import TensorSpec

_numbers = BoundedCache[tuple[object, ...], int](1024)
_next = count()  # of a class: no number is given twice, even when its class was removed


@dataclass(frozen=True, slots=True)
class StructureKey:
    """``number``: of the class, names included. ``extents``: dims and strides of every port, in order."""

    number: int
    extents: tuple[tuple[int, ...], ...]


def structure_key_of(operations: Iterable[Operation]) -> StructureKey:
    words: list[object] = []
    extents: list[tuple[int, ...]] = []
    for operation in operations:
        _spell(operation, words, extents)
    key = tuple(words)
    number = _numbers.get(key)
    if number is None:
        number = _numbers.remember(key, next(_next))  # one number, whichever thread drew it
    return StructureKey(number, tuple(extents))


_OF_TENSORS = itemgetter(*(name for name in TensorSpec.model_fields if name not in ("dims", "strides")))
_EXTENTS = itemgetter("dims", "strides")


def _spell(spec: Spec, words: list[object], extents: list[tuple[int, ...]]) -> None:
    """The fields of a spec, one after the other; what is equal to Python and not the same is told apart."""
    others, plain, floats, packed = _fields(type(spec))
    values = spec.__dict__
    words += type(spec), plain(values), packed(*floats(values))
    for value in others(values):
        kind: Any = type(value)
        if kind is TensorSpec:
            tensor = value.__dict__
            words.append(_OF_TENSORS(tensor))
            if value.constant_value is not None:
                words.append(repr(value.constant_value))
            extents += _EXTENTS(tensor)
        elif kind is str or value is None or kind is bool:
            words.append(value)
        elif _is_spec(kind):
            _spell(value, words, extents)
        elif kind is tuple and value and isinstance(value[0], Spec):
            words.append(len(value))
            for one in value:
                _spell(one, words, extents)
        else:
            words.append(repr(value) if kind is float else value)


_Getter = Callable[[dict[str, Any]], tuple[Any, ...]]


@cache
def _is_spec(kind: type) -> bool:
    return issubclass(kind, Spec)


@cache
def _fields(kind: type[Spec]) -> tuple[_Getter, _Getter, _Getter, Callable[..., bytes]]:
    """Three getters of a class's fields: fields that may hold other specs, plain fields, and fields that are always
    floats; and the function that turns the floats into bytes.
    """
    floats = [name for name, field in kind.model_fields.items() if field.annotation is float]
    plain = [name for name, field in kind.model_fields.items() if _is_plain(field.annotation)]
    others = [name for name in kind.model_fields if name not in floats and name not in plain]
    return _getter(others), _getter(plain), _getter(floats), Struct(f"{len(floats)}d").pack


def _is_plain(annotation: Any) -> bool:
    """Whether two values are the same when they are equal."""
    if annotation in (str, int, bool, tuple[int, ...]):
        return True
    return isinstance(annotation, EnumMeta)


def _getter(names: list[str]) -> _Getter:
    if len(names) > 1:
        return itemgetter(*names)
    return lambda values: tuple([values[name] for name in names])

"""Border: what the builder's methods are given, read by what their signatures say before anything else sees it.

A parameter's annotation is its row in ``READERS``: a reader gives the value as the method takes it, or raises
``ValueError`` with the reason, whatever the object's own code does. Tensors, element types and enumerators that are
plain values are read where they are used, by rules of their own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import update_wrapper, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import numpy as np

from graphdnn.enums import CEnum
from graphdnn.errors import BadParam
from graphdnn.operations import RnnSpec
from graphdnn.scalars import listed, real
from graphdnn.spec import ATTR_TYPE, signed

Read = Callable[[Any], Any]
Row = tuple[Read, str, str]  # the reader, what it wants, and how that is written
Rows = list[tuple[int, str, Read, str, str]]  # the place and the name of a parameter, and its row
P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

integer = signed(64)  # of text that is longer, Python prints none


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{type(value).__name__} is not text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("half of a surrogate pair is no character, and no file can hold it") from None
    return str(value)


def flag(value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{type(value).__name__} is not a bool")
    return bool(value)


def _number_or_text(value: Any) -> int | str:
    return text(value) if isinstance(value, str) else integer(value)


def _subject(value: Any) -> Any:
    from graphdnn.builder.tensor import Tensor

    return value if isinstance(value, Tensor) else _number_or_text(value)


def _per_axis(value: Any) -> Any:
    """One number for all axes, or one for each. What the numbers may be, the operation says."""
    try:
        return integer(value)
    except ValueError:
        return value if isinstance(value, (bool, float, str)) else listed(value, "numbers are wanted")


def _modes(value: Any) -> tuple[Any, ...]:
    """What is no mode, the ranking says."""
    return listed(value, "a list is wanted")


def _words(value: Any) -> tuple[str, ...]:
    return (text(value),) if isinstance(value, str) else tuple(map(text, listed(value, "a list is wanted")))


def _items(value: Any) -> tuple[Any, ...]:
    return listed(value, "a list is wanted")


def _any_items(value: Any) -> tuple[Any, ...]:
    """What is no list stands for its only item, which is looked at as such."""
    try:
        return listed(value, "a list is wanted")
    except ValueError:
        return (value,)


def _groups(value: Any) -> tuple[Any, ...]:
    return tuple(map(_items, _items(value)))


def _mapping(value: Any) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{type(value).__name__} is not a mapping")
    try:
        return dict(value)
    except Exception:
        raise ValueError(f"{type(value).__name__} does not give its entries") from None


def _network(value: Any) -> RnnSpec:
    if not isinstance(value, RnnSpec):
        raise ValueError(f"{type(value).__name__} describes no network")
    return value


def _records(value: Any) -> Any:
    """The name of a file is text that a system can have; what is no database, tuning says."""
    return text(value) if isinstance(value, str) else value


def _member(value: Any) -> Any:
    """Plain values go on, to be refused with the attribute that they are for."""
    if not isinstance(value, (int, float, str, bytes, type(None), CEnum)):
        raise ValueError(f"{type(value).__name__} is no enumerator")
    return value


def _optional(row: Row) -> Row:
    read, expected, fix = row
    return lambda value: None if value is None else read(value), f"{expected}, or None", fix


_TEXT: Row = (text, "text", "e.g. 'conv1'")
_WHOLE: Row = (integer, "an integer of 64 bits", "pass an int")
_EITHER: Row = (_number_or_text, "a number or a name", "take it from graph.ranking or docs/support.md")
_AXES: Row = (_per_axis, "a number for each spatial axis, or one for all", "e.g. [1, 1]")
_GROUPS: Row = (_groups, "a list of lists of tensors, uids or names", "e.g. [('y', 'z')]")

_KNOBS: Row = (_mapping, "a mapping of knobs to values", "e.g. dict(TILE_SIZE=1)")
_RANGES: Row = (_mapping, "a mapping of tensors to (low, high)", "a dict of pairs by tensor, uid or name")

READERS: dict[str, Row] = {
    "str": _TEXT, "str | None": _optional(_TEXT),
    "bool": (flag, "True or False", "pass a bool"),
    "int": _WHOLE, "int | None": _optional(_WHOLE),
    "int | str": _EITHER, "str | int | None": _optional(_EITHER),
    "float | None": _optional((real, "a number", "pass a float")),
    "Tensor | int | str": (_subject, "a tensor, its uid or its name", "pass the tensor that the graph returned"),
    "Sequence[int] | int | None": _optional(_AXES), "Sequence[int] | None": _optional(_AXES),
    "Sequence[Any] | int": _AXES, "Sequence[Any] | int | None": _optional(_AXES),
    "Sequence[HeurMode]": (_modes, "a list of HeurMode", "e.g. [HeurMode.A, HeurMode.FALLBACK]"),
    "Sequence[str] | str": (_words, "parts of engines' names", "e.g. 'numpy_fft', or a list of such"),
    "Sequence[Tensor]": (_any_items, "a list of tensors", "write [...] around them"),
    "Sequence[builtins.slice]": (_any_items, "a list of slices", "write [...] around them"),
    "Iterable[Sequence[Any]]": _GROUPS,
    "Mapping[KnobType, int] | Mapping[str, int] | None": _optional(_KNOBS),
    "Mapping[Any, tuple[float, float]] | None": _optional(_RANGES),
    "Records | Path | str | bool | None": (_records, "a tuning database, its file, or True", "pass a Database"),
    "RnnSpec": (_network, "a graphdnn.RnnSpec", "describe the network by graphdnn.RnnSpec(...)"),
    **{
        f"{kind}{more}": (_member, f"a {kind}", f"a member of graphdnn.{kind}, or its name")
        for kind in (
            "ConvolutionMode", "NanPropagation", "NormPhase", "PaddingMode", "PointwiseMode", "ReductionOperator",
            "ResampleMode", "ReshapeMode", "RngDistribution", "TensorReordering",
        )
        for more in ("", " | None")
    },
}  # fmt: skip
# Read where they are used, by rules of their own.
ELSEWHERE = (
    "Any", "None", "Tensor", "Tensor | None", "Tensor | int", "Tensor | float | None", "float", "Sequence[int]",
    "Sequence[NumericalNote | str]", "Sequence[BehaviorNote | str]",
    "Mapping[Any, Any]", "Mapping[Any, Any] | None", "DeviceSpec | str | None",
)  # fmt: skip


def guard(cls: type) -> None:
    """Read what every public method of a class is given, by its annotations."""
    for name in ("__init__", *vars(cls)):
        method = inspect.getattr_static(cls, name)
        if inspect.isfunction(method) and (name == "__init__" or not name.startswith("_")):
            setattr(cls, name, checked(method))


def delegated(part: str, method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """A method of ``Graph`` that reads its arguments by their annotations and calls ``method`` with a part
    of the graph.

    Args:
        part: The attribute of the graph that holds the part.
        method: A function whose first parameter is the part.

    Returns:
        The method, with the name, the signature and the docstring of ``method``.
    """
    rows = _rows(method)

    def call(self: Any, /, *args: Any, **named: Any) -> R:
        args, named = _read(self, rows, args, named)
        return method(getattr(self, part), *args, **named)

    update_wrapper(call, method)
    call.__qualname__ = f"Graph.{method.__name__}"
    itself, *others = inspect.signature(method).parameters.values()
    call.__signature__ = inspect.signature(method).replace(  # type: ignore[attr-defined]
        parameters=[itself.replace(name="self", annotation=inspect.Parameter.empty), *others]
    )
    return call


def _rows(method: Callable[..., Any]) -> Rows:
    """The readers of a method's parameters by place, without the first parameter: the object itself."""
    parameters = list(inspect.signature(method).parameters.values())[1:]
    return [
        (place, p.name, *READERS[p.annotation])
        for place, p in enumerate(parameters)
        if p.annotation in READERS and p.kind is not p.VAR_KEYWORD
    ]


def checked(method: F) -> F:
    """The method, with its arguments read by their annotations."""
    rows = _rows(method)
    if not rows:
        return method

    @wraps(method)
    def call(self: Any, *args: Any, **named: Any) -> Any:
        args, named = _read(self, rows, args, named)
        return method(self, *args, **named)

    return cast(F, call)


def _read(subject: Any, rows: Rows, args: Any, named: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    given = list(args)
    for place, name, read, expected, fix in rows:
        in_place = place < len(given)
        if not in_place and name not in named:
            continue
        value = given[place] if in_place else named[name]
        try:
            found = read(value)
        except ValueError as error:
            problem = ATTR_TYPE.reject(_where(subject), name, value, expected=expected, fix=fix, detail=str(error))
            raise BadParam(problem) from None
        if in_place:
            given[place] = found
        else:
            named[name] = found
    return tuple(given), named


def _where(subject: Any) -> str:
    """The object in messages. While it is being made, it has no name yet, and its class stands for it."""
    members = vars(subject)
    if "_description" in members:
        return str(subject._description.here())
    return str(subject.where) if "dim" in members else type(subject).__name__

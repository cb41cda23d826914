"""Spec: what a user hands in, validated once; the field is the attribute row.

A spec is a frozen pydantic model. Each field carries its ``Attr``: the cuDNN
attribute name, storage types, element count and help. From that row come the v8 API's
set and get, the error messages, the negative tests and the attribute
tables in the docs. Constraints that relate fields to each other are rows too
(``graphdnn.rules``), evaluated in stages: a later stage runs only when the
earlier ones hold, so a shape formula never sees tensors of the wrong rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from graphdnn.attribute_names import AttributeName
from graphdnn.dtypes import data_type_of
from graphdnn.enums import AttributeType, CEnum, DataType, DescriptorType, Status, shown
from graphdnn.errors import Rejection, error_for
from graphdnn.escaped import escaped
from graphdnn.rules import Constraint, Rule, violations
from graphdnn.scalars import listed, number, real, whole

if TYPE_CHECKING:
    from typing_extensions import Self

INT64_MAX = 2**63 - 1

ATTR_MISSING = Rule(
    id="attr.missing",
    expected="{expected}",
    reason="this attribute has no default and has to be set before the descriptor is finalized",
    fix="{fix}",
)
ATTR_TYPE = Rule(
    id="attr.type",
    expected="{expected}",
    reason="the value does not have the attribute's type: {detail}",
    fix="{fix}",
)
ATTR_REFUSED = Rule(
    id="attr.not_supported",
    expected="this attribute to be left unset",
    reason="{reason}",
    fix="{fix}",
    status=Status.NOT_SUPPORTED,
)
ATTR_UNKNOWN = Rule(
    id="attr.unknown",
    expected="one of {known}",
    reason="{kind} has no such attribute, and the library ignores no input",
    fix="remove it, or set it on the descriptor it belongs to",
)


@dataclass(frozen=True, slots=True)
class Attr:
    """The attribute behind a field: cuDNN name, storage types, help, element count, role."""

    name: AttributeName
    types: tuple[AttributeType, ...]
    expected: str
    fix: str
    count: tuple[int, int] = (1, 1)
    role: str = "setting"  # "input" and "output" mark the tensor ports of an operation


@dataclass(frozen=True, slots=True)
class ExtensionPort:
    """A tensor port of an operation that the v8 header does not have, so there is no attribute behind it."""

    role: str  # "input" or "output"


@dataclass(frozen=True, slots=True)
class Refused:
    """An attribute that cuDNN's header gives this descriptor and graphdnn does not implement."""

    name: AttributeName
    types: tuple[AttributeType, ...]
    reason: str
    fix: str = "leave it unset"


def attr(
    name: AttributeName,
    types: AttributeType | tuple[AttributeType, ...],
    expected: str,
    fix: str,
    count: tuple[int, int] = (1, 1),
    role: str = "setting",
) -> Attr:
    """The row of a setting (or, with another role, of a port that may also be a plain number)."""
    return Attr(name, types if isinstance(types, tuple) else (types,), expected, fix, count, role)


def port(name: AttributeName, role: str, expected: str, count: tuple[int, int] = (1, 1)) -> Attr:
    """The row of a tensor port: ``role`` is "input" or "output"."""
    return Attr(
        name, (AttributeType.BACKEND_DESCRIPTOR,), f"a tensor: {expected}", "give a finalized tensor", count, role
    )


def signed(bits: int) -> Callable[[Any], int]:
    """Reads an exact signed integer; bools, floats and strings are refused with ``ValueError``."""
    lowest, highest = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def read(value: Any) -> int:
        number = whole(value)
        if not lowest <= number <= highest:
            raise ValueError(f"outside the signed {bits}-bit range")
        return number

    return read


_int64 = signed(64)


def _int64s(value: Any) -> tuple[int, ...]:
    return tuple(map(_int64, listed(value, "a sequence of integers is wanted")))


Int64 = Annotated[int, BeforeValidator(_int64)]
Int64s = Annotated[tuple[int, ...], BeforeValidator(_int64s)]
Float = Annotated[float, BeforeValidator(real)]
Number = Annotated[int | float, BeforeValidator(number)]
ElementType = Annotated[DataType, BeforeValidator(data_type_of)]


@dataclass(frozen=True, slots=True)
class Attempted:
    """What was to become a spec, as it was given: the subject of the error that says why it did not."""

    cls: type[Spec]
    fields: Mapping[str, Any]


def _validated(make: Callable[..., None], cls: type[Spec], fields: Mapping[str, Any]) -> tuple[Rejection, ...]:
    """Why pydantic refuses the fields; nothing where it takes them."""
    try:
        make(**fields)
    except ValidationError as error:
        return tuple(_field_rejections(cls, fields, error))
    return ()


class Spec(BaseModel):
    """Base of every validated value. Construction raises ``BadParam`` or ``NotSupported`` with all reasons."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        arbitrary_types_allowed=True,
        defer_build=True,  # schemas are built on first use: importing the library builds none
        ser_json_inf_nan="constants",  # apart from None, and from each other
    )

    descriptor: ClassVar[DescriptorType]
    constraints: ClassVar[tuple[tuple[Constraint, ...], ...]] = ()
    refused: ClassVar[tuple[Refused, ...]] = ()

    def __init__(self, **fields: Any) -> None:
        # The error is raised when pydantic's is gone. That one holds what validators raised, out of sight of Python's
        # garbage collector, and with it the frames of whoever keeps the new error: together they would stay for good.
        problems = _validated(super().__init__, type(self), fields) or tuple(self.problems())
        if problems:
            raise error_for(problems, Attempted(type(self), fields))

    def problems(self) -> Iterator[Rejection]:
        """Every rejection of the first stage that fails; nothing for a valid spec."""
        where = self.where
        for stage in self.constraints:
            found = tuple(violations(stage, self, where))
            if found:
                for rejection in found:
                    yield replace(rejection, attribute=attribute_label(type(self), rejection.attribute))
                return

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As pydantic's, unvalidated; what the original had worked out (``cached_property``) is not copied along."""
        copy = super().model_copy(update=update, deep=deep)
        for name in copy.__dict__.keys() - type(self).model_fields.keys():
            del copy.__dict__[name]
        return copy

    @property
    def where(self) -> str:
        """How errors name this spec."""
        return where_of(type(self), self.__dict__)

    @classmethod
    def kind(cls) -> str:
        """``OPERATION_CONVOLUTION_FORWARD`` and the like."""
        return cls.descriptor.name


def where_of(cls: type[Spec], fields: Mapping[str, Any]) -> str:
    """``CONVOLUTION 'name' (file.py:3)`` from whatever identifies the spec."""
    words = [cls.kind()]
    if fields.get("name"):
        words.append(f"'{escaped(str(fields['name']))}'")
    if isinstance(fields.get("uid"), int):
        words.append(f"uid {fields['uid']}")
    if fields.get("origin"):
        words.append(f"({escaped(str(fields['origin']))})")
    return " ".join(words)


@cache
def attributes(cls: type[Spec]) -> dict[str, Attr]:
    """Field name -> attribute row, in field order, for the fields that are cuDNN attributes."""
    rows = {}
    for name, field in cls.model_fields.items():
        for item in field.metadata:
            if isinstance(item, Attr):
                rows[name] = item
    return rows


def is_required(cls: type[Spec], field: str) -> bool:
    return cls.model_fields[field].is_required()


def attribute_label(cls: type[Spec], field: str, position: Sequence[int | str] = ()) -> str:
    """``dims[1] (CUDNN_ATTR_TENSOR_DIMENSIONS)``."""
    row = attributes(cls).get(field)
    label = field + "".join(f"[{item}]" for item in position)
    return f"{label} ({row.name.c_name})" if row else label


def _field_rejections(cls: type[Spec], fields: Mapping[str, Any], error: ValidationError) -> Iterator[Rejection]:
    """pydantic's findings in our words: which attribute, what was expected, what to do."""
    where = where_of(cls, fields)
    for item in error.errors(include_url=False):
        field = str(item["loc"][0]) if item["loc"] else "value"
        position = [p for p in item["loc"][1:] if isinstance(p, int)]
        row = attributes(cls).get(field)
        label = attribute_label(cls, field, position)
        if item["type"] == "extra_forbidden":
            known = ", ".join(cls.model_fields)
            yield ATTR_UNKNOWN.reject(where, label, item["input"], known=known, kind=cls.kind())
            continue
        expected = row.expected if row else _annotation_text(cls, field)
        fix = row.fix if row else f"give {field} as {expected}"
        if item["type"] == "missing":
            yield ATTR_MISSING.reject(where, label, "nothing", expected=expected, fix=fix)
        else:
            detail = item["msg"].removeprefix("Value error, ")
            if item["type"] == "is_instance_of" and (enum := item["ctx"]["class"]) in _ENUMS:
                detail = f"a member of {enum} is wanted"
                fix = _member(_ENUMS[enum], item["input"], fix)
            yield ATTR_TYPE.reject(where, label, item["input"], expected=expected, fix=fix, detail=detail)


_ENUMS = {enum.__name__: enum for enum in CEnum.__subclasses__()}


def _member(enum: type[CEnum], given: object, fix: str) -> str:
    """What to write for a member that was meant by its name, or ``fix`` where there are too many."""
    names = list(enum.__members__)
    word = given.upper() if isinstance(given, str) else shown(given)
    near = [name for name in names if word and name.startswith(word)]
    if near:
        return f"write {enum.__name__}.{near[0]}"
    return f"{enum.__name__} has {', '.join(names)}" if len(names) <= 16 else fix


def _annotation_text(cls: type[Spec], field: str) -> str:
    annotation = cls.model_fields[field].annotation if field in cls.model_fields else None
    if isinstance(annotation, type) and issubclass(annotation, CEnum):
        return "one of " + ", ".join(annotation.__members__)
    return getattr(annotation, "__name__", str(annotation))

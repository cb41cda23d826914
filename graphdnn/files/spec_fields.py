"""Specs as entries of a file: fields that differ from their defaults, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import IntEnum
from fractions import Fraction
from typing import Any

from graphdnn.files.json_documents import CONTENT, malformed
from graphdnn.spec import Spec
from graphdnn.tensors import TensorSpec


def fields_of(spec: Spec) -> dict[str, Any]:
    """Fields that differ from their defaults; tensors inside operations become uids."""
    result = {}
    for name, field in type(spec).model_fields.items():
        value = getattr(spec, name)
        if field.is_required() or value != field.default:
            result[name] = plain(value)
    return result


def plain(value: Any) -> Any:
    """A field as it stands in a file."""
    if isinstance(value, TensorSpec):
        return {"tensor": value.uid}
    if isinstance(value, Spec):
        return fields_of(value)
    if isinstance(value, IntEnum):
        return value.name
    if isinstance(value, Fraction):
        return [value.numerator, value.denominator]
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}  # JSON has no infinity
    return value


def decoded(cls: type[Spec], entry: Mapping[str, Any], tensors: Mapping[Any, TensorSpec]) -> dict[str, Any]:
    """The fields of an entry, ready for the spec; ``tensors`` are those it may refer to."""
    return {name: _value(cls, name, value, tensors) for name, value in dict(entry).items()}


def _value(cls: type[Spec], field: str, value: Any, tensors: Mapping[Any, TensorSpec]) -> Any:
    if isinstance(value, dict) and set(value) == {"tensor"}:
        if value["tensor"] not in tensors:
            raise malformed(
                CONTENT, field, value["tensor"], expected="the uid of a tensor of the file", detail="it is not there"
            )
        return tensors[value["tensor"]]
    if isinstance(value, dict) and set(value) == {"float"}:
        return float(value["float"])
    annotation = cls.model_fields[field].annotation if field in cls.model_fields else None
    if isinstance(annotation, type) and issubclass(annotation, Spec) and isinstance(value, dict):
        return annotation(**decoded(annotation, value, tensors))
    if isinstance(annotation, type) and issubclass(annotation, IntEnum) and isinstance(value, str):
        if value not in annotation.__members__:
            known = ", ".join(annotation.__members__)
            raise malformed(CONTENT, field, value, expected=f"one of {known}", detail="the name is unknown")
        return annotation[value]
    if isinstance(value, list):
        return tuple(_value(cls, field, item, tensors) for item in value)
    return value

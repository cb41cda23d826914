"""Descriptors for tests: from attributes, and from the core's specs through the public calls only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphdnn import backend
from graphdnn.attribute_names import AttributeName as A
from graphdnn.backend.descriptor import Descriptor
from graphdnn.enums import AttributeType as T
from graphdnn.enums import DescriptorType as D
from graphdnn.errors import Rejection
from graphdnn.operations import Operation
from graphdnn.spec import Spec, attributes

Elements = tuple[T, Sequence[Any]]


def count_of(kind: T, values: Sequence[Any]) -> int:
    return len(values) + 1 if kind is T.CHAR else len(values)


def put(descriptor: Descriptor, name: A, kind: T, *values: Any) -> None:
    backend.cudnnBackendSetAttribute(descriptor, name, kind, len(values), list(values))


def put_text(descriptor: Descriptor, name: A, text: str) -> None:
    backend.cudnnBackendSetAttribute(descriptor, name, T.CHAR, len(text) + 1, text)


def created(kind: D, elements: Mapping[A, Elements]) -> Descriptor:
    """Not finalized."""
    descriptor = backend.cudnnBackendCreateDescriptor(kind)
    for name, (element, values) in elements.items():
        backend.cudnnBackendSetAttribute(descriptor, name, element, count_of(element, values), values)
    return descriptor


def made(kind: D, elements: Mapping[A, Elements]) -> Descriptor:
    descriptor = created(kind, elements)
    backend.cudnnBackendFinalize(descriptor)
    return descriptor


def elements_of(spec: Spec) -> dict[A, Elements]:
    """What a client sets to describe a spec: everything that is not None."""
    found: dict[A, Elements] = {}
    for field, row in attributes(type(spec)).items():
        value = getattr(spec, field)
        if value is not None and value != ():
            items = value if isinstance(value, tuple) else (value,)
            kind = row.types[-1] if isinstance(items[0], Spec) else row.types[0]
            if kind is T.VOID_PTR:
                items = tuple(np.array([item], np.float64) for item in items)
            if kind is T.INT64 and T.FRACTION in row.types:
                kind = T.FRACTION
            found[row.name] = (kind, [described(item) if isinstance(item, Spec) else item for item in items])
    return found


def described(spec: Spec) -> Descriptor:
    """The finalized descriptor of a tensor, a setting or an operation."""
    return made(spec.descriptor, elements_of(spec))


def graph_descriptor(*operations: Operation, **elements: Elements) -> Descriptor:
    """``elements`` by attribute name without its prefix."""
    ops = (T.BACKEND_DESCRIPTOR, [described(op) for op in operations])
    extra = {A[f"OPERATIONGRAPH_{name}"]: value for name, value in elements.items()}
    return made(D.OPERATIONGRAPH, {A.OPERATIONGRAPH_OPS: ops, **extra})


def read(descriptor: Descriptor, name: A, kind: T) -> Any:
    """All elements, after asking how many there are."""
    count, nothing = backend.cudnnBackendGetAttribute(descriptor, name, kind, 0)
    assert not nothing
    again, elements = backend.cudnnBackendGetAttribute(descriptor, name, kind, count)
    assert again == count
    return elements


def filled(descriptor: Descriptor, name: A, kind: D) -> list[Descriptor]:
    """All nested descriptors, the way C clients do it: length query, create, fill."""
    count, _ = backend.cudnnBackendGetAttribute(descriptor, name, T.BACKEND_DESCRIPTOR, 0)
    targets = [backend.cudnnBackendCreateDescriptor(kind) for _ in range(count)]
    again, elements = backend.cudnnBackendGetAttribute(descriptor, name, T.BACKEND_DESCRIPTOR, count, targets)
    assert again == count
    assert elements == targets
    return targets


def complete(rejection: Rejection) -> None:
    """Rule, place, attribute, expected, reason and fix are there, no placeholder is left."""
    for field in ("rule", "where", "attribute", "expected", "reason", "fix"):
        text = getattr(rejection, field)
        assert text, f"{rejection.rule} has no {field}"
        assert "{" not in text, f"{rejection.rule}: {field} = {text}"
    assert rejection.status.c_name in str(rejection)

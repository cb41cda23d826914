"""FaceSpec: the settings of descriptors that are not specs of the core, with the attributes the library works out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from graphdnn.attribute_names import AttributeName
from graphdnn.enums import AttributeType, DescriptorType
from graphdnn.spec import Attr, Spec

MANY = 2**31 - 1  # elements of an attribute without a limit of its own


@dataclass(frozen=True, slots=True)
class ReadOnlyAttribute:
    """An attribute that is read and never set: its row, how it is read from the content, what it is filled into."""

    attr: Attr
    read: Callable[[Any], Any]
    nested: tuple[DescriptorType, ...] = ()


def answer(
    name: AttributeName,
    kind: AttributeType,
    expected: str,
    read: Callable[[Any], Any],
    nested: tuple[DescriptorType, ...] = (),
    count: tuple[int, int] = (1, 1),
) -> ReadOnlyAttribute:
    return ReadOnlyAttribute(
        Attr(name, (kind,), expected, "read it after finalization", count, "get-only"), read, nested
    )


class DescriptorSpec(Spec):
    """Settings in the sense of ``Spec``; ``answers`` are the rows beside them."""

    answers: ClassVar[tuple[ReadOnlyAttribute, ...]] = ()

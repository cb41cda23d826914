"""Words of a problem text: where each stands, operands and settings as values, and what cannot be read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from graphdnn.builder import Graph, Tensor
from graphdnn.dtypes import SHORT_NAMES, data_type_of
from graphdnn.enums import DataType
from graphdnn.errors import BadParam
from graphdnn.rules import Rule
from graphdnn.tensors import channels_last_strides, packed_strides
from graphdnn.text_format import meant

SYNTAX = Rule(
    id="problem.syntax",
    expected="{expected}",
    reason="the text cannot be read from here: {rest}",
    fix="write it like 'conv x=f32[8,64,56,56] w=f32[64,64,3,3] pad=1 + bias + relu'",
)
UNKNOWN = Rule(
    id="problem.word",
    expected="one of {known}",
    reason="this name is unknown",
    fix="{meant}choose one of the names",
)
MISSING = Rule(
    id="problem.operand",
    expected="{expected}",
    reason="{operation} needs this operand",
    fix="add {expected}",
)
UNUSED = Rule(
    id="problem.unused",
    expected="only words that {operation} reads: {known}",
    reason="{operation} does not read it, and the library ignores no input",
    fix="{meant}leave it out",
)
# Words of other libraries that have no counterpart, and what says the same here.
_ELSEWHERE = dict.fromkeys(
    ("g", "group", "groups", "group_count"), "groups follow from the extents, x's channels over w.dims[1]: "
)

_OPERAND = re.compile(r"(?P<type>[A-Za-z_][\w]*)?\[(?P<dims>[\d,]+)\](?P<layout>(?i:nhwc|nchw))?$")


class Part(str):
    """A piece of the problem text that knows its column, so that errors can point at it."""

    __slots__ = ("column",)
    column: int

    @classmethod
    def of(cls, text: str, start: int, end: int) -> Part:
        """``text[start:end]`` without the space around it."""
        piece = text[start:end]
        part = cls(piece.strip())
        part.column = start + len(piece) - len(piece.lstrip()) + 1
        return part

    def group(self, match: re.Match[str], name: str) -> Part:
        """A named group of a match on this part."""
        part = Part(match[name])
        part.column = self.column + match.start(name)
        return part


@dataclass
class Words:
    """The words of one problem, crossed out as they are read."""

    text: str
    operation: str
    bare: list[Part] = field(default_factory=list)
    named: dict[str, Part] = field(default_factory=dict)  # the keys are parts too
    channels: tuple[int, ...] = (1,)  # axes of the result that per-channel operands have
    asked: dict[str, None] = field(default_factory=dict)  # every name that the operation looked for
    first: Tensor | None = None  # operand, whose type and layout those of the result's extents have

    def take(self, name: str) -> Part | None:
        self.asked[name] = None
        return self.named.pop(name, None)

    def per_axis(self, name: str, spatial: int) -> tuple[int, ...] | None:
        """``name=a,b`` or one number for every spatial axis."""
        value = self.take(name)
        if value is None:
            return None
        given = numbers(value, self.text, name)
        return given * spatial if len(given) == 1 else given

    def operand(self, graph: Graph, name: str) -> Tensor:
        value = self.take(name)
        if value is None:
            raise refuse(
                MISSING, name, "nothing", self.text, expected=f"{name}=type[extents]", operation=self.operation
            )
        found = _operand(graph, name, value, self.text)
        if self.first is None:
            self.first = found
        return found

    def extents(self, name: str) -> tuple[int, ...]:
        value = self.take(name)
        match = None if value is None else _OPERAND.match(value)
        if value is None or match is None:
            raise refuse(
                MISSING, name, value or "nothing", self.text, expected=f"{name}=[extents]", operation=self.operation
            )
        if match["type"] or match["layout"]:
            raise refuse(SYNTAX, name, value, self.text, expected="[extents] alone; out=type sets a type", rest=value)
        return numbers(value.group(match, "dims"), self.text, name)

    def choice(self, allowed: Sequence[str]) -> Part:
        """The bare word that picks a variant: ``pool max``."""
        if not self.bare or self.bare[0] not in allowed:
            raise unknown(self.operation, self.bare[0] if self.bare else "nothing", self.text, allowed)
        return self.bare.pop(0)

    def finish(self, steps: Sequence[str]) -> None:
        """Refuse what nothing read. ``steps``: words that stand behind a +."""
        for word in (*self.bare, *self.named):
            assert isinstance(word, Part)
            known, value = list(self.asked), Part(self.named.get(word, word))
            value.column = word.column
            raise refuse(
                UNUSED,
                word,
                value,
                self.text,
                operation=self.operation,
                known=", ".join(known),
                meant=f"steps stand behind a +: + {word}; else "
                if word in steps
                else _ELSEWHERE.get(word, meant(word, known)),
            )


def refuse(rule: Rule, attribute: str, value: str, text: str, **words: Any) -> BadParam:
    where = f"problem {text!r}" + (f", column {value.column}" if isinstance(value, Part) else "")
    return BadParam(rule.reject(where, str(attribute), str(value), **words))


def unknown(attribute: str, word: str, text: str, known: Sequence[str], said: str = "") -> BadParam:
    """``said``: what to do instead, where that is known better than by likeness."""
    return refuse(UNKNOWN, attribute, word, text, known=", ".join(known), meant=said or meant(word, known))


def numbers(value: Part, text: str, name: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in value.split(","))
    except ValueError:
        raise refuse(SYNTAX, name, value, text, expected="whole numbers, separated by commas", rest=value) from None


def _operand(graph: Graph, name: str, value: Part, text: str) -> Tensor:
    match = _OPERAND.match(value)
    if not match or not match["type"]:
        raise refuse(SYNTAX, name, value, text, expected="type[extents], e.g. f16[8,64,56,56]nhwc", rest=value)
    dims = numbers(value.group(match, "dims"), text, name)
    strides = channels_last_strides(dims) if (match["layout"] or "").lower() == "nhwc" else packed_strides(dims)
    return graph.tensor(dims, strides, data_type=type_of(value.group(match, "type"), text, name), name=name)


def type_of(value: str, text: str, name: str) -> DataType:
    try:
        return data_type_of(value)
    except ValueError:
        raise unknown(name, value, text, tuple(SHORT_NAMES)) from None

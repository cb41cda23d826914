"""Parameters: the one struct argument of a kernel, as text for the compiler and as bytes for the launch.

Every field is eight bytes wide (an address, a ``long long`` or a ``double``), so the
layout is the order of the fields and the host packs it without a compiler's help; tensor
maps, which want an alignment of their own, come before all others.
Addresses and by-value scalars are known only when a plan is executed: they are
recorded as slots, which the plan writes in place.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from graphdnn.cuda.tensor_map import WORDS as MAP_WORDS
from graphdnn.cuda.tensor_map import TensorMap
from graphdnn.dtypes import ELEMENTS, cast
from graphdnn.enums import DataType
from graphdnn.tensors import TensorSpec

WORD = 8  # bytes of every field
Field = tuple[str, str, int]  # type, name, length of an array or 0

# Storage types in kernel text (include/types.cuh).
STORAGE: dict[DataType, str] = {
    DataType.DOUBLE: "double",
    DataType.FLOAT: "float",
    DataType.HALF: "half_t",
    DataType.BFLOAT16: "bfloat_t",
    DataType.FP8_E4M3: "e4m3_t",
    DataType.FP8_E5M2: "e5m2_t",
    DataType.INT8: "int8_t",
    DataType.UINT8: "uint8_t",
    DataType.INT16: "int16_t",
    DataType.INT32: "int32_t",
    DataType.INT64: "int64_t",
    DataType.BYTE_BOOLEAN: "bool_t",
    DataType.BOOLEAN: "bool_t",  # in registers; in memory eight share a byte
}

# What arithmetic runs in (include/types.cuh), by compute type.
COMPUTE_TYPE: dict[DataType, str] = {
    DataType.DOUBLE: "double",
    DataType.FLOAT: "float",
    DataType.HALF: "float",
    DataType.BFLOAT16: "float",
    DataType.FAST_FLOAT_FOR_FP8: "float",
    DataType.INT32: "int",
    DataType.INT64: "long long",
    DataType.BOOLEAN: "bool",
    DataType.BYTE_BOOLEAN: "bool",
}


@dataclass(frozen=True, slots=True)
class Slot:
    """A word of the struct that an execution fills in.

    ``uid``: the tensor whose address (or, by value, whose bits) goes there; None for the kernel's scratch memory,
    ``offset`` bytes into it.
    """

    word: int
    uid: int | None
    offset: int = 0
    by_value: bool = False


_slot = lru_cache(maxsize=4096)(Slot)  # those of another shape are the same


@dataclass(frozen=True, slots=True)
class MapSlot(Slot):
    """Words that an execution fills in with the map of a tensor at its address."""

    map: TensorMap | None = None


@dataclass(frozen=True, slots=True)
class Packed:
    """The bytes of the struct with zeros in the slots."""

    data: bytes
    slots: tuple[Slot, ...]


class Table(NamedTuple):
    """Integers, and arrays of them, as fields with their values."""

    fields: tuple[Field, ...]
    words: tuple[int, ...]

    @classmethod
    def of(cls, values: Mapping[str, int | Sequence[int]]) -> Table:
        """By name; arrays are not empty."""
        lengths = [0 if isinstance(value, int) else len(value) for value in values.values()]
        words: list[int] = []
        for value in values.values():
            words += (value,) if isinstance(value, int) else value
        return cls(_integers(tuple(values), tuple(lengths)), tuple(words))


@lru_cache(maxsize=512)
def _integers(names: tuple[str, ...], lengths: tuple[int, ...]) -> tuple[Field, ...]:
    return tuple([("long long", name, length) for name, length in zip(names, lengths, strict=True)])


class Parameters:
    """Fields of a kernel's ``struct Params`` in order, with their values."""

    def __init__(self, places: Mapping[int, int] = MappingProxyType({})) -> None:
        """``places``: uid -> offset, for tensors that live in the kernel's scratch memory."""
        self._places = places
        self._fields: list[Field] = []
        self._words: list[int | float] = []
        self._kinds: dict[int, str] = {}  # of words that are no ``long long``, as ``struct`` knows them
        self._slots: list[Slot] = []
        self._maps: list[tuple[str, Sequence[tuple[TensorSpec, TensorMap]]]] = []

    def copy(self) -> Parameters:
        """The same fields, to which others can be added."""
        made = Parameters(self._places)
        made._fields, made._words, made._kinds = self._fields.copy(), self._words.copy(), self._kinds.copy()
        made._slots, made._maps = self._slots.copy(), self._maps.copy()
        return made

    def has(self, name: str) -> bool:
        """Whether ``Params`` has a field of this name."""
        return any(field[1] == name for field in self._fields)

    def _field(self, ctype: str, name: str, word: int | float = 0, kind: str = "q") -> None:
        if kind != "q":
            self._kinds[len(self._words)] = kind
        self._fields.append((ctype, name, 0))
        self._words.append(word)

    def tensor(self, name: str, spec: TensorSpec, *, is_output: bool = False) -> None:
        """The address of a tensor, or the value of a by-value tensor as ``unsigned long long`` bits."""
        if spec.is_by_value or spec.is_constant:
            ctype = "unsigned long long"
        else:
            storage = "unsigned char" if spec.data_type is DataType.BOOLEAN else STORAGE[spec.data_type]
            ctype = f"{'' if is_output else 'const '}{storage}*"
        self._fields.append((ctype, name, 0))
        self._place(spec)

    def _place(self, spec: TensorSpec) -> None:
        """The word of a tensor, which an execution fills in unless it is a constant's."""
        if spec.is_constant:
            self._kinds[len(self._words)] = "Q"
            self._words.append(int.from_bytes(_bits(spec), "little"))
            return
        place = self._places.get(spec.uid)
        uid = spec.uid if place is None else None
        self._slots.append(_slot(len(self._words), uid, place or 0, spec.is_by_value))
        self._words.append(0)

    def again(self, fields: Sequence[Field], tensors: Iterable[tuple[TensorSpec, Sequence[int]]]) -> None:
        """Fields that others like these tensors got, each an address followed by its strides, which may be none."""
        self._fields += fields
        for spec, strides in tensors:
            self._place(spec)
            self._words += strides

    @property
    def fields(self) -> tuple[Field, ...]:
        """Those so far, maps aside."""
        return tuple(self._fields)

    def maps(self, name: str, maps: Sequence[tuple[TensorSpec, TensorMap]]) -> None:
        """An array of maps, each with the tensor whose address it holds."""
        self._maps.append((name, maps))

    def scratch(self, name: str, ctype: str, offset: int) -> None:
        """An address inside the kernel's scratch memory."""
        self._slots.append(Slot(len(self._words), None, offset))
        self._field(f"{ctype}*", name)

    def nothing(self, name: str, ctype: str) -> None:
        """A null pointer, for a field that this variant of a kernel does not use."""
        self._field(f"{ctype}*", name)

    def integer(self, name: str, value: int) -> None:
        self._field("long long", name, value)

    def integers(self, name: str, values: Sequence[int]) -> None:
        """An array; an empty one still has a word, as C++ knows no arrays of nothing."""
        values = values or (0,)
        self._fields.append(("long long", name, len(values)))
        self._words.extend(values)

    def table(self, values: Mapping[str, int | Sequence[int]]) -> None:
        """Integers, and arrays of them that are not empty, by name."""
        self.rows(Table.of(values))

    def rows(self, table: Table) -> None:
        self._fields += table.fields
        self._words += table.words

    def number(self, name: str, value: float) -> None:
        self._field("double", name, value, "d")

    @property
    def text(self) -> str:
        """The struct's definition. A struct without fields gets one, so that it has the same size everywhere."""
        return _definition(tuple([(name, len(maps)) for name, maps in self._maps]), tuple(self._fields))

    def pack(self) -> Packed:
        maps, places = [one for _, maps in self._maps for one in maps], self._places
        before = len(maps) * MAP_WORDS
        slots: list[Slot] = []
        for i, (spec, one) in enumerate(maps):
            uid, place = spec.uid, places.get(spec.uid)
            slots.append(MapSlot(i * MAP_WORDS, uid if place is None else None, place or 0, False, one))
        slots += [_slot(s.word + before, s.uid, s.offset, s.by_value) for s in self._slots] if before else self._slots
        kinds = [self._kinds.get(i, "q") for i in range(len(self._words))] if self._kinds else [f"{len(self._words)}q"]
        words = struct.pack("<" + "".join(kinds), *self._words) or bytes(WORD)
        size = before * WORD + len(words)
        # A struct ends aligned as it begins.
        whole = -(-size // (MAP_WORDS * WORD)) * MAP_WORDS * WORD if maps else size
        return Packed((bytes(before * WORD) + words).ljust(whole, b"\0"), tuple(slots))


@lru_cache(maxsize=512)
def _definition(maps: tuple[tuple[str, int], ...], fields: tuple[Field, ...]) -> str:
    """The same for all shapes that share a kernel, and written once for them."""
    lines = [f"TensorMap {name}[{count}];" for name, count in maps]
    lines += [f"{ctype} {name}[{count}];" if count else f"{ctype} {name};" for ctype, name, count in fields]
    head = f"struct alignas(128) TensorMap {{ unsigned long long word[{MAP_WORDS}]; }};\n" if maps else ""
    body = "".join(f"    {line}\n" for line in (lines if fields else [*lines, "long long none;"]))
    return head + "struct Params {\n" + body + "};\n"


def _bits(spec: TensorSpec) -> bytes:
    import numpy as np

    assert spec.constant_value is not None
    return scalar_bits(cast(np.asarray(spec.constant_value), spec.data_type).tobytes())


def scalar_bits(value: bytes) -> bytes:
    """The bytes of one element as a word: lowest bytes first, as the kernel's ``from_bits`` reads them."""
    return value.ljust(WORD, b"\0")


def element_bytes(data_type: DataType) -> int:
    return ELEMENTS[data_type].bytes

"""Parameters: the struct ``Params``, a kernel's only argument, as text for the compiler and as bytes for the launch.

Every field has eight bytes (an address, a ``long long`` or a ``double``), so the order of the fields is the layout and
the host packs the struct without a compiler. Tensor maps, which have a larger alignment, precede all fields. An
execution supplies addresses and by-value scalars: they are recorded as slots, which the plan fills in.
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
    DataType.BOOLEAN: "bool_t",  # in registers; in memory a byte has eight booleans
}

# Arithmetic types in kernel text (include/types.cuh), by compute type.
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

    Args:
        word: The index of the word.
        uid: The tensor whose address, or by value whose bits, the word has; None for the workspace.
        offset: Bytes that are added to the address.
        by_value: Whether the tensor is passed by value.
    """

    word: int
    uid: int | None
    offset: int = 0
    by_value: bool = False


_slot = lru_cache(maxsize=4096)(Slot)  # problems of other shapes have equal slots


@dataclass(frozen=True, slots=True)
class MapSlot(Slot):
    """The words of a tensor map, which an execution fills in with the address of its tensor."""

    map: TensorMap | None = None


@dataclass(frozen=True, slots=True)
class PackedParams:
    """The bytes of the struct, with zeros in the slots."""

    data: bytes
    slots: tuple[Slot, ...]


class Table(NamedTuple):
    """Fields that are integers or arrays of integers, with their values."""

    fields: tuple[Field, ...]
    words: tuple[int, ...]

    @classmethod
    def of(cls, values: Mapping[str, int | Sequence[int]]) -> Table:
        """``values``: integers and nonempty arrays by field name."""
        lengths = [0 if isinstance(value, int) else len(value) for value in values.values()]
        words: list[int] = []
        for value in values.values():
            words += (value,) if isinstance(value, int) else value
        return cls(_integers(tuple(values), tuple(lengths)), tuple(words))


@lru_cache(maxsize=512)
def _integers(names: tuple[str, ...], lengths: tuple[int, ...]) -> tuple[Field, ...]:
    return tuple([("long long", name, length) for name, length in zip(names, lengths, strict=True)])


class Parameters:
    """The fields of a kernel's ``struct Params`` in order, with their values."""

    def __init__(self, workspace_offsets: Mapping[int, int] = MappingProxyType({})) -> None:
        """``workspace_offsets``: offsets in bytes, by uid, of tensors in the workspace."""
        self._workspace_offsets = workspace_offsets
        self._fields: list[Field] = []
        self._words: list[int | float] = []
        self._kinds: dict[int, str] = {}  # format characters of ``struct`` for words that are not ``long long``
        self._slots: list[Slot] = []
        self._maps: list[tuple[str, Sequence[tuple[TensorSpec, TensorMap]]]] = []

    def copy(self) -> Parameters:
        """A copy, to which further fields can be added."""
        copy = Parameters(self._workspace_offsets)
        copy._fields, copy._words, copy._kinds = self._fields.copy(), self._words.copy(), self._kinds.copy()
        copy._slots, copy._maps = self._slots.copy(), self._maps.copy()
        return copy

    def has(self, name: str) -> bool:
        """Whether ``Params`` has a field of this name."""
        return any(field[1] == name for field in self._fields)

    def _field(self, ctype: str, name: str, word: int | float = 0, kind: str = "q") -> None:
        if kind != "q":
            self._kinds[len(self._words)] = kind
        self._fields.append((ctype, name, 0))
        self._words.append(word)

    def tensor(self, name: str, spec: TensorSpec, *, is_output: bool = False) -> None:
        """Add the address of a tensor, or the bits of a by-value tensor as ``unsigned long long``."""
        if spec.is_by_value or spec.is_constant:
            ctype = "unsigned long long"
        else:
            storage = "unsigned char" if spec.data_type is DataType.BOOLEAN else STORAGE[spec.data_type]
            ctype = f"{'' if is_output else 'const '}{storage}*"
        self._fields.append((ctype, name, 0))
        self._add_word(spec)

    def _add_word(self, spec: TensorSpec) -> None:
        """Add the word of a tensor, which is a slot unless the tensor is a constant."""
        if spec.is_constant:
            self._kinds[len(self._words)] = "Q"
            self._words.append(int.from_bytes(_bits(spec), "little"))
            return
        offset = self._workspace_offsets.get(spec.uid)
        uid = spec.uid if offset is None else None
        self._slots.append(_slot(len(self._words), uid, offset or 0, spec.is_by_value))
        self._words.append(0)

    def add_cached(self, fields: Sequence[Field], tensors: Iterable[tuple[TensorSpec, Sequence[int]]]) -> None:
        """Add cached fields of operands with new tensors. Each operand has an address, followed by its strides."""
        self._fields += fields
        for spec, strides in tensors:
            self._add_word(spec)
            self._words += strides

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields so far, without tensor maps."""
        return tuple(self._fields)

    def maps(self, name: str, maps: Sequence[tuple[TensorSpec, TensorMap]]) -> None:
        """Add an array of tensor maps, each with its tensor."""
        self._maps.append((name, maps))

    def workspace_pointer(self, name: str, ctype: str, offset: int) -> None:
        """Add an address in the workspace, ``offset`` bytes from its start."""
        self._slots.append(Slot(len(self._words), None, offset))
        self._field(f"{ctype}*", name)

    def null_pointer(self, name: str, ctype: str) -> None:
        """Add a null pointer, for a field that this variant of the kernel does not use."""
        self._field(f"{ctype}*", name)

    def integer(self, name: str, value: int) -> None:
        """Add a ``long long``."""
        self._field("long long", name, value)

    def integers(self, name: str, values: Sequence[int]) -> None:
        """Add an array of ``long long``; an empty array gets one element, as C++ has no empty arrays."""
        values = values or (0,)
        self._fields.append(("long long", name, len(values)))
        self._words.extend(values)

    def table(self, values: Mapping[str, int | Sequence[int]]) -> None:
        """Add integers and nonempty arrays of integers by field name."""
        self.add_table(Table.of(values))

    def add_table(self, table: Table) -> None:
        """Add the fields of a table."""
        self._fields += table.fields
        self._words += table.words

    def number(self, name: str, value: float) -> None:
        """Add a ``double``."""
        self._field("double", name, value, "d")

    @property
    def text(self) -> str:
        """The definition of the struct. A struct without fields gets a field, as C++ has no structs of zero bytes."""
        return _definition(tuple([(name, len(maps)) for name, maps in self._maps]), tuple(self._fields))

    def pack(self) -> PackedParams:
        """The bytes and the slots of the struct."""
        maps, offsets = [pair for _, maps in self._maps for pair in maps], self._workspace_offsets
        map_words = len(maps) * MAP_WORDS
        slots: list[Slot] = []
        for i, (spec, tensor_map) in enumerate(maps):
            uid, offset = spec.uid, offsets.get(spec.uid)
            slots.append(MapSlot(i * MAP_WORDS, uid if offset is None else None, offset or 0, False, tensor_map))
        if map_words:
            slots += [_slot(s.word + map_words, s.uid, s.offset, s.by_value) for s in self._slots]
        else:
            slots += self._slots
        kinds = [self._kinds.get(i, "q") for i in range(len(self._words))] if self._kinds else [f"{len(self._words)}q"]
        words = struct.pack("<" + "".join(kinds), *self._words) or bytes(WORD)
        data = bytes(map_words * WORD) + words
        # The size of a C++ struct is a multiple of its alignment.
        size = -(-len(data) // (MAP_WORDS * WORD)) * MAP_WORDS * WORD if maps else len(data)
        return PackedParams(data.ljust(size, b"\0"), tuple(slots))


@lru_cache(maxsize=512)
def _definition(maps: tuple[tuple[str, int], ...], fields: tuple[Field, ...]) -> str:
    """The text of the struct, which all shapes of a kernel have in common."""
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
    """The bytes of an element as a word, in its low bytes, where ``from_bits`` of values.cuh reads them."""
    return value.ljust(WORD, b"\0")


def element_bytes(data_type: DataType) -> int:
    """Bytes of an element of a data type."""
    return ELEMENTS[data_type].bytes

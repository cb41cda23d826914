"""Tensors in the text of a standalone program: names, element types, and the offset of an element."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from graphdnn.dtypes import COMPUTE, ELEMENTS, FLOATS
from graphdnn.engines.cuda.codegen.literals import literal
from graphdnn.engines.cuda.codegen.parameters import STORAGE
from graphdnn.enums import DataType
from graphdnn.tensors import TensorSpec, packed_strides

EPSILON = 1e-5  # of every floating tensor that is passed by value: it suits an epsilon and a factor


@dataclass(frozen=True, slots=True)
class Access:
    """A tensor as loops read it: in the caller's layout, or packed where the loops have computed it."""

    spec: TensorSpec
    is_computed: bool

    @property
    def name(self) -> str:
        """Of the pointer."""
        return f"{'expected' if self.is_computed else 'tensor'}_{uid_text(self.spec)}"

    @property
    def storage(self) -> str:
        return STORAGE[self.spec.data_type]

    @property
    def strides(self) -> tuple[int, ...]:
        return packed_strides(self.spec.extents) if self.is_computed else self.spec.strides

    def value(self, at: Sequence[str], arithmetic: str) -> str:
        """The element at these coordinates, in a type of arithmetic."""
        if self.spec.is_by_value or self.spec.is_constant:
            return literal(by_value(self.spec), arithmetic)
        return f"widen<{arithmetic}>({self.name}[{offset(at, self.strides)}])"

    def broadcast(self, at: Sequence[str], arithmetic: str) -> str:
        """The same for an operand whose extents of 1 serve every coordinate."""
        extents = self.spec.extents
        lined_up = at[len(at) - len(extents) :]
        return self.value(["0" if n == 1 else i for i, n in zip(lined_up, extents, strict=True)], arithmetic)


def uid_text(spec: TensorSpec) -> str:
    """A uid as a part of a name."""
    return str(spec.uid) if spec.uid >= 0 else f"m{-spec.uid}"


def by_value(spec: TensorSpec) -> float:
    """The value of a tensor without memory."""
    if spec.constant_value is not None:
        return spec.constant_value
    return EPSILON if spec.data_type in FLOATS else 1


def offset(at: Sequence[str], strides: Sequence[int]) -> str:
    """The sum of coordinates times strides."""
    terms = [i if s == 1 else f"{i} * {s}LL" for i, s in zip(at, strides, strict=True) if i != "0" and s]
    return " + ".join(terms) or "0"


def arithmetic_of(compute_type: DataType) -> str:
    """What loops compute in: floats in double, so that they round less than any kernel does."""
    kind = COMPUTE[compute_type].kind if compute_type in COMPUTE else "f"
    if kind == "f":
        return "double"
    if kind == "b":
        return "bool"
    return "long long" if compute_type is DataType.INT64 else "int"


def span(spec: TensorSpec) -> int:
    """Elements from the first to the last in memory."""
    return spec.bytes // ELEMENTS[spec.data_type].bytes


def coordinates(extents: Sequence[int]) -> list[str]:
    """Lines that divide the number of an element, in row-major order, into its coordinates ``i0``, ``i1``, ..."""
    lines = []
    for axis, extent in enumerate(extents):
        inner = prod(extents[axis + 1 :])
        place = "i" if inner == 1 else f"i / {inner}"
        whole = place if axis == 0 else f"({place}) % {extent}" if inner > 1 else f"i % {extent}"
        lines.append(f"const long long i{axis} = {whole};")
    return lines

"""Addresses of a generated function's operands: fields of ``Params``, and expressions of a coordinate ``at``."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from graphdnn.engines.cuda.codegen.index_space import INT_MAX, IndexSpace, is_addressable
from graphdnn.engines.cuda.codegen.parameters import Parameters
from graphdnn.engines.cuda.codegen.vectors import widest_of_bits
from graphdnn.enums import DataType
from graphdnn.tensors import TensorSpec, packed_strides


class Addresses:
    """Of tensors in memory and by value, each with its fields from its first use on."""

    def __init__(
        self,
        parameters: Parameters,
        space: IndexSpace,
        prefix: str,
        width: int,
        vector_axis: int,
        *,
        linear: str,
        written: Collection[int],
        is_conditional: bool,
    ) -> None:
        """Arguments as those of ``Program``. ``is_conditional``: the function is called at several places along the
        vector axis, and stores nothing at some.
        """
        self._parameters, self._space, self._prefix = parameters, space, prefix
        self._width, self._vector_axis = width, vector_axis
        self._linear, self._packed, self._written = linear, packed_strides(space.sizes), written
        self._is_conditional = is_conditional
        self._fields: dict[int, str] = {}  # uid -> name
        self._factors: set[int] = set()

    def field(self, spec: TensorSpec, *, is_output: bool) -> str:
        """The name of the tensor's field."""
        known = self._fields.get(spec.uid)
        if known is not None:
            return known
        field = self._fields[spec.uid] = f"{self._prefix}{len(self._fields)}"
        self._parameters.tensor(field, spec, is_output=is_output)
        if not (spec.is_by_value or spec.is_constant):
            if is_addressable(spec) or spec.vector_count == 1:
                self._parameters.integers(f"{field}_stride", self._space.strides(spec))
            else:
                self._parameters.integers(f"{field}_stride", [s * spec.vector_count for s in spec.strides])
        return field

    def place(self, spec: TensorSpec, field: str) -> str:
        """The address of the element at ``at``. What neighbours of a pack have in common comes first: calls at several
        places along the vector axis share it.
        """
        j = self._vector_axis
        if self._width == 1 or not self._is_conditional or spec.vector_count != 1 or self._space.strides(spec)[j] != 1:
            return f"p.{field} + ({self.offset(spec, field)})"
        return f"p.{field} + ({self.offset(spec, field, without=j)}) + at[{j}]"

    def step(self, spec: TensorSpec, field: str) -> str:
        """How the elements lie along the vector axis: a tag type, or a stride."""
        stride = self._space.strides(spec)[self._vector_axis] if self._width != 1 else 1
        return {0: "Broadcast()", 1: "Packed()"}.get(stride, f"Strided{{p.{field}_stride[{self._vector_axis}]}}")

    def is_linear(self, spec: TensorSpec) -> bool:
        """Whether the elements follow each other in the order of the space, which the caller counts."""
        return bool(self._linear) and is_addressable(spec) and self._is_packed(self._space.strides(spec))

    def offset(self, spec: TensorSpec, field: str, without: int = -1, lane: str = "e", at: str = "at") -> str:
        """Elements from the tensor's first to the one at ``at``; of bits, to each of its neighbours by ``lane``."""
        if spec.vector_count != 1:
            return self._vectorized_offset(spec, field)
        strides = self._space.strides(spec)
        if self.is_linear(spec):
            return self._linear
        kind = "(int)" if spec.span <= INT_MAX else ""  # a 64-bit product is three instructions
        long = "" if kind else "LL"
        terms = [
            f"{at}[{j}] * {f'{stride}{long}' if j in self._written else f'{kind}p.{field}_stride[{j}]'}"
            for j, stride in enumerate(strides)
            if stride and j != without
        ]
        if lane and spec.data_type is DataType.BOOLEAN and self._width != 1 and strides[self._vector_axis]:
            terms.append(f"{lane} * p.{field}_stride[{self._vector_axis}]")
        return " + ".join(terms) or "0"

    def _is_packed(self, strides: Sequence[int]) -> bool:
        triples = zip(self._space.sizes, strides, self._packed, strict=True)
        return all(size == 1 or stride == packed for size, stride, packed in triples)

    def _vectorized_offset(self, spec: TensorSpec, field: str) -> str:
        """Vectors of channels: the index along that axis splits into a vector and a place in it."""
        terms = []
        for axis, extent in enumerate(spec.extents):
            if extent == 1:
                continue
            index, count = self.index(axis), spec.vector_count
            if axis == spec.vectorized_dimension:
                terms.append(f"({index}) / {count} * p.{field}_stride[{axis}] + ({index}) % {count}")
            else:
                terms.append(f"({index}) * p.{field}_stride[{axis}]")
        return " + ".join(terms) or "0"

    def index(self, logical: int) -> str:
        """The index along a tensor's axis."""
        terms = []
        for j, axis in enumerate(self._space.axes):
            if axis.logical != logical or axis.size == 1:
                continue
            factor = ""
            if any(a.logical == logical and a is not axis for a in self._space.axes) and axis.multiplier != 1:
                factor = f" * p.{self._prefix}_factor{j}"
                if j not in self._factors:
                    self._factors.add(j)
                    self._parameters.integer(f"{self._prefix}_factor{j}", axis.multiplier)
            lane = " + e" if self._width != 1 and j == self._vector_axis else ""
            terms.append(f"(long long)(at[{j}]{lane}){factor}")
        return " + ".join(terms) or "0LL"

    def is_pack_of_bits(self, spec: TensorSpec) -> bool:
        """Bits of one byte or of whole ones."""
        if self._width == 1 or spec.data_type is not DataType.BOOLEAN or spec.vector_count != 1:
            return False
        j = self._vector_axis
        return self._space.strides(spec)[j] == 1 and widest_of_bits(self._space, spec, j) >= self._width

    @property
    def operands(self) -> tuple[int, ...]:
        """Uids of the tensors in memory and by value, in the order of their fields."""
        return tuple(self._fields)

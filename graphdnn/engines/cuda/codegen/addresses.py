"""Addresses of the operands of a generated function: fields of ``Params``, and expressions of ``coord``."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from graphdnn.engines.cuda.codegen.index_space import INT_MAX, IndexSpace, is_addressable
from graphdnn.engines.cuda.codegen.parameters import Parameters
from graphdnn.engines.cuda.codegen.vectors import widest_of_bits
from graphdnn.enums import DataType
from graphdnn.tensors import TensorSpec, packed_strides


class Addresses:
    """The addresses of operands. The first use of an operand adds its fields to the parameters."""

    def __init__(
        self,
        parameters: Parameters,
        space: IndexSpace,
        prefix: str,
        width: int,
        vector_axis: int,
        *,
        linear_index: str,
        static_stride_axes: Collection[int],
        is_conditional: bool,
    ) -> None:
        """The arguments are those of ``Program``. ``is_conditional``: whether a predicate controls the stores, and the
        kernel calls the function at several positions along the vector axis.
        """
        self._parameters, self._space, self._prefix = parameters, space, prefix
        self._width, self._vector_axis = width, vector_axis
        self._linear_index, self._packed = linear_index, packed_strides(space.sizes)
        self._static_stride_axes = static_stride_axes
        self._is_conditional = is_conditional
        self._fields: dict[int, str] = {}  # uid -> name
        self._factors: set[int] = set()

    def field(self, spec: TensorSpec, *, is_output: bool) -> str:
        """The name of the field with the tensor's address or value."""
        field_name = self._fields.get(spec.uid)
        if field_name is not None:
            return field_name
        field = self._fields[spec.uid] = f"{self._prefix}{len(self._fields)}"
        self._parameters.tensor(field, spec, is_output=is_output)
        if not (spec.is_by_value or spec.is_constant):
            if is_addressable(spec) or spec.vector_count == 1:
                self._parameters.integers(f"{field}_stride", self._space.strides(spec))
            else:
                self._parameters.integers(f"{field}_stride", [s * spec.vector_count for s in spec.strides])
        return field

    def address(self, spec: TensorSpec, field: str) -> str:
        """The address of the element at ``coord``. If a kernel calls the function at several positions along the vector
        axis, the terms of the other axes come first, so that all calls share them.
        """
        j = self._vector_axis
        if self._width == 1 or not self._is_conditional or spec.vector_count != 1 or self._space.strides(spec)[j] != 1:
            return f"p.{field} + ({self.offset(spec, field)})"
        return f"p.{field} + ({self.offset(spec, field, without=j)}) + coord[{j}]"

    def layout(self, spec: TensorSpec, field: str) -> str:
        """The layout of the elements along the vector axis: a tag type of values.cuh."""
        stride = self._space.strides(spec)[self._vector_axis] if self._width != 1 else 1
        return {0: "Broadcast()", 1: "Packed()"}.get(stride, f"Strided{{p.{field}_stride[{self._vector_axis}]}}")

    def is_linear(self, spec: TensorSpec) -> bool:
        """Whether the tensor is packed in row-major order of the space, so that the linear index is its offset."""
        return bool(self._linear_index) and is_addressable(spec) and self._is_packed(self._space.strides(spec))

    def offset(self, spec: TensorSpec, field: str, without: int = -1, element: str = "e", coord: str = "coord") -> str:
        """The offset of the element at ``coord``, in elements.

        Args:
            spec: The tensor.
            field: The name of its field.
            without: An axis to leave out.
            element: The index of a bit in a vector of booleans, which has no address of its own.
            coord: The name of the coordinate.
        """
        if spec.vector_count != 1:
            return self._vectorized_offset(spec, field)
        strides = self._space.strides(spec)
        if self.is_linear(spec):
            return self._linear_index
        cast = "(int)" if spec.span <= INT_MAX else ""  # a 64-bit product takes three instructions
        long = "" if cast else "LL"
        terms = [
            f"{coord}[{j}] * {f'{stride}{long}' if j in self._static_stride_axes else f'{cast}p.{field}_stride[{j}]'}"
            for j, stride in enumerate(strides)
            if stride and j != without
        ]
        if element and spec.data_type is DataType.BOOLEAN and self._width != 1 and strides[self._vector_axis]:
            terms.append(f"{element} * p.{field}_stride[{self._vector_axis}]")
        return " + ".join(terms) or "0"

    def _is_packed(self, strides: Sequence[int]) -> bool:
        triples = zip(self._space.sizes, strides, self._packed, strict=True)
        return all(size == 1 or stride == packed for size, stride, packed in triples)

    def _vectorized_offset(self, spec: TensorSpec, field: str) -> str:
        """The offset in a tensor with vectorized channels, whose index is a vector and a position in the vector."""
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
        """The index along the tensors' axis ``logical``."""
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
            element = " + e" if self._width != 1 and j == self._vector_axis else ""
            terms.append(f"(long long)(coord[{j}]{element}){factor}")
        return " + ".join(terms) or "0LL"

    def is_bit_vector(self, spec: TensorSpec) -> bool:
        """Whether a vector of booleans is packed in one byte, or in whole bytes."""
        if self._width == 1 or spec.data_type is not DataType.BOOLEAN or spec.vector_count != 1:
            return False
        j = self._vector_axis
        return self._space.strides(spec)[j] == 1 and widest_of_bits(self._space, spec, j) >= self._width

    @property
    def operands(self) -> tuple[int, ...]:
        """Uids of the operands, in the order of their fields."""
        return tuple(self._fields)

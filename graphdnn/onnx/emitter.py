"""Emitter: writes operations into a ``Graph`` with the types and the broadcasting of ONNX.

Every tensor has its type set: a value that passes through a tensor is rounded to that type. Arithmetic is done in
FLOAT or DOUBLE for floats, in INT32 or INT64 for integers. A scalar of ONNX is a tensor ``[1]``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod
from typing import Any

import numpy as np

from graphdnn.builder import Graph, Tensor
from graphdnn.dtypes import BOOLEANS, ELEMENTS, Array
from graphdnn.enums import DataType, PointwiseMode, ReductionOperator, ReshapeMode
from graphdnn.onnx.element_types import ElementType
from graphdnn.operations.pointwise_modes import POINTWISE

Operand = Tensor | float | int
_PREDICATES = ("comparison", "logical")


class Emitter:
    """Operations of one graph. ``constants`` maps each tensor with constant contents to its array."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.label = ""  # of the operations that follow: the node's name
        self.constants: dict[Tensor, Array] = {}

    # Operands.

    def input(self, name: str, dims: Sequence[int], data_type: DataType) -> Tensor:
        """A tensor that an array is bound to."""
        return self.graph.tensor(dims, data_type=data_type, name=name)

    def constant(self, array: Array, data_type: DataType | None = None, name: str = "") -> Tensor:
        """A tensor with constant contents, stored in ``data_type``."""
        stored = np.ascontiguousarray(array if data_type is None else array.astype(ELEMENTS[data_type].numpy))
        stored = stored.reshape(stored.shape or (1,))
        tensor = self.graph.tensor(stored.shape, data_type=stored.dtype, name=name)
        self.constants[tensor] = stored
        return tensor

    def ones(self, dims: Sequence[int], data_type: DataType) -> Tensor:
        return self.constant(np.ones(dims), data_type)

    # Elementwise.

    def pointwise(
        self, mode: str, *operands: Operand, to: DataType | None = None, compute: DataType | None = None, **more: Any
    ) -> Tensor:
        """An elementwise mode over operands that broadcast. Numbers are constants of the arithmetic.

        ``to`` is the type of the result: the type of the first tensor, or booleans for predicates.
        """
        row = POINTWISE[PointwiseMode[mode]]
        tensors = [o for o in operands if isinstance(o, Tensor)]
        values = [o for o in operands[: 2 if row.kind == "select" else None] if isinstance(o, Tensor)]
        arithmetic = _given(compute, arithmetic_type([type_of(t) for t in values or tensors], row.kind))
        rank = max(len(t.dim or ()) for t in tensors)
        if row.kind == "select" and arithmetic is DataType.INT32 and any(type_of(t) in BOOLEANS for t in values):
            arithmetic = DataType.BYTE_BOOLEAN
        ports: dict[str, Any] = {
            port: self._operand(o, rank, arithmetic, is_predicate=port == "t")
            for port, o in zip(row.operands, operands, strict=True)
        }
        found = self.graph.pointwise(
            PointwiseMode[mode], compute_data_type=arithmetic, name=self.label, **ports, **more
        )  # fmt: skip
        default = DataType.BYTE_BOOLEAN if row.kind in _PREDICATES else type_of((values or tensors)[0])
        return found.set_data_type(_given(to, default))

    def _operand(self, operand: Operand, rank: int, arithmetic: DataType, is_predicate: bool) -> Tensor:
        if not isinstance(operand, Tensor):
            return self.graph.tensor_scalar(operand, arithmetic)
        array = self.constants.get(operand)
        if array is not None and array.size == 1 and not is_predicate and arithmetic not in BOOLEANS:
            return self.graph.tensor_scalar(array.reshape(-1)[0].item(), operand.data_type)
        return self.aligned(operand, rank)

    def aligned(self, tensor: Tensor, rank: int) -> Tensor:
        """With axes of extent 1 in front, up to ``rank`` axes."""
        dims = tuple(tensor.dim or ())
        return self.reshape(tensor, (1,) * (rank - len(dims)) + dims)

    def convert(self, tensor: Tensor, to: DataType, compute: DataType | None = None) -> Tensor:
        """The values in another type: integers are rounded to nearest even and saturate."""
        kinds = (type_of(tensor), to)
        if kinds[0] is kinds[1]:
            return tensor
        if compute is None:
            wide = DataType.DOUBLE in kinds or (DataType.INT64 in kinds and to in _NARROW_FLOATS)
            compute = DataType.DOUBLE if wide else arithmetic_type([*kinds] if wide else [kinds[0]], "arithmetic")
            compute = DataType.INT32 if compute in BOOLEANS else compute
        return self.pointwise("IDENTITY", tensor, to=to, compute=compute)

    def wide(self, tensor: Tensor) -> Tensor:
        """In the type of its arithmetic, for operations with several steps."""
        return self.convert(tensor, self.arithmetic_of(tensor))

    def arithmetic_of(self, tensor: Tensor) -> DataType:
        """The type of the arithmetic on a tensor."""
        return arithmetic_type([type_of(tensor)], "arithmetic")

    def float_of(self, tensor: Tensor) -> DataType:
        """The type in which a tensor is computed as a float."""
        kind = arithmetic_type([type_of(tensor)], "arithmetic")
        wide = kind in (DataType.DOUBLE, DataType.INT64, DataType.INT32)
        return DataType.DOUBLE if wide and ELEMENTS[type_of(tensor)].bits > _FLOAT_HOLDS else DataType.FLOAT

    def constant_like(self, tensor: Tensor, value: float) -> Tensor:
        """One number as a tensor of the type of another; an unsigned type gets INT32."""
        kind = type_of(tensor)
        kind = DataType.INT32 if ELEMENTS[kind].smallest > value else kind
        return self.constant(np.full((1,) * len(tensor.dim or ()), value), kind)

    def rounded(self, tensor: Tensor) -> Tensor:
        """Integers of a float, halves to even: beyond 2^52 (2^23) every float is one."""
        wide = self.wide(tensor)
        large = 2.0**52 if type_of(wide) is DataType.DOUBLE else 2.0**23
        whole = self.convert(self.convert(wide, DataType.INT64), type_of(wide))
        # The integer has no sign of zero: -0.2 becomes -0.
        whole = self.select(self.pointwise("CMP_EQ", whole, 0.0), self.pointwise("MUL", wide, 0.0), whole)
        is_small = self.pointwise("CMP_LT", self.pointwise("ABS", wide), large)
        return self.convert(self.select(is_small, whole, wide), type_of(tensor))

    def truncated(self, tensor: Tensor, to: ElementType) -> Tensor:
        """A float as an integer, rounded toward zero; a float stays one."""
        if not to.is_integer:
            return self.convert(tensor, to.carrier)
        if ELEMENTS[type_of(tensor)].kind == "float":
            down, up = self.pointwise("FLOOR", tensor), self.pointwise("CEIL", tensor)
            tensor = self.select(self.pointwise("CMP_LT", tensor, 0.0), up, down)
            wide = DataType.INT64 if to.bits >= 32 else DataType.INT32
            tensor = self.convert(tensor, wide)
        return self.wrapped(tensor, to)

    def wrapped(self, tensor: Tensor, to: ElementType) -> Tensor:
        """An integer modulo 2^bits in the range of ``to``, stored in its carrier."""
        if to.bits >= ELEMENTS[arithmetic_type([type_of(tensor)], "arithmetic")].bits:
            return self.convert(tensor, to.carrier)
        wide = arithmetic_type([type_of(tensor)], "arithmetic")
        if ELEMENTS[wide].bits <= to.bits:
            wide = DataType.INT64
        span = 2**to.bits
        if to.is_signed:
            tensor = self.pointwise("ADD", tensor, span // 2, to=wide, compute=wide)
        tensor = self.pointwise("FLOOR_MOD", tensor, span, to=wide, compute=wide)
        if to.is_signed:
            return self.pointwise("SUB", tensor, span // 2, to=to.carrier, compute=wide)
        return self.convert(tensor, to.carrier)

    def select(self, condition: Tensor, a: Operand, b: Operand, to: DataType | None = None) -> Tensor:
        """``a`` where the condition is true, else ``b``; one of the two is a tensor."""
        return self.pointwise("BINARY_SELECT", a, b, condition, to=to)

    def index(self, dims: Sequence[int], axis: int, data_type: DataType = DataType.INT64) -> Tensor:
        """The positions along an axis, with extent 1 on the other axes."""
        shape = [1] * len(dims)
        shape[axis] = dims[axis]
        return self.constant(np.arange(dims[axis]).reshape(shape), data_type)

    # Reductions and products.

    def reduce(self, tensor: Tensor, mode: str, axes: Sequence[int], to: DataType | None = None) -> Tensor:
        """Reduce axes to extent 1."""
        dims = [1 if a in axes else d for a, d in enumerate(tensor.dim or ())]
        kind = arithmetic_type([type_of(tensor), *([] if to is None else [to])], "arithmetic")
        found = self.graph.reduction(tensor, ReductionOperator[mode], compute_data_type=kind, name=self.label)
        return found.set_dim(dims).set_data_type(_given(to, type_of(tensor)))

    def matmul(self, a: Tensor, b: Tensor, to: DataType | None = None) -> Tensor:
        """``a @ b``; leading axes broadcast."""
        rank = max(len(a.dim or ()), len(b.dim or ()))
        kind = arithmetic_type([type_of(a), type_of(b)], "arithmetic")
        found = self.graph.matmul(self.aligned(a, rank), self.aligned(b, rank), compute_data_type=kind, name=self.label)
        return found.set_data_type(_given(to, type_of(a)))

    # Movement.

    def reshape(self, tensor: Tensor, dims: Sequence[int]) -> Tensor:
        """The same elements, in row-major order, under other extents."""
        dims = tuple(dims) or (1,)
        if tuple(tensor.dim or ()) == dims:
            return tensor
        array = self.constants.get(tensor)
        if array is not None:  # another view of the array, so that nothing is moved
            return self.constant(array.reshape(dims), name=tensor.name)
        found = self.graph.reshape(tensor, name=self.label, reshape_mode=ReshapeMode.LOGICAL)
        return found.set_dim(dims).set_data_type(type_of(tensor))

    def transpose(self, tensor: Tensor, permutation: Sequence[int]) -> Tensor:
        if list(permutation) == list(range(len(permutation))):
            return tensor
        found = self.graph.transpose(tensor, list(permutation), name=self.label)
        return found.set_data_type(type_of(tensor))

    def slice(self, tensor: Tensor, slices: Sequence[slice]) -> Tensor:
        """A part with positive steps."""
        dims = tensor.dim or ()
        if all(s.indices(d) == (0, d, 1) for s, d in zip(slices, dims, strict=True)):
            return tensor
        return self.graph.slice(tensor, list(slices), name=self.label).set_data_type(type_of(tensor))

    def part(self, tensor: Tensor, axis: int, start: int, stop: int, step: int = 1) -> Tensor:
        """A part along one axis."""
        slices = [slice(None)] * len(tensor.dim or ())
        slices[axis] = slice(start, stop, step)
        return self.slice(tensor, slices)

    def concat(self, tensors: Sequence[Tensor], axis: int) -> Tensor:
        if len(tensors) == 1:
            return tensors[0]
        return self.graph.concatenate(list(tensors), axis, name=self.label).set_data_type(type_of(tensors[0]))

    def taken(self, tensor: Tensor, axis: int, positions: Sequence[int]) -> Tensor:
        """The elements at constant positions along an axis: runs of positions are slices, joined in order."""
        return self.concat([self.part(tensor, axis, *run) for run in runs(positions)], axis)

    def expand(self, tensor: Tensor, dims: Sequence[int]) -> Tensor:
        """Repeated along axes of extent 1."""
        tensor = self.aligned(tensor, len(dims))
        if tuple(tensor.dim or ()) == tuple(dims):
            return tensor
        array = self.constants.get(tensor)
        if array is not None:
            return self.constant(np.broadcast_to(array, tuple(dims)))
        kind = type_of(tensor)
        if kind in BOOLEANS:
            return self.pointwise("LOGICAL_AND", tensor, self.ones(dims, kind))
        return self.pointwise("MUL", tensor, self.ones(dims, kind))

    def padded(self, tensor: Tensor, axis: int, before: int, behind: int, value: float) -> Tensor:
        """With elements of one value before and behind along an axis."""
        dims = list(tensor.dim or ())
        parts = [tensor]
        for count, place in ((before, 0), (behind, len(parts) + (before > 0))):
            if count > 0:
                shape = [*dims[:axis], count, *dims[axis + 1 :]]
                parts.insert(place, self.constant(np.full(shape, value), type_of(tensor)))
        return self.concat(parts, axis)

    def drop_unread(self, outputs: Collection[Tensor]) -> None:
        """Remove operations whose results nothing reads: the last of the steps that a loop prepares, for example."""
        nodes = self.graph._description.nodes
        read = {*outputs}
        for node in nodes[::-1]:
            if read.isdisjoint(node.outputs.values()):
                nodes.remove(node)
            else:
                read.update(node.inputs())

    def computed(self, tensor: Tensor) -> Tensor:
        """A tensor that an operation writes: a copy of one that an array is bound to."""
        is_bool = type_of(tensor) in BOOLEANS
        return self.pointwise("IDENTITY", tensor, compute=DataType.BYTE_BOOLEAN if is_bool else None)


_FLOAT_HOLDS = 16  # bits of an integer that FLOAT holds whole
_NARROW_FLOATS = (DataType.HALF, DataType.BFLOAT16, DataType.FP8_E4M3, DataType.FP8_E5M2)


def _given(kind: DataType | None, otherwise: DataType) -> DataType:
    """FLOAT is 0, so ``or`` would take it for an open type."""
    return otherwise if kind is None else kind


def type_of(tensor: Tensor) -> DataType:
    assert tensor.data_type is not None
    return tensor.data_type


def size_of(tensor: Tensor) -> int:
    return prod(tensor.dim or ())


def arithmetic_type(types: Sequence[DataType], kind: str) -> DataType:
    """The type of the arithmetic on operands of these types."""
    elements = [ELEMENTS[t] for t in types]
    if DataType.DOUBLE in types:
        return DataType.DOUBLE
    if any(e.kind == "float" for e in elements):
        return DataType.FLOAT
    if all(e.kind == "bool" for e in elements) and kind in ("logical", "select"):
        return DataType.BYTE_BOOLEAN
    return DataType.INT64 if DataType.INT64 in types else DataType.INT32


def runs(positions: Sequence[int]) -> list[tuple[int, int]]:
    """(start, stop) of maximal runs of consecutive positions."""
    found: list[tuple[int, int]] = []
    for position in positions:
        if found and found[-1][1] == position:
            found[-1] = (found[-1][0], position + 1)
        else:
            found.append((position, position + 1))
    return found

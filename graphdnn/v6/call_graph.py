"""Draft: the operation graph of one legacy call in the making, and which argument each of its tensors is.

Legacy calls blend (``alpha * result + beta * old``) and may work in place; operations of a graph
have neither. ``target`` and ``settle`` write the blend as one more operation, with the old contents
as an input of its own, whose array is copied before the plan runs if other threads may read it
where it is written. With beta 0 that input is not there, so the old contents are never read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphdnn.dtypes import ELEMENTS, cast
from graphdnn.enums import DataType, PointwiseMode, ReductionOperator
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.operations import Operation, PointwiseOperation, PointwiseSpec, Reduction, ReductionSpec
from graphdnn.scalars import element, is_kept
from graphdnn.tensors import TensorSpec, ordered_strides, packed_strides, stride_order
from graphdnn.v6.descriptor_values import Filter, Tensor
from graphdnn.v6.enums import cudnnDataType_t
from graphdnn.v6.errors import CudnnError
from graphdnn.v6.layouts import element_of, filter_strides
from graphdnn.v6.rules import NEGATIVE_STRIDE


@dataclass(frozen=True, slots=True)
class Slot:
    """Tensor ``spec`` of the graph is the call's data argument ``index``; ``is_copy``: its contents before the call.

    ``described``: what the argument's descriptor says, where the graph sees it under other extents. ``is_host``: the
    call itself has it, on the host.
    """

    spec: TensorSpec
    index: int
    is_copy: bool = False
    described: Tensor | None = None
    is_host: bool = False


class Draft:
    """Uids count from 1 in the order of creation. ``alignment``: what addresses are multiples of, in bytes, beside
    that of elements; tensors that are smaller promise nothing more.
    """

    def __init__(self, call: str, alignment: int = 1) -> None:
        self.call = call
        self.alignment = alignment
        self.operations: list[Operation] = []
        self.slots: list[Slot] = []
        self._uid = 0

    def memory(self, index: int, value: Tensor | Filter, name: str, *, is_copy: bool = False) -> TensorSpec:
        """Data argument ``index``, laid out as its descriptor says."""
        element, vector = element_of(value.data_type)
        strides = value.strides if isinstance(value, Tensor) else filter_strides(value)
        if min(strides) < 1:
            raise CudnnError(NEGATIVE_STRIDE.reject(self.call, f"{name}: strides", strides))
        dims = value.dims if vector == 1 else (value.dims[0], value.dims[1] // vector, *value.dims[2:])
        return self.view(index, element, dims, strides, name, vector=vector, is_copy=is_copy)

    def view(
        self, index: int, element: DataType, dims: Sequence[int], strides: Sequence[int], name: str, *,
        vector: int = 1, is_copy: bool = False, described: Tensor | None = None,
    ) -> TensorSpec:  # fmt: skip
        """Data argument ``index`` under extents and strides of the caller's choice."""
        spec = self._promising(TensorSpec(
            uid=self._next(), data_type=element, dims=tuple(dims), strides=tuple(strides), name=name,
            byte_alignment=1 if element in (DataType.INT8, DataType.UINT8) else _bytes(element),
            vector_count=vector, vectorized_dimension=1 if vector > 1 else -1,
        ))  # fmt: skip
        self.slots.append(Slot(spec, index, is_copy, described))
        return spec

    def plain(
        self, index: int, data_type: DataType, dims: Sequence[int], name: str, *, is_copy: bool = False,
        is_host: bool = False,
    ) -> TensorSpec:  # fmt: skip
        """Data argument ``index`` that no descriptor describes: packed elements of a type of the core."""
        dims = tuple(dims)
        spec = self._promising(TensorSpec(
            uid=self._next(), data_type=data_type, dims=dims, strides=packed_strides(dims), name=name,
            byte_alignment=ELEMENTS[data_type].bytes,
        ))  # fmt: skip
        self.slots.append(Slot(spec, index, is_copy, is_host=is_host))
        return spec

    def _promising(self, spec: TensorSpec) -> TensorSpec:
        if spec.bytes < self.alignment or spec.byte_alignment >= self.alignment:
            return spec
        return spec.model_copy(update={"byte_alignment": self.alignment})

    def virtual(self, dims: Sequence[int], data_type: DataType, like: TensorSpec | None = None) -> TensorSpec:
        """``like``: what it is computed from or becomes: kernels that pass it through memory have it in that order."""
        dims = tuple(dims)
        order = range(len(dims)) if like is None or like.rank != len(dims) else stride_order(like.dims, like.strides)
        return TensorSpec(
            uid=self._next(), data_type=data_type, dims=dims, strides=ordered_strides(dims, order), is_virtual=True
        )

    def constant(self, number: int | float, like: TensorSpec, data_type: DataType) -> TensorSpec:
        """A number as C converts it to the type: what is too large for a float is infinite."""
        ones = (1,) * like.rank
        kept = number if is_kept(number, data_type) else element(cast(np.asarray(number), data_type)[()])
        return TensorSpec(
            uid=self._next(), data_type=data_type, dims=ones, strides=ones, is_by_value=True, constant_value=kept
        )

    def pointwise(
        self,
        mode: PointwiseMode,
        math: DataType,
        *operands: TensorSpec,
        out: TensorSpec | None = None,
        out_type: DataType | None = None,
        alpha1: float = 1.0,
        alpha2: float = 1.0,
        **parameters: Any,
    ) -> TensorSpec:
        """One elementwise operation; its result is virtual and of the math type, unless the caller says otherwise."""
        spec = PointwiseSpec(mode=mode, math_type=math, **parameters)
        ports: dict[str, Any] = dict(zip(spec.row.operands, operands, strict=True))
        port = "dx" if spec.row.kind == "backward" else "y"
        if out is None:
            dims = tuple(max(axis) for axis in zip(*(t.extents for t in operands), strict=True))
            out = self.virtual(dims, math if out_type is None else out_type, max(operands, key=lambda t: t.elements))
        self.add(PointwiseOperation(spec=spec, alpha1=alpha1, alpha2=alpha2, **(ports | {port: out})))
        return out

    def reduce(
        self, operator: ReductionOperator, math: DataType, x: TensorSpec, dims: Sequence[int] = (),
        out: TensorSpec | None = None,
    ) -> TensorSpec:  # fmt: skip
        y = self.virtual(dims, math, x) if out is None else out
        self.add(Reduction(x=x, y=y, spec=ReductionSpec(operator=operator, compute_type=math, is_deterministic=True)))
        return y

    def target(
        self, index: int, value: Tensor | Filter, name: str, alpha: float, beta: float, math: DataType,
        memory: Callable[..., TensorSpec] | None = None,
    ) -> TensorSpec:  # fmt: skip
        """Where an operation writes its result: the output itself, or a virtual tensor that ``settle`` blends.

        ``memory``: how the output is seen, where it is not as described.
        """
        seen = (memory or self.memory)(index, value, name)
        if alpha == 1.0 and beta == 0.0:
            return seen
        self.slots.pop()
        return self.virtual(value.dims if memory is None else seen.dims, math, seen)

    def settle(
        self, result: TensorSpec, index: int, value: Tensor | Filter, name: str, alpha: float, beta: float,
        math: DataType, memory: Callable[..., TensorSpec] | None = None,
    ) -> None:  # fmt: skip
        """``alpha * result + beta * old`` into the output; nothing where ``target`` gave the output itself."""
        if not result.is_virtual:
            return
        memory = memory or self.memory
        if beta == 0.0:
            self.pointwise(PointwiseMode.IDENTITY, math, result, out=memory(index, value, name), alpha1=alpha)
            return
        old = memory(index, value, f"old {name}", is_copy=True)
        out = memory(index, value, name)
        self.pointwise(PointwiseMode.ADD, math, result, old, out=out, alpha1=alpha, alpha2=beta)

    def add(self, operation: Operation) -> None:
        self.operations.append(operation)

    def graph(self) -> OperationGraph:
        return OperationGraph.of(self.operations, name=self.call)

    def _next(self) -> int:
        self._uid += 1
        return self._uid


def _bytes(element: DataType) -> int:
    return {DataType.HALF: 2, DataType.DOUBLE: 8}.get(element, 4)


def math_of(*types: cudnnDataType_t) -> DataType:
    """What a call computes in when no descriptor says it: DOUBLE for DOUBLE, FLOAT for the rest."""
    return DataType.DOUBLE if cudnnDataType_t.CUDNN_DATA_DOUBLE in types else DataType.FLOAT

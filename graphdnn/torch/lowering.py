"""Lowering: the description of one ATen operator as operations of a ``Graph``."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch.fx import Node

from graphdnn.builder import Graph
from graphdnn.builder.tensor import Tensor
from graphdnn.dtypes import FLOATS
from graphdnn.enums import DataType, PointwiseMode, ReshapeMode
from graphdnn.errors import NotSupported
from graphdnn.tensors import channels_last_strides
from graphdnn.torch.arguments import Arguments, library_type
from graphdnn.torch.rules import ARGUMENT

Number: TypeAlias = "int | float | bool"
Operand: TypeAlias = "Tensor | Number"


class Lowering:
    """The graph that is being described, and the operator that is being lowered.

    Args:
        graph: The graph.
        node: The call of the operator. ``node.meta["val"]`` has its results as fake tensors with concrete extents.
        arguments: The inputs of the graph.
    """

    def __init__(self, graph: Graph, node: Node, arguments: Arguments) -> None:
        self.graph, self.node, self.arguments = graph, node, arguments

    @property
    def result(self) -> Any:
        """The fake tensor of the result, or the list of them."""
        return self.node.meta["val"]

    def results(self) -> list[Any]:
        """The fake tensors of all results."""
        found = self.result
        return list(found) if isinstance(found, (tuple, list)) else [found]

    def is_read(self, index: int) -> bool:
        """Whether an operator reads a result."""
        return is_read(self.node, index)

    @property
    def where(self) -> str:
        """The operator and its node, as reasons show them."""
        return f"{self.node.target} ({self.node.name})"

    def refuse(self, attribute: str, value: Any, expected: str, reason: str, fix: str) -> NotSupported:
        """The error for an argument that the library cannot serve."""
        return NotSupported(ARGUMENT.reject(self.where, attribute, value, expected=expected, reason=reason, fix=fix))

    def data_type(self, dtype: torch.dtype) -> DataType:
        """The library's element type, or the error that names this operator."""
        return library_type(dtype, self.where)

    @property
    def prefers_channels_last(self) -> bool:
        """Whether kernels of the device read channels of an image fastest."""
        return self.graph.device.kind == "cuda"

    @staticmethod
    def channels_last(shape: Sequence[int]) -> list[int]:
        """The strides of ``[N, C, ...]`` with the channels innermost."""
        return list(channels_last_strides(tuple(shape)))

    def typed(self, tensor: Tensor, like: Any = None) -> Tensor:
        """``tensor`` with the element type of a fake tensor; without ``like``, of the first result."""
        fake = self.results()[0] if like is None else like
        return tensor.set_data_type(self.data_type(fake.dtype))

    def arithmetic(self, *types: DataType | None) -> DataType:
        """The type in which PyTorch computes: FLOAT for half precision."""
        if any(t is DataType.DOUBLE for t in types):
            return DataType.DOUBLE
        if any(t in FLOATS for t in types):
            return DataType.FLOAT
        return DataType.INT64 if any(t is DataType.INT64 for t in types) else DataType.INT32

    def tensor(self, operand: Operand, compute: DataType) -> Tensor:
        """A tensor as it is; a number as a constant of the type of the arithmetic."""
        return operand if isinstance(operand, Tensor) else self.graph.tensor_scalar(operand, compute)

    def pointwise(
        self, mode: PointwiseMode, *operands: Operand, compute: DataType | None = None, **parameters: Any
    ) -> Tensor:
        """An elementwise operation without a type of its own result.

        Args:
            mode: The mode.
            operands: x and b, in this order.
            compute: The type of the arithmetic. None takes the type in which PyTorch computes.
            parameters: Further arguments of ``Graph.pointwise``.

        Returns:
            The result.
        """
        if compute is None:
            compute = self.arithmetic(*(o.get_data_type() for o in operands if isinstance(o, Tensor)))
        found: dict[str, Any] = dict(zip(("x", "b"), self.aligned(operands, compute), strict=False))
        return self.graph.pointwise(mode, **found, compute_data_type=compute, name=self.node.name, **parameters)

    def aligned(self, operands: Sequence[Operand], compute: DataType) -> list[Tensor]:
        """Operands with one rank: leading axes of one element are added. Numbers become constants."""
        rank = max((len(o.get_dim()) for o in operands if isinstance(o, Tensor)), default=1)
        return [
            self.view(o, [*[1] * (rank - len(o.get_dim())), *o.get_dim()])
            if isinstance(o, Tensor) and not o.get_is_pass_by_value()
            else self.tensor(o, compute)
            for o in operands
        ]

    def float_pointwise(self, mode: PointwiseMode, *operands: Operand, **parameters: Any) -> Tensor:
        """An elementwise operation whose result keeps the digits of the arithmetic: the next operation rounds."""
        types = [o.get_data_type() for o in operands if isinstance(o, Tensor)]
        compute = self.arithmetic(DataType.FLOAT, *types)
        return self.pointwise(mode, *operands, compute=compute, **parameters).set_data_type(compute)

    def view(self, tensor: Tensor, dim: Sequence[int]) -> Tensor:
        """The same elements under other extents."""
        dim = list(dim) or [1]
        if tensor.get_dim() == dim:
            return tensor
        shown = self.arguments.reshaped(tensor, dim)
        if shown is not None:
            return shown
        made = self.graph.reshape(tensor, reshape_mode=ReshapeMode.LOGICAL).set_dim(dim)
        kind = tensor.get_data_type()
        return made if kind is None else made.set_data_type(kind)

    def channels(self, vector: Tensor, rank: int) -> Tensor:
        """``[C]`` as ``[1, C, 1, ...]``."""
        return self.view(vector, [1, vector.get_dim()[0], *[1] * (rank - 2)])


def is_read(node: Node, index: int) -> bool:
    """Whether an operator reads one of the results of a node."""
    return any(user.target is operator.getitem and user.args[1] == index for user in node.users)


Lower: TypeAlias = Callable[..., Any]
LOWERINGS: dict[Any, Lower] = {}  # of each operator overload


def lowers(*operators: Any) -> Callable[[Lower], Lower]:
    """Enter a function as the lowering of operator overloads. Its arguments are a ``Lowering`` and those of ATen."""

    def enter(function: Lower) -> Lower:
        for overload in operators:
            assert overload not in LOWERINGS, f"{overload} has a lowering already"
            LOWERINGS[overload] = function
        return function

    return enter

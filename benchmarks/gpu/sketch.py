"""Sketch: a graph being drawn together with the values of its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import graphdnn
from gpu.fills import Fill
from gpu.problem import Problem
from graphdnn import channels_last_strides, packed_strides
from graphdnn.builder.tensor import Tensor


class Sketch:
    """``graph`` has all operations; operands come from here, so that each has a name, a layout and a fill."""

    def __init__(self, name: str, data_type: str, *, channels_last: bool, compute: str = "float32") -> None:
        self.graph = graphdnn.Graph(name, compute_data_type=compute)
        self.data_type = data_type
        self.channels_last = channels_last
        self._fills: dict[str, Fill] = {}

    def strides(self, dims: Sequence[int]) -> tuple[int, ...]:
        return (channels_last_strides if self.channels_last else packed_strides)(dims)

    def data(self, name: str, dims: Sequence[int], fill: Fill, *, stride: Sequence[int] | None = None) -> Tensor:
        """An operand of the problem's element type."""
        self._fills[name] = fill
        return self.graph.tensor(dims, stride=stride or self.strides(dims), data_type=self.data_type, name=name)

    def channel(self, name: str, channels: int, fill: Fill, rank: int = 4) -> Tensor:
        """One float32 value for each channel."""
        self._fills[name] = fill
        return self.graph.tensor([1, channels, *(1,) * (rank - 2)], data_type="float32", name=name)

    def number(self, value: float) -> Tensor:
        return self.graph.tensor_scalar(value, data_type="float32")

    def problem(self, outputs: Mapping[str, Tensor | tuple[Tensor, str]], **about: Any) -> Problem:
        """``outputs``: names to tensors, of the problem's type unless another one is given."""
        for name, made in outputs.items():
            tensor, data_type = made if isinstance(made, tuple) else (made, self.data_type)
            tensor.set_name(name).set_output(True).set_data_type(data_type)
        return Problem(graph=self.graph.build_operation_graph(), fills=self._fills, **about)

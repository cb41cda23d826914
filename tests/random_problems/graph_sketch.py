"""Sketch: a graph in the making, with the values of its inputs. Everything random comes from one generator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from problems import LAYOUTS, values_of

from graphdnn import OperationGraph, TensorSpec
from graphdnn.dtypes import ELEMENTS, FLOATS, Array, cast, data_type_of
from graphdnn.operations import Operation
from graphdnn.tensors import channels_last_strides, packed_strides


@dataclass
class Problem:
    """A graph with values by uid: of inputs, of by-value numbers, and of outputs that are read before they are written."""

    operations: tuple[Operation, ...]
    values: dict[int, Any]
    exact: bool = False  # every engine that sums in another order gets the same bits
    covers: tuple[str, ...] = ()

    @property
    def graph(self) -> OperationGraph:
        return OperationGraph.of(self.operations)


@dataclass
class Sketch:
    """``large`` problems cross the edges of tiles; small ones suit the emulator."""

    rng: np.random.Generator
    large: bool
    operations: list[Operation] = field(default_factory=list)
    values: dict[int, Any] = field(default_factory=dict)
    quarters: bool = False  # floating inputs are small multiples of 1/4: their sums are exact in any order
    extreme: bool = False  # inputs have the limits of their types among them
    aligned: bool = False  # channels in eights and plain layouts, which tensor cores and wide loads ask for
    row: int = 0  # channels last in every tensor, in multiples of so many
    uids: int = 0

    # Choices.

    def one_of(self, options: Sequence[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def number(self, low: int, high: int) -> int:
        """Both ends included."""
        return int(self.rng.integers(low, high, endpoint=True))

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def extent(self, small: int, large: int) -> int:
        """From 1; a large problem mixes in sizes around powers of two, where tiles end."""
        if not self.large:
            return self.number(1, small)
        if self.chance(0.3):
            near = 2 ** self.number(0, max(0, large.bit_length() - 1)) + self.number(-1, 1)
            return min(max(1, near), large)
        return self.number(1, large)

    def channels(self, small: int, large: int) -> int:
        """An extent that counts channels, or rows and columns of matrices."""
        if self.row:
            return self.row * self.number(1, max(1, (large if self.large else 2 * small) // self.row))
        if not self.aligned or not self.large:
            return self.extent(small, large)
        return 8 * self.number(1, max(1, large // 8))

    # Tensors.

    def uid(self) -> int:
        self.uids += 1
        return self.uids

    def tensor(self, dims: Sequence[int], kind: Any, layout: str | None = None, **fields: Any) -> TensorSpec:
        dims = tuple(map(int, dims))
        how = self._layout(dims) if layout is None else LAYOUTS[layout](dims)
        return TensorSpec(uid=self.uid(), data_type=kind, dims=dims, strides=how, **fields)

    def _layout(self, dims: tuple[int, ...]) -> tuple[int, ...]:
        """Packed and channels last most of the time; else any order of the axes, with or without gaps."""
        if self.row:
            return channels_last_strides(dims)
        kind = self.rng.random() * (0.7 if self.aligned else 1.0)
        if kind < (0.15 if self.aligned else 0.35):
            return packed_strides(dims)
        if kind < 0.7:
            return channels_last_strides(dims)
        gap = self.number(0, 2)
        strides, step = [0] * len(dims), 1 if self.chance(0.7) else 2
        for axis in self.rng.permutation(len(dims)):
            strides[axis] = step
            step *= dims[axis] + (gap if self.chance(0.5) else 0)
        return tuple(strides)

    def input(self, dims: Sequence[int], kind: Any, layout: str | None = None, **fields: Any) -> TensorSpec:
        """A tensor that is read, with values."""
        spec = self.tensor(dims, kind, layout, **fields)
        self.values[spec.uid] = self.drawn(spec)
        return spec

    def positive(self, dims: Sequence[int], kind: Any, **fields: Any) -> TensorSpec:
        """An input between 1/2 and 3/2."""
        spec = self.tensor(dims, kind, **fields)
        self.values[spec.uid] = cast(self.rng.random(spec.extents) + 0.5, spec.data_type)
        return spec

    def virtual(self, dims: Sequence[int], kind: Any) -> TensorSpec:
        """Between operations, and in the workspace where a kernel ends with it; some have gaps, or axes in any order."""
        packed = self.row or self.uids % 4
        return self.tensor(dims, kind, "packed" if packed else None, is_virtual=True)

    def scalar(self, rank: int, value: Any, kind: Any = "f32") -> TensorSpec:
        """A by-value number, sometimes one that is a constant of the graph."""
        if self.chance(0.3):
            return self.tensor((1,) * rank, kind, "packed", is_by_value=True, constant_value=value)
        spec = self.tensor((1,) * rank, kind, "packed", is_by_value=True)
        self.values[spec.uid] = value
        return spec

    def drawn(self, spec: TensorSpec) -> Array:
        if spec.data_type in FLOATS and self.quarters:
            return cast(self.rng.integers(-8, 9, spec.extents) / 4.0, spec.data_type)
        return values_of(spec, self.rng, extreme=self.extreme)

    def old(self, spec: TensorSpec) -> None:
        """An output is blended with what it holds: it gets values too."""
        self.values[spec.uid] = self.drawn(spec)

    def broadcast(self, dims: Sequence[int]) -> tuple[int, ...]:
        """The extents of an operand that repeats along some axes; per channel most of the time."""
        if len(dims) > 1 and self.chance(0.6):
            return tuple(extent if axis == 1 else 1 for axis, extent in enumerate(dims))
        return tuple(1 if self.chance(0.5) else extent for extent in dims)

    def add(self, operation: Operation) -> None:
        self.operations.append(operation)

    def problem(self, exact: bool = False, covers: Sequence[str] = ()) -> Problem:
        return Problem(tuple(self.operations), self.values, exact, tuple(covers))


def is_float(kind: Any) -> bool:
    return ELEMENTS[data_type_of(kind)].kind == "float"

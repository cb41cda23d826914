"""Engines that compute something wrong: another engine's kernel, with one mutation of what it reads or writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from graphdnn.dtypes import BOOLEANS, ELEMENTS, FLOATS, Array, cast
from graphdnn.engines import Engine, Kernel, Task
from graphdnn.engines.host.memory import load, store
from graphdnn.enums import ReductionOperator
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.heuristics import Choice, EngineConfig
from graphdnn.operations import (
    ConvBackwardData,
    ConvBackwardFilter,
    ConvForward,
    Matmul,
    Operation,
    RecurrentOperation,
    Reduction,
)
from graphdnn.tensors import TensorSpec

_SUMS = (ReductionOperator.ADD, ReductionOperator.AVG, ReductionOperator.NORM1, ReductionOperator.NORM2)


@dataclass(frozen=True)
class Mutation:
    """``change`` takes values and the factor of ``percent``; ``is_of_operand``: of a factor of sums, not of a result."""

    name: str
    change: Callable[[Array, float], Array]
    is_of_operand: bool = False

    def tensors(self, graph: OperationGraph) -> list[TensorSpec]:
        """What it may be applied to."""
        if not self.is_of_operand:
            return list(graph.outputs)
        found = dict.fromkeys(filter(None, map(_taps, graph.operations)))
        return [graph.tensors[uid] for uid in found if uid not in graph.producer]


def _zeros(values: Array, factor: float) -> Array:
    return np.zeros_like(values)


def _off(values: Array, factor: float) -> Array:
    """By 1 %, or by one: the largest error that numbers of few digits do not hide."""
    if values.dtype.kind == "b":
        return ~values
    return values + 1 if values.dtype.kind in "iu" else values.astype(np.float64) * factor


def _shifted(values: Array, factor: float) -> Array:
    """By one, along the last axis that has neighbours."""
    axes = [axis for axis, extent in enumerate(values.shape) if extent > 1]
    return np.roll(values, 1, axes[-1]) if axes else values


def _without_a_tap(values: Array, factor: float) -> Array:
    """The last element along the last axis is 0, of a filter the last column of taps; of a 1 x 1 filter a channel."""
    found = np.array(values)
    axis = next((a for a in reversed(range(values.ndim)) if values.shape[a] > 1), 0)
    found[(slice(None),) * axis + (-1,)] = 0
    return found


MUTATIONS = (
    Mutation("zeros", _zeros),
    Mutation("1 % off", _off),
    Mutation("shifted by one", _shifted),
    Mutation("a tap left out", _without_a_tap, is_of_operand=True),
)


def _taps(op: Operation) -> int | None:
    """What a sum runs over."""
    if isinstance(op, (ConvForward, ConvBackwardData)):
        return op.w.uid
    if isinstance(op, ConvBackwardFilter):
        return op.dy.uid
    if isinstance(op, Matmul):
        return op.a.uid  # whose last axis is the sum's
    if isinstance(op, Reduction) and op.spec.operator in _SUMS:
        return op.x.uid
    return op.inputs()["w"].uid if isinstance(op, RecurrentOperation) and "w" in op.inputs() else None


def factor_of(graph: OperationGraph) -> float:
    """1.01, or what the narrowest type on the way can tell from 1."""
    kinds = {ELEMENTS[t.data_type].numpy for t in graph.tensors.values() if t.data_type in FLOATS}
    kinds |= {np.dtype(np.float32)}
    import ml_dtypes

    unit = max(float(ml_dtypes.finfo(kind).eps) / 2 for kind in kinds)
    return 1 + min(max(0.01, 32 * unit), 1.0)


def broken(engine: Engine, mutation: Mutation, tensor: TensorSpec, factor: float) -> Engine:
    """The engine under its own name, with a mutation of one tensor where its kernels read or write that."""

    def compile(task: Task, knobs: Any) -> Kernel:
        kernel = engine.compile(task, knobs)
        op = task.op
        places = [i for i, t in enumerate((*op.inputs, *op.outputs)) if t.uid == tensor.uid]

        def run(arrays: Sequence[Array], scratch: Array | None) -> None:
            if mutation.is_of_operand:
                given = list(arrays)
                for place in places:
                    given[place] = np.copy(arrays[place], order="K")
                    _mutate(given[place], tensor, mutation, factor)
                kernel.run(given, scratch)
            else:
                kernel.run(arrays, scratch)
                for place in places:
                    _mutate(arrays[place], tensor, mutation, factor)

        return Kernel(kernel.name, run)

    return replace(engine, compile=compile)


def _mutate(array: Array, tensor: TensorSpec, mutation: Mutation, factor: float) -> None:
    if tensor.is_by_value:
        return
    values = np.array(load(array, tensor))
    changed = mutation.change(values, factor)
    if tensor.data_type not in BOOLEANS and changed.dtype != values.dtype:
        with np.errstate(over="ignore"):
            changed = cast(np.asarray(changed), tensor.data_type)
    store(np.ascontiguousarray(changed), array, tensor)


def config_with(config: EngineConfig, change: Callable[[Engine], Engine]) -> EngineConfig:
    """The same choices, each engine exchanged."""
    return replace(config, choices=tuple(Choice(c.task, change(c.engine), c.knobs) for c in config.choices))


def mutated(graph: OperationGraph) -> Iterator[tuple[Mutation, TensorSpec]]:
    """Each mutation with each tensor that it is for."""
    for mutation in MUTATIONS:
        for tensor in mutation.tensors(graph):
            yield mutation, tensor

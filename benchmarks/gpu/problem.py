"""Problem: a graph with values for its inputs, its definition in float64, and what else computes it.

``Case`` is a problem that is described when its turn comes; ``Group`` is a table of cases.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gpu.fills import Fill
from graphdnn import DataType, Filters, OperationGraph, TensorSpec

Tensors = Mapping[str, Any]  # PyTorch's, by the names of the graph's tensors
Formula = Callable[[Any, Tensors], Tensors]  # (torch, inputs in float64) -> outputs in float64

# Largest relative l2 distance from float64. Sums are kept in float32; one rounding to the type remains.
BOUNDS = {
    DataType.DOUBLE: 1e-12,
    DataType.FLOAT: 1e-5,
    DataType.HALF: 1e-3,
    DataType.BFLOAT16: 6e-3,
}
TF32_BOUND = 1.5e-3  # operands cut to 10 bits of mantissa: 3e-4 when rounded, 8e-4 when truncated


@dataclass(frozen=True, slots=True)
class Peer:
    """Another implementation. ``prepare(torch, tensors)`` does what is not timed and returns the call that is.

    ``gives`` names what the call returns, in order, and is what is compared with the definition.
    ``part``: the call does only part of the work, so it is shown, but no ratio is taken to it.
    """

    label: str
    prepare: Callable[[Any, Tensors], Callable[[], Any]]
    gives: tuple[str, ...] = ()
    part: bool = False


@dataclass(frozen=True)
class Problem:
    graph: OperationGraph
    fills: Mapping[str, Fill]
    formula: Formula
    peers: tuple[Peer, ...]
    flops: int = 0
    bounds: Mapping[str, float] = field(default_factory=dict)  # by output name, where not its type's
    filters: Filters | None = None
    tf32: bool = False  # may float32 products be rounded to tf32?

    @cached_property
    def inputs(self) -> dict[str, TensorSpec]:
        return {spec.name: spec for spec in self.graph.inputs if spec.is_bound}

    @cached_property
    def outputs(self) -> dict[str, TensorSpec]:
        return {spec.name: spec for spec in self.graph.outputs}

    @property
    def moved(self) -> int:
        """Bytes that have to pass through memory: each input read once, each output written once."""
        return sum(spec.bytes for spec in (*self.inputs.values(), *self.outputs.values()))

    def bound(self, name: str) -> float | None:
        """Largest relative l2 distance of an output; None for integers, which are exact."""
        kind = self.outputs[name].data_type
        if kind not in BOUNDS:
            return None
        natural = TF32_BOUND if self.tf32 and kind is DataType.FLOAT else BOUNDS[kind]
        return self.bounds.get(name, natural)


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    describe: Callable[[], Any]  # a Problem, or what the group's ``measure`` wants
    quick: bool = False  # one of the few of a quick run
    note: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    name: str
    title: str
    cases: tuple[Case, ...]
    tune: int = 0  # configurations of mode B that are tried where the caller does not say
    every_kernel: bool = False  # each engine and each of its kernels is timed beside the first choice
    by_default: bool = True

"""Run one configuration of a problem in a place, from poisoned memory, and compare it with the NumPy engine.

Every configuration runs twice, with different poison in outputs, gaps and workspace: an element that was not
written, a gap that was read and a sum whose order changes all show as a difference between the two.
The bound on floating results is the oracle's (graphdnn/analysis/oracle/tolerances.py), a function of the length of the sums,
the types on the way and the engine, and a result has to be that close to NumPy in float64, or in the tensors' own types;
integers have to be equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from problems import GENERAL

from graphdnn import OperationGraph, fuse
from graphdnn.analysis.oracle import Comparison, compare
from graphdnn.device.profiles import this_cpu
from graphdnn.dtypes import ELEMENTS, Array, cast
from graphdnn.engines import Task
from graphdnn.engines.host.memory import empty, load, store
from graphdnn.enums import NumericalNote
from graphdnn.fusion.fused_graph import FusedGraph
from graphdnn.heuristics import Choice, EngineConfig
from graphdnn.plan import DevicePlan, ExecutionPlan
from graphdnn.plan.binding_validation import promised_alignment
from graphdnn.tensors import TensorSpec
from random_problems.execution_targets import Place
from random_problems.graph_sketch import Problem
from random_problems.memory_images import Image

POISONS = (0xFF, 0x5A)
_TRANSFORMED = (NumericalNote.WINOGRAD, NumericalNote.FFT)  # their sums are of other terms


@dataclass
class Prepared:
    """A problem with its graph and what NumPy says."""

    problem: Problem
    graph: OperationGraph
    fused: FusedGraph = field(init=False)

    def __post_init__(self) -> None:
        self.fused = fuse(self.graph)

    @classmethod
    def of(cls, problem: Problem) -> Prepared:
        return cls(problem, problem.graph)

    @cached_property
    def arrays(self) -> list[TensorSpec]:
        return [t for t in self.graph.bound if not t.is_by_value]

    @cached_property
    def scalars(self) -> dict[int, Any]:
        return {t.uid: self.problem.values[t.uid] for t in self.graph.bound if t.is_by_value}

    @cached_property
    def written(self) -> set[int]:
        return {t.uid for t in self.graph.outputs}

    def images(self, poison: int) -> dict[int, Image]:
        values = self.problem.values
        return {t.uid: Image(t, values.get(t.uid), poison, promised_alignment(t)) for t in self.arrays}

    @cached_property
    def by_numpy(self) -> dict[int, Array]:
        """Outputs as the general NumPy engine computes them in the tensors' own types."""
        choices = tuple(Choice(Task(op, this_cpu()), GENERAL, GENERAL.defaults()) for op in self.fused)
        plan = ExecutionPlan(EngineConfig(self.fused, this_cpu(), choices))
        bindings: dict[int, Any] = dict(self.scalars)
        for spec in self.arrays:
            bindings[spec.uid] = empty(spec)
            values = self.problem.values.get(spec.uid)
            if values is not None:
                store(cast(np.asarray(values).reshape(spec.extents), spec.data_type), bindings[spec.uid], spec)
        plan.execute(bindings, plan.new_workspace())
        return {spec.uid: np.array(load(bindings[spec.uid], spec)) for spec in self.graph.outputs}


def check(prepared: Prepared, plan: DevicePlan, place: Place, form: int = 0) -> list[str]:
    """What is wrong; empty when all is well."""
    found: list[str] = []
    results: list[dict[int, Array]] = []
    for i, poison in enumerate(POISONS):
        images = prepared.images(poison)
        problem = place.run(plan, images, prepared.scalars, poison, form)
        if problem:
            found.append(problem)
        for uid, image in images.items():
            found += filter(None, (image.trespass(written=uid in prepared.written), image.badly_stored()))
        results.append({uid: images[uid].logical() for uid in prepared.written})
        if i == 0:
            found += _against_numpy(prepared, plan, images)
    for uid in prepared.written:
        first, second = (np.ascontiguousarray(r[uid]).view(np.uint8) for r in results)
        if not np.array_equal(first, second):
            found.append(f"uid {uid}: other bits from other poison ({int((first != second).sum())} bytes)")
    return found


def _against_numpy(prepared: Prepared, plan: DevicePlan, images: Mapping[int, Image]) -> list[str]:
    graph = prepared.graph
    if prepared.problem.exact and not set(plan.numerical_notes) & set(_TRANSFORMED):
        return [
            line for t in graph.outputs if (line := _different(t, images[t.uid].logical(), prepared.by_numpy[t.uid]))
        ]
    bindings = {uid: image.array for uid, image in images.items()}
    before = {uid: prepared.problem.values[uid] for uid in prepared.written if uid in prepared.problem.values}
    with np.errstate(all="ignore"):
        found = compare(graph, {**bindings, **prepared.scalars}, before, plan.config.error_growth)
        return [str(c) for c in found if not c.ok and not _close(c, images, prepared.by_numpy)]


def _close(comparison: Comparison, images: Mapping[int, Image], by_numpy: Mapping[int, Array]) -> bool:
    """Within the bound of NumPy's result in the tensors' own types, whose roundings float64 does not see.

    A norm of two values that are nearly equal, say, makes much of how they were rounded before.
    """
    spec = comparison.tensor
    got, wanted = images[spec.uid].logical(), by_numpy[spec.uid]
    if ELEMENTS[spec.data_type].kind == "bool":
        return bool(np.mean(got != wanted) <= comparison.bound)
    got, wanted = got.astype(np.float64), wanted.astype(np.float64)
    if not np.array_equal(np.isnan(got), np.isnan(wanted)):
        return False
    there = np.isfinite(wanted)
    return bool(
        np.array_equal(got[~there], wanted[~there], equal_nan=True)
        and np.abs(got[there] - wanted[there]).max(initial=0.0) <= comparison.bound
    )


def _different(spec: TensorSpec, got: Array, wanted: Array) -> str:
    """Equal numbers, NaN in the same places, zeros of either sign."""
    if got.dtype.kind in "fV":
        got, wanted = got.astype(np.float64), wanted.astype(np.float64)
        same = (got == wanted) | (np.isnan(got) & np.isnan(wanted))
    else:
        same = got == wanted
    if same.all():
        return ""
    at = tuple(int(i) for i in np.argwhere(~same)[0])
    return f"{spec.label()}: {int((~same).sum())} of {same.size} differ, at {at}: {got[at]!r}, expected {wanted[at]!r}"

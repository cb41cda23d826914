"""Run a plan with everything in memory, beside the plan itself and the oracle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from graphdnn.analysis.oracle import bounds, compare_values, evaluate
from graphdnn.analysis.plan_inputs import host_inputs
from graphdnn.analysis.rewrite_notes import rewrite_notes
from graphdnn.analysis.trace.materialize import visible
from graphdnn.analysis.trace.trace import Trace, Traced
from graphdnn.dtypes import FLOATS, Array
from graphdnn.engines.host.memory import empty, load
from graphdnn.plan import ExecutionPlan
from graphdnn.tensors import TensorSpec

_PART = 1 << 18  # elements that are compared at a time


def of_plan(plan: ExecutionPlan, bindings: Mapping[int, Any]) -> Trace:
    """Every value that the operations of a plan write. The arrays of the outputs are not changed.

    Args:
        plan: The plan.
        bindings: ``{uid: array}`` of the inputs, and of an output that a beta reads.

    Returns:
        The trace.

    Raises:
        BadParam: An array does not fit.
        NotSupported: The device of the plan is not present.
    """
    seen = visible(plan.config)
    plan.load()
    graph = seen.config.fused.graph
    inputs = host_inputs(plan, bindings)
    made = _executed(plan.like(seen.config), inputs)
    own = _executed(plan, inputs)
    values = evaluate(graph, inputs)
    own_growth, growth = plan.config.error_growth, seen.config.error_growth
    growth = {uid: max(own_growth.get(uid, 1.0), growth.get(uid, 1.0)) for uid in own_growth.keys() | growth.keys()}
    within = bounds(graph, values, growth)
    comparisons = {c.tensor.uid: c for c in compare_values(graph, values, within, made)}
    kernels = {t.uid: op.index for op in plan.config.fused for step in op.operations for t in step.outputs().values()}
    engines = {
        t.uid: choice.engine.name
        for choice in seen.config.choices
        for step in choice.task.op.operations
        for t in step.outputs().values()
    }
    traced = []
    for op in graph.operations:
        for tensor in op.outputs().values():
            uid, found = tensor.uid, comparisons[tensor.uid]
            array, wanted = load(made[uid], tensor), values[uid]
            index = _farthest(tensor, array, wanted)
            own_tensor = plan.config.fused.graph.tensors[uid]
            traced.append(
                Traced(
                    own_tensor, op.label(), kernels[uid], engines[uid], array, wanted, found.difference, found.bound,
                    index, found,
                )
            )  # fmt: skip
    outputs = plan.config.fused.graph.outputs
    same = all(load(own[t.uid], t).tobytes() == load(made[t.uid], graph.tensors[t.uid]).tobytes() for t in outputs)
    own_graph = plan.config.fused.graph
    # What is in memory here is in the plan's graph as well: the same values and bounds are for both.
    compared = tuple(compare_values(own_graph, values, within, own))
    return Trace(tuple(traced), same, (*seen.notes, *rewrite_notes(seen.config), *_edited(plan)), compared)


def _edited(plan: ExecutionPlan) -> Iterator[str]:
    """Kernels whose text is not the generated one: what is inside them cannot be seen."""
    for index, (choice, compiled) in enumerate(zip(plan.config.choices, plan.compiled, strict=True)):
        if choice.engine.compile(choice.task, choice.knobs).source != compiled.source:
            yield f"kernel [{index}]: the plan runs an edited text; the values here are those of the generated one"


def _executed(plan: ExecutionPlan, inputs: Mapping[int, Any]) -> dict[int, Any]:
    """All arrays after an execution, in host memory; those of the outputs are new."""
    graph = plan.config.fused.graph
    read = {t.uid for op in graph.operations if op.reads_output for t in op.outputs().values()}
    hosts = {uid: value for uid, value in inputs.items() if uid not in graph.producer}
    for tensor in graph.outputs:
        hosts[tensor.uid] = empty(tensor)
        hosts[tensor.uid][...] = inputs[tensor.uid] if tensor.uid in read else 0
    arrays = plan.to_device(hosts)
    plan.execute(arrays, plan.new_workspace())
    return plan.to_host(arrays)


def _farthest(tensor: TensorSpec, values: Array, wanted: Array) -> tuple[int, ...]:
    """The element with the largest difference, one that is NaN on one side only before all others."""
    if values.ndim == 0 or values.size <= _PART:
        return _farthest_of_part(tensor, values, wanted)[1]
    size = max(1, _PART * len(values) // values.size)
    found = []
    for first in range(0, len(values), size):  # each part stays in the cache
        part = slice(first, first + size)
        apart, (row, *index) = _farthest_of_part(tensor, values[part], wanted[part])
        found.append((apart, (first + row, *index)))
    return max(found, key=lambda entry: entry[0])[1]


def _farthest_of_part(tensor: TensorSpec, values: Array, wanted: Array) -> tuple[float, tuple[int, ...]]:
    if tensor.data_type in FLOATS:
        given, right = values.astype(np.float64), wanted.astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            apart = np.where(given == right, 0.0, np.abs(given - right))
        apart = np.where(np.isnan(given) != np.isnan(right), np.inf, np.nan_to_num(apart, nan=0.0, posinf=np.inf))
    else:
        apart = np.abs(values.astype(np.float64) - wanted.astype(np.float64))
    farthest = int(np.argmax(apart))
    return float(apart.reshape(-1)[farthest]), tuple(int(i) for i in np.unravel_index(farthest, apart.shape))

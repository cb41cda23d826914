"""The same graph with every virtual tensor in memory, and the configuration that computes it as the plan does.

A virtual tensor is a rounding point whether it is seen or not, so seeing it changes no number. What may change is the
kernel: operations that feed an anchor in registers become a kernel of their own, because a value that is read several
times would be written several times; and an engine that does not store intermediate values gives way to another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphdnn.analysis.oracle import with_tensors
from graphdnn.engines import Task
from graphdnn.errors import NotSupported
from graphdnn.fusion import FusedGraph, FusedOp, fuse
from graphdnn.fusion.limits import FusionLimits
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.heuristics import Choice, EngineConfig, Filters, Ranking
from graphdnn.operations import Operation
from graphdnn.tensors import TensorSpec

_ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class Visible:
    """A configuration with nothing virtual, and every way in which its kernels differ from the plan's."""

    config: EngineConfig
    notes: tuple[str, ...]


def visible(config: EngineConfig) -> Visible:
    """Raises ``NotSupported`` when no engine computes a part of it."""
    graph = config.fused.graph
    tensors = {t.uid: t for t in graph.tensors.values()}
    for op in config.fused:
        tensors.update((t.uid, _seen(t, op)) for t in (*op.internal, *op.outputs) if t.is_virtual)
    seen = OperationGraph.of((with_tensors(op, tensors) for op in graph.operations), name=graph.name)
    fused = _fused(seen, config.fused.limits)
    allowed = Filters(allowed_numerical_notes=frozenset(config.numerical_notes))
    best = Ranking(fused, config.device, filters=allowed).best
    choices: list[Choice] = []
    notes: list[str] = []
    for op, otherwise in zip(fused, best.choices, strict=True):
        choice, note = _choice(op, otherwise, config)
        choices.append(choice)
        notes += note
    return Visible(EngineConfig(fused, config.device, tuple(choices)), tuple(dict.fromkeys(notes)))


def _fused(graph: OperationGraph, limits: FusionLimits) -> FusedGraph:
    """Within the limits of the plan, unless they force together what cannot be seen as one kernel."""
    try:
        return fuse(graph, limits)
    except NotSupported:
        return fuse(graph)


def _seen(tensor: TensorSpec, op: FusedOp) -> TensorSpec:
    """In memory, in the order of the kernel's own result of these extents, so that the same engines take it."""
    model = next((t for t in op.outputs if not t.is_virtual and t.extents == tensor.extents), None)
    changes: dict[str, object] = {"is_virtual": False, "byte_alignment": max(_ALIGNMENT, tensor.byte_alignment)}
    if model is not None and model.vector_count == tensor.vector_count == 1:
        changes["strides"] = _dense(tensor.dims, model.strides)
    return tensor.model_copy(update=changes)


def _dense(dims: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """Strides without gaps, in the order of others."""
    found, step = [0] * len(dims), 1
    for axis in sorted(range(len(dims)), key=lambda a: (strides[a], -a)):
        found[axis] = step
        step *= dims[axis]
    return tuple(found)


def _choice(op: FusedOp, otherwise: Choice, config: EngineConfig) -> tuple[Choice, list[str]]:
    """The engine and knobs of the plan's kernel with the same main operation; else the best that serves."""
    main = _written(op.main)
    for index, kernel in enumerate(config.choices):
        if main != _written(kernel.task.op.main):
            continue
        here = {_written(step) for step in op.operations}
        apart = [step.label() for step in kernel.task.op.operations if _written(step) not in here]
        notes = [f"kernel [{index}]: {', '.join(apart)} and {op.name} are kernels of their own here"] if apart else []
        task = Task(op, config.device)
        refused = kernel.engine.why_not(task)
        if not refused:
            return Choice(task, kernel.engine, kernel.knobs), notes
        names = otherwise.engine.name, kernel.engine.name
        notes.append(f"kernel [{index}]: {names[0]} computes {op.name} in place of {names[1]}: {refused[0].reason}")
        return otherwise, notes
    return otherwise, []


def _written(op: Operation) -> tuple[int, ...]:
    """What names an operation in its graph: no other one writes these tensors."""
    return tuple(sorted(t.uid for t in op.outputs().values()))

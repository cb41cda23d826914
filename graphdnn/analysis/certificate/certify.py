"""The certificate of a plan, from data, from ranges, or from the types alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from graphdnn.analysis.certificate.certificate import Certificate, OperationBound, OutputBound
from graphdnn.analysis.certificate.error_interval import ErrorInterval
from graphdnn.analysis.certificate.known_values import Known
from graphdnn.analysis.certificate.numeric_class import numeric_class
from graphdnn.analysis.certificate.overflow import overflow_proofs
from graphdnn.analysis.certificate.pointwise_rounding import roundings
from graphdnn.analysis.certificate.propagation import FORMULAS, Walk, keeps
from graphdnn.analysis.certificate.roundoff import (
    LAMBDA,
    compute_of,
    gamma,
    likely,
    roundoff,
    storage_roundoff,
    unlikely,
)
from graphdnn.analysis.certificate.summation import summation
from graphdnn.analysis.graph_slices import slices_of, thinned
from graphdnn.analysis.oracle import allowances, evaluate
from graphdnn.analysis.plan_inputs import host_inputs
from graphdnn.analysis.rewrite_notes import rewrite_notes
from graphdnn.dtypes import BOOLEANS, ELEMENTS, FLOATS, Array
from graphdnn.engines.host.memory import empty, load
from graphdnn.engines.operation_cost import reduction_length
from graphdnn.enums import ReductionOperator, ResampleMode
from graphdnn.errors import BadParam, NotSupported
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.graph.value_numbering import same_values
from graphdnn.heuristics import Choice, EngineConfig
from graphdnn.host_allocation import allocating
from graphdnn.operations import (
    Concat,
    ConvolutionOperation,
    GenStats,
    Matmul,
    Operation,
    PointwiseOperation,
    Reduction,
    ResampleBackward,
    ResampleForward,
    Reshape,
    Slice,
    Transpose,
)
from graphdnn.plan import ExecutionPlan
from graphdnn.rules import Rule
from graphdnn.tensors import TensorSpec

RANGE = Rule(
    id="certificate.range",
    expected="(low, high) with low <= high, for the uid of an input",
    reason="a bound is computed from the ranges of the inputs: {reason}",
    fix="give a range for the uid of every floating input, or data",
)

_PART = 1 << 18  # elements of a tensor whose bounds are computed at a time
Ranges = Mapping[int, tuple[float, float]]


def of_plan(
    plan: ExecutionPlan, bindings: Mapping[int, Any] | None = None, ranges: Ranges | None = None
) -> Certificate:
    """Error bounds of a plan.

    With ``bindings`` the bounds hold for this data, and the plan is executed on it if its device is present. With
    ``ranges`` they hold for all data in the ranges. Without both, the certificate states what each operation adds to
    the error, relative to what it computes.

    Args:
        plan: The plan.
        bindings: ``{uid: array}`` of the inputs.
        ranges: ``{uid: (low, high)}`` of the inputs.

    Returns:
        The certificate.

    Raises:
        BadParam: A range or an array is invalid.
    """
    config, graph = plan.config, plan.config.fused.graph
    given = _checked(graph, ranges or {})
    notes: list[str] = []
    if bindings is not None:
        with allocating("CERTIFICATE", "bindings", "bounds of every element"):
            inputs = host_inputs(plan, bindings)
            values = evaluate(graph, inputs)
            outputs = _from_data(plan, inputs, values, notes)
            integers = overflow_proofs(graph, {}, values)
    else:
        with allocating("CERTIFICATE", "ranges", "bounds of every element"):
            outputs = _from_ranges(config, given)
            integers = overflow_proofs(graph, given, None)
    return Certificate(
        plan=plan.name,
        device=config.device.name,
        numeric_class=numeric_class(config),
        operations=_operations(config),
        outputs=outputs,
        integers=integers,
        basis="data" if bindings is not None else "ranges" if given else "types",
        notes=(*notes, *rewrite_notes(config), *_orders(config), *_statistics(outputs)),
    )


def _checked(graph: OperationGraph, ranges: Ranges) -> dict[int, tuple[float, float]]:
    found = []
    if not isinstance(ranges, Mapping):
        reason = "ranges are a dictionary of tensors and two numbers each"
        raise BadParam(RANGE.reject("CERTIFICATE", "ranges", ranges, reason=reason))
    inputs = {t.uid for t in graph.inputs}
    for uid, given in ranges.items():
        reason = ""
        if uid not in inputs:
            reason = f"the inputs are {', '.join(map(str, sorted(inputs)))}"
        elif (
            not isinstance(given, (tuple, list))
            or len(given) != 2
            or not all(isinstance(v, (int, float)) for v in given)
        ):
            reason = "a range is two numbers"
        elif not given[0] <= given[1]:
            reason = "low <= high is not true"
        if reason:
            found.append(RANGE.reject("CERTIFICATE", f"ranges[{uid}]", given, reason=reason))
    if found:
        raise BadParam(found)
    return {uid: (given[0], given[1]) for uid, given in ranges.items()}


# What holds for any data.


def _operations(config: EngineConfig) -> tuple[OperationBound, ...]:
    mains = {id(choice.task.op.main): choice for choice in config.choices}
    found = []
    for op in config.fused.graph.operations:
        bound = _operation(op, mains.get(id(op)))
        found += [] if bound is None else [bound]
    return tuple(found)


def _operation(op: Operation, choice: Choice | None) -> OperationBound | None:
    """What it adds, and what rounding its result to the tensor's type adds to that."""
    found = _arithmetic(op, choice)
    tensor = next(iter(op.outputs().values()))
    if found is None or tensor.data_type not in FLOATS or keeps(op, compute_of(op.compute_type), tensor):
        return found
    return replace(found, stored=storage_roundoff(tensor.data_type)[0], data_type=tensor.data_type.name)


def _arithmetic(op: Operation, choice: Choice | None) -> OperationBound | None:
    compute, arithmetic = compute_of(op.compute_type), op.compute_type.name
    if isinstance(op, (Concat, Reshape, Slice, Transpose)):
        return None
    if compute is None or compute.kind in "biu":
        return OperationBound(
            op.label(), arithmetic, reduction_length(op), 0.0, 0.0, "", "integers, modulo 2^32 or 2^64"
        )
    if isinstance(op, (ConvolutionOperation, Matmul)):
        how = summation(op, choice)
        return OperationBound(op.label(), arithmetic, how.length, how.worst, how.statistical, how.relative_to, how.how)
    u = roundoff(compute)
    if isinstance(op, Reduction) and op.spec.operator not in (ReductionOperator.MAX, ReductionOperator.MIN):
        n = max(1, op.x.elements // op.y.elements)
        return OperationBound(op.label(), arithmetic, n, gamma(n, u), likely(n, u), "sum |x|", "a sum in any order")
    if isinstance(op, PointwiseOperation):
        units = roundings(op.spec.mode, op.spec.parameters())
        worst = gamma(units, u) if units else 0.0
        often = "rounded once" if units == 1 else f"{units:g} roundings at most"
        return OperationBound(op.label(), arithmetic, 1, worst, worst, "what it computes with", often)
    if isinstance(op, ResampleForward) and op.spec.mode is ResampleMode.MAXPOOL and op.alpha == 1 and op.beta == 0:
        return OperationBound(op.label(), arithmetic, 1, 0.0, 0.0, "", "a choice")
    if isinstance(op, (GenStats, ResampleForward, ResampleBackward, *FORMULAS)):
        n = reduction_length(op)
        if isinstance(op, (ResampleForward, ResampleBackward)):
            n = prod(map(int, op.spec.window_dims))
        said = "a formula of sums in any order" if type(op) in FORMULAS else "a sum in any order"
        return OperationBound(op.label(), arithmetic, n, gamma(n, u), likely(n, u), "what each sum adds up", said)
    return None


# With data.


def _from_data(
    plan: ExecutionPlan, inputs: Mapping[int, Any], values: Mapping[int, Array], notes: list[str]
) -> tuple[OutputBound, ...]:
    graph = plan.config.fused.graph
    read = {t.uid for op in graph.operations if op.reads_output for t in op.outputs().values()}
    old = {uid: load(inputs[uid], graph.tensors[uid]) for uid in read}
    observed = _observed(plan, inputs, notes)
    allowed = allowances(graph, values, plan.config.error_growth)
    found: dict[int, list[OutputBound]] = {t.uid: [] for t in graph.outputs}
    remarks: list[str] = []
    for part, pick in _parts(graph):
        seen, results = pick(values), pick(observed)
        walks = _walks(plan.config, part, seen, pick(old))
        remarks += walks[0].remarks
        for tensor in part.outputs:
            apart = _apart(tensor, results[tensor.uid], seen[tensor.uid]) if tensor.uid in results else None
            found[tensor.uid].append(_output(tensor, walks, apart))
    notes[:0] = dict.fromkeys(remarks)
    return tuple(replace(_joined(t, found[t.uid]), allowed=allowed[t.uid]) for t in graph.outputs)


def _walks(
    config: EngineConfig, part: OperationGraph, values: Mapping[int, Array], old: Mapping[int, Array]
) -> list[Walk]:
    """Bounds that always hold, and statistical bounds."""
    totals: dict[int, Array] = {}
    numbers = same_values(part.operations)
    walks = []
    for is_statistical in (False, True):
        inputs = (t.uid for t in part.tensors.values() if t.uid not in part.producer)
        boxes = {uid: ErrorInterval.of(_plainly(values[uid])) for uid in inputs}
        walk = Walk(config, part.operations, boxes, Known(values, old, is_statistical, totals, numbers))
        walk.run()
        walks.append(walk)
    return walks


def _parts(graph: OperationGraph) -> Iterator[tuple[OperationGraph, Callable[[Mapping[int, Array]], dict[int, Array]]]]:
    """The graph on a few images or channels at a time, where it treats them apart, and what takes their arrays.

    The parts cover all elements. Their arrays stay in the cache, which is several times faster than large ones.
    """
    slices = slices_of(graph)
    if slices is None or max(t.elements for t in graph.tensors.values()) <= _PART:
        yield graph, dict
        return
    largest = max(graph.tensors[uid].elements for uid in slices.axes)
    size = max(1, _PART * slices.count // largest)
    graphs = {n: thinned(graph, slices, range(n)).graph for n in {min(size, slices.count), slices.count % size or size}}
    for first in range(0, slices.count, size):
        kept = slice(first, min(first + size, slices.count))
        yield graphs[kept.stop - first], partial(_picked, slices.axes, kept)


def _picked(axes: Mapping[int, int], kept: slice, arrays: Mapping[int, Array]) -> dict[int, Array]:
    return {uid: array[(slice(None),) * axes[uid] + (kept,)] if uid in axes else array for uid, array in arrays.items()}


def _joined(tensor: TensorSpec, parts: list[OutputBound]) -> OutputBound:
    """The bound of a tensor from those of its parts."""
    unbounded = sum(part.unbounded * part.tensor.elements for part in parts) / max(tensor.elements, 1)
    return OutputBound(
        tensor,
        worst=_largest(part.worst for part in parts),
        statistical=_largest(part.statistical for part in parts),
        observed=_largest(part.observed for part in parts),
        closest=_largest(part.closest for part in parts),
        why_not=next((part.why_not for part in parts if part.why_not), ""),
        unbounded=unbounded,
    )


def _largest(numbers: Iterable[float | None]) -> float | None:
    """NaN where one is."""
    known = [number for number in numbers if number is not None]
    return float(np.max(known)) if known else None


def _plainly(values: Array) -> Array:
    return np.asarray(values).astype(np.float64, copy=False)


def _observed(plan: ExecutionPlan, inputs: Mapping[int, Any], notes: list[str]) -> dict[int, Array]:
    """What the plan computes; nothing where the device is not here."""
    try:
        plan.load()
    except NotSupported as absent:
        notes.append(f"nothing was executed: {absent.rejections[0].reason}")
        return {}
    graph = plan.config.fused.graph
    hosts = {uid: value for uid, value in inputs.items() if uid not in graph.producer}
    for tensor in graph.outputs:
        hosts[tensor.uid] = empty(tensor)
        hosts[tensor.uid][...] = inputs.get(tensor.uid, 0) if graph.operations[0].reads_output else 0
    arrays = plan.to_device(hosts)
    plan.execute(arrays, plan.new_workspace())
    found = plan.to_host(arrays)
    return {t.uid: load(found[t.uid], t) for t in graph.outputs}


def _apart(tensor: TensorSpec, values: Array, wanted: Array) -> Array:
    """Inside the range of the type, as the type would hold the reference; NaN where only one of the two is."""
    given, right = _plainly(values), _plainly(wanted)
    limits = ELEMENTS[tensor.data_type]
    if tensor.data_type in FLOATS:
        given, right = (np.clip(v, limits.smallest, limits.largest) for v in (given, right))
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(given - right)
    return np.where(np.isnan(given) & np.isnan(right), 0.0, apart)


def _output(tensor: TensorSpec, walks: list[Walk], observed: Array | None) -> OutputBound:
    worst, random = (np.broadcast_to(walk.boxes[tensor.uid].error, tensor.extents) for walk in walks)
    why_not = walks[0].why_not.get(tensor.uid, "")
    closest = None
    if observed is not None and not why_not:
        with np.errstate(all="ignore"):
            ratios = np.where(observed == 0, 0.0, observed / worst)
        ratios = np.where(np.isinf(worst), 0.0, np.where(np.isnan(ratios), np.inf, ratios))
        closest = float(ratios.max(initial=0.0))
    most = None if observed is None else float(np.max(observed, initial=0.0))
    values = walks[0].known.values
    if values is not None and not why_not:  # what is no number has no error
        is_number = np.isfinite(_plainly(values[tensor.uid]))
        worst, random = (np.where(is_number, errors, 0.0) for errors in (worst, random))
    unbounded = 0.0 if why_not else float(np.mean(np.isinf(worst)))
    return OutputBound(tensor, _top(worst), _top(random), most, closest, why_not, unbounded)


def _top(errors: Array) -> float:
    return float(np.max(errors, initial=0.0))


# With ranges.


def _from_ranges(config: EngineConfig, given: Mapping[int, tuple[float, float]]) -> tuple[OutputBound, ...]:
    graph = config.fused.graph
    boxes, unknown = {}, []
    for tensor in graph.tensors.values():
        if tensor.uid in graph.producer:
            continue
        if tensor.is_constant:
            boxes[tensor.uid] = ErrorInterval.of(np.asarray(tensor.constant_value, np.float64).reshape(()))
        elif tensor.uid in given:
            boxes[tensor.uid] = ErrorInterval.between(*map(float, given[tensor.uid]))
        elif tensor.data_type in FLOATS:
            unknown.append(tensor)
        else:
            limits = ELEMENTS[tensor.data_type]
            low = 0.0 if tensor.data_type in BOOLEANS else limits.smallest
            boxes[tensor.uid] = ErrorInterval.between(float(low), float(limits.largest))
    if unknown:
        return tuple(OutputBound(t, None, None, None, None) for t in graph.outputs)
    walks = []
    for is_statistical in (False, True):
        walk = Walk(
            config,
            graph.operations,
            dict(boxes),
            Known(None, {}, is_statistical, numbers=same_values(graph.operations)),
        )
        walk.run()
        walks.append(walk)
    return tuple(_output(t, walks, None) for t in graph.outputs)


def _orders(config: EngineConfig) -> tuple[str, ...]:
    """Of a device's kernels, which divide a sum among threads by all that they read and write. On the host operations
    that are fused add up as they do apart.
    """
    if config.device.kind == "cpu":
        return ()
    fused = [step for op in config.fused if len(op.operations) > 1 for step in op.operations]
    sums = [step.label().split(" ")[0] for step in fused if _is_ordered(_arithmetic(step, None))]
    if not sums:
        return ()
    of = ", ".join(dict.fromkeys(sums))
    return (f"sums are divided as fused kernels are ({of}): apart, or fused otherwise, last bits may differ",)


def _is_ordered(bound: OperationBound | None) -> bool:
    return bound is not None and bound.terms > 1 and not bound.is_exact


def _statistics(outputs: tuple[OutputBound, ...]) -> tuple[str, ...]:
    if not any(output.statistical for output in outputs):
        return ()
    return (
        f"the statistical bound (lambda {LAMBDA:g}) fails with a probability of at most {unlikely():.0e} for one term",
    )

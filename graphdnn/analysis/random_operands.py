"""Operands for trying a graph out: random inputs, and outputs that hold garbage until something writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graphdnn.analysis.data_ranges import DataRange, data_ranges
from graphdnn.dtypes import ELEMENTS, FLOATS, Array, cast
from graphdnn.engines.host.memory import as_it_lies, empty, is_plain, store
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.tensors import TensorSpec

REPEATED = 1_048_573  # a prime: what repeats after so many elements is shifted against every axis
_USUAL = DataRange()


def random_operands(
    graph: OperationGraph,
    seed: int = 0,
    *,
    extreme: bool = False,
    distinct: int | None = None,
    outputs: bool = True,
) -> dict[int, Any]:
    """Arrays for every bound tensor: inputs random, outputs poisoned (NaN, or the largest integer).

    Floating inputs are normal numbers. Weights (filters, right factors, recurrent matrices) have a deviation
    of 1 / sqrt(n) for sums of n terms: results have the magnitude of data, and deep graphs stay in the range of narrow
    types. Integers are small enough to be told apart and large enough to carry (the full range with ``extreme``), a
    by-value tensor is 1e-5 as befits an epsilon, or 0.5 as a factor. Lengths and labels fit their axes. ``distinct``:
    numbers drawn for a tensor at most, which larger ones repeat in the order of memory: drawing takes longer than
    anything else that is done with them.
    Without ``outputs`` only those are there whose old contents something reads.
    """
    rng = np.random.default_rng(seed)
    read, ranges = {t.uid for t in _blended(graph)}, data_ranges(graph)
    return {
        spec.uid: poisoned(spec)
        if spec.uid in graph.producer
        else _random(spec, rng, distinct, ranges.get(spec.uid, _USUAL), extreme=extreme)
        for spec in graph.bound
        if outputs or spec.uid in read or spec.uid not in graph.producer
    }


def blended(graph: OperationGraph, bindings: Mapping[int, Any]) -> dict[int, Any]:
    """Copies of the outputs whose old contents a beta reads, which are made finite for that."""
    uids = [t.uid for t in _blended(graph)]
    for uid in uids:
        bindings[uid][...] = 1
    return {uid: bindings[uid].copy() for uid in uids}


def _blended(graph: OperationGraph) -> list[TensorSpec]:
    return [t for op in graph.operations if op.reads_output for t in op.outputs().values()]


def poisoned(spec: TensorSpec) -> Any:
    """An array of values that no result is likely to have."""
    binding = empty(spec)
    if ELEMENTS[spec.data_type].kind == "float":
        binding[...] = np.nan
    else:
        binding[...] = True if binding.dtype == np.bool_ else np.iinfo(binding.dtype).max
    return binding


def _random(
    spec: TensorSpec, rng: np.random.Generator, distinct: int | None, within: DataRange, *, extreme: bool
) -> Any:
    element = ELEMENTS[spec.data_type]
    if spec.is_by_value:
        return (within.by_value or 1e-5) if spec.data_type in FLOATS else 1
    shape = spec.extents if distinct is None or spec.elements <= distinct else (distinct,)
    values: Array
    if element.kind == "float":
        values = rng.standard_normal(shape) * within.deviation
        if within.is_share:
            values = np.exp(values) / np.exp(values).sum(axis=-1, keepdims=True)
    elif element.kind == "bool":
        values = rng.random(shape) < 0.5
    elif within.low is not None and within.high is not None:
        values = rng.integers(within.low, within.high, shape, endpoint=True)
    else:
        low, high = (int(element.smallest), int(element.largest)) if extreme else (max(-8, int(element.smallest)), 8)
        values = rng.integers(low, high, shape, endpoint=True)
    binding = empty(spec)
    drawn = cast(values, spec.data_type)
    if shape != spec.extents and is_plain(spec) and as_it_lies(binding).flags.c_contiguous:
        _repeat(drawn, as_it_lies(binding).reshape(-1))
        return binding
    binding[...] = 0
    store(drawn if shape == spec.extents else np.resize(drawn, spec.extents), binding, spec)
    return binding


def _repeat(values: Array, array: Array) -> None:
    """Fill a flat array, in the order of memory."""
    for start in range(0, array.size, values.size):
        array[start : start + values.size] = values[: array.size - start]


def fill(array: Any, byte: int, size: int) -> None:
    """Host or device; there in the current stream."""
    if isinstance(array, np.ndarray):
        as_it_lies(array).view(np.uint8).fill(byte)
    else:
        array.data.memset_async(byte, size)

"""Problems executed end to end: tensors in any layout, bound memory, poison, values, and exact rounding.

``execute`` takes operations through graph, fusion, ranking and plan. Memory of outputs is poisoned before the run;
after it, everything that is not an element of an output (inputs, gaps between elements) has to be as it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from conftest import PROBLEMS
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from graphdnn import OperationGraph, TensorSpec, channels_last_strides, fuse, packed_strides
from graphdnn.device.profiles import this_cpu
from graphdnn.dtypes import ELEMENTS, Array, cast, data_type_of
from graphdnn.engines import ENGINES, Engine
from graphdnn.engines.host.memory import empty, load, store
from graphdnn.enums import DataType, HeurMode, KnobType, PointwiseMode
from graphdnn.heuristics import Choice, EngineConfig, Ranking
from graphdnn.operations import Operation, PointwiseOperation, PointwiseSpec
from graphdnn.operations.pointwise_modes import POINTWISE
from graphdnn.plan import ExecutionPlan
from graphdnn.tensors import ordered_strides

FLOATS = ("f64", "f32", "f16", "bf16", "e4m3", "e5m2")
INTEGERS = ("i8", "u8", "i16", "i32", "i64")
HOST_ENGINES = tuple(engine for engine in ENGINES if "cpu" in engine.places)
GENERAL = next(engine for engine in HOST_ENGINES if engine.is_general)
SEEDS = st.integers(0, 2**32 - 1)
POISONS = (0xFF, 0x5A)  # bytes; the first is NaN in every floating type

# How many random examples a test draws: few in every run, many in the long one.
EXAMPLES = pytest.mark.parametrize(
    "examples", [pytest.param(1, id="few"), pytest.param(25, id="many", marks=pytest.mark.long)]
)
engines = pytest.mark.parametrize("engine", HOST_ENGINES, ids=lambda e: e.name)


def drawn(examples: int) -> settings:
    return settings(
        max_examples=examples, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )


class Tally:
    """Counts the problems of one test, so that a generator that leaves something out cannot pass."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.seen: Counter[str] = Counter()

    def add(self, *kinds: str) -> None:
        """One problem was executed and compared; ``kinds`` say what it covered."""
        PROBLEMS[self.title] += 1
        self.seen.update(["problems", *kinds])

    def expect(self, kinds: Iterable[object], at_least: int = 1) -> None:
        missing = [kind for kind in map(str, kinds) if self.seen[kind] < at_least]
        assert not missing, f"{self.title}: fewer than {at_least} problems with {missing} in {dict(self.seen)}"


# Tensors.


def _gaps(dims: Sequence[int]) -> tuple[int, ...]:
    return packed_strides([extent + 1 for extent in dims])


def _reversed(dims: Sequence[int]) -> tuple[int, ...]:
    return ordered_strides(dims, tuple(reversed(range(len(dims)))))


def _rotated_with_gaps(dims: Sequence[int]) -> tuple[int, ...]:
    wide = [extent + 2 for extent in dims]
    return ordered_strides(wide, (*range(1, len(dims)), 0))


LAYOUTS: dict[str, Callable[[Sequence[int]], tuple[int, ...]]] = {
    "packed": packed_strides,
    "channels_last": channels_last_strides,
    "gaps": _gaps,
    "reversed": _reversed,
    "rotated": _rotated_with_gaps,
}
layouts = st.sampled_from(list(LAYOUTS))
three_layouts = st.lists(layouts, min_size=3, max_size=3)


def tensor(uid: int, dims: Sequence[int], kind: str = "f32", layout: str = "packed", **fields: Any) -> TensorSpec:
    dims = tuple(dims)
    return TensorSpec(uid=uid, data_type=kind, dims=dims, strides=LAYOUTS[layout](dims), **fields)


def scalar(uid: int, rank: int, kind: str = "f32") -> TensorSpec:
    """A by-value tensor."""
    return tensor(uid, (1,) * rank, kind, is_by_value=True)


# Values.


def pointwise(
    mode: PointwiseMode, math_type: str, operands: list[TensorSpec], output: TensorSpec, **fields: Any
) -> PointwiseOperation:
    """The operands in the order of the mode's row; what is left in ``fields`` are parameters."""
    row = POINTWISE[mode]
    alphas = {name: fields.pop(name) for name in ("alpha1", "alpha2") if name in fields}
    spec = PointwiseSpec(mode=mode, math_type=math_type, **fields)
    ports = dict(zip(row.operands, operands, strict=True))
    return PointwiseOperation(spec=spec, **ports, **{"dx" if row.kind == "backward" else "y": output}, **alphas)


def values_of(spec: TensorSpec, rng: np.random.Generator, *, extreme: bool = False) -> Array:
    """Random values of the tensor's type, among them its limits if ``extreme``."""
    element = ELEMENTS[spec.data_type]
    if element.kind == "bool":
        return rng.random(spec.extents) < 0.5
    if element.kind == "int":
        return _integers(spec, rng, extreme)
    values = rng.standard_normal(spec.extents)
    if extreme:
        special = [0.0, -0.0, element.largest, element.smallest, np.inf, -np.inf, np.nan, tiny(spec.data_type)]
        values = np.where(rng.random(spec.extents) < 0.3, rng.choice(special, spec.extents), values)
    return cast(values, spec.data_type)


def _integers(spec: TensorSpec, rng: np.random.Generator, extreme: bool) -> Array:
    element = ELEMENTS[spec.data_type]
    low, high = int(element.smallest), int(element.largest)
    small = rng.integers(max(low, -9), 9, spec.extents, endpoint=True)
    limits = rng.choice([low, high, low + 1, high - 1], spec.extents)
    return np.where(rng.random(spec.extents) < (0.5 if extreme else 0.0), limits, small).astype(element.numpy)


def values_for(
    operation: Operation, rng: np.random.Generator, *, extreme: bool = False, ports: Iterable[str] | None = None
) -> dict[int, Array]:
    """Values by uid for the inputs (or the ``ports``) of an operation."""
    tensors = operation.inputs() if ports is None else {p: operation.tensors()[p] for p in ports}
    return {spec.uid: values_of(spec, rng, extreme=extreme) for spec in tensors.values()}


def unit(kind: DataType | str) -> float:
    """Unit roundoff of a floating type; 0 for integers."""
    element = ELEMENTS[data_type_of(kind)]
    return float(ml_dtypes.finfo(element.numpy).eps) / 2 if element.kind == "float" else 0.0


def tiny(kind: DataType | str) -> float:
    """Smallest positive number of a floating type; for integers the distance of two."""
    element = ELEMENTS[data_type_of(kind)]
    return float(ml_dtypes.finfo(element.numpy).smallest_subnormal) if element.kind == "float" else 1.0


def stored(values: Array, kind: DataType | str) -> Array:
    """Finite float64 values within the range of an element type; numbers beyond it saturate."""
    element = ELEMENTS[data_type_of(kind)]
    return np.clip(values, element.smallest, element.largest)


def wrapped(values: Array, bits: int) -> Array:
    """Python integers modulo 2**bits, as objects."""
    half = 1 << (bits - 1)
    return np.array([(int(v) + half) % (1 << bits) - half for v in values.ravel()], object).reshape(values.shape)


def saturated(values: Array, kind: DataType | str) -> Array:
    """Python integers in an integer type."""
    element = ELEMENTS[data_type_of(kind)]
    low, high = int(element.smallest), int(element.largest)
    return np.array([min(max(int(v), low), high) for v in values.ravel()], element.numpy).reshape(values.shape)


def numbers_of(kind: DataType | str) -> Array:
    """Every finite number of a narrow floating type that is not negative, in the order of their bits."""
    element = ELEMENTS[data_type_of(kind)]
    patterns = np.arange(2 ** (element.bits - 1), dtype=f"uint{element.bits}")
    with np.errstate(invalid="ignore"):  # signalling NaN
        numbers = patterns.view(element.numpy).astype(np.float64)
    return numbers[np.isfinite(numbers)]


def nearest(values: Array, kind: DataType | str) -> Array:
    """float64 values rounded once to a narrow floating type by looking among all its numbers; ties to even bits."""
    element, numbers = ELEMENTS[data_type_of(kind)], numbers_of(kind)
    magnitude = np.abs(np.where(np.isnan(values), 0, values))
    above = np.clip(np.searchsorted(numbers, magnitude), 1, len(numbers) - 1)
    middle = (numbers[above - 1] + numbers[above]) / 2
    up = (magnitude > middle) | ((magnitude == middle) & (above % 2 == 0))
    result = numbers[np.where(up, above, above - 1)]
    if element.bits == 16:  # IEEE types overflow, 8-bit types saturate
        half_step = (numbers[-1] - numbers[-2]) / 2
        result = np.where(magnitude >= numbers[-1] + half_step, np.inf, result)
    return np.where(np.isnan(values), np.nan, np.copysign(result, values))


# Execution.


def plan_of(
    graph: OperationGraph, engine: Engine = GENERAL, knobs: Mapping[KnobType, int] | None = None
) -> ExecutionPlan:
    """The best plan that one engine has for a graph; ``knobs`` in place of its defaults."""
    best = Ranking(fuse(graph), this_cpu(), HeurMode.A, engines=(engine,)).best
    if knobs:
        choices = tuple(Choice(c.task, c.engine, c.engine.settings(knobs)) for c in best.choices)
        best = EngineConfig(best.fused, best.device, choices)
    return ExecutionPlan(best)


def bound(spec: TensorSpec, values: Any = None, poison: int = POISONS[0]) -> Array:
    """An array with the tensor's layout in memory full of poison, holding ``values`` if given."""
    array = empty(spec)
    _memory(array)[...] = poison & 1 if spec.data_type is DataType.BYTE_BOOLEAN else poison
    if values is not None:
        store(cast(np.asarray(values).reshape(spec.extents), spec.data_type), array, spec)
    return array


def _memory(array: Array) -> Array:
    """The bytes that ``empty`` allocated."""
    assert isinstance(array.base, np.ndarray)
    return array.base


def execute(
    operations: Operation | Sequence[Operation],
    inputs: Mapping[int, Any],
    engine: Engine = GENERAL,
    *,
    knobs: Mapping[KnobType, int] | None = None,
    poison: int = POISONS[0],
) -> dict[int, Array]:
    """Outputs by uid. ``inputs`` are logical arrays by uid; of an output, what it holds before."""
    graph = OperationGraph.of([operations] if isinstance(operations, Operation) else operations)
    plan = plan_of(graph, engine, knobs)
    bindings = {spec.uid: bound(spec, inputs.get(spec.uid), poison) for spec in graph.bound}
    before = {uid: _memory(array).copy() for uid, array in bindings.items()}
    workspace = plan.new_workspace()
    if workspace is not None:
        workspace[...] = poison
    plan.execute(bindings, workspace)
    for spec in graph.bound:
        _assert_rest_untouched(bindings[spec.uid], before[spec.uid], spec, is_output=spec.uid in graph.producer)
    return {spec.uid: load(bindings[spec.uid], spec) for spec in graph.outputs}


def _assert_rest_untouched(array: Array, before: Array, spec: TensorSpec, *, is_output: bool) -> None:
    after = _memory(array)
    if is_output and spec.data_type is DataType.BOOLEAN:
        return  # elements share bytes; gaps between them are checked where packed booleans are
    if is_output:
        offset = array.__array_interface__["data"][0] - after.__array_interface__["data"][0]
        before, after = before.copy(), after.copy()
        for memory in (before, after):
            np.ndarray(array.shape, array.dtype, buffer=memory, offset=offset, strides=array.strides)[...] = 0
    np.testing.assert_array_equal(after, before, err_msg=f"memory of {spec.label()} that is no element of an output")


def one(operation: Operation, inputs: Mapping[int, Any], engine: Engine = GENERAL, **rest: Any) -> Array:
    """The only output of one operation."""
    (result,) = execute(operation, inputs, engine, **rest).values()
    return result

"""What a device plan looks at in its arrays: near-linear in how many there are, and never less strict than a look at each pair."""

from __future__ import annotations

import tracemalloc
from types import SimpleNamespace
from typing import Any
from weakref import ref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from legal_problems import operation, pointwise, tensor

from graphdnn import OperationGraph, Ranking, device_spec, fuse
from graphdnn.engines.host.memory import binding_layout
from graphdnn.enums import PointwiseMode
from graphdnn.plan.binding_cache import BoundArrays
from graphdnn.plan.binding_check import BindingCheck
from graphdnn.plan.binding_validation import Expected
from graphdnn.plan.memory_overlap import are_apart, overlapping

SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 12), st.booleans()), max_size=9)


class Stand:
    """What is looked at of a CuPy array."""

    def __init__(self, dims: tuple[int, ...], address: int) -> None:
        self.shape, self.strides = dims, binding_layout(tensor(1, dims))[2]
        self.dtype, self.data = np.dtype(np.float32), SimpleNamespace(ptr=address, device_id=0)


def _arrays(count: int, outputs: int) -> tuple[list[Expected], list[Any]]:
    specs = [tensor(uid, (4, 8)) for uid in range(1, count + 1)]
    expected = [Expected(s, i >= count - outputs, binding_layout(s)) for i, s in enumerate(specs)]
    return expected, [Stand((4, 8), 256 * i) for i in range(1, count + 1)]


@settings(max_examples=400, deadline=None)
@given(drawn=SPANS)
def test_overlaps_are_those_of_every_pair(drawn: list[tuple[int, int, bool]]) -> None:
    spans = [(start, start + size, is_written) for start, size, is_written in drawn]
    pairs = [
        (i, j)
        for i, (start, end, is_written) in enumerate(spans)
        for j, (other, stop, also_written) in enumerate(spans)
        if is_written and i != j and not (also_written and j < i) and start < stop and other < end
    ]
    assert overlapping(spans) == pairs
    assert are_apart(spans) is not bool(pairs)


class Counted(int):
    """An address that counts how often it is compared."""

    compared = 0

    def __lt__(self, other: Any) -> bool:
        Counted.compared += 1
        return int(self) < int(other)

    __gt__ = __lt__


def test_overlaps_of_many_are_found_with_few_comparisons() -> None:
    rng = np.random.default_rng(0)
    spans = [(Counted(64 * i), 64 * i + 64, bool(i % 2)) for i in rng.permutation(4000)]
    Counted.compared = 0
    assert are_apart(spans)
    assert 0 < Counted.compared < 20 * len(spans)


@pytest.mark.parametrize("outputs", [1, 999])
def test_looks_at_a_thousand_arrays_take_little_memory(outputs: int) -> None:
    expected, arrays = _arrays(1000, outputs)
    tracemalloc.start()
    looks = BindingCheck(expected)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20
    where = looks.where(arrays, Stand, 0, ())
    assert where is not None
    assert where[0] == tuple(array.data.ptr for array in arrays)
    arrays[500].data.ptr = arrays[501].data.ptr
    found = looks.where(arrays, Stand, 0, ())
    assert found is None if outputs > 1 else found is not None


def test_anything_else_is_looked_at_closely() -> None:
    expected, arrays = _arrays(4, 1)
    looks, bindings = BindingCheck(expected), {e.spec.uid: a for e, a in zip(expected, _arrays(4, 1)[1], strict=True)}
    bound = list(bindings.values())
    known = BoundArrays(tuple(map(ref, bound)), None)  # type: ignore[arg-type]
    sets = {tuple(map(id, bound)): known}
    assert looks.find(bindings, sets.get) is known
    assert looks.find(bindings, {tuple(map(id, arrays)): known}.get) is None
    assert looks.find(bindings, {}.get) is None
    bound[1].shape = (8, 4)
    assert looks.find(bindings, sets.get) is None
    assert looks.where(arrays, list, 0, ()) is None
    assert looks.where(arrays, Stand, 1, ()) is None
    arrays[2].data.ptr += 4
    assert looks.where(arrays, Stand, 0, ()) is None
    assert looks.where(arrays, Stand, 0, {tuple(a.data.ptr for a in arrays)}) is not None
    arrays[2].strides = (4, 32)
    assert looks.where(arrays, Stand, 0, {tuple(a.data.ptr for a in arrays)}) is None


def test_kernels_of_a_chain_with_many_outputs_compare_no_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of a plan does not grow with the square of its outputs."""
    count = 300
    relu = pointwise(PointwiseMode.RELU_FWD)
    chain = [
        operation("pointwise", x=tensor(i, (4, 8)), y=tensor(i + 1, (4, 8)), b=..., spec=relu) for i in range(count)
    ]
    best = Ranking(fuse(OperationGraph.of(chain)), device_spec("h200")).best
    compared = []
    kind = type(tensor(1, (1,)))
    equal = kind.__eq__
    monkeypatch.setattr(kind, "__eq__", lambda self, other: compared.append(1) or equal(self, other))
    for choice in best.choices:
        choice.engine.compile(choice.task, choice.knobs)
    assert len(compared) < 20 * count

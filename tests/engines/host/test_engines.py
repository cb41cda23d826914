"""Every operation on the general engine: each element of each output is written, and agrees with float64."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import PROBLEMS
from legal_problems import LEGAL, operation
from problems import POISONS, execute

from graphdnn import OperationGraph
from graphdnn.analysis.oracle import compare
from graphdnn.dtypes import ELEMENTS, cast


@pytest.mark.parametrize("tag", LEGAL)
def test_every_operation_writes_every_element_and_agrees_with_float64(tag: str) -> None:
    op = operation(tag)
    graph = OperationGraph.of([op])
    rng = np.random.default_rng(3)
    inputs = {}
    for port, spec in op.inputs().items():
        values = (
            rng.random(spec.extents) + 0.5
            if ELEMENTS[spec.data_type].kind == "float"
            else rng.integers(0, 3, spec.extents)
        )
        if port == "accumulation_count":
            values = np.full(spec.extents, 40)
        if port == "y_sq_sum":
            values = values + 100.0
        inputs[spec.uid] = cast(np.asarray(values), spec.data_type)
    outputs, again = (execute(op, inputs, poison=poison) for poison in POISONS)
    assert set(outputs) == {t.uid for t in op.outputs().values()}
    for uid, values in outputs.items():
        np.testing.assert_array_equal(values, again[uid], err_msg="what was there before is seen")
    by_value = {t.uid for t in graph.inputs if t.is_by_value}
    bindings = {u: float(v.reshape(())[()]) if u in by_value else v for u, v in {**inputs, **outputs}.items()}
    for comparison in compare(graph, bindings):
        assert comparison.ok, str(comparison)
    PROBLEMS[tag] += 1

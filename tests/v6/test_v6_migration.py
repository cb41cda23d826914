"""Scripts for the graph builder compute the bits of the calls that they were printed from.

The value tests of the legacy calls once more, each call in a recording; then programs of several calls.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import test_v6_convolution_values
import test_v6_ctc
import test_v6_dropout
import test_v6_layer_values
import test_v6_rnn
import test_v6_spatial_values
import test_v6_tensor_values
import test_v6_typed_values
import test_v6_window_values
from extension_cases import extension_named
from test_v6_recording import PROGRAMS as LAYERS
from test_v6_recording import Y, copied, data, layer, random_program
from v6_device_mirror import cases_of
from v6_programs import PROGRAMS
from v6_scripts import Scripts, plan_of, recorded_calls, watching
from v6_tools import tensor
from v6_values import drawn

from graphdnn import v6
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.operations import EXTENSIONS
from graphdnn.problem import parse
from graphdnn.v6.migration import script

MODULES = (
    test_v6_tensor_values, test_v6_convolution_values, test_v6_layer_values, test_v6_typed_values,
    test_v6_spatial_values, test_v6_window_values, test_v6_rnn, test_v6_ctc, test_v6_dropout,
)  # fmt: skip
# Those that ask for one thing hundreds of times, and those that compute nothing.
WITHOUT = (
    "test_gradients_by_differences", "test_divisive_gradients_by_differences", "test_sums_of_the_sample",
    "test_query_runtime_error", "test_condition", "test_descriptors_are_set_and_read", "test_work_is_counted", "test_sizes",
    "test_blocks_tile_the_packed_weights", "test_without_states_only_the_probability_is_set",
)  # fmt: skip
globals().update(cases_of(*MODULES, without=WITHOUT))


@pytest.fixture(autouse=True)
def scripts(request: Any) -> Iterator[Scripts]:
    with recorded_calls() if request.cls is not None else watching() as made:
        yield made


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(handle: Any, scripts: Scripts, name: str) -> None:
    with v6.record() as r:
        PROGRAMS[name](handle, np.array)
    scripts.check(r)


@pytest.mark.parametrize("program", LAYERS)
def test_layers(handle: Any, scripts: Scripts, program: Callable[..., None]) -> None:
    arrays = copied(data())
    with v6.record() as r:
        program(handle, arrays)
    scripts.check(r)


@pytest.mark.parametrize("seed", range(0, 40, 2))
def test_random_programs(handle: Any, scripts: Scripts, seed: int) -> None:
    buffers = [drawn((24,)) for _ in range(4)]
    with v6.record() as r:
        random_program(handle, buffers, seed)
    scripts.check(r)


def test_every_function_that_computes_has_a_script(handle: Any, scripts: Scripts) -> None:
    """Those of the programs here; the others in the cases above, each of which checks the script of each call."""
    for name, program in PROGRAMS.items():
        with v6.record() as r:
            program(handle, np.array)
        assert scripts.check(r).count("def graph_") == len(r.graphs), name
    computing = {line.alias_of or line.function for line in v6.coverage() if line.becomes != "state"}
    missing = {f for f in computing - scripts.functions if not f.startswith("cudnnFind")}
    missing -= {f"{f}_v3" for f in scripts.functions}
    assert not missing


@pytest.mark.parametrize("name", [*EXTENSIONS, "rnn_bwd_data f16", "rnn_fwd f16"])
def test_extension_operations(name: str) -> None:
    """A graph of each alone becomes the same graph."""
    graph = OperationGraph.of([extension_named(name)], name="one")
    place: dict[str, Any] = {}
    exec(script([graph]), place)
    assert plan_of(place["graph_1"]().build_operation_graph()) == plan_of(graph)


@pytest.mark.parametrize("problem", ["norm layer x=f32[2,8]", "matmul a=f32[2,8] b=f32[8,3]"])
def test_what_no_legacy_call_makes_has_no_script(problem: str) -> None:
    with pytest.raises(v6.CudnnError) as error:
        script([parse(problem).build_operation_graph()])
    assert error.value.rejections[0].rule == "v6.migration.operation"


def _lines(r: Any) -> list[str]:
    text = r.migration()
    compile(text, "migrated.py", "exec")
    return re.findall(r"^- (.*)", text, re.MULTILINE)


def test_one_memory_is_said(handle: Any) -> None:
    arrays, desc, half = data(), tensor(Y), tensor((1, *Y[1:]))
    with v6.record() as r:
        layer(handle, arrays, 1.0, 0.5)
    assert _lines(r) == ["graph_1 y, graph_1 y_2"]
    a, b, c, d = (drawn(Y) for _ in range(4))
    with v6.record() as r:
        v6.cudnnTransformTensor(handle, 1.0, desc, a, 0.0, desc, b)
        v6.cudnnScaleTensor(handle, half, b[:1], 2.0)
    assert _lines(r) == ["graph_1 y, graph_2 old_y, graph_2 y: parts of it"]
    before = c.copy()
    with v6.record() as r:  # the first and the third are one graph, which writes what the second reads
        v6.cudnnTransformTensor(handle, 1.0, desc, a, 0.0, desc, b)
        v6.cudnnTransformTensor(handle, 1.0, desc, c, 0.0, desc, d)
        v6.cudnnTransformTensor(handle, 1.0, desc, b, 0.0, desc, c)
    assert _lines(r) == ["graph_1 y_2, graph_2 x (as it was before graph_1)"]
    np.testing.assert_array_equal(d, before)
    np.testing.assert_array_equal(c, a)
    with v6.record() as r:
        v6.cudnnTransformTensor(handle, 1.0, desc, a, 0.0, desc, b)
    assert not _lines(r)


def test_a_network_is_described_once(handle: Any) -> None:
    """Training and both gradients name one description."""
    with v6.record() as r:
        PROGRAMS["recurrent"](handle, np.array)
    text = r.migration()
    sizes = "input_size=4, hidden_size=5, layers=2, dropout=0.3, batch_sizes=[3, 2, 2]"
    assert text.count("RnnSpec") == text.count(f"rnn = graphdnn.RnnSpec(cell='LSTM', {sizes})") == 1
    assert text.count("rnn, ") == 3

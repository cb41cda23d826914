"""The oracle at the edges: what has no tolerance, where values leave the range, what errors are carried along."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphdnn import Graph, ReductionOperator, ResampleMode, fuse
from graphdnn.analysis.oracle import Comparison, bounds, compare, evaluate, promoted, reference
from graphdnn.builder import Tensor
from graphdnn.device.profiles import device_spec
from graphdnn.engines import Task
from graphdnn.engines.cuda.winograd.winograd_4x4 import ENGINE as ENGINE_4X4
from graphdnn.heuristics import Choice, EngineConfig
from graphdnn.problem import parse, random_bindings


def run(graph: Graph, **given: Any) -> dict[int, Any]:
    """Bindings after an execution: random inputs, or those given by tensor name."""
    graph.build()
    bindings = random_bindings(graph)
    for tensor in graph.build_operation_graph().inputs:
        if tensor.name in given:
            value = given[tensor.name]
            bindings[tensor.uid] = value if tensor.is_by_value else np.asarray(value, bindings[tensor.uid].dtype)
    graph.execute(bindings)
    return bindings


def check(graph: Graph, bindings: dict[int, Any], tensor: Tensor) -> Comparison:
    found = {c.tensor.uid: c for c in compare(graph.build_operation_graph(), bindings)}
    return found[tensor.get_uid()]


# Decisions: booleans and indices.


def comparison(middle: Callable[[Graph, Tensor], Tensor]) -> tuple[Graph, Tensor]:
    g = Graph(io_data_type="f32")
    a, b = g.tensor([500], name="a"), g.tensor([500], name="b")
    return g, g.cmp_gt(middle(g, a), b).set_output().set_data_type("bool")


def test_comparisons_of_inputs_are_exact() -> None:
    g, y = comparison(lambda g, a: a)
    bindings = run(g)
    assert check(g, bindings, y).ok
    bindings[y.get_uid()][7] ^= True
    wrong = check(g, bindings, y)
    assert not wrong.ok
    assert wrong.bound == 0


def test_comparisons_of_rounded_values_may_tip_over_where_they_are_close() -> None:
    g, y = comparison(lambda g, a: g.exp(a))
    a = np.linspace(-1, 1, 500, dtype=np.float32)
    b = np.where(np.arange(500) < 3, np.exp(a), 1.3)
    bindings = run(g, a=a, b=b)
    assert check(g, bindings, y).compared == 497
    bindings[y.get_uid()][:3] ^= True
    assert check(g, bindings, y).ok
    bindings[y.get_uid()][7] ^= True
    assert not check(g, bindings, y).ok, "that one is not close"


def selection(finish: Callable[[Graph, Tensor], Tensor] = lambda g, y: y) -> tuple[Graph, Tensor, dict[int, Any]]:
    """Sums of 9 quarters beside a limit that some of them meet; larger ones become 100."""
    g = Graph(io_data_type="f32")
    total = g.conv_fprop(g.tensor([1, 1, 20, 20], name="x"), g.tensor([1, 1, 3, 3], name="w"))
    above = g.cmp_gt(total, g.tensor_scalar(0.5)).set_data_type("bool")
    y = finish(g, g.binary_select(g.tensor_scalar(100.0), total, above)).set_output()
    quarters = np.random.default_rng(0).integers(-4, 5, 400).reshape(1, 1, 20, 20) / 4
    return g, y, run(g, x=quarters, w=np.ones((1, 1, 3, 3)))


@pytest.mark.parametrize("sign", [1, -1])
def test_ties_may_be_decided_either_way(sign: int) -> None:
    g, y, bindings = selection((lambda g, y: y) if sign > 0 else (lambda g, y: g.neg(y)))
    values = bindings[y.get_uid()]
    ties = values == sign * 0.5
    assert ties.any()
    values[ties] = sign * 100.0
    assert check(g, bindings, y).ok


def test_what_is_no_tie_is_compared() -> None:
    g, y, bindings = selection()
    values = bindings[y.get_uid()]
    for others in (values == 100, values < 0.5):
        place = np.unravel_index(np.argmax(others), values.shape)
        kept, values[place] = values[place], 101.0
        assert not check(g, bindings, y).ok
        values[place] = kept
    assert check(g, bindings, y).ok


def test_a_sum_over_undecided_values_is_as_unclear() -> None:
    g, y, bindings = selection(lambda g, y: g.reduction(y, ReductionOperator.ADD).set_dim([1, 1, 1, 1]))
    bindings[y.get_uid()][...] += 99.5
    assert check(g, bindings, y).ok


def test_indices_of_maxima_are_exact() -> None:
    g = Graph(io_data_type="f32")
    y, index = g.resample(g.tensor([1, 2, 6, 6]), ResampleMode.MAXPOOL, [2, 2], generate_index=True)
    assert y is not None
    assert index is not None
    y.set_output()
    index.set_output()
    bindings = run(g)
    assert check(g, bindings, index).ok
    bindings[index.get_uid()][0, 1, 2, 2] ^= 1
    assert not check(g, bindings, index).ok


def test_counting_is_exact() -> None:
    g = Graph(io_data_type="f32")
    x = g.exp(g.tensor([3, 4]))
    y = g.gen_index(x, 1).set_output()
    bindings = run(g)
    assert check(g, bindings, y).bound == 0
    assert check(g, bindings, y).ok


# The ends of the range.


@pytest.mark.parametrize("x", [1000.0, np.inf])
@pytest.mark.parametrize(("result", "ok"), [(np.inf, True), (-np.inf, False), (3.0, False), (np.nan, False)])
def test_overflow_is_verified(x: float, result: float, ok: bool) -> None:
    g = Graph(io_data_type="f16")
    a = g.tensor([4], name="a")
    y = g.mul(a, a).set_output()
    bindings = run(g, a=np.full(4, x))
    bindings[y.get_uid()][1] = result
    assert check(g, bindings, y).ok is ok


def test_an_overflow_does_not_widen_the_bound_of_the_others() -> None:
    g = Graph(io_data_type="f16")
    a = g.tensor([4], name="a")
    y = g.mul(a, a).set_output()
    bindings = run(g, a=[1000, 1, 2, 3])
    assert check(g, bindings, y).bound < 0.01


def test_saturation_is_verified() -> None:
    g = parse("conv x=f32[1,8,4,4] w=f32[8,8,3,3] out=e4m3")
    bindings = run(g, x=np.full((1, 8, 4, 4), 100.0), w=np.full((8, 8, 3, 3), 1.0))
    (result,) = compare(g.build_operation_graph(), bindings)
    assert result.ok
    bindings[result.tensor.uid][0, 0, 0, 0] = 1
    assert not compare(g.build_operation_graph(), bindings)[0].ok


# Roundings that every engine makes are no errors.


@pytest.mark.parametrize("data_type", ["f32", "f16", "bf16", "e4m3"])
def test_constants_are_rounded_to_their_type(data_type: str) -> None:
    g = Graph(io_data_type="f32")
    y = g.mul(g.tensor([100]), g.tensor_scalar(0.3, data_type)).set_output()
    assert check(g, run(g), y).ok


def test_numbers_by_value_are_rounded_to_their_type() -> None:
    g = Graph(io_data_type="f32")
    factor = g.tensor([1], data_type="f16", is_pass_by_value=True, name="factor")
    y = g.mul(g.tensor([100]), factor).set_output()
    assert check(g, run(g, factor=0.1), y).ok


# The bound.


def test_cancellation_carries_the_errors_of_its_operands() -> None:
    g = Graph(io_data_type="f32")
    y = g.sub(g.add(g.tensor([1000]), g.tensor_scalar(1e4)), g.tensor_scalar(1e4)).set_output()
    result = check(g, run(g), y)
    assert 1e-4 < result.difference <= result.bound < 0.1


def test_an_engine_may_state_that_its_errors_are_larger() -> None:
    graph = parse("conv x=f32[1,4,6,6] w=f32[8,4,3,3] pad=1").build_operation_graph()
    op = next(iter(fuse(graph)))
    device = device_spec("h200")
    config = EngineConfig(fuse(graph), device, (Choice(Task(op, device), ENGINE_4X4, {}),))
    assert config.error_growth == {graph.outputs[0].uid: ENGINE_4X4.error_growth}
    bindings = run(parse("conv x=f32[1,4,6,6] w=f32[8,4,3,3] pad=1"))
    (usual,), (larger,) = compare(graph, bindings), compare(graph, bindings, growth=config.error_growth)
    assert 5 < larger.bound / usual.bound < 6


def test_choices_and_copies_round_nothing() -> None:
    g = Graph(io_data_type="f32")
    y = g.max(g.tensor([100]), g.tensor([100])).set_output()
    graph = g.build_operation_graph()
    values = evaluate(graph, run(g))
    assert bounds(graph, values)[0][y.get_uid()] < 2**-23 * np.abs(values[y.get_uid()]).max()


def test_conversions_into_the_arithmetic_do_round() -> None:
    g = Graph(compute_data_type="f32")
    y = g.identity(g.tensor([100], data_type="f64")).set_output().set_data_type("f64")
    assert check(g, run(g), y).ok


def test_integer_products_in_floating_arithmetic_are_exact_while_they_fit() -> None:
    g = parse("conv x=i8[2,8,6,6] w=i8[4,8,3,3] compute=f32 out=i32")
    bindings = run(g)
    (result,) = compare(g.build_operation_graph(), bindings)
    assert result.ok
    assert result.bound == 0


def test_a_step_of_a_quantized_value_is_carried_along() -> None:
    """Values next to a tie may be rounded either way, which a later factor multiplies; all others may not."""
    g = Graph(io_data_type="f32")
    x = g.tensor([1000], name="x")
    quantized = g.identity(g.mul(x, g.tensor_scalar(10.0))).set_data_type("i8")
    y = g.mul(quantized, g.tensor_scalar(0.1), compute_data_type="f32").set_output()
    rng = np.random.default_rng(0)
    tenths = np.where(np.arange(1000) < 50, rng.integers(-50, 50, 1000) / 20, rng.integers(-30, 30, 1000) / 10)
    bindings = run(g, x=tenths)
    result = check(g, bindings, y)
    assert result.ok
    assert result.bound < 0.1
    ties = np.flatnonzero(np.abs(10 * tenths % 1 - 0.5) < 1e-9)
    bindings[y.get_uid()][ties] -= 0.1 * np.sign(tenths[ties])
    up = np.abs(bindings[y.get_uid()][ties] - tenths[ties]) < 0.06  # rounded to even, the other neighbour may be right
    assert up.any()
    bindings[y.get_uid()][ties[~up]] += 0.1 * np.sign(tenths[ties[~up]])
    assert check(g, bindings, y).ok
    bindings[y.get_uid()][100] += 0.1
    assert not check(g, bindings, y).ok


def test_every_tensor_is_evaluated_and_the_outputs_are_the_reference() -> None:
    g = parse("conv x=f16[2,8,6,6] w=f16[4,8,3,3] + bias + gelu")
    graph, bindings = g.build_operation_graph(), run(g)
    values = evaluate(graph, bindings)
    assert set(values) == set(graph.tensors)
    assert all(v.dtype == np.float64 for v in values.values())
    for uid, wanted in reference(graph, bindings).items():
        np.testing.assert_array_equal(values[uid], wanted)
    assert [t.is_virtual for t in promoted(graph).tensors.values()] == [t.is_virtual for t in graph.tensors.values()]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("text", [
    "conv x=f32[2,64,9,9] w=f32[8,64,3,3] pad=1 + bias + residual + gelu",
    "conv x=bf16[2,64,9,9] w=bf16[8,64,3,3] + scale + swish",
    "matmul a=f16[16,300] b=f16[300,16] + bias + softplus + sqrt",
    "norm layer x=bf16[8,256] + sigmoid",
    "reduce norm2 x=f32[32,500] y=[32,1]",
    "pool avg x=f16[1,4,9,9] window=3 stride=2 pad=1 + tanh",
])  # fmt: skip
def test_honest_results_pass(text: str, seed: int) -> None:
    g = parse(text)
    g.build()
    bindings = random_bindings(g, seed)
    g.execute(bindings)
    for result in compare(g.build_operation_graph(), bindings):
        assert result.ok, str(result)


def test_a_softmax_of_one_element_is_compared() -> None:
    """The power of 0, where relative errors of the operand say nothing."""
    g = Graph(io_data_type="f32")
    x = g.tensor([4, 1], name="x")
    most = g.reduction(x, ReductionOperator.MAX).set_dim([4, 1])
    y = g.exp(g.sub(g.mul(x, g.tensor_scalar(0.3)), g.mul(most, g.tensor_scalar(0.3)))).set_output()
    bindings = run(g)
    assert check(g, bindings, y).ok
    bindings[y.get_uid()][...] = 0
    assert not check(g, bindings, y).ok


def test_errors_through_a_function_that_flattens_out() -> None:
    """tanh of large sums: where it crosses 0 it passes on the sum's whole error, however small its own values are."""
    graph = parse("conv x=f64[1,64,4,4] w=f64[8,64,1,1] + tanh").build_operation_graph()
    conv, tanh = graph.operations
    drawn = random_bindings(graph)
    values = evaluate(graph, {uid: 100 * value for uid, value in drawn.items() if uid in {t.uid for t in graph.inputs}})
    errors, _ = bounds(graph, values)
    (summed,), (flat,) = conv.outputs().values(), tanh.outputs().values()
    assert errors[flat.uid] >= errors[summed.uid] > 0

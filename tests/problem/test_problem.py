"""Problem texts and the oracle: what parses runs and verifies, what does not says where, and wrong results are caught."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from repository import ROOT

from graphdnn import BadParam, DataType, GraphdnnError, OperationGraph, problem
from graphdnn.analysis.oracle import bounds, compare, evaluate, promoted
from graphdnn.dtypes import SHORT_NAMES
from graphdnn.problem import parse, parser, random_bindings
from graphdnn.tensors import channels_last_strides


def test_every_element_type_of_a_line_is_documented() -> None:
    """In the docstring of graphdnn.problem and in the tutorial's table of words."""
    tutorial = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    for text in (problem.__doc__ or "", tutorial):
        words = " ".join(text.split())
        assert " ".join(SHORT_NAMES) in words, "the list of types misses one of ELEMENTS, or has another order"


DOCUMENTED = [
    re.sub(r"\s{3,}\(.*", "", line.strip())
    for line in (problem.__doc__ or "").splitlines()
    if re.match(r"    (conv|dgrad|wgrad|matmul|pool|reduce|norm|pointwise) ", line)
]
SMALL = [
    "conv x=f16[2,8,9,9]nhwc w=f16[8,8,3,3]nhwc pad=1 + scale + bias + residual + relu(0,6)",
    "conv x=f32[2,8,9] w=f32[8,8,3] stride=2 + tanh",
    "conv x=bf16[1,4,5,5,5] w=bf16[4,4,3,3,3] pad=1 mode=conv out=f32",
    "conv x=u8[2,8,9,9] w=i8[8,8,3,3] out=i8 + bias + relu",
    "conv x=i16[2,8,9,9] w=i16[8,8,3,3] compute=i64",
    "conv x=i32[2,8,9,9] w=i32[8,8,3,3]",
    "conv x=e4m3[2,8,9,9] w=e5m2[8,8,3,3] + relu",
    "matmul a=i8[2,5,7] b=i8[2,7,3]",
    "pool avg x=f32[2,8,9,9] window=3 stride=2 pad=1 + exp",
    "reduce max x=f64[4,6] y=[4,1]",
    "norm rms x=f32[8,32]",
    "norm instance x=f32[2,4,6,6] + relu",
    "norm batch x=f32[2,4,6,6]",
    "dgrad dy=f64[2,4,4,4] w=f64[4,3,3,3] dx=[2,3,6,6]",
    "wgrad x=f64[2,3,6,6] dy=f64[2,4,4,4] dw=[4,3,3,3]",
    "pointwise x=f32[3,4]",
    "pointwise x=f32[3,4] + gen_index(1)",
    "pointwise x=f32[3,4] + relu(0,1e+2) + neg",
    "conv x=f16[2,2,4,9,9] w=f16[2,6,4,3,3] spatial=2 + bias + clip(-1,2)",
    "conv x=f32[2,8,9,9] w=f32[8,8,3,3] + relu -> reduce max [1,8,1,1]",
    "matmul a=i8[5,7] b=i8[7,3] -> reduce add [5,1]",
    "norm batch x=i8[2,4,6,6]",
]


@pytest.mark.parametrize("text", SMALL)
def test_runs_and_verifies(text: str) -> None:
    graph = parse(text)
    plan = graph.build()
    bindings = random_bindings(graph, seed=1)
    plan.execute(bindings, plan.new_workspace())
    for comparison in compare(graph.build_operation_graph(), bindings):
        assert comparison.ok, str(comparison)


@pytest.mark.parametrize("text", DOCUMENTED)
def test_documented_examples_parse(text: str) -> None:
    graph = parse(text).build_operation_graph()
    assert graph.outputs


def test_there_are_documented_examples() -> None:
    assert len(DOCUMENTED) >= 8


def test_layouts_and_types() -> None:
    graph = parse("conv x=f16[2,8,9,9]nhwc w=f16[4,8,3,3]").build_operation_graph()
    x, y = graph.tensors[1], graph.outputs[0]
    assert parse("conv x=f16[2,8,9,9]NHWC w=f16[4,8,3,3]").build_operation_graph().tensors[1] == x
    assert x.strides == channels_last_strides(x.dims)
    assert y.strides == channels_last_strides(y.dims)
    assert y.data_type is DataType.HALF


REFUSED = {
    "problem.word": ["", "sort x=f32[3]", "conv x=f33[2,3] w=f32[2,3]", "pool mean x=f32[1,1,4,4] window=2",
                     "conv x=f32[2,8,9,9] w=f32[8,8,3,3] + blub", "conv x=f32[2,8,9,9] w=f32[8,8,3,3] mode=other"],
    "problem.syntax": ["conv x=f32 w=f32[8,8,3,3]", "conv x=f32[2,8,9,9] w=f32[8,8,3,3] pad=a",
                       "conv x=f32[2,8,9,9] w=f32[8,8,3,3] + relu(x)", "conv x=f32[2,8,9,9] w=f32[8,8,3,3] + relu(1,2,3,4)",
                       "conv x=f32[2,8,9,9] w=f32[8,8,3,3] +", "conv x=f32[2,8,9,9] ;", "conv x=f32[2,8,9,9] x=f32[2,8,9,9] w=f32[8,8,3,3]",
                       "conv x=f32[2,8,9,9] w=f32[8,8,3,3] spatial=x", "norm batch x=f32[4]"],
    "problem.operand": ["conv x=f32[2,8,9,9]", "dgrad dy=f32[2,4,4,4] w=f32[4,3,3,3]", "pool max x=f32[1,1,4,4]",
                        "pointwise x=f32[4] + leaky_relu", "pointwise x=f32[4] + clip(1)"],
    "problem.unused": ["conv x=f32[2,8,9,9] w=f32[8,8,3,3] color=3", "matmul a=f32[2,3] b=f32[3,4] fast"],
    "matmul.rank.minimum": ["matmul a=f32[4] b=f32[4]"],
    "conv.filter.fits": ["conv x=f32[1,1,4,4] w=f32[1,1,9,9]"],
    "conv.groups.divide_channels": ["conv x=f32[2,8,9,9] w=f32[8,7,3,3]"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("conv x=f32[2,8,9,9] w=f32[8,8,3,3] padding=1", "pad"),
        ("conv x=f32[2,8,9,9] w=f32[8,8,3,3] dilation=2", "dil"),
        ("convolution x=f32[2,8,9,9] w=f32[8,8,3,3]", "conv"),
        ("pointwise x=f32[4] + rleu", "relu"),
    ],
)
def test_a_word_that_resembles_another_names_it(text: str, meant: str) -> None:
    with pytest.raises(BadParam) as caught:
        parse(text)
    assert caught.value.rejections[0].fix.startswith(f"did you mean {meant}? ")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("relu x=f32[8,64]", "relu is a step, which follows an operation: 'pointwise x=f32[8,64] + relu'; choose one"),
        ("GELU", "GELU is a step, which follows an operation: 'pointwise x=f32[8,64] + gelu'; choose one"),
        ("gemm a=f32[4,8] b=f32[8,4]", "did you mean matmul? else choose one"),
        ("layernorm x=f32[8,64]", "did you mean norm layer? "),
        ("softmax x=f32[8,64]", "it has no line: build the graph in Python"),
        ("conv x=f32[2,8,9,9] w=f32[8,8,3,3] + relu6", "did you mean clip(0,6)? "),
        ("conv x=f32[2,8,9,9] w=f32[8,8,3,3] bias", "steps stand behind a +: + bias"),
    ],
)
def test_what_is_called_so_elsewhere(text: str, said: str) -> None:
    with pytest.raises(BadParam) as caught:
        parse(text)
    assert caught.value.rejections[0].fix.startswith(said)


@pytest.mark.parametrize(("rule", "text"), [(rule, text) for rule, texts in REFUSED.items() for text in texts])
def test_what_cannot_be_read(rule: str, text: str) -> None:
    with pytest.raises(GraphdnnError) as caught:
        parse(text)
    assert rule in [r.rule for r in caught.value.rejections]
    assert caught.value.rejections[0].fix


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("conv x=f32[2,8,9,9] w=f32[8,8,3,3] ~color=3", "3"),
        ("conv x=f32[2,8,9,9] w=f32[8,8,3,3] + ~x", "x"),
        ("conv x=f32[2,8,9,9] w=f32[8,8,3,3] +  relu(~x)", "x"),
        ("conv x=f32[2,8,9,9] w=~f33[8,8,3,3]", "f33"),
        ("pool max x=f32[1,1,4,4] window=2 stride=~x", "x"),
        ("pool ~x x=f32[1,1,4,4] window=2", "x"),
        ("dgrad dy=f32[2,4,4,4] w=f32[4,3,3,3] dx=~f16[2,3,6,6]", "f16[2,3,6,6]"),
        ("pointwise x=f32[4] -> ~min", "min"),
        ("pointwise x=f32[4] -> reduce ~x [1]", "x"),
        ("pointwise x=f32[4] + ~bias(1)", "bias(1)"),
    ],
)
def test_errors_point_at_the_column(text: str, wrong: str) -> None:
    with pytest.raises(BadParam) as caught:
        parse(text.replace("~", ""))
    (found,) = caught.value.rejections
    assert found.value == wrong
    assert found.where.endswith(f", column {text.index('~') + 1}")


def test_nothing_after_the_arrow() -> None:
    with pytest.raises(BadParam, match=r"problem\.syntax"):
        parse("pointwise x=f32[4] ->")


def test_a_bias_has_one_value_per_channel_of_every_group() -> None:
    graph = parse("conv x=f32[2,3,4,9,9] w=f32[3,5,4,3,3] spatial=2 + bias").build_operation_graph()
    (bias,) = (t for t in graph.tensors.values() if t.name == "bias")
    assert bias.dims == (1, 3, 5, 1, 1)


def test_extreme_integers_reach_the_ends_of_the_range() -> None:
    graph = parse("conv x=i8[4,16,9,9] w=i8[8,16,3,3]")
    x = random_bindings(graph, extreme=True)[1]
    assert x.min() == -128
    assert x.max() == 127


# The oracle.


def _run(text: str) -> tuple[OperationGraph, dict[int, Any]]:
    graph = parse(text)
    plan = graph.build()
    bindings = random_bindings(graph)
    plan.execute(bindings, plan.new_workspace())
    return graph.build_operation_graph(), bindings


def test_promotion_replaces_floating_types_only() -> None:
    graph = promoted(parse("conv x=f16[2,8,9,9] w=f16[8,8,3,3] + bias + relu").build_operation_graph())
    assert {t.data_type for t in graph.tensors.values()} == {DataType.DOUBLE}
    assert {op.compute_type for op in graph.operations} == {DataType.DOUBLE}
    integers = parse("conv x=i8[2,8,9,9] w=i8[8,8,3,3]").build_operation_graph()
    assert promoted(integers).key == integers.key


@pytest.mark.parametrize(
    "spoil",
    [
        lambda y: y.__setitem__((0, 0, 0, 0), y[0, 0, 0, 0] * 1.01 + 0.01),
        lambda y: y.__setitem__((1, 2, 3, 4), np.nan),
        lambda y: y.__setitem__((1, 2, 3, 4), np.inf),
    ],
    ids=["off", "nan", "inf"],
)
def test_a_wrong_float_is_caught(spoil: Callable[[Any], None]) -> None:
    graph, bindings = _run("conv x=f32[2,8,9,9] w=f32[8,8,3,3]")
    (output,) = graph.outputs
    spoil(bindings[output.uid])
    (comparison,) = compare(graph, bindings)
    assert not comparison.ok
    assert "FAILED" in str(comparison)


def test_a_wrong_integer_is_caught() -> None:
    graph, bindings = _run("conv x=i8[2,8,9,9] w=i8[8,8,3,3]")
    (output,) = graph.outputs
    bindings[output.uid][0, 0, 0, 0] += 1
    (comparison,) = compare(graph, bindings)
    assert not comparison.ok
    assert comparison.bound == 0


def test_the_bound_is_neither_vacuous_nor_too_tight() -> None:
    graph, bindings = _run("conv x=f32[2,32,9,9] w=f32[8,32,3,3] pad=1")
    (output,) = graph.outputs
    values = evaluate(graph, bindings)
    scale = float(np.abs(values[output.uid]).max())
    bound = bounds(graph, values)[0][output.uid]
    assert bound < 1e-4 * scale
    assert bound > 1e-7 * scale
    assert compare(graph, bindings)[0].difference < bound


def test_groups_are_said_to_follow_from_the_extents() -> None:
    with pytest.raises(BadParam) as caught:
        parse("conv x=f16[8,96,28,28] w=f16[96,1,3,3] pad=1 groups=96")
    assert caught.value.rejections[0].fix.startswith("groups follow from the extents")


def test_a_text_of_many_signs_is_refused_soon() -> None:
    start = time.process_time()
    with pytest.raises(BadParam):
        parse("+" * 80_000)
    assert time.process_time() - start < 2


@pytest.mark.parametrize(
    ("text", "steps"),
    [("a+b", 2), ("a(1e+2)+b", 2), ("a(1e+2+3)", 1), ("a)+b", 2), ("(+)+(", 2), ("a+b)", 1), ("+(+)", 2), ("a+(b", 2)],
)
def test_a_sign_in_parentheses_begins_no_step(text: str, steps: int) -> None:
    assert len(parser._split(text)) - 1 == steps

"""Reducing: what is left still fails, nothing more can go, and it is the same on every run."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import answer
from random_problems.families import cases, draw

from graphdnn import OperationGraph, device_spec, graph_from_json, graph_to_json, rank
from graphdnn.analysis.oracle import Comparison
from graphdnn.bundles import attempt, bundle_of, print_problem
from graphdnn.cli import main
from graphdnn.cli.exit_codes import Exit
from graphdnn.errors import BadParam, NotSupported
from graphdnn.operations import ConvolutionOperation, Operation
from graphdnn.problem import parse
from graphdnn.reducer import Failure, by_command, by_rule, by_symptom, reduce, symptom_of
from graphdnn.reducer.delta_debugging import FAMILIES
from graphdnn.reducer.graph_rebuild import possible

LAYER = (
    "conv x=i8[8,64,56,56]nhwc w=i8[64,32,3,3]nhwc pad=1 stride=2 dil=2 + bias + relu(0,6) + residual + tanh + scale"
)
Fails = Callable[[OperationGraph], bool]


def any_operation(test: Callable[[Operation], bool]) -> Fails:
    return lambda graph: any(map(test, graph.operations))


def any_convolution(test: Callable[[ConvolutionOperation], bool]) -> Fails:
    return any_operation(lambda op: isinstance(op, ConvolutionOperation) and test(op))


def named(name: str) -> Fails:
    return any_operation(lambda op: op.label().split(" ")[0] == name)


def both(first: Fails, second: Fails) -> Fails:
    return lambda graph: first(graph) and second(graph)


CASES: dict[str, tuple[str, Fails, str]] = {
    "channels": (LAYER, any_convolution(lambda op: op.roles[0].dims[1] >= 5), "conv x=f32[1,5,1,1] w=f32[1,5,1,1]"),
    "an odd number": (
        LAYER, any_convolution(lambda op: op.roles[1].dims[0] % 7 == 0 or op.roles[1].dims[0] == 64), "conv x=f32[1,1,1,1] w=f32[7,1,1,1]"
    ),
    "groups": (LAYER, any_convolution(lambda op: op.problem.groups == 2), "conv x=f32[1,2,1,1] w=f32[2,1,1,1]"),
    "depthwise": (
        "conv x=f16[8,64,56,56] w=f16[128,1,3,3] pad=1", any_convolution(lambda op: op.problem.groups > 3),
        "conv x=f32[1,4,1,1] w=f32[4,1,1,1]",
    ),
    "a stride": (LAYER, any_convolution(lambda op: op.conv.filter_strides == (2, 2)), "conv x=f32[1,1,1,1] w=f32[1,1,1,1] stride=2"),
    "padding": (LAYER, any_convolution(lambda op: op.conv.pre_paddings[1] == 1), "conv x=f32[1,1,1,1] w=f32[1,1,1,1] pre=0,1 post=0"),
    "an output extent": (
        LAYER, both(any_convolution(lambda op: op.roles[2].dims[2] >= 5), named("tanh_fwd")),
        "conv x=f32[1,1,5,1] w=f32[1,1,1,1] + tanh",
    ),
    "a type": (LAYER, any_convolution(lambda op: op.roles[1].data_type.name == "INT8"), "conv x=f32[1,1,1,1] w=i8[1,1,1,1]"),
    "one step": (LAYER, named("tanh_fwd"), "pointwise x=f32[1,1,1,1] + tanh"),
    "two steps": (LAYER, both(named("relu_fwd"), named("mul")), "pointwise x=f32[1,1,1,1] + relu + mul"),
    "a data gradient": (
        "dgrad dy=f16[8,64,28,28]nhwc w=f16[64,32,3,3] dx=[8,32,56,56] pad=1 stride=2 + relu", any_convolution(lambda op: op.roles[0].dims[2] > 3),
        "dgrad dy=f32[1,1,4,1] w=f32[1,1,1,1] dx=[1,1,4,1]",
    ),
    "a product": (
        "matmul a=f16[8,128,64] b=f16[8,64,256] + bias + gelu -> reduce add [8,1,1]", both(named("matmul"), named("reduction")),
        "matmul a=f32[1,1,1] b=f32[1,1,1] -> reduce add [1,1,1]",
    ),
    "pooling": ("pool max x=f16[2,8,32,32]nhwc window=3 stride=2 pad=1 + relu", named("resample_fwd"), "pool max x=f32[1,1,1,1] window=1"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_is_left(case: str) -> None:
    text, fails, wanted = CASES[case]
    graph = parse(text).build_operation_graph()
    reduced = reduce(graph, fails)
    found = print_problem(reduced.graph)
    if case == "two steps":  # the second operand of the product may have lost its name for a step
        assert found in (wanted, "pointwise x=f32[1,1,1,1] + relu + mul", "pointwise x=f32[1,1,1,1] + mul + relu")
    else:
        assert found == wanted
    assert fails(reduced.graph)
    assert reduced.is_minimal
    assert reduced.steps
    again = reduce(graph, fails)
    assert [step.what for step in again.steps] == [step.what for step in reduced.steps]
    assert again.graph.key == reduced.graph.key
    _assert_minimal(reduced.graph, fails)


def _assert_minimal(graph: OperationGraph, fails: Fails) -> None:
    for family in FAMILIES:
        for what, make in family(graph):
            candidate = possible(make)
            assert candidate is None or candidate.key == graph.key or not fails(candidate), what


def test_drawn_graphs_shrink_to_one_small_operation() -> None:
    """Whatever the operation: what is left is that one alone, of a few elements, and legal."""
    large = []
    drawn = cases(60, large=False, start=3)
    for case in drawn:
        graph = draw(case).graph
        name = (
            max(graph.operations, key=lambda op: sum(t.elements for t in op.tensors().values())).label().split(" ")[0]
        )
        reduced = reduce(graph, named(name), seconds=20)
        assert reduced.is_minimal, case
        assert len(reduced.graph.operations) == 1, case
        elements = sum(t.elements for t in reduced.graph.tensors.values())
        large += [case] if elements > 16 else []
    print(f"{len(drawn)} graphs, {len(large)} of them left with more than 16 elements")
    assert len(large) <= len(drawn) // 20


def test_the_time_is_bounded() -> None:
    def slow(graph: OperationGraph) -> bool:
        time.sleep(0.02)
        return True

    start = time.monotonic()
    reduced = reduce(parse(LAYER).build_operation_graph(), slow, seconds=0.05)
    assert time.monotonic() - start < 2
    assert not reduced.is_minimal
    with pytest.raises(BadParam, match=r"reduce\.passes"):
        reduce(parse(LAYER).build_operation_graph(), lambda graph: False)


# What counts as failing.


def test_a_rule() -> None:
    text = "pool max x=f32[2,4,8,8] window=2 + relu -> reduce add [2,1,1,1]"
    graph = parse(text).build_operation_graph()
    cpu = device_spec("cpu")
    g = rank(graph, cpu)
    rule = g.declined[0].rejections[0].rule
    reduced = reduce(graph, by_rule(rule, cpu))
    assert len(reduced.graph.operations) == 1
    assert not by_rule("fuse.cycle", cpu)(graph)


def test_a_wrong_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every convolution with a stride, say: that is what is left."""

    def wrong(graph: OperationGraph, *_: Any) -> list[Comparison]:
        strided = any_convolution(lambda op: max(op.conv.filter_strides) > 1)(graph)
        return [Comparison(spec, 2.0 if strided else 0.0, 1.0) for spec in graph.outputs]

    monkeypatch.setattr("graphdnn.bundles.verified_run.compare", wrong)
    graph = parse(LAYER.replace("56", "9").replace("64", "6").replace("32", "3")).build_operation_graph()
    cpu = device_spec("cpu")
    symptom = symptom_of(graph, cpu)
    assert symptom == Failure("mismatch")
    reduced = reduce(graph, by_symptom(symptom, cpu))
    assert print_problem(reduced.graph) == "conv x=f32[1,1,1,1] w=f32[1,1,1,1] stride=1,2"
    assert str(symptom) == "mismatch"


def test_a_device_that_is_not_here_is_no_symptom() -> None:
    with pytest.raises(NotSupported, match=r"execute\.device_absent"):
        symptom_of(parse("pointwise x=f32[2,2] + relu").build_operation_graph(), device_spec("h200"))


def test_a_command() -> None:
    graph = parse("conv x=f16[1,4,6,6] w=f16[4,4,1,1] + bias + relu").build_operation_graph()
    fails = by_command(["sh", "-c", "! grep -q RELU_FWD {}"], graph)
    assert print_problem(reduce(graph, fails).graph) == "pointwise x=f32[1,1,1,1] + relu"
    assert not by_command(["true"], graph)(graph)
    assert by_command(["sh", "-c", "sleep 5"], graph, seconds=0.05)(graph)  # a command that hangs is 124


# The command line.


def test_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text, file = "conv x=f16[1,4,6,6] w=f16[4,4,1,1] + bias + relu", tmp_path / "g.json"
    still = "sh -c '! grep -q RELU_FWD {}'"
    out, err = answer(capsys, "reduce", text, "--still", still, "-o", str(file), "--seconds", "60")
    assert "1 operation left after " in out
    assert "locally minimal" in out
    assert "pointwise x=f32[1,1,1,1] + relu\nrepeat: graphdnn run 'pointwise x=f32[1,1,1,1] + relu'" in out
    assert "without conv_fprop: 2 operations" in err
    assert len(graph_from_json(file.read_text("utf-8")).operations) == 1
    found = json.loads(answer(capsys, "reduce", text, "--still", still, "--json")[0])
    assert (found["format"], found["is_minimal"], found["problem"]) == (
        "graphdnn.reduced",
        True,
        "pointwise x=f32[1,1,1,1] + relu",
    )


def test_a_bundle_is_reduced_by_how_it_fails(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "graphdnn.bundles.verified_run.compare", lambda graph, *_: [Comparison(s, 2.0, 1.0) for s in graph.outputs]
    )
    config = rank(parse("norm layer x=f32[4,8] + relu").build_operation_graph()).best
    file = tmp_path / "bundle.json"
    file.write_text(bundle_of(attempt(config, 3), "0").to_json(), encoding="utf-8")
    out, err = answer(capsys, "reduce", str(file), "--engine", "numpy")
    assert "failing: mismatch" in err
    assert "repeat: graphdnn run 'pointwise x=f32[1,1] + relu' --engine numpy" in out or "norm" in out


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ((), "reduce.passes"), (("--rule", "no.rule"), "cli.reduce.rule"), (("--still", ""), "cli.reduce.command"),
        (("--still", "no-such-command-here"), "cli.reduce.command"), (("--still", "true"), "reduce.passes"),
        (("--engine", "none"), "cli.engine"),
    ],
)  # fmt: skip
def test_wrong_use(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], rule: str) -> None:
    _, err = answer(capsys, "reduce", "pointwise x=f32[2,2] + relu", *arguments, code=Exit.USAGE)
    assert rule in err


# Graphs that are refused.


def refused_graph(tmp_path: Path) -> Path:
    """Three operations, of which the first has a filter whose channels do not divide the image's."""
    data = json.loads(
        graph_to_json(parse("conv x=f16[8,64,56,56]nhwc w=f16[64,64,3,3] pad=1 + bias + relu").build_operation_graph())
    )
    (w,) = [t for t in data["tensors"] if t.get("name") == "w"]
    w["dims"][1] = 48
    file = tmp_path / "refused.json"
    file.write_text(json.dumps(data), encoding="utf-8")
    return file


def test_a_refused_graph_keeps_its_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, target = refused_graph(tmp_path), tmp_path / "small.json"
    assert main(["reduce", str(file), "-o", str(target)]) == 0
    assert "1 operation left, refused by conv.groups.divide_channels" in capsys.readouterr().out
    found = json.loads(target.read_text(encoding="utf-8"))
    assert [op["operation"] for op in found["operations"]] == ["conv_fprop"]
    assert max(e for t in found["tensors"] for e in t["dims"]) == 2
    assert main(["run", str(target)]) == 2
    assert "conv.groups.divide_channels" in capsys.readouterr().err


def test_a_refused_text_and_what_is_ignored_there(capsys: pytest.CaptureFixture[str]) -> None:
    text = "conv x=f16[8,64,56,56]nhwc w=f16[64,48,3,3] pad=1 + bias + relu"
    assert main(["reduce", text, "--rule", "conv.groups.divide_channels", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rule"] == "conv.groups.divide_channels"
    assert len(found["graph"]["operations"]) == 1
    for more, rule in ((["--rule", "conv.rank"], "reduce.passes"), (["--engine", "numpy"], "cli.ignored")):
        assert main(["reduce", text, *more]) == 2
        assert rule in capsys.readouterr().err
    assert main(["reduce", "conv x="]) == 2  # no graph at all
    assert "problem." in capsys.readouterr().err

"""Repairs: every edit that is suggested was tried, and one fault in a graph is undone by the first suggestion."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import told
from graph_faults import FAULTS, legal_graph, outcomes, report
from legal_problems import bernoulli, convolution, operation, pointwise, pooling, tensor
from long_graphs import layers
from repository import ROOT

import graphdnn
from graphdnn import Graph, OperationGraph, graph_from_json
from graphdnn.analysis import repairs
from graphdnn.analysis.repairs import EDITS, Repairs, of_error
from graphdnn.analysis.repairs.graph_draft import copied
from graphdnn.cli.exit_codes import Exit
from graphdnn.enums import PointwiseMode, ReductionOperator
from graphdnn.errors import GraphdnnError, MalformedFile
from graphdnn.files import graph_to_dict
from graphdnn.problem import parse
from graphdnn.rules import RULES
from graphdnn.tensors import TensorSpec

LAYER = "conv x=f16[8,64,28,28]nhwc w=f16[64,64,3,3]nhwc pad=1 + bias + relu"
CONV = "conv x=f16[8,64,28,28]nhwc w=f16[64,64,3,3]nhwc pad=1"
Data = dict[str, Any]


def data_of(text: str = LAYER) -> Data:
    return graph_to_dict(parse(text).build_operation_graph())


def suggested(change: Callable[[Data], object], text: str = LAYER, device: str = "h200") -> Repairs:
    """For the file of a problem, changed."""
    data = data_of(text)
    change(data)
    return repairs.of_data(data, device)


def test_a_refused_text_keeps_its_layouts() -> None:
    with pytest.raises(GraphdnnError) as refused:
        parse("conv x=f16[8,35,14,14]nhwc w=f16[64,36,3,3]nhwc pad=1 + relu")
    first = repairs.of_error(refused.value, "h200")[0]
    assert "x (uid 1): strides (6860, 1, 490, 35) -> (7056, 1, 504, 36)" in first.changes


def tensor_of(data: Data, uid: int) -> Data:
    return next(entry for entry in data["tensors"] if entry["uid"] == uid)


def set_tensor(uid: int, **fields: Any) -> Callable[[Data], object]:
    return lambda data: tensor_of(data, uid).update(fields)


def set_operation(index: int, setting: str = "", **fields: Any) -> Callable[[Data], object]:
    return lambda data: (data["operations"][index][setting] if setting else data["operations"][index]).update(fields)


# The file of LAYER: x is uid 1, w 2, the virtual result of the convolution 3, the bias 4, its sum 5, y 6.
# For each row of the table a change of a graph, and the words by which the row's edit takes it back.
CASES: dict[str, tuple[str, Callable[[Data], object], str]] = {
    "extents.output": (LAYER, set_tensor(3, dims=[8, 64, 27, 28]), "give uid 3 the extents (8, 64, 28, 28)"),
    "extents.order": (
        LAYER,
        set_tensor(1, dims=[8, 28, 28, 64], strides=[50176, 1792, 64, 1]),
        "write x (uid 1) as (8, 64, 28, 28)",
    ),
    "ports.exchange": (CONV, set_operation(0, x={"tensor": 2}, w={"tensor": 1}), "exchange x and w of conv_fprop"),
    "extents.one": (LAYER, set_tensor(1, dims=[8, 63, 28, 28]), "make dims[1] of x (uid 1) 64"),
    "extents.as_another": (
        "pointwise x=f32[8,6,4] + mul",
        set_tensor(2, dims=[8, 5, 3], strides=[15, 3, 1]),
        "the extents (8, 6, 4)",
    ),
    "extents.rank": (LAYER, set_tensor(4, dims=[64], strides=[1]), "write bias (uid 4) as (1, 64, 1, 1)"),
    "settings.geometry": (CONV, set_operation(0, "conv", pre_paddings=[2, 1]), "pre_paddings of conv_fprop: (1, 1)"),
    "settings.range": (LAYER, set_operation(0, "conv", dilations=[1]), "dilations of conv_fprop: (1, 1)"),
    "settings.unset": (LAYER, set_operation(2, "spec", elu_alpha=2.0), "leave elu_alpha of relu_fwd unset"),
    "settings.beta": (LAYER, set_operation(0, beta=1.0), "leave beta of conv_fprop at 0"),
    "types.compute": (LAYER, set_operation(0, "conv", compute_type="INT8"), "compute_type of conv_fprop: FLOAT"),
    "types.tensor": (CONV, set_tensor(1, data_type="FLOAT"), "store x (uid 1) as HALF"),
    "types.storage": (CONV, set_tensor(1, data_type="INT8x4"), "store x (uid 1) as HALF"),
    "layout.tensor": (CONV, set_tensor(1, strides=[50176, 784, 28, 1]), "give x (uid 1) channels last strides"),
    "layout.alignment": (LAYER, set_tensor(1, byte_alignment=3), "promise 16 bytes of alignment for x (uid 1)"),
    "layout.vectors": (LAYER, set_tensor(1, vector_count=4), "store x (uid 1) in its plain order"),
    "virtual.unmark": (LAYER, set_tensor(1, is_virtual=True), "clear is_virtual of x (uid 1): bind data to it"),
    "by_value": (LAYER, set_tensor(1, is_by_value=True), "clear is_by_value of x (uid 1)"),
    "ports.write": (LAYER, set_operation(1, y={"tensor": 3}), "let add write uid 5"),
}


@pytest.mark.parametrize("row", CASES)
def test_a_change_is_taken_back(row: str) -> None:
    text, change, words = CASES[row]
    found = suggested(change, text)
    assert found, row
    first = found[0]
    assert first.edit == row, first.words
    assert words in first.words
    assert first.graph.key == parse(text).build_operation_graph().key
    assert set(first.mends) <= set(RULES)


def test_every_row_is_suggested_somewhere() -> None:
    """By the cases above, or by a test of its own."""
    alone = {"settings.movement", "types.operands", "layout.operation", "layout.graph", "virtual.mark", "graph.drop", "ports.rename",
             "ports.swap", "uid.own", "channels.pad"}  # fmt: skip
    assert set(CASES) | alone == {row.id for row in EDITS}


def refused(make: Callable[[], Any], device: str = "cpu") -> Repairs:
    """For what cannot even be described."""
    with pytest.raises(GraphdnnError) as raised:
        make()
    found = raised.value.repairs(device)
    assert isinstance(found, Repairs)
    assert found.problems
    return found


def test_the_page_has_every_row() -> None:
    page = (ROOT / "docs" / "refusals.md").read_text(encoding="utf-8")

    def cell(patterns: tuple[str, ...]) -> str:
        return ", ".join(f"`{pattern}`" for pattern in patterns if pattern) or "-"

    rows = "\n".join(f"| `{r.id}` | {r.words} | {cell(r.legal)} | {cell(r.faster)} |" for r in EDITS)
    assert rows in page, rows


def test_what_newcomers_write() -> None:
    """The first suggestion is what was meant."""

    def first(make: Callable[[Graph], Any]) -> str:
        return refused(lambda: make(Graph("newcomer", io_data_type="float32")))[0].words

    def layer(g: Graph, x: Sequence[int], w: Sequence[int]) -> Any:
        return g.conv_fprop(g.tensor(x), g.tensor(w), padding=1)

    assert first(lambda g: layer(g, [2, 8, 8, 3], [4, 3, 3, 3])).startswith("write uid 1 as (2, 3, 8, 8): ")
    both = "write uid 1 as (2, 3, 8, 8) and uid 2 as (4, 3, 5, 5): "
    assert first(lambda g: layer(g, [2, 8, 8, 3], [5, 5, 3, 4])).startswith(both)
    assert first(lambda g: layer(g, [4, 3, 3, 3], [2, 3, 8, 8])) == "exchange x and w of conv_fprop"
    assert first(lambda g: g.matmul(g.tensor([64, 100]), g.tensor([10, 100]))).startswith("write uid 2 as (100, 10): ")
    assert first(lambda g: g.bias(g.tensor([2, 4, 8, 8]), g.tensor([4]))).startswith("write uid 2 as (1, 4, 1, 1): ")
    scale = "write uid 2 and uid 3 as (1, 8, 1, 1)"
    epsilon = 1e-5
    assert scale == first(
        lambda g: g.layernorm(
            "INFERENCE", g.tensor([4, 8, 1, 1]), g.tensor([8]), g.tensor([8]), g.tensor_scalar(epsilon)
        )
    )


def test_movement() -> None:
    assert refused(lambda: operation("slice", limits=(3, 9)))[0].words == "limits of slice: (3, 6)"
    found = refused(lambda: operation("transpose", name="t", permutation=(0, 0, 1)))
    assert found[0].words == "permutation of transpose 't': (2, 0, 1)"


def test_a_tensor_in_the_wrong_port() -> None:
    x, y = tensor(1, (2, 4, 6, 6)), tensor(2, (2, 4, 6, 6))
    relu = pointwise(PointwiseMode.RELU_FWD)
    found = refused(lambda: operation("pointwise", x=x, b=..., y=..., dx=y, spec=relu))
    assert (found[0].edit, found[0].words) == ("ports.rename", "give relu_fwd its tensor as y, not as dx")


def test_an_operation_that_nobody_reads_may_be_left_out() -> None:
    found = suggested(set_tensor(6, is_virtual=True))
    assert [r.edit for r in found] == ["virtual.unmark"]
    x, y, lost = tensor(1, (2, 3)), tensor(2, (2, 3)), tensor(3, (2, 3), is_virtual=True)
    relu, tanh = pointwise(PointwiseMode.RELU_FWD), pointwise(PointwiseMode.TANH_FWD)
    found = refused(
        lambda: OperationGraph.of(
            [
                operation("pointwise", x=x, b=..., y=y, spec=relu),
                operation("pointwise", x=x, b=..., y=lost, spec=tanh, name="lost"),
            ]
        )
    )
    assert [r.words for r in found] == ["clear is_virtual of uid 3: it can be read then", "leave out tanh_fwd 'lost'"]
    assert len(found[1].graph.operations) == 1


def test_two_tensors_with_one_uid() -> None:
    graph = Graph("pair", io_data_type="float16")
    x, w = graph.tensor([1, 8, 6, 6], name="x", uid=4), graph.tensor([8, 8, 3, 3], name="w", uid=4)
    graph.conv_fprop(x, w).set_output(True)
    found = graph.repairs()
    assert [p.rule for p in found.problems] == ["graph.uid.conflict"]
    assert found[0].edit == "uid.own"
    assert "a uid of its own" in found[0].words
    same = tensor(1, (2, 4, 6, 6))
    found = refused(lambda: OperationGraph.of([operation("conv_fprop", x=same, w=tensor(2, (4, 4, 1, 1)), y=same)]))
    assert found[0].words == "give y of conv_fprop a uid of its own, 3"
    data = data_of()
    data["tensors"].append({**tensor_of(data, 2), "dims": [1, 1], "strides": [1, 1]})
    with pytest.raises(MalformedFile):
        graph_from_json(json.dumps(data))


def test_operations_of_one_name_are_told_apart() -> None:
    """Two convolutions that write one tensor: either could be the one that is wrong."""
    x, w = tensor(1, (2, 4, 6, 6)), tensor(2, (4, 4, 1, 1))
    first, second = (tensor(uid, (2, 4, 6, 6), is_virtual=True) for uid in (3, 4))
    convs = [operation("conv_fprop", x=x, w=w, y=first) for _ in range(2)]
    found = refused(lambda: OperationGraph.of([*convs, operation("pointwise", x=first, b=second, y=tensor(5, x.dims))]))
    assert [r.words for r in found[:2]] == ["let conv_fprop [1] write uid 4", "let conv_fprop [0] write uid 4"]


def test_files_from_strangers() -> None:
    """Whatever a graph file holds, there are suggestions, or none, or one kind of error."""
    rng = np.random.default_rng(29)
    for seed in range(60):
        data = json.loads(json.dumps(graph_to_dict(legal_graph(np.random.default_rng([17, seed]), 3 * seed + 1))))
        for _ in range(int(rng.integers(1, 4))):
            spoil(data, rng)
        try:
            found = repairs.of_data(data, "h200")
            assert str(found)
            json.dumps(found.to_json())
        except GraphdnnError as error:
            assert isinstance(error, MalformedFile)


JUNK = (None, True, 0, -1, 3, 2**31, 2**70, 1.5, "", "FLOAT", [], {}, [0, 0], [[1]], {"tensor": 1}, {"tensor": None},
        {"float": "inf"}, [2**40] * 8, {"a": {"b": 1}}, "INT8x4")  # fmt: skip


def spoil(data: Any, rng: np.random.Generator) -> None:
    """Replace or remove something, anywhere in it."""
    places = list(_places(data))
    holder, key = places[int(rng.integers(len(places)))]
    if rng.random() < 0.2:
        del holder[key]
    else:
        holder[key] = copied(JUNK[int(rng.integers(len(JUNK)))])


def _places(data: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(data) if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ():
        yield data, key
        yield from _places(data[key])


def test_edits_in_pairs() -> None:
    """Neither the alignment nor the sign of the padding alone makes the graph legal."""

    def change(data: Data) -> None:
        tensor_of(data, 1)["byte_alignment"] = 3
        data["operations"][0]["conv"]["pre_paddings"] = [-1, 1]

    found = suggested(change)
    assert found[0].edit == "layout.alignment+settings.range"
    assert found[0].graph.key == parse(LAYER).build_operation_graph().key


def test_an_edge_is_fused_by_marking_a_tensor_virtual() -> None:
    graph = Graph("before", io_data_type="float16", device="h200")
    seen = graph.relu(graph.tensor([8, 64, 28, 28]), name="act").set_output(True)
    graph.conv_fprop(seen, graph.tensor([64, 64, 3, 3]), padding=[1, 1], name="conv").set_output(True)
    plan = graph.build()
    found = plan.repairs()
    assert found[0].edit == "virtual.mark"
    assert found[0].mends == ("fuse.prologue.virtual",)
    assert len(graphdnn.fuse(found[0].graph)) == 1 < len(plan.config.fused)
    assert [r.words for r in graph.repairs()] == [r.words for r in found]


def test_every_gain_is_a_predicted_one() -> None:
    """Before and after are what the rankings say, smallest edits come first, and larger ones gain more."""
    graph = parse("conv x=f16[8,64,28,28] w=f16[64,64,3,3] pad=1 + bias + relu").build_operation_graph()
    found = repairs.of_graph(graph, "h200")
    assert {"layout.tensor", "layout.operation"} <= {r.edit for r in found}
    before = graphdnn.rank(graph, "h200").best.predicted_seconds
    for repair in found:
        assert repair.seconds_before == before
        assert repair.seconds == graphdnn.rank(repair.graph, "h200").best.predicted_seconds < before
        assert "predicted" in repair.gain
    assert [r.size for r in found] == sorted(r.size for r in found)


def test_padding_says_what_becomes_of_the_added_channels() -> None:
    graph = parse("wgrad x=f16[8,60,28,28]nhwc dy=f16[8,64,28,28]nhwc dw=[64,60,3,3] pad=1").build_operation_graph()
    (repair,) = (r for r in repairs.of_graph(graph, "h200") if r.edit == "channels.pad")
    assert repair.words == "pad the channels of conv_wgrad: C 60 -> 64, zeros in x (uid 1), to be ignored in dw (uid 3)"


def test_arithmetic_in_fp32() -> None:
    found = suggested(set_operation(0, "conv", compute_type="DOUBLE"), CONV)
    assert found[0].words == "compute_type of conv_fprop: FLOAT"
    assert "cuda_hopper_gemm.compute_type" in found[0].mends


def test_all_tensors_of_a_graph_in_one_order() -> None:
    found = repairs.of_graph(parse("conv x=f16[8,64,28,28] w=f16[64,64,3,3] pad=1").build_operation_graph(), "h200")
    assert found[-1].edit in ("layout.operation", "layout.graph")
    assert all(t.is_channels_last for t in found[-1].graph.tensors.values())


def test_operands_of_one_type() -> None:
    def change(data: Data) -> None:
        tensor_of(data, 1)["data_type"], tensor_of(data, 2)["data_type"] = "FLOAT", "BFLOAT16"

    assert {"types.tensor", "types.operands"} & {r.edit for r in suggested(change, CONV)}


def test_a_graph_in_the_making() -> None:
    """The graph builder: what is wrong when it is built, and at a call before there is a graph."""
    graph = Graph("layer", io_data_type="float16", device="h200")
    y = graph.conv_fprop(
        graph.tensor([8, 64, 28, 28], name="x"), graph.tensor([64, 64, 3, 3], name="w"), padding=[1, 1]
    )
    graph.relu(y).set_output(True).set_dim([8, 64, 28, 29])
    with pytest.raises(GraphdnnError):
        graph.build()
    (first,) = graph.repairs()
    assert first.mends == ("pointwise.y.extents",)
    assert first.gain.startswith("makes it legal, predicted")
    found = refused(
        lambda: graph.conv_fprop(graph.tensor([8, 64, 28, 28], name="x"), graph.tensor([64, 63, 3, 3], name="w"))
    )
    assert found[0].changes[0] == "w (uid 2): dims (64, 63, 3, 3) -> (64, 64, 3, 3)"
    assert found[0].gain == "makes it legal"
    assert not found.is_whole
    still_open = Graph("open")
    still_open.relu(still_open.tensor([2, 3])).set_output(True)
    assert [p.rule for p in still_open.repairs().problems] == ["builder.data_type.open"]
    assert len(still_open.repairs()) == 0


def test_what_is_refused_by_itself() -> None:
    """Tensors and settings, before there is an operation; several mistakes at once are mended in turn."""
    both = refused(lambda: convolution(dilations=(0, 1), pre_paddings=(-1, 0)))
    assert both[0].changes == (
        "conv_fprop: conv.dilations (0, 1) -> (1, 1)",
        "conv_fprop: conv.pre_paddings (-1, 0) -> (1, 0)",
    )
    assert both[0].graph is None
    assert both[0].gain == "makes it legal"
    json.dumps(both.to_json())
    lists = dict.fromkeys(("dilations", "filter_strides"), (1,)) | dict.fromkeys(
        ("pre_paddings", "post_paddings"), (0,)
    )
    assert refused(lambda: convolution(**lists))[0].words == "spatial_dims of conv_fprop: 1"
    assert refused(lambda: tensor(7, (2, 3), strides=(1,)))[0].changes == ("uid 7: strides (1,) -> (3, 1)",)
    assert refused(lambda: tensor(7, (2, 3), "f16", byte_alignment=3))[0].edit == "layout.alignment"
    assert refused(lambda: pooling(strides=(1,)))[0].words == "strides of resample_fwd: (1, 1)"
    assert refused(lambda: pointwise(PointwiseMode.TANH_FWD, "i32"))[0].words == "math_type of tanh_fwd: FLOAT"
    assert len(refused(lambda: bernoulli(probability=1.5))) == 0


def test_nothing_to_repair() -> None:
    found = repairs.of_graph(parse(LAYER).build_operation_graph(), "h200")
    assert len(found) == 0
    assert str(found) == "nothing to repair was found"


def test_a_graph_without_operations() -> None:
    found = repairs.of_data({"tensors": [], "operations": []}, "h200")
    assert [p.rule for p in found.problems] == ["graph.empty"]
    assert len(found) == 0


def test_the_fusion_keeps_its_limits() -> None:
    """What follows a reduction stays a kernel of its own; no edit is suggested for it."""
    graph = Graph("centred", io_data_type="float16", device="h200")
    x = graph.tensor([8, 64, 28, 28])
    mean = graph.reduction(x, ReductionOperator.AVG).set_dim([1, 64, 1, 1])
    graph.sub(x, mean).set_output(True)
    assert all(r.edit.startswith("layout.") for r in graph.repairs())


@pytest.mark.long
def test_a_large_graph() -> None:
    """Few candidates of a large graph are ranked, those of the whole graph among them."""
    graph = OperationGraph.of(layers(160))
    found = repairs.of_graph(graph, "h200")
    assert found[-1].edit == "layout.graph"


# Faults.


def test_the_first_suggestion_undoes_a_fault() -> None:
    """One fault in each of 30 legal graphs, the kinds in turn; many more in the long run."""
    found = list(outcomes(30, start=70000))
    print(report(found))
    assert sum(o.place == 1 for o in found) >= 0.95 * len(found), "\n".join(str(o) for o in found if o.place != 1)


@pytest.mark.long
def test_the_first_suggestion_undoes_a_fault_in_many_graphs() -> None:
    found = list(outcomes(400, start=80000))
    print(report(found))
    assert {o.kind for o in found} == set(FAULTS)
    assert sum(o.place == 1 for o in found) >= 0.95 * len(found), "\n".join(str(o) for o in found if o.place != 1)


# The command line.


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    data = data_of()
    tensor_of(data, 3)["dims"] = [8, 64, 26, 26]
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def test_command(capsys: pytest.CaptureFixture[str], broken: Path) -> None:
    out = told(capsys, "repair", str(broken), "--device", "h200")
    for fact in (
        "refused:",
        "conv.y.extents",
        "1 suggestion for h200",
        "give uid 3 the extents (8, 64, 28, 28)",
        "makes it legal",
    ):
        assert fact in out
    data = json.loads(told(capsys, "repair", str(broken), "--json"))
    assert (data["format"], data["version"]) == ("graphdnn.repairs", 1)
    assert [p["rule"] for p in data["problems"]] == ["conv.y.extents", "pointwise.y.extents"]
    assert graph_from_json(json.dumps(data["repairs"][0]["graph"])).key == parse(LAYER).build_operation_graph().key


def test_command_applies(capsys: pytest.CaptureFixture[str], broken: Path, tmp_path: Path) -> None:
    wanted = parse(LAYER).build_operation_graph().key
    assert graph_from_json(told(capsys, "repair", str(broken), "--apply")).key == wanted
    fixed = tmp_path / "fixed.json"
    out = told(capsys, "repair", str(broken), "--apply", "1", "-o", str(fixed))
    assert "makes it legal" in out
    assert graph_from_json(fixed.read_text(encoding="utf-8")).key == wanted
    assert "legal, and no edit was found that helps" in told(capsys, "repair", str(fixed), "--device", "h200")


def test_command_refuses(capsys: pytest.CaptureFixture[str], broken: Path, tmp_path: Path) -> None:
    assert "cli.repair.choice" in told(capsys, "repair", str(broken), "--apply", "9", code=Exit.USAGE)
    text = "conv x=f16[8,64,28,28] w=f16[64,63,3,3] pad=1 + relu"
    assert "make dims[1] of w (uid 2) 64" in told(capsys, "repair", text)
    assert "cli.repair.partial" in told(capsys, "repair", text, "--apply", code=Exit.USAGE)
    assert "file.content" in told(capsys, "repair", '{"format": "graphdnn.graph", "version": 1}', code=Exit.USAGE)
    assert "problem.syntax" in told(capsys, "repair", "conv x=", code=Exit.USAGE)
    data = data_of()
    data["operations"][0]["conv"]["mode"] = "SIDEWAYS"
    path = tmp_path / "odd.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    assert "no edit was found" in told(capsys, "repair", str(path), code=Exit.CHECK_FAILED)


def test_a_tensor_with_many_entries_of_another_kind_is_answered_soon() -> None:
    """The orders in which thirteen entries can be taken out are more than can be tried."""
    with pytest.raises(GraphdnnError) as caught:
        TensorSpec(
            uid=1, data_type="FLOAT", dims=[4], strides=[1], **{f"other{i}": [i] for i in range(13)}, vector_count="x"
        )
    start = time.process_time()
    of_error(caught.value, "cpu")
    assert time.process_time() - start < 10


@pytest.mark.parametrize("uid", [{}, [1], None, 1.5, True])
def test_a_tensor_whose_uid_is_of_another_kind_is_answered(uid: object) -> None:
    with pytest.raises(GraphdnnError) as caught:
        TensorSpec(uid=uid, data_type="FLOAT", dims=[4], strides=[1], byte_alignment=10**400)
    of_error(caught.value, "cpu")

"""Files of cuDNN's frontend: every tag becomes an operation, or says why it is none."""

from __future__ import annotations

from itertools import pairwise

import pytest
from file_mutations import assert_checked, damaged
from frontend_files import IMAGES, NODES, chain, entry, frontend, node, used

import graphdnn
from graphdnn import fuse
from graphdnn.errors import BadParam
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.importers import FORMATS, cudnn_frontend, read
from graphdnn.importers.cudnn_frontend_nodes import TAGS


def graph_of(text: str) -> OperationGraph:
    found = read(text)
    assert found.format == "cudnn-frontend"
    assert not found.refused, "\n".join(map(str, found.refused))
    return found.problems[0].graph


@pytest.mark.parametrize("tag", TAGS)
def test_every_tag_of_the_frontend(tag: str) -> None:
    graph = graph_of(used(tag))
    assert {t.name for t in graph.outputs} == set(NODES[tag][0]["outputs"].values())
    assert fuse(graph)


def test_a_chain_in_any_order_with_open_types_and_an_assigned_uid() -> None:
    graph = graph_of(chain(relu_lower_clip="3F000000"))
    assert [op.label() for op in graph.operations] == ["conv_fprop '0'", "add '1'", "relu_fwd '2'"]
    assert len(fuse(graph)) == 1
    assert graph.outputs[0].uid == 17
    assert [t.data_type.name for t in graph.tensors.values() if t.is_virtual] == ["FLOAT", "FLOAT"]
    assert graph.operations[2].spec.relu_lower_clip == 0.5  # type: ignore[attr-defined]


def test_gradients_and_constants() -> None:
    back = node("POINTWISE", {"IN_0": "dy", "IN_1": "x"}, {"OUT_0": "y"}, mode="RELU_BWD")
    op = graph_of(frontend([back], *IMAGES[:3])).operations[0]
    assert {port: t.name for port, t in op.inputs().items()} == {"x": "x", "dy": "dy"}
    two = entry("two", [1], is_pass_by_value=True, pass_by_value={"index": 3, "value": "40000000"})
    graph = graph_of(
        frontend(
            [node("POINTWISE", {"IN_0": "x", "IN_1": "two"}, {"OUT_0": "y"}, mode="MUL")], *IMAGES[:1], IMAGES[2], two
        )
    )
    assert [t.constant_value for t in graph.tensors.values() if t.is_constant] == [2.0]


REFUSED_FRONTEND: dict[str, tuple[str, str]] = {
    "unknown tag": (used("POINTWISE", tag="SDPA"), "import.unknown"),
    "unknown port": (used("REDUCTION", inputs={"X": "x", "Z": "x"}), "import.unknown"),
    "unknown attribute": (used("REDUCTION", seed=3), "import.unknown"),
    "unwritten port": (used("INSTANCE_NORM", outputs={"Y": "y", "MEAN": "mean"}), "import.unknown"),
    "no such tensor": (used("REDUCTION", inputs={"X": "nothing"}), "import.missing"),
    "no operand": (used("MATMUL", inputs={"A": "a"}), "import.missing"),
    "no mode": (used("POINTWISE", mode=None), "import.missing"),
    "no axis": (used("CONCATENATE", axis=None), "import.missing"),
    "no seed": (used("RNG", inputs={"Offset": "offset"}), "import.missing"),
    "no input": (used("SLICE", inputs={}), "import.missing"),
    "mode": (used("POINTWISE", mode="SQUARE"), "import.value"),
    "list": (used("TRANSPOSE", permutation="0123"), "import.value"),
    "slices": (used("SLICE", slices=[1, 2, 3, 4]), "import.value"),
    "peers": (used("DBN", peer_stats=["x"]), "import.unknown"),
    "deterministic": (used("REDUCTION", is_deterministic=True), "import.unknown"),
    "padding": (used("MATMUL", padding_value="3F800000"), "builder.value"),
    "shapes": (used("CONV_FPROP", stride=[2, 2]), "conv.y.extents"),
    "in place": (used("CONCATENATE", in_place_index=0), "import.unknown"),
    "loop": (frontend([node("POINTWISE", {"IN_0": "y"}, {"OUT_0": "y"}, mode="ABS")], IMAGES[2]), "import.value"),
    "no nodes": ('{"nodes": 3, "tensors": {}}', "import.value"),
    "no tensors": ('{"nodes": [], "tensors": 1}', "import.value"),
    "dynamic": (
        chain().replace('"is_dynamic_shape_enabled": false', '"is_dynamic_shape_enabled": true'),
        "import.unknown",
    ),
    "hex": (chain(relu_lower_clip="3F00000Z"), "import.value"),
    "type": (chain().replace("HALF", "FP4_E2M1"), "tensor.data_type.storage"),
    "empty": ('{"nodes": [], "tensors": {}}', "graph.empty"),
}


@pytest.mark.parametrize("case", REFUSED_FRONTEND)
def test_the_frontend_reader_refuses(case: str) -> None:
    text, rule = REFUSED_FRONTEND[case]
    found = read(text, "cudnn-frontend")
    assert not found.problems
    if rule == "builder.value":
        assert found.refused[0].attribute == "padding"
    else:
        assert rule in [r.rule for r in found.refused], found.refused


def test_frontend_files_from_strangers() -> None:
    values, broken = assert_checked(
        lambda text: read(text.decode("utf-8", "replace"), "cudnn-frontend"), damaged(chain(), 500)
    )
    print(f"{values} were read, {broken} were no JSON")


def test_the_builder_refuses_what_files_brought_up() -> None:
    """Wrong strides, steps of 0, operands of another rank: errors of the library, not of Python."""
    for tag, changes in (
        ("SLICE", {"slices": [[0, 2], [1, 3], [0, 6], [0, 6]], "slice_strides": [0]}),
        ("RESAMPLE", {"window": [2], "stride": [2], "pre_padding": [0], "post_padding": [0]}),
        ("BATCHNORM", {"inputs": {"X": "x", "SCALE": "scale", "EPSILON": "epsilon"}}),
    ):
        assert FORMATS["cudnn-frontend"].read(used(tag, **changes), False).refused
    g = graphdnn.Graph(io_data_type="f32")
    x = g.tensor([2, 3], stride=[1])
    g.add(x, g.tensor([4, 2, 3])).set_output(True)
    with pytest.raises(BadParam, match=r"tensor\.strides\.length"):
        g.build_operation_graph()
    g = graphdnn.Graph(io_data_type="f32")
    with pytest.raises(BadParam, match=r"builder\.slices"):
        g.slice(g.tensor([4]), [slice(0, 4, 0)])


@pytest.mark.parametrize("count", [30, 120])
def test_each_node_is_looked_at_once(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Whatever their order in the file: here each one waits for the next."""
    names = [f"t{i}" for i in range(count + 1)]
    nodes = [node("POINTWISE", {"IN_0": a}, {"OUT_0": b}, mode="RELU_FWD") for a, b in pairwise(names)]
    text = frontend(nodes[::-1], *(entry(name, [2, 4]) for name in names))
    reads, looked = cudnn_frontend._Reading._reads, []

    def counted(self: cudnn_frontend._Reading, node: dict[str, object]) -> set[str]:
        looked.append(node)
        return reads(self, node)

    monkeypatch.setattr(cudnn_frontend._Reading, "_reads", counted)
    found = read(text, "cudnn-frontend")
    assert not found.refused
    assert len(found.problems[0].graph.operations) == count
    assert len(looked) == count

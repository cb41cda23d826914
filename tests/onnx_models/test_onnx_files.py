"""Files: truncated, altered and hostile ones end in ``MalformedFile`` or a refusal, and read nothing elsewhere."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_models import conv_relu, info, model

onnx = pytest.importorskip("onnx.reference", reason="the package onnx is not installed")
import onnx as package
from onnx import helper

import graphdnn.onnx
from graphdnn import GraphdnnError, MalformedFile

X = np.random.default_rng(6).standard_normal((1, 3, 16, 16)).astype(np.float32)


def _external(folder: Path, location: str) -> Path:
    """A model whose weights lie in another file."""
    proto = conv_relu()
    tensor = next(t for t in proto.graph.initializer if t.name == "w")
    folder.mkdir(exist_ok=True)
    (folder / "weights.bin").write_bytes(b"\0" * 16 + tensor.raw_data)
    length = len(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = tensor.EXTERNAL
    for key, value in (("location", location), ("offset", "16"), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def test_external_data_beside_the_model(tmp_path: Path) -> None:
    expected = graphdnn.onnx.load(conv_relu()).run({"x": X})["y"]
    found = graphdnn.onnx.load(_external(tmp_path / "m", "weights.bin")).run({"x": X})["y"]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "location", ["../weights.bin", "/etc/hostname", "absent.bin", "", "sub/../../weights.bin", "link.bin"]
)
def test_no_file_outside_of_the_folder_is_read(tmp_path: Path, location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _external(tmp_path / "m", location)
    (tmp_path / "weights.bin").write_bytes((tmp_path / "m" / "weights.bin").read_bytes())
    (tmp_path / "m" / "link.bin").symlink_to(tmp_path / "weights.bin")
    opened: list[str] = []
    real = Path.open
    monkeypatch.setattr(Path, "open", lambda self, *a, **k: (opened.append(os.fspath(self)), real(self, *a, **k))[1])
    with pytest.raises(MalformedFile, match=r"onnx\.model\.external_data"):
        graphdnn.onnx.load(path)
    assert all(Path(name).resolve().is_relative_to((tmp_path / "m").resolve()) for name in opened)


def test_data_shorter_than_the_tensor(tmp_path: Path) -> None:
    path = _external(tmp_path / "m", "weights.bin")
    (tmp_path / "m" / "weights.bin").write_bytes(b"\0" * 32)
    with pytest.raises(MalformedFile, match=r"onnx\.model\.external_data"):
        graphdnn.onnx.load(path)


@pytest.mark.parametrize("source", ["absent.onnx", ".", b"", b"\xff" * 64, "nul\0.onnx"])
def test_what_is_no_model(source: object) -> None:
    with pytest.raises(MalformedFile):
        graphdnn.onnx.load(source)


def test_a_name_that_is_no_text() -> None:
    content = conv_relu().SerializeToString().replace(b"relu1", b"rel\xff1")
    with pytest.raises(MalformedFile, match=r"onnx\.model\.content"):
        graphdnn.onnx.load(content)


def test_an_initializer_that_does_not_fit_its_data() -> None:
    proto = conv_relu()
    proto.graph.initializer[0].dims[0] += 1
    with pytest.raises(MalformedFile, match=r"onnx\.model\.content"):
        graphdnn.onnx.load(proto)


def _tried(content: bytes) -> str:
    """Runs a file; the class of its error, or ``ran``."""
    try:
        network = graphdnn.onnx.load(content)
        network.run({"x": X})
    except GraphdnnError as error:
        assert all(r.expected and r.reason and r.fix for r in error.rejections)
        return type(error).__name__
    return "ran"


@pytest.mark.parametrize("seed", range(2))
def test_truncated_and_altered_files(seed: int) -> None:
    _mutate(seed, 60)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_many_altered_files(seed: int) -> None:
    _mutate(100 + seed, 2000)


def _mutate(seed: int, count: int) -> None:
    rng = random.Random(seed)
    proto = conv_relu()
    proto.graph.node.append(helper.make_node("MaxPool", ["y"], ["p"], kernel_shape=[2, 2], strides=[2, 2]))
    proto.graph.output.append(helper.make_tensor_value_info("p", package.TensorProto.FLOAT, [1, 8, 8, 8]))
    content = proto.SerializeToString()
    # The weights are most of the bytes, and any bits are weights: what says something is near both ends.
    heads = [i for i in range(len(content)) if i < 150 or i > len(content) - 250]
    verdicts = set()
    for _ in range(count):
        changed = bytearray(content)
        if rng.random() < 0.3:
            changed = changed[: rng.randrange(len(changed))]
        else:
            for _ in range(rng.choice((1, 1, 2, 8))):
                changed[rng.choice(heads)] = rng.randrange(256)
        verdicts.add(_tried(bytes(changed)))
    assert verdicts - {"ran"}, "no file was refused"


def _node_model(
    op_type: str, inputs: dict[str, np.ndarray], constants: dict[str, np.ndarray], **attributes: Any
) -> Any:
    names = [*inputs, *constants]
    given = [info(name, array.dtype, array.shape) for name, array in inputs.items()]
    output = helper.make_tensor_value_info("y", package.TensorProto.FLOAT, [f"d{i}" for i in range(X.ndim)])
    return model([helper.make_node(op_type, names, ["y"], **attributes)], given, [output], constants)


NODES = {
    "conv": _node_model(
        "Conv",
        {"x": X},
        {"w": np.ones((4, 3, 3, 3), np.float32)},
        pads=[1] * 4,
        strides=[1, 1],
        dilations=[1, 1],
        group=1,
    ),
    "pool": _node_model("MaxPool", {"x": X}, {}, kernel_shape=[2, 2], strides=[2, 2], pads=[0] * 4, ceil_mode=1),
    "slice": _node_model("Slice", {"x": X}, {"s": np.array([1, 2]), "e": np.array([3, 9]), "a": np.array([1, 2])}),
    "pad": _node_model("Pad", {"x": X}, {"p": np.array([0, 0, 1, 1, 0, 0, 1, 1])}, mode="reflect"),
    "resize": _node_model(
        "Resize", {"x": X}, {"r": np.zeros(0, np.float32), "s": np.array([1, 1, 2, 2], np.float32)}, mode="linear"
    ),
    "transpose": _node_model("Transpose", {"x": X}, {}, perm=[0, 2, 3, 1]),
    "softmax": _node_model("Softmax", {"x": X}, {}, axis=1),
    "lrn": _node_model("LRN", {"x": X}, {}, size=3),
    "depth": _node_model("SpaceToDepth", {"x": X}, {}, blocksize=2),
}
STRANGE = (0, -1, 1, 2, 3, 7, 100, -(2**63), 2**62, 2**31)


@pytest.mark.parametrize("name", NODES)
def test_nodes_with_strange_attributes(name: str) -> None:
    _alter_nodes(name, 30)


@pytest.mark.long
@pytest.mark.parametrize("name", NODES)
def test_nodes_with_many_strange_attributes(name: str) -> None:
    _alter_nodes(name, 1000)


def _alter_nodes(name: str, count: int) -> None:
    """Integers of attributes and constants are replaced: the model runs, or it is refused."""
    rng = random.Random(f"{name} {count}")
    verdicts = set()
    for _ in range(count):
        proto = package.ModelProto()
        proto.CopyFrom(NODES[name])
        node = proto.graph.node[0]
        constants = [t for t in proto.graph.initializer if t.data_type == package.TensorProto.INT64]
        if node.attribute and (not constants or rng.random() < 0.5):
            attribute = rng.choice(node.attribute)
            if attribute.ints:
                attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(STRANGE)
            elif attribute.type == package.AttributeProto.INT:
                attribute.i = rng.choice(STRANGE)
            else:
                attribute.s = rng.choice((b"", b"linear", b"wrap", b"none"))
        elif constants:
            tensor = rng.choice(constants)
            array = package.numpy_helper.to_array(tensor).copy()
            array[rng.randrange(array.size)] = rng.choice(STRANGE)
            tensor.CopyFrom(package.numpy_helper.from_array(array, tensor.name))
        verdicts.add(_tried(proto.SerializeToString()))
    assert verdicts

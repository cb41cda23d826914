"""Files: truncated, altered and hostile ones end in ``MalformedFile`` or a refusal, and read nothing elsewhere."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import pytest
from onnx_models import conv_relu

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

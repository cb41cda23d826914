"""Reading: a checked onnx.ModelProto of a path, bytes or a model. Whatever is wrong with a file: ``MalformedFile``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from graphdnn.errors import BadParam, MalformedFile
from graphdnn.onnx.package import onnx_package
from graphdnn.onnx.rules import EXTERNAL_DATA, NO_FILE, NOT_A_MODEL


def read_model(source: Any) -> tuple[Any, str]:
    """The model with all data in memory, and its name for reports.

    Args:
        source: A path, bytes, or an onnx.ModelProto.

    Returns:
        (onnx.ModelProto, name).

    Raises:
        BadParam: The source is of another type.
        MalformedFile: The file is absent, truncated or altered, or its data lie outside of its folder.
    """
    onnx = onnx_package()
    if isinstance(source, onnx.ModelProto):
        model = onnx.ModelProto()
        model.CopyFrom(source)
        return _checked(onnx, model), source.graph.name or "model"
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _checked(onnx, _parsed(onnx, bytes(source), "bytes")), "model"
    if not isinstance(source, (str, os.PathLike)):
        raise BadParam(NO_FILE.reject("load", "model", type(source).__name__, detail="nothing else holds a model"))
    path = Path(source)
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        raise MalformedFile(NO_FILE.reject("load", "model", str(source), detail=str(error))) from None
    model = _parsed(onnx, content, str(source))
    _load_external_data(onnx, model, path.parent)
    return _checked(onnx, model), path.stem


def _parsed(onnx: Any, content: bytes, where: str) -> Any:
    try:
        return onnx.load_model_from_string(content)
    except Exception as error:  # of protobuf, whose classes differ between its versions
        raise _malformed(where, f"the bytes are no model: {error}") from None


def _checked(onnx: Any, model: Any) -> Any:
    """Valid, with the bodies of its own functions in place of their calls."""
    if any(_is_external(t) for t in _tensors(onnx, model)):
        raise MalformedFile(
            EXTERNAL_DATA.reject("load", "data_location", "EXTERNAL", detail="bytes and models have no folder")
        )
    try:
        if model.functions:
            model = onnx.inliner.inline_local_functions(model)
        onnx.checker.check_model(model)
    except Exception as error:  # of the checker, and of the C++ library below it
        raise _malformed("model", str(error).strip().splitlines()[0] if str(error).strip() else repr(error)) from None
    if any(not isinstance(name, str) for name in _names(model.graph)):
        raise _malformed("model", "a name is not UTF-8 text")
    return model


def _names(graph: Any) -> Iterator[Any]:
    """Every name of a graph and of the graphs in its attributes; protobuf gives bytes for what is no text."""
    yield graph.name
    for value in (*graph.input, *graph.output, *graph.initializer):
        yield value.name
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        for attribute in node.attribute:
            yield from (attribute.name, attribute.ref_attr_name)
            for inner in [attribute.g] if attribute.HasField("g") else [*attribute.graphs]:
                yield from _names(inner)


def _malformed(where: str, detail: str) -> MalformedFile:
    return MalformedFile(NOT_A_MODEL.reject("load", "model", where, detail=detail[:300]))


def _tensors(onnx: Any, model: Any) -> list[Any]:
    return list(onnx.external_data_helper._get_all_tensors(model))


def _is_external(tensor: Any) -> bool:
    return bool(tensor.data_location == tensor.EXTERNAL) and tensor.HasField("data_location")


def _load_external_data(onnx: Any, model: Any, folder: Path) -> None:
    root = folder.resolve()
    for tensor in _tensors(onnx, model):
        if not _is_external(tensor):
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        detail = _outside(root, location)
        if not detail:
            detail = _read_into(tensor, root / location, entries)
        if detail:
            shown = f"{tensor.name}: {location}"
            raise MalformedFile(EXTERNAL_DATA.reject("load", "external_data.location", shown, detail=detail))


def _outside(root: Path, location: str) -> str:
    """What is wrong with a location; empty for a file below the folder, links followed."""
    if not location or "\0" in location:
        return "the location is empty"
    if Path(location).is_absolute() or "\\" in location or ".." in Path(location).parts:
        return "the location leaves the folder"
    path = root / location
    if not path.resolve().is_relative_to(root):
        return "the location is a link that leaves the folder"
    return "" if path.is_file() else "the file does not exist"


def _read_into(tensor: Any, path: Path, entries: dict[str, str]) -> str:
    """Read the bytes of a tensor; returns what is wrong."""
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", -1))
    except ValueError:
        return "offset and length are integers"
    size = path.stat().st_size
    if offset < 0 or offset > size or (length >= 0 and offset + length > size):
        return f"the file has {size} bytes, and the tensor lies at {offset}, {length} bytes long"
    with path.open("rb") as file:
        file.seek(offset)
        tensor.raw_data = file.read(length if length >= 0 else -1)
    tensor.data_location = tensor.DEFAULT
    del tensor.external_data[:]
    return ""

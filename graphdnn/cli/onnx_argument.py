"""Models of ONNX on the command line: the file, the extents and the data of its inputs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphdnn.errors import BadParam
from graphdnn.onnx.package import onnx_package
from graphdnn.rules import Rule

if TYPE_CHECKING:
    from graphdnn.onnx.model import Model, ValueInfo

SHAPE = Rule(
    id="cli.onnx.shape",
    expected="NAME=EXTENTS with a name of the model, such as x=1,3,224,224",
    reason="{detail}",
    fix="graphdnn inspect lists the inputs",
)
DATA = Rule(
    id="cli.onnx.data",
    expected="NAME=FILE.npy with a name of the model",
    reason="{detail}",
    fix="numpy.save writes such a file",
)


def is_model(argument: str) -> bool:
    """Whether an argument names an ONNX model."""
    return argument.endswith(".onnx")


def add_inputs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--shape", action="append", default=[], metavar="NAME=EXTENTS",
        help="extents of an input of an ONNX model (default: 1 for each extent that the model leaves open)",
    )  # fmt: skip
    parser.add_argument(
        "--input", action="append", default=[], metavar="NAME=FILE.npy", help="data of an input of an ONNX model"
    )
    parser.add_argument(
        "--fallback", choices=("reference",), help="let ONNX's reference evaluator run what no engine serves"
    )


def feeds_of(model: Model, arguments: argparse.Namespace, seed: int = 0) -> dict[str, Any]:
    """Arrays for all inputs: given ones, and random ones for the others.

    Raises ``BadParam`` for a name or extents that the model does not have.
    """
    infos = {i.name: i for i in model.inputs}
    shapes = {name: _extents(name, text, infos) for name, text in _pairs(arguments.shape, SHAPE)}
    data = {name: _loaded(name, text, infos) for name, text in _pairs(arguments.input, DATA)}
    rng = np.random.default_rng(seed)
    return {n: data[n] if n in data else _random(rng, i, shapes.get(n)) for n, i in infos.items()}


def _pairs(texts: list[str], rule: Rule) -> list[tuple[str, str]]:
    found = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise BadParam(rule.reject("command line", "option", text, detail="there is no equals sign"))
        found.append((name, value))
    return found


def _extents(name: str, text: str, infos: dict[str, ValueInfo]) -> tuple[int, ...]:
    words = text.strip("[]").split(",")
    if name not in infos or not all(word.strip().isdecimal() for word in words):
        known = ", ".join(infos)
        raise BadParam(SHAPE.reject("command line", "--shape", f"{name}={text}", detail=f"the inputs are {known}"))
    return tuple(int(word) for word in words)


def _loaded(name: str, text: str, infos: dict[str, ValueInfo]) -> Any:
    if name not in infos:
        known = ", ".join(infos)
        raise BadParam(DATA.reject("command line", "--input", f"{name}={text}", detail=f"the inputs are {known}"))
    try:
        return np.load(Path(text), allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise BadParam(DATA.reject("command line", "--input", text, detail=str(error))) from None


def _random(rng: np.random.Generator, info: ValueInfo, shape: tuple[int, ...] | None) -> Any:
    """Normal numbers, small integers, or booleans. An extent that is open is 1."""
    onnx = onnx_package()
    extents = shape or tuple(e if isinstance(e, int) else 1 for e in info.shape or ())
    if not info.type:
        raise BadParam(DATA.reject("command line", info.name, "no tensor", detail="only tensors are drawn"))
    dtype = onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.DataType.Value(info.type))
    if dtype.kind in "iu":
        return rng.integers(0, 4, extents).astype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, extents).astype(dtype)
    return rng.standard_normal(extents).astype(dtype)

"""Graphs of cuDNN's frontend as it prints them: ``str(graph)``, JSON with context, nodes and tensors.

Each node becomes the call of the builder's method of the same meaning, so types, strides and uids that the JSON leaves
open are worked out as they are there. Floats are the eight hexadecimal digits of their bits.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

from graphdnn.builder import Graph, Tensor
from graphdnn.enums import DataType, TensorReordering
from graphdnn.errors import GraphdnnError, Rejection
from graphdnn.files import parse_json
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.importers.cudnn_frontend_nodes import (
    TAGS,
    Row,
    boolean,
    integer,
    integers,
    member,
    name_at,
    number,
    object_at,
    only,
    type_at,
    wrong,
)
from graphdnn.importers.import_result import MISSING, UNKNOWN, VALUE, Imported, Problem, Refusal, placed
from graphdnn.operations.pointwise_modes import POINTWISE

_COMMON = frozenset({"tag", "name", "compute_data_type", "inputs", "outputs"})
_IN_CONTEXT = frozenset({"is_dynamic_shape_enabled", "is_override_shape_enabled"})


def looks_like(text: str) -> bool:
    return text.lstrip().startswith("{") and '"nodes"' in text and '"tensors"' in text


def read(text: str, channels_last: bool = False) -> Imported:
    """One graph. Raises ``MalformedFile`` for what is no JSON; ``channels_last`` is not asked, strides are there."""
    data = parse_json(text)
    refused: list[Rejection] = []
    try:
        if not isinstance(data, dict):
            raise wrong("file", type(data).__name__, "an object with context, nodes and tensors")
        graph = _Reading(data).graph()
    except _At as error:
        refused += error.rejections
    except Refusal as refusal:
        refused.append(refusal.at("graph"))
    except GraphdnnError as error:
        refused += error.rejections
    else:
        return Imported("cudnn-frontend", (Problem(1, graph.name, "", graph),), ())
    return Imported("cudnn-frontend", (), tuple(refused))


class _At(Exception):
    """Rejections that say which node they are about."""

    def __init__(self, rejections: list[Rejection]) -> None:
        super().__init__(str(rejections[0]))
        self.rejections = rejections


class _Reading:
    """One file while its graph is made."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        context = object_at("context", data.get("context") or {})
        for name in _IN_CONTEXT & context.keys():
            only(False, None)(f"context.{name}", context[name])
        names = ("io_data_type", "intermediate_data_type", "compute_data_type")
        io, intermediate, compute = (type_at(f"context.{name}", context.get(name)) for name in names)
        self._graph = Graph(name_at("context.name", context.get("name")) or "graph", io, intermediate, compute)
        self._described = {
            key: object_at(f"tensors.{key}", entry) for key, entry in object_at("tensors", data.get("tensors")).items()
        }
        nodes = data.get("nodes")
        if not isinstance(nodes, list):
            raise wrong("nodes", type(nodes).__name__, "a list")
        self._nodes = [object_at(f"nodes[{i}]", node) for i, node in enumerate(nodes)]
        self._tensors: dict[str, Tensor] = {}
        self._seen = 0  # of these, when nodes that wait were looked at last

    def graph(self) -> OperationGraph:
        written = {
            self._key(ref) for node in self._nodes for ref in object_at("outputs", node.get("outputs") or {}).values()
        }
        waiting = {i: self._reads(node) & written for i, node in enumerate(self._nodes)}  # for what
        readers: dict[str, list[int]] = {}
        for i, keys in waiting.items():
            for key in keys:
                readers.setdefault(key, []).append(i)
        while waiting:
            ready = sorted(i for i in self._freed(waiting, readers) if not waiting[i])
            if not ready:
                raise Refusal(
                    VALUE, "nodes", ", ".join(map(str, waiting)), expected="no node that waits for itself",
                    detail="these wait for each other", fix="give the output that closes the loop a name of its own",
                )  # fmt: skip
            for i in ready:
                del waiting[i]
                self._add(i, self._nodes[i])
        built = self._graph.build_operation_graph()
        return OperationGraph.of((op.model_copy(update={"origin": ""}) for op in built.operations), name=built.name)

    def _freed(self, waiting: dict[int, set[str]], readers: dict[str, list[int]]) -> Iterable[int]:
        """Nodes that may go next: each is looked at again only when something that it waits for is there."""
        known = len(self._tensors)
        fresh, self._seen = islice(self._tensors, self._seen, None), known
        freed = [] if known else list(waiting)
        for key in fresh:
            for i in readers.pop(key, ()):
                waiting[i].discard(key)
                freed.append(i)
        return set(freed)

    def _key(self, ref: Any) -> str:
        if not isinstance(ref, (str, int)) or isinstance(ref, bool) or str(ref) not in self._described:
            raise Refusal(MISSING, "tensors", ref, expected=f"an entry {ref!r}")
        return str(ref)

    def _reads(self, node: Mapping[str, Any]) -> set[str]:
        return {self._key(ref) for ref in object_at("inputs", node.get("inputs") or {}).values()}

    def _add(self, place: int, node: Mapping[str, Any]) -> None:
        where = f"node {place} {node.get('tag')} '{node.get('name', '')}'"
        try:
            self._call(node)
        except Refusal as refusal:
            raise _At([refusal.at(where)]) from None
        except GraphdnnError as error:
            raise _At(placed(error.rejections, where)) from None

    def _call(self, node: Mapping[str, Any]) -> None:
        tag = node.get("tag")
        if not isinstance(tag, str) or tag not in TAGS:
            raise Refusal(
                UNKNOWN, "tag", tag, expected=f"one of {', '.join(TAGS)}", detail="no operation here is like it",
                fix="build the rest of the graph without it",
            )  # fmt: skip
        row = TAGS[tag]
        inputs, outputs = (object_at(side, node.get(side) or {}) for side in ("inputs", "outputs"))
        given = self._settings(node, row)
        tensors = {self._port(port, row, tag): self._input(self._key(ref)) for port, ref in inputs.items()}
        call: Callable[..., Any] = _CALLS.get(tag, _plain)
        found = call(self._graph, row, given, tensors, outputs)
        results = dict(zip(row.outputs, found, strict=False))
        for port, ref in outputs.items():
            tensor = results.get(port)
            if tensor is None:
                raise Refusal(
                    UNKNOWN, f"outputs.{port}", ref, expected=f"ports among {', '.join(row.outputs)}",
                    detail="the operation does not write it here", fix="leave it out",
                )  # fmt: skip
            self._describe(tensor, self._key(ref))
            if tag in ("RESHAPE", "RNG") and tensor.dim is None and node.get("dim"):
                tensor.set_dim(integers("dim", node["dim"]))

    def _settings(self, node: Mapping[str, Any], row: Row) -> dict[str, Any]:
        given: dict[str, Any] = {}
        for name, value in node.items():
            if name in _COMMON or value is None:
                continue
            if name not in row.attributes:
                raise Refusal(
                    UNKNOWN, name, value, expected=f"attributes among {', '.join(row.attributes) or 'none'}",
                    detail="the operation has no such setting here", fix="leave it unset",
                )  # fmt: skip
            parameter, reader = row.attributes[name]
            found = reader(name, value)
            if parameter:
                given[parameter] = found
        kind = type_at("compute_data_type", node.get("compute_data_type"))
        if row.has_compute_type and kind is not None:
            given["compute_data_type"] = kind
        return given | {"name": name_at("name", node.get("name"))}

    def _port(self, port: str, row: Row, tag: str) -> str:
        if tag == "CONCATENATE" and port.isdecimal():
            return port
        if port not in row.inputs:
            raise Refusal(
                UNKNOWN, f"inputs.{port}", port, expected=f"ports among {', '.join(row.inputs)}",
                detail="the operation does not read it here", fix="leave it out",
            )  # fmt: skip
        return row.inputs[port]

    def _input(self, key: str) -> Tensor:
        if key not in self._tensors:
            self._tensors[key] = self._new(key)
        return self._tensors[key]

    def _new(self, key: str) -> Tensor:
        entry = self._described[key]
        value = entry.get("pass_by_value")
        if value is not None:
            constant = value.get("value") if isinstance(value, dict) else value
            kind = type_at(f"tensors.{key}.data_type", entry.get("data_type"))
            tensor = self._graph.tensor_scalar(
                number(f"tensors.{key}.pass_by_value", constant), DataType.FLOAT if kind is None else kind
            )
        else:
            tensor = self._graph.tensor(integers(f"tensors.{key}.dim", entry.get("dim")))
        return self._described_as(tensor, key)

    def _describe(self, tensor: Tensor, key: str) -> None:
        self._tensors[key] = self._described_as(tensor, key)

    def _described_as(self, tensor: Tensor, key: str) -> Tensor:
        """With what the entry says; what it leaves empty stays as it was worked out."""
        entry, at = self._described[key], f"tensors.{key}"
        tensor.set_name(name_at(f"{at}.name", entry.get("name")))
        for name, change in (("dim", tensor.set_dim), ("stride", tensor.set_stride)):
            values = integers(f"{at}.{name}", entry.get(name) or [])
            if values:
                change(values)
        kind = type_at(f"{at}.data_type", entry.get("data_type"))
        if kind is not None:
            tensor.set_data_type(kind)
        tensor.set_is_virtual(boolean(f"{at}.is_virtual", entry.get("is_virtual") or False))
        tensor.set_is_pass_by_value(boolean(f"{at}.is_pass_by_value", entry.get("is_pass_by_value") or False))
        reordering = entry.get("reordering_type")
        if reordering is not None:
            tensor.set_reordering_type(member(TensorReordering, f"{at}.reordering_type", reordering))
        tensor.set_ragged_offset(entry.get("ragged_offset_uid"))
        if entry.get("uid_assigned") and entry.get("uid") is not None:
            tensor.set_uid(integer(f"{at}.uid", entry["uid"]))
        return tensor


def _plain(
    graph: Graph, row: Row, given: dict[str, Any], tensors: dict[str, Tensor], outputs: Mapping[str, Any]
) -> Any:
    """The method of the row; what it cannot do without has to be there."""
    method = getattr(graph, row.method)
    arguments: dict[str, Any] = {**tensors, **given}
    for name, parameter in inspect.signature(method).parameters.items():
        if (
            parameter.kind is not parameter.VAR_KEYWORD
            and parameter.default is parameter.empty
            and name not in arguments
        ):
            if "None" not in str(parameter.annotation):
                raise _missing(row, name)
            arguments[name] = None
    found = method(**arguments)
    return found if isinstance(found, list) else [found]


def _missing(row: Row, parameter: str) -> Refusal:
    ports = [f"inputs.{port}" for port, name in row.inputs.items() if name == parameter]
    (where, *_) = [*ports, *(name for name, (own, _) in row.attributes.items() if own == parameter), parameter]
    return Refusal(MISSING, where, "nothing", expected=f"{where} with a value")


def _pointwise(graph: Graph, row: Row, given: dict[str, Any], tensors: dict[str, Tensor], _: Any) -> list[Tensor]:
    """IN_0, IN_1 and IN_2 are x, b and t; backwards, IN_0 is dy and IN_1 is x."""
    if "mode" not in given:
        raise _missing(row, "mode")
    mode = given.pop("mode")
    backward = mode in POINTWISE and POINTWISE[mode].kind == "backward"
    ports = dict(zip(("IN_0", "IN_1", "IN_2"), ("dy", "x", "t") if backward else ("x", "b", "t"), strict=True))
    operands: dict[str, Any] = {ports[port]: tensor for port, tensor in tensors.items()}
    return [graph.pointwise(mode, **operands, **given)]


def _slice(graph: Graph, row: Row, given: dict[str, Any], tensors: dict[str, Tensor], _: Any) -> list[Tensor]:
    for needed in ("input", "slices"):
        if needed not in (*tensors, *given):
            raise _missing(row, needed)
    pairs = given.pop("slices")
    if not isinstance(pairs, list) or not all(isinstance(p, list) and len(integers("slices", p)) == 2 for p in pairs):
        raise wrong("slices", pairs, "a [start, limit] for each axis")
    steps = given.pop("strides", None) or [1]
    steps = steps * len(pairs) if len(steps) == 1 else steps
    if len(steps) != len(pairs):
        raise wrong("slice_strides", steps, "one for each axis")
    cuts = [slice(start, limit, step) for (start, limit), step in zip(pairs, steps, strict=True)]
    return [graph.slice(tensors["input"], cuts, **given)]


def _concatenate(graph: Graph, row: Row, given: dict[str, Any], tensors: dict[str, Tensor], _: Any) -> list[Tensor]:
    if "axis" not in given:
        raise _missing(row, "axis")
    return [graph.concatenate([tensors[key] for key in sorted(tensors, key=int)], **given)]


def _rmsnorm_backward(
    graph: Graph, row: Row, given: dict[str, Any], tensors: dict[str, Tensor], outputs: Mapping[str, Any]
) -> Any:
    return _plain(graph, row, {**given, "has_dbias": "DBIAS" in outputs}, tensors, outputs)


def _rng(graph: Graph, row: Row, given: dict[str, Any], tensors: dict[str, Tensor], outputs: Mapping[str, Any]) -> Any:
    if "seed" in tensors:
        given.pop("seed", None)
    elif "seed" not in given:
        raise _missing(row, "seed")
    return _plain(graph, row, given, tensors, outputs)


_CALLS: Mapping[str, Callable[..., Any]] = {
    "POINTWISE": _pointwise, "SLICE": _slice, "CONCATENATE": _concatenate, "RMS_NORM_BPROP": _rmsnorm_backward,
    "RNG": _rng,
}  # fmt: skip

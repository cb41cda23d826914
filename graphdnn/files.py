"""Graphs and plans as files: data only, checked on the way in, one error class for anything malformed.

A graph file lists tensors and operations; tensors are referred to by uid. A plan
file holds the graph, the device and, for each fused operation, the engine and its
knobs; kernels are never stored, they are rebuilt from the library's own text. A
plan file carries a hash of its content, so an altered byte cannot pass.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from enum import IntEnum
from fractions import Fraction
from typing import Any, TypeVar

from graphdnn.device import DeviceSpec, device_from_json
from graphdnn.engines import ENGINE_BY_NAME, Task
from graphdnn.enums import KnobType
from graphdnn.errors import GraphdnnError, MalformedFile, Rejection
from graphdnn.fusion import fuse
from graphdnn.fusion.limits import limits_from_json
from graphdnn.graph import OperationGraph
from graphdnn.heuristics import Choice, EngineConfig
from graphdnn.machine import device_spec
from graphdnn.operations import EXTENSIONS, OPERATIONS
from graphdnn.plan import ExecutionPlan
from graphdnn.rules import Rule
from graphdnn.spec import Spec
from graphdnn.tensors import TensorSpec

GRAPH_FORMAT, PLAN_FORMAT, DEVICE_FORMAT, VERSION = "graphdnn.graph", "graphdnn.plan", "graphdnn.device", 1
LARGEST_FILE = 16 * 2**20
DEEPEST = 32

UNREADABLE = Rule(
    id="file.unreadable",
    expected="JSON text",
    reason="the file is cut off or is not JSON: {detail}",
    fix="write it again with what made it, or check that this is the right file",
)
TOO_LARGE = Rule(
    id="file.too_large",
    expected="at most {limit} bytes",
    reason="no real graph is that large; reading on would only cost memory",
    fix="check that this is the right file",
)
TOO_DEEP = Rule(
    id="file.too_deep",
    expected="at most {limit} levels",
    reason="the format is flat",
    fix="check that this is the right file",
)
FORMAT = Rule(
    id="file.format",
    expected="{expected}",
    reason="the file says that it is something else",
    fix="pass a file of that format",
)
NEWER = Rule(
    id="file.version",
    expected="version {version}",
    reason="another version of the format means other things by the same words",
    fix="write the file again with this version of graphdnn",
)
ALTERED = Rule(
    id="file.hash",
    expected="content that gives the hash it carries",
    reason="the file was altered after it was written",
    fix="build the plan again from the graph and store it anew",
)
CONTENT = Rule(
    id="file.content",
    expected="{expected}",
    reason="the file does not describe what it says it does: {detail}",
    fix="correct the entry, or write the file again",
)

T = TypeVar("T")


def graph_to_dict(graph: OperationGraph) -> dict[str, Any]:
    """The graph as plain data."""
    return {
        "format": GRAPH_FORMAT,
        "version": VERSION,
        "name": graph.name,
        "tensors": [fields_of(graph.tensors[uid]) for uid in sorted(graph.tensors)],
        "operations": [{"operation": op.tag, **fields_of(op)} for op in graph.operations],
    }


def graph_to_json(graph: OperationGraph) -> str:
    return json.dumps(graph_to_dict(graph), indent=1)


def graph_from_json(text: str | bytes) -> OperationGraph:
    """Raises ``MalformedFile`` for anything that is not a graph; its rejections say what is wrong with it."""
    return guarded(lambda: graph_from_dict(parse_document(text, GRAPH_FORMAT)))


def plan_to_json(plan: ExecutionPlan) -> str:
    """Everything that rebuilds the plan on another machine."""
    config = plan.config
    content = {
        "format": PLAN_FORMAT,
        "version": VERSION,
        "graph": graph_to_dict(config.fused.graph),
        "device": config.device.to_json(),
        "choices": choices_of(config),
        **({"limits": config.fused.limits.to_json()} if config.fused.limits else {}),
    }
    return json.dumps({**content, "sha256": digest_of(content)}, indent=1)


def plan_from_json(text: str | bytes, device: DeviceSpec | str | None = None) -> ExecutionPlan:
    """Rebuild a plan, for the device it was made for or another one, which may be given by its name.

    Raises ``MalformedFile`` for a damaged file and ``NotSupported`` when an engine declines on this device.
    """
    config = config_from_json(text, None if device is None else device_spec(device))
    refused = refusals_of(config)
    if refused:
        from graphdnn.errors import error_for

        raise error_for(refused)
    return ExecutionPlan(config)


def config_from_json(text: str | bytes, device: DeviceSpec | None = None) -> EngineConfig:
    """A plan file's engines and knobs, of which nothing is compiled, nor asked whether they serve the device."""
    return guarded(lambda: config_from_dict(parse_document(text, PLAN_FORMAT, sealed=True), device))


def refusals_of(config: EngineConfig) -> list[Rejection]:
    """Why engines of a configuration decline its device."""
    return [r for choice in config.choices for r in choice.engine.why_not(choice.task)]


def spec_to_json(device: DeviceSpec) -> str:
    """A device as the cost models know it, for those who do not have it."""
    return json.dumps({"format": DEVICE_FORMAT, "version": VERSION, "device": device.to_json()}, indent=1)


def spec_from_json(text: str | bytes) -> DeviceSpec:
    """Raises ``MalformedFile`` for anything that is not a device."""
    return guarded(lambda: device_from_json(parse_document(text, DEVICE_FORMAT)["device"]))


# Writing.


def choices_of(config: EngineConfig) -> list[dict[str, Any]]:
    """The engine and the knobs of each kernel."""
    return [
        {
            "operation": choice.task.op.name,
            "engine": choice.engine.name,
            "engine_id": choice.engine.id,
            "knobs": {kind.c_name: value for kind, value in sorted(choice.knobs.items())},
        }
        for choice in config.choices
    ]


def fields_of(spec: Spec) -> dict[str, Any]:
    """Fields that differ from their defaults; tensors inside operations become uids."""
    result = {}
    for name, field in type(spec).model_fields.items():
        value = getattr(spec, name)
        if field.is_required() or value != field.default:
            result[name] = plain(value)
    return result


def plain(value: Any) -> Any:
    """A field as it stands in a file."""
    if isinstance(value, TensorSpec):
        return {"tensor": value.uid}
    if isinstance(value, Spec):
        return fields_of(value)
    if isinstance(value, IntEnum):
        return value.name
    if isinstance(value, Fraction):
        return [value.numerator, value.denominator]
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}  # JSON has no infinity
    return value


def digest_of(content: Mapping[str, Any]) -> str:
    """The hash that a file of this content carries."""
    import hashlib

    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


# Reading.


def malformed(rule: Rule, attribute: str, value: object, **words: Any) -> MalformedFile:
    """The error for one entry of a file."""
    return MalformedFile(rule.reject("FILE", attribute, value, **words))


def guarded(read: Callable[[], T]) -> T:
    """Run a reader of any format; whatever it trips over becomes one ``MalformedFile``."""
    try:
        return read()
    except MalformedFile:
        raise
    except GraphdnnError as error:
        refused = MalformedFile(error.rejections)
        refused.subject = error.subject
        raise refused from error
    except _TRIPPED as error:
        raise _tripped("content", error) from error


_TRIPPED = KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError, RecursionError


@contextmanager
def placed(place: str) -> Iterator[None]:
    """What a reader trips over inside is said with its place in the file: ``operations[2]``."""
    try:
        yield
    except MalformedFile as error:
        raise MalformedFile([replace(r, attribute=f"{place}.{r.attribute}") for r in error.rejections]) from error
    except GraphdnnError:
        raise
    except _TRIPPED as error:
        raise _tripped(place, error) from error


def _tripped(place: str, error: Exception) -> MalformedFile:
    if isinstance(error, KeyError):
        return malformed(CONTENT, place, "incomplete", expected=f"an entry {error}", detail="it is missing")
    detail = f"an entry is of another kind: {error}"
    return malformed(CONTENT, place, "malformed", expected="the documented entries", detail=detail)


def parse_json(text: str | bytes) -> Any:
    """JSON of any kind. Raises ``MalformedFile`` for what is too large, too deep, or no JSON."""
    if len(text) > LARGEST_FILE:
        raise malformed(TOO_LARGE, "size", f"{len(text)} bytes", limit=LARGEST_FILE)
    if _depth(text) > DEEPEST:
        raise malformed(TOO_DEEP, "nesting", _depth(text), limit=DEEPEST)
    try:
        # Other encodings than UTF-8 would make Python import what decodes them.
        written = text if isinstance(text, str) else text.decode("utf-8")
        data = json.loads(written, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise malformed(UNREADABLE, "text", "unreadable", detail=str(error)) from None
    return data


def parse_document(text: str | bytes, expected: str, *, sealed: bool = False) -> dict[str, Any]:
    """The entries of a file of one format. ``sealed``: it has to carry the hash of its content.

    Raises ``MalformedFile`` for what is too large, too deep, no JSON, of another format or version, or altered.
    """
    data = parse_json(text)
    if not isinstance(data, dict) or data.get("format") != expected:
        found = data.get("format") if isinstance(data, dict) else type(data).__name__
        raise malformed(FORMAT, "format", found, expected=expected)
    if data.get("version") != VERSION:
        raise malformed(NEWER, "version", data.get("version"), version=VERSION)
    digest = data.pop("sha256", None)
    if (digest is not None or sealed) and digest != digest_of(data):
        raise malformed(ALTERED, "sha256", digest)
    return data


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _depth(text: str | bytes) -> int:
    """Deepest nesting of brackets, strings not told apart: an upper bound that needs no parser."""
    opening, closing = ("[{", "]}") if isinstance(text, str) else (b"[{", b"]}")
    depth = deepest = 0
    for char in text:
        if char in opening:
            depth += 1
            deepest = max(deepest, depth)
        elif char in closing:
            depth -= 1
    return deepest


KNOWN_OPERATIONS = {**OPERATIONS, **EXTENSIONS}


def graph_from_dict(data: Mapping[str, Any]) -> OperationGraph:
    """What ``graph_to_dict`` made; to be called inside ``guarded``."""
    tensors: dict[int, TensorSpec] = {}
    for i, entry in enumerate(data["tensors"]):
        with placed(f"tensors[{i}]"):
            tensor = TensorSpec(**decoded(TensorSpec, entry, {}))
        if tensors.setdefault(tensor.uid, tensor) != tensor:
            raise malformed(
                CONTENT, "tensors", tensor.label(), expected="one entry for one uid", detail="two tensors share a uid"
            )
    operations = []
    for i, entry in enumerate(data["operations"]):
        with placed(f"operations[{i}]"):
            fields = dict(entry)
            tag = fields.pop("operation")
            if tag not in KNOWN_OPERATIONS:
                known = ", ".join(KNOWN_OPERATIONS)
                raise malformed(CONTENT, "operation", tag, expected=f"one of {known}", detail="unknown operation")
            cls = KNOWN_OPERATIONS[tag]
            operations.append(cls(**decoded(cls, fields, tensors)))
    return OperationGraph.of(operations, name=str(data.get("name", "")))


def decoded(cls: type[Spec], entry: Mapping[str, Any], tensors: Mapping[Any, TensorSpec]) -> dict[str, Any]:
    """The fields of an entry, ready for the spec; ``tensors`` are those it may refer to."""
    return {name: _value(cls, name, value, tensors) for name, value in dict(entry).items()}


def _value(cls: type[Spec], field: str, value: Any, tensors: Mapping[Any, TensorSpec]) -> Any:
    if isinstance(value, dict) and set(value) == {"tensor"}:
        if value["tensor"] not in tensors:
            raise malformed(
                CONTENT, field, value["tensor"], expected="the uid of a tensor of the file", detail="it is not there"
            )
        return tensors[value["tensor"]]
    if isinstance(value, dict) and set(value) == {"float"}:
        return float(value["float"])
    annotation = cls.model_fields[field].annotation if field in cls.model_fields else None
    if isinstance(annotation, type) and issubclass(annotation, Spec) and isinstance(value, dict):
        return annotation(**decoded(annotation, value, tensors))
    if isinstance(annotation, type) and issubclass(annotation, IntEnum) and isinstance(value, str):
        if value not in annotation.__members__:
            known = ", ".join(annotation.__members__)
            raise malformed(CONTENT, field, value, expected=f"one of {known}", detail="the name is unknown")
        return annotation[value]
    if isinstance(value, list):
        return tuple(_value(cls, field, item, tensors) for item in value)
    return value


def config_from_dict(data: Mapping[str, Any], device: DeviceSpec | None) -> EngineConfig:
    """From the entries graph, device, choices and, where there are any, limits; to be called inside ``guarded``."""
    graph = graph_from_dict(data["graph"])
    target = device or device_from_json(data["device"])
    fused = fuse(graph, limits_from_json(data.get("limits", {})))
    if len(data["choices"]) != len(fused):
        raise malformed(
            CONTENT, "choices", len(data["choices"]), expected=f"{len(fused)} choices",
            detail="the graph is fused differently by this version",
        )  # fmt: skip
    choices = []
    for op, entry in zip(fused, data["choices"], strict=True):
        if entry["engine"] not in ENGINE_BY_NAME or entry["operation"] != op.name:
            raise malformed(
                CONTENT, "choices", f"{entry['engine']} for {entry['operation']}",
                expected=f"a known engine for {op.name}", detail="unknown engine or other fusion",
            )  # fmt: skip
        engine = ENGINE_BY_NAME[entry["engine"]]
        chosen = [(KnobType.from_c_name(kind), int(value)) for kind, value in entry["knobs"].items()]
        problems = engine.knob_problems([(KnobType(k), v) for k, v in chosen])
        if problems:
            raise MalformedFile(problems)
        choices.append(Choice(Task(op, target), engine, engine.settings({KnobType(k): v for k, v in chosen})))
    return EngineConfig(fused, target, tuple(choices))


__all__ = ["graph_from_json", "graph_to_dict", "graph_to_json", "plan_from_json", "plan_to_json"]

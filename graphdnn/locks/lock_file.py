"""Lock: what was decided for a set of graphs, as a value and as a file that is read line by line in a review.

One entry for each graph and device: the fused sets, what kept them apart, and for each kernel the engine, its knobs,
the hash of its text and the time predicted, beside the other engines' predictions. Nothing of it depends on the
machine that writes it: predictions are those of a device's spec, which the file holds as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphdnn.device.profiles import DeviceSpec, device_from_json
from graphdnn.engines.renames import current_name, current_names
from graphdnn.files import CONTENT, VERSION, graph_from_dict, guarded, malformed, parse_document, placed
from graphdnn.fusion import FusionLimits
from graphdnn.fusion.limits import limits_from_json
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.problem import parse

LOCK_FORMAT = "graphdnn.lock"
_WIDTH = 110  # a list or an object that fits stays on one line


@dataclass(frozen=True, slots=True)
class LockedKernel:
    """One fused operation, and the engine that serves it."""

    operations: tuple[str, ...]
    rule: str  # of the fusion
    engine: str
    knobs: Mapping[str, int]
    predicted_us: float
    workspace: int  # bytes that the kernel itself needs
    texts: Mapping[str, str]  # name of a kernel text -> its hash; empty on the host
    ranking: Mapping[str, float]  # engines that serve it -> predicted microseconds

    @property
    def name(self) -> str:
        """The operations of the kernel, joined by ``+``."""
        return "+".join(op.split(" ")[0] for op in self.operations)

    def to_json(self) -> dict[str, Any]:
        """Plain data, as the lock file holds it."""
        return {
            "operations": list(self.operations),
            "rule": self.rule,
            "engine": self.engine,
            "knobs": dict(self.knobs),
            "predicted_us": self.predicted_us,
            "workspace": self.workspace,
            "texts": dict(self.texts),
            "ranking": dict(self.ranking),
        }


@dataclass(frozen=True, slots=True)
class LockedGraph:
    """One graph on one device, with its kernels as they were locked."""

    name: str
    device: str
    key: str  # of the graph
    problem: str  # the text that makes the graph; empty where ``graph`` holds it
    graph: Mapping[str, Any] | None  # as ``graph_to_dict`` writes it
    limits: Mapping[str, Any]  # of the fusion, as plan files have them; empty where there are none
    kernels: tuple[LockedKernel, ...]
    stops: tuple[tuple[str, str], ...]  # (edge, rule) of each edge left unfused
    numbers: tuple[str, ...]  # the numeric class, a line for each operation
    workspace: int  # bytes of the plan
    is_planned: bool = False  # the engines are a plan file's, not the ranking's best

    def operation_graph(self) -> OperationGraph:
        """The graph.

        Raises:
            MalformedFile: This version cannot read it.
        """
        if self.graph is not None:
            stored = self.graph
            return guarded(lambda: graph_from_dict(stored))
        return guarded(lambda: parse(self.problem).build_operation_graph())

    def limits_of_fusion(self) -> FusionLimits:
        """The limits of the fusion.

        Raises:
            MalformedFile: This version cannot read them.
        """
        return guarded(lambda: limits_from_json(self.limits))

    def to_json(self) -> dict[str, Any]:
        """Plain data, as the lock file holds it."""
        return {
            "name": self.name,
            "device": self.device,
            "key": self.key,
            **({"problem": self.problem} if self.graph is None else {"graph": self.graph}),
            **({"limits": self.limits} if self.limits else {}),
            "kernels": [kernel.to_json() for kernel in self.kernels],
            "stops": [list(stop) for stop in self.stops],
            "numbers": list(self.numbers),
            "workspace": self.workspace,
            **({"planned": True} if self.is_planned else {}),
        }


@dataclass(frozen=True, slots=True)
class Lock:
    """A set of locked graphs, in the order of their names."""

    library: str  # version that wrote it
    devices: Mapping[str, DeviceSpec]
    graphs: tuple[LockedGraph, ...]
    _by_name: dict[str, LockedGraph] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._by_name.update((graph.name, graph) for graph in self.graphs)

    def find(self, name: str) -> LockedGraph | None:
        """The entry of a name.

        Args:
            name: The name.

        Returns:
            The entry, or None.
        """
        return self._by_name.get(name)

    def of_graph(self, graph: OperationGraph) -> LockedGraph | None:
        """The entry of an equal graph.

        Args:
            graph: The graph.

        Returns:
            The entry, or None.
        """
        return next((entry for entry in self.graphs if entry.key == graph.key), None)

    def with_graphs(self, entries: Iterable[LockedGraph], devices: Mapping[str, DeviceSpec], library: str) -> Lock:
        """The lock with some entries replaced or added.

        Args:
            entries: The entries.
            devices: The devices of the entries by name.
            library: The version of the library that made the entries.

        Returns:
            The new lock.
        """
        found = {**self._by_name, **{entry.name: entry for entry in entries}}
        known = {**self.devices, **devices}
        used = {entry.device for entry in found.values()}
        return Lock(
            library,
            {name: known[name] for name in sorted(used)},
            tuple(found[name] for name in sorted(found)),
        )

    def to_json(self) -> str:
        """The text of the lock file."""
        content = {
            "format": LOCK_FORMAT,
            "version": VERSION,
            "library": self.library,
            "devices": {name: spec.to_json() for name, spec in sorted(self.devices.items())},
            "graphs": [entry.to_json() for entry in self.graphs],
        }
        return "\n".join(_lines(content, "")) + "\n"


def _lines(value: Any, indent: str) -> list[str]:
    """JSON with what is short on one line, so that a change is a line or two of a diff."""
    flat = json.dumps(value)
    nested = isinstance(value, (dict, list)) and any(
        isinstance(item, (dict, list)) for item in (value.values() if isinstance(value, dict) else value)
    )
    if not isinstance(value, (dict, list)) or not value or (not nested and len(indent) + len(flat) <= _WIDTH):
        return [flat]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    named = value.items() if isinstance(value, dict) else (("", item) for item in value)
    found = [opening]
    for i, (name, item) in enumerate(named):
        first, *rest = _lines(item, indent + " ")
        label = f"{json.dumps(name)}: " if isinstance(value, dict) else ""
        found += [f"{indent} {label}{first}", *rest]
        if i < len(value) - 1:
            found[-1] += ","
    return [*found, indent + closing]


def lock_from_json(text: str | bytes) -> Lock:
    """Read a lock file.

    Args:
        text: The text of the file.

    Returns:
        The lock.

    Raises:
        MalformedFile: The text is not a lock file.
    """
    return guarded(lambda: _lock(parse_document(text, LOCK_FORMAT)))


def _lock(data: Mapping[str, Any]) -> Lock:
    devices = {_text(name): device_from_json(spec) for name, spec in _entries(data["devices"], "devices").items()}
    graphs = tuple(_graph(entry, f"graphs[{i}]") for i, entry in enumerate(_list(data["graphs"], "graphs")))
    names = [graph.name for graph in graphs]
    if len(set(names)) < len(names):
        raise _wrong("graphs", "each name once", "two entries have one name")
    for graph in graphs:
        if graph.device not in devices:
            raise _wrong("device", f"one of {', '.join(devices) or 'none'}", "the entry's device is not in the file")
    return Lock(_text(data["library"]), devices, graphs)


def _graph(data: Mapping[str, Any], place: str) -> LockedGraph:
    with placed(place):
        return _locked(data)


def _locked(data: Mapping[str, Any]) -> LockedGraph:
    graph = data.get("graph")
    return LockedGraph(
        name=_text(data["name"]),
        device=_text(data["device"]),
        key=_text(data["key"]),
        problem="" if graph is not None else _text(data["problem"]),
        graph=None if graph is None else _entries(graph, "graph"),
        limits=_entries(data.get("limits", {}), "limits"),
        kernels=tuple(_kernel(kernel) for kernel in _list(data["kernels"], "kernels")),
        stops=tuple(_stop(stop) for stop in _list(data["stops"], "stops")),
        numbers=tuple(_text(line) for line in _list(data["numbers"], "numbers")),
        workspace=_count(data["workspace"]),
        is_planned=data.get("planned") is True,
    )


def _kernel(data: Mapping[str, Any]) -> LockedKernel:
    return LockedKernel(
        operations=tuple(_text(op) for op in _list(data["operations"], "operations")),
        rule=_text(data["rule"]),
        engine=current_name(_text(data["engine"])),
        knobs={_text(name): _integer(value) for name, value in _entries(data["knobs"], "knobs").items()},
        predicted_us=_number(data["predicted_us"]),
        workspace=_count(data["workspace"]),
        texts={_text(name): _text(value) for name, value in _entries(data["texts"], "texts").items()},
        ranking=_ranking(_entries(data["ranking"], "ranking")),
    )


def _ranking(data: Mapping[str, Any]) -> dict[str, float]:
    """Predictions by the current names of their engines. Of an earlier and a current name, the current one counts."""
    predictions = {_text(name): _number(value) for name, value in data.items()}
    return {current_name(name): predictions.get(current_name(name), value) for name, value in predictions.items()}


def _stop(data: Sequence[Any]) -> tuple[str, str]:
    edge, rule = _list(data, "stops")
    return _text(edge), current_names(_text(rule))


def _wrong(attribute: str, expected: str, detail: str) -> Exception:
    return malformed(CONTENT, attribute, "malformed", expected=expected, detail=detail)


def _list(value: Any, attribute: str) -> list[Any]:
    if not isinstance(value, list):
        raise _wrong(attribute, "a list", "another kind of entry")
    return value


def _entries(value: Any, attribute: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(attribute, "an object", "another kind of entry")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.40} is no text")
    return value


def _integer(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{value!r:.40} is no whole number")
    return value


def _count(value: Any) -> int:
    if _integer(value) < 0:
        raise ValueError(f"{value} is below 0")
    return int(value)


def _number(value: Any) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < float("inf"):
        raise ValueError(f"{value!r:.40} is no number of at least 0")
    return float(value)

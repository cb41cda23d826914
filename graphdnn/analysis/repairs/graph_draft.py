"""Draft: a graph as plain data, which may be wrong.

A repair changes numbers, flags and names before anything is checked, so it works on the fields as a file has
them. Operations refer to tensors by key; the uid is a field like the others, so that two tensors may have one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from graphdnn.dtypes import data_type_of
from graphdnn.escaped import escaped
from graphdnn.files import CONTENT, KNOWN_OPERATIONS, fields_of, graph_to_dict, malformed, plain
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.operations import Operation, ports
from graphdnn.spec import Attempted
from graphdnn.tensors import TensorSpec

Key = int | str
Fields = dict[str, Any]


def copied(value: Any) -> Any:
    """Plain data, apart from the original."""
    if isinstance(value, dict):
        return {name: copied(item) for name, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, list) else value


@dataclass(slots=True, eq=False)
class Draft:
    """Tensors by key and operations in order, as the fields that a graph file has."""

    name: str
    tensors: dict[Key, Fields]
    operations: list[Fields]

    @classmethod
    def of_graph(cls, graph: OperationGraph) -> Draft:
        return cls.of_data(graph_to_dict(graph))

    @classmethod
    def of_data(cls, data: Mapping[str, Any]) -> Draft:
        """From the entries of a graph file. Raises ``MalformedFile`` for what has not even the form of one."""
        name, tensors, operations = data.get("name", ""), data.get("tensors"), data.get("operations")
        for what, entries, named in (("tensors", tensors, "uid"), ("operations", operations, "operation")):
            if not isinstance(entries, list) or not all(
                isinstance(e, dict) and _is_name(e.get(named)) for e in entries
            ):
                raise malformed(CONTENT, what, type(entries).__name__, expected=f"entries with {named}", detail="none")
        assert tensors is not None
        assert operations is not None
        draft = cls(str(name), {}, copied(operations))
        for entry in tensors:
            key: Key = entry["uid"]
            while key in draft.tensors:  # twice in the file: the operations mean the first one
                key = f"{key}'"
            draft.tensors[key] = copied(entry)
        for op in draft.operations:
            if op["operation"] not in KNOWN_OPERATIONS:
                known = ", ".join(KNOWN_OPERATIONS)
                raise malformed(CONTENT, "operation", op["operation"], expected=f"one of {known}", detail="unknown")
        return draft

    @classmethod
    def of_operations(cls, operations: tuple[Operation, ...]) -> Draft:
        """From operations that do not make a graph: tensors of one uid stay apart where they differ."""
        draft = cls("", {}, [])
        for op in operations:
            draft.add(type(op), {f: getattr(op, f) for f in type(op).model_fields if f in op.model_fields_set})
        return draft

    @classmethod
    def of_attempt(cls, attempt: Attempted) -> Draft:
        """From the fields of an operation that was refused. Alone it has no values that only others read or write."""
        assert issubclass(attempt.cls, Operation)
        draft = cls("", {}, [])
        draft.add(attempt.cls, attempt.fields)
        for entry in draft.tensors.values():
            entry.pop("is_virtual", None)
        return draft

    def add(self, cls: type[Operation], given: Mapping[str, Any]) -> None:
        """Append an operation whose ports hold specs."""
        fields: Fields = {"operation": cls.tag}
        for name, value in given.items():
            fields[name] = self._entered(value)
        self.operations.append(fields)

    def enter(self, given: Mapping[str, Any]) -> Fields:
        """Add a tensor by its fields, right or wrong; returns what a port holds that means it."""
        known = TensorSpec.model_fields
        changed = {f: v for f, v in given.items() if f not in known or known[f].is_required() or v != known[f].default}
        entry = self.entered_fields(changed)
        uid = given.get("uid")
        key: Key = uid if _is_name(uid) else f"{uid!r:.40}"  # type: ignore[assignment]
        while key in self.tensors:
            key = f"{key}'"
        self.tensors[key] = entry
        return {"tensor": key}

    def entered_fields(self, given: Mapping[str, Any]) -> Fields:
        """Fields as a file has them; a type may have any of its names."""
        return {
            f: _type_name(v) if f.endswith(("data_type", "compute_type", "math_type")) else self._entered(v)
            for f, v in given.items()
        }

    def _entered(self, value: Any) -> Any:
        if isinstance(value, TensorSpec):
            entry = fields_of(value)
            found = (key for key, known in self.tensors.items() if known == entry)
            return {"tensor": key} if (key := next(found, None)) is not None else self.enter(entry)
        if isinstance(value, (tuple, list)):
            return [self._entered(item) for item in value]
        return plain(value)

    def copy(self) -> Draft:
        """Apart as far as the fields; a field is replaced, never changed in place."""
        tensors = {key: dict(entry) for key, entry in self.tensors.items()}
        return Draft(self.name, tensors, [dict(op) for op in self.operations])

    def to_data(self) -> Fields:
        """The entries of a graph file, where keys are uids again."""
        uid_of = {key: entry.get("uid") for key, entry in self.tensors.items()}

        def named(value: Any) -> Any:
            if isinstance(value, dict) and set(value) == {"tensor"}:
                return {"tensor": uid_of.get(value["tensor"])}
            return [named(item) for item in value] if isinstance(value, list) else value

        operations = [{name: named(value) for name, value in op.items()} for op in self.operations]
        return {"name": self.name, "tensors": list(self.tensors.values()), "operations": operations}

    # Looking around.

    def cls(self, index: int) -> type[Operation]:
        return KNOWN_OPERATIONS[self.operations[index]["operation"]]

    def label(self, index: int) -> str:
        """As reports name the operation, with its position where another one has that name too."""
        label = _label(self.operations[index])
        alone = sum(_label(op) == label for op in self.operations) == 1
        return label if alone else f"{label} [{index}]"

    def tensor_label(self, key: Key) -> str:
        entry = self.tensors[key]
        name, uid = escaped(f"{entry.get('name') or ''}"), escaped(f"{entry.get('uid')}")
        return f"{name} (uid {uid})" if name else f"uid {uid}"

    def ports(self, index: int, role: str) -> dict[str, Key]:
        """Port -> key, for the ports that are set; ``inputs_list`` gives ``inputs_list[0]`` and so on."""
        found: dict[str, Key] = {}
        for port in ports(self.cls(index), role):
            value = self.operations[index].get(port)
            if isinstance(value, list):
                found.update({f"{port}[{i}]": v["tensor"] for i, v in enumerate(value) if is_reference(v)})
            elif isinstance(value, dict) and is_reference(value):
                found[port] = value["tensor"]
        return {port: key for port, key in found.items() if key in self.tensors}

    def all_ports(self, index: int) -> dict[str, Key]:
        return {**self.ports(index, "input"), **self.ports(index, "output")}

    def writers(self) -> dict[Key, list[int]]:
        return self._users("output")

    def readers(self) -> dict[Key, list[int]]:
        return self._users("input")

    def _users(self, role: str) -> dict[Key, list[int]]:
        found: dict[Key, list[int]] = {}
        for index in range(len(self.operations)):
            for key in dict.fromkeys(self.ports(index, role).values()):
                found.setdefault(key, []).append(index)
        return found

    def connect(self, index: int, port: str, key: Key) -> None:
        """Make a port mean another tensor."""
        name, _, position = port.partition("[")
        reference = {"tensor": key}
        if position:
            operands = list(self.operations[index][name])
            operands[int(position[:-1])] = reference
            self.operations[index][name] = operands
        else:
            self.operations[index][name] = reference

    def free_uid(self) -> int:
        used = [entry["uid"] for entry in self.tensors.values() if isinstance(entry.get("uid"), int)]
        return max(used, default=0) + 1


def _label(op: Fields) -> str:
    spec = op.get("spec")
    mode = spec.get("mode") if op["operation"] == "pointwise" and isinstance(spec, dict) else None
    tag = mode.lower() if isinstance(mode, str) else op["operation"]
    return escaped(f"{tag} '{op['name']}'" if op.get("name") else str(tag))


def _type_name(value: Any) -> Any:
    try:
        return data_type_of(value).name
    except (TypeError, ValueError):
        return plain(value)


def _is_name(value: object) -> bool:
    return isinstance(value, (int, str)) and not isinstance(value, bool)


def is_reference(value: object) -> bool:
    return isinstance(value, dict) and set(value) == {"tensor"} and _is_name(value["tensor"])


# What has changed.

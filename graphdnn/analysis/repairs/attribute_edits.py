"""Edits of flags, of attributes that are set and not read, and of the tensors that ports name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from graphdnn.analysis.repairs.edit import Case, Edit, numbers, strides_for
from graphdnn.analysis.repairs.graph_draft import Draft, Key
from graphdnn.operations import PointwiseOperation
from graphdnn.operations.pointwise_modes import POINTWISE

_COMMUTATIVE = ("ADD", "MUL", "MAX", "MIN", "CMP_EQ", "CMP_NEQ", "LOGICAL_AND", "LOGICAL_OR")


def mark_virtual(case: Case) -> Iterator[Edit]:
    """A value that only passes from one operation to the next stays out of memory."""
    writers, readers = case.draft.writers(), case.draft.readers()
    for key in list(case.draft.tensors) if case.rule == "fuse.prologue.outputs" else case.tensors:
        if key in writers and key in readers and not case.draft.tensors[key].get("is_virtual"):
            words = f"mark {case.draft.tensor_label(key)} virtual, if nobody outside the graph reads it"
            yield case.with_tensor("virtual.mark", words, 1.0, key, is_virtual=True)


def unmark_virtual(case: Case) -> Iterator[Edit]:
    """A tensor that comes from outside, or that is wanted outside, gets memory."""
    writers, readers = case.draft.writers(), case.draft.readers()
    for key in case.tensors:
        if case.draft.tensors[key].get("is_virtual") and (key not in writers or key not in readers):
            end = "bind data to it" if key not in writers else "it can be read then"
            words = f"clear is_virtual of {case.draft.tensor_label(key)}: {end}"
            weight = 1.0 if len(case.draft.operations) == 1 or key not in writers else 1.1
            yield case.with_tensor("virtual.unmark", words, weight, key, is_virtual=...)


def drop_operation(case: Case) -> Iterator[Edit]:
    """An operation whose results nothing reads is left out."""
    readers = case.draft.readers()
    for index in range(len(case.draft.operations)):
        results = case.draft.ports(index, "output").values()
        if len(case.draft.operations) > 1 and not any(key in readers for key in results):
            draft = case.draft.copy()
            del draft.operations[index]
            yield Edit("graph.drop", f"leave out {case.draft.label(index)}", draft, 1.8)


def by_value(case: Case) -> Iterator[Edit]:
    """A scalar read from the host is one, and what is not a scalar is no such thing."""
    for key in case.tensors:
        entry, label = case.draft.tensors[key], case.draft.tensor_label(key)
        if "constant_value" in entry and not entry.get("is_by_value"):
            yield case.with_tensor("by_value", f"set is_by_value of {label}", 1.0, key, is_by_value=True)
        if entry.get("is_by_value"):
            words = f"clear is_by_value of {label}"
            yield case.with_tensor("by_value", words, 1.1, key, is_by_value=..., constant_value=...)
            if entry.get("is_virtual"):
                yield case.with_tensor("by_value", f"clear is_virtual of {label}", 1.0, key, is_virtual=...)
            ones = [1] * len(numbers(entry.get("dims")))
            yield case.with_tensor("by_value", f"make {label} a scalar", 1.2, key, dims=ones, strides=ones)
        elif not entry.get("is_virtual") and set(numbers(entry.get("dims"))) == {1}:
            yield case.with_tensor("by_value", f"set is_by_value of {label}", 1.3, key, is_by_value=True)


def drop_beta(case: Case) -> Iterator[Edit]:
    """Without the old contents of the output."""
    for index in range(len(case.draft.operations)):
        if case.draft.operations[index].get("beta"):
            words = f"leave beta of {case.draft.label(index)} at 0; add the old value with an ADD if it is wanted"
            yield case.with_operation("settings.beta", words, 1.0, index, beta=...)


def leave_unset(case: Case) -> Iterator[Edit]:
    """What the operation does not read is left unset."""
    problem = case.problem
    if problem is None:
        return
    named = [part.split(" ")[0] for part in problem.rejection.attribute.split(", ")]
    if problem.tensor is not None:
        unset = dict.fromkeys(named, ...)
        words = f"leave {', '.join(named)} of {case.draft.tensor_label(problem.tensor)} unset"
        yield case.with_tensor("settings.unset", words, 1.0, problem.tensor, **unset)
    elif problem.operation is not None:
        index = problem.operation
        for setting in dict.fromkeys((problem.setting, "")):
            names = [name.removeprefix(f"{setting}.") for name in named]
            if not setting and "operation" in names:
                continue  # which says what the entry is
            words = f"leave {', '.join(names)} of {case.draft.label(index)} unset"
            yield case.with_setting("settings.unset", words, 1.0, index, setting, **dict.fromkeys(names, ...))


def pointwise_ports(case: Case) -> Iterator[Edit]:
    """The ports that the mode has: the result in y or dx, the operands under their names."""
    for index in case.operations:
        if case.draft.cls(index) is not PointwiseOperation:
            continue
        spec = _settings(case.draft.operations[index])
        modes = [row for mode, row in POINTWISE.items() if mode.name == spec.get("mode")]
        mine = case.ports[index]
        for row in modes:
            result = "dx" if row.kind == "backward" else "y"
            wanted = {*row.operands, result}
            missing, extra = sorted(wanted - set(mine)), sorted(set(mine) - wanted)
            if len(missing) == len(extra) == 1:
                draft = case.draft.copy()
                draft.operations[index][missing[0]] = draft.operations[index].pop(extra[0])
                words = f"give {case.draft.label(index)} its tensor as {missing[0]}, not as {extra[0]}"
                yield Edit("ports.rename", words, draft, 1.0)


def swap_operands(case: Case) -> Iterator[Edit]:
    """The operands of an operation for which their order does not matter, the other way round."""
    for index in case.operations:
        op = case.draft.operations[index]
        spec = _settings(op)
        if case.draft.cls(index) is PointwiseOperation and spec.get("mode") in _COMMUTATIVE and "x" in op and "b" in op:
            draft = case.draft.copy()
            draft.operations[index]["x"], draft.operations[index]["b"] = op["b"], op["x"]
            factors = {"alpha1": op.get("alpha2", ...), "alpha2": op.get("alpha1", ...)}
            for name, value in factors.items():
                draft.operations[index].pop(name, None)
                if value is not ...:
                    draft.operations[index][name] = value
            yield Edit("ports.swap", f"swap the operands of {case.draft.label(index)}", draft, 1.3)


def _settings(op: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of a pointwise operation; none where the entry holds something else."""
    spec = op.get("spec")
    return spec if isinstance(spec, dict) else {}


# Which tensor a uid means.


def own_uid(case: Case) -> Iterator[Edit]:
    """Two tensors with one uid: one of them gets another."""
    by_uid: dict[object, list[Key]] = {}
    used = {key for i in range(len(case.draft.operations)) for key in case.ports[i].values()}
    for key in used:
        by_uid.setdefault(case.draft.tensors[key].get("uid"), []).append(key)
    writers = case.draft.writers()
    for uid, keys in by_uid.items():
        for key in keys if len(keys) > 1 else ():
            weight = 1.0 if key in writers else 1.1
            name = case.draft.tensors[key].get("name") or _role(case.draft, key)
            words = f"give {name} a uid of its own, {case.draft.free_uid()} instead of {uid}"
            yield case.with_tensor("uid.own", words, weight, key, uid=case.draft.free_uid())
        for key in keys if len(keys) > 1 else ():
            for other in keys:
                if other != key:  # one tensor was meant: both ends get one description
                    draft = case.draft.copy()
                    draft.tensors[other] = {**draft.tensors[key], "name": draft.tensors[other].get("name", "")}
                    words = f"describe uid {uid} as {_role(case.draft, key)} does"
                    yield Edit("uid.same", words, draft, 1.3 if key in writers else 1.4)


def _role(draft: Draft, key: Key) -> str:
    for index in range(len(draft.operations)):
        for port, mine in draft.all_ports(index).items():
            if mine == key:
                return f"{port} of {draft.label(index)}"
    return draft.tensor_label(key)


def other_tensor(case: Case) -> Iterator[Edit]:
    """A port means another tensor: one that is read and never written, one that nothing reads, or a new one."""
    writers, readers = case.draft.writers(), case.draft.readers()
    for key, indices in writers.items():
        for index in indices if len(indices) > 1 else ():
            port = next(p for p, k in case.draft.ports(index, "output").items() if k == key)
            dangling = [k for k in case.draft.tensors if k not in writers]
            for other in dangling:
                lost = case.draft.tensors[other].get("is_virtual") or other not in readers
                draft = case.draft.copy()
                draft.connect(index, port, other)
                words = f"let {case.draft.label(index)} write {case.draft.tensor_label(other)}"
                later = 0.01 * indices.index(index)  # who came first has the older right
                yield Edit("ports.write", words, draft, (0.9 if lost else 1.4) - later)
            yield _new_output(case, index, port, key)
    if case.rule == "graph.cycle":
        for key, indices in writers.items():
            for index in indices if key in readers and min(readers[key]) <= indices[-1] else ():
                port = next(p for p, k in case.draft.ports(index, "output").items() if k == key)
                yield _new_output(case, index, port, key)
    lonely = [key for key in case.draft.tensors if case.draft.tensors[key].get("is_virtual") and key not in writers]
    ends = [key for key in writers if key not in readers]
    for key in lonely:
        for other in ends:
            draft = case.draft.copy()
            for index in readers.get(key, ()):
                for port, mine in case.draft.ports(index, "input").items():
                    if mine == key:
                        draft.connect(index, port, other)
            words = f"read {case.draft.tensor_label(other)} where {case.draft.tensor_label(key)} is read"
            yield Edit("ports.read", words, draft, 0.95 if case.draft.tensors[other].get("is_virtual") else 1.2)


def _new_output(case: Case, index: int, port: str, key: Key) -> Edit:
    draft = case.draft.copy()
    uid = draft.free_uid()
    fields = case.fields(index)
    entry = {**draft.tensors[key], "uid": uid}
    entry.pop("name", None)
    try:
        dims = list(case.draft.cls(index).infer(fields or {}).get(port, ()))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        dims = []
    if dims:
        old = numbers(entry.get("dims"))
        entry["strides"], entry["dims"] = strides_for(dims, old, numbers(entry.get("strides"))), dims
    if uid not in draft.readers():
        entry.pop("is_virtual", None)
    draft.tensors[uid] = entry
    draft.connect(index, port, uid)
    return Edit("ports.write", f"give {port} of {case.draft.label(index)} a uid of its own, {uid}", draft, 1.2)

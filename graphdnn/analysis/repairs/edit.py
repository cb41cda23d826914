"""Edit: one small change of a draft, proposed for a problem and not yet checked. Case: what a proposal may look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from math import log2
from typing import Any

from graphdnn.analysis.diagnostics import Diagnostic
from graphdnn.analysis.repairs.draft_validation import Assembly, Problem
from graphdnn.analysis.repairs.graph_draft import Draft, Fields, Key
from graphdnn.errors import GraphdnnError
from graphdnn.files import decoded
from graphdnn.operations import Operation
from graphdnn.tensors import TensorSpec, channels_last_strides, ordered_strides, packed_strides, stride_order


@dataclass(frozen=True, slots=True, eq=False)
class Edit:
    """A changed draft. ``weight`` orders the edits that all lead to a legal graph: what is likeliest comes first."""

    row: str  # id of the row of the table
    words: str
    draft: Draft
    weight: float


@dataclass(frozen=True, eq=False)
class Case:
    """What is to be repaired: a draft, and a problem of it, or an entry of the ledger of its graph, or the whole."""

    draft: Draft
    assembly: Assembly
    problem: Problem | None = None
    entry: Diagnostic | None = None

    @property
    def rule(self) -> str:
        return self.problem.rule if self.problem else self.entry.rule if self.entry else ""

    @cached_property
    def operations(self) -> list[int]:
        """Indices of the operations that it is about; all of them where it is about the whole graph."""
        everything = list(range(len(self.draft.operations)))
        if self.problem is not None:
            if self.problem.operation is not None:
                return [self.problem.operation]
            if self.problem.tensor is not None:
                return [i for i in everything if self.problem.tensor in self.ports[i].values()]
            return everything
        if self.entry is None:
            return everything
        uids = set(self.entry.subject.uids)
        if self.entry.kind == "edge":
            (uid,) = uids
            return [i for i in everything if uid in self.uids(i)]
        return [i for i in everything if set(self.uids(i)) <= uids]

    def uids(self, index: int) -> list[int]:
        return [self.draft.tensors[key]["uid"] for key in self.ports[index].values()]

    @property
    def tensors(self) -> list[Key]:
        """Keys of the tensors that it is about."""
        if self.problem is not None and self.problem.tensor is not None:
            return [self.problem.tensor]
        if self.entry is not None and self.entry.kind == "edge":
            return [key for key, entry in self.draft.tensors.items() if entry.get("uid") in self.entry.subject.uids]
        return list(dict.fromkeys(key for i in self.operations for key in self.ports[i].values()))

    def spec(self, key: Key) -> TensorSpec | None:
        return self.assembly.tensors.get(key)

    def fields(self, index: int) -> Mapping[str, Any] | None:
        """An operation's fields with specs in its ports, as its shape rule takes them; None where they are wrong."""
        cls = self.draft.cls(index)
        given = {name: value for name, value in self.draft.operations[index].items() if name != "operation"}
        try:
            found = decoded(cls, given, self.assembly.tensors)
        except (GraphdnnError, KeyError, TypeError, ValueError):
            return None
        return {**{name: field.default for name, field in cls.model_fields.items()}, **found}

    @cached_property
    def ports(self) -> list[dict[str, Key]]:
        """The tensors of each operation."""
        return [self.draft.all_ports(index) for index in range(len(self.draft.operations))]

    @cached_property
    def beside(self) -> dict[Key, list[Key]]:
        """For each tensor the tensors that an operation has together with it."""
        found: dict[Key, dict[Key, None]] = {}
        for mine in self.ports:
            for key in mine.values():
                found.setdefault(key, {}).update(dict.fromkeys(mine.values()))
        return {key: [other for other in others if other != key] for key, others in found.items()}

    @cached_property
    def layouts_in_use(self) -> dict[tuple[int, str], int]:
        """How many tensors of a rank lie channels last, and row-major."""
        found: dict[tuple[int, str], int] = {}
        for entry in self.draft.tensors.values():
            dims = numbers(entry.get("dims"))
            for name, layout in _LAYOUTS.items():
                if dims and entry.get("strides") == list(layout(tuple(dims))):
                    found[len(dims), name] = found.get((len(dims), name), 0) + 1
        return found

    @cached_property
    def extents_in_use(self) -> dict[int, int]:
        """How often each extent occurs in the graph."""
        found: dict[int, int] = {}
        for entry in self.draft.tensors.values():
            for extent in numbers(entry.get("dims")):
                found[extent] = found.get(extent, 0) + 1
        return found

    def values(self, field: str) -> dict[Any, int]:
        """How often each value of a tensor's field occurs in the graph."""
        found: dict[Any, int] = {}
        for entry in self.draft.tensors.values():
            value = entry.get(field, TensorSpec.model_fields[field].default)
            found[str(value)] = found.get(str(value), 0) + 1
        return found

    # Making edits.

    def with_tensor(self, row: str, words: str, weight: float, key: Key, **fields: Any) -> Edit:
        draft = self.draft.copy()
        change(draft.tensors[key], fields)
        return Edit(row, words, draft, weight)

    def with_operation(self, row: str, words: str, weight: float, index: int, **fields: Any) -> Edit:
        draft = self.draft.copy()
        change(draft.operations[index], fields)
        return Edit(row, words, draft, weight)

    def with_setting(self, row: str, words: str, weight: float, index: int, setting: str, **fields: Any) -> Edit:
        """``setting``: the field whose own fields change, or "" for the operation's."""
        draft = self.draft.copy()
        target = draft.operations[index]
        if setting:
            target[setting] = target = dict(target[setting])
        change(target, fields)
        return Edit(row, words, draft, weight)


def change(target: Fields, fields: Mapping[str, Any]) -> None:
    """Set fields; one set to ``...`` is left out."""
    for name, value in fields.items():
        if value is ...:
            target.pop(name, None)
        else:
            target[name] = value


_LAYOUTS: dict[str, Callable[[tuple[int, ...]], tuple[int, ...]]] = {
    "channels last": channels_last_strides,
    "row-major": packed_strides,
}
Propose = Callable[[Case], Iterator[Edit]]


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table of edits."""

    id: str
    words: str  # what the edit does, for the documentation
    legal: tuple[str, ...]  # rules that keep a draft from being a graph which it may help against; ``*`` is any part
    faster: tuple[str, ...]  # reasons of engines and of the fusion pass which it may help against; "" asks without one
    propose: Propose

    def is_for(self, case: Case) -> bool:
        return any(fnmatchcase(case.rule, pattern) for pattern in (self.legal if case.problem else self.faster))


def numbers(value: Any) -> list[int]:
    """A list of integers, or nothing where it is something else."""
    if isinstance(value, list) and all(isinstance(item, int) and not isinstance(item, bool) for item in value):
        return value
    return []


def role(operation: type[Operation]) -> bool:
    return hasattr(operation, "role_names")


# Layouts.


def strides_for(dims: Sequence[int], old_dims: Sequence[int], old_strides: Sequence[int]) -> list[int]:
    """Strides of new extents in the memory order of the old ones; gaps between rows stay where they are no obstacle."""
    if len(old_strides) != len(dims) or len(old_dims) != len(dims) or min(old_strides, default=0) < 1:
        return list(packed_strides(dims))
    for like in (old_dims, dims):  # strides that were packed for either extents show the order
        for layout in (packed_strides, channels_last_strides):
            if tuple(old_strides) == layout(tuple(like)):
                return list(layout(tuple(dims)))
    order = stride_order(tuple(old_dims), tuple(old_strides))
    packed = ordered_strides(tuple(old_dims), order)
    if tuple(old_strides) == packed:
        return list(ordered_strides(tuple(dims), order))
    return list(old_strides)


def layouts(case: Case, dims: Sequence[int]) -> list[tuple[str, list[int]]]:
    """Packed layouts by name; first the one that most tensors of this rank have."""
    names = sorted(_LAYOUTS, key=lambda name: -case.layouts_in_use.get((len(dims), name), 0))
    return [(name, list(_LAYOUTS[name](tuple(dims)))) for name in names]


# What is likely.


def roundness(value: int) -> int:
    """How often two divides a number, up to six times: people choose round extents."""
    return min((value & -value).bit_length() - 1, 6) if value > 0 else 0


def surprise(case: Case, old: int, new: int) -> float:
    """How unlikely it is that ``new`` was meant: how round both are, how often the graph has them, how far apart."""
    used = case.extents_in_use
    agreement = (used.get(new, 0) + 1) / (used.get(new, 0) + used.get(old, 0) + 1)
    distance = min(abs(log2(new) - log2(old)), 4.0) if old > 0 and new > 0 else 0.0
    return 0.08 * (roundness(old) - roundness(new)) - 0.5 * (agreement - 0.5) + 0.3 * distance

"""Graphs of drafts, or what is wrong with them and where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from graphdnn.analysis.repairs.graph_draft import Draft, Key, is_reference
from graphdnn.errors import GraphdnnError, Rejection
from graphdnn.files import CONTENT, decoded
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.operations import Operation
from graphdnn.spec import Attempted
from graphdnn.tensors import TensorSpec


@dataclass(frozen=True, slots=True)
class Problem:
    """A rejection, and the part of the draft that it is about; neither is given where it is about the whole graph."""

    rejection: Rejection
    tensor: Key | None = None
    operation: int | None = None
    setting: str = ""  # the field of the operation whose own fields are wrong: "conv", "spec"

    @property
    def rule(self) -> str:
        return self.rejection.rule


@dataclass(frozen=True, slots=True, eq=False)
class Assembly:
    """What became of a draft: a graph, or problems."""

    graph: OperationGraph | None
    problems: tuple[Problem, ...]
    tensors: Mapping[Key, TensorSpec]


@dataclass(slots=True, eq=False)
class Assembler:
    """Makes graphs of drafts. What two drafts have in common is checked once: most candidates differ in one field."""

    _tensors: dict[str, TensorSpec | tuple[Problem, ...]] = field(default_factory=dict)
    _operations: dict[str, tuple[Any, Operation | tuple[Problem, ...]]] = field(default_factory=dict)

    def assemble(self, draft: Draft) -> Assembly:
        tensors: dict[Key, TensorSpec] = {}
        problems: list[Problem] = []
        used = {key for index in range(len(draft.operations)) for key in draft.all_ports(index).values()}
        for key in draft.tensors:
            if key in used:
                made = self.tensor(draft, key)
                if isinstance(made, TensorSpec):
                    tensors[key] = made
                else:
                    problems += made
        operations = []
        for index in range(len(draft.operations)):
            outcome = self.operation(draft, index, tensors)
            if isinstance(outcome, Operation):
                operations.append(outcome)
            elif outcome is not None:
                problems += outcome
        graph = None
        if not problems:
            try:
                graph = OperationGraph.of(operations, draft.name)
            except GraphdnnError as error:
                problems += [Problem(rejection) for rejection in error.rejections]
        return Assembly(graph, tuple(problems), tensors)

    def tensor(self, draft: Draft, key: Key) -> TensorSpec | tuple[Problem, ...]:
        entry = draft.tensors[key]
        known = repr((key, entry))
        found = self._tensors.get(known)
        if found is None:
            try:
                found = TensorSpec(**decoded(TensorSpec, entry, {}))
            except GraphdnnError as error:
                found = tuple(Problem(rejection, tensor=key) for rejection in error.rejections)
            except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
                found = (Problem(_unreadable(f"tensors[{key}]", error), tensor=key),)
            self._tensors[known] = found
        return found

    def operation(
        self, draft: Draft, index: int, tensors: Mapping[Key, TensorSpec]
    ) -> Operation | tuple[Problem, ...] | None:
        """None where one of its tensors is wrong already."""
        fields, mine = draft.operations[index], draft.all_ports(index)
        if not all(key in tensors for key in mine.values()):
            return None
        specs = tuple(tensors[key] for key in mine.values())
        known = repr((index, fields, tuple(map(id, specs))))
        kept = self._operations.get(known)
        if kept is None:
            kept = self._operations[known] = specs, self._made(draft, index, tensors)  # the ids stay theirs
        return kept[1]

    def _made(self, draft: Draft, index: int, tensors: Mapping[Key, TensorSpec]) -> Operation | tuple[Problem, ...]:
        cls = draft.cls(index)
        fields = {name: value for name, value in draft.operations[index].items() if name != "operation"}
        try:
            return cls(**decoded(cls, fields, tensors))
        except GraphdnnError as error:
            setting = ""
            if isinstance(error.subject, Attempted) and error.subject.cls is not cls:
                nested = (f for f, v in fields.items() if isinstance(v, dict) and not is_reference(v))
                setting = next(nested, "")
            return tuple(Problem(r, operation=index, setting=setting) for r in error.rejections)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError) as error:
            return (Problem(_unreadable(f"operations[{index}]", error), operation=index),)


def _unreadable(where: str, error: Exception) -> Rejection:
    detail = f"{type(error).__name__}: {error}"
    return CONTENT.reject("FILE", where, "malformed", expected="the documented entries", detail=detail)

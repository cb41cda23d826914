"""Repair: an edit that was checked, with what it changes and what it is predicted to gain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from graphdnn.analysis.repairs.draft_diff import changes
from graphdnn.analysis.repairs.draft_validation import Problem
from graphdnn.analysis.repairs.edit import Edit
from graphdnn.analysis.repairs.graph_draft import Draft
from graphdnn.device.profiles import DeviceSpec
from graphdnn.files import graph_to_dict
from graphdnn.graph.operation_graph import OperationGraph

FORMAT, VERSION = "graphdnn.repairs", 1


@dataclass(frozen=True, slots=True, eq=False)
class Repair:
    """One suggested edit. ``graph`` is the edited graph; it is legal and was ranked."""

    edit: str  # id of the row of the table, or two of them
    words: str
    changes: tuple[str, ...]  # one line for each field that differs
    mends: tuple[str, ...]  # rules that refuse nothing any more
    seconds_before: float | None  # predicted; None where there was nothing to predict
    seconds: float | None  # predicted, after
    graph: OperationGraph | None  # None where a tensor or settings were refused by themselves

    def __repr__(self) -> str:
        return f"<Repair {self.words}: {self.gain}>"

    @classmethod
    def of(
        cls, edit: Edit, draft: Draft, graph: OperationGraph, mends: tuple[str, ...], before: float | None,
        after: float | None,
    ) -> Repair:  # fmt: skip
        """Make a repair from an edit that was tried.

        Args:
            edit: The edit.
            draft: The graph before the edit.
            graph: The graph after the edit.
            mends: The ids of the rules that no longer refuse.
            before: The predicted seconds before the edit, or None.
            after: The predicted seconds after the edit, or None.

        Returns:
            The repair.
        """
        return cls(edit.row, edit.words, changes(draft, edit.draft), tuple(dict.fromkeys(mends)), before, after, graph)

    @property
    def size(self) -> int:
        """The number of tensors and operations that the edit touches."""
        return len({line.split(": ", 1)[0] for line in self.changes})

    @property
    def gain(self) -> str:
        """``makes it legal``, or the predicted times before and after."""
        if self.seconds_before is None or self.seconds is None:
            predicted = "" if self.seconds is None else f", predicted {self.seconds * 1e6:.1f} us"
            return f"makes it legal{predicted}"
        change = (self.seconds / self.seconds_before - 1) * 100
        return f"predicted {self.seconds_before * 1e6:.1f} us -> {self.seconds * 1e6:.1f} us ({change:+.0f} %)"

    def __str__(self) -> str:
        lines = [self.words, *(f"  {line}" for line in self.changes), f"  {self.gain}"]
        return "\n".join([*lines, f"  mends {', '.join(self.mends)}"] if self.mends else lines)

    def to_json(self) -> dict[str, Any]:
        """Plain data with the edit, its effect and the edited graph."""
        return {
            "edit": self.edit,
            "words": self.words,
            "changes": list(self.changes),
            "mends": list(self.mends),
            "seconds_before": self.seconds_before,
            "seconds": self.seconds,
            "graph": None if self.graph is None else graph_to_dict(self.graph),
        }


class Repairs(Sequence[Repair]):
    """Suggested edits, smallest first. Each was tried: the edited graph is legal and has the stated effect."""

    __slots__ = ("_found", "device", "draft", "is_whole", "problems")

    def __init__(
        self, found: Sequence[Repair], draft: Draft, device: DeviceSpec, problems: tuple[Problem, ...]
    ) -> None:
        self._found = tuple(found)
        self.draft, self.device, self.problems = draft, device, problems
        self.is_whole = True  # False where the draft is one operation of a graph that was never there

    def of_a_part(self) -> Repairs:
        """The same repairs for an operation that was refused before there was a graph."""
        self.is_whole = False
        self._found = tuple(replace(repair, seconds=None) for repair in self._found)  # of types that may still be open
        return self

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[Repair]:
        return iter(self._found)

    def __getitem__(self, index: Any) -> Any:
        return self._found[index]

    def __repr__(self) -> str:
        return f"<Repairs: {len(self)} for {self.device.name}>"

    def __str__(self) -> str:
        lines = []
        for i, repair in enumerate(self._found, start=1):
            first, *rest = str(repair).splitlines()
            lines += [f"{i}. {first}", *(f"   {line}" for line in rest)]
        return "\n".join(lines) or "nothing to repair was found"

    def to_json(self) -> dict[str, Any]:
        """Plain data with every repair."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "device": self.device.name,
            "problems": [problem.rejection.to_json() for problem in self.problems],
            "repairs": [repair.to_json() for repair in self._found],
        }

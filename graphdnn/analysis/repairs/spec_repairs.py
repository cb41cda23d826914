"""Repairs of what was refused by itself: a tensor, or the settings of an operation, before there was an operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from graphdnn.analysis.repairs.draft_diff import changes
from graphdnn.analysis.repairs.draft_validation import Assembler, Assembly, Problem
from graphdnn.analysis.repairs.edit import Case, Edit
from graphdnn.analysis.repairs.edit_table import EDITS
from graphdnn.analysis.repairs.graph_draft import Draft, Key
from graphdnn.analysis.repairs.repair import Repair, Repairs
from graphdnn.device.profiles import DeviceSpec
from graphdnn.files import KNOWN_OPERATIONS
from graphdnn.operations import ports
from graphdnn.spec import Attempted
from graphdnn.tensors import TensorSpec

Problems = Callable[[Draft], tuple[Problem, ...]]
_MOST = 500  # edits tried on top of others: the orders of many mistakes are more than can be tried


def repairs_of_part(attempt: Attempted, device: DeviceSpec) -> Repairs:
    """Edits of the fields with which the tensor or the settings are legal."""
    draft, problems_of = _tensor(attempt) if issubclass(attempt.cls, TensorSpec) else _settings(attempt)
    problems = problems_of(draft)
    rules = tuple(dict.fromkeys(problem.rule for problem in problems))
    tries = iter(range(_MOST))
    found: dict[tuple[str, ...], tuple[float, Repair]] = {}
    for edit in _edits(draft, problems):
        left = problems_of(edit.draft)
        mended = _followed(edit, left, len(problems), problems_of, tries) if left else edit
        if mended is not None:
            lines = changes(draft, mended.draft)
            repair = Repair(mended.row, mended.words, lines, rules, None, None, None)
            found.setdefault(lines, (mended.weight, repair))
    ordered = sorted(found.values(), key=lambda each: each[0])
    return Repairs([repair for _, repair in ordered], draft, device, problems).of_a_part()


def _edits(draft: Draft, problems: tuple[Problem, ...]) -> Iterator[Edit]:
    for problem in problems:
        case = Case(draft, Assembly(None, problems, {}), problem)
        for row in EDITS:
            if row.is_for(case):
                yield from row.propose(case)


def _followed(
    edit: Edit, left: tuple[Problem, ...], before: int, problems_of: Problems, tries: Iterator[int]
) -> Edit | None:
    """An edit after which fewer problems are left, with what mends them: several mistakes are reported together.

    ``tries``: as long as it lasts.
    """
    if len(left) >= before:
        return None
    for second in sorted(_edits(edit.draft, left), key=lambda each: each.weight):
        if next(tries, None) is None:
            return None
        remaining = problems_of(second.draft)
        row, words, weight = f"{edit.row}+{second.row}", f"{edit.words}; {second.words}", edit.weight + second.weight
        both = Edit(row, words, second.draft, weight)
        mended = both if not remaining else _followed(both, remaining, len(left), problems_of, tries)
        if mended is not None:
            return mended
    return None


def _tensor(attempt: Attempted) -> tuple[Draft, Problems]:
    draft = Draft("", {}, [])
    key: Key = draft.enter({"uid": 0, **attempt.fields})["tensor"]  # its fields may hold tensors, which enter as well

    def problems_of(changed: Draft) -> tuple[Problem, ...]:
        made = Assembler().tensor(changed, key)
        return made if isinstance(made, tuple) else ()

    return draft, problems_of


def _settings(attempt: Attempted) -> tuple[Draft, Problems]:
    """The settings in the first operation that takes them, whose other fields are left open."""
    draft = Draft("", {}, [])
    for cls in KNOWN_OPERATIONS.values():
        for name, field in cls.model_fields.items():
            if field.annotation is attempt.cls and name not in (*ports(cls, "input"), *ports(cls, "output")):
                draft.add(cls, {})
                draft.operations[0][name] = draft.entered_fields(attempt.fields)

                def problems_of(changed: Draft, name: str = name) -> tuple[Problem, ...]:
                    made = Assembler().operation(changed, 0, {})
                    return tuple(p for p in made if p.setting == name) if isinstance(made, tuple) else ()

                return draft, problems_of
    return draft, lambda _: ()

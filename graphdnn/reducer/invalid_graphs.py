"""Graphs that are refused: no graph yet, but fields as a file has them, made fewer while the same rule refuses them.

What is no graph has no plan and no shapes to work out again, so this is the plain form of the search: parts of the
operations, extents that are equal shrunk together, fields left to their defaults.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

from graphdnn.analysis.repairs.draft_validation import Assembler
from graphdnn.analysis.repairs.graph_draft import Draft, Fields
from graphdnn.engines.renames import current_names
from graphdnn.errors import BadParam, GraphdnnError
from graphdnn.files import GRAPH_FORMAT, VERSION
from graphdnn.operations import Operation, ports
from graphdnn.reducer.delta_debugging import PASSES, Step
from graphdnn.spec import Attempted
from graphdnn.tensors import stride_order

Change = tuple[str, Draft]


def draft_of(error: GraphdnnError) -> Draft | None:
    """What an error is about, where that is an operation or a graph of them."""
    subject = error.subject
    if isinstance(subject, Attempted) and issubclass(subject.cls, Operation):
        return Draft.of_attempt(subject)
    if isinstance(subject, tuple) and subject and all(isinstance(op, Operation) for op in subject):
        return Draft.of_operations(subject)
    return None


def reduce_refused(
    draft: Draft, rule: str | None = None, seconds: float = 300.0, told: Callable[[Step], None] = lambda step: None
) -> tuple[Draft, str]:
    """Search the smallest graph that a rule still refuses.

    Args:
        draft: The graph that is refused.
        rule: The id of the rule. None takes the first rule that refuses.
        seconds: The time after which the search ends.
        told: Called with each successful step.

    Returns:
        The smallest draft found, and the id of the rule.

    Raises:
        BadParam: The rule does not refuse the graph.
    """
    assembler, start = Assembler(), time.monotonic()
    rule = None if rule is None else current_names(rule)
    refusing = [problem.rule for problem in assembler.assemble(draft).problems]
    if not refusing or (rule is not None and rule not in refusing):
        raise BadParam(PASSES.reject("reduce", "graph", draft.name or "unnamed"))
    wanted = refusing[0] if rule is None else rule
    while time.monotonic() - start < seconds:
        for what, smaller in _changes(draft):
            if any(problem.rule == wanted for problem in assembler.assemble(smaller).problems):
                draft = smaller
                elements = sum(_elements(fields) for fields in draft.tensors.values())
                told(Step(what, len(draft.operations), elements, time.monotonic() - start))
                break
        else:
            break
    return draft, wanted


def draft_to_json(draft: Draft) -> str:
    """As a graph file, which is refused when it is read."""
    return json.dumps({"format": GRAPH_FORMAT, "version": VERSION, **draft.to_data()}, indent=1)


def _changes(draft: Draft) -> Iterator[Change]:
    yield from _without_operations(draft)
    yield from _with_smaller_extents(draft)
    yield from _without_fields(draft)


def _without_operations(draft: Draft) -> Iterator[Change]:
    """Large parts first."""
    count, size = len(draft.operations), len(draft.operations) // 2
    while size:
        for begin in range(0, count, size):
            made = draft.copy()
            del made.operations[begin : begin + size]
            used = {key for i in range(len(made.operations)) for key in made.all_ports(i).values()}
            made.tensors = {key: fields for key, fields in made.tensors.items() if key in used}
            if made.operations:
                yield f"without {draft.label(begin)}" if size == 1 else f"without {size} operations", made
        size //= 2


def _with_smaller_extents(draft: Draft) -> Iterator[Change]:
    """Equal extents are taken to be one axis."""
    extents = {e for fields in draft.tensors.values() for e in _dims(fields) if e > 1}
    for extent in sorted(extents, reverse=True):
        for smaller in dict.fromkeys((1, 2, extent // 2, extent - 1)):
            if 0 < smaller < extent:
                made = draft.copy()
                made.tensors = {key: _resized(fields, extent, smaller) for key, fields in made.tensors.items()}
                yield f"extents of {extent} become {smaller}", made


def _without_fields(draft: Draft) -> Iterator[Change]:
    for key, fields in draft.tensors.items():
        for name in fields.keys() - {"uid", "data_type", "dims", "strides"}:
            made = draft.copy()
            del made.tensors[key][name]
            yield f"{draft.tensor_label(key)} without {name}", made
    for i, fields in enumerate(draft.operations):
        kept = {"operation", *ports(draft.cls(i), "input"), *ports(draft.cls(i), "output")}
        for name in sorted(fields.keys() - kept):
            made = draft.copy()
            del made.operations[i][name]
            yield f"{draft.label(i)} without {name}", made


def _dims(fields: Fields) -> list[int]:
    dims = fields.get("dims")
    return [e for e in dims if type(e) is int] if isinstance(dims, (list, tuple)) else []


def _elements(fields: Fields) -> int:
    count = 1
    for extent in _dims(fields):
        count *= max(extent, 0)
    return count


def _resized(fields: Fields, extent: int, smaller: int) -> Fields:
    """Packed in the order that the strides have; strides that say nothing stay."""
    dims, strides = fields.get("dims"), fields.get("strides")
    if extent not in _dims(fields):
        return fields
    assert dims is not None
    changed = [smaller if e == extent else e for e in dims]
    made = fields | {"dims": changed}
    is_whole = isinstance(strides, (list, tuple)) and len(strides) == len(dims) == len(_dims(fields))
    if not is_whole or not all(type(s) is int and s > 0 for s in strides or ()):
        return made
    packed, step = [1] * len(changed), 1
    for axis in reversed(stride_order(tuple(dims), tuple(strides or ()))):
        packed[axis], step = step, step * max(changed[axis], 1)
    return made | {"strides": packed}

"""Edits of order: axes that were written in another one, operands that were exchanged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from graphdnn.analysis.repairs.draft_validation import Assembler
from graphdnn.analysis.repairs.edit import Case, Edit, numbers
from graphdnn.analysis.repairs.extent_edits import inferred, is_square, resized
from graphdnn.analysis.repairs.graph_draft import Draft, Key
from graphdnn.operations import Matmul, Operation, PointwiseOperation

_MOST_OPERANDS = 3  # of an operation whose axes are put into another order, all of their combinations


def axes_in_order(case: Case) -> Iterator[Edit]:
    """Operands whose extents are those of NHWC, of RSCK filters or of a transposed matrix; memory stays as it is."""
    for index in case.operations:
        inputs = list(dict.fromkeys(case.draft.ports(index, "input").values()))[:_MOST_OPERANDS]
        options = [[None, *_orders(case.draft, key, case.draft.cls(index))] for key in inputs]
        for orders in product(*options):
            moved = {key: order for key, order in zip(inputs, orders, strict=True) if order is not None}
            if not moved:
                continue
            draft, said = case.draft.copy(), []
            for key, order in moved.items():
                entry = draft.tensors[key]
                for field in ("dims", "strides"):
                    values = numbers(entry.get(field))
                    entry[field] = [values[axis] for axis in order]
                said.append(f"{draft.tensor_label(key)} as ({', '.join(map(str, entry['dims']))})")
            _follow(draft, index)
            words = f"write {' and '.join(said)}: the same memory, axes in another order"
            weight = 0.8 + 0.1 * len(moved) + sum(_less_square(case, draft, key) for key in moved)
            yield Edit("extents.order", words, draft, weight)


def _orders(draft: Draft, key: Key, cls: type[Operation]) -> Iterator[list[int]]:
    """Of NHWC and KRSC tensors, of RSCK filters, of a transposed matrix; none that changes nothing."""
    dims, strides = (numbers(draft.tensors[key].get(field)) for field in ("dims", "strides"))
    axes = list(range(len(dims)))
    if len(strides) != len(dims):
        return
    found = [[*axes[:-2], axes[-1], axes[-2]]] if issubclass(cls, Matmul) and len(axes) > 1 else []
    if len(axes) > 2 and not issubclass(cls, Matmul):
        found = [[axes[0], axes[-1], *axes[1:-1]], [axes[-1], axes[-2], *axes[:-2]]]
    yield from (order for order in found if [dims[axis] for axis in order] != dims)


def _less_square(case: Case, after: Draft, key: Key) -> float:
    """Images and windows are square more often than not."""
    before, now = (is_square(numbers(draft.tensors[key].get("dims"))) for draft in (case.draft, after))
    return 0.8 * (before - now)


def exchanged(case: Case) -> Iterator[Edit]:
    """The two operands of an operation that tells them apart, the other way round."""
    for index in case.operations:
        mine = case.draft.ports(index, "input")
        if len(mine) == 2 and not issubclass(case.draft.cls(index), PointwiseOperation):
            (first, one), (second, other) = mine.items()
            draft = case.draft.copy()
            draft.connect(index, first, other)
            draft.connect(index, second, one)
            _follow(draft, index)
            yield Edit("ports.exchange", f"exchange {first} and {second} of {draft.label(index)}", draft, 0.75)


def _follow(draft: Draft, index: int) -> None:
    """Give results that nothing reads the extents that follow from the operands."""
    read: Sequence[Key] = list(draft.readers())
    case = Case(draft, Assembler().assemble(draft))
    for key, dims in inferred(case, index).items():
        if key not in read:
            resized(draft, key, dims)

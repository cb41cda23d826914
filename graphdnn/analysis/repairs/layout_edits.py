"""Edits of strides, alignment and vectors."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from graphdnn.analysis.repairs.edit import Case, Edit, layouts, numbers
from graphdnn.analysis.repairs.graph_draft import Key
from graphdnn.tensors import channels_last_strides, may_overlap, ordered_strides, packed_strides, stride_order


def tensor_layout(case: Case) -> Iterator[Edit]:
    """One tensor in another order in memory, or without gaps."""
    for key in case.tensors:
        entry = case.draft.tensors[key]
        dims, strides = numbers(entry.get("dims")), numbers(entry.get("strides"))
        if not dims:
            continue
        choices = [(f"{name} strides", new) for name, new in layouts(case, dims)]
        if len(strides) == len(dims) and min(strides) > 0:
            same_order = ordered_strides(tuple(dims), stride_order(tuple(dims), tuple(strides)))
            choices.append(("strides in the same order without gaps", list(same_order)))
        kept = _completed(dims, strides)
        if kept is not None:
            words = f"complete the strides of {case.draft.tensor_label(key)}"
            yield case.with_tensor("layout.tensor", words, 0.9, key, strides=kept)
        theirs = [numbers(case.draft.tensors[other].get("strides")) for other in _beside(case, key)]
        choices += [("the strides of the tensor beside it", new) for new in theirs if new]
        for i, (name, new) in enumerate(choices):
            if new != strides:
                words = f"give {case.draft.tensor_label(key)} {name}"
                weight = 0.95 if new in theirs else 1.0 + 0.1 * i
                yield case.with_tensor("layout.tensor", words, weight, key, strides=list(new))


def _beside(case: Case, key: Key) -> list[Key]:
    """Tensors of the same extents that an operation has beside this one."""
    dims = case.draft.tensors[key].get("dims")
    return [other for other in case.beside.get(key, ()) if case.draft.tensors[other].get("dims") == dims]


def _completed(dims: list[int], strides: list[int]) -> list[int] | None:
    """Strides with one missing or not positive entry, which becomes a stride that fits, best without gaps."""
    if len(strides) == len(dims) - 1:
        options = [[*strides[:place], 0, *strides[place:]] for place in range(len(dims))]
    else:
        options = [list(strides)] if len(strides) == len(dims) and sum(s < 1 for s in strides) == 1 else []
    found = []
    for option in options:
        others = [(stride, extent) for extent, stride in zip(dims, option, strict=True) if stride > 0]
        if len(others) == len(dims) - 1:
            reaches = {1, *(stride * extent for stride, extent in others)}
            made = ([stride if stride > 0 else reach for stride in option] for reach in reaches)
            found += [strides for strides in made if not may_overlap(dims, strides)]
    usual = [list(packed_strides(dims)), list(channels_last_strides(dims))]
    return min(found, key=lambda strides: (_gaps(dims, strides), strides not in usual), default=None)


def _gaps(dims: list[int], strides: list[int]) -> int:
    """Elements between the first and the last that are not the tensor's."""
    return 1 + sum((extent - 1) * stride for extent, stride in zip(dims, strides, strict=True)) - prod(dims)


def operation_layout(case: Case) -> Iterator[Edit]:
    """Every tensor of an operation in one order in memory."""
    for index in case.operations:
        keys = list(dict.fromkeys(case.ports[index].values()))
        for i, name in enumerate(("channels last", "row-major")):
            draft = case.draft.copy()
            for key in keys:
                dims = numbers(draft.tensors[key].get("dims"))
                if len(dims) > 2 and draft.tensors[key].get("vector_count", 1) == 1:
                    draft.tensors[key]["strides"] = dict(layouts(case, dims))[name]
            yield Edit(
                "layout.operation",
                f"give the tensors of {case.draft.label(index)} {name} strides",
                draft,
                1.5 + 0.1 * i,
            )


def graph_layout(case: Case) -> Iterator[Edit]:
    """Every tensor of the graph in one order in memory."""
    for i, name in enumerate(("channels last", "row-major")):
        draft = case.draft.copy()
        for entry in draft.tensors.values():
            dims = numbers(entry.get("dims"))
            if len(dims) > 2 and entry.get("vector_count", 1) == 1:
                entry["strides"] = dict(layouts(case, dims))[name]
        yield Edit("layout.graph", f"give every tensor {name} strides", draft, 1.8 + 0.1 * i)


def alignment(case: Case) -> Iterator[Edit]:
    """The alignment that allocations have anyway."""
    for key in case.tensors:
        if case.draft.tensors[key].get("byte_alignment", 16) != 16:
            words = f"promise 16 bytes of alignment for {case.draft.tensor_label(key)}: what an allocator gives"
            yield case.with_tensor("layout.alignment", words, 1.0, key, byte_alignment=...)


def vectors(case: Case) -> Iterator[Edit]:
    """A tensor without vectors and reordering, or with the axis of its vectors named."""
    for key in case.tensors:
        entry, label = case.draft.tensors[key], case.draft.tensor_label(key)
        if entry.get("vector_count", 1) != 1 and entry.get("vectorized_dimension", -1) == -1:
            words = f"name axis 1 as the one stored in vectors of {label}"
            yield case.with_tensor("layout.vectors", words, 1.0, key, vectorized_dimension=1)
        if any(name in entry for name in ("vector_count", "vectorized_dimension", "reordering")):
            plain = {"vector_count": ..., "vectorized_dimension": ..., "reordering": ...}
            yield case.with_tensor("layout.vectors", f"store {label} in its plain order", 1.1, key, **plain)

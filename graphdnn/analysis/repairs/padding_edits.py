"""Edits that add channels of zeros, so that what engines ask for divides them."""

from __future__ import annotations

from collections.abc import Iterator

from graphdnn.analysis.repairs.edit import Case, Edit, numbers
from graphdnn.analysis.repairs.extent_edits import resized
from graphdnn.analysis.repairs.graph_draft import Draft, Key
from graphdnn.operations import ConvolutionOperation, Matmul

_MULTIPLES = (4, 8, 16, 32)


def pad_channels(case: Case) -> Iterator[Edit]:
    """C and K of a convolution, or the inner extent of a product, up to a multiple, in every tensor that has them."""
    for index in case.operations:
        cls, mine = case.draft.cls(index), case.ports[index]
        if issubclass(cls, ConvolutionOperation) and all(port in mine for port in cls.role_names):
            yield from _convolution(case, index, *(mine[port] for port in cls.role_names))
        elif cls is Matmul and "a" in mine and "b" in mine:
            yield from _product(case, index, mine["a"], mine["b"])


def _convolution(case: Case, index: int, x: Key, w: Key, y: Key) -> Iterator[Edit]:
    dims = [numbers(case.draft.tensors[key].get("dims")) for key in (x, w, y)]
    spatial = case.draft.operations[index].get("conv", {}).get("spatial_dims", 0)
    if any(len(d) != spatial + 2 for d in dims) or dims[0][1] != dims[1][1]:
        return  # groups share their channels out: padding one would move the others
    c, k = dims[1][1], dims[1][0]
    for i, multiple in enumerate(_MULTIPLES):
        wanted = {"C": -(-c // multiple) * multiple, "K": -(-k // multiple) * multiple}
        for which in (("C",), ("K",), ("C", "K")):
            grown = {name: wanted[name] for name in which}
            if all(grown[name] > old for name, old in (("C", c), ("K", k)) if name in grown):
                yield _padded(case, index, (x, w, y), c, k, grown, 2.0 + 0.1 * i + 0.05 * len(which))


def _product(case: Case, index: int, a: Key, b: Key) -> Iterator[Edit]:
    """The inner extent alone: the result stays as it is."""
    columns, rows = (numbers(case.draft.tensors[key].get("dims")) for key in (a, b))
    if len(columns) < 2 or len(rows) != len(columns):
        return
    inner = columns[-1]
    for i, multiple in enumerate(_MULTIPLES):
        wanted = -(-inner // multiple) * multiple
        if wanted > inner:
            draft = case.draft.copy()
            _grow(draft, a, len(columns) - 1, wanted)
            _grow(draft, b, len(rows) - 2, wanted)
            words = (
                f"pad the inner extent of {case.draft.label(index)}: {inner} -> {wanted}, with zeros in both operands"
            )
            yield Edit("channels.pad", words, draft, 2.0 + 0.1 * i)


def _padded(
    case: Case, index: int, keys: tuple[Key, Key, Key], c: int, k: int, grown: dict[str, int], weight: float
) -> Edit:
    draft = case.draft.copy()
    x, w, y = keys
    said = []
    if "C" in grown:
        _follow(draft, x, c, grown["C"])
        _grow(draft, w, 1, grown["C"])
        said.append(f"C {c} -> {grown['C']}{_meaning(case, index, x, w)}")
    if "K" in grown:
        _grow(draft, w, 0, grown["K"])
        _follow(draft, y, k, grown["K"])
        said.append(f"K {k} -> {grown['K']}{_meaning(case, index, w, y)}")
    return Edit("channels.pad", f"pad the channels of {case.draft.label(index)}: {'; '.join(said)}", draft, weight)


def _meaning(case: Case, index: int, *keys: Key) -> str:
    """What is to be in the added channels of what is read, and is in those of what is written."""
    written = set(case.draft.ports(index, "output").values())
    read = " and ".join(case.draft.tensor_label(key) for key in keys if key not in written)
    left = " and ".join(case.draft.tensor_label(key) for key in keys if key in written)
    return f", zeros in {read}" + (f", to be ignored in {left}" if left else "")


def _grow(draft: Draft, key: Key, axis: int, extent: int) -> None:
    dims = numbers(draft.tensors[key].get("dims"))
    resized(draft, key, [*dims[:axis], extent, *dims[axis + 1 :]])


def _follow(draft: Draft, key: Key, old: int, new: int) -> None:
    """Grow axis 1 of a tensor, and of everything that pointwise operations combine it with."""
    waiting, seen = [key], set()
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        if numbers(draft.tensors[current].get("dims"))[1:2] == [old]:
            _grow(draft, current, 1, new)
        for index in range(len(draft.operations)):
            mine = draft.all_ports(index)
            if current in mine.values() and draft.operations[index]["operation"] in (
                "pointwise",
                "reduction",
                "genstats",
            ):
                waiting += [other for other in mine.values() if other not in seen]

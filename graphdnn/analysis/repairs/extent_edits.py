"""Edits of extents, and of the settings they follow from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from graphdnn.analysis.repairs.edit import Case, Edit, numbers, strides_for, surprise
from graphdnn.analysis.repairs.graph_draft import Draft, Key
from graphdnn.errors import GraphdnnError
from graphdnn.operations import ConvolutionOperation
from graphdnn.operations.convolution import forward_extents

_SPATIAL_SETTINGS = {
    "conv": ("pre_paddings", "post_paddings", "filter_strides", "dilations"),
    "spec": ("pre_paddings", "post_paddings", "strides", "window_dims"),
}
_LEAST = {"pre_paddings": 0, "post_paddings": 0}
_LARGEST_SETTING = 7
_LARGEST_POOL = 48  # of extents whose quotients are tried as well


def resized(draft: Draft, key: Key, dims: Sequence[int]) -> None:
    """Give a tensor other extents, in the same order in memory."""
    entry = draft.tensors[key]
    entry["strides"] = strides_for(dims, numbers(entry.get("dims")), numbers(entry.get("strides")))
    entry["dims"] = list(dims)


def _shown(dims: Sequence[int]) -> str:
    return f"({', '.join(map(str, dims))})"


def to_the_shape_rule(case: Case) -> Iterator[Edit]:
    """What the shape rule says about the outputs; for a gradient, about dy."""
    for index in case.operations:
        wanted = inferred(case, index)
        if not wanted:
            continue
        draft, said = case.draft.copy(), []
        for key, dims in wanted.items():
            resized(draft, key, dims)
            said.append(f"{case.draft.tensor_label(key)} the extents {_shown(dims)}")
        read = all(key in case.draft.ports(index, "input").values() for key in wanted)
        weight = (1.25 if read else 1.0) + sum(_changed_surprise(case, key, dims) for key, dims in wanted.items())
        yield Edit("extents.output", f"give {' and '.join(said)}", draft, weight)


def inferred(case: Case, index: int) -> dict[Key, Sequence[int]]:
    """key -> extents of the tensors that do not have what the shape rule gives."""
    cls, fields = case.draft.cls(index), case.fields(index)
    if fields is None:
        return {}
    try:
        found = dict(cls.infer(fields))
        if issubclass(cls, ConvolutionOperation) and not found:
            x, w, y = cls.role_names
            found = {y: forward_extents(fields[x].extents, fields[w].extents, fields["conv"])}
    except (GraphdnnError, AttributeError, IndexError, KeyError, TypeError, ValueError, ZeroDivisionError):
        return {}
    mine = case.ports[index]
    wanted: dict[Key, Sequence[int]] = {}
    for port, dims in found.items():
        spec = case.spec(mine[port]) if port in mine else None
        if spec is not None and spec.extents != tuple(dims) and spec.vector_count == 1 and min(dims, default=0) > 0:
            wanted[mine[port]] = dims
    return wanted


def one_extent(case: Case) -> Iterator[Edit]:
    """One extent of one tensor becomes what another tensor or the geometry says."""
    for index in case.operations:
        mine = case.ports[index]
        written = set(case.draft.ports(index, "output").values())
        pool = {extent for key in mine.values() for extent in numbers(case.draft.tensors[key].get("dims"))} | {1}
        if len(pool) < _LARGEST_POOL:
            pool |= {a // b for a, b in product(pool, pool) if b and a % b == 0}
        pool |= _geometry(case, index)
        pool |= {a * b for a, b in product(pool, pool) if a * b <= 4096 and len(pool) < 12}
        for key in dict.fromkeys(mine.values()):
            dims = numbers(case.draft.tensors[key].get("dims"))
            for axis, old in enumerate(dims):
                for new in sorted(pool - {old}):
                    draft = case.draft.copy()
                    resized(draft, key, [*dims[:axis], new, *dims[axis + 1 :]])
                    words = f"make dims[{axis}] of {case.draft.tensor_label(key)} {new}"
                    weight = (1.2 if key in written else 1.4) + surprise(case, old, new)
                    weight += _shape_surprise(case, key, draft.tensors[key]["dims"])
                    yield Edit("extents.one", words, draft, weight)


def is_square(dims: Sequence[int]) -> bool:
    """True where the last two axes are alike."""
    return len(set(dims[-2:])) == 1


def _shape_surprise(case: Case, key: Key, dims: Sequence[int]) -> float:
    """Images and windows are square more often than not: what becomes square is likely, what no longer is, unlikely."""
    before, after = (is_square(d) for d in (numbers(case.draft.tensors[key].get("dims")), list(dims)))
    return 0.3 * (before - after) if len(dims) >= 4 else 0.0


def _changed_surprise(case: Case, key: Key, dims: Sequence[int]) -> float:
    old = numbers(case.draft.tensors[key].get("dims"))
    changed = [(a, b) for a, b in zip(old, dims, strict=False) if a != b]
    return _shape_surprise(case, key, dims) + max((surprise(case, a, b) for a, b in changed), default=0.0)


def _geometry(case: Case, index: int) -> set[int]:
    """Extents of images and windows that fit the others: what the shape formula gives, turned round."""
    conv = case.draft.operations[index].get("conv")
    if not isinstance(conv, dict) or not issubclass(cls := case.draft.cls(index), ConvolutionOperation):
        return set()
    mine, found = case.ports[index], set()
    try:
        x, w, y = (case.draft.tensors[mine[port]]["dims"] for port in cls.role_names)
        spatial = conv["spatial_dims"]
        found |= _divisors_near(x[1], w[1]) | {x[1] // w[1] * w[1], (x[1] // w[1] + 1) * w[1]}
        for axis in range(-spatial, 0):
            pre, post, stride, dilation = (conv[f][axis] for f in _SPATIAL_SETTINGS["conv"])
            found.add((y[axis] - 1) * stride + dilation * (w[axis] - 1) + 1 - pre - post)
            found.add((x[axis] + pre + post - 1 - (y[axis] - 1) * stride) // dilation + 1)
            found.add((x[axis] + pre + post - dilation * (w[axis] - 1) - 1) // stride + 1)
    except (KeyError, IndexError, TypeError, ZeroDivisionError):
        return set()
    return {extent for extent in found if extent > 0}


def _divisors_near(channels: int, given: int) -> set[int]:
    """The divisors of x's channels on both sides of the filter's."""
    if not 0 < channels <= 2**20:
        return set()
    divisors = [d for d in range(1, channels + 1) if channels % d == 0]
    return {max((d for d in divisors if d <= given), default=1), min((d for d in divisors if d >= given), default=1)}


def extents_of_another(case: Case) -> Iterator[Edit]:
    """A tensor gets all extents of another one of the operation, or 1 in some of the axes."""
    for index in case.operations:
        mine = list(dict.fromkeys(case.ports[index].values()))
        written = set(case.draft.ports(index, "output").values())
        for key, other in product(mine, mine):
            dims, theirs = numbers(case.draft.tensors[key].get("dims")), numbers(case.draft.tensors[other].get("dims"))
            channel = [extent if axis == 1 else 1 for axis, extent in enumerate(theirs)]
            for new, extra in ((theirs, 0.0), (channel, 0.05)):
                if new and new != dims:
                    draft = case.draft.copy()
                    resized(draft, key, new)
                    words = f"give {case.draft.tensor_label(key)} the extents {_shown(new)}"
                    changed = sum(a != b for a, b in zip(dims, new, strict=False)) + abs(len(dims) - len(new))
                    base = (1.3 if key in written else 1.4) + 0.1 * changed + extra
                    yield Edit("extents.as_another", words, draft, base)


def more_axes(case: Case) -> Iterator[Edit]:
    """Axes of extent 1, before or after, until a tensor has the rank of another one."""
    for index in case.operations:
        mine = list(dict.fromkeys(case.ports[index].values()))
        ranks = {len(numbers(case.draft.tensors[key].get("dims"))) for key in mine}
        for key, rank in product(mine, sorted(ranks)):
            dims = numbers(case.draft.tensors[key].get("dims"))
            missing = rank - len(dims)
            squeezed = [d for d in dims if d != 1]
            options = []
            if missing > 0:
                options = [[1] * missing + dims, dims + [1] * missing]
                options += [[1, dims[0]] + [1] * (rank - 2)] if len(dims) == 1 and rank > 2 else []
            elif missing < 0 and len(squeezed) <= rank:
                options = [dims[-missing:]] if set(dims[:-missing]) == {1} else []
            alike = [other for other in mine if case.draft.tensors[other].get("dims") == dims]
            for i, new in enumerate(options):
                for keys in dict.fromkeys(((key,), tuple(alike))):  # scale and bias are written alike
                    draft = case.draft.copy()
                    for each in keys:
                        resized(draft, each, new)
                    labels = " and ".join(case.draft.tensor_label(each) for each in keys)
                    yield Edit("extents.rank", f"write {labels} as {_shown(new)}", draft, 1.1 + 0.05 * i)


def geometry_settings(case: Case) -> Iterator[Edit]:
    """Padding, stride, dilation or window that lead to the extents the tensors have."""
    for index in case.operations:
        for setting, names in _SPATIAL_SETTINGS.items():
            fields = case.draft.operations[index].get(setting)
            if not isinstance(fields, dict):
                continue
            lists = {name: values for name in names if (values := numbers(fields.get(name)))}
            crooked = _asymmetry(lists)
            for name, values in lists.items():
                least = _LEAST.get(name, 1)
                for new in _variants(values, least):
                    after = _asymmetry({**lists, name: new})
                    weight = (
                        1.1 + 0.3 * (after - crooked) + 0.05 * sum(a != b for a, b in zip(values, new, strict=True))
                    )
                    words = f"{name} of {case.draft.label(index)}: {_shown(new)}"
                    yield case.with_setting("settings.geometry", words, weight, index, setting, **{name: new})
            pads = [name for name in ("pre_paddings", "post_paddings") if name in lists]
            if len(pads) == 2:
                for value in range(_LARGEST_SETTING):
                    new = [value] * len(lists[pads[0]])
                    if any(lists[pad] != new for pad in pads):
                        after = _asymmetry({**lists, pads[0]: new, pads[1]: new})
                        words = f"padding of {case.draft.label(index)}: {value} on every side"
                        weight = 1.15 + 0.3 * (after - crooked)
                        yield case.with_setting(
                            "settings.geometry", words, weight, index, setting, **{pad: list(new) for pad in pads}
                        )


def _variants(values: list[int], least: int) -> Iterator[list[int]]:
    """One entry changed, or all of them to one value."""
    for value in range(least, _LARGEST_SETTING + 1):
        for axis, old in enumerate(values):
            if old != value:
                yield [*values[:axis], value, *values[axis + 1 :]]
        whole = [value] * len(values)
        if len(values) > 1 and sum(v != value for v in values) > 1:
            yield whole


def _asymmetry(lists: dict[str, list[int]]) -> int:
    """How many pairs differ that are usually equal: the axes of one setting, the padding before and after."""
    uneven = sum(len(set(values)) - 1 for values in lists.values())
    sides = zip(lists.get("pre_paddings", ()), lists.get("post_paddings", ()), strict=False)
    return uneven + sum(before != after for before, after in sides)


def setting_values(case: Case) -> Iterator[Edit]:
    """Entries of the right number and in the legal range: cut or repeated, and without the sign."""
    if case.problem is None or case.problem.operation is None:
        return
    index, setting = case.problem.operation, case.problem.setting
    fields: Any = case.draft.operations[index].get(setting) if setting else None
    if not isinstance(fields, dict):
        return
    name = case.rule.split(".")[1]
    values = numbers(fields.get(name))
    if name == "spatial_dims":
        lengths = [len(numbers(fields.get(n))) for n in _SPATIAL_SETTINGS.get(setting, ()) if fields.get(n)]
        wanted = [len(numbers(case.draft.tensors[key].get("dims"))) - 2 for key in case.ports[index].values()]
        for i, axes in enumerate(dict.fromkeys((*lengths, *wanted))):
            words = f"spatial_dims of {case.draft.label(index)}: {axes}"
            yield case.with_setting("settings.range", words, 1.0 + 0.1 * i, index, setting, spatial_dims=axes)
    elif values:
        given = {len(numbers(fields.get(n))) for n in _SPATIAL_SETTINGS.get(setting, ()) if fields.get(n)}
        if len(given) == 1 and given != {fields.get("spatial_dims")}:
            (axes,) = given
            words = f"spatial_dims of {case.draft.label(index)}: {axes}"
            yield case.with_setting("settings.range", words, 0.95, index, setting, spatial_dims=axes)
        count = fields.get("spatial_dims", len(values))
        full = (values + values[-1:] * count)[:count]
        least = _LEAST.get(name, 1)
        whole = _most_common([v for v in full if v >= least]) or [least]
        for i, new in enumerate(
            ([abs(v) if abs(v) >= least else whole[0] for v in full], [max(v, least) for v in full])
        ):
            if new != values:
                words = f"{name} of {case.draft.label(index)}: {_shown(new)}"
                yield case.with_setting("settings.range", words, 1.0 + 0.1 * i, index, setting, **{name: new})


def _most_common(values: list[int]) -> list[int]:
    return sorted(set(values), key=lambda v: -values.count(v))[:1]


def movement_settings(case: Case) -> Iterator[Edit]:
    """Axis, permutation and limits of data movement that lead to the extents the tensors have."""
    for index in case.operations:
        op, tag = case.draft.operations[index], case.draft.operations[index]["operation"]
        mine = case.ports[index]
        dims = {port: numbers(case.draft.tensors[key].get("dims")) for port, key in mine.items()}
        label = case.draft.label(index)
        if tag == "concat":
            for axis in range(len(dims.get("y", ()))):
                if axis != op.get("axis"):
                    yield case.with_operation("settings.movement", f"axis of {label}: {axis}", 1.2, index, axis=axis)
        elif tag == "slice" and numbers(op.get("limits")):
            x, starts = dims.get("x", []), numbers(op.get("starts"))
            limits = [min(limit, extent) for limit, extent in zip(op["limits"], x, strict=False)]
            words = f"limits of {label}: {_shown(limits)}"
            yield case.with_operation("settings.movement", words, 1.1, index, limits=limits)
            steps = numbers(op.get("slice_strides")) or [1] * len(starts)
            y = dims.get("y", [])
            if len(starts) == len(y) == len(steps):
                ends = [start + (extent - 1) * step + 1 for start, extent, step in zip(starts, y, steps, strict=True)]
                words = f"limits of {label}: {_shown(ends)}"
                yield case.with_operation("settings.movement", words, 1.2, index, limits=ends)
        elif tag == "transpose":
            x, y = dims.get("x", []), dims.get("y", [])
            if sorted(x) == sorted(y):
                free, order = list(range(len(x))), []
                for extent in y:
                    axis = next(a for a in free if x[a] == extent)
                    free.remove(axis)
                    order.append(axis)
                words = f"permutation of {label}: {_shown(order)}"
                yield case.with_operation("settings.movement", words, 1.1, index, permutation=order)

"""Plain loops for each operation: what a result is, written so that one can check it by reading.

Each row of ``LOOPS`` gives, for every result of an operation, statements that compute one element, ``result``, at the
coordinates ``i0``, ``i1``, ... Nothing is shared with the kernels but the conversions of element types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphdnn.analysis.kernels.standalone.tensor_access import Access, arithmetic_of
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.codegen.literals import literal
from graphdnn.enums import NormMode, NormPhase, PointwiseMode, ReductionOperator, ReshapeMode
from graphdnn.operations import (
    Concat,
    ConvBackwardData,
    ConvBackwardFilter,
    ConvForward,
    Matmul,
    NormForward,
    Operation,
    PointwiseOperation,
    Reduction,
    Reshape,
    Slice,
    Transpose,
)

Lines = list[str]
Operands = Mapping[str, Access]  # by port
_R = ReductionOperator


@dataclass(frozen=True, slots=True)
class Loops:
    """``missing`` names what an operation asks for that the loops do not have; empty if they have all of it."""

    results: Callable[[Any, Operands], dict[str, Lines]]
    missing: Callable[[Any], str] = lambda op: ""


def nested(indices: Sequence[tuple[str, int]], body: Lines) -> Lines:
    """Loops around a body, outermost first. A body is one block."""
    lines: Lines = []
    for depth, (name, count) in enumerate(indices):
        lines.append("    " * depth + f"for (long long {name} = 0; {name} < {count}; ++{name})")
    indent = "    " * len(indices)
    return [
        *lines,
        "    " * max(0, len(indices) - 1) + "{",
        *(indent + line for line in body),
        "    " * max(0, len(indices) - 1) + "}",
    ]


def _sum(arithmetic: str, term: str) -> str:
    """Integers wrap, which C++ allows for unsigned ones only."""
    if arithmetic == "double":
        return f"result += {term};"
    unsigned = "unsigned long long" if arithmetic == "long long" else "unsigned"
    return f"result = ({arithmetic})(({unsigned})result + ({unsigned})({term}));"


def _product(arithmetic: str, a: str, b: str) -> str:
    if arithmetic == "double":
        return f"{a} * {b}"
    unsigned = "unsigned long long" if arithmetic == "long long" else "unsigned"
    return f"({unsigned}){a} * ({unsigned}){b}"


# Convolutions.


def _image(access: Access, spatial: int, n: str, g: str, channel: str, per_group: int, at: Sequence[str]) -> list[str]:
    """Coordinates in a tensor [N, G * C, ...] or [N, G, C, ...]."""
    if len(access.spec.extents) == spatial + 2:
        return [n, f"({g} * {per_group} + {channel})", *at]
    return [n, g, channel, *at]


def _filter(access: Access, spatial: int, g: str, k: str, c: str, per_group: int, at: Sequence[str]) -> list[str]:
    """Coordinates in a tensor [G * K, C, ...] or [G, K, C, ...]."""
    if len(access.spec.extents) == spatial + 2:
        return [f"({g} * {per_group} + {k})", c, *at]
    return [g, k, c, *at]


def _split(is_flat: bool, first: int, per_group: int) -> tuple[str, str]:
    """(group, channel) of a result whose coordinate number ``first`` counts both, or the group alone."""
    if is_flat:
        return f"(i{first} / {per_group})", f"(i{first} % {per_group})"
    return f"i{first}", f"i{first + 1}"


def _taps(p: Any) -> list[str]:
    return [f"({f - 1} - r{a})" if p.flip else f"r{a}" for a, f in enumerate(p.filter)]


def _positions(p: Any, place: str) -> Lines:
    """Where a tap reads x for output ``place``; outside there are zeros."""
    lines = []
    for a in range(p.spatial):
        lines.append(
            f"const long long h{a} = {place}{a} * {p.stride[a]} - {p.pre_padding[a]} + r{a} * {p.dilation[a]};"
        )
        lines.append(f"if (h{a} < 0 || h{a} >= {p.input[a]}) continue;")
    return lines


def _fprop(op: ConvForward, at: Operands) -> dict[str, Lines]:
    p, kind = op.problem, arithmetic_of(op.compute_type)
    is_flat = len(op.y.extents) == p.spatial + 2
    g, k = _split(is_flat, 1, p.k)
    outputs = [f"i{(2 if is_flat else 3) + a}" for a in range(p.spatial)]
    x = at["x"].value(_image(at["x"], p.spatial, "i0", g, "c", p.c, [f"h{a}" for a in range(p.spatial)]), kind)
    w = at["w"].value(_filter(at["w"], p.spatial, g, k, "c", p.k, _taps(p)), kind)
    named = [f"const long long o{a} = {o};" for a, o in enumerate(outputs)]
    body = [*_positions(p, "o"), _sum(kind, _product(kind, x, w))]
    loops = nested([("c", p.c), *((f"r{a}", f) for a, f in enumerate(p.filter))], body)
    return {"y": [*named, *loops, *_alpha(op, kind)]}


def _dgrad(op: ConvBackwardData, at: Operands) -> dict[str, Lines]:
    p, kind = op.problem, arithmetic_of(op.compute_type)
    is_flat = len(op.dx.extents) == p.spatial + 2
    g, c = _split(is_flat, 1, p.c)
    lines: Lines = []
    for a in range(p.spatial):
        here = f"i{(2 if is_flat else 3) + a}"
        lines.append(f"const long long t{a} = {here} + {p.pre_padding[a]} - r{a} * {p.dilation[a]};")
        lines.append(f"if (t{a} < 0 || t{a} % {p.stride[a]} || t{a} / {p.stride[a]} >= {p.output[a]}) continue;")
    outputs = [f"(t{a} / {p.stride[a]})" for a in range(p.spatial)]
    dy = at["dy"].value(_image(at["dy"], p.spatial, "i0", g, "k", p.k, outputs), kind)
    w = at["w"].value(_filter(at["w"], p.spatial, g, "k", c, p.k, _taps(p)), kind)
    loops = nested(
        [("k", p.k), *((f"r{a}", f) for a, f in enumerate(p.filter))], [*lines, _sum(kind, _product(kind, dy, w))]
    )
    return {"dx": [*loops, *_alpha(op, kind)]}


def _wgrad(op: ConvBackwardFilter, at: Operands) -> dict[str, Lines]:
    p, kind = op.problem, arithmetic_of(op.compute_type)
    is_flat = len(op.dw.extents) == p.spatial + 2
    g, k = _split(is_flat, 0, p.k)
    first = 1 if is_flat else 2
    named = [f"const long long c = i{first};"]
    for a, f in enumerate(p.filter):
        tap = f"i{first + 1 + a}"
        named.append(f"const long long r{a} = {f'{f - 1} - {tap}' if p.flip else tap};")
    x = at["x"].value(_image(at["x"], p.spatial, "n", g, "c", p.c, [f"h{a}" for a in range(p.spatial)]), kind)
    dy = at["dy"].value(_image(at["dy"], p.spatial, "n", g, k, p.k, [f"o{a}" for a in range(p.spatial)]), kind)
    body = [*_positions(p, "o"), _sum(kind, _product(kind, x, dy))]
    loops = nested([("n", p.n), *((f"o{a}", o) for a, o in enumerate(p.output))], body)
    return {"dw": [*named, *loops, *_alpha(op, kind)]}


def _alpha(op: Any, kind: str) -> Lines:
    return [] if op.alpha == 1.0 else [f"result = result * {literal(op.alpha, kind)};"]


def _blends(op: Operation) -> str:
    return "a beta, which reads what the output held before" if op.reads_output else ""


# Matrix products, pointwise operations, reductions.


def _matmul(op: Matmul, at: Operands) -> dict[str, Lines]:
    kind, rank = arithmetic_of(op.compute_type), len(op.c.extents)

    def batch(access: Access) -> list[str]:
        pairs = zip(op.c.extents[:-2], access.spec.extents[:-2], strict=True)
        return [f"i{axis}" if many == few else f"(i{axis} / {many // few})" for axis, (many, few) in enumerate(pairs)]

    a = at["a"].value([*batch(at["a"]), f"i{rank - 2}", "k"], kind)
    b = at["b"].value([*batch(at["b"]), "k", f"i{rank - 1}"], kind)
    return {"c": nested([("k", op.a.extents[-1])], [_sum(kind, _product(kind, a, b))])}


def _pointwise(op: PointwiseOperation, at: Operands) -> dict[str, Lines]:
    (port, result), row = next(iter(op.outputs().items())), op.spec.row
    here = [f"i{axis}" for axis in range(len(result.extents))]
    kind = arithmetic_of(op.spec.math_type)
    if op.spec.mode is PointwiseMode.GEN_INDEX:
        return {port: [f"result = {here[int(op.spec.parameters()['axis']) % len(here)]};"]}
    lines = []
    for i, operand in enumerate(row.operands):
        value = at[operand].broadcast(here, "bool" if operand == "t" else kind)
        factor = (op.alpha1, op.alpha2, 1.0)[i]
        scaled = value if factor == 1.0 or operand == "t" else f"{value} * {literal(factor, kind)}"
        lines.append(f"const {'bool' if operand == 't' else kind} o{i} = {scaled};")
    parameters = {name: literal(value, kind) for name, value in op.spec.parameters().items()}
    text = row.cuda_double if kind == "double" else row.cuda_int
    return {port: [*lines, f"result = {text.format(*(f'o{i}' for i in range(len(lines))), **parameters)};"]}


_REDUCTIONS: dict[ReductionOperator, tuple[str, str, str]] = {  # first value, step, end
    _R.ADD: ("0", "", ""),
    _R.AVG: ("0", "", "result /= {count};"),
    _R.MUL: ("1", "result = result * x;", ""),
    _R.MIN: ("", "result = first || x < result ? x : result;", ""),
    _R.MAX: ("", "result = first || x > result ? x : result;", ""),
    _R.AMAX: ("0", "result = (x < 0 ? -x : x) > result ? (x < 0 ? -x : x) : result;", ""),
    _R.NORM1: ("0", "result += x < 0 ? -x : x;", ""),
    _R.NORM2: ("0", "result += x * x;", "result = sqrt(result);"),
    _R.MUL_NO_ZEROS: ("1", "if (x != 0) result = result * x;", ""),
}


def _reduction(op: Reduction, at: Operands) -> dict[str, Lines]:
    kind, extents = arithmetic_of(op.compute_type), op.x.extents
    first, step, end = _REDUCTIONS[op.spec.operator]
    blocks = [n // m for n, m in zip(extents, op.y.extents, strict=True)]
    here = [f"(i{axis} * {b} + j{axis})" if b > 1 else f"i{axis}" for axis, b in enumerate(blocks)]
    count = 1
    for block in blocks:
        count *= block
    body = [f"const {kind} x = {at['x'].value(here, kind)};", step or _sum(kind, "x"), "first = false;"]
    loops = nested([(f"j{axis}", b) for axis, b in enumerate(blocks) if b > 1], body)
    lines = ["[[maybe_unused]] bool first = true;", *([f"result = {first};"] if first else []), *loops]
    return {"y": [*lines, *([end.format(count=count)] if end else [])]}


def _missing_reduction(op: Reduction) -> str:
    if op.spec.operator not in _REDUCTIONS:
        return f"the operator {op.spec.operator.name}"
    is_real = op.spec.operator in (_R.AVG, _R.NORM2)
    return "an average or a norm of integers" if is_real and arithmetic_of(op.compute_type) != "double" else ""


# Movement.


def _transpose(op: Transpose, at: Operands) -> dict[str, Lines]:
    here = ["0"] * len(op.permutation)
    for axis, source in enumerate(op.permutation):
        here[source] = f"i{axis}"
    return {"y": [f"result = {at['x'].value(here, moved_type(op))};"]}


def _slice(op: Slice, at: Operands) -> dict[str, Lines]:
    ranges = [range(*s.indices(n)) for s, n in zip(op.slices, op.x.extents, strict=True)]
    here = [f"({r.start} + i{axis} * {r.step})" for axis, r in enumerate(ranges)]
    return {"y": [f"result = {at['x'].value(here, moved_type(op))};"]}


def _reshape(op: Reshape, at: Operands) -> dict[str, Lines]:
    here: list[str] = []
    inner = 1
    for extent in reversed(op.x.extents):
        here.insert(0, f"(i / {inner} % {extent})")
        inner *= extent
    return {"y": [f"result = {at['x'].value(here, moved_type(op))};"]}


def _concat(op: Concat, at: Operands) -> dict[str, Lines]:
    lines, start, axis = [], 0, op.axis % len(op.y.extents)
    for port, spec in op.inputs().items():
        extent = spec.extents[axis]
        here = [f"(i{a} - {start})" if a == axis else f"i{a}" for a in range(len(spec.extents))]
        condition = f"if (i{axis} >= {start} && i{axis} < {start + extent}) "
        lines.append(condition + f"result = {at[port].value(here, moved_type(op))};")
        start += extent
    return {"y": lines}


def moved_type(op: Any) -> str:
    """A type that holds every element that an operation moves."""
    kind = ELEMENTS[op.y.data_type].kind
    return "double" if kind == "float" else "bool" if kind == "bool" else "long long"


# Normalization.


def _norm(op: NormForward, at: Operands) -> dict[str, Lines]:
    """Over all elements that share the coordinates of an element of ``mean``."""
    rank, axes = len(op.x.extents), op.axes
    count = 1
    for axis in axes:
        count *= op.x.extents[axis]
    here = [f"i{axis}" for axis in range(rank)]
    inside = [f"j{axis}" if axis in axes else f"i{axis}" for axis in range(rank)]
    loops = [(f"j{axis}", op.x.extents[axis]) for axis in axes]
    is_centered = op.mode is not NormMode.RMS_NORM
    value = at["x"].value(inside, "double")
    lines = ["double mean = 0, variance = 0;"]
    if op.phase is NormPhase.TRAINING or op.inv_variance is None or "inv_variance" not in at:
        if is_centered:
            lines += [*nested(loops, [f"mean += {value} / {count};"])]
        lines += [*nested(loops, [f"const double d = {value} - mean;", f"variance += d * d / {count};"])]
        lines.append(f"const double inv_variance = 1 / sqrt(variance + {at['epsilon'].broadcast(here, 'double')});")
    else:
        if is_centered:
            lines.append(f"mean = {at['mean'].broadcast(here, 'double')};")
        lines.append(f"const double inv_variance = {at['inv_variance'].broadcast(here, 'double')};")
    y = f"(({at['x'].value(here, 'double')}) - mean) * inv_variance * {at['scale'].broadcast(here, 'double')}"
    if "bias" in at:
        y += f" + {at['bias'].broadcast(here, 'double')}"
    results = {
        "y": [*lines, f"result = {y};"],
        "mean": [*lines, "result = mean;"],
        "inv_variance": [*lines, "result = inv_variance;"],
    }
    return {port: results[port] for port in op.outputs()}


def _missing_norm(op: NormForward) -> str:
    return "running statistics" if set(op.outputs()) - {"y", "mean", "inv_variance"} else ""


LOOPS: dict[type[Operation], Loops] = {
    ConvForward: Loops(_fprop, _blends),
    ConvBackwardData: Loops(_dgrad, _blends),
    ConvBackwardFilter: Loops(_wgrad, _blends),
    Matmul: Loops(_matmul),
    PointwiseOperation: Loops(_pointwise),
    Reduction: Loops(_reduction, _missing_reduction),
    Transpose: Loops(_transpose),
    Slice: Loops(_slice),
    Reshape: Loops(_reshape, lambda op: "" if op.mode is ReshapeMode.LOGICAL else "a reshape in the order of memory"),
    Concat: Loops(_concat),
    NormForward: Loops(_norm, _missing_norm),
}

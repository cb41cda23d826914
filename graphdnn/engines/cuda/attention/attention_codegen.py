"""What kernels of attention are told, whichever tensor cores they use: fields, and what is generated for a graph.

`score` takes sums of the first product to what the softmax is of, `conclude` a row's maximum and sum to results,
`epilogue` the results of the second product to memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from graphdnn.engines.cuda.attention.mask_bounds import Band, band_of, hides
from graphdnn.engines.cuda.codegen.index_space import whole
from graphdnn.engines.cuda.codegen.parameters import Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program
from graphdnn.engines.cuda.codegen.vectors import width_for
from graphdnn.engines.memoization import memoize
from graphdnn.enums import DataType, PointwiseMode
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.fusion.patterns.attention import Attention, attention_of
from graphdnn.operations import PointwiseOperation
from graphdnn.tensors import TensorSpec

_PAIR = 2  # neighbours that a thread of a tensor core has
_IN_FLOAT = "float"
_LARGEST_FACTOR = 2.0**60  # products with log2 e, and with scores that count, are normal numbers


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of one of the products that are stacked."""

    stack: int
    rows: int
    keys: int
    depth: int
    columns: int


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """A fused operation as attention."""

    op: FusedOp
    attention: Attention
    band: Band
    epilogue: tuple[PointwiseOperation, ...]

    @property
    def sizes(self) -> Sizes:
        *batch, rows, keys = self.attention.first.c.extents
        return Sizes(prod(batch), rows, keys, self.attention.first.a.extents[-1], self.attention.last.c.extents[-1])

    @property
    def row_results(self) -> list[TensorSpec]:
        """Of maxima, sums and what is computed of them alone, those that leave."""
        leaving = {t.uid for t in self.op.outputs}
        a = self.attention
        found = [a.maximum.y, a.total.y, *(t for step in a.of_rows for t in step.outputs().values())]
        return [t for t in found if t.uid in leaving]

    @property
    def work(self) -> float:
        """Arithmetic operations of both products, of scores that are not left out."""
        s = self.sizes
        return 2.0 * s.stack * self.band.visible(s.rows, s.keys) * (s.depth + s.columns)


@memoize
def parts_of(op: FusedOp) -> Parts:
    attention = attention_of(op.operations)
    assert attention is not None
    first = {id(step) for step in (*attention.steps, *attention.of_rows)}
    inner = {id(step) for step in (attention.difference, attention.power, attention.quotient)} | first
    steps = [step for step in op.operations if isinstance(step, PointwiseOperation)]
    return Parts(op, attention, band_of(attention), tuple(step for step in steps if id(step) not in inner))


@dataclass(frozen=True, slots=True)
class Functions:
    """``score<whole>(p, at, acc, value)``, of a pair or one by one: whole where the band hides nothing;
    ``conclude(p, at, most, total)``, and ``epilogue(p, at, acc, most, total)``.
    """

    text: tuple[str, ...]
    width: int  # of score
    width_out: int  # of epilogue
    has_rows: bool


def functions_of(
    parts: Parts, parameters: Parameters, without: PointwiseOperation | None = None, neighbours: int = _PAIR
) -> Functions:
    """``parameters`` get what the functions read. ``without``: a step that ``score`` leaves to the kernel;
    ``neighbours``: results that ``epilogue`` is given at a time, where they can be written together.
    """
    op, attention = parts.op, parts.attention
    space = whole(attention.first.c.extents)
    steps = (attention.first, *attention.steps)
    made = {t.uid for step in steps for t in step.outputs().values()}
    read = [t for step in attention.steps for t in step.inputs().values() if t.uid not in made]
    width = _width(space.sizes[-1], width_for(space, read) if _in_memory(read) else _PAIR)
    text = []
    for is_whole, prefix in ((False, "s"), (True, "w")):
        program = Program(op, parameters, space, prefix, width=width)
        program.anchor(attention.first, attention.first.c, "acc", _IN_FLOAT)
        for step in attention.steps:
            if step is without or (is_whole and id(step) in parts.band.masks):
                (result,) = step.outputs().values()
                program.note(step)
                kept = program.value(step.inputs()["x"])
                program.set(result, f"widen<float>({kept}[e])")
            elif not is_whole or id(step) not in _only_of_masks(parts):
                program.apply([step])
        program.result("value", attention.scores, _IN_FLOAT)
        arguments = f"const float (&acc)[{width}], float (&value)[{width}]"
        text.append(program.function("score_whole" if is_whole else "score_masked", arguments))
    text.append(
        "template <bool IS_WHOLE> __device__ __forceinline__ void score(\n"
        f"    const Params& p, const int (&at)[{space.rank}], {arguments}) {{\n"
        "    if constexpr (IS_WHOLE) score_whole(p, at, acc, value);\n    else score_masked(p, at, acc, value);\n}\n"
    )

    rows = whole(attention.maximum.y.extents)
    row = Program(op, parameters, rows, "r")
    if parts.row_results:
        _of_rows(row, attention)
    for spec in parts.row_results:
        row.store(spec)
    text.append(row.function("conclude", "float most, float total"))

    results = attention.last.c
    leaving = [t for t in op.outputs if t.extents == results.extents]
    behind = [t for step in parts.epilogue for t in step.inputs().values() if t.uid in {i.uid for i in op.inputs}]
    out = whole(results.extents)
    width_out = _width(results.extents[-1], width_for(out, [*leaving, *behind]), neighbours)
    body = Program(op, parameters, out, "t", width=width_out)
    if any(t.uid in _row_uids(attention) for step in parts.epilogue for t in step.inputs().values()):
        _of_rows(body, attention)
    body.anchor(attention.last, results, "acc", _IN_FLOAT)
    body.apply(parts.epilogue)
    body.store_outputs((attention.last, *parts.epilogue))
    text.append(body.function("epilogue", f"const float (&acc)[{width_out}], float most, float total"))
    return Functions(tuple(text), width, width_out, bool(parts.row_results))


def scaling_of(parts: Parts) -> tuple[PointwiseOperation, float] | None:
    """The last step but masks, where it multiplies by a positive number: larger scores stay larger, so a kernel may do
    so in the exponent. There the product is not rounded, which would be half a unit of the score.
    """
    made = {t.uid: step for step in parts.attention.steps for t in step.outputs().values()}
    step = made.get(parts.attention.scores.uid)
    while step is not None and hides(step):
        step = made.get(step.inputs()["x"].uid)
    if step is None or step.spec.mode is not PointwiseMode.MUL or (step.alpha1, step.alpha2) != (1.0, 1.0):
        return None
    (result,), factor = step.outputs().values(), step.inputs()["b"].constant_value
    others = [s for s in parts.attention.steps if s.spec.mode is not PointwiseMode.GEN_INDEX]
    readers = [s for s in others if any(t.uid == result.uid for t in s.inputs().values())]
    is_float = {result.data_type, parts.attention.scores.data_type, step.compute_type} == {DataType.FLOAT}
    if factor is None or not is_float or len(readers) > 1:
        return None
    return (step, float(factor)) if 1 / _LARGEST_FACTOR <= factor <= _LARGEST_FACTOR else None


def _only_of_masks(parts: Parts) -> set[int]:
    """Steps that nothing but the band's masks wait for."""
    needed, found = {parts.attention.scores.uid}, set[int]()
    for step in reversed(parts.attention.steps):
        (result,) = step.outputs().values()
        inputs = step.inputs()
        if result.uid not in needed:
            found.add(id(step))
        elif id(step) in parts.band.masks:
            needed.add(inputs["x"].uid)
        else:
            needed |= {t.uid for t in inputs.values()}
    return found


def _of_rows(program: Program, attention: Attention) -> None:
    """A row's maximum and sum, and what is computed of them."""
    for spec, name in ((attention.maximum.y, "most"), (attention.total.y, "total")):
        program.set(spec, name)
    program.apply(attention.of_rows)


def _row_uids(attention: Attention) -> set[int]:
    made = [t for step in attention.of_rows for t in step.outputs().values()]
    return {t.uid for t in (attention.maximum.y, attention.total.y, *made)}


def _in_memory(tensors: list[TensorSpec]) -> bool:
    return any(not (t.is_by_value or t.is_constant) for t in tensors)


def _width(extent: int, widest: int, most: int = _PAIR) -> int:
    """``most`` or a pair, where these begin at such a place and nothing lies otherwise."""
    return next((n for n in (most, _PAIR) if widest >= n and extent % n == 0), 1)


def describe(parts: Parts, parameters: Parameters) -> None:
    """Fields that every kernel of attention has."""
    sizes, band = parts.sizes, parts.band
    batch = parts.attention.first.c.extents[:-2]
    parameters.integers("batch", batch)
    for name, spec in parts.attention.operands.items():
        strides = whole(spec.extents).strides(spec)
        parameters.tensor(name, spec)
        parameters.integers(f"{name}_batch", strides[:-2])
        parameters.integers(f"{name}_shared", [n // own for n, own in zip(batch, spec.extents[:-2], strict=True)])
        parameters.integer(f"{name}_step", strides[-1 if name == "k" else -2])
    parameters.table({
        "rows": sizes.rows, "keys": sizes.keys, "first_key": band.first or 0, "last_key": band.last or 0,
    })  # fmt: skip

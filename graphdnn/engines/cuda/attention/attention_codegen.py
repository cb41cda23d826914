"""Parameters and generated functions of attention kernels, for mma.sync and wgmma alike.

The generated `score_mod` maps Q K^T to the scores that the softmax reads, `store_row_stats` stores results of a row's
maximum and sum, and `epilogue` stores results of P V.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from graphdnn.dtypes import FLOAT_COMPUTE
from graphdnn.engines.cuda.attention.mask_bounds import MaskBounds, hides, mask_bounds_of
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

_PAIR = 2  # vec_width that a thread of a tensor core has
_IN_FLOAT = "float"
_LARGEST_FACTOR = 2.0**60  # products with log2 e and with relevant scores are normal numbers


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Extents of a stack of heads: rows of q, keys, elements of a head of q and k (depth) and of v (columns)."""

    stack: int
    rows: int
    keys: int
    depth: int
    columns: int


@dataclass(frozen=True, slots=True, eq=False)
class FusedAttention:
    """A fused operation, its attention pattern, the bounds of its masks, and the operations of its epilogue."""

    op: FusedOp
    attention: Attention
    mask_bounds: MaskBounds
    epilogue: tuple[PointwiseOperation, ...]

    @property
    def sizes(self) -> AttentionShape:
        *batch, rows, keys = self.attention.first.c.extents
        return AttentionShape(
            prod(batch), rows, keys, self.attention.first.a.extents[-1], self.attention.last.c.extents[-1]
        )

    @property
    def row_results(self) -> list[TensorSpec]:
        """Outputs that depend on row maxima and row sums alone."""
        leaving = {t.uid for t in self.op.outputs}
        a = self.attention
        found = [a.maximum.y, a.total.y, *(t for step in a.of_rows for t in step.outputs().values())]
        return [t for t in found if t.uid in leaving]

    @property
    def work(self) -> float:
        """Arithmetic operations of Q K^T and P V, for visible scores."""
        s = self.sizes
        return 2.0 * s.stack * self.mask_bounds.visible(s.rows, s.keys) * (s.depth + s.columns)


@memoize
def fused_attention_of(op: FusedOp) -> FusedAttention:
    attention = attention_of(op.operations)
    assert attention is not None
    first = {id(step) for step in (*attention.steps, *attention.of_rows)}
    inner = {id(step) for step in (attention.difference, attention.power, attention.quotient)} | first
    steps = [step for step in op.operations if isinstance(step, PointwiseOperation)]
    return FusedAttention(
        op, attention, mask_bounds_of(attention), tuple(step for step in steps if id(step) not in inner)
    )


@dataclass(frozen=True, slots=True)
class GeneratedFunctions:
    """The text of ``score_mod<is_unmasked>(p, at, acc, value)``, whose unmasked form leaves out the masks of the
    bounds, of ``store_row_stats(p, at, row_max, row_sum)``, and of ``epilogue(p, at, acc, row_max, row_sum)``.
    """

    text: tuple[str, ...]
    score_vec_width: int
    out_vec_width: int
    stores_row_stats: bool


def generate_functions(
    fused: FusedAttention, parameters: Parameters, without: PointwiseOperation | None = None, vec_width: int = _PAIR
) -> GeneratedFunctions:
    """Generates the functions and adds their tensors to ``parameters``. ``without``: a step that the kernel computes
    instead of ``score_mod``; ``vec_width``: the widest vector of results that ``epilogue`` may store.
    """
    op, attention = fused.op, fused.attention
    space = whole(attention.first.c.extents)
    steps = (attention.first, *attention.steps)
    made = {t.uid for step in steps for t in step.outputs().values()}
    read = [t for step in attention.steps for t in step.inputs().values() if t.uid not in made]
    width = _width(space.sizes[-1], width_for(space, read) if _reads_memory(read) else _PAIR)
    text = []
    for is_unmasked, prefix in ((False, "s"), (True, "w")):
        program = Program(op, parameters, space, prefix, width=width)
        program.define_anchor(attention.first, attention.first.c, "acc", _IN_FLOAT)
        for step in attention.steps:
            if step is without or (is_unmasked and id(step) in fused.mask_bounds.masks):
                (result,) = step.outputs().values()
                program.comment(step)
                unscaled = program.value(step.inputs()["x"])
                program.define(result, f"widen<float>({unscaled}[e])")
            elif not is_unmasked or id(step) not in _mask_only_steps(fused):
                program.apply([step])
        program.copy_widened_to("value", attention.scores, _IN_FLOAT)
        arguments = f"const float (&acc)[{width}], float (&value)[{width}]"
        text.append(program.function("score_mod_unmasked" if is_unmasked else "score_mod_masked", arguments))
    text.append(
        "template <bool IS_UNMASKED> __device__ __forceinline__ void score_mod(\n"
        f"    const Params& p, const int (&at)[{space.rank}], {arguments}) {{\n"
        "    if constexpr (IS_UNMASKED) score_mod_unmasked(p, at, acc, value);\n"
        "    else score_mod_masked(p, at, acc, value);\n}\n"
    )

    rows = whole(attention.maximum.y.extents)
    row = Program(op, parameters, rows, "r")
    if fused.row_results:
        _add_row_stats(row, attention)
    for spec in fused.row_results:
        row.store(spec)
    text.append(row.function("store_row_stats", "float row_max, float row_sum"))

    results = attention.last.c
    leaving = [t for t in op.outputs if t.extents == results.extents]
    epilogue_operands = [
        t for step in fused.epilogue for t in step.inputs().values() if t.uid in {i.uid for i in op.inputs}
    ]
    out = whole(results.extents)
    out_vec_width = _width(results.extents[-1], width_for(out, [*leaving, *epilogue_operands]), vec_width)
    body = Program(op, parameters, out, "t", width=out_vec_width)
    if any(t.uid in _row_uids(attention) for step in fused.epilogue for t in step.inputs().values()):
        _add_row_stats(body, attention)
    body.define_anchor(attention.last, results, "acc", _IN_FLOAT)
    body.apply(fused.epilogue)
    body.store_outputs((attention.last, *fused.epilogue))
    text.append(body.function("epilogue", f"const float (&acc)[{out_vec_width}], float row_max, float row_sum"))
    return GeneratedFunctions(tuple(text), width, out_vec_width, bool(fused.row_results))


def scale_of_scores(fused: FusedAttention) -> tuple[PointwiseOperation, float] | None:
    """The last step before masks and its factor, where that step multiplies by a positive number.

    A positive factor keeps the order of scores, so a kernel may multiply in the exponent. That also avoids the rounding
    of the scaled score.
    """
    made = {t.uid: step for step in fused.attention.steps for t in step.outputs().values()}
    step = made.get(fused.attention.scores.uid)
    while step is not None and hides(step):
        step = made.get(step.inputs()["x"].uid)
    if step is None or step.spec.mode is not PointwiseMode.MUL or (step.alpha1, step.alpha2) != (1.0, 1.0):
        return None
    (result,), factor = step.outputs().values(), step.inputs()["b"].constant_value
    others = [s for s in fused.attention.steps if s.spec.mode is not PointwiseMode.GEN_INDEX]
    readers = [s for s in others if any(t.uid == result.uid for t in s.inputs().values())]
    types = result.data_type, fused.attention.scores.data_type
    is_float = set(types) == {DataType.FLOAT} and step.compute_type in FLOAT_COMPUTE
    if factor is None or not is_float or len(readers) > 1:
        return None
    return (step, float(factor)) if 1 / _LARGEST_FACTOR <= factor <= _LARGEST_FACTOR else None


def _mask_only_steps(fused: FusedAttention) -> set[int]:
    """Steps that only the masks of the bounds depend on."""
    needed, found = {fused.attention.scores.uid}, set[int]()
    for step in reversed(fused.attention.steps):
        (result,) = step.outputs().values()
        inputs = step.inputs()
        if result.uid not in needed:
            found.add(id(step))
        elif id(step) in fused.mask_bounds.masks:
            needed.add(inputs["x"].uid)
        else:
            needed |= {t.uid for t in inputs.values()}
    return found


def _add_row_stats(program: Program, attention: Attention) -> None:
    """Adds a row's maximum and sum, and the operations on them, to a program."""
    for spec, name in ((attention.maximum.y, "row_max"), (attention.total.y, "row_sum")):
        program.define(spec, name)
    program.apply(attention.of_rows)


def _row_uids(attention: Attention) -> set[int]:
    made = [t for step in attention.of_rows for t in step.outputs().values()]
    return {t.uid for t in (attention.maximum.y, attention.total.y, *made)}


def _reads_memory(tensors: list[TensorSpec]) -> bool:
    return any(not (t.is_by_value or t.is_constant) for t in tensors)


def _width(extent: int, widest: int, most: int = _PAIR) -> int:
    """The widest of ``most``, 2 and 1 that divides ``extent`` and is at most ``widest``."""
    return next((n for n in (most, _PAIR) if widest >= n and extent % n == 0), 1)


def describe(fused: FusedAttention, parameters: Parameters) -> None:
    """Adds the fields that every attention kernel has."""
    sizes, mask_bounds = fused.sizes, fused.mask_bounds
    batch = fused.attention.first.c.extents[:-2]
    parameters.integers("batch", batch)
    for name, spec in fused.attention.operands.items():
        strides = whole(spec.extents).strides(spec)
        parameters.tensor(name, spec)
        parameters.integers(f"{name}_batch", strides[:-2])
        parameters.integers(
            f"{name}_broadcast", [n // heads for n, heads in zip(batch, spec.extents[:-2], strict=True)]
        )
        parameters.integer(f"{name}_row_stride", strides[-1 if name == "k" else -2])
    parameters.table({
        "rows": sizes.rows, "keys": sizes.keys, "first_key": mask_bounds.first or 0, "last_key": mask_bounds.last or 0,
    })  # fmt: skip

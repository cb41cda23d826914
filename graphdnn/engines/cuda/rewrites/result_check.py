"""Check what a rewrite returns against the fused operation: tensors that are read, tensors that are written, steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from graphdnn.engines.cuda.rewrites.rewrite import Rewritten
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import Operation, PointwiseOperation
from graphdnn.tensors import TensorSpec


def faults(op: FusedOp, form: Rewritten) -> tuple[str, ...]:
    """Every difference that would change results or touch other memory; empty where there is none."""
    made = form.op
    filled = [one.scratch for one in form.before]
    emptied = [one.scratch for one in form.after]
    later = [one.result.uid for one in form.after if one.result is not None]
    now = [t for t in op.outputs if t.uid not in later] if later else op.outputs
    return (
        *_unlike("reads", made.inputs, (*op.inputs, *filled)),
        *_unlike("writes", made.outputs, (*op.outputs, *emptied)),
        *_unlike("keeps", made.internal, op.internal, in_memory=False),
        *_missing("reads", filled, made.inputs),
        *_missing("writes", (*now, *emptied), made.outputs),
        *_other_steps(op, made),
    )


def _unlike(
    verb: str, tensors: Iterable[TensorSpec], known: Iterable[TensorSpec], *, in_memory: bool = True
) -> list[str]:
    """Tensors that are unknown, or that are not as large as the known tensor with their uid."""
    likes = {t.uid: t for t in known}
    found = []
    for t in tensors:
        like = likes.get(t.uid)
        if like is t:
            continue
        if like is None:
            found.append(f"it {verb} uid {t.uid}, which is neither the operation's nor scratch memory of a pass")
        elif t.elements != like.elements or t.data_type is not like.data_type:
            has, wanted = (f"{one.elements} elements of {one.data_type.name}" for one in (t, like))
            found.append(f"it {verb} {has} of {like.label()}, which has {wanted}")
        elif in_memory and t.span > like.span:
            found.append(f"it {verb} {like.label()} up to element {t.span}, and the tensor ends at {like.span}")
    return found


def _missing(verb: str, wanted: Iterable[TensorSpec], tensors: Iterable[TensorSpec]) -> list[str]:
    there = {t.uid for t in tensors}
    return [f"it never {verb} {t.label()}" for t in wanted if t.uid not in there]


def _other_steps(op: FusedOp, made: FusedOp) -> Iterator[str]:
    """The anchor's kind, the epilogue and the exit stay; the prologue stays or is a pass."""
    if type(op.main) is not type(made.main):
        yield f"its anchor is {made.main.label()}, and the operation's anchor is {op.main.label()}"
    for place, before, after in (
        ("prologue", op.prologue, made.prologue or op.prologue),
        ("epilogue", op.epilogue, made.epilogue),
        ("exit", _listed(op.exit), _listed(made.exit)),
    ):
        if before is not after and [*map(_kind, before)] != [*map(_kind, after)]:
            has, wanted = ("+".join([step.label() for step in steps]) or "empty" for steps in (after, before))
            yield f"its {place} is {has}, and the operation's {place} is {wanted}"


def _listed(step: Operation | None) -> tuple[Operation, ...]:
    return () if step is None else (step,)


def _kind(step: Operation) -> object:
    """What a step computes, whatever its tensors; of a reduction the kind alone."""
    return step.spec if isinstance(step, PointwiseOperation) else step.tag

"""Check what a rewrite returns against the fused operation: tensors that are read, tensors that are written, steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from graphdnn.engines.cuda.rewrites.rewrite import Rewritten
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import Operation, PointwiseOperation
from graphdnn.tensors import TensorSpec

Tensors = Mapping[int, TensorSpec]  # by uid


def faults(op: FusedOp, form: Rewritten) -> tuple[str, ...]:
    """Every difference that would change results or touch other memory; empty where there is none."""
    filled, emptied = (_by_uid(one.scratch for one in passes) for passes in (form.before, form.after))
    read, written = _by_uid(form.op.inputs), _by_uid(form.op.outputs)
    return (
        *_unlike("reads", read, {**_by_uid(op.inputs), **filled}),
        *_unlike("writes", written, {**_by_uid(op.outputs), **emptied}),
        *_unlike("keeps", _by_uid(form.op.internal), _by_uid(op.internal), in_memory=False),
        *_missing("reads", filled, read),
        *_missing("writes", {**_written_directly(op, form), **emptied}, written),
        *_other_steps(op, form.op),
    )


def _by_uid(tensors: Iterable[TensorSpec]) -> dict[int, TensorSpec]:
    return {t.uid: t for t in tensors}


def _written_directly(op: FusedOp, form: Rewritten) -> dict[int, TensorSpec]:
    """Results that no pass writes."""
    later = {one.result.uid for one in form.after if one.result is not None}
    return {t.uid: t for t in op.outputs if t.uid not in later}


def _unlike(
    verb: str, tensors: Mapping[int, TensorSpec], known: Mapping[int, TensorSpec], *, in_memory: bool = True
) -> Iterator[str]:
    """Tensors that are unknown, or that are not as large as the known tensor with their uid."""
    for uid, t in tensors.items():
        like = known.get(uid)
        if like is t:
            continue
        if like is None:
            yield f"it {verb} uid {uid}, which is neither the operation's nor scratch memory of a pass"
        elif (t.elements, t.data_type) != (like.elements, like.data_type):
            have, wanted = (f"{one.elements} elements of {one.data_type.name}" for one in (t, like))
            yield f"it {verb} {have} of {like.label()}, which has {wanted}"
        elif in_memory and t.span > like.span:
            yield f"it {verb} {like.label()} up to element {t.span}, and the tensor ends at {like.span}"


def _missing(verb: str, wanted: Tensors, tensors: Tensors) -> Iterator[str]:
    yield from (f"it never {verb} {t.label()}" for uid, t in wanted.items() if uid not in tensors)


def _other_steps(op: FusedOp, rewritten: FusedOp) -> Iterator[str]:
    """The anchor's kind, the epilogue and the exit stay; the prologue stays or is a pass."""
    for place, before, after in (
        ("anchor", (op.main,), (rewritten.main,)),
        ("prologue", op.prologue, rewritten.prologue or op.prologue),
        ("epilogue", op.epilogue, rewritten.epilogue),
        ("exit", _listed(op.exit), _listed(rewritten.exit)),
    ):
        if before is not after and list(map(_kind, before)) != list(map(_kind, after)):
            has, wanted = ("+".join([step.label() for step in steps]) or "empty" for steps in (after, before))
            yield f"its {place} is {has}, and the operation's {place} is {wanted}"


def _listed(step: Operation | None) -> tuple[Operation, ...]:
    return () if step is None else (step,)


def _kind(step: Operation) -> object:
    """What a step computes, whatever its tensors; of a convolution and a product the kind alone."""
    return step.spec if isinstance(step, PointwiseOperation) else step.tag

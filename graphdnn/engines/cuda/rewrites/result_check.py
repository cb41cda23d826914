"""Checks a rewritten operation against the fused operation: tensors that are read or written, and operations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from graphdnn.engines.cuda.rewrites.rewrite import Rewritten
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import Operation, PointwiseOperation
from graphdnn.tensors import TensorSpec


def faults(op: FusedOp, form: Rewritten) -> tuple[str, ...]:
    """Every difference that would change results or access other memory; empty if there is none."""
    rewritten = form.op
    written_before = [one.scratch for one in form.before]
    read_after = [one.scratch for one in form.after]
    written_later = [one.result.uid for one in form.after if one.result is not None]
    written = [t for t in op.outputs if t.uid not in written_later] if written_later else op.outputs
    return (
        *_mismatched("reads", rewritten.inputs, (*op.inputs, *written_before)),
        *_mismatched("writes", rewritten.outputs, (*op.outputs, *read_after)),
        *_mismatched("keeps", rewritten.internal, op.internal, in_memory=False),
        *_missing("reads", written_before, rewritten.inputs),
        *_missing("writes", (*written, *read_after), rewritten.outputs),
        *_changed_operations(op, rewritten),
    )


def _mismatched(
    verb: str, tensors: Iterable[TensorSpec], known: Iterable[TensorSpec], *, in_memory: bool = True
) -> list[str]:
    """Tensors that are unknown, or that differ in size or type from the known tensor with the same uid."""
    by_uid = {t.uid: t for t in known}
    mismatches = []
    for t in tensors:
        original = by_uid.get(t.uid)
        if original is t:
            continue
        if original is None:
            mismatches.append(f"it {verb} uid {t.uid}, which is neither the operation's nor scratch memory of a pass")
        elif t.elements != original.elements or t.data_type is not original.data_type:
            has, wanted = (f"{one.elements} elements of {one.data_type.name}" for one in (t, original))
            mismatches.append(f"it {verb} {has} of {original.label()}, which has {wanted}")
        elif in_memory and t.span > original.span:
            end = f"up to element {t.span}, and the tensor ends at {original.span}"
            mismatches.append(f"it {verb} {original.label()} {end}")
    return mismatches


def _missing(verb: str, expected: Iterable[TensorSpec], tensors: Iterable[TensorSpec]) -> list[str]:
    """Expected tensors that the rewritten operation does not access."""
    present = {t.uid for t in tensors}
    return [f"it never {verb} {t.label()}" for t in expected if t.uid not in present]


def _changed_operations(op: FusedOp, rewritten: FusedOp) -> Iterator[str]:
    """Differences of the anchor's type, the epilogue and the exit. The prologue is unchanged, or a pass."""
    if type(op.main) is not type(rewritten.main):
        yield f"its anchor is {rewritten.main.label()}, and the operation's anchor is {op.main.label()}"
    for place, before, after in (
        ("prologue", op.prologue, rewritten.prologue or op.prologue),
        ("epilogue", op.epilogue, rewritten.epilogue),
        ("exit", _listed(op.exit), _listed(rewritten.exit)),
    ):
        if before is not after and [*map(_kind, before)] != [*map(_kind, after)]:
            has, wanted = ("+".join([step.label() for step in steps]) or "empty" for steps in (after, before))
            yield f"its {place} is {has}, and the operation's {place} is {wanted}"


def _listed(step: Operation | None) -> tuple[Operation, ...]:
    return () if step is None else (step,)


def _kind(step: Operation) -> object:
    """The identity of an operation without its tensors: the spec of a pointwise operation, the tag of any other one."""
    return step.spec if isinstance(step, PointwiseOperation) else step.tag

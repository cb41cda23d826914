"""Attention as graphs write it: a softmax between two matrix products is one kernel, which never writes the scores.

    q, k -> MATMUL -> [pointwise DAG] -> MAX -> SUB -> EXP -> ADD -> DIV -> MATMUL with v -> [pointwise DAG] -> o, ...

What stands between the first product and the softmax is whatever the graph says: a scale, a bias, masks made of
indices. What is computed of the rows' maxima and sums alone may be a result too. The kernel goes through the keys once
and divides by the sum at the end, so the powers are rounded to the 16 bits of ``p`` before they are divided and not
after: both are off by one unit of that type, and what vanishes below its smallest number is less, as no sum is below 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from graphdnn.checks import AtMost, Empty, Equals
from graphdnn.dtypes import ELEMENTS, FLOAT_COMPUTE
from graphdnn.enums import DataType, PointwiseMode
from graphdnn.fusion.limits import LIMIT_GUARDS, UNLIMITED, Resolved
from graphdnn.fusion.patterns.pattern import Chain
from graphdnn.fusion.patterns.softmax import softmax_chains
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.operations import Matmul, Operation, PointwiseOperation, Reduction
from graphdnn.rules import Constraint
from graphdnn.tensors import TensorSpec

_LARGEST = 256  # elements of a head: sums of that many columns fit into the registers of a warp's rows
_PACK = 8  # elements of 16 bytes
_MOST = 32  # operations that are looked at, so that long graphs take time in proportion
_NARROW = (DataType.HALF, DataType.BFLOAT16)


@dataclass(frozen=True, slots=True)
class Attention:
    """The operations by what they do. ``steps``: between the first product and the softmax."""

    first: Matmul
    steps: tuple[PointwiseOperation, ...]
    maximum: Reduction
    difference: PointwiseOperation
    power: PointwiseOperation
    total: Reduction
    quotient: PointwiseOperation
    of_rows: tuple[PointwiseOperation, ...]
    last: Matmul

    @property
    def scores(self) -> TensorSpec:
        """What the softmax is of."""
        return self.maximum.x

    @property
    def operands(self) -> dict[str, TensorSpec]:
        """q ``[batch..., rows, depth]``, k ``[batch..., depth, keys]`` and v ``[batch..., keys, columns]``."""
        return {"q": self.first.a, "k": self.first.b, "v": self.last.b}

    @property
    def elements(self) -> list[TensorSpec]:
        """Everything that has an element for each row and key."""
        steps = (self.first, *self.steps, self.difference, self.power, self.quotient)
        return [t for step in steps for t in step.outputs().values()]


@dataclass(frozen=True, slots=True)
class Inside:
    """A tensor that would stay inside, and the attention that it is a part of."""

    graph: OperationGraph
    members: frozenset[int]
    attention: Attention
    tensor: TensorSpec
    consumer: int
    limits: Resolved = UNLIMITED

    @property
    def joined(self) -> frozenset[int]:
        return self.members

    @property
    def readers_outside(self) -> int:
        return len(set(self.graph.consumers.get(self.tensor.uid, ())) - self.members)

    @property
    def is_first(self) -> bool:
        """Of the edges, the one at which what concerns all of them is looked at."""
        return self.tensor.uid == self.attention.first.c.uid

    @property
    def is_late(self) -> bool:
        """Whether something that is read is computed after a reader of a result: it could wait for that one."""
        made, read = self.graph.producer, self.graph.consumers
        operations = [self.graph.operations[i] for i in self.members]
        before = {made[t.uid] for op in operations for t in op.inputs().values() if t.uid in made} - self.members
        after = {i for op in operations for t in op.outputs().values() for i in read.get(t.uid, ())} - self.members
        return bool(before) and bool(after) and max(before) > min(after)


def _types(inside: Inside) -> str:
    """What is not as the products of 16 bits and the softmax in fp32 have it."""
    a = inside.attention
    found = []
    for name, x, y in (("q, k", a.first.a, a.first.b), ("p, v", a.last.a, a.last.b)):
        if x.data_type is not y.data_type or x.data_type not in _NARROW:
            found.append(f"{name} {x.data_type.name}, {y.data_type.name}")
    in_float = {"difference": _result(a.difference), "powers": _result(a.power), "sum": a.total.y}
    found += [f"{name} {t.data_type.name}" for name, t in in_float.items() if t.data_type is not DataType.FLOAT]
    if a.maximum.y.data_type not in (a.scores.data_type, DataType.FLOAT) or a.scores.data_type not in FLOAT_COMPUTE:
        found.append(f"maximum {a.maximum.y.data_type.name} of {a.scores.data_type.name}")
    arithmetic = (a.first, a.last, a.maximum, a.difference, a.power, a.total, a.quotient)
    found += [f"{op.label()} in {op.compute_type.name}" for op in arithmetic if op.compute_type not in FLOAT_COMPUTE]
    scaled = [op for op in (a.difference, a.power, a.quotient) if (op.alpha1, op.alpha2) != (1.0, 1.0)]
    found += [f"factors of {op.label()}" for op in scaled]
    return "; ".join(found)


def _layout(inside: Inside) -> str:
    """Operands whose heads cannot be read 16 bytes at a time."""
    found = []
    for name, t in inside.attention.operands.items():
        axis = t.rank - (2 if name == "k" else 1)
        along = t.strides[axis] == 1 or t.extents[axis] == 1
        others = [s for j, (s, n) in enumerate(zip(t.strides, t.extents, strict=True)) if j != axis and n > 1]
        is_packed = along and t.extents[axis] % _PACK == 0 and not any(s % _PACK for s in others)
        is_aligned = t.byte_alignment % (_PACK * ELEMENTS[DataType.HALF].bytes) == 0
        if not (is_packed and is_aligned and t.vector_count == 1 and not t.is_by_value and not t.is_constant):
            found.append(f"{name} {t.extents} by {t.strides}")
    return "; ".join(found)


def _heads(inside: Inside) -> int:
    a = inside.attention
    return max(a.first.a.extents[-1], a.last.c.extents[-1])


def _extents(inside: Inside) -> str:
    a = inside.attention
    wanted = a.first.c.extents
    found = [str(t.extents) for t in a.elements if t.extents != wanted]
    if a.maximum.y.extents != (*wanted[:-1], 1):
        found.append(f"maxima {a.maximum.y.extents}")
    if a.last.c.extents[:-1] != wanted[:-1]:
        found.append(f"results {a.last.c.extents}")
    return "; ".join(found)


ATTENTION_GUARDS: tuple[Constraint, ...] = (
    Constraint(
        id="fuse.attention.virtual",
        attribute="tensor",
        look=lambda inside: "in memory",
        check=Equals("a virtual tensor"),
        when=lambda inside: not inside.tensor.is_virtual,
        reason="scores and probabilities pass from one product to the next in registers",
        fix="mark the tensor virtual, or keep it: the products and the softmax are then kernels of their own",
    ),
    Constraint(
        id="fuse.attention.readers",
        attribute="tensor",
        look=lambda inside: f"{inside.readers_outside} readers outside of the attention",
        check=Equals("no other reader"),
        when=lambda inside: inside.readers_outside > 0,
        reason="scores and probabilities pass from one product to the next in registers",
        fix="let the other operation compute its own copy",
    ),
    Constraint(
        id="fuse.attention.types",
        attribute="data_type",
        look=_types,
        check=Empty("q and k, p and v of one 16-bit type each, the softmax in FLOAT without factors"),
        when=lambda inside: inside.is_first and bool(_types(inside)),
        reason="tensor cores multiply 16-bit floats and add in fp32; with other types the kernel would round where the "
        "graph does not",
        fix="give the softmax's result the type of v, its other virtual tensors FLOAT, and compute in FLOAT",
    ),
    Constraint(
        id="fuse.attention.extents",
        attribute="dims",
        look=_extents,
        check=lambda inside: Empty(f"elements {inside.attention.first.c.extents}, and sums over the keys"),
        when=lambda inside: inside.is_first and bool(_extents(inside)),
        reason="a row's scores, its sum and its result are computed by the same threads",
        fix="let the scores have every batch axis that a bias, a mask or v has",
    ),
    Constraint(
        id="fuse.attention.head",
        attribute="dims",
        look=_heads,
        check=AtMost(_LARGEST),
        when=lambda inside: inside.is_first and _heads(inside) > _LARGEST,
        reason="the results of a warp's rows stay in registers while the kernel reads the keys",
        fix="divide a head's columns among several, or keep the kernels apart",
    ),
    Constraint(
        id="fuse.attention.layout",
        attribute="strides",
        look=_layout,
        check=Empty(f"{_PACK} neighbours along the head, a multiple of them, rows at multiples of 16 bytes"),
        when=lambda inside: inside.is_first and bool(_layout(inside)),
        reason="q, k and v are copied to shared memory 16 bytes at a time, without a change of their order",
        fix="lay the elements of a head next to each other, and pad heads to a multiple of 8",
    ),
    Constraint(
        id="fuse.attention.order",
        attribute="operations",
        look=lambda inside: "an operand that is computed after a reader of a result",
        check=Equals("operands that are computed first"),
        when=lambda inside: inside.is_first and inside.is_late,
        reason="the kernel could depend on its own result",
        fix="first add the operations that the kernel reads from, then the operations that read its results",
    ),
    *LIMIT_GUARDS,
)


def attention_chains(graph: OperationGraph) -> Iterator[tuple[Chain, tuple[Inside, ...]]]:
    """Every chain with the edges that the guards are to be asked about."""
    for softmax, _ in softmax_chains(graph):
        found = _chain(graph, softmax)
        if found is not None:
            yield found


def _chain(graph: OperationGraph, softmax: Chain) -> tuple[Chain, tuple[Inside, ...]] | None:
    around = _products(graph, softmax)
    if around is None:
        return None
    first, steps, last = around
    members = frozenset((*softmax.members, first, *steps, last))
    attention = attention_of([graph.operations[i] for i in sorted(members)])
    if attention is None:
        return None
    readers = graph.consumers
    inside = tuple(
        Inside(graph, members, attention, t, next(i for i in readers[t.uid] if i in members))
        for t in attention.elements
    )
    return Chain(first, tuple(sorted(members)), attention.last.c, rule="attention"), inside


def _products(graph: OperationGraph, softmax: Chain) -> tuple[int, list[int], int] | None:
    """The products before and behind, and the pointwise operations that lead from the first one to the softmax."""
    results = [t for i in softmax.members for t in graph.operations[i].outputs().values()]
    lasts = {i for t in results for i in graph.consumers.get(t.uid, ()) if _multiplies(graph.operations[i], t)}
    firsts, steps, waiting = set[int](), set[int](), [softmax.x]
    while waiting and len(steps) <= _MOST:
        made = graph.producer.get(waiting.pop().uid)
        if made is None or made in steps:
            continue
        operation = graph.operations[made]
        if isinstance(operation, Matmul):
            firsts.add(made)
        elif isinstance(operation, PointwiseOperation) and _result(operation).extents == softmax.x.extents:
            steps.add(made)
            waiting += operation.inputs().values()
    if len(firsts) != 1 or len(lasts) != 1 or len(steps) > _MOST:
        return None
    (first,), (last,) = firsts, lasts
    inside = {first, *steps, *softmax.members}
    # Masks that others read too are computed once, elsewhere; what waits for the product belongs to it.
    waits = {first}
    for step in sorted(steps):
        if any(graph.producer.get(t.uid) in waits for t in graph.operations[step].inputs().values()):
            waits.add(step)
    for step in sorted(steps - waits, reverse=True):
        result = _result(graph.operations[step])
        if not result.is_virtual or not inside.issuperset(graph.consumers.get(result.uid, ())):
            inside.discard(step)
            steps.discard(step)
    return first, sorted(steps), last


def _multiplies(operation: Operation, probabilities: TensorSpec) -> bool:
    return (
        isinstance(operation, Matmul)
        and operation.a.uid == probabilities.uid
        and operation.b.uid != probabilities.uid
        and probabilities.extents[-1] > 1
    )


def attention_of(operations: Sequence[Operation]) -> Attention | None:
    """The parts of attention among operations in execution order; None where they are something else."""
    made = {t.uid: op for op in operations for t in op.outputs().values()}
    products = [op for op in operations if isinstance(op, Matmul)]
    if len(products) != 2:
        return None
    first, last = products
    quotient = made.get(last.a.uid)
    if not _is(quotient, PointwiseMode.DIV):
        return None
    power, total = (made.get(t.uid) for t in _pair(quotient))
    if not _is(power, PointwiseMode.EXP) or not isinstance(total, Reduction) or power.x is None:
        return None
    difference = made.get(power.x.uid)
    if total.x.uid != _result(power).uid or not _is(difference, PointwiseMode.SUB):
        return None
    scores, most = _pair(difference)
    maximum = made.get(most.uid)
    if not isinstance(maximum, Reduction) or maximum.x.uid != scores.uid:
        return None
    known = {id(op) for op in (maximum, difference, power, total, quotient)}
    pointwise = [op for op in operations if isinstance(op, PointwiseOperation) and id(op) not in known]
    behind = _following(last.c, pointwise)
    others = [op for op in pointwise if id(op) not in {id(step) for step in behind}]
    of_rows = _following(maximum.y, others, total.y)
    if any(_result(op).extents != maximum.y.extents for op in of_rows):
        return None  # a logarithm of the softmax, or another quotient
    steps = [op for op in others if id(op) not in {id(step) for step in of_rows}]
    return Attention(first, tuple(steps), maximum, difference, power, total, quotient, tuple(of_rows), last)


def _following(
    result: TensorSpec, operations: Iterable[PointwiseOperation], *others: TensorSpec
) -> list[PointwiseOperation]:
    """Operations that wait for a result."""
    reached, found = {result.uid, *(t.uid for t in others)}, []
    for op in operations:
        if any(t.uid in reached for t in op.inputs().values()):
            reached.add(_result(op).uid)
            found.append(op)
    return found


def _is(operation: Operation | None, mode: PointwiseMode) -> TypeGuard[PointwiseOperation]:
    return isinstance(operation, PointwiseOperation) and operation.spec.mode is mode


def _pair(operation: Operation) -> tuple[TensorSpec, TensorSpec]:
    inputs = operation.inputs()
    return inputs["x"], inputs["b"]


def _result(operation: Operation) -> TensorSpec:
    (result,) = operation.outputs().values()
    return result

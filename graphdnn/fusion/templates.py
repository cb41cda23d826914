"""FUSION_RULES and guards: which operations become one kernel, and every reason why not.

A rule names its anchors, the ports that accept a pointwise prologue, the port
whose value runs through the epilogue, and what may stand at the exit. The guards
are common to all rules: constraints over one edge of the graph, evaluated in
order. Fusing never changes what is computed, because a value that passes through
a virtual tensor is rounded to its type in registers too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from graphdnn.checks import Equals, OneOf
from graphdnn.fusion.limits import LIMIT_GUARDS, UNLIMITED, Resolved
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.operations import (
    EXTENSIONS,
    BnBackwardWeights,
    BnFinalize,
    Concat,
    ConvBackwardData,
    ConvBackwardFilter,
    ConvForward,
    Extension,
    GenStats,
    Matmul,
    NormBackward,
    NormForward,
    Operation,
    PointwiseOperation,
    Reduction,
    ResampleBackward,
    ResampleForward,
    Reshape,
    Rng,
    Slice,
    Transpose,
)
from graphdnn.rules import Constraint
from graphdnn.tensors import TensorSpec


@dataclass(frozen=True, slots=True)
class FusionTemplate:
    """One family of fused operations."""

    id: str
    anchors: tuple[type[Operation], ...]
    drawing: str
    prologue: Mapping[type[Operation], tuple[str, ...]] = field(default_factory=dict)  # ports a prologue may feed
    through: Mapping[type[Operation], str] = field(default_factory=dict)  # the port that enters the epilogue
    exits: tuple[type[Operation], ...] = ()


_STATISTICS = (Reduction, GenStats)

FUSION_RULES: tuple[FusionTemplate, ...] = (
    FusionTemplate(
        id="conv",
        anchors=(ConvForward, ConvBackwardData, ConvBackwardFilter),
        drawing="""
            x -> [pointwise ...] -> CONV <- w
                                     |
                 bias, residual, ... -> [pointwise DAG] -> y, y2, ...
                                                 |
                                                 +-> [reduction | genstats | bn weight gradients]
        """,
        prologue={ConvForward: ("x",), ConvBackwardData: ("dy",), ConvBackwardFilter: ("x",)},
        through={ConvForward: "y", ConvBackwardData: "dx", ConvBackwardFilter: "dw"},
        exits=(*_STATISTICS, BnBackwardWeights),
    ),
    FusionTemplate(
        id="matmul",
        anchors=(Matmul,),
        drawing="a -> [pointwise ...] -> MATMUL <- [... pointwise] <- b; c -> [pointwise DAG] -> [reduction]",
        prologue={Matmul: ("a", "b")},
        through={Matmul: "c"},
        exits=_STATISTICS,
    ),
    FusionTemplate(
        id="reduction",
        anchors=(Reduction,),
        drawing="x -> [pointwise DAG] -> REDUCTION -> [pointwise DAG on the reduced extents]",
        prologue={Reduction: ("x",)},
        through={Reduction: "y"},
    ),
    FusionTemplate(
        id="genstats",
        anchors=(GenStats,),
        drawing="x -> [pointwise DAG] -> GENSTATS -> sum, sqsum",
        prologue={GenStats: ("x",)},
    ),
    FusionTemplate(
        id="resample",
        anchors=(ResampleForward, ResampleBackward),
        drawing="x -> [pointwise ...] -> RESAMPLE -> [pointwise DAG] -> [reduction]",
        prologue={ResampleForward: ("x",), ResampleBackward: ("dy",)},
        through={ResampleForward: "y", ResampleBackward: "dx"},
        exits=_STATISTICS,
    ),
    FusionTemplate(
        id="norm",
        anchors=(NormForward, NormBackward),
        drawing="x -> [pointwise ...] -> NORM -> [add residual, activation, mask ...]",
        prologue={NormForward: ("x",), NormBackward: ("dy",)},
        through={NormForward: "y", NormBackward: "dx"},
    ),
    FusionTemplate(
        id="bn_weights",
        anchors=(BnBackwardWeights,),
        drawing="dy -> [pointwise ...] -> BN_BWD_WEIGHTS -> dscale, dbias, A, B, C",
        prologue={BnBackwardWeights: ("dy",)},
    ),
    FusionTemplate(
        id="softmax",
        anchors=(),
        drawing="""
            x -> [pointwise ...] -> MAX -> SUB -> EXP -> ADD -> DIV        -> [pointwise DAG] -> y, y2, ...
                                                            +-> LOG -> SUB
            MAX and SUB may be absent; maxima, sums and what is computed of them alone may be results too
        """,
    ),
    FusionTemplate(
        id="softmax_backward",
        anchors=(),
        drawing="""
            dy, y -> [pointwise ...] -> MUL -> ADD -> SUB from dy -> MUL with y         -> [pointwise DAG] -> dx, ...
            dy -> [pointwise ...] -> ADD -> MUL with EXP of y -> SUB from dy            (of a log-softmax)
        """,
    ),
    FusionTemplate(
        id="attention",
        anchors=(),
        drawing="""
            q, k -> MATMUL -> [pointwise DAG] -> MAX -> SUB -> EXP -> ADD -> DIV -> MATMUL <- v
                                                                                      |
                                                               o, o2, ... <- [pointwise DAG]
            maxima, sums and what is computed of them alone may be results too
        """,
        through={Matmul: "c"},
    ),
    FusionTemplate(
        id="windows",
        anchors=(),
        drawing="""
            x -> [pointwise ...] -> MEAN -> [pointwise ...] -> MEAN -> [pointwise DAG] -> dx, ...
            both over the same windows along one axis; values in between may be read behind the second mean too
        """,
        through={ResampleForward: "y"},
    ),
    FusionTemplate(id="bn_finalize", anchors=(BnFinalize,), drawing="sums -> BN_FINALIZE -> statistics"),
    FusionTemplate(id="movement", anchors=(Concat, Reshape, Transpose, Slice), drawing="x -> MOVE -> y"),
    FusionTemplate(
        id="rng",
        anchors=(Rng,),
        drawing="seed, offset -> RNG -> [pointwise DAG] -> y, mask, ...; where no other kernel takes the operation",
        through={Rng: "y"},
    ),
    FusionTemplate(
        id="extension",
        anchors=tuple(EXTENSIONS.values()),
        drawing="x, ... -> EXTENSION OPERATION -> y, ...; each is a kernel, or a few launches, of its own",
    ),
    FusionTemplate(
        id="pointwise",
        anchors=(),
        drawing="x, b, ... -> [pointwise DAG over one set of extents] -> y, y2, ...",
    ),
)

POINTWISE_RULE = FUSION_RULES[-1]
_CHAINS = ("softmax", "softmax_backward", "attention", "windows")
CHAIN_RULES = {rule.id: rule for rule in FUSION_RULES if rule.id in _CHAINS}
RULE_OF: dict[type[Operation], FusionTemplate] = {anchor: rule for rule in FUSION_RULES for anchor in rule.anchors}


@dataclass(slots=True, eq=False)
class GrowingKernel:
    """A fused operation while it grows."""

    rule: FusionTemplate
    extents: tuple[int, ...]  # of the values in the epilogue (or of the pointwise graph)
    anchor: int | None = None
    prologue: list[int] = field(default_factory=list)
    epilogue: list[int] = field(default_factory=list)
    exit: int | None = None
    number: int = -1  # in the order in which kernels are begun

    @property
    def members(self) -> list[int]:
        middle = [] if self.anchor is None else [self.anchor]
        end = [] if self.exit is None else [self.exit]
        return [*self.prologue, *middle, *self.epilogue, *end]


@dataclass(frozen=True, slots=True)
class Edge:
    """A candidate for fusing: ``tensor`` runs from ``producer``, a member of ``group``, to ``consumer``."""

    graph: OperationGraph
    group: GrowingKernel
    producer: Operation
    consumer: Operation
    consumer_index: int
    tensor: TensorSpec
    port: str  # of the consumer
    reenters: bool  # True when the consumer also waits for an operation outside that waits for the group
    chain: frozenset[int] = frozenset()  # operations that are placed together with the consumer
    limits: Resolved = UNLIMITED
    beside: tuple[int, ...] = ()  # what the consumer's kernel has already

    @property
    def joined(self) -> frozenset[int]:
        """Operations of the kernel that fusing would make."""
        return self.chain.union(self.group.members, (self.consumer_index,), self.beside)

    @property
    def readers(self) -> int:
        """Readers of the tensor; a chain is one."""
        found = set(self.graph.consumers[self.tensor.uid])
        return len(found - self.chain) + bool(found & self.chain)

    @property
    def producer_port(self) -> str:
        return next(p for p, t in self.producer.outputs().items() if t.uid == self.tensor.uid)

    @property
    def is_exit(self) -> bool:
        return isinstance(self.consumer, self.group.rule.exits)


def _kinds(edge: Edge) -> str:
    exits = ", ".join(cls.tag for cls in edge.group.rule.exits)
    return "a pointwise operation" + (f", or one of {exits} at the exit" if exits else "")


def _through(edge: Edge) -> str | None:
    """The anchor's port that may feed the epilogue; any port of a pointwise operation."""
    if isinstance(edge.producer, PointwiseOperation):
        return edge.producer_port
    return edge.group.rule.through.get(type(edge.producer))


def _anchor_elsewhere(edge: Edge) -> int | None:
    """The anchor that the consumer is forced to be with, where the group has another one."""
    group, forced = edge.group, edge.limits.forced.get(edge.consumer_index, frozenset())
    if group.anchor is None or forced.intersection(group.members):
        return None
    anchors = (i for i in sorted(forced) if type(edge.graph.operations[i]) in RULE_OF)
    return next((i for i in anchors if not isinstance(edge.graph.operations[i], group.rule.exits)), None)


def _main_extents(edge: Edge) -> tuple[int, ...]:
    """Extents the consumer works over: of its output, or of its input at an exit."""
    if edge.is_exit:
        return edge.tensor.extents
    return next(iter(edge.consumer.outputs().values())).extents


EPILOGUE_GUARDS: tuple[Constraint, ...] = (
    Constraint(
        id="fuse.consumer.kind",
        attribute="consumer",
        look=lambda e: e.consumer.tag,
        check=lambda e: Equals(_kinds(e)),
        when=lambda e: not isinstance(e.consumer, (PointwiseOperation, *e.group.rule.exits)),
        reason="a kernel has one anchor, and every later operation works element by element",
        fix="nothing to do: this operation starts its own kernel",
    ),
    Constraint(
        id="fuse.after_exit",
        attribute="producer",
        look=lambda e: f"after {e.producer.label()}",
        check=Equals("an operation before the exit"),
        when=lambda e: e.group.exit is not None,
        reason="the result of a reduction is complete only when every block has finished",
        fix="nothing to do: the operations behind a reduction are the next kernel",
    ),
    Constraint(
        id="fuse.output.port",
        attribute="producer",
        look=lambda e: f"output {e.producer_port}",
        check=lambda e: Equals(f"output {_through(e)}" if _through(e) else "a result made element by element"),
        when=lambda e: e.producer_port != _through(e),
        reason="the epilogue reads only the main output of the anchor",
        fix="nothing to do: the reader of this output is the next kernel",
    ),
    Constraint(
        id="fuse.epilogue.extents",
        attribute="consumer",
        look=lambda e: f"extents {_main_extents(e)}",
        check=lambda e: Equals(f"extents {e.group.extents}"),
        when=lambda e: _main_extents(e) != e.group.extents,
        reason="each thread holds some elements of the result; a result with other extents has to pass through memory",
        fix="reshape the operands so that the chain keeps the extents of the anchor's output",
    ),
    Constraint(
        id="fuse.exit.input",
        attribute="consumer",
        look=lambda e: f"port {e.port}",
        check=lambda e: OneOf(*(f"port {p}" for p in ("x", "dy"))),
        when=lambda e: e.is_exit,
        reason="the exit reduces the value that the epilogue ends with",
        fix="feed the chain into the reduced port",
    ),
    Constraint(
        id="fuse.cycle",
        attribute="consumer",
        look=lambda e: "another operand waits for this kernel",
        check=Equals("no path that leaves the kernel and comes back"),
        when=lambda e: e.reenters,
        reason="the kernel would depend on its own result",
        fix="nothing to do: the other branch has to finish first",
    ),
    Constraint(
        id="fuse.limits.force",
        attribute="consumer",
        look=lambda e: f"forced into the kernel of {e.graph.operations[_anchor_elsewhere(e) or 0].label()}",
        check=Equals("an operation that no limit asks for elsewhere"),
        when=lambda e: bool(e.limits.forced) and _anchor_elsewhere(e) is not None,
        reason="a kernel has one anchor, and the requested limits name another anchor for it",
        fix="drop the entry from force",
    ),
    *LIMIT_GUARDS,
)

PROLOGUE_GUARDS: tuple[Constraint, ...] = (
    Constraint(
        id="fuse.prologue.port",
        attribute="consumer",
        look=lambda e: f"port {e.port} of {e.consumer.tag}",
        check=lambda e: OneOf(
            *(f"port {p} of {e.consumer.tag}" for p in RULE_OF[type(e.consumer)].prologue.get(type(e.consumer), ()))
        ),
        when=lambda e: not e.chain,
        reason="only this operand of the anchor passes through registers before the anchor reads it",
        fix="apply the pointwise operations to the other operand, or once ahead of time (weights do not change)",
    ),
    Constraint(
        id="fuse.prologue.virtual",
        attribute="tensor",
        look=lambda e: "in memory",
        check=Equals("a virtual tensor"),
        when=lambda e: not e.tensor.is_virtual,
        reason="the anchor reads each element several times; the value would be written several times",
        fix="mark the tensor virtual, or keep it: it is then computed by a kernel of its own",
    ),
    Constraint(
        id="fuse.prologue.consumers",
        attribute="tensor",
        look=lambda e: f"{e.readers} readers",
        check=Equals("1 reader"),
        when=lambda e: e.readers > 1,
        reason="the value would be computed again for each reader",
        fix="let the other operation read its own copy of the chain, or accept the pass over memory",
    ),
    Constraint(
        id="fuse.prologue.outputs",
        attribute="producer",
        look=lambda e: "several results",
        check=Equals("one result"),
        when=lambda e: len(group_outputs(e.graph, e.group.members)) > 1,
        reason="a prologue computes one operand of the anchor and writes no tensor",
        fix="compute the other results in a graph of their own",
    ),
    *LIMIT_GUARDS,
)


def group_outputs(graph: OperationGraph, members: list[int]) -> list[int]:
    """Uids that leave the group: bound, or read by an operation outside; of extension operations, whose kernels write
    every result, also what nothing reads.
    """
    inside = set(members)
    leaving = []
    for i in members:
        operation = graph.operations[i]
        for tensor in operation.outputs().values():
            readers = graph.consumers.get(tensor.uid, ())
            is_lost = not readers and isinstance(operation, Extension)
            if not tensor.is_virtual or is_lost or any(r not in inside for r in readers):
                leaving.append(tensor.uid)
    return leaving

"""fuse: graph -> fused graph, by walking the operations once in execution order.

An operation joins the kernel of the operand that was computed last, if every guard
agrees, and with it come the pointwise kernels of its other operands; anchors swallow
the pointwise chains that feed them. What cannot join starts a new kernel, and each
edge between kernels keeps the rule that stopped it. The walk is greedy: a kernel is as
large as the rules allow, which is right for memory-bound epilogues; engines may still
decline, with reasons.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from graphdnn.enums import Status
from graphdnn.errors import Rejection, raise_if
from graphdnn.fusion.cycle_check import Loops
from graphdnn.fusion.fused_graph import FusedGraph, FusedOp, UnfusedEdge
from graphdnn.fusion.fusion_cache import keep, key_of, known
from graphdnn.fusion.limits import NO_LIMITS, FusionLimits, closed, named, resolved
from graphdnn.fusion.patterns.attention import ATTENTION_GUARDS, Inside, attention_chains
from graphdnn.fusion.patterns.lrn_gradient import window_chains
from graphdnn.fusion.patterns.pattern import CHAIN_GUARDS, Chain, Link
from graphdnn.fusion.patterns.softmax import softmax_chains
from graphdnn.fusion.patterns.softmax_gradient import softmax_gradients
from graphdnn.fusion.templates import (
    CHAIN_RULES,
    EPILOGUE_GUARDS,
    POINTWISE_RULE,
    PROLOGUE_GUARDS,
    RULE_OF,
    Edge,
    GrowingKernel,
    group_outputs,
)
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.graph.traversal import topological
from graphdnn.operations import Operation, PointwiseOperation
from graphdnn.rules import Constraint, Rule
from graphdnn.tensors import TensorSpec

_MOST_TOLD = 16  # entries, and edges of each: who wrote more will look at these first

FORCE = Rule(
    id="limits.force",
    expected="one kernel",
    reason="the limits force these operations into one kernel, and they are in {count}: {why}",
    fix="{fix}",
    status=Status.NOT_SUPPORTED_GRAPH_PATTERN,
)


def unforced(
    limits: FusionLimits, graph: OperationGraph, kernel_of: Mapping[int, int], stops: Sequence[UnfusedEdge]
) -> Iterator[Rejection]:
    """``kernel_of``: the kernel of each operation, by index."""
    told = 0
    for i, entry in enumerate(limits.force):
        wanted = frozenset(graph.producer[uid] for uid in entry)
        count = len({kernel_of[index] for index in wanted})
        if count == 1 or told == _MOST_TOLD:
            continue
        told += 1
        (inside,) = closed(graph, [wanted])
        between = [stop for stop in stops if inside.issuperset(stop.edge)]
        for stop in between[:_MOST_TOLD]:
            why = f"{stop.reason} (found {stop.actual}, required {stop.required}; {stop.rule})"
            yield FORCE.reject("LIMITS", f"force[{i}]", stop.subject, count=count, why=why, fix=stop.fix)
        if not between:
            why = "no value passes from one to the other, and kernels grow along values"
            fix = "drop the entry from force"
            yield FORCE.reject("LIMITS", f"force[{i}]", named(entry), count=count, why=why, fix=fix)


ELSEWHERE = Rule(
    id="fuse.operand.elsewhere",
    expected="an operand of the same kernel",
    reason="an operation belongs to one kernel, and this operand is computed by another",
    fix="nothing to do: the operand is read from memory, once",
)


def _preference(edge: Edge) -> tuple[bool, int]:
    """The latest kernel; one of random numbers takes what no other can: they are fewer bytes than most results."""
    return edge.group.rule.id != "rng", edge.group.number


class _Walk:
    """State of one pass over a graph."""

    def __init__(self, graph: OperationGraph, limits: FusionLimits) -> None:
        self.graph = graph
        self.limits, self.resolved = limits, resolved(limits, graph)
        self.groups: dict[int, GrowingKernel] = {}  # by number: some thousands of them come and go
        self.begun = 0
        self.group_of: dict[int, GrowingKernel] = {}
        self.loops = Loops(graph, self.group_of)
        self.stops: dict[tuple[int, int], UnfusedEdge] = {}  # (uid, consumer index)
        self.patterns: list[UnfusedEdge] = []

    def run(self) -> FusedGraph:
        starts = {chain.members[0]: chain for chain in self._chains()}
        self.patterns = list(self.stops.values())
        for index, op in enumerate(self.graph.operations):
            if index in starts:
                self._start_chain(starts[index])
            elif index not in self.group_of and not self._join_producer(index, op):
                self._start(index, op)
        ordered = self._ordered()
        fused = tuple(self._fused_op(i, group) for i, group in enumerate(ordered))
        stops = tuple(self._stop_of(uid, user) for user, uid in self._cut_edges())
        place = {member: i for i, group in enumerate(ordered) for member in group.members}
        raise_if(unforced(self.limits, self.graph, place, stops), self.graph)
        return FusedGraph(self.graph, fused, stops, tuple(self.patterns), self.limits)

    # Chains that are kernels before anything else.

    def _chains(self) -> list[Chain]:
        """The candidates that every guard accepts. No two of them share an operation."""
        found: list[Chain] = []
        taken: set[int] = set()
        chains: Iterable[tuple[Chain, Sequence[Link | Inside]]] = (
            *attention_chains(self.graph),
            *softmax_chains(self.graph),
            *softmax_gradients(self.graph),
            *window_chains(self.graph),
        )
        for chain, unlimited in chains:
            guards = ATTENTION_GUARDS if chain.rule == "attention" else CHAIN_GUARDS
            links = [replace(link, limits=self.resolved) for link in unlimited]
            refusals = [self._note(guard, link, link.tensor, link.consumer) for link in links for guard in guards]
            if not any(refusals) and taken.isdisjoint(chain.members):
                found.append(chain)
                taken.update(chain.members)
        return found

    def _start_chain(self, chain: Chain) -> None:
        group = GrowingKernel(CHAIN_RULES[chain.rule], chain.x.extents, anchor=chain.anchor)
        group.prologue = [i for i in chain.members if i < chain.anchor]
        group.epilogue = [i for i in chain.members if i > chain.anchor]
        self._begin(group)
        producer = self.graph.producer.get(chain.x.uid)
        feeder = None if producer is None else self.group_of.get(producer)
        for member in chain.members:
            self.group_of[member] = group
        if feeder is None or feeder.anchor is not None or producer is None:
            return
        source, together = self.graph.operations[producer], frozenset(chain.members)
        edges = [
            Edge(self.graph, feeder, source, self.graph.operations[i], i, tensor, port, False, together, self.resolved)
            for i in chain.members
            for port, tensor in self.graph.operations[i].inputs().items()
            if tensor.uid == chain.x.uid
        ]
        self._absorb(feeder, edges, group)

    # Growing kernels.

    def _join_producer(self, index: int, op: Operation) -> bool:
        """Append ``op`` to the latest kernel among its producers that takes it."""
        edges = self._incoming(index, op)
        forced = self.resolved.forced.get(index, frozenset())
        latest_first = sorted(edges, key=_preference, reverse=True)
        if forced:
            latest_first.sort(key=lambda e: forced.isdisjoint(e.group.members))
        for edge in latest_first:
            mine = [e for e in edges if e.group is edge.group]
            if edge.group.anchor is None and type(op) in RULE_OF:
                continue  # a pointwise chain becomes this anchor's prologue, not the other way round
            refusals = [self._refused(EPILOGUE_GUARDS, e) for e in mine]  # each edge its own
            if not any(refusals):
                if edge.is_exit and not isinstance(op, PointwiseOperation):
                    edge.group.exit = index
                else:
                    edge.group.epilogue.append(index)
                self.group_of[index] = edge.group
                self._join_branches(index, edge.group, edges)
                return True
        return False

    def _join_branches(self, index: int, group: GrowingKernel, edges: list[Edge]) -> None:
        """Pointwise kernels that meet ``index``, now in ``group``, become one with it, and with an anchor's."""
        for other in {id(e.group): e.group for e in edges if e.group is not group}.values():
            branch, kernel = (other, group) if other.rule is POINTWISE_RULE else (group, other)
            if branch.rule is not POINTWISE_RULE or kernel.rule.id in CHAIN_RULES:
                continue  # a chain would keep from its first stage on what only its end reads
            returns = self.loops.returns(group, other, index)
            mine = [replace(e, reenters=returns, beside=tuple(group.members)) for e in edges if e.group is other]
            refusals = [self._refused(EPILOGUE_GUARDS, e) for e in mine]  # each edge its own
            if not any(refusals):
                group = self._merged(branch, kernel)

    def _merged(self, branch: GrowingKernel, kernel: GrowingKernel) -> GrowingKernel:
        """A pointwise kernel and another one as one: where both are pointwise, what is in the smaller one moves."""
        if kernel.rule is POINTWISE_RULE and len(branch.epilogue) > len(kernel.epilogue):
            branch, kernel = kernel, branch
        kernel.epilogue += branch.epilogue
        for member in branch.epilogue:
            self.group_of[member] = kernel
        for group in (branch, kernel):
            del self.groups[group.number]
        kernel.number = max(branch.number, kernel.number)
        self.groups[kernel.number] = kernel
        return kernel

    def _start(self, index: int, op: Operation) -> None:
        rule = RULE_OF.get(type(op), POINTWISE_RULE)
        through = rule.through.get(type(op))
        outputs = op.outputs()
        extents = (outputs[through] if through else next(iter(outputs.values()))).extents
        group = GrowingKernel(rule, extents)
        if rule is POINTWISE_RULE:
            group.epilogue.append(index)
        else:
            group.anchor = index
        self._begin(group)
        self.group_of[index] = group
        if group.anchor is not None:
            edges = self._incoming(index, op)
            for feeder in {id(e.group): e.group for e in edges if e.group.anchor is None}.values():
                self._absorb(feeder, [e for e in edges if e.group is feeder], group)

    def _absorb(self, feeder: GrowingKernel, edges: list[Edge], group: GrowingKernel) -> None:
        """Make the pointwise kernel behind ``edges`` the prologue of ``group``, if the guards agree on each."""
        edges = [replace(edge, beside=tuple(group.members)) for edge in edges]
        refusals = [self._refused(PROLOGUE_GUARDS, edge) for edge in edges]  # each edge its own
        if any(refusals):
            return
        group.prologue = sorted([*group.prologue, *feeder.members])
        del self.groups[feeder.number]
        for member in feeder.members:
            self.group_of[member] = group

    def _refused(self, guards: Sequence[Constraint], edge: Edge) -> bool:
        """True when one of the guards refuses the edge, which keeps the reason."""
        for guard in guards:
            if not guard.holds(edge):  # as nearly all do
                return self._note(guard, edge, edge.tensor, edge.consumer_index)
        return False

    def _note(self, guard: Constraint, subject: Edge | Link | Inside, tensor: TensorSpec, consumer: int) -> bool:
        """True when the guard refuses the edge, which keeps the reason."""
        rejection = guard.why_not(subject, "fusion")
        if rejection is None:
            return False
        producer = self.graph.producer[tensor.uid]
        self.stops.setdefault(
            (tensor.uid, consumer),
            UnfusedEdge(
                rule=guard.id,
                edge=(producer, consumer),
                tensor=tensor,
                producer=self.graph.operations[producer].label(),
                consumer=self.graph.operations[consumer].label(),
                attribute=rejection.attribute,
                actual=rejection.shown_value,
                required=rejection.expected,
                reason=rejection.reason,
                fix=rejection.fix,
            ),
        )
        return True

    # Looking around.

    def _incoming(self, index: int, op: Operation) -> list[Edge]:
        """One edge for each operand that an operation of the graph computes."""
        edges = []
        for port, tensor in op.inputs().items():
            producer = self.graph.producer.get(tensor.uid)
            if producer is None:
                continue
            group = self.group_of[producer]
            source = self.graph.operations[producer]
            reenters = self.loops.reenters(group, index)
            edges.append(Edge(self.graph, group, source, op, index, tensor, port, reenters, limits=self.resolved))
        return edges

    def _begin(self, group: GrowingKernel) -> None:
        group.number, self.begun = self.begun, self.begun + 1
        self.groups[group.number] = group

    def _ordered(self) -> list[GrowingKernel]:
        """Kernels in execution order, earliest operation first."""
        groups = list(self.groups.values())
        if len(groups) == 1:
            return groups
        place = {id(group): i for i, group in enumerate(groups)}
        successors: list[set[int]] = [set() for _ in groups]
        for producer, consumer, _ in self.graph.edges():
            source, target = place[id(self.group_of[producer])], place[id(self.group_of[consumer])]
            if source != target:
                successors[source].add(target)
        return [groups[i] for i in topological(successors, [min(group.members) for group in groups])]

    def _cut_edges(self) -> Iterable[tuple[int, int]]:
        cut = {(c, t.uid) for p, c, t in self.graph.edges() if self.group_of[p] is not self.group_of[c]}
        return sorted(cut)

    def _stop_of(self, uid: int, consumer: int) -> UnfusedEdge:
        noted = self.stops.get((uid, consumer))
        if noted is not None:
            return noted
        producer = self.graph.producer[uid]
        return UnfusedEdge(
            rule=ELSEWHERE.id,
            edge=(producer, consumer),
            tensor=self.graph.tensors[uid],
            producer=self.graph.operations[producer].label(),
            consumer=self.graph.operations[consumer].label(),
            attribute="operand",
            actual="computed by another kernel",
            required=ELSEWHERE.expected,
            reason=ELSEWHERE.reason,
            fix=ELSEWHERE.fix,
        )

    # Results.

    def _fused_op(self, index: int, group: GrowingKernel) -> FusedOp:
        operations = self.graph.operations
        group.epilogue.sort()  # a chain is placed as a whole: what joined it may stand between its operations
        leaving = set(group_outputs(self.graph, group.members))
        written = [t for i in sorted(group.members) for t in operations[i].outputs().values()]
        made = {t.uid for t in written}
        read: dict[int, TensorSpec] = {}
        for i in group.members:
            read.update({t.uid: t for t in operations[i].inputs().values() if t.uid not in made})
        return FusedOp(
            index=index,
            rule=group.rule.id,
            anchor=None if group.anchor is None else operations[group.anchor],
            prologue=tuple(operations[i] for i in group.prologue),
            epilogue=tuple(operations[i] for i in group.epilogue),
            exit=None if group.exit is None else operations[group.exit],
            inputs=tuple(read.values()),
            outputs=tuple(t for t in written if t.uid in leaving),
            internal=tuple(t for t in written if t.uid not in leaving),
        )


def fuse(graph: OperationGraph, limits: FusionLimits = NO_LIMITS) -> FusedGraph:
    """Divide a graph into fused operations, each of them one kernel.

    Args:
        graph: The operation graph.
        limits: Kernels that the fusion is forced or forbidden to make.

    Returns:
        The fused operations in execution order, and the rule for every edge that was not fused.

    Raises:
        BadParam: The limits name no operation of the graph.
        NotSupported: No fusion satisfies the limits.
    """
    if limits:
        return _Walk(graph, limits).run()
    key = key_of(graph)
    found = known(key, graph)
    if found is None:
        found = _Walk(graph, limits).run()
        keep(key, found)
    return found

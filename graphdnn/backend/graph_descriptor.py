"""OPERATIONGRAPH: the graph, checked and fused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import InstanceOf

from graphdnn.attribute_names import AttributeName as A
from graphdnn.backend.descriptor_spec import MANY, DescriptorSpec, answer
from graphdnn.backend.handle import Handle
from graphdnn.checks import Equals
from graphdnn.enums import AttributeType as T
from graphdnn.enums import DescriptorType, NormPhase, OperationGraphMode, Status
from graphdnn.fusion import FusedGraph, fuse
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.heuristics.engine_index import engine_count
from graphdnn.operations import (
    ConvBackwardData,
    ConvBackwardFilter,
    ConvForward,
    ConvolutionOperation,
    Matmul,
    NormBackward,
    NormForward,
    Operation,
    PointwiseOperation,
    Reduction,
    ResampleBackward,
    ResampleForward,
)
from graphdnn.rules import Constraint
from graphdnn.spec import Refused, attr

Mode = OperationGraphMode
Ops = tuple[Operation, ...]


def _only(kind: type[Operation]) -> Callable[[Ops], bool]:
    return lambda ops: len(ops) == 1 and isinstance(ops[0], kind)


def _norm(phase: NormPhase) -> Callable[[Ops], bool]:
    return lambda ops: len(ops) == 1 and isinstance(ops[0], NormForward) and ops[0].phase is phase


def _around(kind: type[Operation]) -> Callable[[Ops], bool]:
    return lambda ops: len(ops) > 1 and any(isinstance(op, kind) for op in ops)


# What a pattern hint claims. The fusion pass finds the pattern itself, so a hint can only be right or wrong;
# the attention patterns have no row: no graph here is one.
MODES: dict[OperationGraphMode, tuple[str, Callable[[Ops], bool]]] = {
    Mode.AUTO: ("any graph", lambda ops: True),
    Mode.CONV_FORWARD: ("one forward convolution", _only(ConvForward)),
    Mode.CONV_BWD_DATA: ("one data gradient", _only(ConvBackwardData)),
    Mode.CONV_BWD_FILTER: ("one filter gradient", _only(ConvBackwardFilter)),
    Mode.NORM_FWD_INFER: ("one norm in inference", _norm(NormPhase.INFERENCE)),
    Mode.NORM_FWD_TRAIN: ("one norm in training", _norm(NormPhase.TRAINING)),
    Mode.NORM_BWD: ("one norm gradient", _only(NormBackward)),
    Mode.GENERIC_CONV_FUSION: ("a convolution and other operations", _around(ConvolutionOperation)),
    Mode.RESAMPLE_FWD: ("one resampling", _only(ResampleForward)),
    Mode.RESAMPLE_BWD: ("one resampling gradient", _only(ResampleBackward)),
    Mode.BLAS_MATMUL: ("one matmul", _only(Matmul)),
    Mode.GENERIC_MATMUL_FUSION: ("a matmul and other operations", _around(Matmul)),
    Mode.GENERIC_POINTWISE_FUSION: (
        "pointwise operations and reductions",
        lambda ops: all(isinstance(op, (PointwiseOperation, Reduction)) for op in ops),
    ),
}
_NO_GRAPH = ("a graph of attention, which has no engine here", lambda ops: False)


def _must_be_false(field: str, reason: str, fix: str) -> Constraint:
    return Constraint(
        id=f"operationgraph.{field}",
        attribute=field,
        look=lambda g: getattr(g, field),
        check=Equals(False),
        reason=reason,
        fix=fix,
        status=Status.NOT_SUPPORTED,
    )


class GraphSettings(DescriptorSpec):
    """The operations of a graph, in any order."""

    descriptor = DescriptorType.OPERATIONGRAPH
    constraints: ClassVar[tuple[tuple[Constraint, ...], ...]] = (
        (
            _must_be_false(
                "is_dynamic_shape_enabled",
                "a plan is for one set of extents; kernels are shape-generic, so building the next plan is cheap",
                "build a plan for each set of extents",
            ),
            _must_be_false(
                "is_override_shape_enabled",
                "extents are checked when the graph is built, not at every execution",
                "build a plan for each set of extents",
            ),
            Constraint(
                id="operationgraph.mode",
                attribute="mode",
                look=lambda g: g.mode,
                check=lambda g: Equals(f"AUTO, or a graph of {MODES.get(g.mode, _NO_GRAPH)[0]}"),
                when=lambda g: not MODES.get(g.mode, _NO_GRAPH)[1](g.ops),
                reason="the hint names another pattern than the operations form",
                fix="leave it at AUTO: the fusion pass finds the pattern",
                status=Status.NOT_SUPPORTED_GRAPH_PATTERN,
            ),
        ),
    )
    refused = (
        Refused(
            A.OPERATIONGRAPH_IS_SAME_TOPOLOGY, (T.BOOLEAN,), "there is no kernel cache to share between graphs",
            "leave it unset: compiled kernels are shape-generic and cached by the library",
        ),
    )  # fmt: skip
    answers = (
        answer(
            A.OPERATIONGRAPH_ENGINE_GLOBAL_COUNT, T.INT64, "the number of engine indices",
            lambda g: engine_count(),
        ),
    )  # fmt: skip

    handle: Annotated[
        InstanceOf[Handle] | None, attr(A.OPERATIONGRAPH_HANDLE, T.HANDLE, "a handle", "what cudnnCreate returned")
    ] = None
    ops: Annotated[
        tuple[Operation, ...],
        attr(A.OPERATIONGRAPH_OPS, T.BACKEND_DESCRIPTOR, "operations", "give finalized operations", (1, MANY)),
    ]
    is_dynamic_shape_enabled: Annotated[
        bool, attr(A.OPERATIONGRAPH_IS_DYNAMIC_SHAPE_ENABLED, T.BOOLEAN, "False", "leave it unset")
    ] = False
    is_override_shape_enabled: Annotated[
        bool, attr(A.OPERATIONGRAPH_IS_OVERRIDE_SHAPE_ENABLED, T.BOOLEAN, "False", "leave it unset")
    ] = False
    mode: Annotated[
        OperationGraphMode, attr(A.OPERATIONGRAPH_MODE, T.OPERATIONGRAPH_MODE, "a pattern hint", "leave it at AUTO")
    ] = OperationGraphMode.AUTO


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Content of a finalized OPERATIONGRAPH."""

    descriptor: ClassVar[DescriptorType] = DescriptorType.OPERATIONGRAPH
    settings: GraphSettings
    fused: FusedGraph

    def __repr__(self) -> str:
        return f"graph of {len(self.settings.ops)} operations"


def build_graph(settings: GraphSettings) -> Graph:
    return Graph(settings, fuse(OperationGraph.of(settings.ops)))


def graph_of(fused: FusedGraph, handle: Any = None) -> Graph:
    """The content for a graph that came from elsewhere, e.g. from a plan's JSON."""
    return Graph(GraphSettings(ops=fused.graph.operations, handle=handle), fused)

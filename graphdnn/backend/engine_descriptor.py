"""ENGINE with its KNOB_INFO and LAYOUT_INFO: one engine for one graph on one device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import InstanceOf

from graphdnn.attribute_names import AttributeName as A
from graphdnn.backend.descriptor_spec import MANY, DescriptorSpec, answer
from graphdnn.backend.device_descriptor import DeviceProp, limited, named_device
from graphdnn.backend.graph_descriptor import Graph
from graphdnn.checks import Equals
from graphdnn.device.profiles import DeviceSpec
from graphdnn.device_selection import device_spec
from graphdnn.engines import Engine
from graphdnn.enums import AttributeType as T
from graphdnn.enums import DescriptorType, LayoutType, Status
from graphdnn.heuristics import EngineConfig
from graphdnn.heuristics.engine_index import IndexedEngine, engine_at
from graphdnn.rules import Constraint
from graphdnn.spec import Int64, attr, attribute_label


@dataclass(frozen=True, slots=True)
class LayoutInfo:
    """Content of a filled LAYOUT_INFO; ``types`` is empty for a tensor without a preference."""

    uid: int
    types: tuple[LayoutType, ...] = ()


class EngineSettings(DescriptorSpec):
    """An engine by its global index, which is its id."""

    descriptor = DescriptorType.ENGINE
    constraints: ClassVar[tuple[tuple[Constraint, ...], ...]] = (
        (
            Constraint(
                id="engine.cluster_cooperative",
                attribute="disable_cluster_cooperative",
                look=lambda e: e.disable_cluster_cooperative,
                check=Equals(False),
                reason="engines cannot be told to do without clusters",
                fix="leave it unset, or choose an engine without clusters",
                status=Status.NOT_SUPPORTED,
            ),
        ),
    )
    answers = (
        answer(
            A.ENGINE_KNOB_INFO, T.BACKEND_DESCRIPTOR, "the knobs", lambda e: e.row.knobs,
            (DescriptorType.KNOB_INFO,), (0, MANY),
        ),
        answer(
            A.ENGINE_NUMERICAL_NOTE, T.NUMERICAL_NOTE, "the numerical notes", lambda e: e.row.numerical_notes,
            count=(0, MANY),
        ),
        answer(
            A.ENGINE_LAYOUT_INFO, T.BACKEND_DESCRIPTOR, "preferred layouts",
            lambda e: tuple(preferred_layouts(e)),
            (DescriptorType.LAYOUT_INFO,), (0, MANY),
        ),
        answer(
            A.ENGINE_BEHAVIOR_NOTE, T.BEHAVIOR_NOTE, "the behaviour notes", lambda e: e.row.behavior_notes,
            count=(0, MANY),
        ),
    )  # fmt: skip

    operation_graph: Annotated[
        InstanceOf[Graph],
        attr(A.ENGINE_OPERATION_GRAPH, T.BACKEND_DESCRIPTOR, "an operation graph", "give a finalized one"),
    ]
    global_index: Annotated[
        Int64, attr(A.ENGINE_GLOBAL_INDEX, T.INT64, "an engine's id", "try each below ENGINE_GLOBAL_COUNT")
    ]
    sm_count_target: Annotated[
        Int64, attr(A.ENGINE_SM_COUNT_TARGET, T.INT32, "multiprocessors to use", "0 for all")
    ] = 0
    deviceprop: Annotated[
        InstanceOf[DeviceProp] | None,
        attr(A.ENGINE_DEVICEPROP, T.BACKEND_DESCRIPTOR, "a device", "give a finalized DEVICEPROP"),
    ] = None
    disable_cluster_cooperative: Annotated[
        bool, attr(A.ENGINE_DISABLE_CLUSTER_COOPERATIVE, T.BOOLEAN, "False", "leave it unset")
    ] = False
    shared_memory_limit: Annotated[
        Int64, attr(A.ENGINE_SHARED_MEMORY_LIMIT, T.INT32, "bytes of shared memory", "0 for the device's limit")
    ] = 0


@dataclass(frozen=True, slots=True, eq=False)
class GraphEngine:
    """Content of a finalized ENGINE."""

    descriptor: ClassVar[DescriptorType] = DescriptorType.ENGINE
    settings: EngineSettings
    indexed: IndexedEngine
    whole_device: DeviceSpec

    @property
    def row(self) -> Engine:
        return self.indexed.row

    @property
    def device(self) -> DeviceSpec:
        """With its limits."""
        return self.indexed.device

    @property
    def graph(self) -> Graph:
        return self.settings.operation_graph

    def __repr__(self) -> str:
        return f"engine {self.row}"


def device_of(graph: Graph, prop: DeviceProp | None, where: str) -> DeviceSpec:
    """The device that engines for a graph are for: as named, or the machine the library runs on."""
    return named_device(where, graph.settings.handle, prop) or device_spec()


def build_engine(settings: EngineSettings, also: Sequence[EngineConfig] = ()) -> GraphEngine:
    """Raises ``NotSupported`` when the index names no engine, or one that does not serve the graph."""
    graph = settings.operation_graph
    whole = device_of(graph, settings.deviceprop, "ENGINE")
    device = limited(whole, "ENGINE", settings.sm_count_target, settings.shared_memory_limit)
    index, label = settings.global_index, attribute_label(EngineSettings, "global_index")
    return GraphEngine(settings, engine_at(index, graph.fused, device, "ENGINE", label, also), whole)


def preferred_layouts(engine: GraphEngine) -> Iterator[LayoutInfo]:
    """Of every bound tensor; engines that prefer a layout prefer it for images, which have at least four axes."""
    layout = engine.row.layout
    for tensor in engine.graph.fused.graph.bound:
        yield LayoutInfo(tensor.uid, (layout,) if layout is not None and tensor.rank >= 4 else ())

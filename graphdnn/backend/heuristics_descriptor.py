"""ENGINEHEUR: the ranked configurations of a graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import InstanceOf

from graphdnn.attribute_names import AttributeName as A
from graphdnn.backend.config_descriptor import Config, config_for
from graphdnn.backend.descriptor_spec import MANY, DescriptorSpec, answer
from graphdnn.backend.device_descriptor import DeviceProp, limited
from graphdnn.backend.engine_descriptor import EngineSettings, GraphEngine, build_engine, device_of
from graphdnn.backend.graph_descriptor import Graph
from graphdnn.enums import AttributeType as T
from graphdnn.enums import DescriptorType, HeurMode
from graphdnn.heuristics import EngineConfig
from graphdnn.heuristics.composed import down_converted, ranked
from graphdnn.spec import Int64, attr


class HeuristicsSettings(DescriptorSpec):
    """What to rank, how and for which device."""

    descriptor = DescriptorType.ENGINEHEUR
    answers = (
        answer(
            A.ENGINEHEUR_RESULTS, T.BACKEND_DESCRIPTOR, "configurations, best first", lambda h: h.results,
            (DescriptorType.ENGINECFG,), (0, MANY),
        ),
    )  # fmt: skip

    operation_graph: Annotated[
        InstanceOf[Graph],
        attr(A.ENGINEHEUR_OPERATION_GRAPH, T.BACKEND_DESCRIPTOR, "an operation graph", "give a finalized one"),
    ]
    mode: Annotated[HeurMode, attr(A.ENGINEHEUR_MODE, T.HEUR_MODE, "INSTANT, A, B or FALLBACK", "HeurMode.A")]
    sm_count_target: Annotated[
        Int64, attr(A.ENGINEHEUR_SM_COUNT_TARGET, T.INT32, "multiprocessors to use", "0 for all")
    ] = 0
    deviceprop: Annotated[
        InstanceOf[DeviceProp] | None,
        attr(A.ENGINEHEUR_DEVICEPROP, T.BACKEND_DESCRIPTOR, "a device", "give a finalized DEVICEPROP"),
    ] = None
    shared_memory_limit: Annotated[
        Int64, attr(A.ENGINEHEUR_SHARED_MEMORY_LIMIT, T.INT32, "bytes of shared memory", "0 for the device's limit")
    ] = 0


@dataclass(frozen=True, slots=True, eq=False)
class Heuristics:
    """Content of a finalized ENGINEHEUR."""

    descriptor: ClassVar[DescriptorType] = DescriptorType.ENGINEHEUR
    settings: HeuristicsSettings
    results: tuple[Config, ...]


def build_heuristics(settings: HeuristicsSettings) -> Heuristics:
    """Raises ``NotSupported`` with every engine's reasons when nothing serves the graph."""
    graph = settings.operation_graph
    device = device_of(graph, settings.deviceprop, "ENGINEHEUR")
    device = limited(device, "ENGINEHEUR", settings.sm_count_target, settings.shared_memory_limit)
    engines: dict[int, GraphEngine] = {}
    # A caller who wants every digit leaves out engines with the note DOWN_CONVERT_INPUTS.
    configs = ranked(graph.fused, device, settings.mode) + down_converted(graph.fused, device, settings.mode)
    return Heuristics(settings, tuple(_result(settings, config, engines) for config in configs))


def _result(settings: HeuristicsSettings, config: EngineConfig, engines: dict[int, GraphEngine]) -> Config:
    """The configuration as if it had been made by hand, on an engine shared with the other results."""
    index = config.engine_id
    if index not in engines:
        engines[index] = build_engine(
            EngineSettings(
                operation_graph=settings.operation_graph,
                global_index=index,
                sm_count_target=settings.sm_count_target,
                deviceprop=settings.deviceprop,
                shared_memory_limit=settings.shared_memory_limit,
            )
        )
    return config_for(engines[index], config)

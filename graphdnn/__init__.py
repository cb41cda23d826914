"""graphdnn: an open DNN backend in the style of cuDNN v8, readable end to end.

``Graph`` builds an operation graph with the names of cuDNN's Python frontend;
``graphdnn.backend`` has the v8 C calls; ``rank`` and ``build`` show and make plans.
"""

import graphdnn.hook_functions  # noqa: F401  fills the table of hooks
from graphdnn.builder import Graph
from graphdnn.device.profiles import PROFILES, DeviceSpec
from graphdnn.device_selection import device_spec
from graphdnn.enums import (
    BehaviorNote,
    ConvolutionMode,
    DataType,
    HeurMode,
    KnobType,
    NormMode,
    NormPhase,
    NumericalNote,
    PaddingMode,
    PointwiseMode,
    ReductionOperator,
    ResampleMode,
    ReshapeMode,
    RngDistribution,
    Status,
)
from graphdnn.errors import (
    BadParam,
    ExecutionFailed,
    GraphdnnError,
    InternalError,
    MalformedFile,
    NotInitialized,
    NotSupported,
    Rejection,
)
from graphdnn.files import graph_from_json, graph_to_json, plan_from_json, plan_to_json
from graphdnn.fusion import FusedGraph, FusedOp, FusionLimits, Limits, fuse
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.heuristics import EngineConfig, Filters, Ranking
from graphdnn.operations import Cell, RnnSpec
from graphdnn.pipeline import build, prepare, rank
from graphdnn.plan import ExecutionPlan
from graphdnn.tensors import TensorSpec, channels_last_strides, packed_strides

__version__ = "0.2.0.dev0"

__all__ = [
    "PROFILES",
    "BadParam",
    "BehaviorNote",
    "Cell",
    "ConvolutionMode",
    "DataType",
    "DeviceSpec",
    "EngineConfig",
    "ExecutionFailed",
    "ExecutionPlan",
    "Filters",
    "FusedGraph",
    "FusedOp",
    "FusionLimits",
    "Graph",
    "GraphdnnError",
    "HeurMode",
    "InternalError",
    "KnobType",
    "Limits",
    "MalformedFile",
    "NormMode",
    "NormPhase",
    "NotInitialized",
    "NotSupported",
    "NumericalNote",
    "OperationGraph",
    "PaddingMode",
    "PointwiseMode",
    "Ranking",
    "ReductionOperator",
    "Rejection",
    "ResampleMode",
    "ReshapeMode",
    "RngDistribution",
    "RnnSpec",
    "Status",
    "TensorSpec",
    "__version__",
    "build",
    "channels_last_strides",
    "device_spec",
    "fuse",
    "graph_from_json",
    "graph_to_json",
    "packed_strides",
    "plan_from_json",
    "plan_to_json",
    "prepare",
    "rank",
]

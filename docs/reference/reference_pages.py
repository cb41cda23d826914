"""PAGES: what each page of the API reference describes. The reference and the tests of docstrings read this table."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from importlib import import_module
from typing import Any

from pydantic import BaseModel


@dataclass(frozen=True, slots=True)
class Page:
    """One page: its file, its title, an introduction, and the full names of the objects that it describes."""

    file: str
    title: str
    introduction: str
    names: tuple[str, ...]


def _in(module: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{module}.{name}" for name in names)


PAGES = (
    Page(
        "graph",
        "Graphs",
        "A graph is described by the methods of :class:`graphdnn.Graph`. Each method adds one operation and returns "
        "its output tensors. The elementwise methods are generated from the table of pointwise modes.",
        _in("graphdnn", "Graph", "RnnSpec", "Cell")
        + _in("graphdnn.builder", "Tensor")
        + _in("graphdnn.problem", "parse", "random_bindings"),
    ),
    Page(
        "operation_graph",
        "Operation graphs and files",
        "An operation graph is frozen and has passed every check. Graphs and plans are kept as JSON files.",
        _in(
            "graphdnn", "OperationGraph", "TensorSpec", "packed_strides", "channels_last_strides", "graph_to_json",
            "graph_from_json", "plan_to_json", "plan_from_json",
        )
        + _in("graphdnn.importers", "read", "Imported", "Problem"),
    ),
    Page(
        "fusion_and_heuristics",
        "Fusion, heuristics and devices",
        "The fusion pass decides which operations share a kernel. The heuristics rank the configurations of engines "
        "for these kernels. A device is described by its profile, so a ranking needs no device.",
        _in(
            "graphdnn", "build", "rank", "fuse", "prepare", "FusedGraph", "FusedOp", "FusionLimits", "Ranking",
            "EngineConfig", "Filters", "DeviceSpec", "device_spec",
        )
        + _in("graphdnn.fusion", "UnfusedEdge")
        + _in("graphdnn.heuristics", "Choice", "Declined"),
    ),
    Page(
        "plan",
        "Plans",
        "A plan has one engine for each fused operation. It executes on arrays of its device.",
        _in("graphdnn", "ExecutionPlan")
        + _in("graphdnn.plan.cuda_graph", "CapturedPlan")
        + _in("graphdnn.analysis.kernels", "KernelView", "Place"),
    ),
    Page(
        "analysis",
        "Refusals, repairs, certificates, traces, cuts and reports",
        "These functions and classes answer questions about a graph or a plan. The methods of a graph and of a plan "
        "call them.",
        _in("graphdnn.analysis.diagnostics", "DiagnosticList")
        + _in("graphdnn.repairs", "of_graph", "of_plan", "of_error", "of_data", "Repairs", "Repair")
        + _in(
            "graphdnn.certificate", "of_plan", "numeric_class", "Certificate", "OperationBound", "OutputBound",
            "OverflowProof", "NumericClass", "OperationClass",
        )
        + _in("graphdnn.analysis.trace", "of_plan", "Trace", "Traced")
        + _in("graphdnn.analysis.cuts", "cuts_of", "of_plan", "Cuts", "Cut", "Side", "RunCost", "Verdict")
        + _in("graphdnn.report", "contents_of", "page", "comparison_page", "Contents", "Timing")
        + _in(
            "graphdnn.reducing", "reduce", "reduce_refused", "symptom_of", "by_symptom", "by_rule", "by_command",
            "Failure", "Reduced", "Step",
        ),
    ),
    Page(
        "tuning",
        "Tuning",
        "A tuning measures configurations on the device and keeps the measurements in a database.",
        _in("graphdnn.tuning", "autotune", "default_database", "Tuned", "Trial", "Verdict", "Database"),
    ),
    Page(
        "locks_and_bundles",
        "Locks and bundles",
        "A lock records which plans a set of graphs has. A bundle records one run, so that it can be replayed.",
        _in(
            "graphdnn.locks", "lock_of", "entry_of", "lock_from_json", "check", "updated", "against", "compare",
            "compare_locks", "Lock", "LockedGraph", "LockedKernel", "LockChange", "LockCheckResult",
        )
        + _in(
            "graphdnn.bundles", "attempt", "bundle_of", "plan_bundle", "save", "bundle_from_json", "replay", "folder",
            "Bundle", "Replayed", "RunOutcome", "VerifiedRun",
        ),
    ),
    Page(
        "backend",
        "v8 descriptor calls",
        "``graphdnn.backend`` has the calls of cuDNN's v8 backend by their C names. The file ``docs/attributes.md`` "
        "lists every descriptor with its attributes.",
        _in(
            "graphdnn.backend", "cudnnCreate", "cudnnDestroy", "cudnnSetStream", "cudnnGetStream",
            "cudnnBackendCreateDescriptor", "cudnnBackendInitialize", "cudnnBackendSetAttribute",
            "cudnnBackendFinalize", "cudnnBackendGetAttribute", "cudnnBackendExecute",
            "cudnnBackendDestroyDescriptor", "cudnnBackendPopulateCudaGraph", "cudnnBackendUpdateCudaGraph",
            "cudnnGetErrorString", "cudnnGetLastErrorString", "cudnnGetVersion", "returning_status",
        ),
    ),
    Page(
        "onnx",
        "ONNX models",
        "A model becomes operation graphs with plans. The file ``docs/onnx.md`` lists the operators that are served.",
        _in("graphdnn.onnx", "load", "Model", "ValueInfo", "InferenceSession", "as_onnxruntime")
        + _in("graphdnn.onnx.session", "NodeArg", "ModelMetadata", "SessionOptions", "IOBinding", "OrtValue")
        + _in("graphdnn.onnx.backend", "GraphdnnBackend", "GraphdnnRep")
        + _in("graphdnn.onnx.program", "Program"),
    ),
    Page(
        "errors",
        "Errors and enumerators",
        "Every refusal is a :class:`graphdnn.Rejection`. An exception carries all rejections of one call. The file "
        "``docs/errors.md`` lists every rule.",
        _in(
            "graphdnn", "GraphdnnError", "BadParam", "NotSupported", "NotInitialized", "InternalError",
            "ExecutionFailed", "MalformedFile", "Rejection", "Status", "DataType", "HeurMode", "KnobType",
            "BehaviorNote", "NumericalNote", "PointwiseMode", "ReductionOperator", "ConvolutionMode", "ResampleMode",
            "PaddingMode", "ReshapeMode", "NormMode", "NormPhase", "RngDistribution",
        ),
    ),
    Page(
        "v6",
        "Legacy calls",
        "``graphdnn.v6`` has the calls of cuDNN 5.1, 6.0 and 7 by their C names. Parameters come in the order of C "
        "without the output pointers, and results are returned. The docstrings of the calls are generated from the "
        "table of C signatures. The file ``docs/v6.md`` says what each call becomes.",
        _in(
            "graphdnn.v6", "use", "record", "profile", "returning_status", "last_graph", "explain", "coverage",
            "CudnnError",
        ),
    ),
)  # fmt: skip

# Public names without a place in the reference, each with the reason.
LEFT_OUT = {
    "graphdnn.Limits": "the earlier name of FusionLimits",
    "graphdnn.PROFILES": "a table; docs/support.md shows it",
    "graphdnn.__version__": "a string",
    **{
        f"graphdnn.repairs.{name}": "part of the search for repairs, which of_graph and of_data run"
        for name in ("Draft", "Row", "EDITS", "FORMAT", "VERSION", "of_draft")
    },
    **{f"graphdnn.reducing.{name}": "part of the command line" for name in ("draft_of", "draft_to_json")},
    **{
        f"graphdnn.bundles.{name}": "part of the command line"
        for name in (
            "BUNDLE_FORMAT", "FOLDER", "canonical", "of_error", "of_graph", "of_plan", "print_problem",
            "replay_command", "run_command",
        )
    },
    "graphdnn.locks.CLASSES": "a table of words that lock files contain",
    "graphdnn.locks.LOCK_FORMAT": "a string that lock files contain",
}  # fmt: skip


def described(name: str) -> Any:
    """The object of a full name."""
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(module), attribute)


def members(cls: type) -> list[str]:
    """The public methods and properties of a class, its base classes included, in the order of definition."""
    if issubclass(cls, (Enum, BaseModel)):
        own = [c for c in cls.__mro__ if c.__module__.startswith("graphdnn.") and c.__name__ not in ("Spec", "CEnum")]
    else:
        own = [c for c in cls.__mro__ if c.__module__.startswith("graphdnn.")]
    found = dict.fromkeys(name for c in reversed(own) for name in vars(c) if not name.startswith("_"))
    return [name for name in found if _is_described(inspect.getattr_static(cls, name))]


def _is_described(member: Any) -> bool:
    if isinstance(member, (property, classmethod, staticmethod)) or inspect.isfunction(member):
        return True
    return type(member).__name__ == "cached_property"


def function_of(member: Any) -> Any:
    """The function behind a method, a property or a function."""
    if isinstance(member, property):
        return member.fget
    return getattr(member, "func", None) or getattr(member, "__func__", member)


def data_fields(cls: type) -> list[str]:
    """The public fields of a dataclass or a pydantic model."""
    if is_dataclass(cls):
        return [field.name for field in fields(cls) if not field.name.startswith("_")]
    return list(cls.model_fields) if issubclass(cls, BaseModel) else []


def callables() -> Iterator[tuple[str, Any]]:
    """Full name and function of everything that the reference describes and that can be called or read."""
    for page in PAGES:
        for name in page.names:
            thing = described(name)
            if not inspect.isclass(thing):
                yield name, thing
                continue
            for member in members(thing):
                yield f"{name}.{member}", function_of(inspect.getattr_static(thing, member))

"""``InferenceSession`` of onnxruntime's shape on graphdnn's plans, and ``as_onnxruntime``, which stands in for it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from types import ModuleType
from typing import Any

import numpy as np

from graphdnn.errors import BadParam
from graphdnn.onnx.model import Model, ValueInfo, load
from graphdnn.onnx.rules import PROVIDER

_DEVICES = {"CPUExecutionProvider": "cpu", "CUDAExecutionProvider": "cuda"}
_TYPES = {
    "FLOAT": "float", "DOUBLE": "double", "FLOAT16": "float16", "BFLOAT16": "bfloat16", "STRING": "string",
    "BOOL": "bool",
}  # fmt: skip
_defaults: dict[str, Any] = {"fallback": None}


@dataclass(frozen=True, slots=True)
class NodeArg:
    """An input or an output.

    Attributes:
        name: The name.
        type: The type in onnxruntime's words, such as ``tensor(float)``.
        shape: One extent, name, or None for each axis.
    """

    name: str
    type: str
    shape: list[Any]

    @classmethod
    def of(cls, info: ValueInfo) -> NodeArg:
        """The declaration in onnxruntime's words.

        Args:
            info: The declaration of the model.

        Returns:
            The declaration.
        """
        kind = f"tensor({_TYPES.get(info.type, info.type.lower())})" if info.type else "seq(tensor(float))"
        return cls(info.name, kind, list(info.shape or ()))


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """What a model says of itself.

    Attributes:
        producer_name: The program that wrote it.
        graph_name: The name of the graph.
        domain: The namespace of the model.
        description: A text.
        graph_description: A text about the graph.
        version: The model's version.
        custom_metadata_map: Further texts by name.
    """

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 0
    custom_metadata_map: Mapping[str, str] = field(default_factory=dict)


class GraphOptimizationLevel(IntEnum):
    """Levels that onnxruntime has. Plans are the same at each of them."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_ALL = 99


class ExecutionMode(IntEnum):
    """Modes that onnxruntime has. Parts of a model run one after another."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class SessionOptions:
    """Options that packages set. They change no result: threads are the ones of NumPy and of the device."""

    def __init__(self) -> None:
        self.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
        self.execution_mode = ExecutionMode.ORT_SEQUENTIAL
        self.intra_op_num_threads = 0
        self.inter_op_num_threads = 0
        self.log_severity_level = 2
        self.log_verbosity_level = 0
        self.logid = ""
        self.enable_profiling = False
        self.enable_mem_pattern = True
        self.enable_cpu_mem_arena = True
        self.use_deterministic_compute = False
        self.config_entries: dict[str, str] = {}

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Keep an entry.

        Args:
            key: Its name.
            value: Its text.
        """
        self.config_entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        """An entry that was added.

        Args:
            key: Its name.

        Returns:
            Its text.
        """
        return self.config_entries[key]


class RunOptions:
    """Options of a run that packages set. They change no result."""

    def __init__(self) -> None:
        self.log_severity_level = 2
        self.log_verbosity_level = 0
        self.logid = ""
        self.only_execute_path_to_fetches = False


class InferenceSession:
    """A model behind the methods of onnxruntime's class.

    Args:
        path_or_bytes: The path of a file, or the bytes of one.
        sess_options: Accepted and kept.
        providers: Names of providers, or pairs of a name and options; the first known one decides the device.
        provider_options: Options of the providers; kept.
        fallback: As ``graphdnn.onnx.load`` takes it. None takes the one of ``as_onnxruntime``.

    Raises:
        MalformedFile: The model is invalid.
        NotSupported: Nodes are not served.
        BadParam: No provider is known.
    """

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: Any = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Any] | None = None,
        *,
        fallback: str | None = None,
        **kwargs: Any,
    ) -> None:
        self._source, self._options = path_or_bytes, sess_options or SessionOptions()
        self._fallback = fallback or _defaults["fallback"]
        self._provider_options = list(provider_options or ())
        self.set_providers(providers)

    def set_providers(self, providers: Sequence[Any] | None = None, provider_options: Any = None) -> None:
        """Choose the device again.

        Args:
            providers: As in the constructor.
            provider_options: Kept.

        Raises:
            BadParam: No provider is known.
        """
        names = [p if isinstance(p, str) else p[0] for p in providers or ["CPUExecutionProvider"]]
        known = [name for name in names if name in _DEVICES]
        if not known:
            raise BadParam(PROVIDER.reject("InferenceSession", "providers", names, expected=", ".join(_DEVICES)))
        present = [name for name in known if name in get_available_providers()]
        self._providers = present or ["CPUExecutionProvider"]
        self._model: Model = load(self._source, device=_DEVICES[self._providers[0]], fallback=self._fallback)

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[Any]:
        """Run the model.

        Args:
            output_names: Names of outputs; None or an empty list for all.
            input_feed: An array for each input, by name.
            run_options: Accepted and not read.

        Returns:
            The outputs in the order of the names.

        Raises:
            BadParam: An input or a name is wrong.
        """
        feeds = {name: getattr(value, "array", value) for name, value in input_feed.items()}
        return list(self._model.run(feeds, list(output_names) if output_names else None).values())

    def get_inputs(self) -> list[NodeArg]:
        """The inputs that have no initializer."""
        return [NodeArg.of(i) for i in self._model.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """The outputs."""
        return [NodeArg.of(o) for o in self._model.outputs]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """The inputs that have an initializer."""
        return [NodeArg.of(i) for i in self._model.overridable]

    def get_modelmeta(self) -> ModelMetadata:
        """What the model says of itself."""
        proto = self._model.proto
        custom = {p.key: p.value for p in proto.metadata_props}
        return ModelMetadata(
            proto.producer_name, proto.graph.name, proto.domain, proto.doc_string, proto.graph.doc_string,
            proto.model_version, custom,
        )  # fmt: skip

    def get_providers(self) -> list[str]:
        """The names of the providers in use."""
        return list(self._providers)

    def get_provider_options(self) -> dict[str, Any]:
        """The options that were given, by provider."""
        return {name: {} for name in self._providers}

    def get_session_options(self) -> Any:
        """The options that were given."""
        return self._options

    def explain(self) -> str:
        """The parts of the model with their plans."""
        return self._model.explain()

    def io_binding(self) -> IOBinding:
        """Inputs and outputs that are bound before a run."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: Any = None) -> None:
        """Run on bound arrays.

        Args:
            iobinding: What ``io_binding`` returned.
            run_options: Accepted and not read.

        Raises:
            BadParam: An input is wrong.
        """
        iobinding.results = self.run(list(iobinding.wanted) or None, iobinding.feeds, run_options)
        for name, result in zip(iobinding.wanted, iobinding.results, strict=False):
            target = iobinding.wanted[name]
            if target is not None:
                np.copyto(target, result)


@dataclass(slots=True)
class OrtValue:
    """An array behind the methods of onnxruntime's class.

    Attributes:
        array: The array.
    """

    array: Any

    @classmethod
    def ortvalue_from_numpy(cls, array: Any, device_type: str = "cpu", device_id: int = 0) -> OrtValue:
        """The value of an array.

        Args:
            array: The array.
            device_type: Where it is to lie; runs copy it to their device.
            device_id: The number of the device.

        Returns:
            The value.
        """
        return cls(np.asarray(array))

    def numpy(self) -> Any:
        """The array."""
        return self.array

    def shape(self) -> list[int]:
        """Its extents."""
        return list(self.array.shape)


class IOBinding:
    """Arrays that are bound before a run.

    Args:
        session: The session.
    """

    def __init__(self, session: InferenceSession) -> None:
        self.session = session
        self.feeds: dict[str, Any] = {}
        self.wanted: dict[str, Any] = {}
        self.results: list[Any] = []

    def bind_cpu_input(self, name: str, array: Any) -> None:
        """Bind a host array to an input.

        Args:
            name: The input.
            array: The array.
        """
        self.feeds[name] = np.asarray(array)

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Bind a value to an input.

        Args:
            name: The input.
            ortvalue: The value.
        """
        self.feeds[name] = ortvalue.array

    def bind_output(self, name: str, device_type: str = "cpu", device_id: int = 0) -> None:
        """Ask for an output in host memory.

        Args:
            name: The output.
            device_type: Accepted and not read: results are host arrays.
            device_id: Accepted and not read.
        """
        self.wanted[name] = None

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Ask for an output in an array.

        Args:
            name: The output.
            ortvalue: The value that is written.
        """
        self.wanted[name] = ortvalue.array

    def copy_outputs_to_cpu(self) -> list[Any]:
        """The outputs of the last run."""
        return list(self.results)

    def get_outputs(self) -> list[OrtValue]:
        """The outputs of the last run as values."""
        return [OrtValue(array) for array in self.results]

    def synchronize_inputs(self) -> None:
        """Nothing: runs end when their results are in host memory."""

    def synchronize_outputs(self) -> None:
        """Nothing: runs end when their results are in host memory."""

    def clear_binding_inputs(self) -> None:
        """Forget the inputs."""
        self.feeds.clear()

    def clear_binding_outputs(self) -> None:
        """Forget the outputs."""
        self.wanted.clear()


def get_available_providers() -> list[str]:
    """The providers that can run here, the fastest first."""
    from graphdnn.onnx.backend import GraphdnnBackend

    gpu = ["CUDAExecutionProvider"] if GraphdnnBackend.supports_device("CUDA") else []
    return [*gpu, "CPUExecutionProvider"]


def get_device() -> str:
    """``CPU`` or ``GPU``."""
    return "GPU" if len(get_available_providers()) > 1 else "CPU"


def set_default_logger_severity(severity: int) -> None:
    """Nothing: the library writes no log of its own.

    Args:
        severity: A number that onnxruntime has.
    """


def get_all_providers() -> list[str]:
    """The providers that are known, present or not."""
    return [*reversed(_DEVICES)]


def disable_telemetry_events() -> None:
    """Nothing: the library sends nothing."""


def enable_telemetry_events() -> None:
    """Nothing: the library sends nothing."""


_PUBLIC = (
    InferenceSession, SessionOptions, RunOptions, GraphOptimizationLevel, ExecutionMode, NodeArg, ModelMetadata,
    OrtValue, IOBinding, get_available_providers, get_all_providers, get_device, set_default_logger_severity,
    disable_telemetry_events, enable_telemetry_events,
)  # fmt: skip


class as_onnxruntime:  # noqa: N801  a function for its users
    """Let ``import onnxruntime`` give graphdnn's session, until ``restore`` or the end of a ``with`` block.

    Packages that ship models then run on graphdnn unmodified. Modules that imported onnxruntime before keep theirs.

    Args:
        fallback: For all sessions: None refuses nodes without an engine, ``"reference"`` runs them by ONNX's reference
            evaluator.
    """

    def __init__(self, fallback: str | None = None) -> None:
        self._before = {n: m for n, m in sys.modules.items() if n.split(".")[0] == "onnxruntime"}
        self._fallback, _defaults["fallback"] = _defaults["fallback"], fallback
        for name in self._before:
            del sys.modules[name]
        self.module = ModuleType("onnxruntime", "graphdnn in place of onnxruntime")
        for public in _PUBLIC:
            setattr(self.module, public.__name__, public)
        self.module.__dict__["__version__"] = "1.20.0"
        sys.modules["onnxruntime"] = self.module

    def restore(self) -> None:
        """Let ``import onnxruntime`` give again what it gave before."""
        sys.modules.pop("onnxruntime", None)
        sys.modules.update(self._before)
        _defaults["fallback"] = self._fallback

    def __enter__(self) -> ModuleType:
        return self.module

    def __exit__(self, *_: object) -> None:
        self.restore()

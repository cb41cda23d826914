"""The descriptor kinds: for each type its attribute table, what finalization builds, and how attributes are read.

Tensors, settings and operations take their tables from the core's specs; the
other types have specs of their own in this package. What is not in ``KINDS``
cannot be created, for the reason in ``UNSUPPORTED``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any, get_args

import numpy as np

from graphdnn.attribute_names import AttributeName as A
from graphdnn.backend.config_descriptor import ConfigSettings, KnobChoice, build_config
from graphdnn.backend.data_pointers import scalar_of
from graphdnn.backend.descriptor_spec import MANY, DescriptorSpec, ReadOnlyAttribute, answer
from graphdnn.backend.device_descriptor import DevicePropSettings, build_device_prop, device_text
from graphdnn.backend.engine_descriptor import EngineSettings, build_engine
from graphdnn.backend.graph_descriptor import GraphSettings, build_graph
from graphdnn.backend.heuristics_descriptor import HeuristicsSettings, build_heuristics
from graphdnn.backend.plan_descriptor import Pack, PlanSettings, VariantPack, build_plan
from graphdnn.backend.rules import CONSTANT_TYPE, VALUE
from graphdnn.dtypes import ELEMENTS, cast
from graphdnn.enums import AttributeType as T
from graphdnn.enums import DescriptorType as D
from graphdnn.errors import Rejection
from graphdnn.operations import OPERATIONS, SETTINGS, Operation
from graphdnn.spec import Attr, Refused, Spec, attributes, is_required
from graphdnn.tensors import TensorSpec

Capture = Callable[[Any, Mapping[str, Any], str, str], Any]


@dataclass(frozen=True, slots=True)
class Row:
    """One attribute of one descriptor type."""

    attr: Attr
    read: Callable[[Any], Any]  # the value in a finalized content
    nested: tuple[D, ...] = ()  # what a BACKEND_DESCRIPTOR element may be
    field: str | None = None  # of the settings; None: get-only
    required: bool = False
    capture: Capture | None = None  # turns the value into what is kept, where that depends on other attributes

    @property
    def is_list(self) -> bool:
        return self.attr.count != (1, 1)


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """A descriptor type."""

    descriptor: D
    rows: Mapping[A, Row]
    settings: type[Spec] | None = None  # None: only filled by the library
    build: Callable[[Any], Any] = lambda settings: settings
    refused: Mapping[A, Refused] = field(default_factory=dict)


def _nested(annotation: Any) -> Iterator[D]:
    """Descriptor types of the classes in a field's annotation."""
    if annotation is Operation:
        yield from (cls.descriptor for cls in OPERATIONS.values())
    elif isinstance(getattr(annotation, "descriptor", None), D):
        yield annotation.descriptor
    for item in get_args(annotation):
        yield from _nested(item)


def _row(cls: type[Spec], name: str, row: Attr, read: Callable[[Any], Any], capture: Capture | None) -> Row:
    nested = _nested(cls.model_fields[name].annotation) if T.BACKEND_DESCRIPTOR in row.types else ()
    return Row(row, read, tuple(dict.fromkeys(nested)), name, is_required(cls, name), capture)


def _kind(
    cls: type[Spec],
    build: Callable[[Any], Any] = lambda settings: settings,
    reads: Mapping[A, Callable[[Any], Any]] | None = None,
    captures: Mapping[A, Capture] | None = None,
) -> Kind:
    """The kind of a spec class; ``reads`` and ``captures`` replace the plain ones."""
    prefix = "settings." if issubclass(cls, DescriptorSpec) and cls is not KnobChoice else ""
    reads, captures = reads or {}, captures or {}
    rows = {
        row.name: _row(
            cls, name, row, reads.get(row.name, attrgetter(prefix + name)), captures.get(row.name)
        )
        for name, row in attributes(cls).items()
    }  # fmt: skip
    rows |= {a.attr.name: Row(a.attr, a.read, a.nested) for a in getattr(cls, "answers", ())}
    return Kind(cls.descriptor, rows, cls, build, {row.name: row for row in cls.refused})


def _capture_constant(pointer: Any, values: Mapping[str, Any], where: str, label: str) -> int | float | Rejection:
    """The scalar behind CONSTANT_VALUE: read now, so the caller's memory may go away."""
    if "data_type" not in values or values["data_type"] not in ELEMENTS:
        return CONSTANT_TYPE.reject(where, label, "set before its type")
    data_type = values["data_type"]
    try:
        if pointer.is_null:
            raise ValueError("it is null")
        return scalar_of(pointer, data_type)
    except (TypeError, ValueError, OverflowError) as error:
        expected, fix = f"a pointer to one {data_type.name}", "pass the address, or an array of one element"
        return VALUE.reject(where, label, pointer, expected=expected, detail=str(error), fix=fix)


def _constant(spec: TensorSpec) -> Any:
    if spec.constant_value is None:
        return None
    return cast(np.array([spec.constant_value]), spec.data_type)


def _filled(kind: D, *answers: ReadOnlyAttribute) -> Kind:
    return Kind(kind, {a.attr.name: Row(a.attr, a.read) for a in answers})


_PLAIN: tuple[type[Spec], ...] = (*SETTINGS, *OPERATIONS.values())
_LIST = partial(answer, count=(0, MANY))

KINDS: dict[D, Kind] = {
    kind.descriptor: kind
    for kind in (
        _kind(
            TensorSpec,
            reads={A.TENSOR_CONSTANT_VALUE: _constant},
            captures={A.TENSOR_CONSTANT_VALUE: _capture_constant},
        ),
        *(_kind(cls) for cls in _PLAIN),
        _kind(GraphSettings, build_graph),
        _kind(HeuristicsSettings, build_heuristics),
        _kind(EngineSettings, build_engine),
        _kind(ConfigSettings, build_config),
        _kind(KnobChoice),
        _kind(
            DevicePropSettings,
            build_device_prop,
            reads={A.DEVICEPROP_JSON_REPRESENTATION: lambda d: device_text(d.device)},
        ),
        _kind(PlanSettings, build_plan, reads={
            A.EXECUTION_PLAN_JSON_REPRESENTATION: attrgetter("text"),
            A.EXECUTION_PLAN_ENGINE_CONFIG: attrgetter("config"),
        }),
        _kind(VariantPack, Pack),
        _filled(
            D.KNOB_INFO,
            answer(A.KNOB_INFO_TYPE, T.KNOB_TYPE, "the knob", lambda k: k.type),
            answer(A.KNOB_INFO_MAXIMUM_VALUE, T.INT64, "the largest legal value", lambda k: k.values[-1]),
            answer(A.KNOB_INFO_MINIMUM_VALUE, T.INT64, "the smallest legal value", lambda k: k.minimum),
            answer(A.KNOB_INFO_STRIDE, T.INT64, "the step between legal values", lambda k: k.stride),
        ),
        _filled(
            D.LAYOUT_INFO,
            answer(A.LAYOUT_INFO_TENSOR_UID, T.INT64, "the tensor", lambda i: i.uid),
            _LIST(A.LAYOUT_INFO_TYPES, T.LAYOUT_TYPE, "preferred layouts, none for no preference", lambda i: i.types),
        ),
        # Never filled: no configuration has an intermediate that could be used again.
        _filled(
            D.INTERMEDIATE_INFO,
            answer(A.INTERMEDIATE_INFO_UNIQUE_ID, T.INT64, "the intermediate", lambda i: None),
            answer(A.INTERMEDIATE_INFO_SIZE, T.INT64, "its bytes", lambda i: None),
            _LIST(A.INTERMEDIATE_INFO_DEPENDENT_DATA_UIDS, T.INT64, "what it is made from", lambda i: ()),
            _LIST(A.INTERMEDIATE_INFO_DEPENDENT_ATTRIBUTES, T.ATTRIB_NAME, "what it depends on", lambda i: ()),
        ),
    )
}  # fmt: skip

_ATTENTION = (
    "attention is no node here: its operations become one kernel",
    "write it as matmul, pointwise and reduction operations, as Graph.sdpa does",
)
_ROUTING = ("grouped matmuls of expert routing have no engine here", "build one matmul graph for each expert")
_BLOCK_SCALE = ("block-scaled formats have no engine here", "scale with pointwise operations")
_BAND = ("cuDNN publishes no index mapping for band matrices", "move the elements before or after the graph")
_ROPE = ("rotary embedding as one node has no engine here", "write it as pointwise operations")

UNSUPPORTED: dict[D, tuple[str, str]] = {
    D.KERNEL_CACHE: ("kernels are shape-generic and cached by the library", "leave it out; nothing is compiled twice"),
    D.OPERATION_SIGNAL: ("flags between GPUs have no meaning on one device", "synchronize between executions"),
    D.OPERATION_PAGED_CACHE_LOAD: _ATTENTION,
    D.OPERATION_SDPA_FWD: _ATTENTION,
    D.OPERATION_SDPA_BWD: _ATTENTION,
    D.OPERATION_DIAGONAL_BAND_MASK: _ATTENTION,
    D.OPERATION_SOFTMAX: (
        "softmax as one node has no engine here",
        "write it as MAX reduction, SUB, EXP, ADD reduction and DIV",
    ),
    D.OPERATION_BLOCK_SCALE_QUANTIZE: _BLOCK_SCALE,
    D.OPERATION_BLOCK_SCALE_DEQUANTIZE: _BLOCK_SCALE,
    D.OPERATION_EXPAND_BAND_MATRIX: _BAND,
    D.OPERATION_CONTRACT_BAND_MATRIX: _BAND,
    D.OPERATION_MOE_GROUPED_MATMUL: _ROUTING,
    D.OPERATION_MOE_GROUPED_MATMUL_BWD: _ROUTING,
    D.OPERATION_ROPE_FWD: _ROPE,
    D.OPERATION_ROPE_BWD: _ROPE,
}
assert KINDS.keys() | UNSUPPORTED.keys() == set(D)

"""EXECUTION_PLAN and VARIANT_PACK, and running one with the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar
from weakref import WeakKeyDictionary

from pydantic import InstanceOf

from graphdnn.attribute_names import AttributeName as A
from graphdnn.backend.config_descriptor import Config, config_for
from graphdnn.backend.data_pointers import Pointer, binding_of, workspace_of
from graphdnn.backend.descriptor_spec import MANY, DescriptorSpec, answer
from graphdnn.backend.device_descriptor import DeviceProp, named_device
from graphdnn.backend.engine_descriptor import EngineSettings, build_engine
from graphdnn.backend.graph_descriptor import graph_of
from graphdnn.backend.handle import Handle
from graphdnn.backend.rules import EXECUTE_FAILED, EXECUTE_STREAM, PLAN_SOURCE
from graphdnn.checks import Equals, LengthIn
from graphdnn.enums import AttributeType as T
from graphdnn.enums import DescriptorType, Status
from graphdnn.errors import BadParam, ExecutionFailed, GraphdnnError, MalformedFile, error_for
from graphdnn.files import NEWER as OTHER_VERSION
from graphdnn.files import plan_from_json, plan_to_json
from graphdnn.plan import ExecutionPlan
from graphdnn.rules import Constraint
from graphdnn.spec import Int64s, Refused, attr, attribute_label

_NO_INTERMEDIATES = "values between kernels live in the workspace and have no life of their own"
_NO_OVERRIDE = "a plan is for one set of extents"
_ONE_PLAN = "build a plan for each set of extents"


class PlanSettings(DescriptorSpec):
    """A configuration to make executable, or a plan as text."""

    descriptor = DescriptorType.EXECUTION_PLAN
    refused = (
        Refused(A.EXECUTION_PLAN_COMPUTED_INTERMEDIATE_UIDS, (T.INT64,), _NO_INTERMEDIATES),
        Refused(A.EXECUTION_PLAN_RUN_ONLY_INTERMEDIATE_UIDS, (T.INT64,), _NO_INTERMEDIATES),
        Refused(
            A.EXECUTION_PLAN_KERNEL_CACHE, (T.BACKEND_DESCRIPTOR,),
            "compiled kernels are shape-generic and cached by the library, for all plans at once",
        ),
        Refused(
            A.EXECUTION_PLAN_CUDA_GRAPH_RETENTION, (T.CUDA_GRAPH_RETENTION,),
            "a recorded graph is kept alive by whoever captures the stream; ExecutionPlan.capture keeps its plan",
        ),
    )  # fmt: skip
    answers = (answer(A.EXECUTION_PLAN_WORKSPACE_SIZE, T.INT64, "bytes of workspace", lambda p: p.plan.workspace_size),)

    handle: Annotated[
        InstanceOf[Handle] | None, attr(A.EXECUTION_PLAN_HANDLE, T.HANDLE, "a handle", "what cudnnCreate returned")
    ] = None
    engine_config: Annotated[
        InstanceOf[Config] | None,
        attr(A.EXECUTION_PLAN_ENGINE_CONFIG, T.BACKEND_DESCRIPTOR, "a configuration", "give a finalized ENGINECFG"),
    ] = None
    json_text: Annotated[
        str | None,
        attr(A.EXECUTION_PLAN_JSON_REPRESENTATION, T.CHAR, "a plan as JSON", "what a plan's get returned", (1, MANY)),
    ] = None
    deviceprop: Annotated[
        InstanceOf[DeviceProp] | None,
        attr(A.EXECUTION_PLAN_DEVICEPROP, T.BACKEND_DESCRIPTOR, "a device", "give a finalized DEVICEPROP"),
    ] = None


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Content of a finalized EXECUTION_PLAN."""

    descriptor: ClassVar[DescriptorType] = DescriptorType.EXECUTION_PLAN
    settings: PlanSettings
    config: Config
    plan: ExecutionPlan

    @property
    def text(self) -> str:
        return plan_to_json(self.plan)


def build_plan(settings: PlanSettings) -> Plan:
    where, text, config = "EXECUTION_PLAN", settings.json_text, settings.engine_config
    if (config is None) == (text is None):
        label = ", ".join(attribute_label(PlanSettings, f) for f in ("engine_config", "json_text"))
        raise BadParam(PLAN_SOURCE.reject(where, label, "none" if config is None else "both"))
    if config is not None:
        named_device(where, settings.handle, settings.deviceprop, config.settings.engine.whole_device)
        return Plan(settings, config, ExecutionPlan(config.config))
    assert text is not None
    try:
        plan = plan_from_json(text, named_device(where, settings.handle, settings.deviceprop))
    except MalformedFile as error:
        if error.rejections[0].rule != OTHER_VERSION.id:
            raise
        # C has a code of its own for text of another version.
        status = Status.SERIALIZATION_VERSION_MISMATCH
        raise error_for(replace(r, status=status) for r in error.rejections) from error
    return Plan(settings, _config_of(plan, settings.handle), plan)


def _config_of(plan: ExecutionPlan, handle: Handle | None) -> Config:
    """The configuration of a plan that was read from text, as if it had been made by hand."""
    config = plan.config
    settings = EngineSettings(
        operation_graph=graph_of(config.fused, handle),
        global_index=config.engine_id,
        deviceprop=DeviceProp.of(config.device),
    )
    return config_for(build_engine(settings, also=(config,)), config)


class VariantPack(DescriptorSpec):
    """What each uid is bound to in an execution."""

    descriptor = DescriptorType.VARIANT_PACK
    constraints: ClassVar[tuple[tuple[Constraint, ...], ...]] = (
        (
            Constraint(
                id="variant_pack.length",
                attribute="data_pointers",
                look=lambda v: v.data_pointers,
                check=lambda v: LengthIn(len(v.unique_ids), len(v.unique_ids)),
                reason="uids and pointers are parallel lists",
                fix="give one pointer for each uid",
            ),
            Constraint(
                id="variant_pack.duplicate",
                attribute="unique_ids",
                look=lambda v: v.unique_ids,
                check=Equals("each uid once"),
                when=lambda v: len(set(v.unique_ids)) < len(v.unique_ids),
                reason="a uid is one tensor, bound once",
                fix="drop one of the two entries",
                status=Status.BAD_PARAM_DUPLICATED_ENTRIES,
            ),
            Constraint(
                id="variant_pack.pointer.null",
                attribute="data_pointers",
                look=lambda v: v.data_pointers,
                check=Equals("no null pointer"),
                when=lambda v: any(p.is_null for p in v.data_pointers),
                reason="every tensor that is named needs memory",
                fix="allocate it, or leave the uid out",
                status=Status.BAD_PARAM_NULL_POINTER,
            ),
        ),
    )
    refused = (
        Refused(A.VARIANT_PACK_INTERMEDIATES, (T.VOID_PTR,), _NO_INTERMEDIATES),
        Refused(A.VARIANT_PACK_OVERRIDE_UNIQUE_IDS, (T.INT64,), _NO_OVERRIDE, _ONE_PLAN),
        Refused(A.VARIANT_PACK_OVERRIDE_SHAPES, (T.VOID_PTR,), _NO_OVERRIDE, _ONE_PLAN),
        Refused(A.VARIANT_PACK_OVERRIDE_STRIDES, (T.VOID_PTR,), _NO_OVERRIDE, _ONE_PLAN),
    )

    unique_ids: Annotated[Int64s, attr(A.VARIANT_PACK_UNIQUE_IDS, T.INT64, "tensor uids", "one per pointer", (0, MANY))]
    data_pointers: Annotated[
        tuple[InstanceOf[Pointer], ...],
        attr(A.VARIANT_PACK_DATA_POINTERS, T.VOID_PTR, "addresses or arrays", "one per uid", (0, MANY)),
    ]
    workspace: Annotated[
        InstanceOf[Pointer],
        attr(A.VARIANT_PACK_WORKSPACE, T.VOID_PTR, "scratch memory", "WORKSPACE_SIZE bytes, null for 0"),
    ] = Pointer(None, 0)


@dataclass(frozen=True, slots=True, eq=False)
class Pack:
    """Content of a finalized VARIANT_PACK. Views on raw memory are made once for each plan."""

    descriptor: ClassVar[DescriptorType] = DescriptorType.VARIANT_PACK
    settings: VariantPack
    _views: WeakKeyDictionary[ExecutionPlan, tuple[Mapping[int, Any], Any]] = field(default_factory=WeakKeyDictionary)

    def bindings(self, plan: ExecutionPlan) -> tuple[Mapping[int, Any], Any]:
        """Bindings and workspace for ``plan.execute``."""
        found = self._views.get(plan)
        if found is None:
            found = self._views[plan] = self._bind(plan)
        return found

    def _bind(self, plan: ExecutionPlan) -> tuple[Mapping[int, Any], Any]:
        specs = {t.uid: t for t in plan.config.fused.graph.bound}
        on_device = plan.config.device.kind != "cpu"
        pairs = zip(self.settings.unique_ids, self.settings.data_pointers, strict=True)
        # An unknown uid has no extents to view its memory with; execute refuses it by name.
        written = plan.config.fused.graph.producer
        arrays = {
            uid: binding_of(p, specs[uid], is_output=uid in written, on_device=on_device) if uid in specs else p.given
            for uid, p in pairs
        }
        return arrays, workspace_of(self.settings.workspace, plan.workspace_size, on_device=on_device)


def run(handle: Handle, plan: Plan, pack: Pack) -> None:
    """Execute: on the host at once, on a device in the handle's stream."""
    if handle.stream and plan.plan.config.device.kind == "cpu":
        raise BadParam(EXECUTE_STREAM.reject("cudnnBackendExecute", "handle", handle))
    bindings, workspace = pack.bindings(plan.plan)
    try:
        plan.plan.execute(bindings, workspace, handle.stream)
    except GraphdnnError:
        raise
    except Exception as error:
        detail = f"{type(error).__name__}: {error}"
        raise ExecutionFailed(
            EXECUTE_FAILED.reject("cudnnBackendExecute", plan.plan.name, detail, detail=detail)
        ) from error

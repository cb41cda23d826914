"""ENGINECFG and KNOB_CHOICE: an engine with decided knobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import InstanceOf

from graphdnn.attribute_names import AttributeName as A
from graphdnn.backend.descriptor_spec import MANY, DescriptorSpec, answer
from graphdnn.backend.engine_descriptor import GraphEngine
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.enums import AttributeType as T
from graphdnn.enums import DescriptorType, KnobType
from graphdnn.errors import raise_if
from graphdnn.heuristics import EngineConfig
from graphdnn.heuristics.composed import identity
from graphdnn.spec import Int64, attr


class KnobChoice(DescriptorSpec):
    """A value for a knob; whether the engine has them is checked by the configuration."""

    descriptor = DescriptorType.KNOB_CHOICE

    knob_type: Annotated[KnobType, attr(A.KNOB_CHOICE_KNOB_TYPE, T.KNOB_TYPE, "a knob", "one of the engine's knobs")]
    knob_value: Annotated[Int64, attr(A.KNOB_CHOICE_KNOB_VALUE, T.INT64, "a legal value", "see KNOB_INFO")]


class ConfigSettings(DescriptorSpec):
    """An engine and the knobs that leave their defaults."""

    descriptor = DescriptorType.ENGINECFG
    answers = (
        answer(
            A.ENGINECFG_INTERMEDIATE_INFO, T.BACKEND_DESCRIPTOR, "reusable intermediates: none", lambda c: (),
            (DescriptorType.INTERMEDIATE_INFO,), (0, MANY),
        ),
        answer(
            A.ENGINECFG_WORKSPACE_SIZE, T.INT64, "bytes of workspace", lambda c: c.config.workspace_size
        ),
        answer(
            A.ENGINECFG_SHARED_MEMORY_USED, T.INT32, "bytes of shared memory", lambda c: shared_memory(c.config)
        ),
    )  # fmt: skip

    engine: Annotated[
        InstanceOf[GraphEngine], attr(A.ENGINECFG_ENGINE, T.BACKEND_DESCRIPTOR, "an engine", "give a finalized one")
    ]
    knob_choices: Annotated[
        tuple[KnobChoice, ...],
        attr(A.ENGINECFG_KNOB_CHOICES, T.BACKEND_DESCRIPTOR, "knob choices", "none for the defaults", (0, MANY)),
    ] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Config:
    """Content of a finalized ENGINECFG."""

    descriptor: ClassVar[DescriptorType] = DescriptorType.ENGINECFG
    settings: ConfigSettings
    config: EngineConfig

    def __repr__(self) -> str:
        return f"configuration {self.config.name}"


def build_config(settings: ConfigSettings) -> Config:
    chosen = [(choice.knob_type, choice.knob_value) for choice in settings.knob_choices]
    raise_if(settings.engine.row.knob_problems(chosen))
    return Config(settings, settings.engine.indexed.configured(dict(chosen)))


def config_for(engine: GraphEngine, config: EngineConfig) -> Config:
    """The content for a configuration that was decided elsewhere, every knob spelled out."""
    composed = engine.indexed.composed
    if composed:
        knobs = {KnobType.KERNEL_CFG: [identity(c) for c in composed].index(identity(config))}
    else:
        knobs = dict(config.choices[0].knobs)
    choices = tuple(KnobChoice(knob_type=kind, knob_value=value) for kind, value in knobs.items())
    return Config(ConfigSettings(engine=engine, knob_choices=choices), config)


def shared_memory(config: EngineConfig) -> int:
    """The most that a block of any kernel takes: what the compiler gives it and what its launch adds. 0 on the host.

    Kernels that were never compiled are compiled for that, into the cache, where a plan finds them.
    """
    kernels = (choice.engine.compile(choice.task, choice.knobs) for choice in config.choices)
    steps = (step for kernel in kernels if isinstance(kernel, DeviceKernel) for step in kernel.steps)
    return max((_shared_by(step, config.device) for step in steps if isinstance(step, Launch)), default=0)


def _shared_by(launch: Launch, device: DeviceSpec) -> int:
    from graphdnn.cuda.kernel_cache import default_cache
    from graphdnn.cuda.nvrtc import arch_of, resources

    cached = default_cache().load(launch.text, arch_of(device.compute_capability, device.name))
    found = resources(cached.log).get(launch.entry)
    return launch.shared + (0 if found is None else found.shared)

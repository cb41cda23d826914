"""Plans and devices as files.

A plan file holds the graph, the device and, for each fused operation, the engine and its knobs; kernels are never
stored, they are rebuilt from the library's own text. It carries a hash of its content, so an altered byte cannot pass.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from graphdnn.device.profiles import DeviceSpec, device_from_json
from graphdnn.device_selection import device_spec
from graphdnn.engines import ENGINE_BY_NAME, Task
from graphdnn.enums import KnobType
from graphdnn.errors import MalformedFile, Rejection, error_for
from graphdnn.files.graph_files import graph_from_dict, graph_to_dict
from graphdnn.files.json_documents import CONTENT, VERSION, digest_of, guarded, malformed, parse_document
from graphdnn.fusion import fuse
from graphdnn.fusion.limits import limits_from_json
from graphdnn.heuristics import Choice, EngineConfig
from graphdnn.plan import ExecutionPlan

PLAN_FORMAT, DEVICE_FORMAT = "graphdnn.plan", "graphdnn.device"


def plan_to_json(plan: ExecutionPlan) -> str:
    """Write a plan as JSON text: its graph, its device, its engines and knobs, and a hash. Kernels are not stored.

    Args:
        plan: The plan.

    Returns:
        The text of a plan file.
    """
    config = plan.config
    content = {
        "format": PLAN_FORMAT,
        "version": VERSION,
        "graph": graph_to_dict(config.fused.graph),
        "device": config.device.to_json(),
        "choices": choices_to_json(config),
        **({"limits": config.fused.limits.to_json()} if config.fused.limits else {}),
    }
    return json.dumps({**content, "sha256": digest_of(content)}, indent=1)


def plan_from_json(text: str | bytes, device: DeviceSpec | str | None = None) -> ExecutionPlan:
    """Rebuild a plan from JSON text.

    Args:
        text: The text of a plan file.
        device: Another device than the one in the file: a profile or its name.

    Returns:
        The plan, compiled.

    Raises:
        MalformedFile: The file is damaged, or this version fuses the graph differently.
        NotSupported: An engine of the plan declines the device.
    """
    config = config_from_json(text, None if device is None else device_spec(device))
    refused = refusals_of(config)
    if refused:
        raise error_for(refused)
    return ExecutionPlan(config)


def config_from_json(text: str | bytes, device: DeviceSpec | None = None) -> EngineConfig:
    """A plan file's engines and knobs. Nothing is compiled, and no engine is asked whether it serves the device."""
    return guarded(lambda: config_from_dict(parse_document(text, PLAN_FORMAT, sealed=True), device))


def refusals_of(config: EngineConfig) -> list[Rejection]:
    """Why engines of a configuration decline its device, or have no kernel with the values of its knobs."""
    return [
        r
        for choice in config.choices
        for r in choice.engine.why_not(choice.task) or choice.engine.unavailable_knobs(choice.task, choice.knobs)
    ]


def spec_to_json(device: DeviceSpec) -> str:
    """A device as the cost models know it, for those who do not have it."""
    return json.dumps({"format": DEVICE_FORMAT, "version": VERSION, "device": device.to_json()}, indent=1)


def spec_from_json(text: str | bytes) -> DeviceSpec:
    """Raises ``MalformedFile`` for anything that is not a device."""
    return guarded(lambda: device_from_json(parse_document(text, DEVICE_FORMAT)["device"]))


def choices_to_json(config: EngineConfig) -> list[dict[str, Any]]:
    """The engine and the knobs of each kernel."""
    return [
        {
            "operation": choice.task.op.name,
            "engine": choice.engine.name,
            "engine_id": choice.engine.id,
            "knobs": {kind.c_name: value for kind, value in sorted(choice.knobs.items())},
        }
        for choice in config.choices
    ]


def config_from_dict(data: Mapping[str, Any], device: DeviceSpec | None) -> EngineConfig:
    """From the entries graph, device, choices and, where there are any, limits; to be called inside ``guarded``."""
    graph = graph_from_dict(data["graph"])
    target = device or device_from_json(data["device"])
    fused = fuse(graph, limits_from_json(data.get("limits", {})))
    if len(data["choices"]) != len(fused):
        raise malformed(
            CONTENT, "choices", len(data["choices"]), expected=f"{len(fused)} choices",
            detail="the graph is fused differently by this version",
        )  # fmt: skip
    choices = []
    for op, entry in zip(fused, data["choices"], strict=True):
        if entry["engine"] not in ENGINE_BY_NAME or entry["operation"] != op.name:
            raise malformed(
                CONTENT, "choices", f"{entry['engine']} for {entry['operation']}",
                expected=f"a known engine for {op.name}", detail="unknown engine or other fusion",
            )  # fmt: skip
        engine = ENGINE_BY_NAME[entry["engine"]]
        chosen = [(KnobType.from_c_name(kind), int(value)) for kind, value in entry["knobs"].items()]
        problems = engine.knob_problems([(KnobType(k), v) for k, v in chosen])
        if problems:
            raise MalformedFile(problems)
        task, settings = Task(op, target), engine.settings({KnobType(k): v for k, v in chosen})
        # Earlier versions wrote values that gave way to the values that were launched: these are read in their place.
        choices.append(Choice(task, engine, engine.named_settings(task, settings) if engine.serves(task) else settings))
    return EngineConfig(fused, target, tuple(choices))

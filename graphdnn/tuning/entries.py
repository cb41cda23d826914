"""A configuration as the processes of a tuning tell each other of it: the entries of a plan file."""

from __future__ import annotations

from typing import Any

from graphdnn.files import choices_of, graph_to_dict
from graphdnn.heuristics import EngineConfig


def entries_of_config(config: EngineConfig) -> dict[str, Any]:
    limits = config.fused.limits
    return {
        "graph": graph_to_dict(config.fused.graph),
        "device": config.device.to_json(),
        "choices": choices_of(config),
        **({"limits": limits.to_json()} if limits else {}),
    }

"""Heuristics: which engine computes each fused operation, best first, and why the others do not."""

from graphdnn.heuristics.engine_config import COMPOSED_ID, COMPOSED_NAME, Choice, Declined, EngineConfig
from graphdnn.heuristics.filters import ASKED_FOR, Filters
from graphdnn.heuristics.ranking import Ranking, mode_of
from graphdnn.heuristics.workspace_layout import WORKSPACE_ALIGNMENT, materialized_bytes, materialized_slots

__all__ = [
    "ASKED_FOR", "COMPOSED_ID", "COMPOSED_NAME", "WORKSPACE_ALIGNMENT", "Choice", "Declined", "EngineConfig",
    "Filters", "Ranking", "materialized_bytes", "materialized_slots", "mode_of",
]  # fmt: skip

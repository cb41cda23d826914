"""Reducing: a smaller graph that still fails, by trying what could be left out."""

from graphdnn.reducer.delta_debugging import Reduced, Step, reduce
from graphdnn.reducer.failure_predicates import Failure, by_command, by_rule, by_symptom, symptom_of
from graphdnn.reducer.invalid_graphs import draft_of, draft_to_json, reduce_refused

__all__ = [
    "Failure",
    "Reduced",
    "Step",
    "by_command",
    "by_rule",
    "by_symptom",
    "draft_of",
    "draft_to_json",
    "reduce",
    "reduce_refused",
    "symptom_of",
]

"""Reducing: a smaller graph that still fails, by trying what could be left out."""

from graphdnn.reducing.refused import draft_of, draft_to_json, reduce_refused
from graphdnn.reducing.search import Reduced, Step, reduce
from graphdnn.reducing.symptoms import Symptom, by_command, by_rule, by_symptom, symptom_of

__all__ = [
    "Reduced",
    "Step",
    "Symptom",
    "by_command",
    "by_rule",
    "by_symptom",
    "draft_of",
    "draft_to_json",
    "reduce",
    "reduce_refused",
    "symptom_of",
]

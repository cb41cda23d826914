"""Reducing: a smaller graph that still fails, by trying what could be left out."""

from graphdnn.reducing.search import Reduced, Step, reduce
from graphdnn.reducing.symptoms import Symptom, by_command, by_rule, by_symptom, symptom_of

__all__ = ["Reduced", "Step", "Symptom", "by_command", "by_rule", "by_symptom", "reduce", "symptom_of"]

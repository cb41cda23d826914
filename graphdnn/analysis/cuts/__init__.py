"""Cut points: where a graph could be handed to other kernels, and whether that would be faster.

A framework has kernels of its own. Should this library compute the whole graph, or a part of it? ``cuts_of`` looks at
every place between two parts, says what each part takes, and gives both as graphs that can be built.
"""

from graphdnn.analysis.cuts.cut import Cut, Cuts, RunCost, Side, Verdict
from graphdnn.analysis.cuts.evaluate import cuts_of, of_plan

__all__ = ["Cut", "Cuts", "RunCost", "Side", "Verdict", "cuts_of", "of_plan"]

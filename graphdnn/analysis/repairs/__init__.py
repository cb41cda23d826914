"""Repairs: the smallest edits that would be accepted, for what was refused, each tried before it is suggested."""

from graphdnn.analysis.repairs.edit import Row
from graphdnn.analysis.repairs.edit_table import EDITS
from graphdnn.analysis.repairs.entry_points import of_data, of_draft, of_error, of_graph, of_plan
from graphdnn.analysis.repairs.graph_draft import Draft
from graphdnn.analysis.repairs.repair import FORMAT, VERSION, Repair, Repairs

__all__ = [
    "EDITS",
    "FORMAT",
    "VERSION",
    "Draft",
    "Repair",
    "Repairs",
    "Row",
    "of_data",
    "of_draft",
    "of_error",
    "of_graph",
    "of_plan",
]

"""Repairs: the smallest edits that would be accepted, for what was refused, each tried before it is suggested."""

from graphdnn.repairs.draft import Draft
from graphdnn.repairs.edit import Row
from graphdnn.repairs.repair import FORMAT, VERSION, Repair, Repairs
from graphdnn.repairs.sources import of_data, of_draft, of_error, of_graph, of_plan
from graphdnn.repairs.table import EDITS

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

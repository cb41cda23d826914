"""The ledger: every edge left unfused, every engine, knob, chain and value that was refused, as one kind of record."""

from graphdnn.analysis.diagnostics.collectors import of_error, of_fused, of_plan, of_ranking
from graphdnn.analysis.diagnostics.diagnostic import ENTRY_FIELDS, KINDS, LEDGER_FIELDS, SUBJECT_FIELDS, Entry, Subject
from graphdnn.analysis.diagnostics.diagnostic_list import FORMAT, VERSION, Ledger
from graphdnn.analysis.diagnostics.query_validation import check_places

__all__ = [
    "ENTRY_FIELDS",
    "FORMAT",
    "KINDS",
    "LEDGER_FIELDS",
    "SUBJECT_FIELDS",
    "VERSION",
    "Entry",
    "Ledger",
    "Subject",
    "check_places",
    "of_error",
    "of_fused",
    "of_plan",
    "of_ranking",
]

"""The ledger: every edge left unfused, every engine, knob, chain and value that was refused, as one kind of record."""

from graphdnn.analysis.diagnostics.collectors import of_error, of_fused, of_plan, of_ranking
from graphdnn.analysis.diagnostics.diagnostic import (
    ENTRY_FIELDS,
    KINDS,
    LEDGER_FIELDS,
    SUBJECT_FIELDS,
    Diagnostic,
    Subject,
)
from graphdnn.analysis.diagnostics.diagnostic_list import FORMAT, VERSION, DiagnosticList
from graphdnn.analysis.diagnostics.query_validation import check_places

Entry, Ledger = Diagnostic, DiagnosticList  # earlier names, which callers import

__all__ = [
    "ENTRY_FIELDS",
    "FORMAT",
    "KINDS",
    "LEDGER_FIELDS",
    "SUBJECT_FIELDS",
    "VERSION",
    "Diagnostic",
    "DiagnosticList",
    "Entry",
    "Ledger",
    "Subject",
    "check_places",
    "of_error",
    "of_fused",
    "of_plan",
    "of_ranking",
]

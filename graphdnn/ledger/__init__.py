"""The ledger: every edge left unfused, every engine, knob, chain and value that was refused, as one kind of record."""

from graphdnn.ledger.entry import ENTRY_FIELDS, KINDS, LEDGER_FIELDS, SUBJECT_FIELDS, Entry, Subject
from graphdnn.ledger.ledger import FORMAT, VERSION, Ledger
from graphdnn.ledger.names import check_places
from graphdnn.ledger.sources import of_error, of_fused, of_plan, of_ranking

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

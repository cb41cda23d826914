"""Entry: one thing that was refused, in one form whoever refused it.

Validation and engines keep ``Rejection`` records, the fusion pass keeps ``Stop`` records. A ledger brings
both into entries: which rule, about what, what was found, what was required, why, and what to do instead.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphdnn.enums import Status
from graphdnn.errors import NO_ENGINE, NOTHING_TO_DO

# What an entry is about, and what the word stands for in the documentation.
KINDS: dict[str, str] = {
    "edge": "two operations that stayed in kernels of their own",
    "pattern": "a chain of operations that did not become one kernel, or an engine for another kind of operation",
    "engine": "an engine that could not serve a fused operation",
    "filter": "an engine that serves it and that notes, determinism, workspace or its name excluded",
    "knob": "a knob, or knob values of an engine that serves it with others",
    "value": "a value of a descriptor, a graph, a file or a call",
}


@dataclass(frozen=True, slots=True)
class Subject:
    """What was refused: the fused operation, its operations and tensors, where they were created, the engine."""

    text: str  # one line
    fused: int | None = None  # index of the fused operation; of an edge, the consumer's
    operations: tuple[str, ...] = ()  # labels
    uids: tuple[int, ...] = ()
    origins: tuple[str, ...] = ()  # "model.py:12", where an operation was created; empty where nobody knows
    engine: str = ""
    engine_id: int | None = None

    def to_json(self) -> dict[str, object]:
        return {
            "text": self.text,
            "fused": self.fused,
            "operations": list(self.operations),
            "uids": list(self.uids),
            "origins": list(self.origins),
            "engine": self.engine,
            "engine_id": self.engine_id,
        }


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One refusal. ``status`` is what a call would return for it; an edge fails nothing and has SUCCESS."""

    rule: str
    kind: str
    subject: Subject
    attribute: str
    actual: str
    required: str
    reason: str
    fix: str
    status: Status

    @property
    def documented(self) -> str:
        """Where the rule is described."""
        return f"docs/errors.md#{self.rule.split('.')[0]}"

    @property
    def is_final(self) -> bool:
        """Whether the fix requests no edit of the problem: it begins with "nothing to do"."""
        return self.fix.startswith(NOTHING_TO_DO)

    @property
    def is_unserved(self) -> bool:
        """Whether no engine serves the operation, and the engine's own fix names no edit."""
        return self.fix.startswith(NO_ENGINE)

    def __str__(self) -> str:
        created = ", ".join(origin for origin in self.subject.origins if origin)
        return (
            f"{self.kind} {self.subject.text}{f' ({created})' if created else ''}\n"
            f"  found     {self.attribute} = {self.actual}\n"
            f"  required  {self.required}\n"
            f"  why       {self.reason}\n"
            f"  fix       {self.fix}\n"
            f"  rule      {self.rule}, {self.documented}"
        )

    def to_json(self) -> dict[str, object]:
        return {
            "rule": self.rule,
            "kind": self.kind,
            "subject": self.subject.to_json(),
            "attribute": self.attribute,
            "actual": self.actual,
            "required": self.required,
            "reason": self.reason,
            "fix": self.fix,
            "status": self.status.c_name,
            "code": int(self.status),
            "documented": self.documented,
        }


# The fields of an entry in a file: name, type, meaning. The documentation and the test of the format read it.
ENTRY_FIELDS: tuple[tuple[str, str, str], ...] = (
    ("rule", "string", "stable id of the rule, never used again for another one"),
    ("kind", "string", "one of " + ", ".join(KINDS)),
    ("subject", "object", "what was refused; its fields are below"),
    ("attribute", "string", "what the rule looked at"),
    ("actual", "string", "what was found there"),
    ("required", "string", "what the rule asks for"),
    ("reason", "string", "why"),
    ("fix", "string", "what to do instead"),
    ("status", "string", "the C name of the status a call returns for it; CUDNN_STATUS_SUCCESS for an edge"),
    ("code", "integer", "the same as a number"),
    ("documented", "string", "page and section, from the root of the repository"),
)
SUBJECT_FIELDS: tuple[tuple[str, str, str], ...] = (
    ("text", "string", "the subject in one line"),
    ("fused", "integer or null", "index of the fused operation; of an edge, the consumer's"),
    ("operations", "array of string", "labels of the operations, in execution order"),
    ("uids", "array of integer", "the tensors it is about"),
    ("origins", "array of string", "where each operation was created, empty where unknown"),
    ("engine", "string", "name of the engine, or empty"),
    ("engine_id", "integer or null", "its id, never used again"),
)
LEDGER_FIELDS: tuple[tuple[str, str, str], ...] = (
    ("format", "string", "graphdnn.ledger"),
    ("version", "integer", "1; another number means that the fields have another meaning"),
    ("entries", "array of object", "one for each refusal"),
)

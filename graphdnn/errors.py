"""Rejections and the exceptions that carry them: the only place where an error becomes text.

A refusal is a value first. Validation, engines, the fusion pass and the loaders
all produce ``Rejection`` records; an exception is raised once, with every record
that applies, so a caller sees all problems of a descriptor or a graph together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from graphdnn.enums import Status, shown
from graphdnn.escaped import escaped, escaped_lines
from graphdnn.hooks import call_hook

_LONGEST_VALUE = 160
# Beginnings of fixes
NOTHING_TO_DO = "nothing to do"  # another engine serves the operation, or the refusal is no disadvantage
NO_ENGINE = "no engine serves the operation"


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why something was refused, and what would be accepted."""

    rule: str  # stable id, e.g. "conv.y.extents"; documented in docs/errors.md
    where: str  # what was being checked, e.g. "conv_fprop 'conv1' (model.py:12)"
    attribute: str  # e.g. "y.dims", with the C name where the attribute has one
    value: object  # what was given
    expected: str
    reason: str
    fix: str
    status: Status

    @property
    def shown_value(self) -> str:
        """The value as text, cut to 160 characters."""
        value = self.value
        text = escaped(value if isinstance(value, str) else shown(value))
        return text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + "..."

    def without_other_engine(self) -> Rejection:
        """The rejection by an engine if no other engine serves the operation: the fix names the attribute."""
        if not self.fix.startswith(NOTHING_TO_DO):
            return self
        fix = f"{NO_ENGINE}: give {self.attribute} an expected value, or follow the fix of another engine"
        return replace(self, fix=fix)

    def __str__(self) -> str:
        return (
            f"{escaped(self.where)}: {escaped(self.attribute)} = {self.shown_value}, "
            f"expected {escaped_lines(self.expected)}\n"
            f"  why: {escaped_lines(self.reason)}\n"
            f"  fix: {escaped_lines(self.fix)}   [{self.rule}, {self.status.c_name}]"
        )

    def to_json(self) -> dict[str, object]:
        """Plain data with the fields of the rejection and the number of its status."""
        return {
            "rule": self.rule,
            "where": self.where,
            "attribute": self.attribute,
            "value": self.shown_value,
            "expected": self.expected,
            "reason": self.reason,
            "fix": self.fix,
            "status": self.status.c_name,
            "code": int(self.status),
        }


class GraphdnnError(Exception):
    """Base of every error of the library. ``rejections`` lists the reasons.

    Args:
        rejections: One rejection or several.
    """

    def __init__(self, rejections: Sequence[Rejection] | Rejection) -> None:
        self.rejections = (rejections,) if isinstance(rejections, Rejection) else tuple(rejections)
        self.subject: object = None  # what was refused, where more is known than the rejections say: a ranking, a spec
        super().__init__("\n".join(map(str, self.rejections)))

    @property
    def status(self) -> Status:
        """The cuDNN status of the first rejection."""
        return self.rejections[0].status

    @property
    def ledger(self) -> Any:
        """The refusals as a ``DiagnosticList``."""
        return call_hook("error.ledger", self)

    def repairs(self, device: Any = None) -> Any:
        """Edits that make the refused graph or operation legal. Each edit was tried.

        Args:
            device: The device on which the edited graph is ranked: a profile, its name, or None for the default
                device.

        Returns:
            The repairs, smallest first; none if the error is not about a graph or an operation.
        """
        return call_hook("error.repairs", self, device)

    @property
    def repeat(self) -> str:
        """The command that repeats the refusal or the failure. It is empty if the error knows no plan and no graph."""
        return str(call_hook("error.repeat", self))

    def __reduce__(self) -> tuple[type[GraphdnnError], tuple[tuple[Rejection, ...]]]:
        return type(self), (self.rejections,)


class NotInitialized(GraphdnnError):
    """An object is in the wrong state for the call, or comes from another version (statuses 1xxx)."""


class BadParam(GraphdnnError, ValueError):
    """A value is invalid or contradicts another one (statuses 2xxx)."""


class NotSupported(GraphdnnError):
    """A request is valid, and nothing here serves it (statuses 3xxx)."""


class InternalError(GraphdnnError):
    """Compilation or allocation failed (4xxx)."""


class ExecutionFailed(GraphdnnError):
    """A plan failed while it ran (statuses 5xxx). The text ends in the command that repeats the failure."""

    def __str__(self) -> str:
        repeat = ""
        with suppress(Exception):  # an error's text is there in any case
            repeat = "" if self.subject is None else self.repeat
        return super().__str__() + (f"\n  repeat: {repeat}" if repeat else "")


class MalformedFile(GraphdnnError, ValueError):
    """A plan, graph or device file cannot be used: it is truncated, altered, newer, too deep or too large."""


_FAMILIES: dict[int, type[GraphdnnError]] = {
    1: NotInitialized,
    2: BadParam,
    3: NotSupported,
    4: InternalError,
    5: ExecutionFailed,
}


def error_for(rejections: Iterable[Rejection], subject: object = None) -> GraphdnnError:
    """The exception of the first rejection's status family, carrying all of them, and what was refused."""
    found = tuple(rejections)
    error = _FAMILIES[int(found[0].status) // 1000](found)
    error.subject = subject
    return error


def raise_if(rejections: Iterable[Rejection], subject: object = None) -> None:
    """Raise one error with every rejection, or return when there is none."""
    found = tuple(rejections)
    if found:
        raise error_for(found, subject)

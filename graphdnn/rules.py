"""Rules: every reason the library can give for a refusal, as rows of one table.

A ``Rule`` is the row: id, why, what to do, status. A ``Constraint`` is a rule that
can also evaluate itself: what it looks at and the check that value must pass.
Operations, tensors, fusion and engines state their limits as constraints, so
the verdict, the message, the support matrix and the error catalogue come from
the same rows. A rule enters ``RULES`` when it is created; ids are never reused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from graphdnn.checks import Check
from graphdnn.enums import Status
from graphdnn.errors import Rejection

RULES: dict[str, Rule] = {}


@dataclass(frozen=True, kw_only=True, eq=False)
class Rule:
    """One reason for refusing something. Texts may hold ``{placeholders}`` filled when it is raised."""

    id: str
    reason: str
    fix: str
    expected: str = ""
    status: Status = Status.BAD_PARAM

    def __post_init__(self) -> None:
        before = RULES.get(self.id)
        # The same row again is that of a module whose first import was interrupted, by Ctrl-C for instance.
        assert before is None or before._words == self._words, f"rule id {self.id} is taken"
        RULES[self.id] = self

    @property
    def _words(self) -> tuple[object, ...]:
        return self.reason, self.fix, self.expected, self.status

    def reject(
        self, where: str, attribute: str, value: object, *, status: Status | None = None, **words: object
    ) -> Rejection:
        """The rejection of ``value``; ``words`` fill the placeholders of the texts."""
        return Rejection(
            rule=self.id,
            where=where,
            attribute=attribute,
            value=value,
            expected=self.expected.format(**words),
            reason=self.reason.format(**words),
            fix=self.fix.format(**words),
            status=self.status if status is None else status,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Constraint(Rule):
    """A rule that checks itself: ``look`` picks the value, ``check`` judges it.

    ``attribute`` names it, or is a function of the subject that does (dx or x, by direction).
    ``check`` is a ``Check``, or a function of the subject that returns one; ``None``
    from that function (or from ``when``) means that the rule does not apply.
    """

    attribute: str | Callable[[Any], str]
    look: Callable[[Any], object]
    check: Check | Callable[[Any], Check | None]
    when: Callable[[Any], bool] | None = None

    def _broken(self, subject: Any) -> tuple[Check, object] | None:
        """The check that ``subject`` fails, and the value that does."""
        if self.when is not None and not self.when(subject):
            return None
        check = self.check if isinstance(self.check, Check) else self.check(subject)
        if check is None:
            return None
        value = self.look(subject)
        return None if check(value) else (check, value)

    def holds(self, subject: Any) -> bool:
        """The verdict alone. Rankings ask dozens of constraints for it, so it is short."""
        if self.when is not None and not self.when(subject):
            return True
        check = self.check if isinstance(self.check, Check) else self.check(subject)
        return check is None or check(self.look(subject))

    def why_not(self, subject: Any, where: str) -> Rejection | None:
        """The rejection, or None when ``subject`` satisfies the rule."""
        broken = self._broken(subject)
        if broken is None:
            return None
        check, value = broken
        return Rejection(
            rule=self.id,
            where=where,
            attribute=self.attribute if isinstance(self.attribute, str) else self.attribute(subject),
            value=value,
            expected=str(check),
            reason=self.reason,
            fix=self.fix,
            status=self.status,
        )


def violations(constraints: Iterable[Constraint], subject: Any, where: str) -> Iterator[Rejection]:
    """Every constraint that ``subject`` breaks."""
    for constraint in constraints:
        rejection = constraint.why_not(subject, where)
        if rejection is not None:
            yield rejection

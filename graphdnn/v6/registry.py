"""Which functions are implemented, and what each becomes. Modules of calls register theirs with ``implements``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from graphdnn.v6.call_wrapper import Call, as_call, by_count
from graphdnn.v6.functions import PLAIN, Function, functions
from graphdnn.v6.releases import active
from graphdnn.v6.version_profiles import check_enumerators, check_function


@dataclass(frozen=True, slots=True)
class Implementation:
    """``becomes``: the operations, or "state" for calls that only keep or answer something."""

    call: Call
    becomes: str
    verified: str  # what the values were compared with; "" where nothing was


_LATER_SIGNATURE = {"cudnnSetRNNDescriptor": "cudnnSetRNNDescriptor_v6"}  # 7.0 gave the name this one's

IMPLEMENTATIONS: dict[str, Implementation] = {}


def implements(name: str, becomes: str = "state", verified: str = "") -> Callable[[Call], Call]:
    """Register the implementation of one function; its aliases follow."""
    assert name in functions(), f"{name} is not in the function table"

    def keep(call: Call) -> Call:
        before = IMPLEMENTATIONS.get(name)
        # The same function again is that of a module whose first import was interrupted.
        is_new = before is None or (before.call.__module__, before.call.__qualname__) == (
            call.__module__,
            call.__qualname__,
        )
        assert is_new, f"{name} is implemented twice"
        IMPLEMENTATIONS[name] = Implementation(call, becomes, verified)
        return call

    return keep


def implementation_of(row: Function) -> Implementation | None:
    return IMPLEMENTATIONS.get(row.name) or IMPLEMENTATIONS.get(row.alias_of)


def public_calls() -> dict[str, Call]:
    """All 171, by name."""
    calls = {}
    for name, row in functions().items():
        found = implementation_of(row)
        assert found is not None, f"{name} is not implemented"
        calls[name] = as_call(row, _in_profiles(row, found.call))
    for name, later in _LATER_SIGNATURE.items():
        calls[name] = by_count(calls[name], calls[later], len(functions()[later].inputs))
    return calls


def _in_profiles(row: Function, call: Call) -> Call:
    """The implementation behind the question whether the active profile had the function and its enumerators."""
    if row.name in PLAIN:
        return call

    def asked(*args: Any) -> Any:
        if active():
            check_function(row)
            check_enumerators(row.name, args)
        return call(*args)

    return asked


@dataclass(frozen=True, slots=True)
class Coverage:
    """One line of the table that says what is there."""

    function: str
    since: str
    section: str
    family: str
    alias_of: str
    implemented: bool
    becomes: str
    verified: str


def coverage() -> tuple[Coverage, ...]:
    """What each of the 171 functions becomes, in the order of the manual.

    Returns:
        One ``Coverage`` for each function, with its release, its section in the manual, the operations that it becomes,
        and the reference that its values were compared with.
    """
    lines = []
    for row in functions().values():
        found = implementation_of(row)
        lines.append(
            Coverage(
                row.name, row.since, row.section, row.family, row.alias_of, found is not None,
                found.becomes if found else "", found.verified if found else "",
            )
        )  # fmt: skip
    return tuple(lines)

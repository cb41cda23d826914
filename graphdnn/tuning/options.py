"""Options of a tuning, checked before it begins: what is wrong with them would else end it when it is nearly done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any

from graphdnn.errors import BadParam
from graphdnn.rules import Rule

LIMIT = Rule(
    id="tuning.limit",
    expected="{expected}",
    reason="these limits end a tuning",
    fix="leave {name} out, or give it as {expected}",
)
OPTION = Rule(
    id="tuning.option",
    expected="{expected}",
    reason="the option has another type or range",
    fix="leave {name} out, or give it as {expected}",
)
Row = tuple[Rule, str, Callable[[Any], bool]]  # what is expected, and whether a value is that


def _is_number(value: Any, kind: type = Real) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _is_database(value: Any) -> bool:
    return value is None or hasattr(value, "add")


_SECONDS: Row = (LIMIT, "seconds above 0", lambda value: _is_number(value) and value > 0)
ROWS: Mapping[str, Row] = MappingProxyType({
    "budget": _SECONDS,
    "candidate_seconds": _SECONDS,
    "most": (LIMIT, "a whole number from 1 on", lambda value: _is_number(value, Integral) and value > 0),
    "memory": (LIMIT, "bytes above 0", lambda value: value is None or (_is_number(value, Integral) and value > 0)),
    "tie": (OPTION, "a share of at least 0", lambda value: _is_number(value) and value >= 0),
    "seed": (OPTION, "a whole number from 0 on", lambda value: _is_number(value, Integral) and value >= 0),
    "database": (OPTION, "a graphdnn.tuning.Database", _is_database),
})  # fmt: skip


def check(**options: Any) -> None:
    """Raise ``BadParam`` with every option that is none."""
    found = []
    for name, value in options.items():
        rule, expected, is_right = ROWS[name]
        if not is_right(value):
            found.append(rule.reject("AUTOTUNE", name, value, name=name, expected=expected))
    if found:
        raise BadParam(found)

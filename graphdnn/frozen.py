"""frozen: a frozen dataclass with slots, whose objects are made in little more than half of the time.

The ``__init__`` that ``dataclass`` writes for a frozen class looks up each field's place by its name; here it asks the
slots themselves. For classes of which building a plan makes one or more; it changes nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar

from typing_extensions import dataclass_transform

Kind = TypeVar("Kind")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(*, eq: bool = True) -> Callable[[type[Kind]], type[Kind]]:
    """As ``dataclass(frozen=True, slots=True, eq=eq)``."""

    def made(kind: type[Kind]) -> type[Kind]:
        kind = dataclass(frozen=True, slots=True, eq=eq)(kind)
        names: dict[str, Any] = {"MISSING": MISSING}
        arguments, lines = ["self"], []
        for one in fields(kind):  # type: ignore[arg-type]
            name = value = one.name
            names[f"set_{name}"] = getattr(kind, name).__set__
            if one.default_factory is not MISSING:
                names[f"new_{name}"], default = one.default_factory, "MISSING"
                value = f"new_{name}() if {name} is MISSING else {name}"
            elif one.default is not MISSING:
                names[f"default_{name}"] = one.default
                default = f"default_{name}"
            else:
                default = ""
            if one.init:
                arguments.append(f"{name}={default}" if default else name)
            else:
                value = default
            lines.append(f"    set_{name}(self, {value})")
        if hasattr(kind, "__post_init__"):
            lines.append("    self.__post_init__()")
        exec("\n".join([f"def __init__({', '.join(arguments)}):", *lines]), names)
        names["__init__"].__qualname__ = f"{kind.__qualname__}.__init__"
        names["__init__"].__annotations__ = kind.__init__.__annotations__
        setattr(kind, "__init__", names["__init__"])  # noqa: B010  a method
        return kind

    return made

"""FUNCTIONS: the table of the legacy calls, read from ``function_rows`` when it is first asked for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from graphdnn.v6.function_table import TEXT

PLAIN = ("cudnnGetVersion", "cudnnGetErrorString", "cudnnGetCudartVersion")  # return a value in C as well, no status


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of the C function. ``kind`` is explained in ``function_rows``."""

    name: str
    kind: str
    is_result: bool  # an output pointer in C, a result here
    nullable: bool
    optional: bool


@dataclass(frozen=True, slots=True)
class Function:
    """One C function."""

    name: str
    since: str
    section: str  # of the 5.1 manual, "-" where it is silent
    family: str
    alias_of: str  # "" for a function of its own
    parameters: tuple[Parameter, ...]
    statuses: tuple[str, ...]  # documented ones beside SUCCESS, without CUDNN_STATUS_

    @property
    def inputs(self) -> tuple[Parameter, ...]:
        """What a caller passes here."""
        return tuple(p for p in self.parameters if not p.is_result)

    @property
    def results(self) -> tuple[Parameter, ...]:
        return tuple(p for p in self.parameters if p.is_result)


def _parameter(text: str) -> Parameter:
    name, kind = text.removeprefix(">").split(":")
    bare = kind.removeprefix("?").removesuffix("=")
    nullable = kind.startswith("?") or bare in ("workspace", "cudaStream")
    return Parameter(name, bare, text.startswith(">"), nullable, kind.endswith("="))


def _function(line: str) -> Function:
    name, since, section, family, alias, parameters, statuses = (cell.strip() for cell in line.split(" | "))
    return Function(
        name,
        since,
        section,
        family,
        "" if alias == "-" else alias,
        tuple(_parameter(word) for word in parameters.split() if word != "-"),
        tuple(word for word in statuses.split() if word != "-"),
    )


@cache
def functions() -> dict[str, Function]:
    """Name -> row, in the order of the manual's chapters."""
    rows = [_function(line) for line in TEXT.replace("\n  ", " ").splitlines()]
    return {row.name: row for row in rows}

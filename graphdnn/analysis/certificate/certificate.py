"""Certificate: what a plan promises of its numbers, and what was seen of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from typing import Any

from graphdnn.analysis.certificate.numeric_class import NumericClass
from graphdnn.analysis.certificate.overflow import OverflowProof
from graphdnn.tensors import TensorSpec


@dataclass(frozen=True, slots=True)
class OperationBound:
    """The error that one operation adds, without data, in units of the value that it computes."""

    operation: str
    arithmetic: str
    terms: int  # that are summed for one element
    worst: float  # times what ``relative_to`` says
    statistical: float | None  # None where errors are not random
    relative_to: str
    how: str
    stored: float = 0.0  # of the result: what rounding it to the type of its tensor adds
    data_type: str = ""  # of the result, where that rounds

    @property
    def is_exact(self) -> bool:
        """Whether the operation does not round."""
        return self.worst == 0 and self.stored == 0

    def __str__(self) -> str:
        stored = f"; {self.stored:.3g} of the result as {self.data_type}" if self.stored else ""
        if self.worst == 0:
            return f"{self.operation}: exact in {self.arithmetic}{stored}"
        random = "" if self.statistical in (None, self.worst) else f", statistically {self.statistical:.3g}"
        many = f"; {self.terms} terms" if self.terms > 1 else ""
        how = f"{self.how}{many} in {self.arithmetic}"
        return f"{self.operation}: {self.worst:.3g}{random} times {self.relative_to}, {how}{stored}"

    def to_json(self) -> dict[str, Any]:
        """Plain data with the fields of the bound."""
        return {
            "operation": self.operation, "arithmetic": self.arithmetic, "terms": self.terms,
            "worst": _plain(self.worst), "statistical": _plain(self.statistical), "relative_to": self.relative_to,
            "how": self.how, "stored": self.stored, "data_type": self.data_type or None,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class OutputBound:
    """The largest absolute error of an output, and the observed error of each element."""

    tensor: TensorSpec
    worst: float | None  # None: neither ranges nor data were given; infinite: no bound holds
    statistical: float | None
    observed: float | None  # None: nothing was executed
    closest: float | None  # the largest ratio of an observed error to the bound of its element
    why_not: str = ""  # why there is no bound
    unbounded: float = 0.0  # share of the elements without a finite one
    allowed: float | None = None  # what run, trace and tune compare with (graphdnn.analysis.oracle); None without data

    @property
    def is_exact(self) -> bool:
        """Whether the output has no error."""
        return self.worst == 0

    @property
    def holds(self) -> bool:
        """Whether every observed error is within the bound of its element."""
        return self.closest is None or self.closest <= 1

    def __str__(self) -> str:
        if self.worst is None:
            return f"{self.tensor.label()}: give data or ranges for a number"
        bound = self.why_not or ("exact" if self.is_exact else f"at most {self.worst:.3g}")
        if self.unbounded:
            share = f"{self.unbounded:.0%} of the elements"
            bound = f"no bound for {share}, where numbers may leave the range of a type on the way"
        known = self.statistical is not None and not self.is_exact and not self.why_not and not self.unbounded
        random = f", statistically {self.statistical:.3g}" if known else ""
        seen = "" if self.observed is None else f", observed {self.observed:.3g}"
        ratio = "" if self.closest is None or self.is_exact else f" ({self.closest:.2g} of the bound at most)"
        allowed = "" if self.allowed is None or self.is_exact else f"; a run may differ by {self.allowed:.3g}"
        return f"{self.tensor.label()}: {bound}{random}{seen}{ratio}{allowed}" + ("" if self.holds else ": BROKEN")

    def to_json(self) -> dict[str, Any]:
        """Plain data with the fields of the bound."""
        return {
            "uid": self.tensor.uid, "name": self.tensor.name, "worst": _plain(self.worst),
            "statistical": _plain(self.statistical), "observed": _plain(self.observed),
            "closest": _plain(self.closest), "holds": self.holds, "why_not": self.why_not,
            "unbounded": self.unbounded, "allowed": _plain(self.allowed),
        }  # fmt: skip


def _plain(number: float | None) -> Any:
    """JSON has no infinity."""
    return number if number is None or isfinite(number) else str(number)


@dataclass(frozen=True, slots=True, eq=False)
class Certificate:
    """Error bounds of a plan. ``operations`` hold for any data, ``outputs`` for the given ranges or data."""

    plan: str
    device: str
    numeric_class: NumericClass
    operations: tuple[OperationBound, ...]
    outputs: tuple[OutputBound, ...]
    integers: tuple[OverflowProof, ...]
    basis: str  # "data", "ranges" or "types"
    notes: tuple[str, ...] = ()

    @property
    def is_exact(self) -> bool:
        """Whether no output has an error."""
        return self.numeric_class.is_exact

    @property
    def holds(self) -> bool:
        """Whether every observed error is within its bound. True if nothing was observed."""
        return all(output.holds for output in self.outputs)

    @property
    def advice(self) -> tuple[str, ...]:
        """What to do so that every possible overflow is excluded by proof."""
        return tuple(dict.fromkeys(proof.advice for proof in self.integers if proof.advice))

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        exact = "exact: every plan of this class computes the same bits" if self.is_exact else "rounded"
        yield f"certificate of {self.plan} on {self.device}, from {self.basis}: {exact}"
        unless = "" if all(proof.is_proved for proof in self.integers) else ", where no sum wraps"
        for title, entries in (
            ("numeric class", tuple(dict.fromkeys(map(str, self.numeric_class.operations)))),
            ("each operation adds at most", self.operations),
            ("overflow", self.integers),
            (f"largest error of each output{unless}", self.outputs),
            ("notes", self.notes),
        ):
            if entries:
                yield title
                yield from (f"  {entry}" for entry in entries)

    def to_json(self) -> dict[str, Any]:
        """Plain data with every bound."""
        return {
            "plan": self.plan, "device": self.device, "basis": self.basis, "is_exact": self.is_exact,
            "holds": self.holds, "numeric_class": self.numeric_class.to_json(),
            "operations": [entry.to_json() for entry in self.operations],
            "outputs": [entry.to_json() for entry in self.outputs],
            "integers": [entry.to_json() for entry in self.integers],
            "notes": list(self.notes),
        }  # fmt: skip

"""Trace: the values of an execution by uid, each beside its reference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from graphdnn.analysis.oracle import Comparison, in_words
from graphdnn.dtypes import Array
from graphdnn.tensors import TensorSpec


@dataclass(frozen=True, slots=True, eq=False)
class Traced:
    """A tensor that an operation wrote, and the value that the oracle computes for it."""

    tensor: TensorSpec  # as the graph has it, virtual or not
    operation: str  # that writes it
    kernel: int  # of the plan
    engine: str  # that computed it here
    values: Array
    wanted: Array
    difference: float  # largest absolute one; of booleans and indices the share that differs
    bound: float  # 0 where the result is exact
    index: tuple[int, ...]  # of the element that is farthest off
    comparison: Comparison

    @property
    def ok(self) -> bool:
        """Whether the tensor is within its bound."""
        return self.comparison.ok

    @property
    def at(self) -> tuple[Any, Any]:
        """The value and the reference value of the element with the largest error."""
        return self.values[self.index].item(), self.wanted[self.index].item()

    def __str__(self) -> str:
        value, wanted = self.at
        bound = "exact" if self.bound == 0 else f"bound {self.bound:.3g}"
        verdict = "ok" if self.ok else "DIFFERS"
        at = f"element {list(self.index)} is {value:.9g}, the oracle says {wanted:.9g}"
        counted, rejection = self.comparison.counted, self.comparison.rejection
        why = "" if rejection is None else f"; {in_words(rejection)}"
        where = f"{self.tensor.label()}, written by {self.operation} in kernel [{self.kernel}]"
        return f"{where}: {at}; {bound}, {counted}: {verdict}{why}"

    def to_json(self) -> dict[str, Any]:
        """Plain data with the fields of the record."""
        value, wanted = self.at
        return {
            "uid": self.tensor.uid, "name": self.tensor.name, "is_virtual": self.tensor.is_virtual,
            "data_type": self.tensor.data_type.name, "operation": self.operation, "kernel": self.kernel,
            "engine": self.engine, "difference": _plain(self.difference), "bound": _plain(self.bound),
            "ok": self.ok, **{name: value for name, value in self.comparison.to_json().items() if name in _COUNTED},
            "index": list(self.index), "value": _plain(value), "wanted": _plain(wanted),
        }  # fmt: skip


_COUNTED = ("elements", "compared", "share", "reason")


def _plain(number: Any) -> Any:
    """JSON has neither infinity nor NaN."""
    return number if not isinstance(number, float) or number - number == 0 else str(number)


@dataclass(frozen=True, slots=True, eq=False)
class Trace(Mapping[int, Array]):
    """``{uid: array}`` of every tensor that an operation writes, in order of execution."""

    tensors: tuple[Traced, ...]
    has_same_bits: bool  # the outputs are those of the plan itself, bit for bit
    notes: tuple[str, ...]  # kernels that had to differ from the plan's for values to be seen
    outputs: tuple[Comparison, ...] = ()  # of the plan itself: an engine that gave way here is looked at as well

    @property
    def first_difference(self) -> Traced | None:
        """The first tensor that differs from the oracle by more than its bound. Others may follow from it."""
        return next((t for t in self.tensors if not t.ok), None)

    @property
    def ok(self) -> bool:
        """Whether every tensor is within its bound."""
        return self.first_difference is None and self.wrong_output is None

    @property
    def wrong_output(self) -> Comparison | None:
        """The first output of the plan itself that differs from the oracle by more than its bound."""
        return next((c for c in self.outputs if not c.ok), None)

    def traced(self, uid: int) -> Traced:
        """Everything that is known of one tensor.

        Args:
            uid: The uid of the tensor.

        Returns:
            The record of the tensor.

        Raises:
            KeyError: No operation writes this tensor.
        """
        return self._by_uid[uid]

    @property
    def _by_uid(self) -> dict[int, Traced]:
        return {t.tensor.uid: t for t in self.tensors}

    def __getitem__(self, uid: int) -> Array:
        return self._by_uid[uid].values

    __eq__ = object.__eq__  # arrays do not compare as a whole
    __hash__ = object.__hash__

    def __iter__(self) -> Iterator[int]:
        return iter(self._by_uid)

    def __len__(self) -> int:
        return len(self.tensors)

    def __str__(self) -> str:
        lines = [str(t) for t in self.tensors]
        lines.append(f"outputs have {'the same bits as' if self.has_same_bits else 'other bits than'} the plan's")
        wrong = self.wrong_output
        lines += [] if wrong is None else [f"of the plan itself: {wrong}"]
        return "\n".join([*lines, *self.notes])

    def to_json(self) -> dict[str, Any]:
        """Plain data with every tensor."""
        first = self.first_difference
        return {
            "tensors": [t.to_json() for t in self.tensors],
            "first_difference": None if first is None else first.tensor.uid,
            "has_same_bits": self.has_same_bits,
            "outputs": [c.to_json() for c in self.outputs],
            "ok": self.ok,
            "notes": list(self.notes),
        }

"""NumericClass: which roundings a configuration makes, as a value that two configurations can be compared by.

Plans of one graph are interchangeable within a class: each result has the same error bound in all of them, though
sums run in other orders and the last bits differ. A class has one entry for each operation of the graph, in its
order. Names, extents, layouts, tiles and fusion do not matter, for fusing changes no rounding but the order of sums.

Tensor cores that multiply 16-bit floats exactly and add in FLOAT are in the class of any other sum in FLOAT: they cut
where others round, which doubles the unit and nothing else (the certificate counts it). What costs digits that the
types promise makes a class of its own: operands cut to TF32, shorter sums, transforms, sums in varying order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from math import floor, log2
from typing import Any

from graphdnn.dtypes import COMPUTE
from graphdnn.engines.sum_error import UNIT, SumError
from graphdnn.enums import NumericalNote
from graphdnn.heuristics import Choice, EngineConfig
from graphdnn.operations import (
    Concat,
    ConvolutionOperation,
    Matmul,
    Operation,
    RecurrentOperation,
    Reduction,
    Reshape,
    Slice,
    Transpose,
)

EXACT, COPIED, ROUNDED, SUMMED = "exact", "copied", "rounded", "summed"
_COPIES = (Concat, Reshape, Slice, Transpose)
_SUMS = (ConvolutionOperation, Matmul, Reduction, RecurrentOperation)
# What an engine's notes say of its sums, the note that decides first.
_METHODS = {
    NumericalNote.FFT: "FFT",
    NumericalNote.WINOGRAD_TILE_4x4: "Winograd, tiles of 4x4",
    NumericalNote.WINOGRAD_TILE_6x6: "Winograd, tiles of 6x6",
    NumericalNote.WINOGRAD_TILE_13x13: "Winograd, tiles of 13x13",
    NumericalNote.WINOGRAD: "Winograd",
}
_SHORTER = {
    NumericalNote.DOWN_CONVERT_INPUTS: "operands cut to TF32",
    NumericalNote.REDUCED_PRECISION_REDUCTION: "shorter sums",
}


@dataclass(frozen=True, slots=True)
class OperationClass:
    """The roundings of one operation. Equal entries have equal error bounds."""

    operation: str  # "conv_fprop", "add"
    operands: tuple[str, ...]  # element types
    results: tuple[str, ...]
    arithmetic: str  # compute type
    method: str  # "exact", "copied", "rounded" or "summed", or an algorithm of larger errors
    shorter: tuple[str, ...] = ()  # where the arithmetic has fewer digits than its type
    growth: float = 1.0  # rounding errors beside those of a plain sum, as the engine states
    is_stable: bool = True  # the same bits on every run, with as many BLAS threads

    def can_replace(self, other: OperationClass) -> bool:
        """Whether no error is larger than in the other entry.

        Args:
            other: The other entry.

        Returns:
            True or False.
        """
        alike = ("operation", "operands", "results", "arithmetic")
        return (
            all(getattr(self, name) == getattr(other, name) for name in alike)
            and (self.method == other.method or self.method in (EXACT, COPIED, ROUNDED, SUMMED))
            and set(self.shorter) <= set(other.shorter)
            and self.growth <= other.growth
            and (self.is_stable or not other.is_stable)
        )

    def __str__(self) -> str:
        notes = [*self.shorter, *([] if self.growth == 1.0 else [f"errors times {self.growth:g}"])]
        notes += [] if self.is_stable else ["not the same bits on every run"]
        types = f"{', '.join(self.operands)} -> {', '.join(self.results)}"
        return f"{self.operation} {types}: {self.method} in {self.arithmetic}" + "".join(f", {n}" for n in notes)

    def to_json(self) -> dict[str, Any]:
        """Plain data with the fields of the entry."""
        entry = asdict(self)
        return entry | {name: list(entry[name]) for name in ("operands", "results", "shorter")}


@dataclass(frozen=True, slots=True)
class NumericClass:
    """The roundings of a plan, with one entry for each operation of the graph."""

    operations: tuple[OperationClass, ...]

    @property
    def is_exact(self) -> bool:
        """Whether no operation rounds. All plans of such a class compute the same bits."""
        return all(entry.method in (EXACT, COPIED) for entry in self.operations)

    def can_replace(self, other: NumericClass) -> bool:
        """Whether a plan of this class can replace a plan of the other class: no error bound is larger.

        Args:
            other: The other class.

        Returns:
            True or False.
        """
        pairs = zip(self.operations, other.operations, strict=False)
        return len(self.operations) == len(other.operations) and all(a.can_replace(b) for a, b in pairs)

    def differences(self, other: NumericClass) -> list[str]:
        """The differences between two classes.

        Args:
            other: The other class.

        Returns:
            A line for each operation that differs; none for equal classes.
        """
        if len(self.operations) != len(other.operations):
            return [f"{len(self.operations)} operations, then {len(other.operations)}"]
        pairs = enumerate(zip(self.operations, other.operations, strict=True))
        return [f"operation {i}: {a}, then {b}" for i, (a, b) in pairs if a != b]

    def __str__(self) -> str:
        return "\n".join(dict.fromkeys(map(str, self.operations)))

    def to_json(self) -> list[dict[str, Any]]:
        """Plain data with one entry for each operation."""
        return [entry.to_json() for entry in self.operations]

    @classmethod
    def from_json(cls, data: Any) -> NumericClass:
        """Read what ``to_json`` wrote.

        Args:
            data: The plain data.

        Returns:
            The class.

        Raises:
            ValueError: The data has another form.
        """
        if not isinstance(data, list):
            raise ValueError("a numeric class is a list of operations")
        return cls(tuple(map(_entry, data)))


def numeric_class(config: EngineConfig) -> NumericClass:
    """The numeric class of a configuration. Nothing is compiled, and no device is needed.

    Args:
        config: The configuration.

    Returns:
        The class.
    """
    mains = {id(choice.task.op.main): choice for choice in config.choices}
    return NumericClass(tuple(_class_of(op, mains.get(id(op))) for op in config.fused.graph.operations))


def _class_of(op: Operation, choice: Choice | None) -> OperationClass:
    """``choice``: of the engine whose main operation this is."""
    operands, results = (tuple(t.data_type.name for t in ports.values()) for ports in (op.inputs(), op.outputs()))
    plain = _method(op)
    name = op.label().split(" ")[0]
    if choice is None or plain in (EXACT, COPIED):
        return OperationClass(name, operands, results, _arithmetic(op), plain)
    notes = choice.engine.numerical_notes
    return OperationClass(
        operation=name,
        operands=operands,
        results=results,
        arithmetic=_arithmetic(op),
        method=next((method for note, method in _METHODS.items() if note in notes), plain),
        shorter=(*(words for note, words in _SHORTER.items() if note in notes), *_digits(choice.engine.sum_error)),
        growth=choice.engine.error_growth,
        is_stable=NumericalNote.NONDETERMINISTIC not in notes,
    )


def _digits(row: SumError | None) -> tuple[str, ...]:
    """Where each addition loses more than one unit of the arithmetic; transforms are methods of their own."""
    if row is None or row.of_largest or row.each <= 1:
        return ()
    return (f"sums of {floor(-log2(row.each * UNIT))} digits",)


def _method(op: Operation) -> str:
    if isinstance(op, _COPIES):
        return COPIED
    compute = COMPUTE.get(op.compute_type)
    if compute is not None and compute.kind in "biu":
        return EXACT
    return SUMMED if isinstance(op, _SUMS) else ROUNDED


def _arithmetic(op: Operation) -> str:
    return "none" if isinstance(op, _COPIES) else op.compute_type.name


_TEXTS = ("operation", "arithmetic", "method")
_LISTS = ("operands", "results", "shorter")


def _entry(data: Any) -> OperationClass:
    names = {field.name for field in fields(OperationClass)}
    if not isinstance(data, Mapping) or set(data) != names:
        raise ValueError(f"an operation has {', '.join(sorted(names))}")
    if not all(isinstance(data[name], str) for name in _TEXTS):
        raise ValueError(f"{', '.join(_TEXTS)} are texts")
    if not all(isinstance(data[name], list) and all(isinstance(i, str) for i in data[name]) for name in _LISTS):
        raise ValueError(f"{', '.join(_LISTS)} are lists of texts")
    growth, is_stable = data["growth"], data["is_stable"]
    if isinstance(growth, bool) or not isinstance(growth, (int, float)) or not 0 < growth < float("inf"):
        raise ValueError("growth is a positive number")
    if not isinstance(is_stable, bool):
        raise ValueError("is_stable is true or false")
    lists = {name: tuple(data[name]) for name in _LISTS}
    return OperationClass(**{**data, **lists, "growth": float(growth)})

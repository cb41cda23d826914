"""What is known of a cut: prices of both sides and of the whole, and the verdict they give."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any, Protocol

from graphdnn.analysis.median_statistics import Interval
from graphdnn.device.profiles import DeviceSpec
from graphdnn.errors import BadParam
from graphdnn.fusion import FusionLimits
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.operations import Operation
from graphdnn.rules import Rule
from graphdnn.tensors import TensorSpec

FORMAT, VERSION = "graphdnn.cuts", 1
PARTS = Rule(
    id="cuts.parts",
    expected="a side that is one graph",
    reason="the operations on this side of the cut fall into {parts} parts that share no tensor",
    fix="build each of cut.before.graphs or cut.after.graphs",
)


class HasInterval(Protocol):
    """Something that was executed several times."""

    @property
    def interval(self) -> Interval: ...


@dataclass(frozen=True, slots=True)
class RunCost:
    """The cost of an execution: predicted seconds, bytes that cross memory, kernels, launches and measured seconds."""

    predicted: float  # seconds
    bytes: int
    kernels: int
    launches: int
    timed: tuple[HasInterval, ...] | None = None  # what was executed one after the other

    @property
    def measured(self) -> float | None:
        """Seconds: medians."""
        return None if self.timed is None else sum(one.interval.median for one in self.timed)

    @property
    def uncertainty(self) -> float:
        """Seconds that the measured time may be off: half the width of the intervals; 0 where nothing was measured."""
        return sum((one.interval.high - one.interval.low) / 2 for one in self.timed or ())

    @property
    def seconds(self) -> float:
        """The measured time, or the predicted one if nothing was measured."""
        return self.predicted if self.measured is None else self.measured

    def __add__(self, other: RunCost) -> RunCost:
        return total((self, other))

    def to_json(self) -> dict[str, object]:
        """Plain data with the fields of the cost."""
        measured = None if self.measured is None else self.measured * 1e6
        return {
            "predicted_us": self.predicted * 1e6, "measured_us": measured,
            "uncertainty_us": None if measured is None else self.uncertainty * 1e6, "bytes": self.bytes,
            "kernels": self.kernels, "launches": self.launches,
        }  # fmt: skip


def total(prices: Iterable[RunCost]) -> RunCost:
    """One after the other. What was not measured for each of them was not measured."""
    found = tuple(prices)
    timed = [p.timed for p in found if p.timed is not None]
    return RunCost(
        sum(p.predicted for p in found), sum(p.bytes for p in found), sum(p.kernels for p in found),
        sum(p.launches for p in found), tuple(chain.from_iterable(timed)) if len(timed) == len(found) else None,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the whole graph is faster than the split. ``whole`` and ``split`` are seconds."""

    whole: float
    split: float
    margin: float  # differences below this share of the faster one say nothing
    is_measured: bool
    uncertainty: float = 0.0  # seconds: a difference that is not larger than these may be chance

    @property
    def gain(self) -> float:
        """The additional time of the split as a share of the whole; negative if the split is faster."""
        return self.split / self.whole - 1 if self.whole else 0.0

    @property
    def word(self) -> str:
        """``pays`` if the whole is faster, ``hurts`` if the split is faster, else ``neutral``."""
        if self.split - self.whole * (1 + self.margin) > self.uncertainty:
            return "pays"
        return "hurts" if self.whole - self.split * (1 + self.margin) > self.uncertainty else "neutral"

    def __str__(self) -> str:
        sure = f" +/- {self.uncertainty / self.whole:.0%}" if self.uncertainty and self.whole else ""
        return f"{self.word} ({self.gain:+.0%}{sure})"

    def to_json(self) -> dict[str, object]:
        """Plain data with the times and the word."""
        return {
            "verdict": self.word, "gain": self.gain, "margin": self.margin, "whole_us": self.whole * 1e6,
            "split_us": self.split * 1e6, "measured": self.is_measured, "uncertainty_us": self.uncertainty * 1e6,
        }  # fmt: skip


@dataclass(frozen=True, eq=False)
class Side:
    """The operations on one side of a cut."""

    steps: tuple[Operation, ...]  # as they are in the whole, in execution order
    fused: RunCost  # by this library, or by kernels that fuse as well
    unfused: RunCost  # one kernel for each operation
    carve: Callable[[], tuple[OperationGraph, ...]] = field(repr=False)

    @property
    def operations(self) -> tuple[str, ...]:
        """The labels of the operations."""
        return tuple(step.label() for step in self.steps)

    @cached_property
    def graphs(self) -> tuple[OperationGraph, ...]:
        """Ready to build; several where they share no tensor."""
        return self.carve()

    @property
    def graph(self) -> OperationGraph:
        """The graph of the side.

        Raises:
            BadParam: The side has several graphs.
        """
        if len(self.graphs) > 1:
            raise BadParam(PARTS.reject("cut", "graphs", len(self.graphs), parts=len(self.graphs)))
        return self.graphs[0]

    def to_json(self) -> dict[str, object]:
        """Plain data with the operations and the costs."""
        return {
            "operations": list(self.operations),
            "fused": self.fused.to_json(),
            "unfused": self.unfused.to_json(),
        }


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """A place between two parts of a graph. ``tensors`` pass through memory from the first part to the second."""

    tensors: tuple[TensorSpec, ...]
    limits: FusionLimits  # with which the whole is built as one plan whose kernels end here
    before: Side
    after: Side
    whole: RunCost
    margin: float

    def __repr__(self) -> str:
        return f"<Cut {self}>"

    def __str__(self) -> str:
        """``conv_fprop | add + relu_fwd: pays (+44%)``."""
        sides = " | ".join(" + ".join(side.operations) for side in (self.before, self.after))
        return f"{sides}: {self.verdict}"

    @property
    def first(self) -> OperationGraph:
        """The part before the cut as a graph: same uids, and the tensors of the cut have memory."""
        return self.before.graph

    @property
    def second(self) -> OperationGraph:
        """The part after the cut as a graph."""
        return self.after.graph

    @property
    def split(self) -> RunCost:
        """The cost of both parts, each fused as well as the rules allow."""
        return self.before.fused + self.after.fused

    @property
    def bytes_saved(self) -> int:
        """Bytes of memory traffic that the whole graph avoids."""
        return self.split.bytes - self.whole.bytes

    @property
    def launches_saved(self) -> int:
        """Launches that the whole graph avoids."""
        return self.split.launches - self.whole.launches

    @property
    def verdict(self) -> Verdict:
        """The whole graph compared with the split."""
        return self._verdict(self.split)

    @property
    def unfused_after(self) -> Verdict:
        """The whole graph compared with the split, if the part after the cut has one kernel for each operation."""
        return self._verdict(self.before.fused + self.after.unfused)

    @property
    def unfused_before(self) -> Verdict:
        """The whole graph compared with the split, if the part before the cut has one kernel for each operation."""
        return self._verdict(self.before.unfused + self.after.fused)

    def against(self, seconds: float) -> Verdict:
        """The whole graph compared with the split, if a kernel of your own computes the part after the cut.

        Args:
            seconds: The time of that kernel.

        Returns:
            The verdict.
        """
        return self._verdict(self.before.fused, seconds)

    def _verdict(self, split: RunCost, more: float = 0.0) -> Verdict:
        is_measured, uncertainty = self.whole.timed is not None, self.whole.uncertainty + split.uncertainty
        return Verdict(self.whole.seconds, split.seconds + more, self.margin, is_measured, uncertainty)

    def to_json(self) -> dict[str, object]:
        """Plain data with the tensors, the costs and the verdicts."""
        return {
            "tensors": [t.uid for t in self.tensors],
            "limits": self.limits.to_json(),
            "before": self.before.to_json(),
            "after": self.after.to_json(),
            "split": self.split.to_json(),
            "bytes_saved": self.bytes_saved,
            "launches_saved": self.launches_saved,
            **self.verdict.to_json(),
            "unfused_after": self.unfused_after.to_json(),
            "unfused_before": self.unfused_before.to_json(),
        }


@dataclass(frozen=True, slots=True, eq=False)
class Cuts:
    """Every place where a graph could be cut, in order of execution."""

    graph: OperationGraph
    device: DeviceSpec
    whole: RunCost
    margin: float
    cuts: tuple[Cut, ...]

    def __iter__(self) -> Iterator[Cut]:
        return iter(self.cuts)

    def __len__(self) -> int:
        return len(self.cuts)

    def __getitem__(self, index: int) -> Cut:
        return self.cuts[index]

    def __str__(self) -> str:
        lines = [f"cuts on {self.device.name}, whole {self.whole.seconds * 1e6:.1f} us, margin {self.margin:.0%}:"]
        return "\n".join([*lines, *(f"  {i}. {cut}" for i, cut in enumerate(self.cuts))])

    def at(self, *tensors: int) -> Cut | None:
        """The cut through which exactly these tensors pass.

        Args:
            tensors: The uids of the tensors.

        Returns:
            The cut, or None.
        """
        return next((cut for cut in self.cuts if {t.uid for t in cut.tensors} == set(tensors)), None)

    @property
    def best(self) -> Cut | None:
        """The fastest split, if it is faster than the whole graph by more than the margin; else None."""
        hurting = [cut for cut in self.cuts if cut.verdict.word == "hurts"]
        return min(hurting, key=lambda cut: cut.verdict.split, default=None)

    def to_json(self) -> dict[str, Any]:
        """Plain data with every cut."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "graph": self.graph.name,
            "device": self.device.name,
            "margin": self.margin,
            "whole": self.whole.to_json(),
            "cuts": [cut.to_json() for cut in self.cuts],
        }

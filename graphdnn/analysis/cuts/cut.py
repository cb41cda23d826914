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
    """What computing something takes, with the starts of ``launches``; ``bytes`` cross memory."""

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
        """As measured, or as predicted where nothing was."""
        return self.predicted if self.measured is None else self.measured

    def __add__(self, other: RunCost) -> RunCost:
        return total((self, other))

    def to_json(self) -> dict[str, object]:
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
    """Whether keeping the graph whole is worth it: ``whole`` seconds beside ``split`` seconds."""

    whole: float
    split: float
    margin: float  # differences below this share of the faster one say nothing
    is_measured: bool
    uncertainty: float = 0.0  # seconds: a difference that is not larger than these may be chance

    @property
    def gain(self) -> float:
        """How much longer the split takes, as a share of the whole; negative where the whole takes longer."""
        return self.split / self.whole - 1 if self.whole else 0.0

    @property
    def word(self) -> str:
        """``pays``, ``neutral`` or ``hurts``."""
        if self.split - self.whole * (1 + self.margin) > self.uncertainty:
            return "pays"
        return "hurts" if self.whole - self.split * (1 + self.margin) > self.uncertainty else "neutral"

    def __str__(self) -> str:
        sure = f" +/- {self.uncertainty / self.whole:.0%}" if self.uncertainty and self.whole else ""
        return f"{self.word} ({self.gain:+.0%}{sure})"

    def to_json(self) -> dict[str, object]:
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
        return tuple(step.label() for step in self.steps)

    @cached_property
    def graphs(self) -> tuple[OperationGraph, ...]:
        """Ready to build; several where they share no tensor."""
        return self.carve()

    @property
    def graph(self) -> OperationGraph:
        """The only graph. Raises ``BadParam`` where there are several."""
        if len(self.graphs) > 1:
            raise BadParam(PARTS.reject("cut", "graphs", len(self.graphs), parts=len(self.graphs)))
        return self.graphs[0]

    def to_json(self) -> dict[str, object]:
        return {
            "operations": list(self.operations),
            "fused": self.fused.to_json(),
            "unfused": self.unfused.to_json(),
        }


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """A place between two parts of a graph. ``tensors`` pass from the first to the second, through memory."""

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
        """What comes before the cut, ready to build: same uids, what passes through the cut has memory."""
        return self.before.graph

    @property
    def second(self) -> OperationGraph:
        """What comes after the cut, ready to build."""
        return self.after.graph

    @property
    def split(self) -> RunCost:
        """Both sides, each fused as well as the rules allow, whoever does it."""
        return self.before.fused + self.after.fused

    @property
    def bytes_saved(self) -> int:
        """Memory traffic that the whole does without."""
        return self.split.bytes - self.whole.bytes

    @property
    def launches_saved(self) -> int:
        return self.split.launches - self.whole.launches

    @property
    def verdict(self) -> Verdict:
        """Keep the graph whole, or split it here into kernels that are as good?"""
        return self._verdict(self.split)

    @property
    def unfused_after(self) -> Verdict:
        """The same where the framework computes what comes after with one kernel for each operation."""
        return self._verdict(self.before.fused + self.after.unfused)

    @property
    def unfused_before(self) -> Verdict:
        """The same where the framework computes what comes before with one kernel for each operation."""
        return self._verdict(self.before.unfused + self.after.fused)

    def against(self, seconds: float) -> Verdict:
        """The same where a kernel of your own computes what comes after in so many seconds."""
        return self._verdict(self.before.fused, seconds)

    def _verdict(self, split: RunCost, more: float = 0.0) -> Verdict:
        is_measured, uncertainty = self.whole.timed is not None, self.whole.uncertainty + split.uncertainty
        return Verdict(self.whole.seconds, split.seconds + more, self.margin, is_measured, uncertainty)

    def to_json(self) -> dict[str, object]:
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
    """Every place where a graph could be cut, in execution order."""

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
        """The cut through which exactly these tensors pass, by uid."""
        return next((cut for cut in self.cuts if {t.uid for t in cut.tensors} == set(tensors)), None)

    @property
    def best(self) -> Cut | None:
        """The fastest split, where it is faster than the whole by more than the margin."""
        hurting = [cut for cut in self.cuts if cut.verdict.word == "hurts"]
        return min(hurting, key=lambda cut: cut.verdict.split, default=None)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": VERSION,
            "graph": self.graph.name,
            "device": self.device.name,
            "margin": self.margin,
            "whole": self.whole.to_json(),
            "cuts": [cut.to_json() for cut in self.cuts],
        }

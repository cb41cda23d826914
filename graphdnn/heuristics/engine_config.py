"""A choice for one fused operation, a configuration for all of them, and what an engine says that declined."""

from __future__ import annotations

from dataclasses import dataclass

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines import Cost, Engine, Knobs, Task
from graphdnn.engines.rewrite_step import RewriteStep
from graphdnn.enums import BehaviorNote, HeurMode, NumericalNote
from graphdnn.errors import Rejection
from graphdnn.fusion.fused_graph import FusedGraph, FusedOp
from graphdnn.heuristics.filters import UNFILTERED, Filters
from graphdnn.heuristics.workspace_layout import materialized_bytes
from graphdnn.text_format import seconds

COMPOSED_ID = 0  # engine id of a configuration with several fused operations
COMPOSED_NAME = "composed"


class Choice:
    """One engine with knob values for one fused operation."""

    __slots__ = ("_cost", "_scratch", "engine", "knobs", "task")

    def __init__(self, task: Task, engine: Engine, knobs: Knobs) -> None:
        self.task, self.engine, self.knobs = task, engine, knobs
        self._cost: Cost | None = None
        self._scratch: int | None = None

    @property
    def cost(self) -> Cost:
        found = self._cost
        if found is None:
            found = self._cost = self.engine.cost(self.task, self.knobs)
        return found

    @property
    def rank(self) -> float:
        """Seconds it is ranked by: an engine whose errors are larger has to be faster by its handicap to go first."""
        return self.cost.seconds * self.engine.handicap

    @property
    def scratch(self) -> int:
        """Bytes of workspace the kernel itself needs."""
        found = self._scratch
        if found is None:
            found = self._scratch = self.engine.workspace(self.task, self.knobs)
        return found

    @property
    def rewrite(self) -> RewriteStep | None:
        """The rewrite that the engine applies first; None where it computes the operation as it is."""
        made = self.engine.rewritten
        return None if made is None else made(self.task)

    @property
    def name(self) -> str:
        """``numpy_blocked`` or ``conv_x_k40=128_k41=64`` with the knobs that differ from their defaults."""
        defaults = self.engine.defaults()
        changed = [f"k{int(k)}={v}" for k, v in sorted(self.knobs.items()) if defaults[k] != v]
        return "_".join((self.engine.name, *changed))

    @property
    def where(self) -> str:
        return f"engine {self.engine}, {self.task.where}"


@dataclass(frozen=True, slots=True, eq=False)
class EngineConfig:
    """One choice for each fused operation: everything a plan is built from."""

    fused: FusedGraph
    device: DeviceSpec
    choices: tuple[Choice, ...]
    mode: HeurMode | None = None  # of the ranking it comes from; None where it was put together by hand
    filters: Filters = UNFILTERED  # of that ranking: what they leave out, nobody could have chosen

    def __repr__(self) -> str:
        return f"<EngineConfig {self.name} on {self.device.name}>"

    @property
    def engine_id(self) -> int:
        return self.choices[0].engine.id if len(self.choices) == 1 else COMPOSED_ID

    @property
    def name(self) -> str:
        return " ; ".join(choice.name for choice in self.choices)

    @property
    def predicted_seconds(self) -> float:
        return sum(choice.cost.seconds for choice in self.choices)

    @property
    def workspace_size(self) -> int:
        """Bytes: virtual tensors that pass through memory, then scratch that the kernels take turns in."""
        return materialized_bytes(self.fused, self.device) + max([choice.scratch for choice in self.choices])

    @property
    def numerical_notes(self) -> tuple[NumericalNote, ...]:
        return tuple(sorted({note for c in self.choices for note in c.engine.numerical_notes}))

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a ranking says beside a time: numerical notes, and the time it stands for where errors are larger."""
        return (*(note.name for note in self.numerical_notes), *self._handicapped)

    @property
    def _handicapped(self) -> tuple[str, ...]:
        rank = sum(choice.rank for choice in self.choices)
        return () if rank == self.predicted_seconds else (f"ranked as {seconds(rank)} for its larger errors",)

    @property
    def error_growth(self) -> dict[int, float]:
        """uid -> factor on the rounding errors of the operation that writes it, where an engine states one."""
        stated = [(c.task.op.main, c.engine.growth(c.task.op.main)) for c in self.choices]
        return {t.uid: growth for op, growth in stated if growth != 1.0 for t in op.outputs().values()}

    @property
    def behavior_notes(self) -> tuple[BehaviorNote, ...]:
        return tuple(sorted({note for c in self.choices for note in c.engine.behavior_notes}))

    def __str__(self) -> str:
        line = f"{self.name}: {self.predicted_seconds * 1e6:.1f} us, {self.workspace_size} bytes of workspace"
        return ", ".join((line, *self._handicapped))


@dataclass(frozen=True, slots=True)
class Declined:
    """An engine that does not serve a fused operation, with all its reasons."""

    operation: FusedOp
    engine: Engine
    rejections: tuple[Rejection, ...]

    def __str__(self) -> str:
        reasons = "\n".join(f"  {line}" for r in self.rejections for line in str(r).splitlines())
        return f"engine {self.engine} declined {self.operation.name}:\n{reasons}"

    def to_json(self) -> dict[str, object]:
        return {
            "operation": self.operation.index,
            "engine": self.engine.name,
            "engine_id": self.engine.id,
            "rejections": [r.to_json() for r in self.rejections],
        }

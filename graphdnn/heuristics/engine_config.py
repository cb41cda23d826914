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
        """The predicted cost, with seconds, bytes and operations."""
        found = self._cost
        if found is None:
            found = self._cost = self.engine.cost(self.task, self.knobs)
        return found

    @property
    def rank(self) -> float:
        """Seconds by which the choice is ranked. An engine with larger errors has a handicap on its time."""
        return self.cost.seconds * self.engine.handicap

    @property
    def scratch(self) -> int:
        """Bytes of workspace that the kernel itself needs."""
        found = self._scratch
        if found is None:
            found = self._scratch = self.engine.workspace(self.task, self.knobs)
        return found

    @property
    def numerical_notes(self) -> tuple[NumericalNote, ...]:
        """The numerical notes of the kernel that the choice launches."""
        return self.engine.setting_notes(self.task, self.knobs)

    @property
    def is_available(self) -> bool:
        """False when a knob has a value that the launched kernel would not have."""
        return self.engine.has_setting(self.task, self.knobs)

    @property
    def rewrite(self) -> RewriteStep | None:
        """The rewrite that the engine applies first; None where it computes the operation as it is."""
        made = self.engine.rewritten
        return None if made is None else made(self.task)

    @property
    def name(self) -> str:
        """The engine with the knobs that differ from their defaults, for example ``conv_x_k40=128_k41=64``."""
        defaults = self.engine.defaults()
        changed = [f"k{int(k)}={v}" for k, v in sorted(self.knobs.items()) if defaults[k] != v]
        return "_".join((self.engine.name, *changed))

    @property
    def where(self) -> str:
        """The engine and the fused operation, as error messages show them."""
        return f"engine {self.engine}, {self.task.where}"


@dataclass(frozen=True, slots=True, eq=False)
class EngineConfig:
    """One choice for each fused operation of a graph. A plan is built from it."""

    fused: FusedGraph
    device: DeviceSpec
    choices: tuple[Choice, ...]
    mode: HeurMode | None = None  # of the ranking it comes from; None where it was put together by hand
    filters: Filters = UNFILTERED  # of that ranking: what they leave out, nobody could have chosen

    def __repr__(self) -> str:
        return f"<EngineConfig {self.name} on {self.device.name}>"

    @property
    def engine_id(self) -> int:
        """The id of the engine; 0 if the graph has several kernels."""
        return self.choices[0].engine.id if len(self.choices) == 1 else COMPOSED_ID

    @property
    def name(self) -> str:
        """The engines of all kernels, with the knobs that differ from their defaults."""
        return " ; ".join(choice.name for choice in self.choices)

    @property
    def predicted_seconds(self) -> float:
        """The predicted time of one execution, in seconds."""
        return sum(choice.cost.seconds for choice in self.choices)

    @property
    def workspace_size(self) -> int:
        """Bytes of workspace: the virtual tensors that pass through memory, and the scratch memory that kernels share
        in turn.
        """
        return materialized_bytes(self.fused, self.device) + max([choice.scratch for choice in self.choices])

    @property
    def numerical_notes(self) -> tuple[NumericalNote, ...]:
        """The numerical notes of all kernels."""
        return tuple(sorted({note for c in self.choices for note in c.numerical_notes}))

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a ranking prints beside the time: the numerical notes, and the handicap of larger errors."""
        return (*(note.name for note in self.numerical_notes), *self._handicapped)

    @property
    def _handicapped(self) -> tuple[str, ...]:
        rank = sum(choice.rank for choice in self.choices)
        return () if rank == self.predicted_seconds else (f"ranked as {seconds(rank)} for its larger errors",)

    @property
    def error_growth(self) -> dict[int, float]:
        """Factors on rounding errors by uid of the written tensor, for engines that state one."""
        stated = [(c.task.op.main, c.engine.growth(c.task.op.main)) for c in self.choices]
        return {t.uid: growth for op, growth in stated if growth != 1.0 for t in op.outputs().values()}

    @property
    def behavior_notes(self) -> tuple[BehaviorNote, ...]:
        """The behavior notes of all engines."""
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
        """Plain data: the operation, the engine and its reasons."""
        return {
            "operation": self.operation.index,
            "engine": self.engine.name,
            "engine_id": self.engine.id,
            "rejections": [r.to_json() for r in self.rejections],
        }

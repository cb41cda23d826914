"""The table of measured candidates, tests/data/measured_h200.txt: what predictions are tested with and fitted to.

A line is a problem and the times of its candidates on an H200, in microseconds: an engine, then the name of its tile
or patch (``p4``: in four parts, ``p4c``: which a cluster adds), or values of its knobs by their names
(``STAGES=2,TILE_M=4``), or nothing for what the engine chooses itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from graphdnn.device.profiles import DeviceSpec
from graphdnn.device_selection import device_spec
from graphdnn.engines import ENGINE_BY_NAME, Task, engines_of
from graphdnn.engines.cuda.sm90 import tile
from graphdnn.engines.cuda.sm90.gemm import dgrad_tf32_tiles
from graphdnn.engines.cuda.sm90.halo import halo_dgrad_tiles, halo_tile_choice, halo_wgrad_tiles
from graphdnn.engines.cuda.sm90.weight_stationary import weight_stationary_tiles
from graphdnn.engines.engine import Engine, Knobs
from graphdnn.enums import KnobType
from graphdnn.fusion import fuse
from graphdnn.heuristics import Choice
from graphdnn.heuristics.filters import ASKED_FOR
from graphdnn.operations import ConvolutionOperation
from graphdnn.problem import parse

TABLE = Path(__file__).parents[2] / "tests" / "data" / "measured_h200.txt"
_TILES = {
    "dgrad": dgrad_tf32_tiles.TILES,
    "halo_dgrad": halo_dgrad_tiles.TILES,
    "halo_wgrad": halo_wgrad_tiles.TILES,
    "halo": halo_tile_choice.TILES,
    "weight_stationary": weight_stationary_tiles.TILES,
}
_PARTS = re.compile(r"(.+?)(?:p(\d+)(c?))?$")
_BY_LAUNCH, _BY_CLUSTER = 1, 2


@dataclass(frozen=True, slots=True)
class Candidate:
    engine: Engine
    knobs: Knobs
    us: float
    label: str  # as the table has it

    def predicted_us(self, task: Task) -> float:
        """As rankings count it."""
        return self.engine.cost(task, self.knobs).microseconds * self.engine.handicap


@dataclass(frozen=True, slots=True)
class Row:
    problem: str
    task: Task
    candidates: tuple[Candidate, ...]

    @property
    def layer(self) -> tuple[object, ...]:
        """What rows of one layer share, whatever their direction, batch, element type and epilogue."""
        anchor = self.task.op.main
        if isinstance(anchor, ConvolutionOperation):
            p = anchor.problem
            return (p.groups, p.c, p.k, p.input, p.filter, p.stride, p.dilation)
        return tuple(tensor.extents for tensor in anchor.inputs().values())

    @property
    def chosen(self) -> Candidate:
        return min(self.candidates, key=lambda one: one.predicted_us(self.task))

    @property
    def best(self) -> Candidate:
        return min(self.candidates, key=lambda one: one.us)

    @property
    def regret(self) -> float:
        """Time of the candidate that is predicted to be the fastest, over that of the fastest."""
        return self.chosen.us / self.best.us

    @property
    def first(self) -> Choice:
        """What a ranking offers first: of all engines, and of those with rounded operands where one was measured."""
        allowed = {note for one in self.candidates for note in one.engine.numerical_notes}
        barred = ASKED_FOR - allowed
        engines = [e for e in engines_of(self.task.device.kind) if barred.isdisjoint(e.numerical_notes)]
        choices = [Choice(self.task, e, e.defaults()) for e in engines if e.serves(self.task)]
        return min(choices, key=lambda choice: choice.rank)

    @property
    def is_first_measured(self) -> bool:
        """Whether some candidate is predicted as the first choice is, whose tile has another name than its engine."""
        return self.chosen.predicted_us(self.task) <= self.first.rank * 1e6 * (1.0 + 1e-9)


def rows(lines: Iterable[str] | None = None, device: DeviceSpec | None = None) -> Iterator[Row]:
    """Of all lines of the table, without candidates that are not offered any more."""
    device = device or device_spec("h200")
    for line in TABLE.read_text(encoding="utf-8").splitlines() if lines is None else lines:
        if line and not line.startswith("#"):
            problem, *measured = line.split(" | ")
            task = Task(fuse(parse(problem).build_operation_graph()).operations[0], device)
            found = [one for text in measured if (one := _candidate(text)) is not None]
            yield Row(problem, task, tuple(found))


def _candidate(text: str) -> Candidate | None:
    name, *asked, us = text.split()
    engine, label = ENGINE_BY_NAME[name], "".join(asked)
    knobs = _settings(engine, label)
    return None if knobs is None else Candidate(engine, knobs, float(us), label)


def _settings(engine: Engine, label: str) -> Knobs | None:
    if "=" in label:
        named = (word.split("=") for word in label.split(","))
        return engine.settings({KnobType[name]: int(value) for name, value in named})
    found = _PARTS.match(label)
    if not found:
        return engine.defaults()
    name, parts, in_cluster = found.groups()
    kind = engine.name.removeprefix("cuda_hopper_").removesuffix("_tf32")
    names = [one.name for one in _TILES.get(kind, tile.TILES)]
    if name not in names:
        return None
    split = {KnobType.SPLIT_K: int(parts)} if parts else {}
    if parts and any(knob.type is KnobType.CTA_SPLIT_K_MODE for knob in engine.knobs):
        split[KnobType.CTA_SPLIT_K_MODE] = _BY_CLUSTER if in_cluster else _BY_LAUNCH
    return engine.settings({KnobType.TILE_SIZE: names.index(name) + 1, **split})

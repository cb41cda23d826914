"""RecordedRanking: a ranking that begins with the configuration that was measured to be the fastest before."""

from __future__ import annotations

from collections.abc import Iterator

from graphdnn.analysis.certificate.numeric_class import numeric_class
from graphdnn.device.profiles import DeviceSpec
from graphdnn.enums import HeurMode, Status
from graphdnn.errors import GraphdnnError, Rejection
from graphdnn.fusion import FusedGraph
from graphdnn.heuristics import EngineConfig, Filters, Ranking
from graphdnn.heuristics.composed import identity
from graphdnn.rules import Rule
from graphdnn.tuning.database.database import Database
from graphdnn.tuning.database.problem_key import problem_key
from graphdnn.tuning.database.record import Record
from graphdnn.tuning.result import time_text

CLASS = Rule(
    id="tuning.record.class",
    expected="errors no larger than those of {first}",
    reason="the recorded configuration was tuned with any_class: {differences}",
    fix="tune without it, or build the recorded configuration by its engine and knobs",
    status=Status.NOT_SUPPORTED,
)


class RecordedRanking(Ranking):
    """The recorded winner first, all others in the ranking's order behind it.

    ``recorded``: what is known of the problem, the fastest first. ``skipped``: why a recorded winner is not used.
    """

    def __init__(
        self, database: Database, fused: FusedGraph, device: DeviceSpec, mode: HeurMode, filters: Filters | None
    ) -> None:
        super().__init__(fused, device, mode, filters)
        self.recorded: list[Record] = database.find(fused, device)
        self.skipped: list[Rejection] = []
        self.winner, self.seconds = self._winner()

    def _winner(self) -> tuple[EngineConfig | None, float | None]:
        """The fastest recorded configuration that this version has and the filters let through, and its time."""
        key = problem_key(self.fused)
        for record in self.recorded:
            try:
                config = record.config(self.fused, key, self.device)
            except GraphdnnError as error:
                self.skipped += error.rejections
                continue
            barred = [r for choice in config.choices for r in self.filtered(choice)] or self._looser(config)
            if not barred:
                return config, record.median
            self.skipped += barred
        return None, None

    def _looser(self, config: EngineConfig) -> list[Rejection]:
        """What was tuned in any class is not taken for one of the class that ``build`` would have chosen."""
        first = next(super()._configs(), None)
        if first is None or numeric_class(config).can_replace(numeric_class(first)):
            return []
        differences = "; ".join(numeric_class(first).differences(numeric_class(config)))
        return [
            CLASS.reject("tuning database", "numeric_class", config.name, first=first.name, differences=differences)
        ]

    def _configs(self) -> Iterator[EngineConfig]:
        first = self.winner
        if first is not None:
            yield first
        for config in super()._configs():
            if first is None or identity(config) != identity(first):
                yield config

    @property
    def note(self) -> str:
        """What the records contributed, in a few words."""
        if self.winner is not None and self.seconds is not None:
            measured, predicted = time_text(self.seconds), time_text(self.winner.predicted_seconds)
            return f"the first was measured to take {measured}, predicted {predicted}"
        return "nothing recorded" if not self.recorded else "no recorded configuration can be used"

    def text(self, *, every_reason: bool = False) -> str:
        """The text of the ranking, with the recorded time and each record that cannot be used."""
        lines = [super().text(every_reason=every_reason), f"tuned: {self.note}"]
        lines += [f"  {line}" for rejection in self.skipped for line in str(rejection).splitlines()]
        return "\n".join(lines)

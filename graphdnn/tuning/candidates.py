"""Which configurations are tried, in which order.

The first is the ranking's best. Its neighbours follow, and those of what was measured to be about as fast, the fastest
one's first: another engine for one kernel, by predicted time; then, in mode B, another value of one knob, each knob's
most promising value before any second one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from graphdnn.analysis.certificate import NumericClass, numeric_class
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines import Engine, Knob, Knobs
from graphdnn.engines.renames import matches_name
from graphdnn.enums import HeurMode, Status
from graphdnn.errors import NotSupported
from graphdnn.fusion import FusedGraph
from graphdnn.heuristics import Choice, EngineConfig, Filters, Ranking
from graphdnn.heuristics.composed import Identity, identity
from graphdnn.rules import Rule

_SEARCHED = 256  # configurations that are looked through for the first one that may be used
_HOPELESS = 4.0  # times the best prediction beyond which nothing is tried, once something works

BARRED = Rule(
    id="tuning.deselected",
    expected="names that leave some configuration",
    reason="every configuration that serves the graph was deselected by name",
    fix="deselect fewer engines",
    status=Status.NOT_SUPPORTED,
)


class Candidates:
    """Configurations one after another; each at most once."""

    def __init__(
        self, ranking: Ranking, mode: HeurMode, *, any_class: bool = False, without: Sequence[str] = ()
    ) -> None:
        self.ranking, self.mode, self.any_class, self.without = ranking, mode, any_class, tuple(without)
        ranking.best  # noqa: B018  raises where nothing serves the graph
        first = next((config for config in islice(ranking, _SEARCHED) if not self._is_barred(config)), None)
        if first is None:
            raise NotSupported(BARRED.reject("AUTOTUNE", "without", ", ".join(self.without)))
        self.first = first
        self.own_class: NumericClass = numeric_class(self.first)
        self._seen: set[Identity] = {identity(self.first)}
        self._around: dict[Identity, list[EngineConfig]] = {}  # each one's neighbours that were not taken yet
        self._offered = [self.first]
        self.other_class: list[EngineConfig] = []

    def next(self, measured: Sequence[EngineConfig]) -> EngineConfig | None:
        """The one to try after these were measured, the fastest first (none: nothing works yet); None at the end."""
        config = next(self._following(measured), None)
        if config is not None:
            self._seen.add(identity(config))
            self._offered.append(config)
        return config

    def upcoming(self, measured: Sequence[EngineConfig], count: int) -> list[EngineConfig]:
        """The candidates that ``next`` would return one after another if nothing new were measured."""
        return list(islice(self._following(measured), count))

    def _following(self, measured: Sequence[EngineConfig]) -> Iterator[EngineConfig]:
        for around in measured or tuple(self._offered):
            left = self._around.get(identity(around))
            if left is None:
                plain = self.mode in (HeurMode.INSTANT, HeurMode.FALLBACK)
                left = self._around[identity(around)] = self._rest() if plain else self._neighbours(around)
            for config in left:
                if identity(config) in self._seen or (measured and self._is_hopeless(config)):
                    continue
                if self._is_barred(config):
                    self._seen.add(identity(config))
                elif self.any_class or numeric_class(config).can_replace(self.own_class):
                    yield config
                else:
                    self._seen.add(identity(config))
                    self.other_class.append(config)

    def _is_barred(self, config: EngineConfig) -> bool:
        return any(matches_name(word, config.name) for word in self.without)

    def _is_hopeless(self, config: EngineConfig) -> bool:
        return config.predicted_seconds > _HOPELESS * self.first.predicted_seconds

    def _rest(self) -> list[EngineConfig]:
        return list(islice(self.ranking, 1, 64))

    def _neighbours(self, around: EngineConfig) -> list[EngineConfig]:
        """Other engines first, then knobs: of each knob the most promising value, then the second of each ..."""
        engines: list[tuple[float, EngineConfig]] = []
        knobs: list[tuple[int, float, int, EngineConfig]] = []
        for i, choice in enumerate(around.choices):
            for other in self.ranking.choices(choice.task.op):
                config = _with(around, i, other)
                if other.engine is not choice.engine:
                    engines.append((config.predicted_seconds, config))
            if self.mode is not HeurMode.B:
                continue
            launched = [choice.engine.effective_knobs(choice.task, choice.knobs)]
            for knob in choice.engine.knobs:
                others = sorted(
                    (_with(around, i, c) for c in self._changes(choice, knob, launched)),
                    key=lambda c: c.predicted_seconds,
                )
                knobs += [(n, c.predicted_seconds, len(knobs) + n, c) for n, c in enumerate(others)]
        engines.sort(key=lambda entry: entry[0])
        knobs.sort(key=lambda entry: entry[:3])
        return [entry[-1] for entry in engines] + [entry[-1] for entry in knobs]

    def _changes(self, choice: Choice, knob: Knob, launched: list[Knobs]) -> Iterator[Choice]:
        """Other values of one knob that can be had, each with a kernel that is not in ``launched`` yet."""
        task, engine = choice.task, choice.engine
        for value in knob.sample:
            asked = engine.settings({**choice.knobs, knob.type: value})
            changed = Choice(task, engine, engine.named_settings(task, asked))
            if not changed.is_available or engine.effective_knobs(task, changed.knobs) in launched:
                continue
            launched.append(engine.effective_knobs(task, changed.knobs))
            if not any(self.ranking.filtered(changed)):
                yield changed


def _with(config: EngineConfig, index: int, choice: Choice) -> EngineConfig:
    choices = (*config.choices[:index], choice, *config.choices[index + 1 :])
    return replace(config, choices=choices)


def candidates_of(
    fused: FusedGraph,
    device: DeviceSpec,
    mode: HeurMode,
    filters: Filters,
    engines: tuple[Engine, ...] | None,
    *,
    any_class: bool,
    without: Sequence[str],
) -> Candidates:
    """Raises ``NotSupported`` with every engine's reasons when there is none."""
    ranked = HeurMode.A if mode is HeurMode.B else mode
    return Candidates(Ranking(fused, device, ranked, filters, engines), mode, any_class=any_class, without=without)

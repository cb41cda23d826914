"""Plan selection: from the operation graph to configurations, and from one of them to a plan."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphdnn.builder.description import Description
from graphdnn.builder.fusion_limits import RequestedLimits
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines import ENGINE_BY_NAME, Knob
from graphdnn.engines.renames import matches_name
from graphdnn.enums import (
    BehaviorNote,
    HeurMode,
    KnobType,
    NumericalNote,
    Status,
)
from graphdnn.errors import BadParam, GraphdnnError, NotInitialized, NotSupported, Rejection
from graphdnn.fusion import FusedGraph, FusionLimits, fuse
from graphdnn.heuristics import EngineConfig, Filters, Ranking
from graphdnn.heuristics.composed import identity
from graphdnn.heuristics.engine_index import IndexedEngine, engine_at, engine_count
from graphdnn.heuristics.filters import notes_of
from graphdnn.pipeline import Records, rank
from graphdnn.plan import ExecutionPlan
from graphdnn.rules import Rule

if TYPE_CHECKING:
    pass

NOT_BUILT = Rule(
    id="builder.not_built",
    expected="a built graph",
    reason="there is no plan yet",
    fix="call build(), or create_execution_plans() and build_plans()",
    status=Status.NOT_INITIALIZED,
)
DESELECTED = Rule(
    id="builder.deselected",
    expected="no name with one of {words}",
    reason="this configuration serves the graph and was deselected by name",
    fix="deselect fewer engines",
    status=Status.NOT_SUPPORTED,
)
INDEX = Rule(
    id="builder.plan.index",
    expected="0 to {last}",
    reason="configurations are counted in the order of the ranking",
    fix="call get_execution_plan_count() after create_execution_plans()",
    status=Status.BAD_PARAM_OUT_OF_BOUND,
)


NO_ENGINE = Rule(
    id="builder.deselect",
    expected="a part of an engine's name",
    reason="a word that is part of no engine's name excludes nothing",
    fix="{meant}take the names of graph.ranking or of docs/support.md",
)
_OF_CONFIGURATIONS = re.compile(r"_k\d+|[;=]")  # knobs, and what joins engines of several kernels

MOST_DESELECTED = 64  # configurations of each ranking that are looked at for the ledger: there can be a product of them


def _like(word: str) -> str:
    from graphdnn.text_format import meant  # when it is asked for

    return meant(word, tuple(ENGINE_BY_NAME))


class PlanSelection:
    """The configurations of a graph, the filters that exclude some, and the chosen plan: the life cycle of cuDNN's
    frontend, which ``build`` runs as a whole.
    """

    def __init__(self, description: Description, device: DeviceSpec) -> None:
        self.description = description
        self.device = device
        self.filters = Filters()
        self.deselected: tuple[str, ...] = ()
        self.rankings: list[Ranking | tuple[EngineConfig]] = []  # a tuple is a configuration chosen by hand
        self.workspaces: dict[tuple[int, int], Any] = {}  # of the plan, by thread and stream
        self._limits = RequestedLimits(description)
        self._plan: ExecutionPlan | None = None
        self._records: Records | None = None

    @property
    def limits(self) -> FusionLimits:
        """The limits of the fusion, by uids. This builds the operation graph."""
        return self._limits.by_uid()

    def limit_fusion(
        self,
        force: Iterable[Sequence[Any]] = (),
        forbid: Iterable[Sequence[Any]] = (),
        bound: int | None = None,
    ) -> None:
        """Force, forbid or bound kernels, in addition to earlier limits.

        An operation is named by a tensor that it writes: the tensor, its uid or its name.

        Args:
            force: Sequences of operations; each sequence has to be one kernel.
            forbid: Pairs of operations that are never in one kernel, or single tensors that always have memory.
            bound: The most operations in a kernel. None leaves the earlier bound.

        Raises:
            BadParam: An entry names no operation of the graph.
            NotSupported: The graph has a list of plans, and no fusion satisfies the limits. The earlier limits then
                stay.
        """
        before, self._limits = self._limits, self._limits.added(force, forbid, bound)
        try:
            self._rank_again()
        except GraphdnnError:
            self._limits = before
            raise

    def create_execution_plans(self, heur_modes: Sequence[HeurMode] = (HeurMode.A,)) -> None:
        """Rank the configurations of the graph. A further call appends the configurations of other modes.

        Args:
            heur_modes: The modes, in order: A, B or FALLBACK.

        Raises:
            BadParam: The graph or a mode is invalid.
            NotSupported: The library does not serve an operation of the graph.
        """
        self.rankings += [self.ranked(mode) for mode in heur_modes]

    def ranked(self, mode: HeurMode) -> Ranking:
        return rank(
            self.description.build_operation_graph(), self.device, mode, self.filters, self.limits, self._records
        )

    def create_execution_plan(
        self, engine_id: int | str, knobs: Mapping[KnobType, int] | Mapping[str, int] | None = None
    ) -> None:
        """Append one configuration of an engine.

        Args:
            engine_id: The id or the name of the engine.
            knobs: Values of knobs, by member or by name. A knob that is left out keeps its default.

        Raises:
            BadParam: There is no such engine, knob or value.
            NotSupported: The engine does not serve the graph. The error lists its reasons.
        """
        self.rankings.append((self._engine(engine_id).configured(knobs or {}),))

    def get_engine_count(self) -> int:
        """The number of engine ids. Not every id has an engine, and not every engine serves the graph."""
        return engine_count()

    def get_knobs_for_engine(self, engine_id: int | str) -> list[Knob]:
        """The knobs of an engine that serves the graph.

        Args:
            engine_id: The id or the name of the engine.

        Returns:
            The knobs, each with its values.

        Raises:
            BadParam: There is no such engine.
            NotSupported: The engine does not serve the graph. The error lists its reasons.
        """
        return list(self._engine(engine_id).row.knobs)

    def get_engine_and_knobs_at_index(self, index: int) -> tuple[int, dict[KnobType, int]]:
        """The engine id and the knobs of a configuration, as ``create_execution_plan`` takes them.

        Indices change between versions; engine ids and knobs do not.

        Args:
            index: The place in the list of configurations, from 0.

        Returns:
            (engine id, knobs).

        Raises:
            BadParam: The list is shorter.
        """
        config = self._config(index)
        if len(config.choices) == 1:
            return config.engine_id, dict(config.choices[0].knobs)
        engine = self._engine(config.engine_id, also=(config,))
        position = [identity(each) for each in engine.composed].index(identity(config))
        return config.engine_id, {KnobType.KERNEL_CFG: position}

    def _engine(self, engine_id: int | str, also: Sequence[EngineConfig] = ()) -> IndexedEngine:
        return engine_at(engine_id, self.fused, self.device, self.description.where, "engine_id", also)

    def _configs(self) -> list[EngineConfig]:
        return [config for ranking in self.rankings for config in ranking]

    def _config(self, index: int) -> EngineConfig:
        configs = self._configs()
        if not 0 <= index < len(configs):
            raise BadParam(INDEX.reject(self.description.where, "index", index, last=len(configs) - 1))
        return configs[index]

    def check_support(self) -> None:
        """Check that an engine serves the graph.

        Raises:
            NotSupported: No configuration is left. The error lists the reasons of the engines for these operations.
            NotInitialized: ``create_execution_plans`` was not called.
        """
        self._first()

    def _first(self) -> EngineConfig:
        """The best allowed configuration, without working out the others."""
        refused: list[Rejection] = []
        for ranking in self.rankings:
            for config in ranking:
                if not self.is_deselected(config):
                    return config
                refused.append(self.deselection(config))
            if isinstance(ranking, Ranking):
                refused += ranking.reasons
        if not self.rankings:
            raise NotInitialized(NOT_BUILT.reject(self.description.where, "plans", "none"))
        error = NotSupported([r for i, r in enumerate(refused) if r not in refused[:i]])  # modes share configurations
        error.subject = tuple(ranking for ranking in self.rankings if isinstance(ranking, Ranking))
        raise error

    def is_deselected(self, config: EngineConfig) -> bool:
        return any(matches_name(word, config.name) for word in self.deselected)

    def deselection(self, config: EngineConfig) -> Rejection:
        words = ", ".join(self.deselected)
        return DESELECTED.reject(self.description.where, "configuration", config.name, words=words)

    def build_plans(self) -> None:
        """Build the best configuration.

        Raises:
            NotSupported: No configuration is left.
            NotInitialized: ``create_execution_plans`` was not called.
        """
        if self._plan is None:
            self._plan = ExecutionPlan(self._first())

    def build_plan_at_index(self, index: int) -> None:
        """Build one configuration of the list and make it the plan.

        Args:
            index: The place in the list of configurations, from 0.

        Raises:
            BadParam: The list is shorter.
        """
        self.choose(ExecutionPlan(self._config(index)))

    def choose(self, plan: ExecutionPlan) -> None:
        """Make this the plan. Workspaces of an earlier plan are dropped."""
        self._plan, self.workspaces = None, {}
        self._plan = plan

    def build(
        self,
        heur_modes: Sequence[HeurMode] = (HeurMode.A, HeurMode.FALLBACK),
        *,
        tuned: Records | Path | str | bool | None = None,
    ) -> ExecutionPlan:
        """Validate the graph, rank its configurations, compile the best one and return its plan.

        Args:
            heur_modes: The modes that are ranked, in order.
            tuned: A tuning database, its file, or True for the one beside the kernel cache. The configuration that was
                measured to be the fastest comes first.

        Returns:
            The plan. A further call returns the same plan.

        Raises:
            BadParam: The graph is invalid. The error lists every problem.
            NotSupported: No engine serves the graph. The error lists the reasons of every engine.
        """
        if tuned is not None:
            self._records = self.database(tuned)
            self._rank_again()
        if self._plan is None:
            if not self.rankings:
                self.create_execution_plans(heur_modes)
            self.build_plans()
        return self.plan

    @staticmethod
    def database(given: Any) -> Any:
        """A tuning database by what names it; None for none."""
        if given is None or given is False:
            return None
        from graphdnn.tuning.database.database import database_of

        return database_of(given)

    @property
    def plan(self) -> ExecutionPlan:
        """The plan that ``build`` made.

        Raises:
            NotInitialized: The graph is not built.
        """
        if self._plan is None:
            raise NotInitialized(NOT_BUILT.reject(self.description.where, "plan", "none"))
        return self._plan

    @property
    def fused(self) -> FusedGraph:
        """The fused operations, and the rule for every edge that was not fused."""
        return fuse(self.description.build_operation_graph(), self.limits)

    @property
    def ranking(self) -> Ranking:
        """The configurations in mode A on the graph's device, best first."""
        return self.ranked(HeurMode.A)

    def get_workspace_size(self) -> int:
        """Bytes of workspace that the plan needs.

        Raises:
            NotInitialized: The graph is not built.
        """
        return self.plan.workspace_size

    def get_execution_plan_count(self) -> int:
        """The number of configurations that ``create_execution_plans`` found."""
        return len(self._configs())

    def get_plan_name_at_index(self, index: int) -> str:
        """The name of a configuration: its engines, with the knobs that differ from their defaults.

        Args:
            index: The place in the list of configurations, from 0.

        Returns:
            The name.

        Raises:
            BadParam: The list is shorter.
        """
        return self._config(index).name

    def get_workspace_size_plan_at_index(self, index: int) -> int:
        """Bytes of workspace that a configuration needs.

        Args:
            index: The place in the list of configurations, from 0.

        Returns:
            The number of bytes.

        Raises:
            BadParam: The list is shorter.
        """
        return self._config(index).workspace_size

    def get_behavior_notes(self) -> list[BehaviorNote]:
        """The behavior notes of the plan.

        Raises:
            NotInitialized: The graph is not built.
        """
        return list(self.plan.behavior_notes)

    def get_behavior_notes_for_plan_at_index(self, index: int) -> list[BehaviorNote]:
        """The behavior notes of a configuration.

        Args:
            index: The place in the list of configurations, from 0.

        Returns:
            The notes.

        Raises:
            BadParam: The list is shorter.
        """
        return list(self._config(index).behavior_notes)

    def get_numeric_notes(self) -> list[NumericalNote]:
        """The numerical notes of the plan.

        Raises:
            NotInitialized: The graph is not built.
        """
        return list(self.plan.numerical_notes)

    def deselect_engines(self, names: Sequence[str] | str) -> None:
        """Exclude configurations by name.

        Args:
            names: A word, or several. A configuration whose name contains one of them is excluded. Earlier names of
                engines count as well.

        Raises:
            BadParam: A word is part of no name.
        """
        words = (names,) if isinstance(names, str) else tuple(names)
        for word in words:
            if not any(matches_name(word, name) for name in ENGINE_BY_NAME) and not _OF_CONFIGURATIONS.search(word):
                raise BadParam(NO_ENGINE.reject(self.description.where, "names", word, meant=_like(word)))
        self.deselected += words

    def deselect_numeric_notes(self, notes: Sequence[NumericalNote | str]) -> None:
        """Exclude engines that have one of these numerical notes.

        Args:
            notes: Members of ``NumericalNote``, or their names.

        Raises:
            BadParam: There is no such note.
        """
        given = notes_of(NumericalNote, notes)
        self._refilter(without_numerical_notes=self.filters.without_numerical_notes | given)

    def allow_numeric_notes(self, notes: Sequence[NumericalNote | str]) -> None:
        """Offer engines that compute with fewer digits than the types have, for example with TF32.

        Args:
            notes: Members of ``NumericalNote``, or their names, for example ``DOWN_CONVERT_INPUTS``.

        Raises:
            BadParam: There is no such note.
        """
        given = notes_of(NumericalNote, notes)
        self._refilter(allowed_numerical_notes=self.filters.allowed_numerical_notes | given)

    def deselect_behavior_notes(self, notes: Sequence[BehaviorNote | str]) -> None:
        """Exclude engines that have one of these behavior notes.

        Args:
            notes: Members of ``BehaviorNote``, or their names.

        Raises:
            BadParam: There is no such note.
        """
        given = notes_of(BehaviorNote, notes)
        self._refilter(without_behavior_notes=self.filters.without_behavior_notes | given)

    def deselect_workspace_greater_than(self, workspace: int) -> None:
        """Exclude configurations that need more workspace.

        Args:
            workspace: The most bytes of workspace.

        Raises:
            BadParam: The argument is not an integer.
        """
        self._refilter(workspace_limit=workspace)

    def _refilter(self, **changes: Any) -> None:
        """Apply a filter to present and later lists."""
        self.filters = replace(self.filters, **changes)
        self._rank_again()

    def _rank_again(self) -> None:
        """What was chosen by hand stays."""
        self.rankings = [self.ranked(old.mode) if isinstance(old, Ranking) else old for old in self.rankings]

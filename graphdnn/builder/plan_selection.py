"""Planning: from the operation graph to configurations, and from one of them to a plan."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphdnn.builder.graph_state import UID_TWICE, with_specs
from graphdnn.builder.limiting import Limiting
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
from graphdnn.fusion import FusedGraph, fuse
from graphdnn.heuristics import EngineConfig, Filters, Ranking
from graphdnn.heuristics.composed import identity
from graphdnn.heuristics.engine_index import IndexedEngine, engine_at, engine_count
from graphdnn.heuristics.filters import notes_of
from graphdnn.pipeline import Records, rank
from graphdnn.plan import ExecutionPlan
from graphdnn.rules import Rule

if TYPE_CHECKING:
    from graphdnn.analysis.diagnostics import DiagnosticList
    from graphdnn.analysis.repairs import Draft, Repairs

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


class Planning(Limiting):
    """The life cycle of cuDNN's frontend; ``build`` runs all of it."""

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self._rankings: list[Ranking | tuple[EngineConfig]] = []  # a tuple is a configuration chosen by hand
        self._filters = Filters()
        self._deselected: tuple[str, ...] = ()
        self._plan: ExecutionPlan | None = None
        self._records: Records | None = None

    def create_execution_plans(self, heur_modes: Sequence[HeurMode] = (HeurMode.A,)) -> None:
        """Rank the configurations of the graph. A further call appends the configurations of other modes.

        Args:
            heur_modes: The modes, in order: A, B or FALLBACK.

        Raises:
            BadParam: The graph or a mode is invalid.
            NotSupported: The library does not serve an operation of the graph.
        """
        self._rankings += [self._ranked(mode) for mode in heur_modes]

    def _ranked(self, mode: HeurMode) -> Ranking:
        return rank(self.build_operation_graph(), self.device, mode, self._filters, self._limits, self._records)

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
        self._rankings.append((self._engine(engine_id).configured(knobs or {}),))

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
        return engine_at(engine_id, self.fused, self.device, f"Graph '{self.name}'", "engine_id", also)

    def _configs(self) -> list[EngineConfig]:
        return [config for ranking in self._rankings for config in ranking]

    def _config(self, index: int) -> EngineConfig:
        configs = self._configs()
        if not 0 <= index < len(configs):
            raise BadParam(INDEX.reject(f"Graph '{self.name}'", "index", index, last=len(configs) - 1))
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
        for ranking in self._rankings:
            for config in ranking:
                if not self._is_deselected(config):
                    return config
                refused.append(self._deselection(config))
            if isinstance(ranking, Ranking):
                refused += ranking.reasons
        if not self._rankings:
            raise NotInitialized(NOT_BUILT.reject(f"Graph '{self.name}'", "plans", "none"))
        error = NotSupported([r for i, r in enumerate(refused) if r not in refused[:i]])  # modes share configurations
        error.subject = tuple(ranking for ranking in self._rankings if isinstance(ranking, Ranking))
        raise error

    def _is_deselected(self, config: EngineConfig) -> bool:
        return any(matches_name(word, config.name) for word in self._deselected)

    def _deselection(self, config: EngineConfig) -> Rejection:
        words = ", ".join(self._deselected)
        return DESELECTED.reject(f"Graph '{self.name}'", "configuration", config.name, words=words)

    def _deselected_configs(self, rankings: Sequence[Ranking]) -> list[Rejection]:
        """The configurations that were barred by name, as far as a list of them is shown."""
        if not self._deselected:
            return []
        configs = (config for ranking in rankings for config in islice(ranking, MOST_DESELECTED))
        return [self._deselection(config) for config in configs if self._is_deselected(config)]

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
        plan = ExecutionPlan(self._config(index))
        self._forget_plan()
        self._plan = plan

    def _forget_plan(self) -> None:
        self._plan = None

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
            self._records = self._database(tuned)
            self._rank_again()
        if self._plan is None:
            if not self._rankings:
                self.create_execution_plans(heur_modes)
            self.build_plans()
        return self.plan

    @staticmethod
    def _database(given: Any) -> Any:
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
            raise NotInitialized(NOT_BUILT.reject(f"Graph '{self.name}'", "plan", "none"))
        return self._plan

    @property
    def fused(self) -> FusedGraph:
        """The fused operations, and the rule for every edge that was not fused."""
        return fuse(self.build_operation_graph(), self._limits)

    @property
    def ranking(self) -> Ranking:
        """The configurations in mode A on the graph's device, best first."""
        return self._ranked(HeurMode.A)

    def refusals(
        self,
        engine: str | int | None = None,
        kind: str | None = None,
        rule: str | None = None,
        operation: str | int | None = None,
        uid: int | None = None,
    ) -> DiagnosticList:
        """Every edge that was not fused, and every engine, pattern, knob and value that was refused. The arguments
        select among them.

        The method works before there is a plan. If the graph is invalid, it lists what is wrong.

        Args:
            engine: The name or the id of an engine.
            kind: A kind of refusal, see :class:`graphdnn.analysis.diagnostics.DiagnosticList`.
            rule: The id of a rule, or the part of an id before a dot.
            operation: The index of a fused operation, or the label or the name of an operation.
            uid: The uid of a tensor.

        Returns:
            The refusals that agree with every argument.

        Raises:
            BadParam: There is no such engine, kind, rule, operation or uid.
        """
        from graphdnn.analysis.diagnostics import (  # when it is asked for
            DiagnosticList,
            check_places,
            of_error,
            of_ranking,
        )

        try:
            rankings = [r for r in self._rankings if isinstance(r, Ranking)] or [self.ranking]
        except GraphdnnError as error:
            found = of_error(error)
        else:
            check_places(rankings[0].fused, rankings[0].device.kind, engine, operation, uid)
            found = DiagnosticList(entry for ranking in rankings for entry in of_ranking(ranking))
            found += of_error(NotSupported(self._deselected_configs(rankings)))
        return found.only(engine, kind, rule, operation, uid)

    def repairs(self) -> Repairs:
        """The smallest edits that make the graph legal, fuse it further or make it faster. Each edit was tried.

        Returns:
            The repairs, smallest first.
        """
        from graphdnn.analysis import repairs  # when it is asked for: importing it takes as long as building a plan

        try:
            ranking = self.ranking
        except GraphdnnError as error:
            draft = self._draft(error)
            return repairs.of_error(error, self.device) if draft is None else repairs.of_draft(draft, self.device)
        fused = ranking.fused
        return repairs.of_graph(fused.graph, self.device, ranking.mode, self._filters, fused.limits)

    def _draft(self, error: GraphdnnError) -> Draft | None:
        """The graph as far as it was described; None where something is still open."""
        if any(r.rule.startswith("builder.") and r.rule != UID_TWICE.id for r in error.rejections):
            return None
        from graphdnn.analysis.repairs import Draft

        self._number()
        draft, keys = Draft(self.name, {}, []), {}
        for tensor in self._tensors:
            keys[id(tensor)] = draft.enter(tensor.fields())
        for node in self._nodes:
            draft.add(node.cls, {**with_specs(node, keys), "name": node.name, "origin": node.origin})
        return draft

    def explain(self) -> str:
        """The fused operations, the ranking and the refusals as text."""
        return f"{self.fused}\n\n{self.ranking}"

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
                raise BadParam(NO_ENGINE.reject(f"Graph '{self.name}'", "names", word, meant=_like(word)))
        self._deselected += words

    def deselect_numeric_notes(self, notes: Sequence[NumericalNote | str]) -> None:
        """Exclude engines that have one of these numerical notes.

        Args:
            notes: Members of ``NumericalNote``, or their names.

        Raises:
            BadParam: There is no such note.
        """
        given = notes_of(NumericalNote, notes)
        self._refilter(without_numerical_notes=self._filters.without_numerical_notes | given)

    def allow_numeric_notes(self, notes: Sequence[NumericalNote | str]) -> None:
        """Offer engines that compute with fewer digits than the types have, for example with TF32.

        Args:
            notes: Members of ``NumericalNote``, or their names, for example ``DOWN_CONVERT_INPUTS``.

        Raises:
            BadParam: There is no such note.
        """
        given = notes_of(NumericalNote, notes)
        self._refilter(allowed_numerical_notes=self._filters.allowed_numerical_notes | given)

    def deselect_behavior_notes(self, notes: Sequence[BehaviorNote | str]) -> None:
        """Exclude engines that have one of these behavior notes.

        Args:
            notes: Members of ``BehaviorNote``, or their names.

        Raises:
            BadParam: There is no such note.
        """
        given = notes_of(BehaviorNote, notes)
        self._refilter(without_behavior_notes=self._filters.without_behavior_notes | given)

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
        self._filters = replace(self._filters, **changes)
        self._rank_again()

    def _relimit(self) -> None:
        self._rank_again()

    def _rank_again(self) -> None:
        """What was chosen by hand stays."""
        self._rankings = [self._ranked(old.mode) if isinstance(old, Ranking) else old for old in self._rankings]

    def key(self) -> str:
        """A hash that is equal for graphs that compute the same.

        Raises:
            BadParam: The graph is invalid.
        """
        return self.build_operation_graph().key

    def __str__(self) -> str:
        return str(self.build_operation_graph())

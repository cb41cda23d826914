"""Planning and running: from the operation graph to configurations, a plan, and its execution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from graphdnn.build import rank
from graphdnn.builder.norms import Normalizations
from graphdnn.builder.tensor import Tensor
from graphdnn.dtypes import Array
from graphdnn.engines.host.memory import empty
from graphdnn.enums import (
    BehaviorNote,
    HeurMode,
    NumericalNote,
    Status,
)
from graphdnn.errors import BadParam, NotInitialized, NotSupported, Rejection
from graphdnn.fusion import FusedGraph, fuse
from graphdnn.heuristics import EngineConfig, Filters, Ranking
from graphdnn.plan import ExecutionPlan
from graphdnn.rules import Rule

NOT_BUILT = Rule(
    id="builder.not_built",
    expected="a built graph",
    reason="there is no plan yet",
    fix="call build() first",
    status=Status.NOT_INITIALIZED,
)
UNKNOWN_KEY = Rule(
    id="builder.binding.unknown",
    expected="a tensor of this graph, its uid or its name",
    reason="the variant pack is addressed by tensor, uid or name",
    fix="pass the tensor that the graph returned",
)

AMBIGUOUS = Rule(
    id="builder.binding.ambiguous",
    expected="one array for one tensor",
    reason="{why}",
    fix="bind it once, by the tensor itself or its uid",
    status=Status.BAD_PARAM_DUPLICATED_ENTRIES,
)
DESELECTED = Rule(
    id="builder.deselected",
    expected="no name with one of {words}",
    reason="this configuration serves the graph and was deselected by name",
    fix="deselect less",
    status=Status.NOT_SUPPORTED,
)
INDEX = Rule(
    id="builder.plan.index",
    expected="0 to {last}",
    reason="configurations are counted in the order of the ranking",
    fix="call get_execution_plan_count() after create_execution_plans()",
    status=Status.BAD_PARAM_OUT_OF_BOUND,
)

_ONLY_UIDS = frozenset({int})


class Planning(Normalizations):
    """The life cycle of cuDNN's frontend, and ``build`` for all of it."""

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self._rankings: list[Ranking] = []
        self._filters = Filters()
        self._deselected: tuple[str, ...] = ()
        self._plan: ExecutionPlan | None = None
        self._workspace: Array | None = None

    def create_execution_plans(self, heur_modes: Sequence[HeurMode] = (HeurMode.A,)) -> None:
        """Rank configurations; may be called again to append other modes'."""
        graph = self.build_operation_graph()
        self._rankings += [rank(graph, self.device, mode, self._filters) for mode in heur_modes]

    def _configs(self) -> list[EngineConfig]:
        return [config for ranking in self._rankings for config in ranking]

    def _config(self, index: int) -> EngineConfig:
        configs = self._configs()
        if not 0 <= index < len(configs):
            raise BadParam(INDEX.reject(f"Graph '{self.name}'", "index", index, last=len(configs) - 1))
        return configs[index]

    def check_support(self) -> None:
        """Raise ``NotSupported`` with every engine's reasons when no configuration is left."""
        self._first()

    def _first(self) -> EngineConfig:
        """The best allowed configuration, without working out the others."""
        refused: list[Rejection] = []
        for ranking in self._rankings:
            for config in ranking:
                if not any(word in config.name for word in self._deselected):
                    return config
                words = ", ".join(self._deselected)
                refused.append(DESELECTED.reject(f"Graph '{self.name}'", "configuration", config.name, words=words))
            refused += [r for declined in ranking.declined for r in declined.rejections]
        if not self._rankings:
            raise NotInitialized(NOT_BUILT.reject(f"Graph '{self.name}'", "plans", "none"))
        raise NotSupported([r for i, r in enumerate(refused) if r not in refused[:i]])  # modes share configurations

    def build_plans(self) -> None:
        """Build the best configuration."""
        if self._plan is None:
            self._plan = ExecutionPlan(self._first())

    def build_plan_at_index(self, index: int) -> None:
        """Build one configuration of the list and make it the plan."""
        self._plan = ExecutionPlan(self._config(index))

    def build(self, heur_modes: Sequence[HeurMode] = (HeurMode.A, HeurMode.FALLBACK)) -> ExecutionPlan:
        """Everything: validate, make the graph, rank, compile. Returns the plan."""
        if self._plan is None:
            if not self._rankings:
                self.create_execution_plans(heur_modes)
            self.build_plans()
        return self.plan

    @property
    def plan(self) -> ExecutionPlan:
        if self._plan is None:
            raise NotInitialized(NOT_BUILT.reject(f"Graph '{self.name}'", "plan", "none"))
        return self._plan

    @property
    def fused(self) -> FusedGraph:
        """What became one kernel, and why the rest did not."""
        return fuse(self.build_operation_graph())

    @property
    def ranking(self) -> Ranking:
        """Configurations in mode A on the graph's device."""
        return rank(self.build_operation_graph(), self.device, HeurMode.A, self._filters)

    def explain(self) -> str:
        """Fused operations, ranking and refusals as text."""
        return f"{self.fused}\n\n{self.ranking}"

    def get_workspace_size(self) -> int:
        return self.plan.workspace_size

    def get_execution_plan_count(self) -> int:
        return len(self._configs())

    def get_plan_name_at_index(self, index: int) -> str:
        return self._config(index).name

    def get_workspace_size_plan_at_index(self, index: int) -> int:
        return self._config(index).workspace_size

    def get_behavior_notes(self) -> list[BehaviorNote]:
        return list(self.plan.behavior_notes)

    def get_numeric_notes(self) -> list[NumericalNote]:
        return list(self.plan.numerical_notes)

    def deselect_engines(self, names: Sequence[str]) -> None:
        """Bar configurations whose name contains one of these words."""
        self._deselected += tuple(names)

    def deselect_numeric_notes(self, notes: Sequence[NumericalNote]) -> None:
        self._refilter(without_numerical_notes=self._filters.without_numerical_notes.union(notes))

    def deselect_behavior_notes(self, notes: Sequence[BehaviorNote]) -> None:
        self._refilter(without_behavior_notes=self._filters.without_behavior_notes.union(notes))

    def deselect_workspace_greater_than(self, workspace: int) -> None:
        self._refilter(workspace_limit=workspace)

    def _refilter(self, **changes: Any) -> None:
        """Apply a filter to the lists that exist and to those that will."""
        self._filters = replace(self._filters, **changes)
        if self._rankings:
            modes = [ranking.mode for ranking in self._rankings]
            self._rankings = []
            self.create_execution_plans(modes)

    # Running.

    def execute(self, variant_pack: Mapping[Any, Any], workspace: Any = None) -> None:
        """Run on ``{tensor, uid or name: array}``; None keys are skipped. Outputs are written in place.

        ``workspace`` None lets the graph keep one of its own, which serves one execution at a time.
        """
        plan = self.plan
        bindings = variant_pack if _ONLY_UIDS.issuperset(map(type, variant_pack)) else self._resolved(variant_pack)
        if workspace is None and plan.workspace_size:
            if self._workspace is None:
                self._workspace = plan.new_workspace()
            workspace = self._workspace
        plan.execute(bindings, workspace)

    def _resolved(self, variant_pack: Mapping[Any, Any]) -> dict[int, Any]:
        bindings: dict[int, Any] = {}
        found = []
        for key, value in variant_pack.items():
            if key is None:
                continue
            uid = int(key) if isinstance(key, (int, np.integer)) else self._uids.get(key)
            if uid is None:
                named = sum(t.name == key for t in self._tensors)
                rule = AMBIGUOUS if named else UNKNOWN_KEY
                why = f"{named} tensors have this name"
                found.append(rule.reject(f"Graph '{self.name}'", "variant_pack", repr(key), why=why))
            elif uid in bindings:
                why = f"uid {uid} is bound already"
                found.append(AMBIGUOUS.reject(f"Graph '{self.name}'", "variant_pack", repr(key), why=why))
            else:
                bindings[uid] = value
        if found:
            raise BadParam(found)
        return bindings

    def run(self, inputs: Mapping[Any, Any]) -> dict[Tensor, Array]:
        """Execute with new arrays for the outputs, and return them by tensor."""
        graph = self.build_operation_graph()
        self.build()
        by_uid = {t.uid: t for t in self._tensors}
        outputs = {by_uid[spec.uid]: empty(spec) for spec in graph.outputs}
        self.execute({**inputs, **outputs})
        return outputs

    def query_tensor_attributes_of_uid(self, uid: int) -> Tensor:
        """The tensor with this uid. Raises when there is none."""
        for tensor in self._tensors:
            if tensor.uid == uid:
                return tensor
        raise BadParam(UNKNOWN_KEY.reject(f"Graph '{self.name}'", "uid", uid))

    def key(self) -> str:
        """Equal for graphs that compute the same."""
        return self.build_operation_graph().key

    def __str__(self) -> str:
        return str(self.build_operation_graph())

"""Prepared: a call with its graph and plan. What runs it is a class for each place where memory is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphdnn.errors import BadParam
from graphdnn.heuristics import Ranking
from graphdnn.plan import ExecutionPlan
from graphdnn.plan.binding_validation import Expected, check_addresses
from graphdnn.v6.argument_slot import Place
from graphdnn.v6.call_graph import Draft
from graphdnn.v6.errors import CudnnError
from graphdnn.v6.rules import FAILED
from graphdnn.v6.thread_state import Listener, thread


class Prepared:
    """``places``: where the call's arguments go. ``in_place``: the inputs that may share the output's memory."""

    __slots__ = ("call", "in_place", "places", "plan", "ranking")

    def __init__(self, draft: Draft, ranking: Ranking, plan: ExecutionPlan, in_place: tuple[int, ...]) -> None:
        graph = plan.config.fused.graph
        self.call, self.ranking, self.plan, self.in_place = draft.call, ranking, plan, in_place
        self.places = tuple(
            Place(slot, is_output=slot.spec.uid in graph.producer)
            for slot in draft.slots
            if slot.spec.uid in graph.tensors  # a tensor of which nothing is read is not bound
        )

    def __call__(self, data: Sequence[Any], workspace: Any = None, workspace_bytes: int = 0) -> None:
        """``data``: the call's arguments by the draft's indices. A workspace that is too small is not used."""
        thread.last = self
        self._run(data, workspace, workspace_bytes)

    def _run(self, data: Sequence[Any], workspace: Any, workspace_bytes: int) -> None:
        raise NotImplementedError

    def _execute(
        self, bound: dict[int, Any], workspace: Any, stream: int, copied: Callable[[Place, Any, int], Any]
    ) -> None:
        """Run the plan; where memory is shared that the call allows to be, on copies of the inputs."""
        try:
            self.plan.execute(bound, workspace, stream)
        except BadParam as error:
            if not (self.in_place and all(r.rule == "binding.overlap" for r in error.rejections)):
                raise
            for place in self.places:
                if place.index in self.in_place and not place.is_output:
                    bound[place.uid] = copied(place, bound[place.uid], stream)
            self.plan.execute(bound, workspace, stream)

    def _record(self, listener: Listener, bound: dict[int, Any], data: Sequence[Any]) -> None:
        """Hand the call over to be run later. ``bound``: arrays, of whose elements none is looked at.

        Raises what running it would: for outputs that are not to be written, or that share memory where no input may.
        """
        tensors = self.plan.config.fused.graph.tensors
        places = [p for p in self.places if p.is_output or not (p.is_copy or p.index in self.in_place)]
        any_address = [tensors[p.uid].model_copy(update={"byte_alignment": 1}) for p in places]
        expected = [Expected.of(t, is_output=p.is_output) for t, p in zip(any_address, places, strict=True)]
        check_addresses(expected, [bound[p.uid] for p in places])
        listener.add(self, bound, data)

    def _failed(self, error: Exception) -> CudnnError:
        detail = f"{type(error).__name__}: {error}"
        return CudnnError(FAILED.reject(self.call, "plan", self.plan.config.name, detail=detail))

    def new_data(self) -> tuple[Any, ...]:
        """Uninitialised memory for each data argument, where the plan runs."""
        specs = {place.index: self.plan.config.fused.graph.tensors[place.uid] for place in self.places}
        return tuple(self.plan.new_array(spec) for _, spec in sorted(specs.items()))

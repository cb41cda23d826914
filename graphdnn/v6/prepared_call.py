"""Prepared: a call with its graph and plan. What runs it is a class for each place where memory is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from graphdnn.errors import BadParam
from graphdnn.heuristics import Ranking
from graphdnn.plan import ExecutionPlan
from graphdnn.plan.device_arrays import shadow_at
from graphdnn.v6.argument_slot import Place
from graphdnn.v6.call_graph import Draft
from graphdnn.v6.errors import CudnnError
from graphdnn.v6.raw_memory import begin_of
from graphdnn.v6.rules import FAILED
from graphdnn.v6.thread_state import Listener, listening, thread


class PreparedCall:
    """``places``: where the call's arguments go. ``in_place``: the inputs that may share the output's memory."""

    __slots__ = ("call", "in_place", "places", "plan", "ranking")

    def __init__(self, draft: Draft, ranking: Ranking, plan: ExecutionPlan, in_place: tuple[int, ...]) -> None:
        graph = plan.config.fused.graph
        self.call, self.ranking, self.plan, self.in_place = draft.call, ranking, plan, in_place
        self.places = tuple(
            Place(slot, is_output=slot.spec.uid in graph.producer)
            for slot in draft.slots
            if slot.spec.uid in graph.tensors  # a tensor that nothing reads is not bound
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

    @contextmanager
    def _told(
        self, listener: Listener, arrays: dict[int, Any], data: Sequence[Any], workspace: Any, workspace_bytes: int
    ) -> Iterator[None]:
        """Inside, the call runs; the listener is told of it before, and after it unless it fails.

        ``arrays``: the arguments by uid; of a device, where they are.
        """
        listener.before(self, arrays)
        with listening(None):
            yield
        scratch = None
        if workspace is not None and 0 < self.plan.workspace_size <= workspace_bytes:
            scratch = shadow_at(begin_of(workspace), np.dtype(np.uint8), (workspace_bytes,), None)
        listener.add(self, arrays, data, scratch)

    def _failed(self, error: Exception) -> CudnnError:
        detail = f"{type(error).__name__}: {error}"
        return CudnnError(FAILED.reject(self.call, "plan", self.plan.config.name, detail=detail))

    def new_data(self) -> tuple[Any, ...]:
        """Uninitialised memory for each data argument, where the plan runs."""
        specs = {place.index: self.plan.config.fused.graph.tensors[place.uid] for place in self.places}
        return tuple(self.plan.new_array(spec) for _, spec in sorted(specs.items()))

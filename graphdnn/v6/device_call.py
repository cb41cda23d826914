"""DeviceCall: a prepared call on the memory of a GPU (on_device.py), in its handle's stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphdnn.errors import BadParam, GraphdnnError
from graphdnn.heuristics import Ranking
from graphdnn.plan import ExecutionPlan
from graphdnn.v6 import device_memory
from graphdnn.v6.argument_slot import Place
from graphdnn.v6.call_graph import Draft
from graphdnn.v6.prepared_call import PreparedCall
from graphdnn.v6.thread_state import thread

ALIGNMENT = 16  # bytes; what device memory has wherever it is, unless a caller goes into an allocation


class DeviceCall(PreparedCall):
    """``for_any_address``: makes the same call for addresses that are not multiples of ``ALIGNMENT``; None where this
    one is.
    """

    __slots__ = ("_copies", "_for_any_address", "_moved", "_unaligned")

    def __init__(
        self, draft: Draft, ranking: Ranking, plan: ExecutionPlan, in_place: tuple[int, ...],
        for_any_address: Callable[[], PreparedCall] | None,
    ) -> None:  # fmt: skip
        super().__init__(draft, ranking, plan, in_place)
        self._for_any_address = for_any_address
        self._unaligned: PreparedCall | None = None
        updated = device_memory.updated(plan, self.places, in_place)
        self._copies = tuple(place for place in self.places if place.is_copy and place.uid not in updated)
        self._moved = tuple(place for place in self.places if place.is_host)

    def _run(self, given: Sequence[Any], workspace: Any, workspace_bytes: int) -> None:
        data = device_memory.moved(self.plan, self._moved, given, thread.stream) if self._moved else given
        listener = thread.listener
        if listener is None:
            self._serve(given, data, workspace, workspace_bytes)
            return
        shadows = device_memory.shadows(self.call, self.places, data)
        with self._told(listener, shadows, data, workspace, workspace_bytes):
            self._serve(given, data, workspace, workspace_bytes)

    def _serve(self, given: Sequence[Any], data: Sequence[Any], workspace: Any, workspace_bytes: int) -> None:
        """``data``: what is given, with the host's part of it moved to the device."""
        try:
            bound = {place.uid: device_memory.bound(self.call, place, data[place.index]) for place in self.places}
            if self._unaligned is None or device_memory.is_aligned(bound.values(), ALIGNMENT):
                self._execute_bound(bound, workspace, workspace_bytes)
            else:
                self._unaligned(given, workspace, workspace_bytes)
        except BadParam as error:
            if self._for_any_address is None or all(r.rule != "binding.alignment" for r in error.rejections):
                raise
            self._unaligned = self._unaligned or self._for_any_address()
            self._unaligned(given, workspace, workspace_bytes)
        except (GraphdnnError, MemoryError):
            raise
        except Exception as error:
            raise self._failed(error) from error

    def _execute_bound(self, bound: dict[int, Any], workspace: Any, workspace_bytes: int) -> None:
        stream = thread.stream
        for place in self._copies:
            bound[place.uid] = self._copied(place, bound[place.uid], stream)
        scratch = None
        if self.plan.workspace_size:
            scratch = device_memory.scratch(self.plan, workspace, workspace_bytes, stream)
        self._execute(bound, scratch, stream, self._copied)
        for place in self.places:
            if type(bound[place.uid]) is int:
                device_memory.remember(self.plan, place, bound[place.uid])

    def _copied(self, place: Place, given: Any, stream: int) -> Any:
        return device_memory.copied(self.plan, place, given, stream)

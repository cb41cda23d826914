"""From a call to a plan: graphs are drafted and planned once for each combination of descriptors, then kept."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from itertools import islice

from graphdnn.bounded_cache import BoundedCache
from graphdnn.heuristics import EngineConfig, Ranking
from graphdnn.pipeline import rank
from graphdnn.plan import ExecutionPlan
from graphdnn.v6.call_graph import Draft
from graphdnn.v6.descriptor_values import Handle
from graphdnn.v6.device_call import ALIGNMENT, DeviceCall
from graphdnn.v6.host_call import HostCall
from graphdnn.v6.prepared_call import PreparedCall
from graphdnn.v6.releases import active
from graphdnn.v6.thread_state import thread
from graphdnn.v6.version_profiles import check_call

_MOST = 512  # prepared calls that are kept
_LOOKED_AT = 64  # configurations, for a named engine; graphs of several kernels have a product of them


Draw = Callable[[Draft], None]  # writes the operations of a call
Names = tuple[tuple[str, ...], ...]
Engines = Callable[[str], Names]  # kind of device -> names of the engines that should serve a call, in order

_kept = BoundedCache[Hashable, PreparedCall](_MOST)


def prepared(
    call: str,
    handle: Handle,
    settings: Hashable,
    draw: Draw,
    in_place: tuple[int, ...] = (),
    engines: Engines | None = None,
) -> PreparedCall:
    """The plan for a call with these settings: descriptors' values and scalars. ``draw`` writes its operations.

    ``in_place``: the inputs that may share the output's memory. ``engines``: the names that a device of a kind should
    serve the call with, if they can; without it the ranking decides.
    """
    found = known(call, handle, settings)
    if found is None:
        if active():
            check_call(call, settings)
        found = _made(call, handle, draw, in_place, engines, _alignment(handle))
        found = _kept.remember((call, id(handle.device), active(), settings), found)
    return found


def known(call: str, handle: Handle, settings: Hashable) -> PreparedCall | None:
    """The plan for a call, if it was made before."""
    thread.stream = handle.stream
    return _kept.get((call, id(handle.device), active(), settings))


def workspace_of(call: str, handle: Handle, draw: Draw) -> int:
    """Bytes of workspace that the plan of such a call wants; nothing is compiled."""
    return rank(_drawn(call, draw, _alignment(handle)).graph(), handle.device).best.workspace_size


def _made(
    call: str, handle: Handle, draw: Draw, in_place: tuple[int, ...], engines: Engines | None, alignment: int
) -> PreparedCall:
    """A call whose arguments' addresses are multiples of ``alignment`` bytes."""
    draft = _drawn(call, draw, alignment)
    ranking = rank(draft.graph(), handle.device)
    names = () if engines is None else engines(handle.device.kind)
    plan = ExecutionPlan(_chosen(ranking, names))
    if handle.device.kind == "cpu":
        return HostCall(draft, ranking, plan, in_place)
    for_any_address = partial(_made, call, handle, draw, in_place, engines, 1) if alignment > 1 else None
    return DeviceCall(draft, ranking, plan, in_place, for_any_address)


def _alignment(handle: Handle) -> int:
    return 1 if handle.device.kind == "cpu" else ALIGNMENT


def _drawn(call: str, draw: Draw, alignment: int) -> Draft:
    draft = Draft(call, alignment)
    draw(draft)
    return draft


def _chosen(ranking: Ranking, names: Names) -> EngineConfig:
    """The best configuration with an engine of the first names, else of the next; the best of all where none serves."""
    for some in names:
        for config in islice(ranking, _LOOKED_AT):
            if any(choice.engine.name in some for choice in config.choices):
                return config
    return ranking.best

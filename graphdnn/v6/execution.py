"""From a call to a plan: graphs are drafted and planned once for each combination of descriptors, then kept.

An argument stands for its memory, as a pointer does in C: an array with the descriptor's extents
and strides is bound as it is, any other contiguous array is read as that memory. An array that
is input and output at once is copied before the plan runs, where the call allows that and a
plan for a device does not take it as it is (in_place.py).
"""

from __future__ import annotations

import ctypes
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from graphdnn.build import rank
from graphdnn.dtypes import Array
from graphdnn.errors import BadParam, GraphdnnError
from graphdnn.heuristics import EngineConfig, Ranking
from graphdnn.plan import ExecutionPlan
from graphdnn.v6 import on_device
from graphdnn.v6.arguments import Address
from graphdnn.v6.draft import Draft
from graphdnn.v6.errors import CudnnError
from graphdnn.v6.objects import Handle
from graphdnn.v6.place import Place
from graphdnn.v6.profiles import active, check_call
from graphdnn.v6.rules import FAILED, MEMORY_KIND, MEMORY_LAYOUT, MEMORY_SMALL, MEMORY_TYPE

_MOST = 512  # prepared calls that are kept
_ALIGNMENT = 16  # bytes; what device memory has wherever it is, unless a caller goes into an allocation
_LOOKED_AT = 64  # configurations, for a named engine; graphs of several kernels have a product of them


Draw = Callable[[Draft], None]  # writes the operations of a call
Names = tuple[tuple[str, ...], ...]
Engines = Callable[[str], Names]  # of a kind of device: the names of those that should serve a call, in this order


class Prepared:
    """A call with its graph and plan."""

    __slots__ = (
        "_copies", "_draw", "_in_place", "_moved", "_on_host", "_places", "_unaligned", "call", "plan", "ranking",
    )  # fmt: skip

    def __init__(
        self, draw: Callable[[int], Draft], handle: Handle, in_place: tuple[int, ...], engines: Engines | None,
        alignment: int,
    ) -> None:  # fmt: skip
        """``draw``: the call's draft, for addresses of an alignment."""
        draft = draw(alignment)
        graph = draft.graph()
        self._unaligned: Prepared | None = None  # for addresses that are not multiples of that
        self._draw = partial(Prepared, draw, handle, in_place, engines, 1) if alignment > 1 else None
        self.call = draft.call
        self.ranking: Ranking = rank(graph, handle.device)
        names = () if engines is None else engines(handle.device.kind)
        self.plan = ExecutionPlan(_chosen(self.ranking, names))
        self._places = tuple(
            Place(slot, is_output=slot.spec.uid in graph.producer)
            for slot in draft.slots
            if slot.spec.uid in graph.tensors  # a tensor of which nothing is read is not bound
        )
        self._on_host = handle.device.kind == "cpu"
        updated = frozenset() if self._on_host else on_device.updated(self.plan, self._places, in_place)
        self._copies = tuple(place for place in self._places if place.is_copy and place.uid not in updated)
        self._moved = tuple(place for place in self._places if place.is_host)
        self._in_place = in_place

    def __call__(self, data: Sequence[Any], workspace: Any = None, workspace_bytes: int = 0) -> None:
        """``data``: the call's arguments by the draft's indices. A workspace that is too small is not used."""
        thread = _thread
        thread.last = self
        if not self._on_host:
            self._run_on_device(data, workspace, workspace_bytes)
            return
        bindings = {}
        for place in self._places:
            given = data[place.index]
            if (
                type(given) is not np.ndarray
                or given.shape != place.shape
                or given.strides != place.strides
                or given.dtype != place.dtype
            ):
                given = _reinterpreted(self.call, place, given)
            bindings[place.uid] = given
        if thread.listener is not None and thread.listener(self, bindings, data):
            return
        for place in self._copies:
            bindings[place.uid] = _copied(place, bindings[place.uid])
        size = self.plan.workspace_size
        if size:
            fits = workspace is not None and workspace_bytes >= size
            workspace = _bytes(workspace, size) if fits else _own_workspace(size)
        try:
            self.plan.execute(bindings, workspace if size else None)
        except BadParam as error:
            if not (self._in_place and all(r.rule == "binding.overlap" for r in error.rejections)):
                raise
            for place in self._places:
                if place.index in self._in_place and not place.is_output:
                    bindings[place.uid] = _copied(place, bindings[place.uid])
            self.plan.execute(bindings, workspace if size else None)
        except (GraphdnnError, MemoryError):
            raise
        except Exception as error:
            raise self._failed(error) from error

    def _run_on_device(self, given: Sequence[Any], workspace: Any, workspace_bytes: int) -> None:
        data = on_device.moved(self.plan, self._moved, given, _thread.stream) if self._moved else given
        listener = _thread.listener
        if listener is not None:
            shadows = on_device.shadows(self.call, self._places, data)
            if listener(self, shadows, data):
                return
        try:
            bound = {place.uid: on_device.bound(self.call, place, data[place.index]) for place in self._places}
            if self._unaligned is None or on_device.is_aligned(bound.values(), _ALIGNMENT):
                self._execute_on_device(bound, workspace, workspace_bytes)
            else:
                self._unaligned(given, workspace, workspace_bytes)
        except BadParam as error:
            if self._draw is None or all(r.rule != "binding.alignment" for r in error.rejections):
                raise
            self._unaligned = self._unaligned or self._draw()
            self._unaligned(given, workspace, workspace_bytes)
        except (GraphdnnError, MemoryError):
            raise
        except Exception as error:
            raise self._failed(error) from error

    def _execute_on_device(self, bound: dict[int, Any], workspace: Any, workspace_bytes: int) -> None:
        stream = _thread.stream
        for place in self._copies:
            bound[place.uid] = on_device.copied(self.plan, place, bound[place.uid], stream)
        scratch = None
        if self.plan.workspace_size:
            scratch = on_device.scratch(self.plan, workspace, workspace_bytes, stream)
        try:
            self.plan.execute(bound, scratch, stream)
        except BadParam as error:
            if not (self._in_place and all(r.rule == "binding.overlap" for r in error.rejections)):
                raise
            for place in self._places:
                if place.index in self._in_place and not place.is_output:
                    bound[place.uid] = on_device.copied(self.plan, place, bound[place.uid], stream)
            self.plan.execute(bound, scratch, stream)
        for place in self._places:
            if type(bound[place.uid]) is int:
                on_device.remember(self.plan, place, bound[place.uid])

    def _failed(self, error: Exception) -> CudnnError:
        detail = f"{type(error).__name__}: {error}"
        return CudnnError(FAILED.reject(self.call, "plan", self.plan.config.name, detail=detail))

    def new_data(self) -> tuple[Any, ...]:
        """Uninitialised memory for each data argument, where the plan runs."""
        specs = {place.index: self.plan.config.fused.graph.tensors[place.uid] for place in self._places}
        return tuple(self.plan.new_array(spec) for _, spec in sorted(specs.items()))


_kept: OrderedDict[Hashable, Prepared] = OrderedDict()
_guard = threading.Lock()


# Takes a call, its arrays by uid (of a device: where they are) and its arguments; True: the call is not to run now.
Listener = Callable[[Prepared, dict[int, Any], Sequence[Any]], bool]


class _Thread(threading.local):
    last: Prepared | None = None
    listener: Listener | None = None
    stream = 0  # of the handle that a call was prepared for
    workspace: Array = np.empty(0, np.uint8)


_thread = _Thread()


@contextmanager
def listening(listener: Listener | None) -> Iterator[Listener | None]:
    """Inside, the thread's calls are told to ``listener`` before they run, and to nobody where it is None.

    Gives the one that was told before.
    """
    before = _thread.listener
    _thread.listener = listener
    try:
        yield before
    finally:
        _thread.listener = before


def prepared(
    call: str,
    handle: Handle,
    settings: Hashable,
    draw: Draw,
    in_place: tuple[int, ...] = (),
    engines: Engines | None = None,
) -> Prepared:
    """The plan for a call with these settings: descriptors' values and scalars. ``draw`` writes its operations.

    ``in_place``: the inputs that may share the output's memory. ``engines``: the names that a device of a kind should
    serve the call with, if they can; without it the ranking decides.
    """
    found = known(call, handle, settings)
    if found is None:
        if active():
            check_call(call, settings)
        found = Prepared(partial(_drawn, call, draw), handle, in_place, engines, _alignment(handle))
        with _guard:
            _kept[call, id(handle.device), active(), settings] = found
            while len(_kept) > _MOST:
                _kept.popitem(last=False)
    return found


def workspace_of(call: str, handle: Handle, draw: Draw) -> int:
    """Bytes of workspace that the plan of such a call wants; nothing is compiled."""
    return rank(_drawn(call, draw, _alignment(handle)).graph(), handle.device).best.workspace_size


def _alignment(handle: Handle) -> int:
    return 1 if handle.device.kind == "cpu" else _ALIGNMENT


def _drawn(call: str, draw: Draw, alignment: int) -> Draft:
    draft = Draft(call, alignment)
    draw(draft)
    return draft


def current_stream() -> int:
    """The stream of the handle that the thread's last call was prepared for."""
    return _thread.stream


def known(call: str, handle: Handle, settings: Hashable) -> Prepared | None:
    """The plan for a call, if it was made before."""
    _thread.stream = handle.stream
    return _kept.get((call, id(handle.device), active(), settings))


def _chosen(ranking: Ranking, names: Names) -> EngineConfig:
    """The best configuration with an engine of the first names, else of the next; the best of all where none serves."""
    for some in names:
        for config in islice(ranking, _LOOKED_AT):
            if any(choice.engine.name in some for choice in config.choices):
                return config
    return ranking.best


def _own_workspace(size: int) -> Array:
    """Memory of this thread, kept from call to call: fresh pages cost more than small convolutions."""
    if _thread.workspace.size < size:
        _thread.workspace = np.empty(size, np.uint8)
    return _thread.workspace


def _bytes(workspace: Any, size: int) -> Array:
    """The caller's workspace, as the plan takes it."""
    if isinstance(workspace, Address):
        memory = (ctypes.c_char * size).from_address(workspace.address)
        return np.frombuffer(memoryview(memory), np.uint8)
    found: Array = np.asarray(workspace).reshape(-1).view(np.uint8)
    return found


def last_prepared() -> Prepared | None:
    """The thread's last call that became a graph."""
    return _thread.last


def _copied(place: Place, given: Array) -> Array:
    """The same elements with the same strides, elsewhere."""
    copy: Array = np.ndarray(place.shape, place.dtype, np.empty(place.size, np.uint8).data, strides=place.strides)
    copy[...] = given
    return copy


def _reinterpreted(call: str, place: Place, given: Any) -> Array:
    """The memory behind an argument, read as the descriptor says. Raises when it does not reach that far."""
    if isinstance(given, Address):
        if given.size is not None and given.size < place.size:
            raise CudnnError(MEMORY_SMALL.reject(call, place.label, f"{given.size} bytes", size=place.size))
        memory = (ctypes.c_char * place.size).from_address(given.address)
        return np.ndarray(place.shape, place.dtype, buffer=memoryview(memory), strides=place.strides)
    if not isinstance(given, np.ndarray):
        raise CudnnError(MEMORY_KIND.reject(call, place.label, type(given).__name__))
    if given.dtype not in (place.dtype, np.uint8):
        raise CudnnError(MEMORY_TYPE.reject(call, place.label, str(given.dtype), expected=str(place.dtype)))
    if given.flags.c_contiguous or given.flags.f_contiguous:
        if given.nbytes < place.size:
            raise CudnnError(MEMORY_SMALL.reject(call, place.label, f"{given.nbytes} bytes", size=place.size))
        flat = given.reshape(-1) if given.flags.c_contiguous else given.T.reshape(-1)
        view = np.ndarray(place.shape, place.dtype, buffer=flat.view(np.uint8).data, strides=place.strides)
        if place.is_output and not given.flags.writeable:
            view.flags.writeable = False
        return view
    shape, strides = place.shape, place.strides
    if place.described is not None:
        shape, strides = place.described.dims, tuple(s * given.itemsize for s in place.described.strides)
    if given.shape == shape and all(
        have == want or extent == 1 for have, want, extent in zip(given.strides, strides, shape, strict=True)
    ):
        if place.described is None:
            return np.asarray(given)
        return as_strided(given, place.shape, place.strides, writeable=given.flags.writeable)
    layout = f"{given.shape}, strides {given.strides}"
    raise CudnnError(MEMORY_LAYOUT.reject(call, place.label, layout, dims=shape, strides=strides))

"""HostCall: a prepared call on the host.

An argument stands for its memory, as a pointer does in C: an array with the descriptor's extents
and strides is bound as it is, any other contiguous array is read as that memory. An array that
is input and output at once is copied before the plan runs, where the call allows that.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from graphdnn.dtypes import Array
from graphdnn.errors import GraphdnnError
from graphdnn.heuristics import Ranking
from graphdnn.plan import ExecutionPlan
from graphdnn.v6.argument_slot import Place
from graphdnn.v6.arguments import Address
from graphdnn.v6.call_graph import Draft
from graphdnn.v6.errors import CudnnError
from graphdnn.v6.prepared_call import PreparedCall
from graphdnn.v6.raw_memory import bytes_at
from graphdnn.v6.rules import MEMORY_KIND, MEMORY_LAYOUT, MEMORY_ORDER, MEMORY_SMALL, MEMORY_TYPE
from graphdnn.v6.thread_state import thread


class HostCall(PreparedCall):
    """``copies``: old contents that other threads may read where the plan writes."""

    __slots__ = ("_copies",)

    def __init__(self, draft: Draft, ranking: Ranking, plan: ExecutionPlan, in_place: tuple[int, ...]) -> None:
        super().__init__(draft, ranking, plan, in_place)
        self._copies = tuple(place for place in self.places if place.is_copy)

    def _run(self, data: Sequence[Any], workspace: Any, workspace_bytes: int) -> None:
        bindings = {}
        for place in self.places:
            given = data[place.index]
            if (
                type(given) is not np.ndarray
                or given.shape != place.shape
                or given.strides != place.strides
                or given.dtype != place.dtype
            ):
                given = _reinterpreted(self.call, place, given)
            bindings[place.uid] = given
        listener = thread.listener
        if listener is None:
            self._serve(bindings, workspace, workspace_bytes)
            return
        with self._told(listener, dict(bindings), data, workspace, workspace_bytes):
            self._serve(bindings, workspace, workspace_bytes)

    def _serve(self, bindings: dict[int, Any], workspace: Any, workspace_bytes: int) -> None:
        for place in self._copies:
            bindings[place.uid] = _copied(place, bindings[place.uid])
        size = self.plan.workspace_size
        if size:
            fits = workspace is not None and workspace_bytes >= size
            workspace = _bytes(self.call, workspace, size) if fits else _own_workspace(size)
        try:
            self._execute(bindings, workspace if size else None, 0, _copied)
        except (GraphdnnError, MemoryError):
            raise
        except Exception as error:
            raise self._failed(error) from error


class _Thread(threading.local):
    workspace: Array = np.empty(0, np.uint8)


_thread = _Thread()


def _own_workspace(size: int) -> Array:
    """Memory of this thread, kept from call to call: fresh pages cost more than small convolutions."""
    if _thread.workspace.size < size:
        _thread.workspace = np.empty(size, np.uint8)
    return _thread.workspace


def _bytes(call: str, workspace: Any, size: int) -> Array:
    """The caller's workspace, as the plan takes it."""
    if isinstance(workspace, Address):
        return np.frombuffer(bytes_at(call, "workSpace", workspace, size, is_written=True), np.uint8)
    found: Array = np.asarray(workspace).reshape(-1).view(np.uint8)
    return found


def _copied(place: Place, given: Array, stream: int = 0) -> Array:
    """The same elements with the same strides, elsewhere."""
    copy: Array = np.ndarray(place.shape, place.dtype, np.empty(place.size, np.uint8).data, strides=place.strides)
    copy[...] = given
    return copy


def _reinterpreted(call: str, place: Place, given: Any) -> Array:
    """The memory behind an argument, read as the descriptor says. Raises when it does not reach that far."""
    if isinstance(given, Address):
        if given.size is not None and given.size < place.size:
            raise CudnnError(MEMORY_SMALL.reject(call, place.label, f"{given.size} bytes", size=place.size))
        memory = bytes_at(call, place.label, given, place.size, is_written=place.is_output)
        return np.ndarray(place.shape, place.dtype, buffer=memory, strides=place.strides)
    if not isinstance(given, np.ndarray):
        raise CudnnError(MEMORY_KIND.reject(call, place.label, type(given).__name__))
    if given.dtype not in place.dtypes:
        raise CudnnError(MEMORY_TYPE.reject(call, place.label, str(given.dtype), expected=str(place.dtype)))
    shape, strides = place.layout()
    if given.flags.c_contiguous or given.flags.f_contiguous:
        if place.is_in_another_order(given.shape, given.strides):
            layout = f"{given.shape}, strides {given.strides}"
            raise CudnnError(MEMORY_ORDER.reject(call, place.label, layout, dims=shape, strides=strides))
        if given.nbytes < place.size:
            raise CudnnError(MEMORY_SMALL.reject(call, place.label, f"{given.nbytes} bytes", size=place.size))
        flat = given.reshape(-1) if given.flags.c_contiguous else given.T.reshape(-1)
        view = np.ndarray(place.shape, place.dtype, buffer=flat.view(np.uint8).data, strides=place.strides)
        if place.is_output and not given.flags.writeable:
            view.flags.writeable = False
        return view
    if (given.shape, given.itemsize) == (shape, place.dtype.itemsize) and all(
        have == want or extent == 1 for have, want, extent in zip(given.strides, strides, shape, strict=True)
    ):
        given = given.view(place.dtype)
        if place.described is None:
            return np.asarray(given)
        return as_strided(given, place.shape, place.strides, writeable=given.flags.writeable)
    layout = f"{given.shape}, strides {given.strides}"
    raise CudnnError(MEMORY_LAYOUT.reject(call, place.label, layout, dims=shape, strides=strides))

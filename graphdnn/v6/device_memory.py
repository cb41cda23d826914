"""Calls of handles on a GPU: arguments are its memory, work goes into the handle's stream and is not waited for.

An array with the descriptor's extents and strides is bound as it is; of any other contiguous one, the address. Old
contents that a call blends with, and inputs that share the output's memory, are copied by a kernel first, into memory
that is kept for the thread, the stream and the call; unless the plan reads each element where it writes it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from graphdnn.bounded_cache import BoundedCache
from graphdnn.cuda import driver_api
from graphdnn.device.profiles import DeviceSpec
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.operations import Transpose
from graphdnn.pipeline import rank
from graphdnn.plan import ExecutionPlan
from graphdnn.plan.device_arrays import shadow_at
from graphdnn.tensors import TensorSpec
from graphdnn.v6.argument_slot import Place
from graphdnn.v6.arguments import Address
from graphdnn.v6.errors import CudnnError
from graphdnn.v6.in_place_outputs import in_place
from graphdnn.v6.rules import MEMORY_LAYOUT, MEMORY_ORDER, MEMORY_SMALL, MEMORY_TYPE

Maker = Callable[[TensorSpec, DeviceSpec], ExecutionPlan]


class _Thread(threading.local):
    def __init__(self) -> None:
        self.kept: dict[tuple[int, int, int], tuple[ExecutionPlan, Any]] = {}  # (plan, stream, uid) -> memory


_thread = _Thread()
_planned = BoundedCache[tuple[Maker, TensorSpec, int], ExecutionPlan](256)
_MOST_KEPT, _MOST_ADDRESSES = 256, 64
_WORKSPACE = 0  # where a uid stands otherwise


def updated(plan: ExecutionPlan, places: Sequence[Place], allowed: Collection[int]) -> frozenset[int]:
    """Old contents that need no copy: what the plan writes in their place goes there element by element.

    ``allowed``: the call's arguments, by index, that may be an output's memory; others are refused as everywhere.
    """
    from graphdnn.plan import DevicePlan  # which loads with the first plan for a device

    assert isinstance(plan, DevicePlan)
    index = {place.uid: place.index for place in places}
    pairs = [(old, new) for old, new in in_place(plan.config) if old in index and new in index]
    updated = {old for old, new in pairs if index[old] == index[new]}
    plan.in_place = frozenset((old, new) for old, new in pairs if old in updated or index[old] in allowed)
    return frozenset(updated)


def moved(plan: ExecutionPlan, places: Sequence[Place], data: Sequence[Any], stream: int) -> Sequence[Any]:
    """The data with what the call itself has on the host (these places) copied to the device, once the stream no
    longer reads it.
    """
    found = list(data)
    for place in places:
        key = id(plan), stream, place.uid
        if key in _thread.kept:
            driver_api.synchronize(stream)
            del _thread.kept[key]
        array = np.ascontiguousarray(data[place.index], place.dtype)
        there = plan.to_device({place.uid: array})[place.uid]
        found[place.index] = _kept(plan, stream, place.uid, lambda there=there: there)
    return found


def shadows(call: str, places: Sequence[Place], data: Sequence[Any]) -> dict[int, Any]:
    """Arrays that say where a call's memory is. Their elements must not be looked at."""
    return {
        place.uid: shadow_at(_address(bound(call, place, data[place.index])), place.dtype, place.shape, place.strides)
        for place in places
    }


def is_aligned(bound: Iterable[Any], alignment: int) -> bool:
    return all(_address(given) % alignment == 0 for given in bound)


def _address(given: Any) -> int:
    if isinstance(given, int):
        return given
    if type(given).__module__.startswith("cupy"):
        return int(given.data.ptr)
    interface = given.__array_interface__ if type(given) is np.ndarray else given.__cuda_array_interface__
    return int(interface["data"][0])


def recorded(
    plans: Sequence[ExecutionPlan], arrays: Mapping[int, Any], copied: Collection[int], stream: int
) -> Callable[[], None]:
    """What executes recorded graphs on shadows; ``copied``: those whose contents are moved away before anything runs.

    What is given keeps the memory that the work in the stream uses.
    """
    bound: dict[int, Any] = {uid: _address(np.asarray(array)) for uid, array in arrays.items()}
    copies: list[tuple[ExecutionPlan, dict[int, Any]]] = []
    for plan in plans:
        for spec in plan.config.fused.graph.bound:
            if spec.uid in copied:
                room = plan.new_array(spec)
                copies.append((copier(spec, plan.config.device), {1: bound[spec.uid], 2: room}))
                bound[spec.uid] = room
    work = [
        (plan, {t.uid: bound[t.uid] for t in plan.config.fused.graph.bound}, plan.new_workspace()) for plan in plans
    ]

    def run() -> None:
        for plan, bindings in copies:
            plan.execute(bindings, None, stream)
        for plan, bindings, workspace in work:
            plan.execute(bindings, workspace, stream)

    return run


def bound(call: str, place: Place, given: Any) -> Any:
    """What the plan takes for an argument: the array itself, or its address, or an array that stands for that."""
    if isinstance(given, Address):
        if given.size is not None and given.size < place.size:
            raise CudnnError(MEMORY_SMALL.reject(call, place.label, f"{given.size} bytes", size=place.size))
        return place.arrays.get(given.address, given.address)
    if type(given).__module__.startswith("cupy"):
        shape, strides, dtype = given.shape, given.strides, given.dtype
    elif type(given) is np.ndarray:
        return given  # the plan says what is wrong with it
    else:
        interface = given.__cuda_array_interface__
        shape, dtype = tuple(interface["shape"]), np.dtype(interface["typestr"])
        strides = interface.get("strides")
        strides = _packed(shape, dtype.itemsize) if strides is None else tuple(strides)
    if shape == place.shape and strides == place.strides and dtype == place.dtype:
        return given
    _check_layout(call, place, shape, strides, dtype)
    address = _address(given)
    return place.arrays.get(address, address)


def _check_layout(
    call: str, place: Place, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype[Any]
) -> None:
    """An array that is not what the plan binds has the descriptor's extents and strides, or is contiguous."""
    if dtype not in place.dtypes:
        raise CudnnError(MEMORY_TYPE.reject(call, place.label, str(dtype), expected=str(place.dtype)))
    wanted, steps = place.layout()
    if shape == wanted and all(a == b or n == 1 for a, b, n in zip(strides, steps, shape, strict=True)):
        return
    if strides not in (_packed(shape, dtype.itemsize), _packed(shape[::-1], dtype.itemsize)[::-1]):
        layout = f"{shape}, strides {strides}"
        raise CudnnError(MEMORY_LAYOUT.reject(call, place.label, layout, dims=wanted, strides=steps))
    if place.is_in_another_order(shape, strides):
        layout = f"{shape}, strides {strides}"
        raise CudnnError(MEMORY_ORDER.reject(call, place.label, layout, dims=wanted, strides=steps))
    size = prod(shape) * dtype.itemsize
    if size < place.size:
        raise CudnnError(MEMORY_SMALL.reject(call, place.label, f"{size} bytes", size=place.size))


def remember(plan: ExecutionPlan, place: Place, address: int) -> None:
    """An address that the plan took is an array from now on: the driver is asked about it once."""
    from graphdnn.plan import DevicePlan  # which loads with the first plan for a device

    assert isinstance(plan, DevicePlan)
    if len(place.arrays) >= _MOST_ADDRESSES:
        place.arrays.clear()
    place.arrays[address] = plan.array_at(place.uid, address)


def _packed(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    strides, step = [], itemsize
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def scratch(plan: ExecutionPlan, workspace: Any, size: int, stream: int) -> Any:
    """The caller's workspace if it is large enough, or one of this thread's own."""
    if workspace is not None and size >= plan.workspace_size:
        return workspace.address if isinstance(workspace, Address) else workspace
    return _kept(plan, stream, _WORKSPACE, plan.new_workspace)


def _kept(plan: ExecutionPlan, stream: int, uid: int, make: Any) -> Any:
    kept, key = _thread.kept, (id(plan), stream, uid)
    if key not in kept:
        kept[key] = plan, make()  # the plan keeps its identity
        while len(kept) > _MOST_KEPT:
            oldest = next(iter(kept))
            driver_api.synchronize(oldest[1])  # work that uses it may not have begun
            del kept[oldest]
    return kept[key][1]


def copied(plan: ExecutionPlan, place: Place, given: Any, stream: int) -> Any:
    """The same elements elsewhere, once the stream is there."""
    spec = plan.config.fused.graph.tensors[place.uid]
    copy = _kept(plan, stream, place.uid, lambda: plan.new_array(spec))
    copier(spec, plan.config.device).execute({1: given, 2: copy}, None, stream)
    return copy


def copier(spec: TensorSpec, device: DeviceSpec) -> ExecutionPlan:
    """A plan that copies tensor 1 of this layout to tensor 2, bit by bit."""
    return planned(_copy_plan, spec.model_copy(update={"uid": 1, "name": ""}), device)


def planned(make: Maker, spec: TensorSpec, device: DeviceSpec) -> ExecutionPlan:
    """What ``make`` makes of a layout and a device; kept by both, and by who makes it. The plan holds the device."""
    key = make, spec, id(device)
    found = _planned.get(key)
    if found is None:
        found = _planned.remember(key, make(spec, device))
    return found


def _copy_plan(spec: TensorSpec, device: DeviceSpec) -> ExecutionPlan:
    axes = tuple(range(len(spec.dims)))
    graph = OperationGraph.of([Transpose(x=spec, y=spec.model_copy(update={"uid": 2}), permutation=axes)])
    return ExecutionPlan(rank(graph, device).best)

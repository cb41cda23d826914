"""The three directions of a convolution, as the queries and searches for algorithms see them.

Each C function of a direction takes its tensors in one order: two that are read, the convolution, the one that is
written; so the queries are written once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from time import perf_counter
from typing import Any

import numpy as np

from graphdnn.errors import GraphdnnError
from graphdnn.v6.algorithms import brings_memory, determinism, members
from graphdnn.v6.calls.convolution import prepare_data, prepare_filter, prepare_forward
from graphdnn.v6.convolution_query import ConvolutionQuery
from graphdnn.v6.descriptor_checks import entries
from graphdnn.v6.descriptor_values import Convolution, Descriptor, Filter, Handle, Tensor
from graphdnn.v6.enums import (
    cudnnConvolutionBwdDataAlgo_t,
    cudnnConvolutionBwdFilterAlgo_t,
    cudnnConvolutionFwdAlgo_t,
    cudnnMathType_t,
    cudnnStatus_t,
)
from graphdnn.v6.errors import CudnnError, legacy_status
from graphdnn.v6.layouts import filter_strides, size_of
from graphdnn.v6.perf_structs import (
    cudnnConvolutionBwdDataAlgoPerf_t,
    cudnnConvolutionBwdFilterAlgoPerf_t,
    cudnnConvolutionFwdAlgoPerf_t,
)
from graphdnn.v6.prepared_call import PreparedCall
from graphdnn.v6.thread_state import current_stream, listening
from graphdnn.v6.version_profiles import outside

Values = tuple[Any, Any, Convolution, Any]
Perf = cudnnConvolutionFwdAlgoPerf_t | cudnnConvolutionBwdDataAlgoPerf_t | cudnnConvolutionBwdFilterAlgoPerf_t
_RUNS = 3
_LONG = 0.1  # seconds: a run that takes longer is not repeated


@dataclass(frozen=True, slots=True)
class Pass:
    """One direction. ``places``: which of the two read tensors and the written one (0, 1, 2) are x, w and y."""

    name: str
    algorithms: type[IntEnum]
    perf: Callable[..., Any]
    prepare: Callable[..., PreparedCall]
    places: tuple[int, int, int]

    def question(self, values: Values, algorithm: IntEnum) -> ConvolutionQuery:
        tensors = (values[0], values[1], values[3])
        x, w, y = (tensors[i] for i in self.places)
        return ConvolutionQuery(x, w, values[2], y, algorithm)


PASSES = (
    Pass("Forward", cudnnConvolutionFwdAlgo_t, cudnnConvolutionFwdAlgoPerf_t, prepare_forward, (0, 1, 2)),
    Pass("BackwardData", cudnnConvolutionBwdDataAlgo_t, cudnnConvolutionBwdDataAlgoPerf_t, prepare_data, (2, 0, 1)),
    Pass("BackwardFilter", cudnnConvolutionBwdFilterAlgo_t, cudnnConvolutionBwdFilterAlgoPerf_t, prepare_filter,
         (0, 2, 1)),
)  # fmt: skip


def values_of(*descriptors: Descriptor) -> Values:
    a, b, conv, c = (d.value for d in descriptors)
    return a, b, conv, c


@dataclass(frozen=True, slots=True)
class Candidate:
    """An algorithm for a convolution: its plan, or the status and the reason with which it is refused."""

    algorithm: IntEnum
    call: PreparedCall | None
    status: cudnnStatus_t = cudnnStatus_t.CUDNN_STATUS_SUCCESS
    reason: str = ""

    @property
    def memory(self) -> int:
        """Bytes of workspace that a caller is asked for."""
        return 0 if self.call is None else workspace_of(self.call, self.algorithm)


def workspace_of(call: PreparedCall, algorithm: IntEnum) -> int:
    """Bytes of workspace that a caller is asked for."""
    return 0 if brings_memory(algorithm) else call.plan.workspace_size


def candidates(direction: Pass, where: str, handle: Handle, values: Values) -> Iterator[Candidate]:
    """Every algorithm of the direction. Raises for descriptors that do not fit together."""
    for algorithm in members(direction.algorithms):
        try:
            call = direction.prepare(handle, *values, algorithm, 1.0, 0.0, where)
        except GraphdnnError as error:
            status = legacy_status(error.rejections[0].status)
            if status is not cudnnStatus_t.CUDNN_STATUS_NOT_SUPPORTED or _concerns_all(error):
                raise
            yield Candidate(algorithm, None, status, "; ".join(str(r) for r in error.rejections))
        else:
            yield Candidate(algorithm, call)


def _concerns_all(error: GraphdnnError) -> bool:
    """Whether another algorithm would be refused as well."""
    return not all(r.rule.startswith(("v6.algorithm", "v6.profile")) for r in error.rejections)


def ranked(direction: Pass, where: str, handle: Handle, values: Values) -> list[Candidate]:
    """Algorithms that compute. Algorithms in the tables of 6.0 come first, each group by predicted time."""

    def order(candidate: Candidate) -> tuple[bool, float]:
        assert candidate.call is not None
        listed = not outside(where, direction.question(values, candidate.algorithm))
        return not listed, candidate.call.plan.config.predicted_seconds

    usable = [c for c in candidates(direction, where, handle, values) if c.call is not None]
    return sorted(usable, key=order)


def best(direction: Pass, where: str, handle: Handle, values: Values, limit: int | None) -> Candidate:
    """The first whose workspace fits the limit; the smallest where none fits: calls allocate what they miss.

    One whose plan needs no more than the limit goes before one that asks for less and allocates the rest.
    """
    found = ranked(direction, where, handle, values)
    if not found:
        refused = next(candidates(direction, where, handle, values))
        direction.prepare(handle, *values, refused.algorithm, 1.0, 0.0, where)  # raises with the reasons
    fitting = [c for c in found if limit is None or c.memory <= limit]
    if not fitting:
        return min(found, key=lambda c: c.memory)
    return next((c for c in fitting if limit is None or _needs(c) <= limit), fitting[0])


def _needs(candidate: Candidate) -> int:
    """Bytes of workspace that the plan uses, whoever brings them."""
    assert candidate.call is not None
    return candidate.call.plan.workspace_size


def guessed(direction: Pass, where: str, handle: Handle, values: Values, count: int) -> tuple[int, tuple[Perf, ...]]:
    """(how many, results) in the order of the heuristics, nothing run: the time is -1."""
    entries(where, 1, requestedAlgoCount=count)
    everything = list(candidates(direction, where, handle, values))
    usable = ranked(direction, where, handle, values)
    order = [c.algorithm for c in usable]
    rest = [c for c in everything if c.algorithm not in order]
    results = tuple(_perf(direction, values, c, c.status, -1.0, c.reason) for c in (*usable, *rest)[:count])
    return len(results), results


def timed(direction: Pass, where: str, handle: Handle, values: Values, count: int, data: tuple[Any, ...] | None,
          workspace: Any = None, limit: int | None = None) -> tuple[int, tuple[Perf, ...]]:  # fmt: skip
    """(how many, results) by measured time; what cannot run stands behind, with its status, a reason and the time -1.

    Algorithms with one plan are measured once: they have one time, and say whose it is.

    ``data``: what is read, and what is written over; None allocates on the device. ``limit``: bytes of ``workspace``;
    None allocates as much as each asks for.
    """
    results = []
    measured: dict[str, tuple[IntEnum, _Outcome]] = {}  # by the plan's name
    for candidate in candidates(direction, where, handle, values):
        found = _Outcome(candidate.status, None, candidate.reason)
        if candidate.call is not None and limit is not None and candidate.memory > limit:
            reason = f"the workspace has {limit} bytes, and the algorithm asks for {candidate.memory}"
            found = _Outcome(cudnnStatus_t.CUDNN_STATUS_ALLOC_FAILED, None, reason)
        elif candidate.call is not None:
            plan = candidate.call.plan.config.name
            if plan in measured:
                first, found = measured[plan]
                note = f"the plan of {first.name} ({plan}), measured once"
                found = replace(found, reason=f"{found.reason}; {note}" if found.reason else note)
            else:
                data = candidate.call.new_data() if data is None else data
                found = _measured(candidate.call, data, workspace, limit or 0)
                measured[plan] = candidate.algorithm, found
        time = -1.0 if found.seconds is None else found.seconds * 1e3
        results.append(_perf(direction, values, candidate, found.status, time, found.reason))
    results.sort(key=lambda r: (r.status is not cudnnStatus_t.CUDNN_STATUS_SUCCESS, r.time))  # stable: -1s keep order
    return min(count, len(results)), tuple(results[:count])


@dataclass(frozen=True, slots=True)
class _Outcome:
    """Of a measurement. ``seconds``: None where nothing ran to its end; ``reason`` says why then."""

    status: cudnnStatus_t
    seconds: float | None
    reason: str = ""


def _measured(call: PreparedCall, data: tuple[Any, ...], workspace: Any, size: int) -> _Outcome:
    """The fastest of a few runs behind a first one; a run that fails has a status and no time."""
    times: list[float] = []
    while len(times) <= _RUNS:
        start = perf_counter()
        try:
            with listening(None):  # a search is no part of a recording
                call(data, workspace, size)
                if call.plan.config.device.kind == "cuda":
                    times = _on_device(call, data, workspace, size)
                    return _Outcome(cudnnStatus_t.CUDNN_STATUS_SUCCESS, min(times))
        except MemoryError as error:
            return _Outcome(cudnnStatus_t.CUDNN_STATUS_ALLOC_FAILED, None, f"memory ran out: {error}")
        except CudnnError as error:
            if error.status is not cudnnStatus_t.CUDNN_STATUS_EXECUTION_FAILED:
                raise
            return _Outcome(error.status, None, "; ".join(str(r) for r in error.rejections))
        times.append(perf_counter() - start)
        if times[-1] > _LONG:
            break
    return _Outcome(cudnnStatus_t.CUDNN_STATUS_SUCCESS, min(times))


def _on_device(call: PreparedCall, data: tuple[Any, ...], workspace: Any, size: int) -> list[float]:
    """Seconds of the device, by its own clock."""
    from graphdnn.plan import DevicePlan  # which loads with the first plan for a device

    plan = call.plan
    assert isinstance(plan, DevicePlan)
    return plan.timings(lambda: call(data, workspace, size), _RUNS, current_stream())


def _perf(
    direction: Pass, values: Values, candidate: Candidate, status: cudnnStatus_t, time: float, reason: str
) -> Any:  # fmt: skip
    math = values[2].math_type if candidate.call is not None else cudnnMathType_t.CUDNN_DEFAULT_MATH
    return direction.perf(
        candidate.algorithm, status, time, candidate.memory, determinism(candidate.algorithm), math, reason
    )  # fmt: skip


def samples(handle: Handle, values: Values) -> tuple[Any, ...] | None:
    """Memory for a search that brings none; None on a device, whose plans make it."""
    if handle.device.kind != "cpu":
        return None
    return tuple(np.zeros(_size(v), np.uint8) for v in (values[0], values[1], values[3]))


def _size(value: Tensor | Filter) -> int:
    if isinstance(value, Filter):
        value = Tensor(value.data_type, value.dims, filter_strides(value))
    return size_of(value)

"""Recording: calls run as ever, and become operations of graphs beside that, which can run again as few kernels.

    with v6.record() as r:
        cudnnConvolutionForward(...); cudnnAddTensor(...); cudnnActivationForward(...)
    print(r.explain())
    r.replay()

Inside the block every call computes at once what it computes outside: results may be read between calls, and memory
may be written, by whatever means. Afterwards ``replay()`` runs the graphs that the calls became on what their memory
holds then. It refuses where a program wrote that memory between the calls by other means (contents.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from graphdnn.dtypes import Array
from graphdnn.enums import Status
from graphdnn.fusion.fused_graph import FusedGraph
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.pipeline import rank
from graphdnn.plan import ExecutionPlan
from graphdnn.rules import Rule
from graphdnn.v6 import migration
from graphdnn.v6.errors import CudnnError, refuse_if
from graphdnn.v6.memory_aliases import Run
from graphdnn.v6.memory_snapshots import Contents, HostKeeper, Keeper
from graphdnn.v6.recorded_graph import Batch
from graphdnn.v6.thread_state import Call, current_stream, listening

NESTED = Rule(
    id="v6.record.nested",
    expected="one recording at a time",
    reason="this thread is recording already",
    fix="leave the outer block first",
    status=Status.BAD_PARAM,
)
OPEN = Rule(
    id="v6.record.open",
    expected="a block that has ended",
    reason="its calls are still being recorded, and a replay would write their memory",
    fix="leave the block first",
    status=Status.BAD_PARAM,
)


@dataclass(eq=False)
class Recording:
    """What ``record()`` gives. ``calls``: the functions that became operations, in order."""

    calls: list[str] = field(default_factory=list)
    is_open: bool = True
    _batches: list[Batch] = field(default_factory=list)
    _contents: Contents = field(default_factory=Contents)
    _runs: list[Callable[[], None]] | None = None
    _alive: list[Any] = field(default_factory=list)  # whose memory the graphs read and write

    # What a caller asks for.

    @property
    def graphs(self) -> list[OperationGraph]:
        """What the calls became, in the order of a replay."""
        return [graph for batch in self._batches for graph in batch.parts.graphs]

    @property
    def fused(self) -> list[FusedGraph]:
        """What a replay runs, for each graph."""
        return [rank(graph, b.device).best.fused for b in self._batches for graph in b.parts.graphs]

    def explain(self) -> str:
        """Graphs, what was fused, and every edge that was not with its reason; why a replay is refused, where it is."""
        found = [f"{graph}\n\n{fused}" for graph, fused in zip(self.graphs, self.fused, strict=True)]
        return "\n\n".join([*found, *(str(rejection) for rejection in self._contents.changed())])

    def migration(self) -> str:
        """The same as a script for the graph builder. Raises ``CudnnError`` for changed memory, as ``replay`` does."""
        refuse_if(self._contents.changed())
        runs = [
            Run(batch.parts.bindings(graph), number)
            for number, batch in enumerate(self._batches)
            for graph in batch.parts.graphs
        ]
        return migration.script(self.graphs, runs)

    def replay(self) -> None:
        """Run the graphs: what the calls did, fused, with their numbers, on what the same memory holds now.

        Memory is what the calls were given, which is kept alive; behind an address it has to be there still. On a
        device the work goes into the stream of the calls, and is not waited for; the first replay waits for it.
        Memory that calls wrote over again inside the block gets its last contents only.

        Raises ``CudnnError``: inside the block (``v6.record.open``); where something that is no legacy call wrote the
        calls' memory inside the block (``v6.record.changed``).
        """
        if self.is_open:
            raise CudnnError(OPEN.reject("replay", "record", "a block that has not ended"))
        refuse_if(self._contents.changed())
        if self._runs is None:
            self._runs = [_run_of(batch) for batch in self._batches]
        for run in self._runs:
            run()

    # What calls do.

    def before(self, call: Call, arrays: Mapping[int, Array]) -> None:
        """Look at a call's memory: what it reads should be what calls left."""
        self._contents.before(call, arrays, _keeper(call))

    def add(self, call: Call, arrays: Mapping[int, Array], data: Sequence[Any], scratch: Array | None) -> None:
        """Take a call that ran."""
        self._contents.after(call, arrays, _keeper(call), scratch)
        device, stream = call.plan.config.device, current_stream()
        last = self._batches[-1] if self._batches else None
        moved = last is None or last.device is not device or last.stream != stream
        if last is None or moved or last.sees_otherwise(arrays.values()):
            last = Batch(device, stream, 0 if last is None else last.uid)
            self._batches.append(last)
        last.add(call.plan.config.fused.graph, arrays)
        self._alive.append(data)
        self.calls.append(call.call)

    def end(self) -> None:
        """The block ends."""
        self._contents.end()
        self.is_open = False


@contextmanager
def record() -> Iterator[Recording]:
    """Record the calls of this thread that compute something inside a ``with`` block.

    The calls run as they do outside. A call that fails is not recorded; earlier calls stay recorded.

    Returns:
        A context manager that gives a ``Recording`` with ``replay()``, ``graphs``, ``fused``, ``explain()`` and
        ``migration()``.

    Raises:
        CudnnError: The block is inside another recording.
    """
    recording = Recording()
    with listening(recording) as before:
        if before is not None:
            raise CudnnError(NESTED.reject("record", "record", "inside another"))
        try:
            yield recording
        finally:
            recording.end()


def _keeper(call: Call) -> Keeper:
    device = call.plan.config.device
    if device.kind == "cpu":
        return HostKeeper()
    from graphdnn.v6.device_snapshots import DeviceKeeper  # which loads with the first call on a device

    return DeviceKeeper(device, current_stream())


def _run_of(batch: Batch) -> Callable[[], None]:
    """What executes a batch's graphs, with memory of its own for workspaces and copies."""
    parts = batch.parts
    plans = [ExecutionPlan(rank(graph, batch.device).best) for graph in parts.graphs]
    if batch.device.kind == "cpu":
        return _on_host(plans, parts.arrays, parts.copied)
    from graphdnn.v6.device_memory import recorded  # which loads with the first call on a device

    return recorded(plans, parts.arrays, parts.copied, batch.stream)


def _on_host(
    plans: Sequence[ExecutionPlan], arrays: Mapping[int, Array], copied: Collection[int]
) -> Callable[[], None]:
    copies = {uid: _room(arrays[uid]) for uid in copied}
    found = {**arrays, **copies}
    work = [
        (plan, {t.uid: found[t.uid] for t in plan.config.fused.graph.bound}, plan.new_workspace()) for plan in plans
    ]

    def run() -> None:
        for uid, copy in copies.items():
            copy[...] = arrays[uid]
        for plan, bindings, workspace in work:
            plan.execute(bindings, workspace)

    return run


def _room(array: Array) -> Array:
    """Memory for the same elements with the same strides, elsewhere."""
    low, high = byte_bounds(array)
    return np.ndarray(array.shape, array.dtype, np.empty(high - low, np.uint8).data, strides=array.strides)

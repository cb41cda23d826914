"""ExecutionPlan: an engine configuration made executable, and what it knows about itself.

Everything is worked out when the plan is built. ``execute`` picks the bound
arrays, compares each one's dtype and shape with what the plan expects, and
launches; strides and addresses (alignment, overlap) are looked at again only
when the arrays are not the ones of the call before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any
from weakref import ref

import numpy as np

from graphdnn.bindings import Expected, check_addresses, check_workspace, coerce, refuse_names
from graphdnn.dtypes import Array
from graphdnn.engines import Kernel
from graphdnn.engines.host.memory import from_buffer
from graphdnn.enums import BehaviorNote, NumericalNote
from graphdnn.heuristics import EngineConfig, materialized_bytes, materialized_slots

Launch = Callable[[Sequence[Array], "Array | None"], None]

_form = attrgetter("dtype", "shape")  # strides are compared when an array is new: NumPy is doing away with setting them


class ExecutionPlan:
    """A graph with a decided engine for each fused operation, compiled. Reusable, and safe to share between threads."""

    __slots__ = (
        "__weakref__",
        "_count",
        "_expected",
        "_forms",
        "_known",
        "_launch",
        "_pick",
        "_scalars",
        "config",
        "kernels",
        "uids",
        "workspace_size",
    )  # fmt: skip

    def __init__(self, config: EngineConfig) -> None:
        bound = config.fused.graph.bound
        self.config = config
        arrays, scalars = ([t for t in bound if t.is_by_value is scalar] for scalar in (False, True))
        self.uids = tuple(t.uid for t in (*arrays, *scalars))
        self.workspace_size = config.workspace_size
        self.kernels: tuple[Kernel, ...] = tuple(c.engine.compile(c.task, c.knobs) for c in config.choices)
        written = {t.uid for t in config.fused.graph.outputs}
        self._expected = tuple(Expected.of(t, is_output=t.uid in written) for t in arrays)
        self._scalars = tuple(Expected.of(t, is_output=False) for t in scalars)
        self._forms = tuple(e.layout[:2] for e in self._expected)
        names = self.uids[: len(arrays)]
        self._pick = itemgetter(*names) if len(names) > 1 else _pick_one(names[0])
        self._launch = _in_turn(_launches(config, self.kernels, self.uids))
        self._count = len(self.uids)
        self._known = _Known(())

    # What it is.

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def fused_operations(self) -> tuple[tuple[str, ...], ...]:
        """The operations of each kernel, in order."""
        return tuple(tuple(op.label() for op in fused.operations) for fused in self.config.fused)

    @property
    def numerical_notes(self) -> tuple[NumericalNote, ...]:
        return self.config.numerical_notes

    @property
    def behavior_notes(self) -> tuple[BehaviorNote, ...]:
        return self.config.behavior_notes

    def __repr__(self) -> str:
        return f"<ExecutionPlan {self.name}: {len(self.kernels)} kernels, {self.workspace_size} bytes of workspace>"

    def __str__(self) -> str:
        lines = [f"plan {self.name} on {self.config.device.name}, {self.workspace_size} bytes of workspace"]
        for choice, kernel in zip(self.config.choices, self.kernels, strict=True):
            ops = " + ".join(op.label() for op in choice.task.op.operations)
            lines.append(f"  {kernel.name}: {ops}, predicted {choice.cost}")
        return "\n".join(lines)

    # What it does.

    def execute(self, bindings: Mapping[int, Any], workspace: Any = None) -> None:
        """Run on ``{uid: array}``; outputs are written in place.

        Every bound tensor of the graph needs an array of its type, extents and strides (a by-value tensor takes
        a number). ``workspace`` is a contiguous byte array of at least ``workspace_size``; None where that is 0.
        Raises ``BadParam`` before anything is written.
        """
        try:
            arrays = self._pick(bindings)
            scalars = [bindings[e.spec.uid] for e in self._scalars] if self._scalars else None
        except KeyError:
            arrays = ()
        if len(bindings) != self._count or not arrays:
            refuse_names((*self._expected, *self._scalars), bindings)
        if tuple(map(id, arrays)) != self._known.ids or tuple(map(_form, arrays)) != self._forms:
            arrays = self._admit(arrays)
        if scalars:
            arrays = (*arrays, *coerce(self._scalars, scalars))  # read now: numbers have no address to remember
        if self.workspace_size:
            workspace = check_workspace(workspace, self.workspace_size, arrays)
        self._launch(arrays, workspace)

    def _admit(self, arrays: Sequence[Any]) -> tuple[Array, ...]:
        """Arrays that were not the last call's: full check, then remembered (weakly)."""
        if not all(
            type(array) is np.ndarray and want.accepts(array)
            for array, want in zip(arrays, self._expected, strict=True)
        ):
            arrays = coerce(self._expected, arrays)
        check_addresses(self._expected, arrays)
        self._known = _Known(arrays)
        return tuple(arrays)

    def new_workspace(self) -> Array | None:
        """A workspace of the right size, or None where none is needed."""
        return np.empty(self.workspace_size, np.uint8) if self.workspace_size else None


class _Known:
    """The arrays of the last call, by identity: their addresses were checked, and an address cannot change.

    Only weak references are kept. When one of the arrays dies its id may be given to another object, so the
    record then forgets all of them.
    """

    __slots__ = ("_refs", "ids")

    def __init__(self, arrays: Sequence[Any]) -> None:
        self.ids: tuple[int, ...] | None = tuple(map(id, arrays)) if arrays else None
        self._refs = [ref(array, self._forget) for array in arrays]

    def _forget(self, _: object) -> None:
        self.ids = None


def _pick_one(key: int) -> Callable[[Any], tuple[Any, ...]]:
    """Like ``itemgetter`` of several keys, for one: a tuple all the same."""
    return lambda source: (source[key],)


def _in_turn(launches: Sequence[Launch]) -> Launch:
    """All kernels as one launch; a single one is called directly."""
    if len(launches) == 1:
        return launches[0]

    def launch(arrays: Sequence[Array], workspace: Array | None) -> None:
        for each in launches:
            each(arrays, workspace)

    return launch


def _launches(config: EngineConfig, kernels: Sequence[Kernel], uids: Sequence[int]) -> tuple[Launch, ...]:
    """One function per kernel that finds its arrays among the plan's and in the workspace."""
    place = {uid: i for i, uid in enumerate(uids)}
    slots = {tensor.uid: (tensor, offset) for tensor, offset in materialized_slots(config.fused)}
    scratch_start = materialized_bytes(config.fused)
    launches = []
    for choice, kernel in zip(config.choices, kernels, strict=True):
        tensors = (*choice.task.op.inputs, *choice.task.op.outputs)
        sources = tuple(slots.get(t.uid, place.get(t.uid)) for t in tensors)
        launches.append(_launch(kernel, sources, scratch_start, choice.scratch))
    return tuple(launches)


def _launch(kernel: Kernel, sources: tuple[Any, ...], start: int, size: int) -> Launch:
    """``sources``: an index among the plan's arrays, a (tensor, workspace offset), or None for a constant."""
    run = kernel.run
    if not size and all(isinstance(s, int) for s in sources):
        if sources == tuple(range(len(sources))):
            return lambda arrays, workspace: run(arrays, None)
        pick = itemgetter(*sources) if len(sources) > 1 else _pick_one(sources[0])
        return lambda arrays, workspace: run(pick(arrays), None)

    def launch(arrays: Sequence[Array], workspace: Array | None) -> None:
        found: list[Any] = []
        for source in sources:
            if isinstance(source, tuple):
                assert workspace is not None
                found.append(from_buffer(workspace, source[1], source[0]))
            else:
                found.append(None if source is None else arrays[source])
        run(found, None if not size or workspace is None else workspace[start : start + size])

    return launch

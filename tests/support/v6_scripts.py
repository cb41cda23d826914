"""Scripts of recordings, run: in a namespace of their own, on what the recorded graphs read, to the bits that they wrote.

While ``Scripts`` watches, every replayed graph keeps copies of its inputs and results. ``check`` replays a recording on
what was there before its calls, prints its script, runs that, builds its graphs and compares them: operations, tensors
and layouts, fused operations, bits. The replay's results stay where those of the calls were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any

import numpy as np
import pytest
from numpy.lib.array_utils import byte_bounds

from graphdnn import v6
from graphdnn.enums import DataType
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.plan import ExecutionPlan
from graphdnn.tensors import TensorSpec
from graphdnn.v6 import recording
from graphdnn.v6.recorded_graph import key_of
from graphdnn.v6.recording import Recording

Arrays = dict[int, np.ndarray]


@dataclass
class Ran:
    """A recorded graph with what it read and wrote, by uid."""

    graph: OperationGraph
    inputs: Arrays
    outputs: Arrays


class Scripts:
    """What was recorded since it was asked last."""

    def __init__(self) -> None:
        self.ran: list[Ran] = []
        self.before: dict[Any, tuple[np.ndarray, np.ndarray]] = {}  # memory of calls, and a copy from before them
        self.functions: set[str] = set()  # whose scripts were compared
        self.graphs = 0

    def plan(self, config: Any) -> Any:
        return _Watched(config, self.ran)

    def check(self, made: Recording) -> str:
        """Compare the script of a recording with what ran; gives its text."""
        text = made.migration()
        for array, copy in reversed(self.before.values()):
            array[...] = copy
        self.before.clear()
        made.replay()
        place: dict[str, Any] = {}
        exec(compile(text, "migrated.py", "exec"), place)
        assert len(self.ran) == len(made.graphs) == sum(name.startswith("graph_") for name in place)
        for i, ran in enumerate(self.ran, start=1):
            graph = place[f"graph_{i}"]()
            plan = graph.build()
            assert plan_of(graph.build_operation_graph()) == plan_of(ran.graph)
            assert [op.rule for op in graph.fused] == [op.rule for op in made.fused[i - 1]]
            found = {uid: poisoned(array) for uid, array in ran.outputs.items()}
            plan.execute({**ran.inputs, **found}, plan.new_workspace())
            for uid, wanted in ran.outputs.items():
                same(ran.graph.tensors[uid], found[uid], wanted)
        self.graphs += len(self.ran)
        self.functions |= {*made.calls}
        self.ran.clear()
        return text


class _Watched:
    """A plan of a recording."""

    def __init__(self, config: Any, ran: list[Ran]) -> None:
        self._plan, self._ran = ExecutionPlan(config), ran

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plan, name)

    def execute(self, bound: Arrays, workspace: Any = None) -> None:
        graph = self._plan.config.fused.graph
        inputs = {t.uid: alike(bound[t.uid]) for t in graph.inputs}
        self._plan.execute(bound, workspace)
        self._ran.append(Ran(graph, inputs, {t.uid: alike(bound[t.uid]) for t in graph.outputs}))


def alike(array: np.ndarray) -> np.ndarray:
    """The same elements with the same strides, at an address of the same alignment."""
    low, high = byte_bounds(array)
    room = np.zeros(high - low + 64, np.uint8)
    start = (array.ctypes.data - room.ctypes.data) % 64
    copy = np.ndarray(array.shape, array.dtype, room.data, start, array.strides)
    copy[...] = array
    return copy


def poisoned(array: np.ndarray) -> np.ndarray:
    copy = alike(array)
    copy[...] = 77 if copy.dtype.kind != "b" else True
    return copy


def same(tensor: TensorSpec, found: np.ndarray, wanted: np.ndarray) -> None:
    """The same bits, what pads packed ones apart."""
    if tensor.data_type is DataType.BOOLEAN:
        found, wanted = (np.unpackbits(a.reshape(-1), bitorder="little")[: tensor.elements] for a in (found, wanted))
    assert found.tobytes() == wanted.tobytes(), tensor.label()


def plan_of(graph: OperationGraph) -> str:
    """The key of a graph whose tensors are counted in the order of its operations."""
    uids: dict[int, int] = {}

    def counted(tensor: TensorSpec) -> TensorSpec:
        return tensor.model_copy(update={"uid": uids.setdefault(tensor.uid, len(uids) + 1)})

    operations = [
        op.model_copy(update={port: counted(tensor) for port, tensor in op.tensors().items()})
        for op in graph.operations
    ]
    return OperationGraph.of(operations).key


@contextmanager
def watching() -> Iterator[Scripts]:
    """Inside, replayed graphs keep what they read and wrote."""
    scripts, look = Scripts(), Recording.before

    def before(made: Recording, call: Any, arrays: Arrays) -> None:
        for array in arrays.values():
            scripts.before.setdefault(key_of(array), (array, alike(array)))
        look(made, call, arrays)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recording, "ExecutionPlan", scripts.plan)
        patch.setattr(Recording, "before", before)
        yield scripts


@contextmanager
def recorded_calls() -> Iterator[Scripts]:
    """Inside, every legacy call that computes runs in a recording of its own, whose script is checked."""
    with watching() as scripts, pytest.MonkeyPatch.context() as patch:
        for line in v6.coverage():
            if line.becomes != "state" and not line.function.startswith("cudnnFind"):
                patch.setattr(v6, line.function, _recorded(getattr(v6, line.function), scripts))
        yield scripts


def _recorded(call: Callable[..., Any], scripts: Scripts) -> Callable[..., Any]:
    @wraps(call)
    def recorded(*args: Any, **named: Any) -> Any:
        with v6.record() as made:
            result = call(*args, **named)
        scripts.check(made)
        return result

    return recorded

"""ExecutionPlan: an engine configuration made executable, and what it knows about itself.

Where its arrays live decides which plan it is: ``ExecutionPlan(config)`` gives the plan of the
configuration's kind of device, ``HostPlan`` or ``DevicePlan``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn
from weakref import ref

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.engine import CompiledOperation
from graphdnn.engines.host.memory import binding_layout
from graphdnn.engines.memoization import memoize
from graphdnn.engines.rewrite_step import RewriteStep
from graphdnn.enums import BehaviorNote, NumericalNote
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.heuristics import EngineConfig
from graphdnn.plan.analysis_methods import AnalysisMethods
from graphdnn.plan.binding_validation import Expected
from graphdnn.tensors import TensorSpec
from graphdnn.text_format import plural

if TYPE_CHECKING:
    from graphdnn.plan.source_lines import SourceLine


class ExecutionPlan(AnalysisMethods):
    """A graph with a decided engine for each fused operation, compiled. Reusable, and safe to share between threads."""

    __slots__ = (
        "__weakref__",
        "_count",
        "_expected",
        "_pick",
        "_scalars",
        "compiled",
        "config",
        "uids",
        "workspace_size",
    )
    _places: ClassVar[dict[str, type[ExecutionPlan]]] = {}

    def __init_subclass__(cls, place: str) -> None:
        ExecutionPlan._places[place] = cls

    def __new__(cls, config: EngineConfig, *_: Any, **__: Any) -> ExecutionPlan:
        return object.__new__(class_of(config.device.kind) if cls is ExecutionPlan else cls)

    def __init__(self, config: EngineConfig, *, compiled: Sequence[CompiledOperation] | None = None) -> None:
        """``compiled``: what is executed in place of what the engines make of the configuration."""
        self.config = config
        self.compiled: tuple[CompiledOperation, ...] = (
            tuple(c.engine.compile(c.task, c.knobs) for c in config.choices) if compiled is None else tuple(compiled)
        )
        self.workspace_size = config.workspace_size  # bytes
        bound = bound_of(config)
        self._expected, self._scalars, self._pick, self.uids = bound.arrays, bound.scalars, bound.pick, bound.uids
        self._count = len(self.uids)

    @classmethod
    def prepare(cls, device: DeviceSpec) -> None:
        """Load what plans of this class take on a device, beforehand."""

    def like(self, config: EngineConfig) -> ExecutionPlan:
        """A plan of another configuration, in the same place."""
        return type(self)(config)

    # What it is.

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def fused_operations(self) -> tuple[tuple[str, ...], ...]:
        """The operations of each kernel, in order."""
        return tuple(tuple(op.label() for op in fused.operations) for fused in self.config.fused)

    @property
    def rewrites(self) -> tuple[RewriteStep | None, ...]:
        """For each kernel the rewrite that its engine applies first; None where it computes the operations as they
        are.
        """
        return tuple(choice.rewrite for choice in self.config.choices)

    @property
    def source_lines(self) -> tuple[tuple[SourceLine, ...], ...]:
        """For each kernel, which lines of its text begin which operation, with the uids of this plan."""
        from graphdnn.plan.source_lines import source_lines  # which loads what launches kernels

        pairs = zip(self.config.choices, self.compiled, strict=True)
        return tuple(source_lines(choice.task.op, kernel) for choice, kernel in pairs)

    @property
    def numerical_notes(self) -> tuple[NumericalNote, ...]:
        return self.config.numerical_notes

    @property
    def behavior_notes(self) -> tuple[BehaviorNote, ...]:
        return self.config.behavior_notes

    def __repr__(self) -> str:
        kernels = plural(len(self.compiled), "kernel")
        return f"<ExecutionPlan {self.name}: {kernels}, {self.workspace_size} bytes of workspace>"

    def __str__(self) -> str:
        lines = [f"plan {self.name} on {self.config.device.name}, {self.workspace_size} bytes of workspace"]
        for choice, kernel in zip(self.config.choices, self.compiled, strict=True):
            ops = " + ".join(op.label() for op in choice.task.op.operations)
            lines.append(f"  {kernel.name}: {ops}, predicted {choice.cost}")
            lines += [] if choice.rewrite is None else [f"    {line}" for line in choice.rewrite.lines()]
        return "\n".join(lines)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a plan is shared, not copied; to another process it goes as plan_to_json(plan)")

    # What it does.

    def execute(self, bindings: Mapping[int, Any], workspace: Any = None, stream: Any = None) -> None:
        """Run on ``{uid: array}``; outputs are written in place.

        Every bound tensor of the graph needs an array of its type, extents and strides (a by-value tensor takes
        a number). ``workspace`` is a contiguous byte array of at least ``workspace_size``; None where that is 0.
        Raises ``BadParam`` before anything is written.
        """
        raise NotImplementedError

    def load(self) -> None:
        """Meet the device now, not at the first execution. Raises ``NotSupported`` when it is not here."""
        raise NotImplementedError

    def capture(self, bindings: Mapping[int, Any], workspace: Any = None) -> Any:
        """The execution on these arrays as a CUDA graph, to be launched again and again: ``CapturedPlan``."""
        raise NotImplementedError

    # Memory where the plan runs.

    def new_workspace(self) -> Any:
        """A workspace of the right size, or None where none is needed."""
        raise NotImplementedError

    def new_array(self, spec: TensorSpec) -> Any:
        """An uninitialised array for a bound tensor, with its type, extents, strides and alignment."""
        raise NotImplementedError

    def to_device(self, bindings: Mapping[int, Any]) -> dict[int, Any]:
        """Arrays in host memory, copied to where the plan runs; by-value numbers stay as they are."""
        raise NotImplementedError

    def to_host(self, bindings: Mapping[int, Any]) -> dict[int, Any]:
        """Arrays of the plan, copied to host memory once the work in the current stream has finished."""
        raise NotImplementedError

    def queue(self, stream: Any = None) -> int:
        """The number of a stream as ``execute`` takes it. Executions in one stream run one after another."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Bound:
    """What a plan asks of its bindings; by-value tensors come last."""

    arrays: tuple[Expected, ...]
    scalars: tuple[Expected, ...]
    pick: Callable[[Any], tuple[Any, ...]]
    uids: tuple[int, ...]


@memoize
def bound_of(config: EngineConfig) -> Bound:
    """The same for every plan of a configuration, as equal graphs share theirs."""
    graph = config.fused.graph
    number, tensors = graph.likeness.number, graph.tensors
    ports = _ports.get(number)
    if ports is None:
        if len(_ports) >= _MOST:
            _ports.clear()
        ports = _ports[number] = _Ports.of(graph)
    arrays = [Expected(spec := tensors[uid], out, binding_layout(spec)) for uid, out in ports.arrays]
    scalars = [Expected.of(tensors[uid], is_output=False) for uid in ports.scalars]
    return Bound(tuple(arrays), tuple(scalars), ports.pick, ports.uids)


class _Ports(NamedTuple):
    """What the graphs of a class are bound to, by uid: arrays, each with whether it is written, and numbers."""

    arrays: tuple[tuple[int, bool], ...]
    scalars: tuple[int, ...]
    pick: Callable[[Any], tuple[Any, ...]]
    uids: tuple[int, ...]

    @classmethod
    def of(cls, graph: OperationGraph) -> _Ports:
        arrays, scalars = ([t.uid for t in graph.bound if t.is_by_value is scalar] for scalar in (False, True))
        pick = itemgetter(*arrays) if len(arrays) > 1 else pick_one(arrays[0])
        return cls(tuple([(uid, uid in graph.producer) for uid in arrays]), tuple(scalars), pick, (*arrays, *scalars))


_MOST = 512
_ports: dict[int, _Ports] = {}  # by class


_MODULES = {"cpu": "graphdnn.plan.host_plan", "cuda": "graphdnn.plan.device_plan"}


def class_of(kind: str) -> type[ExecutionPlan]:
    """The class of plans for a kind of device, whose module is loaded when it is first asked for."""
    if kind not in ExecutionPlan._places:
        import_module(_MODULES[kind])
    return ExecutionPlan._places[kind]


class ValidatedArrays:
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


def pick_one(key: int) -> Callable[[Any], tuple[Any, ...]]:
    """Like ``itemgetter`` of several keys, for one: a tuple all the same."""
    return lambda source: (source[key],)

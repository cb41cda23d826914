"""ExecutionPlan: an engine configuration made executable, and what it knows about itself.

Where its arrays live decides which plan it is: ``ExecutionPlan(config)`` gives the plan of the
configuration's kind of device, ``HostPlan`` or ``DevicePlan``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from operator import itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn
from weakref import ref

from graphdnn.bounded_cache import BoundedCache
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.engine import CompiledOperation
from graphdnn.engines.host.memory import binding_layout
from graphdnn.engines.memoization import memoize
from graphdnn.engines.rewrite_step import RewriteStep
from graphdnn.enums import BehaviorNote, NumericalNote
from graphdnn.errors import BadParam
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.heuristics import EngineConfig
from graphdnn.plan.analysis_methods import AnalysisMethods
from graphdnn.plan.binding_validation import WHERE, Expected
from graphdnn.rules import Rule
from graphdnn.tensors import TensorSpec
from graphdnn.text_format import plural

if TYPE_CHECKING:
    from graphdnn.plan.source_lines import SourceLine

BOUND = Rule(
    id="plan.bind.input",
    expected="inputs that are not bound yet: the uids {known}",
    reason="an output is another array at each call, and the value of a by-value tensor is part of the call",
    fix="bind weights and other inputs that stay, and pass the other arrays to execute",
)

NOTHING: Mapping[int, Any] = MappingProxyType({})


class ExecutionPlan(AnalysisMethods):
    """A graph with one compiled engine for each fused operation. A plan can be executed often and shared between
    threads.

    Args:
        config: The configuration.
        compiled: Kernels to execute in place of the ones that the engines generate.
    """

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
        """Load what plans on a device need before the first plan is built.

        Args:
            device: The profile of the device.
        """

    def like(self, config: EngineConfig) -> ExecutionPlan:
        """A plan of another configuration in the same place.

        Args:
            config: The configuration.

        Returns:
            The plan.
        """
        return type(self)(config)

    # What it is.

    @property
    def name(self) -> str:
        """The engines of all kernels, with the knobs that differ from their defaults."""
        return self.config.name

    @property
    def fused_operations(self) -> tuple[tuple[str, ...], ...]:
        """The labels of the operations of each kernel, in order of execution."""
        return tuple(tuple(op.label() for op in fused.operations) for fused in self.config.fused)

    @property
    def rewrites(self) -> tuple[RewriteStep | None, ...]:
        """For each kernel the rewrite that its engine applies first; None where it computes the operations as they
        are.
        """
        return tuple(choice.rewrite for choice in self.config.choices)

    @property
    def source_lines(self) -> tuple[tuple[SourceLine, ...], ...]:
        """For each kernel, the lines of its text where each operation begins."""
        from graphdnn.plan.source_lines import source_lines  # which loads what launches kernels

        pairs = zip(self.config.choices, self.compiled, strict=True)
        return tuple(source_lines(choice.task.op, kernel) for choice, kernel in pairs)

    @property
    def numerical_notes(self) -> tuple[NumericalNote, ...]:
        """The numerical notes of the engines."""
        return self.config.numerical_notes

    @property
    def behavior_notes(self) -> tuple[BehaviorNote, ...]:
        """The behavior notes of the engines."""
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

    @property
    def ordinal(self) -> int | None:
        """The number of the CUDA device that the kernels are loaded on; None on the host.

        Raises:
            NotSupported: The device is not present.
        """
        return None

    # What it does.

    def execute(self, bindings: Mapping[int, Any], workspace: Any = None, stream: Any = None) -> None:
        """Run the plan on ``{uid: array}``; outputs are written in place.

        Args:
            bindings: An array with type, extents and strides of each bound tensor; a number for a by-value tensor.
            workspace: A contiguous byte array of at least ``workspace_size`` bytes, or None if that is 0.
            stream: A stream. None takes PyTorch's current one if an output is a tensor of PyTorch, else CuPy's.
                A plan on the host takes none.

        Raises:
            BadParam: An array or the workspace does not fit. Nothing is written then.
            NotSupported: The device of the plan is not present.
            ExecutionFailed: A kernel failed.
        """
        raise NotImplementedError

    def bind(self, arrays: Mapping[int, Any]) -> ExecutionPlan:
        """A plan of the same kernels in which some arrays are bound for good. Its calls pass the other arrays.

        The arrays are validated now. The new plan keeps them alive, and it does not notice if a tensor of PyTorch gets
        other memory later.

        Args:
            arrays: ``{uid: array}`` of inputs, for example of all weights.

        Returns:
            The plan.

        Raises:
            BadParam: An array does not fit, is an output or a by-value tensor, or is bound already.
            NotSupported: The device of the plan is not present.
        """
        raise NotImplementedError

    def _bound_inputs(self, arrays: Mapping[int, Any]) -> list[Expected]:
        """The descriptions of arrays that ``bind`` gets. Raises for each that is no input."""
        inputs = {e.spec.uid: e for e in self._expected if not e.is_output}
        known = ", ".join(map(str, inputs))
        found = [BOUND.reject(WHERE, f"uid {uid}", "bound", known=known) for uid in arrays if uid not in inputs]
        if found:
            raise BadParam(found)
        return [inputs[uid] for uid in arrays]

    def _expect_others(self, arrays: Collection[int]) -> None:
        """Calls pass the arrays without these."""
        self._expected = tuple(e for e in self._expected if e.spec.uid not in arrays)
        remaining = [e.spec.uid for e in self._expected]
        self._pick = picking(remaining)
        self.uids = (*remaining, *(e.spec.uid for e in self._scalars))
        self._count = len(self.uids)

    def load(self) -> None:
        """Load the kernels on the device now, in place of at the first execution.

        Raises:
            NotSupported: The device is not present.
        """
        raise NotImplementedError

    def capture(self, bindings: Mapping[int, Any], workspace: Any = None) -> Any:
        """Record the execution on these arrays as a CUDA graph.

        Args:
            bindings: ``{uid: array}``, as for ``execute``.
            workspace: A contiguous byte array, or None to allocate one.

        Returns:
            A ``CapturedPlan``, which keeps the arrays alive.

        Raises:
            BadParam: An array does not fit, or the stream is being captured already.
            NotSupported: The plan does not run on a CUDA device.
        """
        raise NotImplementedError

    # Memory where the plan runs.

    def new_workspace(self) -> Any:
        """A workspace of ``workspace_size`` bytes, or None if that is 0."""
        raise NotImplementedError

    def new_array(self, spec: TensorSpec) -> Any:
        """An uninitialized array with type, extents, strides and alignment of a bound tensor.

        Args:
            spec: The description of the tensor.

        Returns:
            The array in the memory of the plan's device.
        """
        raise NotImplementedError

    def to_device(self, bindings: Mapping[int, Any]) -> dict[int, Any]:
        """Copy arrays from host memory to the memory of the plan's device. Numbers of by-value tensors stay as they
        are.

        Args:
            bindings: ``{uid: array}`` in host memory.

        Returns:
            ``{uid: array}`` in the memory of the plan's device.
        """
        raise NotImplementedError

    def to_host(self, bindings: Mapping[int, Any]) -> dict[int, Any]:
        """Copy arrays of the plan to host memory, after the work in the current stream has finished.

        Args:
            bindings: ``{uid: array}`` in the memory of the plan's device.

        Returns:
            ``{uid: array}`` in host memory.
        """
        raise NotImplementedError

    def queue(self, stream: Any = None, bindings: Mapping[int, Any] = NOTHING) -> int:
        """The number of a stream. Executions in one stream run one after another.

        Args:
            stream: A stream as ``execute`` takes it.
            bindings: The arrays of the execution, which decide the stream if ``stream`` is None.

        Returns:
            The number.
        """
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
    number, tensors = graph.structure_key.number, graph.tensors
    ports = _ports.get(number)
    if ports is None:
        ports = _ports.remember(number, _Ports.of(graph))
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
        pick = picking(arrays)
        return cls(tuple([(uid, uid in graph.producer) for uid in arrays]), tuple(scalars), pick, (*arrays, *scalars))


_MOST = 512
_ports = BoundedCache[int, _Ports](_MOST)  # by class


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


def picking(uids: Sequence[int]) -> Callable[[Any], tuple[Any, ...]]:
    """``itemgetter`` of any number of keys that returns a tuple."""
    if not uids:
        return lambda source: ()
    return itemgetter(*uids) if len(uids) > 1 else pick_one(uids[0])


def pick_one(key: int) -> Callable[[Any], tuple[Any, ...]]:
    """Like ``itemgetter`` of several keys, for one: a tuple all the same."""
    return lambda source: (source[key],)

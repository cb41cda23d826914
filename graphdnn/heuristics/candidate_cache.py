"""Asked: which engines are asked for an operation, in circles of operations that have more and more in common.

| circle  | its operations agree in                                              | they differ in                  |
|---------|----------------------------------------------------------------------|---------------------------------|
| class   | all that they say but extents and strides                            | extents, strides                |
| windows | that, filters and channels of convolutions                           | images, their lines and pixels  |
| images  | that, all but how many images, products, or rows there are           | how many there are              |

An engine that declines for what a circle has in common is not asked there again, nor in the circles within it.
"""

from __future__ import annotations

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines import Engine, Task
from graphdnn.engines.batch_invariance import images_of, windows_of
from graphdnn.engines.engine import Scope
from graphdnn.engines.kind_cache import KindCache
from graphdnn.fusion.fused_graph import FusedOp, KernelStructure
from graphdnn.heuristics.filters import Filters, objections
from graphdnn.operations import Reduction
from graphdnn.rules import Constraint

_MOST = 1024  # circles of one caller's
_CALLERS = 32
_known: dict[tuple[object, ...], CandidateCache] = {}


class Circle:
    """``engines``: still in question, in the table's order; fewer with each that declines here."""

    __slots__ = ("_asked", "_scope", "_wider", "engines")

    def __init__(self, engines: tuple[Engine, ...], scope: Scope, wider: Circle | None = None) -> None:
        self.engines = engines
        self._scope, self._wider = scope, wider
        # What is left to ask engines that serve what the circle has in common; first what declined last.
        self._asked: dict[Engine, tuple[Constraint, ...]] = {}

    def serves(self, engine: Engine, task: Task) -> bool:
        """The verdict on one of its tasks."""
        needs = self._needs(engine, task)
        if needs is None:
            return False
        for need in needs:
            if not need.holds(task):
                if need is not needs[0]:
                    self._asked[engine] = need, *(other for other in needs if other is not need)
                return False
        return True

    def _needs(self, engine: Engine, task: Task) -> tuple[Constraint, ...] | None:
        """Of each task; None where it declines all of them, for what they have in common."""
        needs, wider = self._asked.get(engine), self._wider
        if needs is not None:
            return needs
        if wider is not None:
            common = engine.needs_between(wider._scope, self._scope)
            if wider._needs(engine, task) is None or not all(need.holds(task) for need in common):
                self.engines = tuple([other for other in self.engines if other is not engine])
                return None
        return self._asked.setdefault(engine, engine.needs_between(self._scope, Scope.TASK))


class CandidateCache:
    """The circles of one device within a caller's limits."""

    def __init__(self, engines: tuple[Engine, ...], device: DeviceSpec, filters: Filters, only_general: bool) -> None:
        self._filters, self._kept = filters, (engines, device)  # whose identities are a key of ``_known``
        self._kinds = KindCache(tuple(e for e in engines if e.is_general or not only_general))
        self._of_kinds: dict[tuple[object, ...], tuple[Engine, ...]] = {}
        self._circles: dict[KernelStructure | int, Circle] = {}

    def circle(self, task: Task) -> Circle:
        """The narrowest one that is known of an operation."""
        like = task.op.like
        if like is None:
            return Circle(self._of_kind(task), Scope.KIND)
        images = images_of(task.op)
        window = windows_of(task.op) if images is None else None
        narrowest = images if images is not None else like if window is None else window
        return self._circles.get(narrowest) or self._new_circle(task, like, images)

    def _new_circle(self, task: Task, like: KernelStructure, images: int | None) -> Circle:
        if len(self._circles) >= _MOST:
            self._circles.clear()
        found = self._circles.get(like)
        if found is None:
            found = self._circles[like] = Circle(self._of_kind(task), Scope.KIND)
        for scope, number in ((Scope.WINDOW, windows_of(task.op)), (Scope.IMAGES, images)):
            if number is not None:
                wider, known = found, self._circles.get(number)
                found = known or self._circles.setdefault(number, Circle(wider.engines, scope, wider))
        return found

    def _of_kind(self, task: Task) -> tuple[Engine, ...]:
        """The engines that serve the kind in every shape and that no filter excludes."""
        stable = asks_for_stable_sums(task.op)
        key = stable, *task.kind
        found = self._of_kinds.get(key)
        if found is None:
            if len(self._of_kinds) >= _MOST:
                self._of_kinds.clear()
            here = self._kinds.engines(task)
            allowed = [e for e in here if not any(True for _ in objections(e, self._filters, stable, ""))]
            found = self._of_kinds[key] = tuple(allowed)
        return found


def asked_of(engines: tuple[Engine, ...], device: DeviceSpec, filters: Filters, only_general: bool) -> CandidateCache:
    """What is known of these engines, this device and these limits."""
    key = id(engines), id(device), filters, only_general  # both are kept alive, so that the identities stay theirs
    found = _known.get(key)
    if found is None:
        if len(_known) >= _CALLERS:
            _known.clear()
        found = _known.setdefault(key, CandidateCache(engines, device, filters, only_general))
    return found


def asks_for_stable_sums(op: FusedOp) -> bool:
    """CUDNN_ATTR_REDUCTION_IS_DETERMINISTIC on any reduction of the kernel."""
    return any(isinstance(step, Reduction) and step.spec.is_deterministic for step in op.operations)

"""Candidates: the engines that may serve an operation, by classes of operations that have more and more in common.

| class   | its operations agree in                                              | they differ in                  |
|---------|----------------------------------------------------------------------|---------------------------------|
| kernel  | all that they say but extents and strides                            | extents, strides                |
| window  | that, filters and channels of convolutions                           | images, their lines and pixels  |
| images  | that, all but the number of images, products, or rows                | this number                     |

An engine that declines for what a class has in common is no candidate in that class, nor in the classes within it.
"""

from __future__ import annotations

from graphdnn.bounded_cache import BoundedCache
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines import Engine, Task
from graphdnn.engines.batch_invariance import images_of, windows_of
from graphdnn.engines.engine import Scope
from graphdnn.engines.kind_cache import KindCache
from graphdnn.fusion.fused_graph import FusedOp, KernelStructure
from graphdnn.heuristics.filters import Filters, objections
from graphdnn.operations import Reduction
from graphdnn.rules import Constraint

_MOST = 1024


class ProblemClass:
    """A class of operations. ``engines`` are its candidates in the order of the table. An engine that declines the
    whole class is removed.
    """

    __slots__ = ("_needs_of", "_scope", "_wider", "engines")

    def __init__(self, engines: tuple[Engine, ...], scope: Scope, wider: ProblemClass | None = None) -> None:
        self.engines = engines
        self._scope, self._wider = scope, wider
        # The constraints that differ within the class, by candidate. The one that declined last comes first.
        self._needs_of: dict[Engine, tuple[Constraint, ...]] = {}

    def serves(self, engine: Engine, task: Task) -> bool:
        """The verdict on one of its tasks."""
        needs = self._needs(engine, task)
        if needs is None:
            return False
        for need in needs:
            if not need.holds(task):
                if need is not needs[0]:
                    self._needs_of[engine] = need, *(other for other in needs if other is not need)
                return False
        return True

    def _needs(self, engine: Engine, task: Task) -> tuple[Constraint, ...] | None:
        """The constraints to check for each task; None if the engine declines the whole class."""
        needs, wider = self._needs_of.get(engine), self._wider
        if needs is not None:
            return needs
        if wider is not None:
            common = engine.needs_between(wider._scope, self._scope)
            if wider._needs(engine, task) is None or not all(need.holds(task) for need in common):
                self.engines = tuple([other for other in self.engines if other is not engine])
                return None
        return self._needs_of.setdefault(engine, engine.needs_between(self._scope, Scope.TASK))


class CandidateCache:
    """The classes of one device within the limits of one ranking."""

    def __init__(self, engines: tuple[Engine, ...], device: DeviceSpec, filters: Filters, only_general: bool) -> None:
        self._filters, self._kept = filters, (engines, device)  # whose identities are in a key of ``_known``
        self._kinds = KindCache(tuple(e for e in engines if e.is_general or not only_general))
        self._of_kinds = BoundedCache[tuple[object, ...], tuple[Engine, ...]](_MOST)
        self._classes = BoundedCache[KernelStructure | int, ProblemClass](_MOST)

    def problem_class(self, task: Task) -> ProblemClass:
        """The narrowest class of an operation."""
        structure = task.op.structure
        if structure is None:
            return ProblemClass(self._of_kind(task), Scope.KIND)
        images = images_of(task.op)
        window = windows_of(task.op) if images is None else None
        narrowest = images if images is not None else structure if window is None else window
        return self._classes.get(narrowest) or self._new_class(task, structure, images)

    def _new_class(self, task: Task, structure: KernelStructure, images: int | None) -> ProblemClass:
        found = self._classes.get(structure)
        if found is None:
            found = self._classes.remember(structure, ProblemClass(self._of_kind(task), Scope.KIND))
        for scope, number in ((Scope.WINDOW, windows_of(task.op)), (Scope.IMAGES, images)):
            if number is not None:
                wider, known = found, self._classes.get(number)
                found = known or self._classes.remember(number, ProblemClass(wider.engines, scope, wider))
        return found

    def _of_kind(self, task: Task) -> tuple[Engine, ...]:
        """The engines that serve the kind in every shape and that no filter excludes."""
        stable = asks_for_stable_sums(task.op)
        key = stable, *task.kind
        found = self._of_kinds.get(key)
        if found is None:
            here = self._kinds.engines(task)
            allowed = [e for e in here if not any(True for _ in objections(e, self._filters, stable, ""))]
            found = self._of_kinds.remember(key, tuple(allowed))
        return found


_known = BoundedCache[tuple[object, ...], CandidateCache](32)


def candidates_of(
    engines: tuple[Engine, ...], device: DeviceSpec, filters: Filters, only_general: bool
) -> CandidateCache:
    """The cache of these engines, this device and these limits."""
    key = id(engines), id(device), filters, only_general  # the cache keeps both alive, so the identities stay theirs
    found = _known.get(key)
    if found is None:
        found = _known.remember(key, CandidateCache(engines, device, filters, only_general))
    return found


def asks_for_stable_sums(op: FusedOp) -> bool:
    """CUDNN_ATTR_REDUCTION_IS_DETERMINISTIC on any reduction of the kernel."""
    return any(isinstance(step, Reduction) and step.spec.is_deterministic for step in op.operations)

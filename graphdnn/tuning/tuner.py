"""Tuner: try a graph's configurations on the device that is here, and keep the fastest that is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines import Engine
from graphdnn.enums import HeurMode
from graphdnn.errors import NotSupported
from graphdnn.fusion import FusedGraph, fuse
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.heuristics import Filters, mode_of
from graphdnn.tuning.candidates import candidates_of
from graphdnn.tuning.database.database import Database
from graphdnn.tuning.decisions import TIE
from graphdnn.tuning.options import check
from graphdnn.tuning.result import Tuned
from graphdnn.tuning.search import Search, TuningBudget
from graphdnn.tuning.startup import begin, device_meant, means_gpu, uncollected
from graphdnn.tuning.time_accounting import TimeAccount
from graphdnn.tuning.verification.reference import Reference
from graphdnn.tuning.workers.compile_ahead import FIRST, CompileAhead
from graphdnn.tuning.workers.measurement_client import Bench, Opening, not_begun
from graphdnn.tuning.workers.worker_process import LostError, program_for, worker

_BESIDE, _BEFORE = 0.3, 0.05  # shares of the budget that the oracle may take, beside the search or before it


def autotune(
    graph: OperationGraph | FusedGraph,
    device: DeviceSpec | str | None = None,
    *,
    budget: float = 10.0,
    mode: HeurMode = HeurMode.B,
    filters: Filters | None = None,
    any_class: bool = False,
    without: Sequence[str] = (),
    seed: int = 0,
    most: int = 64,
    candidate_seconds: float = 20.0,
    memory: int | None = None,
    tie: float = TIE,
    database: Database | None = None,
    replace_earlier: bool = False,
    engines: tuple[Engine, ...] | None = None,
    initializer: str | None = None,
) -> Tuned:
    """Measure configurations of a graph. Each is built, compared with the oracle and timed in a process of its own.

    Args:
        graph: The operation graph, fused or not.
        device: A profile, its name, or None for the default device.
        budget: Seconds in all. The first candidate is tried whatever it takes.
        mode: The heuristic mode whose configurations are tried.
        filters: What configurations must not be or cost.
        any_class: True also tries configurations with larger errors than the ranking's best.
        without: Words that no configuration's name may contain.
        seed: The seed of the data.
        most: The most candidates.
        candidate_seconds: The most seconds for one candidate.
        memory: Bytes by which the process may grow on a host. None means no limit.
        tie: Two medians closer than this share, with intervals that overlap, are a tie. The simpler configuration then
            wins.
        database: Where the measurements are kept, for ``build(graph, tuned=database)``.
        replace_earlier: True discards earlier measurements of the same graph.
        engines: Engines to try in place of the table's; ``initializer`` registers them in the process.
        initializer: The name of a function that the process calls first.

    Returns:
        Every candidate, best first.

    Raises:
        NotSupported: No engine serves the graph, or the device is not present.
        ExecutionFailed: The process of the candidates does not start.
    """
    check(
        budget=budget, candidate_seconds=candidate_seconds, most=most, memory=memory, tie=tie, seed=seed,
        database=database,
    )  # fmt: skip
    spending, mode = TimeAccount(perf_counter()), mode_of(mode)
    is_gpu = means_gpu(device)
    with uncollected():
        # Both start while it is asked what the device is, and load what they need while the candidates are worked out.
        try:
            process, ahead = worker(program_for(is_gpu=is_gpu), initializer), CompileAhead(is_useful=is_gpu)
        except LostError as failed:
            raise not_begun(failed) from None
        if is_gpu:
            begin()
        try:
            spec = device_meant(device)
            fused = graph if isinstance(graph, FusedGraph) else fuse(graph)
            candidates = candidates_of(
                fused, spec, mode, filters or Filters(), engines, any_class=any_class, without=without
            )
            first = candidates.first
            ahead.offer([first], is_urgent=True)  # all that follows is beside its compilation
            ahead.offer(candidates.upcoming([first], FIRST))
            ordinal, is_beside = _ordinal(spec), spec.kind != "cpu"
            process.warm({"do": "warm", "device": spec.to_json(), "ordinal": ordinal})
            opening = Opening(fused.graph, spec, ordinal, seed, memory)
            process.tell(opening.message())
            reference = Reference(fused.graph, seed, is_beside, budget * (_BESIDE if is_beside else _BEFORE))
            try:
                limits = TuningBudget(budget, candidate_seconds, most, tie)
                bench = Bench(process, opening, candidate_seconds)
                search = Search(candidates, limits, reference, spending, bench, ahead)
                reference.start()  # which works beside this thread, and would slow down what comes before
            except BaseException:
                reference.close()
                raise
        except BaseException:
            process.kill()
            ahead.close()
            raise
    tuned = search.run()
    if database is None or not tuned.has_winner:
        return tuned
    ahead_of_it = database.add(tuned, replace_earlier=replace_earlier)
    return tuned if ahead_of_it is None else replace(tuned, earlier=(ahead_of_it.name, ahead_of_it.median))


def _ordinal(device: DeviceSpec) -> int | None:
    """Of the device that is current here, for the worker. Raises ``NotSupported`` where the device is not present."""
    if device.kind == "cpu":
        return None
    from graphdnn.cuda.driver_api import current_device
    from graphdnn.plan.cuda_runtime import CudaRuntime
    from graphdnn.plan.device_plan import ABSENT

    if not CudaRuntime(device).is_here():
        capability = ".".join(map(str, device.compute_capability))
        raise NotSupported(ABSENT.reject("AUTOTUNE", "device", "none", device=device.name, capability=capability))
    return current_device() if device.ordinal is None else device.ordinal

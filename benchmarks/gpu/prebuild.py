"""Compile the kernels of many cases side by side, so that measuring finds them in the kernel cache.

A compiler takes half a second for a kernel and uses one core; a machine with a GPU has many.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from gpu import kernels
from gpu.problem import Group, Problem
from graphdnn import EngineConfig, ExecutionPlan, Filters, rank
from graphdnn.device.profiles import DeviceSpec
from graphdnn.fusion import fuse


def prebuild(
    cases: Sequence[tuple[str, str]], device: DeviceSpec, processes: int, *, every_kernel: bool = False
) -> dict[str, int]:
    """Build the plans of cases in processes without a GPU context.

    Args:
        cases: Pairs of a group's name and a case's name.
        device: The device that the kernels are for.
        processes: The number of processes.
        every_kernel: Whether each engine and each of its kernels is built as well, whatever the group says.

    Returns:
        How many plans were built, and how many could not be built, by "built" and "failed".
    """
    counts = {"built": 0, "failed": 0}
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        jobs = [pool.submit(_build, group, case, device, every_kernel) for group, case in cases]
        for job in jobs:
            built, failed = job.result()
            counts["built"] += built
            counts["failed"] += failed
    return counts


def _build(group_name: str, case_name: str, device: DeviceSpec, every: bool) -> tuple[int, int]:
    """A failure is only counted here: measuring reports it with its reason."""
    from gpu.groups import GROUPS

    group: Group = GROUPS[group_name][0]
    case = next(case for case in group.cases if case.name == case_name)
    try:
        problem = case.describe()
    except Exception:
        return 0, 1
    if not isinstance(problem, Problem):
        return 0, 0
    built = failed = 0
    for config in _plans(problem, device, every=every or group.every_kernel):
        try:
            ExecutionPlan(config)
            built += 1
        except Exception:
            failed += 1
    return built, failed


def _plans(problem: Problem, device: DeviceSpec, *, every: bool) -> Iterator[EngineConfig]:
    try:
        yield rank(problem.graph, device, filters=problem.filters).best
    except Exception:
        return
    if every:
        yield from kernels.every_kernel(fuse(problem.graph), device, problem.filters or Filters())

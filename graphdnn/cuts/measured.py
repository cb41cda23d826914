"""What graphs take, measured where their device is: the median of several executions on random data."""

from __future__ import annotations

from statistics import median
from time import perf_counter

from graphdnn.operands import blended, random_operands
from graphdnn.plan import ExecutionPlan


def seconds_of(plan: ExecutionPlan, repeat: int) -> float:
    """The median of ``repeat`` executions after one more. Raises ``NotSupported`` when its device is not here."""
    plan.load()
    graph = plan.config.fused.graph
    operands, workspace = random_operands(graph), plan.new_workspace()
    blended(graph, operands)
    bindings = plan.to_device(operands)
    plan.execute(bindings, workspace)
    times: list[float] = []

    def call() -> None:
        start = perf_counter()
        plan.execute(bindings, workspace)
        times.append(perf_counter() - start)

    timings = getattr(plan, "timings", None)  # a device tells its own time
    if timings is not None:
        return float(median(timings(call, repeat)))
    for _ in range(repeat):
        call()
    return median(times)

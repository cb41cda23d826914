"""Tuning of the graph that is being built."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphdnn.builder.plan_selection import PlanSelection
from graphdnn.enums import HeurMode

if TYPE_CHECKING:
    from graphdnn.tuning import Database, Tuned


def autotune(
    selection: PlanSelection,
    /,
    budget: float = 10.0,
    mode: HeurMode = HeurMode.B,
    *,
    database: Database | Path | str | bool | None = None,
    any_class: bool = False,
    **options: Any,
) -> Tuned:
    """Measure configurations on the graph's device. The fastest one with the right results becomes the plan.

    Candidates run in a process of their own, on data of their own.

    Args:
        budget: Seconds in all. The first candidate is tried whatever it takes.
        mode: The heuristic mode whose configurations are tried.
        database: A ``Database``, its file, or True for the one beside the kernel cache. Measurements are kept
            there for ``build(tuned=...)``.
        any_class: True also tries configurations with larger errors than the ranking's best.
        options: More arguments of ``graphdnn.tuning.autotune``.

    Returns:
        The result with every candidate.

    Raises:
        NotSupported: No engine serves the graph, or the device is not present.
        ExecutionFailed: The process of the candidates does not start.
        BadParam: The database is not usable.
    """
    from graphdnn.tuning import autotune

    kept = selection.database(database)
    tuned = autotune(
        selection.fused, selection.device, budget=budget, mode=mode, filters=selection.filters, any_class=any_class,
        without=selection.deselected, database=kept, **options,
    )  # fmt: skip
    if tuned.has_winner:
        plan = tuned.plan
        selection.choose(plan)
    return tuned

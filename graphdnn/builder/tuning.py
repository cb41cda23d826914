"""Tuning of the graph that is being built."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphdnn.builder.execution import Running
from graphdnn.enums import HeurMode

if TYPE_CHECKING:
    from graphdnn.tuning import Database, Tuned


class Tuning(Running):
    """``autotune``."""

    def autotune(
        self,
        budget: float = 10.0,
        mode: HeurMode = HeurMode.B,
        *,
        database: Database | Path | str | bool | None = None,
        any_class: bool = False,
        **options: Any,
    ) -> Tuned:
        """Try configurations on the graph's device for ``budget`` seconds; the fastest right one becomes its plan.

        Candidates run in a process of their own and on data of their own. ``database``: a Database or its file, True
        for the one beside the kernel cache: what was measured is kept there for ``build(tuned=...)``. ``any_class``:
        also configurations with larger errors than the ranking's best. More options: graphdnn.tuning.autotune.
        """
        from graphdnn.tuning import autotune

        kept = self._database(database)
        tuned = autotune(
            self.fused, self.device, budget=budget, mode=mode, filters=self._filters, any_class=any_class,
            without=self._deselected, database=kept, **options,
        )  # fmt: skip
        if tuned.has_winner:
            plan = tuned.plan
            self._forget_plan()
            self._plan = plan
        return tuned

"""Execution plans: one class for each place where arrays live, behind the name ``ExecutionPlan``.

The class of a place is loaded with its first plan: a program that stays on the host never loads what launches kernels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphdnn.plan.execution_plan import ExecutionPlan, class_of

if TYPE_CHECKING:
    from graphdnn.plan.device_plan import DevicePlan
    from graphdnn.plan.host_plan import HostPlan

_PLACES = {"DevicePlan": "cuda", "HostPlan": "cpu"}


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return class_of(_PLACES[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["DevicePlan", "ExecutionPlan", "HostPlan", "class_of"]

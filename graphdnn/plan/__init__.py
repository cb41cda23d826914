"""Execution plans: one class for each place where arrays live, behind the name ``ExecutionPlan``."""

from graphdnn.plan.base import ExecutionPlan
from graphdnn.plan.device import DevicePlan
from graphdnn.plan.host import HostPlan

__all__ = ["DevicePlan", "ExecutionPlan", "HostPlan"]

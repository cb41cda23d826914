"""Every value inside a plan's kernels, made visible, and where it first differs from what it should be."""

from graphdnn.trace.record import Trace, Traced
from graphdnn.trace.running import of_plan

__all__ = ["Trace", "Traced", "of_plan"]

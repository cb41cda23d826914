"""Every value inside a plan's kernels, made visible, and where it first differs from what it should be."""

from graphdnn.analysis.trace.collect import of_plan
from graphdnn.analysis.trace.trace import Trace, Traced

__all__ = ["Trace", "Traced", "of_plan"]

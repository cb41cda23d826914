"""Fusion: which operations become one kernel, and why the others did not."""

from graphdnn.fusion.fused import FusedGraph, FusedOp, Stop
from graphdnn.fusion.limits import NO_LIMITS, Limits
from graphdnn.fusion.match import fuse
from graphdnn.fusion.rules import FUSION_RULES

__all__ = ["FUSION_RULES", "NO_LIMITS", "FusedGraph", "FusedOp", "Limits", "Stop", "fuse"]

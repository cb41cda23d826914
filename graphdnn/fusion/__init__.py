"""Fusion: which operations become one kernel, and why the others did not."""

from graphdnn.fusion.fused_graph import FusedGraph, FusedOp, UnfusedEdge
from graphdnn.fusion.fusion_pass import fuse
from graphdnn.fusion.limits import NO_LIMITS, FusionLimits, Limits
from graphdnn.fusion.templates import FUSION_RULES

__all__ = ["FUSION_RULES", "NO_LIMITS", "FusedGraph", "FusedOp", "FusionLimits", "Limits", "UnfusedEdge", "fuse"]

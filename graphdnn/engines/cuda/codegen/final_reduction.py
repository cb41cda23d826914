"""The final reduction of a fused operation, as a kernel over the finished values."""

from __future__ import annotations

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.launch import DeviceKernel
from graphdnn.engines.cuda.reduction.reduction import generate_reduction
from graphdnn.engines.cuda.reduction.statistics import generate_bn_weights, generate_genstats
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import BnBackwardWeights, GenStats, Reduction


def generate_exit(op: FusedOp, device: DeviceSpec) -> DeviceKernel:
    """The launches of a fused operation that consists of the final reduction."""
    match op.anchor:
        case Reduction():
            return generate_reduction(op, device)
        case GenStats():
            return generate_genstats(op, device)
        case BnBackwardWeights():
            return generate_bn_weights(op, device)
    raise AssertionError(f"{op.main.tag} is not a final reduction")

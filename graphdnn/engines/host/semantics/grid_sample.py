"""Grid sampling and its gradients."""

from __future__ import annotations

from graphdnn.engines.host.grid_sample import sample, sample_backward
from graphdnn.engines.host.kernel import Call
from graphdnn.engines.host.semantics.arithmetic import Results, to_compute
from graphdnn.operations import GridSample, GridSampleBackward


def forward(op: GridSample, call: Call) -> Results:
    x, grid = (to_compute(op, call.operands[port]) for port in ("x", "grid"))
    return {"y": sample(x, grid)}


def backward(op: GridSampleBackward, call: Call) -> Results:
    x, grid, dy = (to_compute(op, call.operands[port]) for port in ("x", "grid", "dy"))
    dx, dgrid = sample_backward(x, grid, dy)
    return {"dx": dx, "dgrid": dgrid}

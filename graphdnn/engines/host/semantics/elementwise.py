"""Pointwise modes, reductions, random numbers."""

from __future__ import annotations

import numpy as np

from graphdnn.engines.host import random
from graphdnn.engines.host.kernel import Call
from graphdnn.engines.host.reduction import reduce
from graphdnn.engines.host.semantics.arithmetic import Results, to_compute
from graphdnn.enums import PointwiseMode
from graphdnn.operations import PointwiseOperation, Reduction, Rng


def pointwise(op: PointwiseOperation, call: Call) -> Results:
    """One row of the pointwise table over broadcast operands."""
    spec = op.spec
    ports = spec.row.operands
    operands = [call.operands[port] for port in ports]
    if spec.mode is not PointwiseMode.GEN_INDEX:  # which only looks at the shape
        operands = [o if port == "t" else to_compute(op, o) for port, o in zip(ports, operands, strict=True)]
    (port,) = op.outputs()
    with np.errstate(all="ignore"):
        for i, alpha in enumerate((op.alpha1, op.alpha2)):
            if alpha != 1.0:
                operands[i] = operands[i] * operands[i].dtype.type(alpha)
        result = spec.row.numpy(*operands, **spec.parameters())
    return {port: np.broadcast_to(result, op.outputs()[port].extents)}


def reduction(op: Reduction, call: Call) -> Results:
    return {"y": reduce(to_compute(op, call.operands["x"]), op.y.extents, op.spec.operator)}


def rng(op: Rng, call: Call) -> Results:
    seed = int(call.operands["seed"].reshape(())[()]) if "seed" in call.operands else op.seed
    offset = int(call.operands["offset"].reshape(())[()])
    spec = op.spec
    names = ("mean", "standard_deviation", "minimum", "maximum", "probability")
    parameters = {name: getattr(spec, name) for name in names if getattr(spec, name) is not None}
    return {"y": random.generate(op.y.extents, spec.distribution, int(seed), offset, parameters)}  # type: ignore[arg-type]

"""Normalizations and the batch-norm building blocks."""

from __future__ import annotations

from math import prod

import numpy as np

from graphdnn.engines.host import normalization, statistics
from graphdnn.engines.host.kernel import Call
from graphdnn.engines.host.semantics.arithmetic import Results, operand, present, scalar, to_compute
from graphdnn.enums import BnFinalizeStatsMode, NormMode, NormPhase
from graphdnn.operations import BnBackwardWeights, BnFinalize, GenStats, NormBackward, NormForward


def _epsilon(call: Call) -> float:
    return scalar(call, "epsilon") if "epsilon" in call.operands else 0.0


def norm_forward(op: NormForward, call: Call) -> Results:
    x = to_compute(op, call.operands["x"])
    mean, inv_variance = operand(op, call, "mean"), operand(op, call, "inv_variance")
    centered = op.mode is not NormMode.RMS_NORM
    found = None
    if op.phase is NormPhase.TRAINING or inv_variance is None or (centered and mean is None):
        found = normalization.statistics(x, op.axes, _epsilon(call), centered=centered)
        mean, inv_variance = found.mean, found.inv_variance
    y = normalization.normalize(x, mean, inv_variance, operand(op, call, "scale"), operand(op, call, "bias"))
    running: tuple[np.ndarray, np.ndarray] | tuple[None, None] = (None, None)
    if op.momentum is not None and found is not None and found.mean is not None:
        previous = (
            to_compute(op, call.operands["input_running_mean"]),
            to_compute(op, call.operands["input_running_var"]),
        )
        count = prod(op.x.extents[a] for a in op.axes)
        running = normalization.running(previous, (found.mean, found.variance), count, scalar(call, "momentum"))
    return present(
        {
            "y": y,
            "mean": mean,
            "inv_variance": inv_variance,
            "output_running_mean": running[0],
            "output_running_var": running[1],
        }
    )


def norm_backward(op: NormBackward, call: Call) -> Results:
    x, dy = to_compute(op, call.operands["x"]), to_compute(op, call.operands["dy"])
    mean, inv_variance = operand(op, call, "mean"), operand(op, call, "inv_variance")
    centered = op.mode is not NormMode.RMS_NORM
    if inv_variance is None or (centered and mean is None):
        found = normalization.statistics(x, op.axes, _epsilon(call), centered=centered)
        mean, inv_variance = found.mean, found.inv_variance
    scale = to_compute(op, call.operands["scale"])
    gradients = normalization.backward(dy, x, scale, op.axes, mean, inv_variance)
    return {"dx": gradients.dx, "dscale": gradients.dscale, "dbias": gradients.dbias}


def genstats(op: GenStats, call: Call) -> Results:
    total, squares = statistics.genstats(to_compute(op, call.operands["x"]))
    return {"sum": total, "sqsum": squares}


def bn_finalize(op: BnFinalize, call: Call) -> Results:
    def get(port: str) -> np.ndarray:
        return to_compute(op, call.operands[port])

    previous = None
    if op.previous_running_mean is not None:
        previous = get("previous_running_mean"), get("previous_running_var")
    if op.mode is BnFinalizeStatsMode.INFERENCE:
        assert previous is not None
        result = statistics.bn_finalize_inference(get("scale"), get("bias"), *previous, _epsilon(call))
    else:
        result = statistics.bn_finalize_training(
            get("y_sum"), get("y_sq_sum"), get("scale"), get("bias"),
            int(scalar(call, "accumulation_count")), _epsilon(call), scalar(call, "momentum"), previous,
        )  # fmt: skip
    return present(
        {
            "saved_mean": result.saved_mean,
            "saved_inv_std": result.saved_inv_std,
            "eq_scale": result.eq_scale,
            "eq_bias": result.eq_bias,
            "updated_running_mean": result.running_mean,
            "updated_running_var": result.running_var,
        }
    )


def bn_backward_weights(op: BnBackwardWeights, call: Call) -> Results:
    ports = ("x", "dy", "mean", "inv_std", "scale")
    found = statistics.bn_backward_weights(*(to_compute(op, call.operands[p]) for p in ports))
    return {port: getattr(found, port) for port in ("dscale", "dbias", "eq_dy_scale", "eq_x_scale", "eq_bias")}

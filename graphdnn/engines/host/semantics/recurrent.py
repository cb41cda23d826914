"""Recurrent networks and their gradients."""

from __future__ import annotations

import numpy as np

from graphdnn.dtypes import COMPUTE, Array, cast
from graphdnn.engines.host import rnn
from graphdnn.engines.host.kernel import Call
from graphdnn.engines.host.semantics.arithmetic import Results, operand, present, to_compute
from graphdnn.operations import RnnBackwardData, RnnBackwardWeights, RnnForward


def forward(op: RnnForward, call: Call) -> Results:
    compute = COMPUTE[op.compute_type]
    masks = None
    if op.masks is not None:
        seed, offset = (int(call.operands[port].reshape(())[()]) for port in ("seed", "offset"))
        masks = rnn.draw_masks(op.rnn, seed, offset)

    def rounded(values: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            return cast(values, op.y.data_type).astype(compute, copy=False)

    kept = None if op.kept is None else np.empty(op.rnn.kept_count, compute)
    with np.errstate(all="ignore"):
        y, hy, cy = rnn.forward(
            op.rnn, to_compute(op, call.operands["x"]), _weights(op, call), operand(op, call, "hx"),
            operand(op, call, "cx"), kept, masks, rounded, call.scratch,
        )  # fmt: skip
    return present({"y": y, "hy": hy, "cy": cy, "kept": kept, "masks": masks})


def backward_data(op: RnnBackwardData, call: Call) -> Results:
    gradients = np.empty(op.rnn.gradient_count, COMPUTE[op.compute_type])
    with np.errstate(all="ignore"):
        states = {port: operand(op, call, port) for port in ("hx", "cx", "dhy", "dcy")}
        y, dy = to_compute(op, call.operands["y"]), to_compute(op, call.operands["dy"])
        dx, dhx, dcx = rnn.backward_data(
            op.rnn, y, dy, _weights(op, call), kept=_kept(op, call), masks=_masks(call), gradients=gradients, **states
        )
    return {"dx": dx, "dhx": dhx, "dcx": dcx, "kept_gradients": gradients}


def backward_weights(op: RnnBackwardWeights, call: Call) -> Results:
    gradients = np.ascontiguousarray(call.operands["kept_gradients"])
    with np.errstate(all="ignore"):
        dw = rnn.backward_weights(
            op.rnn, to_compute(op, call.operands["x"]), to_compute(op, call.operands["y"]), operand(op, call, "hx"),
            _kept(op, call), _masks(call), gradients,
        )  # fmt: skip
    return {"dw": dw}


def _weights(op: RnnForward | RnnBackwardData, call: Call) -> Array:
    return np.ascontiguousarray(to_compute(op, call.operands["w"]))


def _kept(op: RnnBackwardData | RnnBackwardWeights, call: Call) -> Array | None:
    return None if op.kept is None else np.ascontiguousarray(call.operands["kept"])


def _masks(call: Call) -> Array | None:
    return call.operands.get("masks")

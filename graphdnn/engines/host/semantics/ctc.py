"""The CTC loss."""

from __future__ import annotations

import numpy as np

from graphdnn.engines.host import ctc
from graphdnn.engines.host.kernel import Call
from graphdnn.engines.host.semantics.arithmetic import Results, present, to_compute
from graphdnn.operations import CtcLoss


def loss(op: CtcLoss, call: Call) -> Results:
    labels, lengths, steps = (call.operands[port] for port in ("labels", "label_lengths", "input_lengths"))
    with np.errstate(all="ignore"):
        costs, gradients = ctc.loss(
            to_compute(op, call.operands["probs"]), labels, lengths, steps, call.scratch,
            gradients=op.gradients is not None,
        )  # fmt: skip
    return present({"costs": costs, "gradients": gradients})

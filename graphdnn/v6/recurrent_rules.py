"""What dropout, recurrent networks and the CTC loss refuse beside the rules of every call."""

from __future__ import annotations

from graphdnn.enums import Status
from graphdnn.rules import Rule

FLOATING = Rule(
    id="v6.recurrent.floating",
    expected="FLOAT, DOUBLE or HALF",
    reason="the call computes fractions",
    fix="convert with cudnnTransformTensor, or set the descriptor to another type",
    status=Status.NOT_SUPPORTED,
)
NO_STATES = Rule(
    id="v6.dropout.states",
    expected="a dropout descriptor with generator states",
    reason="masks are drawn from the states, and the descriptor was only set without any",
    fix="call cudnnSetDropoutDescriptor with memory of cudnnDropoutGetStatesSize bytes",
)

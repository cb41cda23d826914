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
SEQUENCE = Rule(
    id="v6.rnn.sequence",
    expected="{expected}",
    reason="{reason}",
    fix="describe each step as [sequences, values, 1], packed, the longest sequences first",
)
PACKED = Rule(
    id="v6.rnn.packed",
    expected="packed strides {expected}",
    reason="steps lie one after another, without gaps",
    fix="copy the data into packed memory with cudnnTransformTensor",
)
PRECISION = Rule(
    id="v6.rnn.precision",
    expected="{expected}",
    reason="the network was set to compute in {math}: HALF data takes HALF or FLOAT, FLOAT takes FLOAT, DOUBLE DOUBLE",
    fix="set the network's dataType, or the descriptors, so that they agree",
    status=Status.NOT_SUPPORTED,
)
PERSISTENT = Rule(
    id="v6.rnn.persistent",
    expected="{expected}",
    reason="{reason}",
    fix="use CUDNN_RNN_ALGO_STANDARD, which computes the same",
    status=Status.NOT_SUPPORTED,
)
PLAN_ALGO = Rule(
    id="v6.rnn.plan",
    expected="CUDNN_RNN_ALGO_PERSIST_DYNAMIC",
    reason="only this algorithm takes a plan",
    fix="set the network with that algorithm first",
)
LINEAR_LAYER = Rule(
    id="v6.rnn.linear_layer",
    expected="{expected}",
    reason="layers count directions, and each has matrices and biases of the input first, then of the state",
    fix="use an index in the range",
)
OUTSIDE = Rule(
    id="v6.rnn.weights.outside",
    expected="weights that end within the {count} elements of wDesc",
    reason="the block would lie outside the buffer",
    fix="describe the buffer with as many elements as cudnnGetRNNParamsSize asks for",
    status=Status.INVALID_VALUE,
)
ALIGNMENT = Rule(
    id="v6.rnn.weights.alignment",
    expected="a multiple of {size}",
    reason="elements are read at aligned addresses",
    fix="allocate the weights as an array of their type",
)
FLOAT_ONLY = Rule(
    id="v6.ctc.data_type",
    expected="CUDNN_DATA_FLOAT",
    reason="this call was made for one type",
    fix="convert the probabilities, and set the descriptor's type to FLOAT",
    status=Status.NOT_SUPPORTED,
)
STEPS = Rule(
    id="v6.ctc.steps",
    expected="at most {steps}",
    reason="probs has that many steps",
    fix="give the number of steps of the sequence",
)
LABEL_LENGTH = Rule(
    id="v6.ctc.label_length",
    expected="at most {longest}",
    reason="the releases that had this call took no longer labels",
    fix="split the sequence",
)
LABEL = Rule(
    id="v6.ctc.label",
    expected="1 to {last}",
    reason="labels are classes, and class 0 is the blank, which no label holds",
    fix="number the classes from 1",
)

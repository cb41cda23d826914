"""Why PyTorch keeps an operator. Each rule is a fallback: PyTorch runs the operator, and the answer is the same."""

from __future__ import annotations

from graphdnn.enums import Status
from graphdnn.rules import Rule

OPERATOR = Rule(
    id="torch.operator",
    expected="an operator of the table in docs/pytorch.md",
    reason="the library has no lowering of this operator",
    fix="nothing has to be done: PyTorch runs the operator; replace it with operators of the table to fuse it",
    status=Status.NOT_SUPPORTED,
)
ARGUMENT = Rule(
    id="torch.argument",
    expected="{expected}",
    reason="{reason}",
    fix="{fix}",
    status=Status.NOT_SUPPORTED,
)
ELEMENT_TYPE = Rule(
    id="torch.data_type",
    expected="a floating-point, integer or boolean type of the library",
    reason="the library has no such element type",
    fix="convert the tensor, or leave the operator to PyTorch",
    status=Status.NOT_SUPPORTED_DATA_TYPE,
)
LAYOUT = Rule(
    id="torch.layout",
    expected="a strided tensor with memory",
    reason="sparse, nested and quantized tensors have no strides",
    fix="convert the tensor with to_dense(), or leave the operator to PyTorch",
    status=Status.NOT_SUPPORTED_LAYOUT,
)
EMPTY = Rule(
    id="torch.empty",
    expected="at least one element",
    reason="a kernel has something to compute for each tensor that it writes",
    fix="nothing has to be done: PyTorch computes empty tensors",
    status=Status.NOT_SUPPORTED_SHAPE,
)
DEVICE = Rule(
    id="torch.device",
    expected="tensors of {device}",
    reason="a segment runs on one device",
    fix="move the module and its inputs to one device",
    status=Status.NOT_SUPPORTED,
)
UNUSED_RESULT = Rule(
    id="torch.result",
    expected="operators that read results {served} only",
    reason="{reason}",
    fix="leave the operator to PyTorch",
    status=Status.NOT_SUPPORTED,
)
VIEWS_ONLY = Rule(
    id="torch.views_only",
    expected="an operator that computes",
    reason="the neighbours of these views are PyTorch's, and a view costs PyTorch nothing",
    fix="nothing has to be done",
    status=Status.NOT_SUPPORTED,
)
ONE_OPERATOR = Rule(
    id="torch.one_operator",
    expected="at least two operators that compute",
    reason="an elementwise operator alone takes PyTorch as long: there is nothing to fuse it with",
    fix="nothing has to be done",
    status=Status.NOT_SUPPORTED,
)
LOWERING = Rule(
    id="torch.lowering",
    expected="arguments that the lowering reads",
    reason="the lowering of the operator fails",
    fix="nothing has to be done: PyTorch runs the operator; please report the arguments",
    status=Status.NOT_SUPPORTED,
)
NARROW = Rule(
    id="torch.narrow",
    expected="elementwise operators",
    reason="a tensor of the library has each element once; an elementwise operation broadcasts it, and other "
    "operations need all elements",
    fix="nothing has to be done: PyTorch expands the tensor",
    status=Status.NOT_SUPPORTED,
)
OPTION = Rule(
    id="torch.option",
    expected="{expected}",
    reason="the backend has no such option, and the library ignores no input",
    fix="leave the option out",
)

"""Matrix products."""

from __future__ import annotations

import torch

from graphdnn.builder.tensor import Tensor
from graphdnn.enums import DataType
from graphdnn.enums import PointwiseMode as M
from graphdnn.torch.lowering import Lowering, Number, lowers

aten = torch.ops.aten


@lowers(aten.mm.default, aten.bmm.default)
def mm(low: Lowering, a: Tensor, b: Tensor) -> Tensor:
    return low.typed(low.graph.matmul(a, b, compute_data_type=_compute(a), name=low.node.name))


@lowers(aten.addmm.default, aten.baddbmm.default)
def addmm(low: Lowering, bias: Tensor, a: Tensor, b: Tensor, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """``beta * bias + alpha * (a @ b)``. The product keeps the digits of its sum until the bias is added."""
    compute = _compute(a)
    product = low.graph.matmul(a, b, compute_data_type=compute, name=low.node.name).set_data_type(compute)
    if beta == 0:
        return low.typed(low.pointwise(M.MUL, product, alpha, compute=compute))
    factors = {name: float(f) for name, f in (("alpha1", alpha), ("alpha2", beta)) if f != 1}
    return low.typed(low.pointwise(M.ADD, product, bias, compute=compute, **factors))


def _compute(a: Tensor) -> DataType:
    kind = a.get_data_type()
    if kind in (DataType.DOUBLE, DataType.INT64, DataType.INT32):
        return kind
    return DataType.INT32 if kind in (DataType.INT8, DataType.UINT8, DataType.INT16) else DataType.FLOAT

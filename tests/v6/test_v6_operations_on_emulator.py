"""Legacy calls that are written as operations of the core: their kernels for a GPU agree with NumPy, on the emulator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cuda_comparison import run_both
from test_v6_spatial_values import transformer
from test_v6_window_values import DIVISIVE, LRN_MODE, lrn
from v6_tools import tensor
from v6_values import drawn

from graphdnn import v6
from graphdnn.dtypes import ELEMENTS
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import Operation
from graphdnn.pipeline import rank

X, GRID, THETA, LEFT = (2, 7, 3, 4), (2, 4, 5, 2), (2, 2, 3), (2, 1, 3, 1)
HANDLE, DESC = v6.cudnnCreate(), tensor(X)


def largest() -> Any:
    desc = v6.cudnnCreateReduceTensorDescriptor()
    v6.cudnnSetReduceTensorDescriptor(
        desc, v6.CUDNN_REDUCE_TENSOR_MAX, v6.CUDNN_DATA_FLOAT, v6.CUDNN_PROPAGATE_NAN, 1, 0
    )
    return desc


def arrays(*shapes: Any) -> list[np.ndarray]:
    return [drawn(shape) for shape in shapes]


NORM = lrn(5, 0.7, 0.75, 1.5)
CALLS: dict[str, Callable[[], None]] = {
    "lrn": lambda: v6.cudnnLRNCrossChannelForward(
        HANDLE, NORM, LRN_MODE, 2.0, DESC, arrays(X)[0], 0.5, DESC, arrays(X)[0]
    ),
    "lrn gradient": lambda: v6.cudnnLRNCrossChannelBackward(
        HANDLE, NORM, LRN_MODE, 1.0, DESC, arrays(X)[0], DESC, arrays(X)[0], DESC, arrays(X)[0], 0.0, DESC, arrays(X)[0]
    ),
    "divisive": lambda: v6.cudnnDivisiveNormalizationForward(
        HANDLE, NORM, DIVISIVE, 1.0, DESC, *arrays(X, X, X, X), 0.0, DESC, arrays(X)[0]
    ),
    "divisive gradient": lambda: v6.cudnnDivisiveNormalizationBackward(
        HANDLE, NORM, DIVISIVE, 1.0, DESC, *arrays(X, X, X, X, X), 0.0, DESC, *arrays(X, X)
    ),
    "grid": lambda: v6.cudnnSpatialTfGridGeneratorForward(HANDLE, transformer((2, 3, 4, 5)), *arrays(THETA, GRID)),
    "grid gradient": lambda: v6.cudnnSpatialTfGridGeneratorBackward(
        HANDLE, transformer((2, 3, 4, 5)), *arrays(GRID, THETA)
    ),
    "positions": lambda: v6.cudnnReduceTensor(
        HANDLE, largest(), np.zeros(24, np.uint8), 24, None, 0, 1.0, DESC, arrays(X)[0], 0.0, tensor(LEFT), arrays(LEFT)[0]
    ),
}  # fmt: skip


def in_memory(op: FusedOp) -> list[Operation]:
    """The operations of a kernel, with what it shares with other kernels bound."""
    shared = {t.uid for t in (*op.inputs, *op.outputs) if t.is_virtual}
    return [
        step.model_copy(update={
            port: t.model_copy(update={"is_virtual": False}) for port, t in step.tensors().items() if t.uid in shared
        })
        for step in op.operations
    ]  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_kernels_agree_with_numpy(name: str) -> None:
    CALLS[name]()
    ranking = rank(v6.last_graph(), "h200")
    for choice in ranking.best.choices:
        op = choice.task.op
        values = {}
        for spec in op.inputs:
            if not spec.is_constant:
                kind = ELEMENTS[spec.data_type].numpy
                drawn_here = np.abs(drawn(spec.extents)) + 0.5  # bases of powers
                values[spec.uid] = (drawn_here > 1).astype(kind) if kind.kind == "b" else drawn_here.astype(kind)
        here, there = run_both(in_memory(op), choice.engine, values, choice.knobs)
        for uid, found in here.items():
            np.testing.assert_allclose(
                found.astype(np.float64), there[uid].astype(np.float64), rtol=2e-5, atol=1e-5, err_msg=f"{op.name}"
            )

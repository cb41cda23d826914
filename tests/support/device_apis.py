"""What tests of the faces on a CUDA device have in common; kernels run in the emulator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from legal_problems import IMAGE, operation, tensor

from graphdnn import GraphdnnError, NotSupported, OperationGraph
from graphdnn.cuda import nvrtc
from graphdnn.operations import Operation

H200, SUM = "h200", "pointwise x=f32[4,6] + residual"


def _has_nvrtc() -> bool:
    try:
        nvrtc.loaded_version()
    except NotSupported:
        return False
    return True


compiled = pytest.mark.skipif(not _has_nvrtc(), reason="no NVRTC")


def rules_of(call: Callable[[], Any]) -> list[str]:
    with pytest.raises(GraphdnnError) as caught:
        call()
    return [r.rule for r in caught.value.rejections]


def two_kernels() -> tuple[Operation, Operation]:
    """A sum over each channel, and what follows it over the full extents: one tensor between them."""
    total = tensor(11, (1, 4, 1, 1), is_virtual=True)
    return (
        operation("reduction", x=tensor(10, IMAGE), y=total),
        operation("pointwise", x=tensor(10, IMAGE), b=total, y=tensor(12, IMAGE)),
    )


def scaled() -> OperationGraph:
    """x + s -> y with a by-value s."""
    scalar = tensor(2, (1, 1, 1, 1), is_by_value=True)
    return OperationGraph.of([operation("pointwise", b=scalar)])

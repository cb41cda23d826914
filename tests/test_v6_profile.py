"""profile("6.0"): each condition of integer convolution in 6.0 is refused with its own reason, and only inside."""

from __future__ import annotations

from typing import Any

import pytest
from v6_tools import convolution, filter_of, tensor

from graphdnn import v6

NHWC, NCHW, VECT = v6.CUDNN_TENSOR_NHWC, v6.CUDNN_TENSOR_NCHW, v6.CUDNN_TENSOR_NCHW_VECT_C
INT8, X4, FLOAT, INT32 = v6.CUDNN_DATA_INT8, v6.CUDNN_DATA_INT8x4, v6.CUDNN_DATA_FLOAT, v6.CUDNN_DATA_INT32
SUMS = convolution(compute=INT32)
PRECOMP = v6.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM


def asked(**changes: Any) -> tuple[Any, ...]:
    """Arguments of the workspace query for a convolution that 6.0 had, with changes."""
    arguments = {
        "x": tensor((1, 4, 6, 5), NHWC, INT8), "w": filter_of((8, 4, 3, 3), NHWC, INT8), "conv": SUMS,
        "y": tensor((1, 8, 4, 3), NHWC, INT8), "algo": PRECOMP,
    }  # fmt: skip
    return (v6.cudnnCreate(), *(arguments | changes).values())


CASES: list[tuple[dict[str, Any], set[str]]] = [
    ({}, set()),
    ({"y": tensor((1, 8, 4, 3), NHWC, FLOAT)}, set()),
    ({"w": filter_of((7, 4, 3, 3), NHWC, INT8), "y": tensor((1, 7, 4, 3), NHWC, FLOAT)}, set()),
    ({"x": tensor((1, 4, 6, 5), VECT, X4), "w": filter_of((8, 4, 3, 3), VECT, X4),
      "y": tensor((1, 8, 4, 3), VECT, X4)}, set()),
    ({"x": tensor((1, 4, 6, 5), VECT, X4), "w": filter_of((8, 4, 3, 3), VECT, X4),
      "y": tensor((1, 8, 4, 3), NCHW, FLOAT)}, set()),
    ({"conv": convolution()}, {"v6.profile.configuration"}),
    ({"y": tensor((1, 8, 4, 3), NHWC, INT32)}, {"v6.profile.configuration"}),
    ({"x": tensor((1, 3, 6, 5), NHWC, INT8), "w": filter_of((8, 3, 3, 3), NHWC, INT8)}, {"v6.profile.channels"}),
    ({"w": filter_of((7, 4, 3, 3), NHWC, INT8), "y": tensor((1, 7, 4, 3), NHWC, INT8)}, {"v6.profile.filters"}),
    ({"x": tensor((1, 4, 6, 5), NCHW, INT8)}, {"v6.profile.x.format"}),
    ({"w": filter_of((8, 4, 3, 3), NCHW, INT8)}, {"v6.profile.w.format"}),
    ({"y": tensor((1, 8, 4, 3), NCHW, INT8)}, {"v6.profile.y.format"}),
    ({"algo": v6.CUDNN_CONVOLUTION_FWD_ALGO_GEMM}, {"v6.profile.algorithm"}),
    ({"conv": convolution(dilation=(2, 1), compute=INT32), "y": tensor((1, 8, 2, 3), NHWC, INT8)},
     {"v6.profile.dilation"}),
    ({"x": tensor((1, 4, 3, 6, 5), NHWC, INT8), "w": filter_of((8, 4, 3, 3, 3), NHWC, INT8),
      "y": tensor((1, 8, 1, 4, 3), NHWC, INT8), "conv": convolution((0,) * 3, (1,) * 3, (1,) * 3, compute=INT32)},
     {"v6.profile.rank"}),
    ({"x": tensor((1, 8, 6, 5), NHWC, INT8), "conv": convolution(compute=INT32, groups=2)}, {"v6.profile.groups"}),
    ({"x": tensor((1, 3, 6, 5), NHWC, INT8), "w": filter_of((1, 3, 3, 3), NHWC, INT8),
      "y": tensor((1, 1, 4, 3), NHWC, INT8)}, {"v6.profile.channels", "v6.profile.filters"}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "rules"), CASES, ids=["-".join(sorted(r)) or str(i) for i, (_, r) in enumerate(CASES)]
)
def test_condition(changes: dict[str, Any], rules: set[str]) -> None:
    arguments = asked(**changes)
    assert v6.cudnnGetConvolutionForwardWorkspaceSize(*arguments) == 0
    with v6.profile("6.0"):
        if not rules:
            assert v6.cudnnGetConvolutionForwardWorkspaceSize(*arguments) == 0
            return
        with pytest.raises(v6.CudnnError) as error:
            v6.cudnnGetConvolutionForwardWorkspaceSize(*arguments)
    assert error.value.status is v6.CUDNN_STATUS_NOT_SUPPORTED
    assert {r.rule for r in error.value.rejections} == rules
    assert v6.cudnnGetConvolutionForwardWorkspaceSize(*arguments) == 0


def test_unknown_profile() -> None:
    with pytest.raises(v6.CudnnError) as error, v6.profile("5.1"):
        pass
    assert error.value.rejections[0].rule == "v6.profile.unknown"

"""Profiles: each condition of a release is refused with its own reason, and only inside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from v6_tools import convolution, filter_of, good_arguments, tensor

from graphdnn import v6
from graphdnn.v6.enums import ENUMS
from graphdnn.v6.functions import functions
from graphdnn.v6.releases import CAME_WITH, RELEASES

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
    assert v6.cudnnGetConvolutionForwardWorkspaceSize(*arguments) >= 0
    with v6.profile("6.0"):
        if not rules:
            assert v6.cudnnGetConvolutionForwardWorkspaceSize(*arguments) >= 0
            return
        with pytest.raises(v6.CudnnError) as error:
            v6.cudnnGetConvolutionForwardWorkspaceSize(*arguments)
    assert error.value.status is v6.CUDNN_STATUS_NOT_SUPPORTED
    assert {r.rule for r in error.value.rejections} == rules
    assert v6.cudnnGetConvolutionForwardWorkspaceSize(*arguments) >= 0


# Conditions of floating data, by algorithm: (function, its own arguments, changes, rules).

HALF, DOUBLE = v6.CUDNN_DATA_HALF, v6.CUDNN_DATA_DOUBLE
X, W, Y = tensor((2, 4, 6, 5)), filter_of((8, 4, 3, 3)), tensor((2, 8, 4, 3))
FORWARD, DATA, FILTERS = "Forward", "BackwardData", "BackwardFilter"
F, B, G = v6.cudnnConvolutionFwdAlgo, v6.cudnnConvolutionBwdDataAlgo, v6.cudnnConvolutionBwdFilterAlgo
DILATED = convolution(dilation=(2, 1))
TABLE: list[tuple[str, Any, dict[str, Any], set[str]]] = [
    (FORWARD, F.CUDNN_CONVOLUTION_FWD_ALGO_GEMM, {}, set()),
    (FORWARD, F.CUDNN_CONVOLUTION_FWD_ALGO_FFT, {}, set()),
    (FORWARD, F.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, {"conv": DILATED, "y": tensor((2, 8, 2, 3))}, set()),
    (FORWARD, F.CUDNN_CONVOLUTION_FWD_ALGO_GEMM, {"conv": DILATED, "y": tensor((2, 8, 2, 3))},
     {"v6.profile.algorithm.dilation"}),
    (FORWARD, F.CUDNN_CONVOLUTION_FWD_ALGO_GEMM, {"x": tensor((2, 4, 6, 5), NHWC)}, set()),
    (FORWARD, F.CUDNN_CONVOLUTION_FWD_ALGO_FFT, {"x": tensor((2, 4, 6, 5), NHWC)}, {"v6.profile.algorithm.formats"}),
    (FORWARD, F.CUDNN_CONVOLUTION_FWD_ALGO_GEMM, {"w": filter_of((8, 4, 3, 3), NHWC)},
     {"v6.profile.algorithm.formats"}),
    (FORWARD, F.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
     {"x": tensor((2, 4, 6, 5), NHWC), "w": filter_of((8, 4, 3, 3), NHWC), "y": tensor((2, 8, 4, 3), NHWC)}, set()),
    (FORWARD, F.CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD,
     {"x": tensor((2, 4, 6, 5), kind=DOUBLE), "w": filter_of((8, 4, 3, 3), kind=DOUBLE),
      "y": tensor((2, 8, 4, 3), kind=DOUBLE), "conv": convolution(compute=DOUBLE)}, {"v6.profile.algorithm.types"}),
    (FORWARD, F.CUDNN_CONVOLUTION_FWD_ALGO_GEMM,
     {"x": tensor((2, 4, 1, 6, 5)), "w": filter_of((8, 4, 1, 3, 3)), "y": tensor((2, 8, 1, 4, 3)),
      "conv": convolution((0,) * 3, (1,) * 3, (1,) * 3)}, {"v6.profile.algorithm.axes"}),
    (DATA, B.CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, {}, set()),
    (DATA, B.CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, {"y": tensor((2, 8, 4, 3), NHWC)}, {"v6.profile.algorithm.formats"}),
    (DATA, B.CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, {"conv": DILATED, "y": tensor((2, 8, 2, 3))},
     {"v6.profile.algorithm.dilation"}),
    (FILTERS, G.CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0, {"conv": DILATED, "y": tensor((2, 8, 2, 3))}, set()),
    (FILTERS, G.CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1,
     {"x": tensor((2, 4, 1, 6, 5)), "w": filter_of((8, 4, 1, 3, 3)), "y": tensor((2, 8, 1, 4, 3)),
      "conv": convolution((0,) * 3, (1,) * 3, (1,) * 3)}, {"v6.profile.algorithm.axes"}),
    (FILTERS, G.CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3, {"conv": convolution(groups=2), "x": tensor((2, 8, 6, 5))},
     {"v6.profile.groups"}),
]  # fmt: skip


@pytest.mark.parametrize(("direction", "algorithm", "changes", "rules"), TABLE)
def test_condition_of_an_algorithm(direction: str, algorithm: Any, changes: dict[str, Any], rules: set[str]) -> None:
    given = {"x": X, "w": W, "conv": convolution(), "y": Y} | changes
    order = {FORWARD: "x w conv y", DATA: "w y conv x", FILTERS: "x y conv w"}[direction]
    call = getattr(v6, f"cudnnGetConvolution{direction}WorkspaceSize")
    arguments = (v6.cudnnCreate(), *(given[name] for name in order.split()), algorithm)
    assert call(*arguments) >= 0
    with v6.profile("6.0"):
        if not rules:
            assert call(*arguments) >= 0
            return
        with pytest.raises(v6.CudnnError) as error:
            call(*arguments)
    assert error.value.status is v6.CUDNN_STATUS_NOT_SUPPORTED
    assert {r.rule for r in error.value.rejections} == rules


@pytest.mark.parametrize(
    ("name", "refused"),
    [("cudnnGetConvolutionGroupCount", True), ("cudnnSetFilter4dDescriptor_v3", True), ("cudnnGetTensorSizeInBytes", False),
     ("cudnnSetFilter4dDescriptor_v4", True), ("cudnnSetConvolution2dDescriptor_v4", False)],
)  # fmt: skip
def test_functions_that_6_0_had(name: str, refused: bool) -> None:
    arguments = good_arguments(functions()[name])
    getattr(v6, name)(*arguments)
    with v6.profile("6.0"):
        if not refused:
            getattr(v6, name)(*arguments)
            return
        with pytest.raises(v6.CudnnError) as error:
            getattr(v6, name)(*arguments)
    assert (error.value.status, error.value.rejections[0].rule) == (
        v6.CUDNN_STATUS_NOT_SUPPORTED, "v6.profile.function",
    )  # fmt: skip


def test_enumerators_that_came_later() -> None:
    handle, desc, one = v6.cudnnCreate(), v6.cudnnCreateOpTensorDescriptor(), np.ones(1, np.float32)
    v6.cudnnSetOpTensorDescriptor(desc, v6.CUDNN_OP_TENSOR_NOT, FLOAT, 0)
    d = tensor((1, 1, 1, 1))
    arguments = (handle, desc, 1.0, d, one, 1.0, d, one.copy(), 0.0, d, one.copy())
    v6.cudnnOpTensor(*arguments)
    with v6.profile("6.0"), pytest.raises(v6.CudnnError) as error:
        v6.cudnnOpTensor(*arguments)
    assert [r.rule for r in error.value.rejections] == ["v6.profile.enumerator"]
    assert all(any(n in enum.__members__ for enum in ENUMS) for n in CAME_WITH)


def test_unknown_profile() -> None:
    with pytest.raises(v6.CudnnError) as error, v6.profile("4.0"):
        pass
    assert error.value.rejections[0].rule == "v6.profile.unknown"


def activation_of(mode: Any) -> None:
    v6.cudnnSetActivationDescriptor(v6.cudnnCreateActivationDescriptor(), mode, v6.CUDNN_PROPAGATE_NAN, 0.0)


def tensor_of(kind: Any) -> None:
    v6.cudnnSetTensor4dDescriptor(v6.cudnnCreateTensorDescriptor(), NCHW, kind, 1, 4, 2, 2)


def operation_of(mode: Any) -> None:
    v6.cudnnSetOpTensorDescriptor(v6.cudnnCreateOpTensorDescriptor(), mode, FLOAT, 0)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    ("setter", "enumerator"),
    [(tensor_of, v6.CUDNN_DATA_UINT8), (tensor_of, INT8), (activation_of, v6.CUDNN_ACTIVATION_IDENTITY),
     (activation_of, v6.CUDNN_ACTIVATION_ELU), (operation_of, v6.CUDNN_OP_TENSOR_NOT)],
)  # fmt: skip
def test_setters_refuse_what_came_later(release: str, setter: Any, enumerator: Any) -> None:
    """Where it is written into a descriptor, not only where that is used."""
    setter(enumerator)
    with v6.profile(release):
        if CAME_WITH[enumerator.name] <= release:
            setter(enumerator)
            return
        with pytest.raises(v6.CudnnError) as error:
            setter(enumerator)
    assert error.value.status is v6.CUDNN_STATUS_NOT_SUPPORTED
    assert error.value.rejections[0].rule == "v6.profile.enumerator"


GROUPED = {"conv": convolution(groups=2), "x": tensor((2, 8, 6, 5))}
HALVES = {"x": tensor((2, 4, 6, 5), kind=HALF), "w": filter_of((8, 4, 3, 3), kind=HALF),
          "y": tensor((2, 8, 4, 3), kind=HALF), "conv": convolution(compute=HALF)}  # fmt: skip
INTEGERS = {"x": tensor((1, 4, 6, 5), NHWC, INT8), "w": filter_of((8, 4, 3, 3), NHWC, INT8), "conv": SUMS,
            "y": tensor((1, 8, 4, 3), NHWC, INT8)}  # fmt: skip
DILATES = {"conv": DILATED, "y": tensor((2, 8, 2, 3))}


@pytest.mark.parametrize(
    ("direction", "algorithm", "changes", "first", "rule"),
    [
        (FORWARD, PRECOMP, {}, "5.1", ""), (FORWARD, PRECOMP, INTEGERS, "6.0", "v6.profile.enumerator"),
        (FORWARD, PRECOMP, GROUPED, "7.0", "v6.profile.groups"),
        (FORWARD, F.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, DILATES, "6.0", "v6.profile.dilation.none"),
        (FORWARD, PRECOMP, DILATES, "7.5", "v6.profile.algorithm.dilation"),
        (DATA, B.CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, HALVES, "7.0", "v6.profile.algorithm.types"),
        (FILTERS, G.CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, DILATES, "7.5", "v6.profile.algorithm.dilation"),
    ],
)  # fmt: skip
def test_what_releases_from_one_on_take(direction: str, algorithm: Any, changes: Any, first: str, rule: str) -> None:
    given = {"x": X, "w": W, "conv": convolution(), "y": Y} | changes
    order = {FORWARD: "x w conv y", DATA: "w y conv x", FILTERS: "x y conv w"}[direction]
    call = getattr(v6, f"cudnnGetConvolution{direction}WorkspaceSize")
    arguments = (v6.cudnnCreate(), *(given[name] for name in order.split()), algorithm)
    for release in RELEASES:
        with v6.profile(release):
            if release >= first:
                assert call(*arguments) >= 0
                continue
            with pytest.raises(v6.CudnnError) as error:
                call(*arguments)
            assert error.value.status is v6.CUDNN_STATUS_NOT_SUPPORTED
            assert rule in {r.rule for r in error.value.rejections}


@pytest.mark.parametrize(
    ("name", "releases"),
    [("cudnnGetConvolutionGroupCount", "7.0 7.5"), ("cudnnSetFilter4dDescriptor_v3", "5.1"),
     ("cudnnGetTensorSizeInBytes", "6.0 7.0 7.5"), ("cudnnCreateTensorDescriptor", "5.1 6.0 7.0 7.5")],
)  # fmt: skip
def test_functions_of_each_release(name: str, releases: str) -> None:
    arguments = good_arguments(functions()[name])
    for release in RELEASES:
        with v6.profile(release):
            if release in releases.split():
                getattr(v6, name)(*arguments)
            else:
                with pytest.raises(v6.CudnnError, match=r"v6\.profile\.function"):
                    getattr(v6, name)(*arguments)

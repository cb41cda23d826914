"""The tables of the legacy face: counts, integers and spot facts of the headers, and what is said to be there."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from v6_tools import tensor

from graphdnn import v6
from graphdnn.v6.enums import CONSTANTS, ENUMS
from graphdnn.v6.functions import functions
from graphdnn.v6.name_hints import MISPRINTS

ROWS = functions()


def test_functions_are_counted() -> None:
    assert len(ROWS) == 171
    assert Counter(row.since for row in ROWS.values()) == {"5.1": 131, "6.0": 17, "7.x": 23}
    assert sum(row.section != "-" for row in ROWS.values()) == 124
    assert Counter(row.family for row in ROWS.values()) == {
        "handle": 9, "tensor": 13, "optensor": 5, "reduce": 7, "filter": 14, "conv": 40, "softmax": 2, "pooling": 18,
        "activation": 10, "lrn": 6, "divnorm": 2, "bn": 4, "spatial_tf": 7, "dropout": 9, "rnn": 19, "misc": 6,
    }  # fmt: skip
    sections = [row.section for row in ROWS.values() if row.section != "-"]
    assert sorted(sections, key=lambda s: int(s[2:])) == [f"4.{n}" for n in range(1, 125)]


def test_aliases_have_the_parameters_of_their_function() -> None:
    aliases = [row for row in ROWS.values() if row.alias_of]
    assert len(aliases) == 13
    for row in aliases:
        if row.name != "cudnnSetRNNDescriptor_v5":  # the name it follows changed its signature with 7.0
            assert [p.kind for p in row.parameters] == [p.kind for p in ROWS[row.alias_of].parameters], row.name


def test_spot_facts_of_functions() -> None:
    forward = ROWS["cudnnConvolutionForward"]
    assert [p.name for p in forward.inputs] == [
        "handle", "alpha", "xDesc", "x", "wDesc", "w", "convDesc", "algo", "workSpace", "workSpaceSizeInBytes", "beta",
        "yDesc", "y",
    ]  # fmt: skip
    assert (forward.section, forward.results) == ("4.45", ())
    assert forward.statuses[:4] == ("BAD_PARAM", "NOT_SUPPORTED", "MAPPING_ERROR", "EXECUTION_FAILED")
    assert [p.name for p in ROWS["cudnnGetTensor4dDescriptor"].results] == [
        "dataType", "n", "c", "h", "w", "nStride", "cStride", "hStride", "wStride",
    ]  # fmt: skip
    assert ROWS["cudnnBatchNormalizationBackward"].section == "4.97"
    assert ROWS["cudnnDestroy"].statuses == ("NOT_INITIALIZED",)


def test_enums() -> None:
    assert (len(ENUMS), sum(len(e.__members__) for e in ENUMS), len(CONSTANTS)) == (
        32,
        131,
        131,
    )  # 130 of the headers, and a name that the manual prints
    assert int(v6.CUDNN_STATUS_NOT_SUPPORTED) == 9
    assert int(v6.CUDNN_DATA_INT8x4) == 5
    assert int(v6.CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED) == 7
    assert int(v6.CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING) == 6
    assert v6.CUDNN_POOLING_AVERAGE is v6.CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING
    assert (int(v6.CUDNN_CONVOLUTION), int(v6.CUDNN_CROSS_CORRELATION)) == (0, 1)
    assert v6.cudnnTensorFormat["CUDNN_TENSOR_NCHW"] is v6.CUDNN_TENSOR_NCHW
    assert v6.cudnnTensorFormat is v6.cudnnTensorFormat_t
    assert hash(v6.CUDNN_DATA_HALF) == hash(2)
    assert str(v6.CUDNN_DATA_HALF) == "CUDNN_DATA_HALF"


def test_all_names_are_there() -> None:
    assert all(callable(getattr(v6, name)) and name in v6.__all__ for name in ROWS)
    assert set(CONSTANTS) <= set(v6.__all__)
    assert v6.cudnnConvolutionForward.__doc__.startswith("cudnnConvolutionForward(handle, alpha, xDesc,")


def test_coverage_says_what_is_there() -> None:
    lines = v6.coverage()
    assert [line.function for line in lines] == list(ROWS)
    values = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_v6_*.py"))
    for line in lines:
        assert line.implemented, line.function
        assert line.becomes
        assert not line.verified or (line.alias_of or line.function) in values, f"{line.function} is not compared"
    print(f"{sum(line.implemented for line in lines)} of {len(lines)} legacy functions are implemented")


def test_graphdnn_does_not_import_v6() -> None:
    code = "import sys, graphdnn; print('graphdnn.v6' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_versions() -> None:
    assert v6.cudnnGetVersion() == v6.CUDNN_VERSION == 6021
    assert (v6.CUDNN_MAJOR, v6.CUDNN_MINOR, v6.CUDNN_PATCHLEVEL) == (6, 0, 21)
    assert {"CUDNN_VERSION", "cudnnRuntimeTag_t"} <= set(v6.__all__)


def test_names_that_are_misspelt() -> None:
    assert (
        v6.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMPUTED_GEMM is v6.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM
    )
    for name, hint in (
        ("cudnnConvolutionFoward", "did you mean cudnnConvolutionForward?"),
        ("CUDNN_TENSOR_NCWH", "did you mean CUDNN_TENSOR_NCHW?"),
        ("cudnnSetPoolingDescriptor", "cudnnSetPooling2dDescriptor"),
        ("CUDNN_BATCHNORM_MODE_SPATIAL", "misprint of CUDNN_BATCHNORM_SPATIAL"),
    ):
        with pytest.raises(AttributeError, match=re.escape(hint)):
            getattr(v6, name)
    with pytest.raises(AttributeError) as error:
        v6.zzz
    assert "mean" not in str(error.value)
    for text in MISPRINTS.values():
        assert all(hasattr(v6, name) for name in text.split(" or "))
    with pytest.raises(v6.CudnnError, match="did you mean CUDNN_TENSOR_NHWC"):
        v6.cudnnSetTensor4dDescriptor(v6.cudnnCreateTensorDescriptor(), "CUDNN_TENSOR_NHCW", 0, 1, 1, 1, 1)


@pytest.mark.parametrize("kind", [float, np.float32, ctypes.c_float])
def test_limits_of_the_headers_as_floats(kind: Any) -> None:
    """A float's rounding of the least value is the least value; what is smaller is refused."""
    handle, x = v6.cudnnCreate(), np.ones((2, 3, 2, 2), np.float32)
    d, s, one = tensor(x.shape), tensor((1, 3, 1, 1)), np.ones((1, 3, 1, 1), np.float32)
    norm = v6.cudnnCreateLRNDescriptor()

    def infer(epsilon: Any) -> None:
        v6.cudnnBatchNormalizationForwardInference(
            handle, 1, 1.0, 0.0, d, x, d, x.copy(), s, one, one, one, one, epsilon
        )

    def respond(k: Any, beta: Any) -> None:
        v6.cudnnSetLRNDescriptor(norm, 5, 1e-4, beta, k)

    infer(kind(v6.CUDNN_BN_MIN_EPSILON))
    respond(kind(v6.CUDNN_LRN_MIN_K), kind(v6.CUDNN_LRN_MIN_BETA))
    for call in (
        lambda: infer(kind(0.99e-5)), lambda: infer(kind(float("nan"))), lambda: respond(kind(0.99e-5), 0.75),
        lambda: respond(2.0, kind(0.0099)),
    ):  # fmt: skip
        with pytest.raises(v6.CudnnError, match=r"v6\.range"):
            call()

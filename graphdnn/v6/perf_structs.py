"""The structs with fields that a caller reads: one result of the algorithm searches, for each of the three passes."""
# ruff: noqa: N801, N815  the names are NVIDIA's

from __future__ import annotations

from typing import NamedTuple

from graphdnn.v6.enums import (
    cudnnConvolutionBwdDataAlgo_t,
    cudnnConvolutionBwdFilterAlgo_t,
    cudnnConvolutionFwdAlgo_t,
    cudnnDeterminism_t,
    cudnnMathType_t,
    cudnnStatus_t,
)

_DEFAULT = cudnnMathType_t.CUDNN_DEFAULT_MATH
_DETERMINISTIC = cudnnDeterminism_t.CUDNN_DETERMINISTIC


class cudnnRuntimeTag_t:
    """A tag that the headers reserve: ``cudnnQueryRuntimeError`` gives None in its place."""


class cudnnConvolutionFwdAlgoPerf_t(NamedTuple):
    """``time`` in milliseconds, -1 where nothing ran; ``memory``: bytes of workspace. 5.1 had the first four.

    ``reason``, where the headers have reserved bytes: why the algorithm did not run, or which other one is the same
    plan here, and has the time of one measurement.
    """

    algo: cudnnConvolutionFwdAlgo_t
    status: cudnnStatus_t
    time: float
    memory: int
    determinism: cudnnDeterminism_t = _DETERMINISTIC
    mathType: cudnnMathType_t = _DEFAULT
    reason: str = ""


class cudnnConvolutionBwdDataAlgoPerf_t(NamedTuple):
    """As ``cudnnConvolutionFwdAlgoPerf_t``."""

    algo: cudnnConvolutionBwdDataAlgo_t
    status: cudnnStatus_t
    time: float
    memory: int
    determinism: cudnnDeterminism_t = _DETERMINISTIC
    mathType: cudnnMathType_t = _DEFAULT
    reason: str = ""


class cudnnConvolutionBwdFilterAlgoPerf_t(NamedTuple):
    """As ``cudnnConvolutionFwdAlgoPerf_t``."""

    algo: cudnnConvolutionBwdFilterAlgo_t
    status: cudnnStatus_t
    time: float
    memory: int
    determinism: cudnnDeterminism_t = _DETERMINISTIC
    mathType: cudnnMathType_t = _DEFAULT
    reason: str = ""

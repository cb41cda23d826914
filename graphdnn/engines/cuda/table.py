"""CUDA_ENGINES, in order of preference: the special ones before the general one of the same operations."""

from __future__ import annotations

from graphdnn.engines.cuda import (
    direct,
    direct_wgrad,
    implicit_gemm,
    matmul,
    movement,
    norm,
    norm_backward,
    pointwise,
    reduction,
    resample,
    resample_backward,
    rng,
    softmax,
    statistics,
)
from graphdnn.engines.engine import Engine

CUDA_ENGINES: tuple[Engine, ...] = (
    direct.ENGINE,
    direct_wgrad.ENGINE,
    implicit_gemm.ENGINE,
    matmul.ENGINE,
    pointwise.ENGINE,
    reduction.ENGINE,
    softmax.ENGINE,
    norm.ENGINE,
    norm_backward.ENGINE,
    statistics.GENSTATS,
    statistics.BN_FINALIZE,
    statistics.BN_WEIGHTS,
    resample.ENGINE,
    resample_backward.ENGINE,
    movement.ENGINE,
    rng.ENGINE,
)

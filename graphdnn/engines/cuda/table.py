"""CUDA_ENGINES, in order of preference: the special ones before the general one of the same operations."""

from __future__ import annotations

from graphdnn.engines.cuda import (
    direct,
    implicit_gemm,
    movement,
    norm,
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
    implicit_gemm.ENGINE,
    pointwise.ENGINE,
    reduction.ENGINE,
    softmax.ENGINE,
    norm.ENGINE,
    statistics.GENSTATS,
    statistics.BN_FINALIZE,
    statistics.BN_WEIGHTS,
    resample.ENGINE,
    resample_backward.ENGINE,
    movement.ENGINE,
    rng.ENGINE,
)

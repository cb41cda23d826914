"""CUDA_ENGINES, in order of preference: what INSTANT takes without a cost model comes first for each operation."""

from __future__ import annotations

from graphdnn.engines.cuda import (
    direct,
    direct_stem,
    direct_stem_dgrad,
    direct_stem_wgrad,
    direct_wgrad,
    implicit_gemm,
    matmul,
    matmul_cublas,
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
    view,
    winograd,
)
from graphdnn.engines.engine import Engine

CUDA_ENGINES: tuple[Engine, ...] = (
    direct.ENGINE,
    direct_wgrad.ENGINE,
    direct_stem.ENGINE,
    direct_stem_dgrad.ENGINE,
    direct_stem_wgrad.ENGINE,
    implicit_gemm.ENGINE,
    winograd.ENGINE,
    winograd.ENGINE_4X4,
    matmul_cublas.ENGINE,
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
    view.ENGINE,
    movement.ENGINE,
    rng.ENGINE,
)

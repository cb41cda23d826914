"""CUDA_ENGINES, in order of preference: the special ones before the general one of the same operations."""

from __future__ import annotations

from graphdnn.engines.cuda import direct, implicit_gemm, norm, pointwise, reduction, rng, statistics
from graphdnn.engines.engine import Engine

CUDA_ENGINES: tuple[Engine, ...] = (
    direct.ENGINE,
    implicit_gemm.ENGINE,
    pointwise.ENGINE,
    reduction.ENGINE,
    norm.ENGINE,
    statistics.GENSTATS,
    statistics.BN_FINALIZE,
    statistics.BN_WEIGHTS,
    rng.ENGINE,
)

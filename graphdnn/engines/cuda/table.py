"""CUDA_ENGINES, in order of preference: what INSTANT takes without a cost model comes first for each operation."""

from __future__ import annotations

from graphdnn.engines.cuda import ahead, apart, joined, paired, turned, widened
from graphdnn.engines.cuda.attention import hopper as hopper_attention
from graphdnn.engines.cuda.attention import mma as mma_attention
from graphdnn.engines.cuda.direct import depthwise, depthwise_wgrad, direct, grouped, grouped_wgrad
from graphdnn.engines.cuda.direct import stem as direct_stem
from graphdnn.engines.cuda.direct import stem_dgrad as direct_stem_dgrad
from graphdnn.engines.cuda.direct import stem_float as direct_stem_float
from graphdnn.engines.cuda.direct import stem_wgrad as direct_stem_wgrad
from graphdnn.engines.cuda.direct import wgrad as direct_wgrad
from graphdnn.engines.cuda.elementwise import movement, pointwise, rng, view
from graphdnn.engines.cuda.extensions import ctc, grid_sample, patches
from graphdnn.engines.cuda.hopper import across as hopper_across
from graphdnn.engines.cuda.hopper import gemm as hopper_gemm
from graphdnn.engines.cuda.hopper import halo as hopper_halo
from graphdnn.engines.cuda.hopper import halo_dgrad as hopper_halo_dgrad
from graphdnn.engines.cuda.hopper import halo_wgrad as hopper_halo_wgrad
from graphdnn.engines.cuda.hopper import held as hopper_held
from graphdnn.engines.cuda.hopper import matmul as hopper_matmul
from graphdnn.engines.cuda.hopper import planes as hopper_planes
from graphdnn.engines.cuda.hopper import planes_wgrad as hopper_planes_wgrad
from graphdnn.engines.cuda.library import explicit_gemm, fft
from graphdnn.engines.cuda.library import matmul as matmul_cublas
from graphdnn.engines.cuda.mma import few as matmul_few
from graphdnn.engines.cuda.mma import gemm as mma_gemm
from graphdnn.engines.cuda.normalization import backward as norm_backward
from graphdnn.engines.cuda.normalization import forward as norm
from graphdnn.engines.cuda.recurrent import backward as rnn_backward
from graphdnn.engines.cuda.recurrent import forward as rnn
from graphdnn.engines.cuda.recurrent import resident as rnn_resident
from graphdnn.engines.cuda.recurrent import resident_backward as rnn_resident_backward
from graphdnn.engines.cuda.recurrent import weights as rnn_weights
from graphdnn.engines.cuda.reductions import reduction, softmax, statistics
from graphdnn.engines.cuda.resampling import backward as resample_backward
from graphdnn.engines.cuda.resampling import forward as resample
from graphdnn.engines.cuda.resampling import windows as resample_windows
from graphdnn.engines.cuda.simt import implicit_gemm, matmul
from graphdnn.engines.cuda.winograd import winograd_2x2, winograd_4x4
from graphdnn.engines.engine import Engine

CUDA_ENGINES: tuple[Engine, ...] = (
    hopper_gemm.ENGINE,
    hopper_planes.INTEGERS,
    hopper_planes.FLOATS,
    hopper_planes_wgrad.ENGINE,
    hopper_gemm.ENGINE_TF32,
    hopper_across.ENGINE,
    hopper_planes_wgrad.ENGINE_TF32,
    hopper_planes_wgrad.INTEGERS,
    hopper_gemm.ENGINE_FP8,
    hopper_gemm.ENGINE_FP8_FAST,
    hopper_halo.ENGINE,
    hopper_halo.ENGINE_TF32,
    hopper_held.ENGINE,
    hopper_halo_wgrad.ENGINE,
    hopper_halo_dgrad.ENGINE,
    hopper_halo_dgrad.ENGINE_TF32,
    direct.ENGINE,
    depthwise.ENGINE,
    grouped.ENGINE,
    direct_wgrad.ENGINE,
    depthwise_wgrad.ENGINE,
    grouped_wgrad.ENGINE,
    direct_stem.ENGINE,
    direct_stem_float.ENGINE,
    direct_stem_dgrad.ENGINE,
    direct_stem_wgrad.ENGINE,
    mma_gemm.ENGINE,
    mma_gemm.ENGINE_TF32,
    widened.ENGINE,
    ahead.ENGINE,
    turned.ENGINE,
    joined.ENGINE,
    apart.ENGINE,
    apart.ENGINE_TF32,
    apart.ENGINE_FLOAT,
    paired.ENGINE,
    implicit_gemm.ENGINE,
    winograd_2x2.ENGINE,
    winograd_4x4.ENGINE,
    explicit_gemm.ENGINE,
    fft.TILING,
    fft.ENGINE,
    hopper_matmul.ENGINE,
    hopper_matmul.ENGINE_TF32,
    hopper_matmul.ENGINE_FP8,
    hopper_matmul.ENGINE_FP8_FAST,
    matmul_few.ENGINE,
    matmul_cublas.ENGINE,
    matmul.ENGINE,
    hopper_attention.ENGINE,
    mma_attention.ENGINE,
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
    resample_windows.ENGINE,
    view.ENGINE,
    movement.ENGINE,
    rng.ENGINE,
    grid_sample.ENGINE,
    grid_sample.BACKWARD,
    patches.ENGINE,
    ctc.ENGINE,
    rnn_resident.ENGINE,
    rnn.NARROW,
    rnn.ENGINE,
    rnn_resident_backward.ENGINE,
    rnn_backward.ENGINE,
    rnn_weights.NARROW,
    rnn_weights.ENGINE,
)

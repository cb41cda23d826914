"""CUDA_ENGINES, in order of preference: what INSTANT takes without a cost model comes first for each operation."""

from __future__ import annotations

from graphdnn.engines.cuda.attention import hopper_attention, mma_attention
from graphdnn.engines.cuda.cublas import explicit_gemm, matmul_cublas
from graphdnn.engines.cuda.data_movement import data_movement, view
from graphdnn.engines.cuda.direct import direct, direct_wgrad
from graphdnn.engines.cuda.direct.depthwise import depthwise, depthwise_wgrad
from graphdnn.engines.cuda.direct.grouped import grouped, grouped_wgrad
from graphdnn.engines.cuda.direct.stem import stem, stem_dgrad, stem_fp32, stem_wgrad
from graphdnn.engines.cuda.extensions import ctc_loss, grid_sample, im2col
from graphdnn.engines.cuda.fft import fft
from graphdnn.engines.cuda.norm import norm_backward, norm_forward
from graphdnn.engines.cuda.pointwise import pointwise
from graphdnn.engines.cuda.recurrent import (
    rnn_backward,
    rnn_forward,
    rnn_persistent,
    rnn_persistent_backward,
    rnn_weight_gradient,
)
from graphdnn.engines.cuda.reduction import reduction, statistics
from graphdnn.engines.cuda.resample import nested_averages, resample_backward, resample_forward
from graphdnn.engines.cuda.rewrites.table import REWRITE_ENGINES
from graphdnn.engines.cuda.rng import rng
from graphdnn.engines.cuda.simt import implicit_gemm, matmul_simt
from graphdnn.engines.cuda.sm80 import mma_gemm, mma_skinny
from graphdnn.engines.cuda.sm90.gemm import hopper_dgrad_tf32, hopper_gemm, hopper_matmul
from graphdnn.engines.cuda.sm90.halo import hopper_halo, hopper_halo_dgrad, hopper_halo_wgrad
from graphdnn.engines.cuda.sm90.split_precision import hopper_limbs, hopper_limbs_wgrad
from graphdnn.engines.cuda.sm90.weight_stationary import hopper_weight_stationary
from graphdnn.engines.cuda.softmax import softmax
from graphdnn.engines.cuda.winograd import winograd_2x2, winograd_4x4
from graphdnn.engines.engine import Engine

CUDA_ENGINES: tuple[Engine, ...] = (
    hopper_gemm.ENGINE,
    hopper_limbs.INTEGERS,
    hopper_limbs.FLOATS,
    hopper_limbs_wgrad.ENGINE,
    hopper_gemm.ENGINE_TF32,
    hopper_dgrad_tf32.ENGINE,
    hopper_limbs_wgrad.ENGINE_TF32,
    hopper_limbs_wgrad.INTEGERS,
    hopper_gemm.ENGINE_FP8,
    hopper_gemm.ENGINE_FP8_FAST,
    hopper_halo.ENGINE,
    hopper_halo.ENGINE_TF32,
    hopper_weight_stationary.ENGINE,
    hopper_halo_wgrad.ENGINE,
    hopper_halo_dgrad.ENGINE,
    hopper_halo_dgrad.ENGINE_TF32,
    direct.ENGINE,
    depthwise.ENGINE,
    grouped.ENGINE,
    direct_wgrad.ENGINE,
    depthwise_wgrad.ENGINE,
    grouped_wgrad.ENGINE,
    stem.ENGINE,
    stem_fp32.ENGINE,
    stem_dgrad.ENGINE,
    stem_wgrad.ENGINE,
    mma_gemm.ENGINE,
    mma_gemm.ENGINE_TF32,
    *REWRITE_ENGINES,
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
    mma_skinny.ENGINE,
    matmul_cublas.ENGINE,
    matmul_simt.ENGINE,
    hopper_attention.ENGINE,
    mma_attention.ENGINE,
    pointwise.ENGINE,
    reduction.ENGINE,
    softmax.ENGINE,
    norm_forward.ENGINE,
    norm_backward.ENGINE,
    statistics.GENSTATS,
    statistics.BN_FINALIZE,
    statistics.BN_WEIGHTS,
    resample_forward.ENGINE,
    resample_backward.ENGINE,
    nested_averages.ENGINE,
    view.ENGINE,
    data_movement.ENGINE,
    rng.ENGINE,
    grid_sample.ENGINE,
    grid_sample.BACKWARD,
    im2col.ENGINE,
    ctc_loss.ENGINE,
    rnn_persistent.ENGINE,
    rnn_forward.NARROW,
    rnn_forward.ENGINE,
    rnn_persistent_backward.ENGINE,
    rnn_backward.ENGINE,
    rnn_weight_gradient.NARROW,
    rnn_weight_gradient.ENGINE,
)

"""Stated errors of sums on the emulator, whose tensor cores cut as the device's do."""

from __future__ import annotations

import pytest
from emulator import MISSING
from random_problems.execution_targets import Emulated
from worst_case_sums import WITHIN_BOUNDS, WITHOUT_NUMBERS, Sum, check_bound, check_places, positive

from graphdnn.engines import ENGINE_BY_NAME, ENGINES, Engine
from graphdnn.engines.cuda.attention import hopper_attention, mma_attention
from graphdnn.engines.cuda.direct.grouped import grouped, grouped_wgrad
from graphdnn.engines.cuda.direct.stem import stem_fp32
from graphdnn.engines.cuda.simt import implicit_gemm
from graphdnn.engines.cuda.sm80 import mma_gemm, mma_skinny
from graphdnn.engines.cuda.sm90 import wgmma_text
from graphdnn.engines.cuda.sm90.gemm import hopper_dgrad_tf32, hopper_gemm, hopper_matmul
from graphdnn.engines.cuda.sm90.halo import hopper_halo, hopper_halo_dgrad, hopper_halo_wgrad
from graphdnn.engines.cuda.sm90.split_precision import hopper_limbs, hopper_limbs_wgrad
from graphdnn.engines.cuda.sm90.weight_stationary import hopper_weight_stationary
from graphdnn.engines.cuda.winograd import winograd_2x2, winograd_4x4
from graphdnn.engines.sum_error import SumError
from graphdnn.enums import KnobType

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)
_LENGTH = 320  # several steps of every engine, and several of a sum that begins anew

CASES: tuple[tuple[Engine, Sum], ...] = (
    (hopper_gemm.ENGINE, Sum("f16", _LENGTH)),
    (hopper_gemm.ENGINE, Sum("bf16", _LENGTH)),
    (hopper_gemm.ENGINE_TF32, Sum("f32", _LENGTH)),
    (hopper_gemm.ENGINE_FP8, Sum("e4m3", _LENGTH)),
    (hopper_gemm.ENGINE_FP8, Sum("e5m2", _LENGTH)),
    (hopper_gemm.ENGINE_FP8_FAST, Sum("e4m3", _LENGTH, fast=True)),
    (hopper_limbs.FLOATS, Sum("f32", _LENGTH)),
    (hopper_gemm.ENGINE, Sum("f16", _LENGTH, is_wgrad=True)),
    (hopper_halo_wgrad.ENGINE, Sum("bf16", _LENGTH, is_wgrad=True, taps=3)),
    (hopper_limbs_wgrad.ENGINE, Sum("f32", _LENGTH, is_wgrad=True)),
    (hopper_limbs_wgrad.ENGINE_TF32, Sum("f32", _LENGTH, is_wgrad=True)),
    (hopper_halo.ENGINE, Sum("f16", _LENGTH, taps=3)),
    (hopper_halo.ENGINE_TF32, Sum("f32", _LENGTH, taps=3)),
    (hopper_weight_stationary.ENGINE, Sum("f16", _LENGTH, longest=1024)),
    (hopper_weight_stationary.ENGINE, Sum("bf16", _LENGTH, longest=1024)),
    (hopper_dgrad_tf32.ENGINE, Sum("f32", _LENGTH, spread=1)),
    (hopper_halo_dgrad.ENGINE, Sum("f16", _LENGTH, taps=3, spread=2)),
    (hopper_halo_dgrad.ENGINE_TF32, Sum("f32", _LENGTH // 2, taps=3, spread=2)),
    (hopper_matmul.ENGINE, Sum("bf16", _LENGTH, is_matmul=True)),
    (hopper_matmul.ENGINE_TF32, Sum("f32", _LENGTH, is_matmul=True)),
    (hopper_matmul.ENGINE_FP8, Sum("e5m2", _LENGTH, is_matmul=True)),
    (hopper_matmul.ENGINE_FP8_FAST, Sum("e4m3", _LENGTH, is_matmul=True, fast=True)),
    (mma_gemm.ENGINE, Sum("f16", _LENGTH)),
    (mma_skinny.ENGINE, Sum("f16", _LENGTH, is_matmul=True, results=1)),
    (grouped.ENGINE, Sum("f16", 64, taps=3, groups=2, longest=64)),
    (grouped_wgrad.ENGINE, Sum("f16", _LENGTH, is_wgrad=True, taps=3, groups=2)),
    (mma_gemm.ENGINE_TF32, Sum("f32", _LENGTH)),
    (ENGINE_BY_NAME["cuda_fp8_upcast"], Sum("e4m3", _LENGTH)),
    (ENGINE_BY_NAME["cuda_materialized_prologue"], Sum("f16", _LENGTH, behind=True)),
    (ENGINE_BY_NAME["cuda_layout_transform"], Sum("f16", _LENGTH, layout="")),
    (ENGINE_BY_NAME["cuda_space_to_depth"], Sum("f16", _LENGTH, windows=True)),
    (ENGINE_BY_NAME["cuda_space_to_depth_tf32"], Sum("f32", _LENGTH, windows=True)),
    (ENGINE_BY_NAME["cuda_space_to_depth_bf16x3"], Sum("f32", _LENGTH, windows=True)),
    (implicit_gemm.ENGINE, Sum("f32", _LENGTH)),
    (stem_fp32.ENGINE, Sum("f32", _LENGTH, windows=True)),
    (winograd_2x2.ENGINE, Sum("f32", _LENGTH, taps=3)),
    (winograd_4x4.ENGINE, Sum("f32", _LENGTH, taps=3)),
)
_NAMES = [f"{engine.name}-{problem}" for engine, problem in CASES]


@pytest.mark.parametrize(("engine", "problem"), CASES, ids=_NAMES)
def test_bounds(engine: Engine, problem: Sum) -> None:
    found = [check_bound(problem, Emulated(), engine, how) for how in WITHIN_BOUNDS]
    assert not any(found), "\n".join(filter(None, found))


@pytest.mark.parametrize(("engine", "problem"), CASES, ids=_NAMES)
def test_what_is_no_number(engine: Engine, problem: Sum) -> None:
    """In the places where NumPy has it; engines that transform operands state that they spread it."""
    assert engine.sum_error is not None
    if engine.sum_error.spreads:
        assert not engine.is_general
        return
    found = [check_places(problem, Emulated(), engine, how) for how in WITHOUT_NUMBERS]
    assert not any(found), "\n".join(filter(None, found))


def test_sums_of_fp8_are_bounded_because_they_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulator's tensor cores keep as few digits as the device's."""
    problem = Sum("e4m3", 4096)
    whole = {KnobType.SPLIT_K: 1}
    assert check_bound(problem, Emulated(), hopper_gemm.ENGINE_FP8, positive, whole) == ""
    monkeypatch.setattr(wgmma_text, "_PROMOTION_INTERVAL", 0)
    assert "positive" in check_bound(problem.of(4096), Emulated(), hopper_gemm.ENGINE_FP8, positive, whole)


def test_every_stated_bound_is_tested() -> None:
    """Those of attention with their results, in test_cuda_attention."""
    stated = {e.name for e in ENGINES if e.sum_error is not None}
    assert stated == {engine.name for engine, _ in CASES} | {
        e.name for e in (mma_attention.ENGINE, hopper_attention.ENGINE)
    }


def test_units() -> None:
    assert SumError(2, 3).units(10) == 32
    assert SumError(2, 3, restart=128).units(64) == 2 + 3 * 64 + 0.5
    assert SumError(2, 3, restart=128).units(1280) == 2 + 3 * 128 + 10
    assert str(SumError(1, 1)) == "(1 + n) 2^-24 sum abs(x w)"
    assert str(SumError(4, 1, restart=128)) == "(132 + n / 128) 2^-24 sum abs(x w)"
    assert str(SumError(90, 2, of_largest=True)) == "(90 + 2 n) 2^-24 n max(abs x) max(abs w)"

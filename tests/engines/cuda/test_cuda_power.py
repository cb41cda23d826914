"""Powers of packs (codegen/include/power.cuh) on the emulator against the host: mild exponents, all others, and both in one pack."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_comparison import ARCHITECTURES, compiler, compiles_cleanly, run_both
from emulator import MISSING
from problems import tensor

from graphdnn.dtypes import Array
from graphdnn.engines.cuda.pointwise import pointwise
from graphdnn.enums import PointwiseMode
from graphdnn.operations import PointwiseOperation, PointwiseSpec

COUNT = 4096
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -2.0, 3.0, -3.0, np.inf, -np.inf, np.nan, 1e-42, -1e-42, 3e38, -3e38)


def power(kind: str = "f32", *, scalar: bool = False) -> PointwiseOperation:
    x, y = tensor(1, (COUNT,), kind), tensor(3, (COUNT,), kind)
    b = tensor(2, (1,), "f32") if scalar else tensor(2, (COUNT,), kind)
    return PointwiseOperation(spec=PointwiseSpec(mode=PointwiseMode.POW, math_type="f32"), x=x, b=b, y=y)


def assert_powers(x: Array, b: Array, op: PointwiseOperation) -> None:
    got, expected = run_both(op, pointwise.ENGINE, {1: x, 2: b})
    np.testing.assert_allclose(got[3], expected[3], rtol=6 * 2.0**-23, atol=0)


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_powers_are_the_host_s() -> None:
    rng = np.random.default_rng(0)
    op = power()
    mild = rng.uniform(0.5, 2, COUNT), rng.uniform(-2, 2, COUNT)
    assert_powers(mild[0].astype(np.float32), mild[1].astype(np.float32), op)
    wild = rng.choice(SPECIAL, COUNT), rng.choice(SPECIAL, COUNT)
    assert_powers(wild[0].astype(np.float32), wild[1].astype(np.float32), op)
    for share in (0.05, 0.5):
        x, b = (np.where(rng.random(COUNT) < share, w, m).astype(np.float32) for m, w in zip(mild, wild, strict=True))
        assert_powers(x, b, op)


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_one_exponent_for_all() -> None:
    x = np.random.default_rng(1).choice([*SPECIAL, 1.25, 1.5, 0.75], COUNT).astype(np.float32)
    for exponent in (-0.75, 0.0, 2.0, 2.5, 3.0, np.inf, np.nan):
        assert_powers(x, np.full(1, exponent, np.float32), power(scalar=True))


@compiler
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("kind", ["f16", "f32"])
def test_text_compiles_without_spills(kind: str, arch: str) -> None:
    compiles_cleanly(power(kind), pointwise.ENGINE, arch, registers=96)

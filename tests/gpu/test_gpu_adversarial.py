"""Stated errors of sums on the device: what its tensor cores cut, keep of subnormal numbers, and make of infinities."""

from __future__ import annotations

import numpy as np
import pytest
from random_problems.execution_targets import Cuda
from test_worst_case_sums import CASES
from worst_case_sums import WITHIN_BOUNDS, WITHOUT_NUMBERS, Sum, Sums, check_bound, check_places, normal, positive

from graphdnn.device_selection import device_spec
from graphdnn.dtypes import Array
from graphdnn.engines import Engine, Task
from graphdnn.engines.cuda.simt import implicit_gemm
from graphdnn.engines.cuda.sm90.split_precision import hopper_limbs
from graphdnn.enums import KnobType

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]  # warnings of other libraries are theirs
LONG = (1024, 4608, 65536)

_NAMES = [f"{engine.name}-{problem}" for engine, problem in CASES]


def _skip_unless_served(engine: Engine, problem: Sum) -> None:
    reasons = engine.why_not(Task(problem.op, device_spec("cuda")))
    if reasons:
        pytest.skip(str(reasons[0]))


@pytest.mark.parametrize(("engine", "problem"), CASES, ids=_NAMES)
def test_bounds(engine: Engine, problem: Sum) -> None:
    _skip_unless_served(engine, problem)
    found = [check_bound(problem, Cuda(), engine, how) for how in WITHIN_BOUNDS]
    assert not any(found), "\n".join(filter(None, found))


@pytest.mark.parametrize("n", LONG)
@pytest.mark.parametrize(("engine", "problem"), CASES, ids=_NAMES)
def test_long_sums(engine: Engine, problem: Sum, n: int) -> None:
    if n > problem.longest:
        pytest.skip("no filter is that large, or it would take a gigabyte and show nothing more")
    _skip_unless_served(engine, problem)
    found = [check_bound(problem.of(n), Cuda(), engine, how) for how in WITHIN_BOUNDS]
    assert not any(found), "\n".join(filter(None, found))


@pytest.mark.parametrize(("engine", "problem"), CASES, ids=_NAMES)
def test_what_is_no_number(engine: Engine, problem: Sum) -> None:
    _skip_unless_served(engine, problem)
    if engine.sum_error is None or engine.sum_error.spreads:
        pytest.skip("it states that it spreads them")
    found = [check_places(problem, Cuda(), engine, how) for how in WITHOUT_NUMBERS]
    assert not any(found), "\n".join(filter(None, found))


def _errors(engine: Engine, problem: Sum, sums: Sums) -> tuple[float, float]:
    """The largest, and the root of the mean square."""
    got = problem.run(Cuda(), engine, sums, {KnobType.SPLIT_K: 1})
    error: Array = np.abs(got - sums.x @ sums.w.T)
    return float(error.max()), float(np.sqrt(np.mean(error**2)))


@pytest.mark.parametrize("n", [320, *LONG])
@pytest.mark.parametrize("how", [normal, positive])
def test_parts_of_fp32_are_no_worse_than_fp32(how: object, n: int) -> None:
    """On tensor cores in three parts, and on the ordinary units, against sums in float64; all in one piece."""
    problem = Sum("f32", n)
    _skip_unless_served(hopper_limbs.FLOATS, problem)
    sums = problem.draw(how)  # type: ignore[arg-type]
    in_parts, plain = (_errors(engine, problem, sums) for engine in (hopper_limbs.FLOATS, implicit_gemm.ENGINE))
    assert in_parts[0] <= plain[0], (in_parts, plain)
    assert in_parts[1] <= plain[1], (in_parts, plain)

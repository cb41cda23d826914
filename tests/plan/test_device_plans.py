"""Whole device plans without a GPU: drawn problems (tests/drawn) on host memory, their kernels in the emulator.

The same cases run on a GPU with `make test-gpu`; here they are small and few, because each kernel is compiled by
g++. A case is named family:seed:small, and `python tests/gpu/run.py --emulated --case ...` repeats it.
"""

from __future__ import annotations

import numpy as np
import pytest
from conftest import PROBLEMS
from cuda_comparison import emulated
from problems import tensor
from random_problems import report
from random_problems.attempt import attempt
from random_problems.execution_targets import Emulated
from random_problems.families import FAMILIES, Case, cases, draw
from random_problems.memory_images import Image
from random_problems.run_and_compare import Prepared, check

from graphdnn.enums import DataType
from graphdnn.heuristics import Ranking

FEW, MANY = 6, 40
PLACE = Emulated()


def run(family: str, seeds: range, *, broad: int, large: bool) -> None:
    attempts = [attempt(Case(family, seed, large), PLACE, broad=broad, knob_settings=1) for seed in seeds]
    PROBLEMS["device plans in the emulator"] += sum(bool(a.runs) for a in attempts)
    failed = [a for a in attempts if a.failures]
    assert not failed, report.failures(failed)
    if not any(a.runs for a in attempts):
        pytest.skip(f"no engine of the device serves {family}")


@emulated
@pytest.mark.parametrize("family", FAMILIES)
def test_agrees_with_numpy(family: str) -> None:
    run(family, range(FEW), broad=FEW, large=False)


@emulated
@pytest.mark.long
@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_agrees_with_numpy_on_every_engine(family: str, large: bool) -> None:
    run(family, range(1000, 1000 + MANY), broad=2, large=large)


# What the suite itself relies on.


def test_a_case_is_the_same_problem_every_time() -> None:
    for case in cases(40, large=True) + cases(40, large=False):
        first, second = draw(Case.of(str(case))), draw(case)
        assert first.graph.key == second.graph.key
        for uid, value in first.values.items():
            a, b = np.asarray(value), np.asarray(second.values[uid])
            assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("family", FAMILIES)
def test_every_drawn_problem_is_legal(family: str) -> None:
    kinds = set()
    for seed in range(40):
        problem = draw(Case(family, seed, large=seed % 2 == 0))
        assert problem.graph.outputs
        kinds.update(problem.covers)
    assert kinds


class _Wrong:
    """The emulator's place with a result spoiled afterwards."""

    def __init__(self, where: str) -> None:
        self.device, self.plan, self._where = PLACE.device, PLACE.plan, where

    def run(self, plan, images, scalars, poison, form):  # type: ignore[no-untyped-def]
        found = PLACE.run(plan, images, scalars, poison, form)
        image = next(i for i in images.values() if i.spec.uid == 3)
        if self._where == "element":
            image.array[0, 0] += 1
        elif self._where == "behind":
            image.bytes[-1] ^= 1
        elif self._where == "unwritten":
            image.array.view(np.uint8)[0, :4] = poison
        elif self._where == "input":
            next(iter(images.values())).array[0, 0] += 1
        return found


@emulated
@pytest.mark.parametrize("where", ["element", "behind", "unwritten", "input"])
def test_what_is_wrong_is_found(where: str) -> None:
    """A harness that cannot fail proves nothing."""
    from random_problems.graph_sketch import Problem

    from graphdnn.enums import PointwiseMode
    from graphdnn.operations import PointwiseOperation, PointwiseSpec

    x, b, y = (tensor(uid, (4, 8), "i32") for uid in (1, 2, 3))
    op = PointwiseOperation(spec=PointwiseSpec(mode=PointwiseMode.ADD, math_type="i32"), x=x, b=b, y=y)
    values = {1: np.arange(32).reshape(4, 8), 2: np.ones((4, 8), np.int32)}
    prepared = Prepared.of(Problem((op,), values, exact=True))
    plan = PLACE.plan(Ranking(prepared.fused, PLACE.device).best)
    assert check(prepared, plan, PLACE) == []
    assert check(prepared, plan, _Wrong(where)) != []


@pytest.mark.parametrize("kind", [DataType.BOOLEAN, DataType.FLOAT, DataType.INT8])
def test_elements_of_an_image_cover_what_store_writes(kind: DataType) -> None:
    spec = tensor(1, (3, 5), kind, "gaps")
    image = Image(spec, np.ones((3, 5)), 0, 16)
    other = Image(spec, np.zeros((3, 5)), 0xFF, 16)
    changed = image.bytes ^ other.bytes ^ 0xFF  # ones where both were written, or hold what they differ in
    assert not (image.bytes & ~image.elements()).any()
    assert not ((other.bytes ^ 0xFF) & ~other.elements()).any()
    assert changed.shape == image.elements().shape


@emulated
def test_an_image_that_the_end_reads_once_more() -> None:
    """What is added is made of the image itself, whose pixels lie in no row, where the result's do."""
    run("graph", range(12, 13), broad=1, large=True)

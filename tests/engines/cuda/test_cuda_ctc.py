"""The CTC loss on the emulator against NumPy, and its text through NVRTC."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_comparison import ARCHITECTURES, compiler, compiles_cleanly, emulated, run_both
from problems import tensor

from graphdnn.engines.cuda.extensions.ctc_loss import ENGINE
from graphdnn.operations import CtcLoss

RNG = np.random.default_rng(8)


def loss(
    steps: int, batch: int, classes: int, longest: int, kind: str = "f32", layout: str = "packed", *,
    gradients: bool = True, arithmetic: str = "f32",
) -> CtcLoss:  # fmt: skip
    probs = (steps, batch, classes)
    return CtcLoss(
        probs=tensor(1, probs, kind, layout), labels=tensor(2, (batch, longest), "i32", layout),
        label_lengths=tensor(3, (batch,), "i32"), input_lengths=tensor(4, (batch,), "i32"),
        costs=tensor(5, (batch,), kind), gradients=tensor(6, probs, kind, layout) if gradients else None,
        arithmetic=arithmetic,
    )  # fmt: skip


def values(op: CtcLoss) -> dict[int, Any]:
    steps, batch, classes = op.probs.extents
    longest = op.labels.extents[1]
    labels = RNG.integers(1, min(classes, 4), (batch, longest))  # classes that come again
    probs = RNG.dirichlet(np.ones(classes), (steps, batch))
    return {1: probs, 2: labels, 3: RNG.integers(0, longest, batch, endpoint=True),
            4: RNG.integers(steps // 2, steps, batch, endpoint=True)}  # fmt: skip


def agrees(op: CtcLoss, given: dict[int, Any], bound: float) -> None:
    here, there = run_both(op, ENGINE, given)
    for uid, wanted in there.items():
        np.testing.assert_allclose(here[uid].astype(np.float64), wanted.astype(np.float64), rtol=bound, atol=bound)


@emulated
@pytest.mark.parametrize(
    ("kind", "arithmetic", "layout", "bound"),
    [("f32", "f32", "packed", 2e-5), ("f64", "f64", "rotated", 1e-11), ("f16", "f32", "gaps", 4e-3)],
)
def test_losses(kind: str, arithmetic: str, layout: str, bound: float) -> None:
    op = loss(9, 5, 6, 3, kind, layout, arithmetic=arithmetic)
    agrees(op, values(op), bound)


@emulated
def test_costs_alone() -> None:
    op = loss(7, 3, 5, 4, gradients=False)
    agrees(op, values(op), 2e-5)


@emulated
def test_labels_of_every_length() -> None:
    """None at all, longer than the sequence, out of range; sequences of no steps; impossible classes, blanks, NaN."""
    op = loss(6, 10, 4, 70)
    given = values(op)
    given[2][3] = 2
    given[2][5, :2] = [0, 7]
    given[3][:] = [0, 1, 70, 3, 99, 2, 6, 2, -1, 2]
    given[4][:] = [6, 0, 6, 6, 99, 5, 6, -2, 0, 6]
    given[1][2:4, 6] = [0, 0.5, 0.5, 0]
    given[1][3, 9] = np.nan
    agrees(op, given, 2e-5)


@emulated
def test_rows_that_shared_memory_does_not_hold() -> None:
    op = loss(3, 2, 3, 1300)
    given = values(op)
    given[3][:] = 1
    agrees(op, given, 2e-5)


@compiler
@pytest.mark.long
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_text_compiles(arch: str) -> None:
    compiles_cleanly(loss(9, 5, 6, 3), ENGINE, arch)
    compiles_cleanly(loss(9, 5, 6, 300, "f64", arithmetic="f64"), ENGINE, arch)

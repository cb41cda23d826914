"""Engine ``cuda_resample_windows``: gradients of local response normalization on the host against NumPy, and through NVRTC."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_comparison import compiler, compiles_cleanly, device_kernel, emulated, fused, run_both
from emulator.kernels import tolerance
from problems import scalar, tensor

from graphdnn import OperationGraph, fuse
from graphdnn.engines.cuda.resample.nested_averages import ENGINE
from graphdnn.enums import PaddingMode, ReductionOperator, ResampleMode
from graphdnn.enums import PointwiseMode as P
from graphdnn.fusion.patterns.lrn_gradient import window_chains
from graphdnn.operations import (
    Operation,
    PointwiseOperation,
    PointwiseSpec,
    Reduction,
    ReductionSpec,
    ResampleForward,
    ResampleSpec,
)
from graphdnn.tensors import TensorSpec, ordered_strides

Extents = tuple[int, ...]


def averages(window: int, back: int, rank: int, math: str, **fields: Any) -> ResampleSpec:
    rest = (0,) * (rank - 3)
    given: dict[str, Any] = {
        "mode": ResampleMode.AVGPOOL_INCLUDE_PADDING, "compute_type": math, "spatial_dims": rank - 2,
        "padding_mode": PaddingMode.ZERO_PAD, "strides": (1,) * (rank - 2), "pre_paddings": (back, *rest),
        "post_paddings": (window - 1 - back, *rest), "window_dims": (window, *(1 for _ in rest)),
    }  # fmt: skip
    return ResampleSpec(**{**given, **fields})


def image(uid: int, dims: Extents, kind: str, layout: str) -> TensorSpec:
    """``channels_last``: the third axis is contiguous."""
    if layout != "channels_last":
        return tensor(uid, dims, kind, layout)
    order = (*(axis for axis in range(len(dims)) if axis != 2), 2)
    return TensorSpec(uid=uid, data_type=kind, dims=dims, strides=ordered_strides(dims, order))


def gradient(
    dims: Extents, kind: str = "f32", layout: str = "packed", *, window: int = 5, back: int = 2, math: str = "f32",
    blended: bool = False, kept: bool = False, other: ResampleSpec | None = None,
) -> list[Operation]:  # fmt: skip
    """dx of y, dy and x: the third axis is the channels. ``blended``: beta * old; ``kept``: the sum is a result too."""
    y, dy, x, dx, old = (image(uid, dims, kind, layout) for uid in (1, 2, 3, 4, 5))
    rank = len(dims)

    def virtual(uid: int) -> TensorSpec:
        return tensor(uid, dims, math, is_virtual=True)

    def step(mode: P, a: TensorSpec, b: TensorSpec, y: TensorSpec, *factors: float) -> Operation:
        spec = PointwiseSpec(mode=mode, math_type=math)
        return PointwiseOperation(spec=spec, x=a, b=b, y=y, **dict(zip(("alpha1", "alpha2"), factors, strict=False)))

    base = image(22, dims, math, layout) if kept else virtual(22)
    end = virtual(30) if blended else dx
    operations: list[Operation] = [
        step(P.MUL, x, x, virtual(20)),
        ResampleForward(x=virtual(20), y=virtual(21), spec=averages(window, back, rank, math)),
        step(P.ADD, virtual(21), scalar(10, rank), base, 0.5),
        step(P.POW, base, scalar(11, rank), virtual(23)),
        step(P.MUL, dy, virtual(23), virtual(24)),
        step(P.MUL, dy, y, virtual(25)),
        step(P.DIV, virtual(25), base, virtual(26)),
        ResampleForward(x=virtual(26), y=virtual(27), spec=other or averages(window, window - 1 - back, rank, math)),
        step(P.MUL, x, virtual(27), virtual(28)),
        step(P.SUB, virtual(24), virtual(28), end, 1.0, 0.75),
    ]
    return [*operations, step(P.ADD, virtual(30), old, dx, 1.0, 0.5)] if blended else operations


def values(dims: Extents) -> dict[int, Any]:
    rng = np.random.default_rng(0)
    return {**{uid: rng.standard_normal(dims) for uid in (1, 2, 3, 5)}, 10: 1.5, 11: -0.75}


CASES: dict[str, tuple[Extents, str, str, dict[str, Any]]] = {
    "channels first": ((2, 1, 24, 5, 8), "f16", "packed", {}),
    "channels first, blended": ((2, 1, 21, 35), "f32", "packed", {"blended": True, "kept": True}),
    "channels last": ((2, 1, 24, 5, 3), "f16", "channels_last", {"blended": True}),
    "odd channels last": ((2, 1, 13, 6), "bf16", "channels_last", {"window": 4, "back": 1}),
    "many channels": ((1, 1, 301, 9), "f32", "packed", {"window": 7, "back": 3}),
    "many channels last": ((2, 1, 1200, 3), "f16", "channels_last", {"window": 16, "back": 7}),
    "few channels": ((2, 1, 3, 50), "f32", "packed", {"window": 9, "back": 4}),
    "double": ((2, 1, 140, 9), "f64", "packed", {"math": "f64"}),
    "gaps": ((2, 1, 12, 4, 3), "f32", "gaps", {}),
}  # fmt: skip


@emulated
@pytest.mark.parametrize("case", CASES)
def test_gradients(case: str) -> None:
    dims, kind, layout, fields = CASES[case]
    operations = gradient(dims, kind, layout, **fields)
    assert fused(operations).rule == "windows"
    here, there = run_both(operations, ENGINE, values(dims))
    for spec in fused(operations).outputs:
        bound = 8 * tolerance(spec, fields.get("window", 5))
        wanted = there[spec.uid].astype(np.float64)
        np.testing.assert_allclose(here[spec.uid].astype(np.float64), wanted, rtol=bound, atol=bound, err_msg=case)


def test_what_is_not_such_a_chain_stays_apart() -> None:
    dims = (2, 1, 12, 7)
    for other in (
        averages(3, 1, 4, "f32"),
        averages(5, 2, 4, "f32", padding_mode=PaddingMode.EDGE_VAL_PAD),
        averages(5, 2, 4, "f32", mode=ResampleMode.AVGPOOL_EXCLUDE_PADDING),
    ):
        graph = fuse(OperationGraph.of(gradient(dims, other=other)))
        assert "windows" not in {op.rule for op in graph}
        assert len(graph) > 1


@pytest.mark.parametrize(
    ("steps", "both", "chains"), [(1, False, 1), (1, True, 0), (32, False, 1), (33, False, 0)], ids=str
)
def test_one_average_before_and_few_steps_between(steps: int, both: bool, chains: int) -> None:
    """``both``: the second average reads a product of two; ``steps`` are pointwise."""
    dims = (2, 1, 12, 7)

    def virtual(uid: int) -> TensorSpec:
        return tensor(uid, dims, "f32", is_virtual=True)

    def average(x: TensorSpec, y: TensorSpec) -> Operation:
        return ResampleForward(x=x, y=y, spec=averages(5, 2, 4, "f32"))

    product = PointwiseSpec(mode=P.MUL, math_type="f32")
    beside = virtual(11) if both else tensor(3, dims)
    operations = [average(tensor(1, dims), virtual(10)), *([average(tensor(2, dims), beside)] if both else ())]
    for i in range(steps):
        x = virtual(20 + i) if i else virtual(10)
        operations.append(PointwiseOperation(spec=product, x=x, b=beside, y=virtual(21 + i)))
    graph = OperationGraph.of([*operations, average(virtual(20 + steps), tensor(4, dims))])
    assert len(list(window_chains(graph))) == chains


def test_an_image_that_waits_for_the_first_average_makes_no_circle() -> None:
    """The product of dy and y reads what another kernel makes of the first average."""
    operations = gradient((2, 1, 12, 7), kept=True)
    base, sums = tensor(22, (2, 1, 12, 7), "f32"), tensor(40, (2, 1, 1, 7), "f32", is_virtual=True)
    operations.insert(
        3, Reduction(x=base, y=sums, spec=ReductionSpec(operator=ReductionOperator.ADD, compute_type="f32"))
    )
    product = next(i for i, step in enumerate(operations) if step.outputs()["y"].uid == 25)
    was = operations[product]
    assert isinstance(was, PointwiseOperation)
    operations[product] = was.model_copy(update={"b": sums})
    graph = fuse(OperationGraph.of(operations))
    assert "windows" not in {op.rule for op in graph}


def test_one_launch_reads_each_operand_once() -> None:
    for dims, layout in (((64, 1, 128, 3136), "packed"), ((64, 1, 128, 3136), "channels_last")):
        operations = gradient(dims, "f16", layout)
        kernel = device_kernel(operations, ENGINE)
        assert len(kernel.steps) == 1
        assert kernel.workspace_bytes == 0


@compiler
@pytest.mark.parametrize(
    ("kind", "layout", "arch"),
    [
        ("f16", "channels_last", "sm_90a"),
        ("f16", "packed", "sm_80"),
        ("f32", "packed", "sm_90a"),
        ("f64", "packed", "sm_89"),
    ],
)
def test_compiles_without_spills(kind: str, layout: str, arch: str) -> None:
    operations = gradient((64, 1, 128, 3136), kind, layout, math="f64" if kind == "f64" else "f32")
    compiles_cleanly(operations, ENGINE, arch, registers=128)

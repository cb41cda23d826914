"""CUDA softmax: kernels run on the host against the general NumPy engine, and compiled for every architecture."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cuda_comparison import ARCHITECTURES, compiler, compiles_cleanly, device_kernel, emulated, fused, run_both
from emulator.kernels import tolerance
from problems import LAYOUTS, scalar, tensor, values_of

from graphdnn.device.profiles import DeviceSpec, device_spec
from graphdnn.engines import Task
from graphdnn.engines.cuda.codegen.launch import DeviceKernel
from graphdnn.engines.cuda.softmax import softmax as softmax_engine
from graphdnn.engines.cuda.softmax import softmax_split
from graphdnn.engines.cuda.softmax.softmax import ENGINE
from graphdnn.enums import PointwiseMode as P
from graphdnn.enums import ReductionOperator as R
from graphdnn.operations import Operation, PointwiseOperation, PointwiseSpec, Reduction, ReductionSpec
from graphdnn.tensors import TensorSpec

Extents = tuple[int, ...]


def pointwise(mode: P, x: TensorSpec, b: TensorSpec | None, y: TensorSpec, math: str = "f32") -> Operation:
    return PointwiseOperation(spec=PointwiseSpec(mode=mode, math_type=math), x=x, b=b, y=y)


def softmax(
    dims: Extents,
    axes: Extents,
    kind: str = "f32",
    layout: str = "packed",
    *,
    logarithm: bool = False,
    maximum: bool = True,
    inside: str = "f32",
    math: str = "f32",
    saved: bool = False,
    scaled: bool = False,
    residual: bool = False,
) -> list[Operation]:
    """``inside``: type of the virtual tensors. ``saved``: maximum and sum are results too."""
    row = tuple(1 if a in axes else extent for a, extent in enumerate(dims))

    def virtual(uid: int, extents: Extents = dims) -> TensorSpec:
        return tensor(uid, extents, inside, is_virtual=True)

    def of_rows(uid: int) -> TensorSpec:
        return tensor(uid, row, inside, layout) if saved else virtual(uid, row)

    def step(mode: P, x: TensorSpec, b: TensorSpec | None, y: TensorSpec) -> Operation:
        return pointwise(mode, x, b, y, math)

    def reduce(operator: R, x: TensorSpec, y: TensorSpec) -> Operation:
        return Reduction(x=x, y=y, spec=ReductionSpec(operator=operator, compute_type=math))

    operations: list[Operation] = []
    x, y = tensor(1, dims, kind, layout), tensor(2, dims, kind, layout)
    if scaled:
        operations.append(step(P.MUL, x, scalar(3, len(dims)), virtual(20)))
        x = virtual(20)
    exponent, end = x, y
    if maximum:
        operations += [reduce(R.MAX, x, of_rows(21)), step(P.SUB, x, of_rows(21), virtual(22))]
        exponent = virtual(22)
    if residual:
        end = virtual(26)
    operations += [step(P.EXP, exponent, None, virtual(23)), reduce(R.ADD, virtual(23), of_rows(24))]
    if logarithm:
        operations += [step(P.LOG, of_rows(24), None, virtual(25, row)), step(P.SUB, exponent, virtual(25, row), end)]
    else:
        operations += [step(P.DIV, virtual(23), of_rows(24), end)]
    if residual:
        operations.append(step(P.ADD, end, tensor(4, dims, kind), y))
    return operations


def values(operations: list[Operation], seed: int = 0, scale: float = 2.0) -> dict[int, Any]:
    rng = np.random.default_rng(seed)
    inputs = fused(operations).inputs
    return {t.uid: (values_of(t, rng).astype(np.float64) * scale).astype(values_of(t, rng).dtype) for t in inputs}


def assert_close(operations: list[Operation], given: dict[int, Any], device: DeviceSpec | None = None) -> None:
    here, there = run_both(operations, ENGINE, given, device=device)
    outputs = {t.uid: t for t in fused(operations).outputs}
    inside = max(tolerance(t, 64) for t in fused(operations).internal)
    for uid, expected in there.items():
        found, wanted = here[uid].astype(np.float64), expected.astype(np.float64)
        bound = max(tolerance(outputs[uid], 64), inside)
        largest = np.abs(wanted[np.isfinite(wanted)]).max(initial=1e-3)
        np.testing.assert_allclose(found, wanted, rtol=4 * bound, atol=bound * largest, err_msg=f"uid {uid}")


def gradient(
    dims: Extents, axes: Extents, kind: str = "f32", layout: str = "packed", *, logarithm: bool = False,
    inside: str = "f32", scaled: bool = False, residual: bool = False,
) -> list[Operation]:  # fmt: skip
    """dx of y and dy, as the legacy calls write it."""
    row = tuple(1 if a in axes else extent for a, extent in enumerate(dims))
    y, dy, dx = (tensor(uid, dims, kind, layout) for uid in (1, 2, 3))
    math = "f64" if inside == "f64" else "f32"

    def virtual(uid: int, extents: Extents = dims) -> TensorSpec:
        return tensor(uid, extents, inside, is_virtual=True)

    operations: list[Operation] = []
    if scaled:
        operations.append(pointwise(P.MUL, dy, scalar(4, len(dims)), virtual(20), math))
        dy = virtual(20)
    end = virtual(26) if residual else dx
    added = dy if logarithm else virtual(21)
    total = Reduction(x=added, y=virtual(22, row), spec=ReductionSpec(operator=R.ADD, compute_type=math))
    if logarithm:
        operations += [
            total,
            pointwise(P.EXP, y, None, virtual(23), math),
            pointwise(P.MUL, virtual(23), total.y, virtual(24), math),
            pointwise(P.SUB, dy, virtual(24), end, math),
        ]
    else:
        operations += [
            pointwise(P.MUL, y, dy, added, math),
            total,
            pointwise(P.SUB, dy, total.y, virtual(25), math),
            pointwise(P.MUL, y, virtual(25), end, math),
        ]
    if residual:
        operations.append(pointwise(P.ADD, end, tensor(5, dims, kind), dx, math))
    return operations


CASES: dict[str, tuple[Extents, Extents, str, str, dict[str, Any]]] = {
    "rows": ((4, 5, 24), (2,), "f32", "packed", {}),
    "rows f16": ((70, 1000), (1,), "f16", "packed", {}),
    "rows log": ((3, 3000), (1,), "f16", "packed", {"logarithm": True, "saved": True}),
    "rows passes": ((2, 60000), (1,), "f32", "packed", {"scaled": True}),
    "rows shared": ((2, 33001), (1,), "f16", "packed", {}),
    "rows shared, log": ((2, 34000), (1,), "f32", "packed", {"logarithm": True, "scaled": True, "residual": True}),
    "rows shared, saved": ((2, 17003), (1,), "f64", "packed", {"saved": True, "inside": "f64", "math": "f64"}),
    "channels": ((2, 128, 6, 8), (1,), "f16", "packed", {}),
    "channels f32": ((2, 128, 6, 8), (1,), "f32", "packed", {"saved": True}),
    "channels nhwc": ((2, 128, 5, 5), (1,), "f16", "channels_last", {"saved": True}),
    "channels log": ((2, 21, 7, 7), (1,), "f32", "packed", {"logarithm": True}),
    "channels passes": ((2, 7000, 3, 5), (1,), "f32", "packed", {"logarithm": True}),
    "few channels": ((3, 3, 9, 9), (1,), "bf16", "packed", {}),
    "few channels nhwc": ((3, 3, 9, 9), (1,), "f32", "channels_last", {}),
    "one channel": ((7, 1, 5), (1,), "f32", "packed", {}),
    "planes": ((2, 3, 7, 9), (2, 3), "f32", "packed", {}),
    "planes nhwc": ((2, 16, 7, 9), (2, 3), "f16", "channels_last", {"logarithm": True}),
    "samples": ((9, 40), (0,), "f32", "packed", {}),
    "everything": ((9, 41), (0, 1), "f32", "packed", {}),
    "not shifted": ((2, 17, 5), (1,), "f32", "packed", {"maximum": False}),
    "not shifted log": ((4, 100), (1,), "bf16", "packed", {"maximum": False, "logarithm": True}),
    "double": ((3, 50), (1,), "f64", "packed", {"inside": "f64", "math": "f64"}),
    "integers": ((4, 100), (0,), "i8", "packed", {}),
    "halves inside": ((2, 12, 5), (1,), "f16", "packed", {"inside": "f16"}),
    "scaled, residual": ((2, 10, 7, 7), (1,), "f32", "packed", {"scaled": True, "residual": True}),
    "log, scaled, residual": ((2, 64, 16), (1,), "f16", "packed", {"logarithm": True, "scaled": True, "residual": True}),
}  # fmt: skip


@emulated
@pytest.mark.parametrize("case", CASES)
def test_softmax(case: str) -> None:
    dims, axes, kind, layout, fields = CASES[case]
    operations = softmax(dims, axes, kind, layout, **fields)
    assert_close(operations, values(operations))


GRADIENTS: dict[str, tuple[Extents, Extents, str, str, dict[str, Any]]] = {
    "rows f16": ((70, 1000), (1,), "f16", "packed", {}),
    "rows log": ((3, 3000), (1,), "f32", "packed", {"logarithm": True}),
    "channels": ((2, 128, 6, 8), (1,), "f16", "packed", {"residual": True}),
    "channels nhwc log": ((2, 128, 5, 5), (1,), "f16", "channels_last", {"logarithm": True}),
    "channels f32, scaled": ((2, 37, 6, 8), (1,), "f32", "packed", {"scaled": True}),
    "few channels nhwc": ((3, 3, 9, 9), (1,), "bf16", "channels_last", {}),
    "one channel": ((7, 1, 5), (1,), "f32", "packed", {}),
    "channels passes": ((2, 7000, 3, 5), (1,), "f64", "packed", {"inside": "f64"}),
}  # fmt: skip


@emulated
@pytest.mark.parametrize("case", GRADIENTS)
def test_gradients(case: str) -> None:
    dims, axes, kind, layout, fields = GRADIENTS[case]
    operations = gradient(dims, axes, kind, layout, **fields)
    assert fused(operations).rule == "softmax_backward"
    assert_close(operations, values(operations))


# Rows that packs do not fit, each block's a run of memory.
RUNS: dict[str, tuple[Extents, Extents, str, str, dict[str, Any]]] = {
    "21 classes": ((2, 21, 13, 17), (1,), "f16", "channels_last", {}),
    "19 classes, log": ((1, 19, 20, 20), (1,), "bf16", "channels_last", {"logarithm": True}),
    "10 classes": ((301, 10), (1,), "f32", "packed", {"scaled": True, "residual": True}),
    "91 classes": ((70, 91), (1,), "f16", "packed", {"saved": True}),
    "9 classes": ((2, 9, 31, 19), (1,), "f16", "channels_last", {}),
    "bytes": ((600, 17), (1,), "i8", "packed", {}),
    "33, without the maximum": ((64, 33), (1,), "f16", "packed", {"maximum": False}),
}  # fmt: skip


@emulated
@pytest.mark.parametrize("case", RUNS)
def test_short_rows_in_one_run(case: str) -> None:
    dims, axes, kind, layout, fields = RUNS[case]
    operations = softmax(dims, axes, kind, layout, **fields)
    assert "runs" in device_kernel(operations, ENGINE).name
    assert_close(operations, values(operations))


@emulated
@pytest.mark.parametrize("case", ["21 classes", "19 classes, log", "91 classes"])
def test_gradients_of_short_rows_in_one_run(case: str) -> None:
    dims, axes, kind, layout, fields = RUNS[case]
    operations = gradient(
        dims, axes, kind, layout, logarithm=fields.get("logarithm", False), residual=layout == "packed"
    )
    assert "runs" in device_kernel(operations, ENGINE).name
    assert_close(operations, values(operations))


@emulated
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout(layout: str) -> None:
    operations = softmax((3, 4, 2, 6), (1,), "f32", layout)
    assert_close(operations, values(operations))


@emulated
@pytest.mark.parametrize("logarithm", [False, True], ids=["softmax", "log"])
def test_extreme_values(logarithm: bool) -> None:
    """Infinite, equal, tiny and missing numbers: each row is its own."""
    operations = softmax((8, 40), (1,), logarithm=logarithm)
    x = np.random.default_rng(0).standard_normal((8, 40)).astype(np.float32)
    x[0, 3], x[1, 4], x[2, :], x[3, :] = np.nan, np.inf, -np.inf, 3.0e38
    x[4, 5], x[5, :], x[6, :39] = -np.inf, -3.0e38, -3.0e38
    assert_close(operations, {1: x})


@emulated
@pytest.mark.parametrize("name", ["plain", "log", "saved", "scaled", "half"])
def test_few_long_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shared by all multiprocessors: elements are computed again for each reduction, rows pass through memory."""
    monkeypatch.setattr(softmax_split, "_WORTH", 0)
    monkeypatch.setattr(softmax_engine, "held", lambda *_: None)
    monkeypatch.setattr(softmax_engine, "_shared_bytes", lambda *_: 0)
    operations = {
        "plain": lambda: softmax((2, 3, 8, 40), (1, 2, 3), "f16", "channels_last"),
        "log": lambda: softmax((3, 700), (1,), logarithm=True, residual=True),
        "saved": lambda: softmax((2, 300, 6), (1,), saved=True),
        "scaled": lambda: softmax((2, 3, 8, 16), (1, 2, 3), scaled=True, maximum=False),
        "half": lambda: softmax((2, 512), (1,), "bf16", inside="f16"),
    }[name]()
    assert "divided" in device_kernel(operations, ENGINE).name
    assert_close(operations, values(operations))


@emulated
@pytest.mark.parametrize("case", ["plain", "log", "scaled", "gradient", "gradient, log", "sums", "short sums"])
def test_long_rows_share_a_multiprocessor(case: str) -> None:
    """Shared memory has what the first stage reads: what else elements are made of is read, and computed, again."""
    dims, axes = (5, 16392), (1,)
    operations = {
        "plain": lambda: softmax(dims, axes, "f16"),
        "log": lambda: softmax((4, 17003), axes, "f16", logarithm=True, saved=True),
        "scaled": lambda: softmax((4, 13000), axes, "f16", logarithm=True, scaled=True, residual=True),
        "gradient": lambda: gradient((4, 17000), axes, "f16", scaled=True, residual=True),
        "gradient, log": lambda: gradient((4, 33000), axes, "bf16", logarithm=True),
        "sums": lambda: sums(dims, axes, "f16"),
        "short sums": lambda: sums((2, 30, 7), axes, "f32"),
    }[case]()
    tiny = replace(device_spec("h200"), sm_count=1)
    kernel = ENGINE.compile(Task(fused(operations), tiny), ENGINE.settings({}))
    assert isinstance(kernel, DeviceKernel)
    assert ("shared" in kernel.name) is not case.startswith("short")
    assert_close(operations, values(operations), tiny)


def sums(dims: Extents, axes: Extents, kind: str) -> list[Operation]:
    """The logarithm of the sum of powers, as a cross-entropy asks for it."""
    before = softmax(dims, axes, kind, logarithm=True)[:-1]
    row = tuple(1 if a in axes else extent for a, extent in enumerate(dims))
    most, logarithm = (next(t for step in before for t in step.outputs().values() if t.uid == uid) for uid in (21, 25))
    return [*before, pointwise(P.ADD, most, logarithm, tensor(31, row))]


@emulated
def test_sums_beyond_the_range_of_a_reciprocal() -> None:
    """Without the maximum, sums overflow and vanish: quotients are then those of a plain division."""
    operations = softmax((6, 40), (1,), maximum=False)
    x = np.zeros((6, 40), np.float32)
    x[0], x[1], x[2], x[3], x[4, 7] = 100.0, -100.0, -200.0, 88.0, 60.0
    assert_close(operations, {1: x})


@emulated
def test_same_bits_every_time() -> None:
    operations = softmax((2, 128, 6, 8), (1,), "f16")
    given = values(operations)
    first, _ = run_both(operations, ENGINE, given)
    again, _ = run_both(operations, ENGINE, given, poison=0x5A)
    assert first[2].tobytes() == again[2].tobytes()


@emulated
def test_logarithm_of_the_sum_for_the_backward_pass() -> None:
    """max + log(sum) leaves the kernel beside the result."""
    row = (4, 6, 1)
    operations = softmax((4, 6, 40), (2,))
    most, total, logarithm = (tensor(uid, row, is_virtual=True) for uid in (21, 24, 30))
    operations += [
        pointwise(P.LOG, total, None, logarithm),
        pointwise(P.ADD, most, logarithm, tensor(31, row)),
    ]
    assert_close(operations, values(operations))


def test_a_row_in_registers_where_it_fits() -> None:
    for dims, axes, kind, layout, how in (
        ((64, 128, 56, 56), (1,), "f16", "packed", "held"),
        ((64, 128, 56, 56), (1,), "f32", "channels_last", "held"),
        ((64, 32768), (1,), "f16", "packed", "held"),
        ((8, 21, 64, 64), (1,), "f16", "channels_last", "runs"),
        ((8, 24, 64, 64), (1,), "f16", "channels_last", "held"),
        ((64, 50000), (1,), "f16", "packed", "shared"),
        ((64, 60000), (1,), "f16", "packed", "shared"),
        ((64, 120000), (1,), "f16", "packed", "passes"),
        ((640, 32768), (1,), "f16", "packed", "shared"),  # several on a multiprocessor
        ((64, 500000), (1,), "f16", "packed", "divided"),
    ):
        operations = softmax(dims, axes, kind, layout)
        kernel = device_kernel(operations, ENGINE)
        assert (len(kernel.steps) == 1) is (how != "divided")
        assert [word for word in ("runs", "shared", "passes", "divided") if word in kernel.name] == [how] * (
            how != "held"
        )
        task = Task(fused(operations), device_spec("h200"))
        assert ENGINE.cost(task, {}).bytes > 0


@compiler
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("layout", ["packed", "channels_last"])
@pytest.mark.parametrize("kind", ["f16", "f32"])
def test_compiles_without_spills(kind: str, layout: str, arch: str) -> None:
    compiles_cleanly(softmax((64, 128, 56, 56), (1,), kind, layout), ENGINE, arch, registers=96)


@compiler
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(("kind", "layout", "logarithm"), [("f16", "packed", False), ("f32", "packed", True)])
def test_gradients_compile_without_spills(kind: str, layout: str, logarithm: bool, arch: str) -> None:
    compiles_cleanly(gradient((64, 128, 56, 56), (1,), kind, layout, logarithm=logarithm), ENGINE, arch, registers=96)


@compiler
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("case", RUNS)
def test_runs_compile_without_spills(case: str, arch: str) -> None:
    dims, axes, kind, layout, fields = RUNS[case]
    compiles_cleanly(softmax(dims, axes, kind, layout, **fields), ENGINE, arch, registers=96)


@compiler
@pytest.mark.parametrize(("arch", "device"), [("sm_80", "a100"), ("sm_90a", "h200")])
def test_long_rows_compile_without_spills(arch: str, device: str) -> None:
    """In shared memory, of which a multiprocessor of compute capability 8.9 has too little for several."""
    for operations in (
        softmax((4096, 32000), (1,), "f16", logarithm=True),
        softmax((4096, 20000), (1,), "f16", scaled=True),
        sums((4096, 24001), (1,), "f16"),
        gradient((4096, 32000), (1,), "bf16", logarithm=True),
    ):
        compiles_cleanly(operations, ENGINE, arch, device=device)


@compiler
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("case", ["rows f16", "rows passes", "channels passes", "double", "scaled, residual"])
def test_other_variants_compile_without_spills(case: str, arch: str) -> None:
    dims, axes, kind, layout, fields = CASES[case]
    compiles_cleanly(softmax(dims, axes, kind, layout, **fields), ENGINE, arch)


@emulated
@pytest.mark.parametrize(
    ("dims", "kind", "tile"),
    [
        ((2, 150, 4, 10), "f16", "16x8x10"),
        ((1, 300, 4, 8), "bf16", "32x8x10"),
        ((1, 1000, 2, 6), "f32", "64x4x16"),
        ((1, 200, 4, 8), "f16", "32x"),
    ],
)
def test_channels_by_few_threads_of_a_row(
    dims: tuple[int, ...], kind: str, tile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where rows are many."""
    monkeypatch.setattr("graphdnn.engines.cuda.reduction.row_threads._ENOUGH_THREADS", 0)
    operations = softmax(dims, (1,), kind)
    assert tile in device_kernel(operations, ENGINE).name
    assert_close(operations, values(operations))

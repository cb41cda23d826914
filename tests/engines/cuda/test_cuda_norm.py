"""CUDA normalizations: kernels run on the host against the general NumPy engine, and compiled for every architecture."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cuda_comparison import ARCHITECTURES, compiler, compiles_cleanly, device_kernel, emulated, fused, run_both
from emulator.kernels import run_fused, tolerance
from problems import LAYOUTS, scalar, tensor, values_for

from graphdnn.device.profiles import DeviceSpec, device_spec
from graphdnn.dtypes import Array
from graphdnn.engines import Task
from graphdnn.engines.cuda.norm.norm_backward import ENGINE as BACKWARD
from graphdnn.engines.cuda.norm.norm_forward import ENGINE as FORWARD
from graphdnn.enums import NormMode, NormPhase, PointwiseMode
from graphdnn.operations import NormBackward, NormForward, Operation, PointwiseOperation, PointwiseSpec
from graphdnn.tensors import TensorSpec

Extents = tuple[int, ...]
M = NormMode
CHANNELS = (M.BATCH_NORM, M.INSTANCE_NORM)


def parameters(mode: NormMode, dims: Extents) -> Extents:
    """Extents of the scale."""
    return (1, dims[1], *(1,) * (len(dims) - 2)) if mode in CHANNELS else (*(1,) * (len(dims) - 1), dims[-1])


def statistics(mode: NormMode, dims: Extents) -> Extents:
    axes = {M.BATCH_NORM: [a for a in range(len(dims)) if a != 1], M.INSTANCE_NORM: range(2, len(dims))}
    return tuple(1 if a in axes.get(mode, [len(dims) - 1]) else extent for a, extent in enumerate(dims))


def forward(
    mode: NormMode,
    dims: Extents,
    kind: str = "f32",
    layout: str = "packed",
    *,
    parameter: str = "f32",
    inference: bool = False,
    running: bool = False,
    saved: bool = True,
    scale: Extents | None = None,
    bias: bool = True,
    **fields: Any,
) -> NormForward:
    sizes, rows, rank = scale or parameters(mode, dims), statistics(mode, dims), len(dims)
    given: dict[str, Any] = {
        "mode": mode,
        "phase": NormPhase.INFERENCE if inference else NormPhase.TRAINING,
        "x": tensor(1, dims, kind, layout),
        "y": tensor(2, dims, kind, layout),
        "scale": tensor(3, sizes, parameter),
        "epsilon": scalar(5, rank, "f64"),
    }
    if bias:
        given["bias"] = tensor(4, sizes, parameter)
    if saved:
        given["inv_variance"] = tensor(7, rows, parameter, layout)
        if mode is not M.RMS_NORM:
            given["mean"] = tensor(6, rows, parameter, layout)
    if running:
        ways = ("input_running_mean", "input_running_var", "output_running_mean", "output_running_var")
        given |= {name: tensor(9 + i, rows, parameter) for i, name in enumerate(ways)}
        given["momentum"] = scalar(8, rank, "f32")
    return NormForward(**{**given, **fields})


def backward(
    mode: NormMode,
    dims: Extents,
    kind: str = "f32",
    layout: str = "packed",
    *,
    parameter: str = "f32",
    saved: bool = True,
    scale: Extents | None = None,
    dbias: bool = True,
    **fields: Any,
) -> NormBackward:
    sizes, rows = scale or parameters(mode, dims), statistics(mode, dims)
    given: dict[str, Any] = {
        "mode": mode,
        "x": tensor(1, dims, kind, layout),
        "dy": tensor(2, dims, kind, layout),
        "dx": tensor(3, dims, kind, layout),
        "scale": tensor(4, sizes, parameter),
        "dscale": tensor(5, sizes, parameter),
    }
    if dbias:
        given["dbias"] = tensor(6, sizes, parameter)
    if saved:
        given["inv_variance"] = tensor(8, rows, parameter)
        if mode is not M.RMS_NORM:
            given["mean"] = tensor(7, rows, parameter)
    else:
        given["epsilon"] = scalar(9, len(dims))
    return NormBackward(**{**given, **fields})


def pointwise(mode: PointwiseMode, x: TensorSpec, b: TensorSpec | None, y: TensorSpec) -> Operation:
    return PointwiseOperation(spec=PointwiseSpec(mode=mode, math_type="f32"), x=x, b=b, y=y)


def values(operations: Operation | list[Operation], seed: int = 0, shift: float = 0.0) -> dict[int, Any]:
    """Values of what is bound; statistics that are possible ones."""
    rng = np.random.default_rng(seed)
    found: dict[int, Any] = {}
    for step in operations if isinstance(operations, list) else [operations]:
        ports = [port for port, t in step.inputs().items() if not t.is_virtual]
        found |= values_for(step, rng, ports=ports)
        if isinstance(step, (NormForward, NormBackward)):
            inputs = step.inputs()
            if "epsilon" in inputs:
                found[inputs["epsilon"].uid] = np.float64(1e-3)
            if "momentum" in inputs:
                found[inputs["momentum"].uid] = np.float32(0.125)
            if "inv_variance" in inputs:
                found[inputs["inv_variance"].uid] = np.abs(found[inputs["inv_variance"].uid])
            if not step.x.is_virtual:
                x = found[step.x.uid]
                found[step.x.uid] = (x.astype(np.float64) + shift).astype(x.dtype)
    return found


def assert_close(operations: Operation | list[Operation], engine: Any, given: dict[int, Any], terms: int) -> None:
    """Errors are those of sums: relative to the largest result."""
    here, there = run_both(operations, engine, given)
    outputs = {t.uid: t for t in fused(operations).outputs}
    for uid, expected in there.items():
        found, wanted = here[uid].astype(np.float64), expected.astype(np.float64)
        assert not np.isnan(found).any()
        bound = tolerance(outputs[uid], terms) or 1.0  # integers: one rounding the other way
        scale = 1.0 if bound == 1.0 else max(np.abs(wanted).max(), 1e-3)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=2 * bound * scale, err_msg=f"uid {uid}")


FORWARD_CASES: dict[str, tuple[NormMode, Extents, str, str, dict[str, Any]]] = {
    "layer f32": (M.LAYER_NORM, (6, 5, 24), "f32", "packed", {}),
    "layer f16": (M.LAYER_NORM, (6, 40), "f16", "packed", {"parameter": "f16"}),
    "layer of a block": (M.LAYER_NORM, (3, 5000), "f16", "packed", {}),
    "layer divided": (M.LAYER_NORM, (2, 2, 40000), "f32", "packed", {}),
    "layer of bytes": (M.LAYER_NORM, (5, 37), "i8", "packed", {}),
    "layer alone": (M.LAYER_NORM, (4, 48), "bf16", "packed", {"saved": False, "bias": False, "inference": True}),
    "rms": (M.RMS_NORM, (7, 1000), "bf16", "packed", {"bias": False}),
    "rms divided": (M.RMS_NORM, (2, 70000), "f16", "packed", {}),
    "ada": (M.ADA_LAYER_NORM, (3, 4, 20), "f32", "packed", {"scale": (3, 1, 20)}),
    "instance": (M.INSTANCE_NORM, (2, 5, 7, 9), "f32", "packed", {}),
    "instance nhwc": (M.INSTANCE_NORM, (2, 16, 7, 9), "f16", "channels_last", {}),
    "instance 3-d": (M.INSTANCE_NORM, (2, 3, 3, 4, 5), "f64", "rotated", {"parameter": "f64", "math_type": "f64"}),
    "batch": (M.BATCH_NORM, (3, 16, 5, 6), "f32", "packed", {"running": True}),
    "batch nhwc": (M.BATCH_NORM, (3, 16, 5, 6), "f32", "channels_last", {"running": True}),
    "batch divided": (M.BATCH_NORM, (40, 3, 32, 32), "f16", "packed", {"running": True}),
    "batch divided nhwc": (M.BATCH_NORM, (40, 24, 20, 20), "bf16", "channels_last", {"running": True}),
    "batch divided odd": (M.BATCH_NORM, (33, 7, 31, 7), "f32", "channels_last", {}),
    "batch of one": (M.BATCH_NORM, (1, 3, 1, 1), "f32", "packed", {"running": True}),
    "batch inference": (M.BATCH_NORM, (4, 8, 5, 5), "f16", "channels_last", {"inference": True}),
    "batch inference gaps": (M.BATCH_NORM, (4, 6, 4, 4), "f32", "gaps", {"inference": True}),
    "batch fp8": (M.BATCH_NORM, (2, 16, 4, 4), "e4m3", "reversed", {"inference": True}),
    "batch double": (M.BATCH_NORM, (9, 4, 33, 17), "f64", "channels_last", {"running": True, "math_type": "f64"}),
}


@emulated
@pytest.mark.parametrize("case", FORWARD_CASES)
def test_forward(case: str) -> None:
    mode, dims, kind, layout, fields = FORWARD_CASES[case]
    op = forward(mode, dims, kind, layout, **fields)
    assert_close(op, FORWARD, values(op), int(np.prod(dims)) // int(np.prod(statistics(mode, dims))))


_H200 = device_spec("h200")
# Much to do for few.
SMALL = replace(_H200, sm_count=4, cache_bytes=_H200.cache_bytes // 33, bandwidth=_H200.bandwidth / 33)
RESIDENT_CASES: dict[str, tuple[NormMode, Extents, str, str, dict[str, Any]]] = {
    "nhwc": (M.BATCH_NORM, (40, 24, 20, 20), "f16", "channels_last", {"running": True}),
    "nhwc read twice": (M.BATCH_NORM, (17, 64, 43, 31), "f32", "channels_last", {"running": True}),
    "nhwc odd": (M.BATCH_NORM, (33, 7, 31, 17), "f32", "channels_last", {}),
    "nhwc double": (M.BATCH_NORM, (20, 6, 31, 17), "f64", "channels_last", {"math_type": "f64", "parameter": "f64"}),
    "nchw": (M.BATCH_NORM, (40, 4, 40, 40), "f32", "packed", {"running": True}),
    "nchw in two": (M.BATCH_NORM, (40, 2, 41, 40), "bf16", "packed", {"running": True}),
    "layer": (M.LAYER_NORM, (1, 2, 40000), "f32", "packed", {}),
    "rms": (M.RMS_NORM, (2, 70000), "f16", "packed", {}),
    "rounds": (M.BATCH_NORM, (24, 6, 66, 60), "f32", "packed", {"running": True}),
}


def on_small_device(monkeypatch: pytest.MonkeyPatch, small: DeviceSpec = SMALL) -> list[str]:
    """Kernels for a device with few multiprocessors; returns the list that the launched entries come into."""
    entries: list[str] = []

    def run(op: Any, engine: Any, bindings: Any, knobs: Any = None, device: Any = None) -> Any:
        kernel = run_fused(op, engine, bindings, knobs, small)
        entries.extend(step.entry for step in kernel.steps)  # type: ignore[union-attr]
        return kernel

    monkeypatch.setattr("cuda_comparison.run_fused", run)
    return entries


@emulated
@pytest.mark.parametrize("case", RESIDENT_CASES)
def test_forward_by_blocks_that_stay(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = on_small_device(monkeypatch)
    mode, dims, kind, layout, fields = RESIDENT_CASES[case]
    op = forward(mode, dims, kind, layout, **fields)
    assert_close(op, FORWARD, values(op, shift=0.5), int(np.prod(dims)) // int(np.prod(statistics(mode, dims))))
    assert entries == (["norm_persistent"] if case == "nchw" else ["init_persistent", "norm_persistent"])


PLANES: dict[str, tuple[Extents, str, dict[str, Any]]] = {
    "7x7": ((24, 32, 7, 7), "f16", {"running": True}),
    "7x7, channels left": ((23, 36, 7, 7), "f16", {"running": True}),
    "14x14": ((40, 8, 14, 14), "bf16", {}),
    "odd volumes": ((17, 12, 3, 5, 9), "f32", {"running": True}),
    "20x20": ((12, 4, 20, 20), "f16", {}),
    "double": ((40, 12, 5, 7), "f64", {"math_type": "f64", "parameter": "f64"}),
    "one plane after the other": ((300, 24, 2, 1), "f32", {}),
}


@emulated
@pytest.mark.parametrize("case", PLANES)
def test_planes(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short planes are read with those of neighbouring channels."""
    entries = on_small_device(monkeypatch)
    dims, kind, fields = PLANES[case]
    op = forward(M.BATCH_NORM, dims, kind, **fields)
    assert_close(op, FORWARD, values(op, shift=3.0), int(np.prod(dims)) // dims[1])
    gradients = backward(M.BATCH_NORM, dims, kind, **{k: v for k, v in fields.items() if k != "running"})
    assert_close(gradients, BACKWARD, values(gradients), int(np.prod(dims)) // dims[1])
    assert entries == ["norm_channel_planes"] * 2


@emulated
def test_planes_with_what_is_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = on_small_device(monkeypatch)
    dims = (24, 32, 7, 7)
    inside = [tensor(20 + i, dims, "f16", is_virtual=True) for i in range(2)]
    norm = forward(M.BATCH_NORM, dims, "f16", running=True, y=inside[0])
    operations: list[Operation] = [
        norm,
        PointwiseOperation(
            spec=PointwiseSpec(mode=PointwiseMode.ADD, math_type="f32"), x=inside[0], b=tensor(30, dims, "f16"), y=inside[1]
        ),
        PointwiseOperation(
            spec=PointwiseSpec(mode=PointwiseMode.RELU_FWD, math_type="f32"), x=inside[1], y=tensor(31, dims, "f16")
        ),
    ]  # fmt: skip
    given = values(norm) | {30: np.random.default_rng(0).standard_normal(dims)}
    assert_close(operations, FORWARD, given, 24 * 49)
    assert entries == ["norm_channel_planes"]


@emulated
@pytest.mark.parametrize("scale", [(1, 32, 7, 7), (24, 32, 1, 1)])
def test_planes_are_not_for_scales_that_change_along_a_channel(scale: Extents, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = on_small_device(monkeypatch)
    saved = {"mean": tensor(6, (1, 32, 1, 1), "f32"), "inv_variance": tensor(7, (1, 32, 1, 1), "f32")}
    op = forward(M.LAYER_NORM, (24, 32, 7, 7), "f16", scale=scale, **saved)
    assert_close(op, FORWARD, values(op), 24 * 49)
    assert "norm_channel_planes" not in entries


GROUPS: dict[str, tuple[Extents, str, dict[str, Any]]] = {
    "groups of 10": ((2, 4, 10, 16, 16), "f16", {}),
    "in a cluster": ((1, 4, 10, 37, 46), "bf16", {}),
    "few pixels": ((2, 4, 10, 8, 6), "f16", {}),
    "groups left": ((2, 6, 8, 33, 16), "f32", {}),
    "packs within a group": ((2, 3, 12, 33, 16), "f16", {"parameter": "f16"}),
    "one scale of a group": ((2, 4, 6, 37, 16), "f16", {"mode": M.INSTANCE_NORM, "scale": (1, 4, 1, 1, 1)}),
    "volumes": ((2, 4, 10, 5, 7, 9), "bf16", {}),
    "double": ((2, 2, 6, 19, 16), "f64", {"math_type": "f64", "parameter": "f64"}),
}


def of_groups(dims: Extents, kind: str, fields: dict[str, Any], *, is_backward: bool = False) -> Any:
    """Group norm of images whose channels, groups and elements of them, are last."""
    n, groups, size, *pixels = dims
    inner = [groups * size * int(np.prod(pixels[i + 1 :])) for i in range(len(pixels))]
    strides = (inner[0] * pixels[0], size, 1, *inner)
    rows, parameter = (n, groups, *(1,) * (len(dims) - 2)), fields.get("parameter", "f32")
    ports = ("x", "dy", "dx") if is_backward else ("x", "y")
    given = {port: tensor(i + 1, dims, kind).model_copy(update={"strides": strides}) for i, port in enumerate(ports)}
    given |= {"mean": tensor(17, rows, parameter), "inv_variance": tensor(18, rows, parameter)}
    own = {"scale": (1, groups, size, *(1,) * len(pixels)), "mode": M.LAYER_NORM} | fields
    return (backward if is_backward else forward)(own.pop("mode"), dims, kind, **own, **given)


@pytest.fixture
def always_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever rows that are read one by one take."""
    monkeypatch.setattr("graphdnn.engines.cuda.norm.channel_groups._APART_LAUNCHES", {1: 1.0, 2: 1.0})


@emulated
@pytest.mark.parametrize("case", GROUPS)
@pytest.mark.usefixtures("always_groups")
def test_groups(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pixels of some groups stay in shared memory, of one block or of several."""
    monkeypatch.setattr("graphdnn.engines.cuda.norm.channel_groups._divided", lambda *_: ())
    entries = on_small_device(monkeypatch)
    dims, kind, fields = GROUPS[case]
    op = of_groups(dims, kind, fields)
    terms = int(np.prod(dims[2:]))
    assert_close(op, FORWARD, values(op, shift=3.0), terms)
    assert entries == ["norm_channel_planes"]
    entries.clear()
    gradients = of_groups(dims, kind, fields, is_backward=True)
    assert_close(gradients, BACKWARD, values(gradients), terms * dims[0])
    assert entries[0] == "norm_channel_planes"
    assert "norm_sums" not in entries


@emulated
@pytest.mark.parametrize(
    ("dims", "kind"), [((1, 4, 4, 128, 128), "f16"), ((2, 4, 10, 87, 46), "bf16"), ((2, 3, 10, 77, 46), "f32")]
)
@pytest.mark.usefixtures("always_groups")
def test_groups_of_more_pixels_than_stay(dims: Extents, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are no clusters, and one block's shared memory is too small."""
    monkeypatch.setattr("graphdnn.engines.cuda.norm.channel_groups._offers", lambda *_: ())
    entries = on_small_device(monkeypatch, replace(device_spec("l40s"), sm_count=4))
    terms = int(np.prod(dims[2:]))
    op = of_groups(dims, kind, {})
    assert_close(op, FORWARD, values(op, shift=3.0), terms)
    gradients = of_groups(dims, kind, {}, is_backward=True)
    assert_close(gradients, BACKWARD, values(gradients), terms * dims[0])
    divided = ["channel_planes_partials", "channel_planes_combine", "channel_planes_apply"]
    assert [entry for entry in entries if entry.startswith(("norm", "channel_planes"))] == 2 * divided


@emulated
@pytest.mark.usefixtures("always_groups")
def test_groups_with_what_is_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = on_small_device(monkeypatch)
    dims = (2, 4, 10, 17, 16)
    op = of_groups(dims, "f16", {})
    inside = [op.x.model_copy(update={"uid": 20 + i, "is_virtual": True}) for i in range(4)]
    shift, residual = tensor(30, (2, 4, 10, 1, 1), "f32"), op.x.model_copy(update={"uid": 31})
    norm = op.model_copy(update={"x": inside[0], "y": inside[1]})
    operations: list[Operation] = [
        pointwise(PointwiseMode.ADD, op.x, shift, inside[0]),
        norm,
        pointwise(PointwiseMode.SWISH_FWD, inside[1], None, inside[2]),
        pointwise(PointwiseMode.ADD, inside[2], residual, op.y),
    ]
    rng = np.random.default_rng(0)
    given = values(norm) | {t.uid: rng.standard_normal(t.dims) for t in (op.x, shift, residual)}
    assert_close(operations, FORWARD, given, 10 * 17 * 16)
    assert entries == ["norm_channel_planes"]


@compiler
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(
    ("dims", "kind"),
    [((1, 32, 4, 512, 512), "f16"), ((2, 32, 10, 64, 64), "f16"), ((16, 32, 10, 64, 64), "bf16"), ((16, 32, 20, 32, 32), "f32"), ((2, 32, 4, 32, 32), "f16")],
)  # fmt: skip
@pytest.mark.usefixtures("always_groups")
def test_groups_compile_without_spills(dims: Extents, kind: str, arch: str) -> None:
    device = {"sm_80": "a100", "sm_89": "l40s", "sm_90a": "h200"}[arch]
    compiles_cleanly(of_groups(dims, kind, {}), FORWARD, arch, device=device)
    compiles_cleanly(of_groups(dims, kind, {}, is_backward=True), BACKWARD, arch, device=device)


@compiler
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(
    ("dims", "kind"), [((128, 2048, 7, 7), "f16"), ((64, 1024, 14, 14), "f16"), ((64, 1024, 14, 14), "f32")]
)
def test_planes_compile_without_spills(dims: Extents, kind: str, arch: str) -> None:
    compiles_cleanly(forward(M.BATCH_NORM, dims, kind, running=True), FORWARD, arch)
    compiles_cleanly(backward(M.BATCH_NORM, dims, kind), BACKWARD, arch)


@emulated
@pytest.mark.parametrize(("dims", "kind"), [((64, 24, 1, 1), "f16"), ((37, 22, 1, 1), "f16"), ((20, 40, 1, 1), "f32")])
def test_forward_by_few_threads_of_a_row(dims: Extents, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where each activation of a large image has its statistics."""
    op = forward(M.BATCH_NORM, dims, kind, running=True)
    before = device_kernel(op, FORWARD).name
    monkeypatch.setattr("graphdnn.engines.cuda.reduction.row_threads._ENOUGH_THREADS", 1)
    assert device_kernel(op, FORWARD).name != before
    assert_close(op, FORWARD, values(op, shift=0.5), dims[0])


@emulated
@pytest.mark.parametrize("dims", [(6, 4000), (2, 40000)], ids=["held", "divided"])
def test_a_large_mean_costs_no_digits_of_the_variance(dims: Extents) -> None:
    """Around 4096 single precision has 11 digits behind the point; the deviations are exact in them."""
    op = forward(M.LAYER_NORM, dims)
    given = values(op)
    given[1] = (4096 + np.round(given[1] * 64) / 64).astype(np.float32)
    here, _ = run_both(op, FORWARD, given)
    exact = 1 / np.sqrt(given[1].astype(np.float64).var(1, keepdims=True) + 1e-3)
    np.testing.assert_allclose(here[7], exact, rtol=1e-6)


@emulated
@pytest.mark.parametrize("dims", [(3, 64), (2, 40000)], ids=["held", "divided"])
def test_what_is_not_a_number_stays_in_its_row(dims: Extents) -> None:
    op = forward(M.LAYER_NORM, dims)
    given = values(op)
    given[1][1, 5] = np.nan
    here, there = run_both(op, FORWARD, given)
    for uid in here:
        np.testing.assert_array_equal(np.isnan(here[uid]), np.isnan(there[uid]))


@emulated
@pytest.mark.parametrize(
    ("mode", "dims", "layout"),
    [(M.LAYER_NORM, (5, 4, 40), "packed"), (M.BATCH_NORM, (40, 16, 20, 20), "channels_last"),
     (M.BATCH_NORM, (3, 4, 5, 5), "gaps")],
    ids=["held", "divided", "odd"],
)  # fmt: skip
def test_prologue_and_epilogue(mode: NormMode, dims: Extents, layout: str) -> None:
    """relu(y + residual) of x * b, rounded to f16 on the way in, with a mask as a second result."""
    x, y = tensor(20, dims, "f16", layout, is_virtual=True), tensor(21, dims, "f32", is_virtual=True)
    total, other = tensor(22, dims, "f32", is_virtual=True), tensor(2, dims, "f16", layout)
    operations = [
        pointwise(PointwiseMode.MUL, tensor(1, dims, "f16", layout), tensor(30, parameters(mode, dims), "f32"), x),
        forward(mode, dims, x=x, y=y),
        pointwise(PointwiseMode.ADD, y, tensor(31, dims, "bf16", layout), total),
        pointwise(PointwiseMode.RELU_FWD, total, None, other),
        pointwise(PointwiseMode.CMP_GT, total, tensor(32, (1,) * len(dims)), tensor(33, dims, "bool")),
    ]
    given = values(operations)
    given[32] = np.full((1,) * len(dims), 4.0, np.float32)  # no sum lies there: the mask does not hang on rounding
    assert_close(operations, FORWARD, given, int(np.prod(dims)))


BACKWARD_RESIDENT_CASES: dict[str, tuple[Extents, str, str, dict[str, Any]]] = {
    "nhwc": ((40, 24, 20, 20), "f16", "channels_last", {}),
    "nhwc read twice": ((17, 64, 43, 31), "f32", "channels_last", {}),
    "nhwc odd": ((33, 7, 31, 17), "bf16", "channels_last", {"saved": False}),
    "nchw": ((40, 4, 40, 40), "f32", "packed", {}),
    "nchw in two": ((40, 2, 41, 40), "f16", "packed", {"dbias": False}),
    "rounds": ((24, 6, 40, 40), "f32", "packed", {}),
}


@emulated
@pytest.mark.parametrize("case", BACKWARD_RESIDENT_CASES)
def test_backward_by_blocks_that_stay(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = on_small_device(monkeypatch)
    dims, kind, layout, fields = BACKWARD_RESIDENT_CASES[case]
    op = backward(M.BATCH_NORM, dims, kind, layout, **fields)
    assert_close(op, BACKWARD, values(op), int(np.prod(dims)))
    assert entries[-2:] == ["init_persistent", "norm_persistent"] or (case == "nchw" and entries == ["norm_persistent"])


@emulated
def test_chains_around_blocks_that_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept is the prologue's result; the epilogue has operands of its own."""
    entries = on_small_device(monkeypatch)
    test_prologue_and_epilogue(M.BATCH_NORM, (40, 16, 20, 20), "channels_last")
    test_backward_with_the_gradient_of_an_activation_before_it((40, 16, 20, 20))
    assert entries == ["init_persistent", "norm_persistent"] * 2


WALKS: dict[str, tuple[NormMode, Extents, str, dict[str, Any]]] = {
    "a warp's part": (M.LAYER_NORM, (301, 48), "f16", {}),
    "a warp": (M.LAYER_NORM, (70, 4, 136), "f16", {"parameter": "f16"}),
    "some warps": (M.LAYER_NORM, (9, 5, 768), "bf16", {}),
    "a block": (M.LAYER_NORM, (21, 3000), "f32", {}),
    "a block, in steps": (M.RMS_NORM, (11, 5120), "f16", {"dbias": False}),
    "odd": (M.LAYER_NORM, (131, 33), "f32", {"saved": False}),
    "fewer rows than blocks": (M.RMS_NORM, (3, 40), "bf16", {"saved": False}),
}


@emulated
@pytest.mark.parametrize("case", WALKS)
def test_gradients_by_blocks_that_go_through_rows(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """x and dy are read once for the gradients of x, scale and bias."""
    entries = on_small_device(monkeypatch)
    mode, dims, kind, fields = WALKS[case]
    op = backward(mode, dims, kind, **fields)
    assert_close(op, BACKWARD, values(op), int(np.prod(dims)))
    assert entries[-2:] == ["norm_row_gradient", "norm_parameters"]


@emulated
def test_gradients_of_rows_with_an_activation_before_and_a_shortcut_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = on_small_device(monkeypatch)
    dims = (40, 96)
    dy, dx = tensor(20, dims, "f16", is_virtual=True), tensor(21, dims, "f32", is_virtual=True)
    relu = PointwiseSpec(mode=PointwiseMode.RELU_BWD, math_type="f32")
    operations = [
        PointwiseOperation(spec=relu, dy=tensor(2, dims, "f16"), x=tensor(30, dims, "f16"), dx=dy),
        backward(M.LAYER_NORM, dims, "f16", dy=dy, dx=dx),
        pointwise(PointwiseMode.ADD, dx, tensor(31, dims, "f16"), tensor(3, dims, "f16")),
    ]
    assert_close(operations, BACKWARD, values(operations), int(np.prod(dims)))
    assert entries == ["norm_row_gradient", "norm_parameters"]


@emulated
@pytest.mark.parametrize(("cols", "kind"), [(768, "f16"), (1000, "bf16"), (3136, "f16"), (5120, "f16"), (1024, "f32")])
def test_long_rows_by_few_threads_with_packs_on_their_way(
    cols: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    op = forward(M.LAYER_NORM, (9, cols), kind)
    before = device_kernel(op, FORWARD).name
    monkeypatch.setattr("graphdnn.engines.cuda.reduction.row_threads._MANY_LONG", 1)
    assert device_kernel(op, FORWARD).name != before
    assert_close(op, FORWARD, values(op, shift=0.5), cols)


BACKWARD_CASES: dict[str, tuple[NormMode, Extents, str, str, dict[str, Any]]] = {
    "layer": (M.LAYER_NORM, (6, 5, 24), "f32", "packed", {}),
    "layer f16": (M.LAYER_NORM, (70, 1000), "f16", "packed", {}),
    "layer divided": (M.LAYER_NORM, (2, 3, 30000), "f32", "packed", {}),
    "rms": (M.RMS_NORM, (16, 40), "f32", "packed", {"saved": False, "dbias": False}),
    "ada": (M.ADA_LAYER_NORM, (3, 4, 20), "f32", "packed", {"scale": (3, 1, 20)}),
    "instance": (M.INSTANCE_NORM, (2, 5, 7, 9), "f32", "packed", {}),
    "instance nhwc": (M.INSTANCE_NORM, (2, 16, 7, 8), "f16", "channels_last", {"saved": False}),
    "batch": (M.BATCH_NORM, (3, 16, 5, 6), "f32", "channels_last", {}),
    "batch divided": (M.BATCH_NORM, (40, 3, 32, 32), "f16", "packed", {"saved": False}),
    "batch divided nhwc": (M.BATCH_NORM, (40, 24, 20, 20), "bf16", "channels_last", {}),
    "batch double": (M.BATCH_NORM, (4, 8, 5, 5), "f64", "gaps", {"parameter": "f64", "math_type": "f64"}),
    "batch rotated": (M.BATCH_NORM, (4, 8, 7, 7), "f32", "rotated", {}),
}


@emulated
@pytest.mark.parametrize("case", BACKWARD_CASES)
def test_backward(case: str) -> None:
    mode, dims, kind, layout, fields = BACKWARD_CASES[case]
    op = backward(mode, dims, kind, layout, **fields)
    assert_close(op, BACKWARD, values(op), int(np.prod(dims)))


@emulated
@pytest.mark.parametrize("dims", [(3, 8, 5, 5), (40, 16, 10, 10)], ids=["held", "divided"])
def test_backward_with_the_gradient_of_an_activation_before_it(dims: Extents) -> None:
    """dy through ReLU's derivative on the way in, the gradient of the shortcut added on the way out."""
    dy, dx = tensor(20, dims, "f32", "channels_last", is_virtual=True), tensor(21, dims, "f32", is_virtual=True)
    relu = PointwiseSpec(mode=PointwiseMode.RELU_BWD, math_type="f32")
    operations = [
        PointwiseOperation(spec=relu, dy=tensor(2, dims, "f16", "channels_last"), x=tensor(30, dims, "f16"), dx=dy),
        backward(M.BATCH_NORM, dims, "f16", "channels_last", dy=dy, dx=dx),
        pointwise(PointwiseMode.ADD, dx, tensor(31, dims, "f16"), tensor(3, dims, "f16")),
    ]
    assert_close(operations, BACKWARD, values(operations), int(np.prod(dims)))


@emulated
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("mode", [M.BATCH_NORM, M.INSTANCE_NORM, M.LAYER_NORM])
def test_every_layout(mode: NormMode, layout: str) -> None:
    dims = (3, 4, 2, 6)
    op = forward(mode, dims, "f32", layout)
    assert_close(op, FORWARD, values(op, shift=3.0), 64)


@emulated
def test_vectorised_channels_and_packed_bits() -> None:
    dims = (2, 8, 3, 3)
    packed = TensorSpec(uid=1, data_type="i8", dims=(2, 2, 3, 3), strides=(18, 9, 3, 1), vector_count=4,
                        vectorized_dimension=1)  # fmt: skip
    op = forward(M.BATCH_NORM, dims, x=packed, y=tensor(2, dims))
    assert_close(op, FORWARD, values(op), 64)


@emulated
def test_same_bits_every_time() -> None:
    op = forward(M.BATCH_NORM, (40, 24, 20, 20), "f16", "channels_last", running=True)
    given = values(op)
    first, _ = run_both(op, FORWARD, given)
    again, _ = run_both(op, FORWARD, given, poison=0x5A)
    for uid, found in first.items():
        assert _bits(found) == _bits(again[uid])


def _bits(array: Array) -> bytes:
    return np.ascontiguousarray(array).tobytes()


def test_one_kernel_where_a_row_fits_and_several_where_it_does_not() -> None:
    def entries(op: Operation, engine: Any) -> list[str]:
        return [step.entry for step in device_kernel(op, engine).steps]  # type: ignore[union-attr]

    image = (64, 128, 56, 56)
    assert entries(forward(M.LAYER_NORM, (4096, 1024), "f16"), FORWARD) == ["norm_rows"]
    assert entries(forward(M.INSTANCE_NORM, image, "f16"), FORWARD) == ["norm_rows"]
    training = forward(M.BATCH_NORM, image, "f16", "channels_last", running=True)
    assert entries(training, FORWARD) == ["init_persistent", "norm_persistent"]
    assert entries(forward(M.BATCH_NORM, image, "f16"), FORWARD) == ["norm_persistent"]
    several = forward(M.BATCH_NORM, (64, 70, 56, 56), "f16")  # a block for each row would keep half of the device idle
    assert entries(several, FORWARD) == ["init_persistent", "norm_persistent"]
    small = (8, 3, 112, 112)
    assert entries(forward(M.BATCH_NORM, small, "f16"), FORWARD) == ["moments", "finish_moments", "pointwise"]
    assert entries(forward(M.BATCH_NORM, image, "f16", inference=True), FORWARD) == ["pointwise"]
    rounds = backward(M.BATCH_NORM, image, "f16")
    assert entries(rounds, BACKWARD) == ["init_persistent", "norm_persistent"]
    assert entries(backward(M.BATCH_NORM, small, "f16"), BACKWARD) == ["reduce", "reduce_splits", "norm_apply"]
    assert entries(backward(M.BATCH_NORM, (8, 64, 7, 7), "f16"), BACKWARD) == ["norm_backward_rows"]


def test_each_direction_has_its_engine() -> None:
    device = device_spec("h200")
    for op, engine, other in (
        (forward(M.LAYER_NORM, (4, 8)), FORWARD, BACKWARD),
        (backward(M.LAYER_NORM, (4, 8)), BACKWARD, FORWARD),
    ):
        task = Task(fused(op), device)
        assert not engine.why_not(task)
        assert [r.rule for r in other.why_not(task)] == [f"{other.name}.direction"]
        assert engine.cost(task, {}).seconds > 0


_COMPILED: dict[str, tuple[Any, Any]] = {
    "layer": (forward(M.LAYER_NORM, (4096, 1024), "f16"), FORWARD),
    "layer f32": (forward(M.LAYER_NORM, (512, 8192), "f32"), FORWARD),
    "layer long": (forward(M.LAYER_NORM, (4096, 8192), "f16"), FORWARD),
    "layer short": (forward(M.LAYER_NORM, (16384, 768), "f16"), FORWARD),
    "rms bf16": (forward(M.RMS_NORM, (512, 4096), "bf16", bias=False), FORWARD),
    "instance": (forward(M.INSTANCE_NORM, (8, 32, 56, 56), "f16", "channels_last"), FORWARD),
    **{
        f"batch {kind} {layout}": (forward(M.BATCH_NORM, (64, 128, 56, 56), kind, layout, running=True), FORWARD)
        for kind in ("f16", "f32")
        for layout in ("packed", "channels_last")
    },
    "inference": (forward(M.BATCH_NORM, (64, 128, 56, 56), "f16", "channels_last", inference=True), FORWARD),
    "double": (forward(M.BATCH_NORM, (64, 32, 56, 56), "f64", "channels_last", math_type="f64"), FORWARD),
    "backward layer": (backward(M.LAYER_NORM, (4096, 1024), "f16"), BACKWARD),
    "backward layer f32": (backward(M.LAYER_NORM, (4096, 6144), "f32"), BACKWARD),
    "backward rms": (backward(M.RMS_NORM, (4096, 8192), "bf16", dbias=False), BACKWARD),
    "backward batch": (backward(M.BATCH_NORM, (64, 128, 56, 56), "f16", "channels_last"), BACKWARD),
    "backward batch nchw": (backward(M.BATCH_NORM, (64, 128, 56, 56), "f32"), BACKWARD),
    "few threads of a row": (forward(M.BATCH_NORM, (64, 2**19, 1, 1), "f16", running=True), FORWARD),
    "backward held": (backward(M.BATCH_NORM, (8, 64, 7, 7), "f16"), BACKWARD),
}


@compiler
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("case", _COMPILED)
def test_compiles_without_spills(case: str, arch: str) -> None:
    op, engine = _COMPILED[case]
    device = {"sm_80": "a100", "sm_89": "l40s", "sm_90a": "h200"}[arch]  # registers are divided as measured on an H200
    compiles_cleanly(op, engine, arch, registers=128, device=device)

"""Normalization and statistics end to end, beside PyTorch and its autograd."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from problems import Tally, execute, one, pointwise, scalar, tensor, values_of

from graphdnn import TensorSpec
from graphdnn.dtypes import ELEMENTS, Array, data_type_of
from graphdnn.enums import BnFinalizeStatsMode, NormMode, NormPhase, PointwiseMode
from graphdnn.operations import BnBackwardWeights, BnFinalize, GenStats, NormBackward, NormForward, Operation
from graphdnn.operations.base import Extents
from graphdnn.operations.normalization import normalized_axes

P = PointwiseMode
torch_only = pytest.mark.torch


# Normalization and statistics.


def layer_axes(x: tuple[int, ...], scale: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a for a in range(len(x)) if scale[a] != 1)


def normalized(mode: NormMode, x: Any, scale: Any, bias: Any, axes: tuple[int, ...], epsilon: float) -> Any:
    """PyTorch's function of each mode."""
    import torch

    functional = torch.nn.functional
    if mode is NormMode.BATCH_NORM:
        return functional.batch_norm(x, None, None, scale.flatten(), bias.flatten(), training=True, eps=epsilon)
    if mode is NormMode.INSTANCE_NORM:
        return functional.instance_norm(x, weight=scale.flatten(), bias=bias.flatten(), eps=epsilon)
    trailing = [x.shape[a] for a in axes]
    if mode is NormMode.RMS_NORM:
        y = functional.rms_norm(x, trailing, eps=epsilon) * scale
        return y if bias is None else y + bias
    return functional.layer_norm(x, trailing, eps=epsilon) * scale + bias


LAYER = NormMode.LAYER_NORM


@pytest.mark.parametrize(
    ("mode", "x", "statistics", "scale", "axes"),
    [
        (NormMode.BATCH_NORM, (1, 1, 1), None, None, (0, 2)),
        (NormMode.INSTANCE_NORM, (1, 1, 1, 2), None, None, (2, 3)),
        (NormMode.ADA_LAYER_NORM, (2, 3, 4), (2, 1, 1), (2, 1, 4), (2,)),
        (LAYER, (3, 2), (3, 1), (1, 2), (1,)),
        (LAYER, (3, 2, 5), (3, 1, 1), None, (1, 2)),
        (LAYER, (3, 2), None, (1, 2), (1,)),
        # Where no extent tells: the last axis.
        (LAYER, (3, 1), (3, 1), (1, 1), (1,)),
        (LAYER, (3, 4), None, (1, 1), (1,)),
        (NormMode.RMS_NORM, (3, 4), None, None, (1,)),
    ],
)
def test_axes_that_are_normalized(
    mode: NormMode, x: Extents, statistics: Extents | None, scale: Extents | None, axes: tuple[int, ...]
) -> None:
    assert normalized_axes(mode, x, statistics, scale) == axes


# mode, extents of x, of scale and bias, whether there is a bias
NORMS = [
    (NormMode.BATCH_NORM, (4, 3, 5), (1, 3, 1), True),
    (NormMode.BATCH_NORM, (4, 3), (1, 3), True),
    (NormMode.BATCH_NORM, (2, 3, 4, 5), (1, 3, 1, 1), True),
    (NormMode.BATCH_NORM, (2, 3, 2, 3, 4), (1, 3, 1, 1, 1), True),
    (NormMode.INSTANCE_NORM, (2, 3, 7), (1, 3, 1), True),
    (NormMode.INSTANCE_NORM, (2, 3, 4, 5), (1, 3, 1, 1), True),
    (NormMode.INSTANCE_NORM, (2, 3, 2, 3, 4), (1, 3, 1, 1, 1), True),
    (NormMode.LAYER_NORM, (6, 8), (1, 8), True),
    (NormMode.LAYER_NORM, (2, 3, 4, 5), (1, 3, 4, 5), True),
    (NormMode.LAYER_NORM, (2, 6, 8), (1, 1, 8), True),
    (NormMode.RMS_NORM, (2, 6, 8), (1, 1, 8), False),
    (NormMode.RMS_NORM, (6, 3, 4), (1, 3, 4), True),
    (NormMode.ADA_LAYER_NORM, (2, 6, 8), (2, 1, 8), True),
    (NormMode.ADA_LAYER_NORM, (6, 2, 8), (1, 2, 8), True),
]
NORM_IDS = [f"{mode.name.lower()}-{'x'.join(map(str, x))}" for mode, x, _, _ in NORMS]
TOLERANCE = {"f64": 1e-10, "f32": 2e-4, "f16": 2e-2, "bf16": 2e-1}
EPSILON = 1e-3


class NormProblem:
    """Tensors, values and PyTorch's results of one normalization."""

    def __init__(self, case: tuple[Any, ...], kind: str, layout: str) -> None:
        import torch

        self.mode, x, scale, has_bias = case
        self.kind, self.layout = kind, layout
        self.math = "f64" if kind == "f64" else "f32"
        self.axes = {
            NormMode.BATCH_NORM: tuple(a for a in range(len(x)) if a != 1),
            NormMode.INSTANCE_NORM: tuple(range(2, len(x))),
            NormMode.ADA_LAYER_NORM: (len(x) - 1,),
        }.get(self.mode, layer_axes(x, scale))
        self.statistic = tuple(1 if a in self.axes else extent for a, extent in enumerate(x))
        rng = np.random.default_rng(len(x))
        dtype = ELEMENTS[data_type_of(kind)].numpy
        self.x, self.dy = (rng.standard_normal(x).astype(dtype) for _ in range(2))
        self.scale = rng.standard_normal(scale).astype(ELEMENTS[data_type_of(self.math)].numpy)
        self.bias = rng.standard_normal(scale).astype(self.scale.dtype) if has_bias else None
        arrays = (self.x, self.scale, self.bias)
        leaves = [None if a is None else torch.tensor(a.astype(np.float64), requires_grad=True) for a in arrays]
        y = normalized(self.mode, *leaves, self.axes, EPSILON)
        y.backward(torch.tensor(self.dy.astype(np.float64)))
        self.y = y.detach().numpy()
        self.dx, self.dscale, self.dbias = (None if leaf is None else leaf.grad.numpy() for leaf in leaves)
        wide = self.x.astype(np.float64)
        self.mean = None if self.mode is NormMode.RMS_NORM else wide.mean(self.axes, keepdims=True)
        deviation = wide if self.mean is None else wide - self.mean
        self.inv = 1 / np.sqrt((deviation**2).mean(self.axes, keepdims=True) + EPSILON)

    def close(self, found: Array, expected: Array) -> None:
        near = TOLERANCE[self.kind]
        np.testing.assert_allclose(
            found.astype(np.float64), expected, rtol=near, atol=near * max(1, np.abs(expected).max())
        )

    def data_tensor(self, uid: int) -> TensorSpec:
        return tensor(uid, self.x.shape, self.kind, self.layout)

    def parameter(self, uid: int) -> TensorSpec:
        return tensor(uid, self.scale.shape, self.math)

    def statistics(self) -> dict[str, TensorSpec]:
        """mean 5 and inv_variance 6; RMS has no mean."""
        both = {"mean": 5, "inv_variance": 6}
        return {
            port: tensor(uid, self.statistic, self.math, "gaps")
            for port, uid in both.items()
            if port != "mean" or self.mean is not None
        }

    def forward(self, phase: NormPhase, **fields: Any) -> NormForward:
        return NormForward(
            mode=self.mode, phase=phase, math_type=self.math, x=self.data_tensor(1), y=self.data_tensor(2),
            scale=self.parameter(3), bias=None if self.bias is None else self.parameter(4), **fields,
        )  # fmt: skip

    @property
    def inputs(self) -> dict[int, Any]:
        given = {1: self.x, 3: self.scale, 4: self.bias, 7: EPSILON}
        return {uid: value for uid, value in given.items() if value is not None}


@pytest.fixture(
    params=[(c, k) for c in NORMS for k in TOLERANCE], ids=[f"{i}-{k}" for i in NORM_IDS for k in TOLERANCE]
)
def norm(request: pytest.FixtureRequest) -> NormProblem:
    pytest.importorskip("torch")
    case, kind = request.param
    return NormProblem(case, kind, "channels_last" if kind == "f32" else "gaps")


@torch_only
def test_norm_training_equals_pytorch(norm: NormProblem) -> None:
    epsilon = scalar(7, norm.x.ndim, norm.math)
    found = execute(norm.forward(NormPhase.TRAINING, epsilon=epsilon, **norm.statistics()), norm.inputs)
    norm.close(found[2], norm.y)
    norm.close(found[6], norm.inv)
    if norm.mean is not None:
        norm.close(found[5], norm.mean)
    Tally("norm against PyTorch").add()


@torch_only
def test_norm_inference_equals_pytorch(norm: NormProblem) -> None:
    """With given statistics, and but for batch norm also with statistics of x itself."""
    statistics = {5: norm.mean, 6: norm.inv} if norm.mean is not None else {6: norm.inv}
    inputs = {uid: value for uid, value in norm.inputs.items() if uid != 7} | statistics
    norm.close(one(norm.forward(NormPhase.INFERENCE, **norm.statistics()), inputs), norm.y)
    if norm.mode is not NormMode.BATCH_NORM:
        norm.close(
            one(norm.forward(NormPhase.INFERENCE, epsilon=scalar(7, norm.x.ndim, norm.math)), norm.inputs), norm.y
        )
    Tally("norm against PyTorch").add()


@torch_only
@pytest.mark.parametrize("saved", [True, False])
def test_norm_backward_equals_autograd(norm: NormProblem, saved: bool) -> None:
    """From saved statistics, and with statistics computed again."""
    epsilon = None if saved else scalar(7, norm.x.ndim, norm.math)
    op = NormBackward(
        mode=norm.mode, math_type=norm.math, x=norm.data_tensor(1), dy=norm.data_tensor(8), dx=norm.data_tensor(9),
        scale=norm.parameter(3), dscale=norm.parameter(10), dbias=None if norm.bias is None else norm.parameter(11),
        epsilon=epsilon, **(norm.statistics() if saved else {}),
    )  # fmt: skip
    given = {1: norm.x, 8: norm.dy, 3: norm.scale, 5: norm.mean, 6: norm.inv, 7: EPSILON}
    found = execute(op, {t.uid: given[t.uid] for t in op.inputs().values()})
    norm.close(found[9], norm.dx)
    norm.close(found[10], norm.dscale)
    if norm.bias is not None:
        norm.close(found[11], norm.dbias)
    Tally("norm against PyTorch").add()


def channel(uid: int, kind: str = "f64", **fields: Any) -> TensorSpec:
    return tensor(uid, (1, 3, 1, 1), kind, **fields)


X_DIMS = (4, 3, 5, 2)


def batch_norm_values() -> dict[str, Array]:
    rng = np.random.default_rng(7)
    values = {name: rng.standard_normal((1, 3, 1, 1)) for name in ("scale", "bias", "old_mean")}
    values |= {name: rng.standard_normal(X_DIMS) for name in ("x", "dy")}
    return values | {"old_var": rng.random((1, 3, 1, 1)) + 0.5}


def torch_batch_norm(values: dict[str, Array], momentum: float) -> dict[str, Array]:
    import torch

    leaves = {name: torch.tensor(values[name], requires_grad=True) for name in ("x", "scale", "bias")}
    mean, var = (torch.tensor(values[name].ravel()) for name in ("old_mean", "old_var"))
    y = torch.nn.functional.batch_norm(
        leaves["x"], mean, var, leaves["scale"].flatten(), leaves["bias"].flatten(), True, momentum, EPSILON
    )
    y.backward(torch.tensor(values["dy"]))
    gradients = {f"d{name}": leaf.grad.numpy() for name, leaf in leaves.items()}
    return {"y": y.detach().numpy(), "mean": mean.numpy(), "var": var.numpy(), **gradients}


@torch_only
def test_running_statistics_equal_pytorch() -> None:
    """By a norm operation; PyTorch's running variance is the unbiased one, too."""
    pytest.importorskip("torch")
    values, momentum = batch_norm_values(), 0.3
    expected = torch_batch_norm(values, momentum)
    op = NormForward(
        mode=NormMode.BATCH_NORM, phase=NormPhase.TRAINING, math_type="f64", x=tensor(1, X_DIMS, "f64"),
        y=tensor(2, X_DIMS, "f64"), scale=channel(3), bias=channel(4), epsilon=scalar(5, 4, "f64"),
        momentum=scalar(6, 4, "f64"), input_running_mean=channel(7), input_running_var=channel(8),
        output_running_mean=channel(9), output_running_var=channel(10),
    )  # fmt: skip
    inputs = {1: values["x"], 3: values["scale"], 4: values["bias"], 5: EPSILON, 6: momentum}
    found = execute(op, inputs | {7: values["old_mean"], 8: values["old_var"]})
    for uid, name in ((2, "y"), (9, "mean"), (10, "var")):
        np.testing.assert_allclose(found[uid].ravel(), expected[name].ravel(), rtol=1e-11, atol=1e-12)


@torch_only
def test_batch_norm_from_its_building_blocks_equals_pytorch() -> None:
    """genstats -> finalize -> x * eq_scale + eq_bias, in one graph of several kernels."""
    pytest.importorskip("torch")
    values, momentum = batch_norm_values(), 0.3
    expected = torch_batch_norm(values, momentum)
    x, y = tensor(1, X_DIMS, "f64", "channels_last"), tensor(2, X_DIMS, "f64", "gaps")
    inner = {uid: channel(uid, is_virtual=True) for uid in (20, 21, 22, 23)}
    scaled = tensor(24, X_DIMS, "f64", is_virtual=True)
    operations: list[Operation] = [
        GenStats(x=x, sum=inner[20], sqsum=inner[21], math_type="f64"),
        BnFinalize(
            mode=BnFinalizeStatsMode.TRAINING, math_type="f64", y_sum=inner[20], y_sq_sum=inner[21], scale=channel(3),
            bias=channel(4), previous_running_mean=channel(7), previous_running_var=channel(8),
            updated_running_mean=channel(9), updated_running_var=channel(10), saved_mean=channel(11),
            saved_inv_std=channel(12), eq_scale=inner[22], eq_bias=inner[23], epsilon=scalar(5, 4, "f64"),
            momentum=scalar(6, 4, "f64"), accumulation_count=scalar(13, 4, "i64"),
        ),
        pointwise(P.MUL, "f64", [x, inner[22]], scaled),
        pointwise(P.ADD, "f64", [scaled, inner[23]], y),
    ]  # fmt: skip
    inputs = {1: values["x"], 3: values["scale"], 4: values["bias"], 5: EPSILON, 6: momentum, 13: 40}
    found = execute(operations, inputs | {7: values["old_mean"], 8: values["old_var"]})
    mean = values["x"].mean((0, 2, 3))
    inv_std = 1 / np.sqrt(values["x"].var((0, 2, 3)) + EPSILON)
    for uid, wanted in ((2, expected["y"]), (9, expected["mean"]), (10, expected["var"]), (11, mean), (12, inv_std)):
        np.testing.assert_allclose(found[uid].ravel(), wanted.ravel(), rtol=1e-10, atol=1e-11)


@torch_only
def test_batch_norm_gradients_from_building_blocks_equal_autograd() -> None:
    """dscale, dbias, and dx = A * dy + B * x + C."""
    pytest.importorskip("torch")
    values = batch_norm_values()
    expected = torch_batch_norm(values, 0.1)
    op = BnBackwardWeights(
        math_type="f64", x=tensor(1, X_DIMS, "f64", "gaps"), dy=tensor(2, X_DIMS, "f64", "channels_last"),
        mean=channel(3), inv_std=channel(4), scale=channel(5), dscale=channel(6), dbias=channel(7),
        eq_dy_scale=channel(8), eq_x_scale=channel(9), eq_bias=channel(10),
    )  # fmt: skip
    mean = values["x"].mean((0, 2, 3), keepdims=True)
    inv_std = 1 / np.sqrt(values["x"].var((0, 2, 3), keepdims=True) + EPSILON)
    found = execute(op, {1: values["x"], 2: values["dy"], 3: mean, 4: inv_std, 5: values["scale"]})
    dx = found[8] * values["dy"] + found[9] * values["x"] + found[10]
    for result, name in ((found[6], "dscale"), (found[7], "dbias"), (dx, "dx")):
        np.testing.assert_allclose(result, expected[name], rtol=1e-10, atol=1e-11)


def test_finalization_in_inference_reads_only_the_running_statistics() -> None:
    values = batch_norm_values()
    names = ("y_sum", "y_sq_sum", "scale", "bias", "previous_running_mean", "previous_running_var")
    outputs = ("saved_mean", "saved_inv_std", "eq_scale", "eq_bias")
    ports = {name: channel(uid) for uid, name in enumerate((*names, *outputs), start=1)}
    op = BnFinalize(
        mode=BnFinalizeStatsMode.INFERENCE, math_type="f64", **ports, epsilon=scalar(20, 4, "f64"),
        momentum=scalar(21, 4, "f64"), accumulation_count=scalar(22, 4, "i64"),
    )  # fmt: skip
    unused = {1: np.full((1, 3, 1, 1), np.nan), 2: np.full((1, 3, 1, 1), np.nan), 21: np.nan, 22: 0}
    found = execute(
        op, unused | {3: values["scale"], 4: values["bias"], 5: values["old_mean"], 6: values["old_var"], 20: EPSILON}
    )
    expected = (values["x"] - values["old_mean"]) / np.sqrt(values["old_var"] + EPSILON) * values["scale"] + values[
        "bias"
    ]
    np.testing.assert_allclose(found[9] * values["x"] + found[10], expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("dims", [(5, 3), (4, 3, 6), (2, 3, 4, 5), (2, 3, 2, 3, 2)])
@pytest.mark.parametrize("kind", ["f64", "f32", "f16", "bf16"])
def test_sums_per_channel(kind: str, dims: tuple[int, ...]) -> None:
    per_channel = (1, 3, *(1,) * (len(dims) - 2))
    math_type = "f64" if kind == "f64" else "f32"
    x = tensor(1, dims, kind, "channels_last")
    op = GenStats(
        x=x, sum=tensor(2, per_channel, math_type), sqsum=tensor(3, per_channel, math_type), math_type=math_type
    )
    data = values_of(x, np.random.default_rng(0)).astype(np.float64)
    axes = tuple(a for a in range(len(dims)) if a != 1)
    found = execute(op, {1: data})
    near = 1e-12 if kind == "f64" else 1e-5
    np.testing.assert_allclose(found[2], data.sum(axes, keepdims=True), rtol=near, atol=near)
    np.testing.assert_allclose(found[3], (data**2).sum(axes, keepdims=True), rtol=near, atol=near)

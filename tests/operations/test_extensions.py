"""Extension operations: values against PyTorch and loops, gradients by differences, files, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from extension_cases import LEGAL_EXTENSIONS, extension
from legal_problems import convolution, tensor

from graphdnn import build, files, fuse, graph_to_json
from graphdnn.engines.host.grid_sample import sample, sample_backward
from graphdnn.enums import ConvolutionMode
from graphdnn.errors import NotSupported
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.pipeline import rank

RNG = np.random.default_rng(11)


def run(op: Any, **data: np.ndarray) -> dict[str, np.ndarray]:
    """One operation on the host; outputs hold NaN before."""
    plan = build(OperationGraph.of([op]))
    arrays = {op.inputs()[port].uid: values for port, values in data.items()}
    outputs = {p: np.full(t.extents, np.nan, np.float32) for p, t in op.outputs().items()}
    plan.execute({**arrays, **{op.outputs()[p].uid: a for p, a in outputs.items()}}, plan.new_workspace())
    return outputs


def image() -> np.ndarray:
    return RNG.standard_normal((2, 3, 4, 5)).astype(np.float32)


def grid() -> np.ndarray:
    found = RNG.uniform(-1.4, 1.4, (2, 3, 6, 2)).astype(np.float32)
    found[0, 0, :3] = [[-1, -1], [1, 1], [1, -1]]  # corners lie on elements
    return found


@pytest.mark.torch
def test_grid_sample_against_torch() -> None:
    torch = pytest.importorskip("torch")
    x, g, dy = image(), grid(), RNG.standard_normal((2, 3, 3, 6)).astype(np.float32)
    tx, tg = (torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in (x, g))
    ty = torch.nn.functional.grid_sample(tx, tg, padding_mode="zeros", align_corners=True)
    ty.backward(torch.tensor(dy, dtype=torch.float64))
    y = run(extension("grid_sample"), x=x, grid=g)["y"]
    np.testing.assert_allclose(y, ty.detach().numpy(), rtol=1e-5, atol=1e-5)
    found = run(extension("grid_sample_bwd"), x=x, grid=g, dy=dy)
    np.testing.assert_allclose(found["dx"], tx.grad.numpy(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found["dgrid"][1], tg.grad.numpy()[1], rtol=1e-4, atol=1e-4)


def test_grid_sample_gradients_by_differences() -> None:
    x = RNG.standard_normal((1, 2, 4, 5))
    g = (RNG.integers(0, 4, (1, 3, 3, 2)) + RNG.uniform(0.2, 0.8, (1, 3, 3, 2))) / np.array([2, 1.5]) - 1
    dy = RNG.standard_normal((1, 2, 3, 3))
    dx, dgrid = sample_backward(x, g, dy)
    for values, gradient in ((x, dx), (g, dgrid)):
        for place in np.ndindex(*values.shape):
            kept, step = values[place], 1e-6
            values[place] = kept + step
            above = (sample(x, g) * dy).sum()
            values[place] = kept - step
            below = (sample(x, g) * dy).sum()
            values[place] = kept
            assert (above - below) / (2 * step) == pytest.approx(gradient[place], abs=1e-7)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30])
def test_positions_that_are_nowhere_read_nothing(bad: float) -> None:
    x, g = image(), np.zeros((2, 3, 6, 2), np.float32)
    g[:, 1, 2, 0] = bad
    y = run(extension("grid_sample"), x=x, grid=g)["y"]
    assert (y[:, :, 1, 2] == 0).all()
    assert np.isfinite(y).all()
    found = run(extension("grid_sample_bwd"), x=x, grid=g, dy=np.ones_like(y))
    assert np.isfinite(found["dx"]).all()
    assert (found["dgrid"][:, 1, 2] == 0).all()


@pytest.mark.parametrize("mode", ConvolutionMode)
@pytest.mark.parametrize(("padding", "stride", "dilation"), [((0, 0), (1, 1), (1, 1)), ((1, 2), (2, 1), (1, 2))])
def test_patches_against_loops(mode: ConvolutionMode, padding: Any, stride: Any, dilation: Any) -> None:
    x, taps = image(), (2, 3)
    places = tuple((x.shape[i + 2] + 2 * padding[i] - dilation[i] * (taps[i] - 1) - 1) // stride[i] + 1 for i in (0, 1))
    wanted = np.zeros((3, *taps, 2, *places), np.float32)
    for c, r, s, n, p, q in np.ndindex(*wanted.shape):
        i, j = p * stride[0] + r * dilation[0] - padding[0], q * stride[1] + s * dilation[1] - padding[1]
        tap = (r, s) if mode is ConvolutionMode.CROSS_CORRELATION else (1 - r, 2 - s)
        if 0 <= i < 4 and 0 <= j < 5:
            wanted[c, tap[0], tap[1], n, p, q] = x[n, c, i, j]
    matrix = wanted.reshape(18, -1)
    conv = convolution(
        mode=mode, pre_paddings=padding, post_paddings=padding, filter_strides=stride, dilations=dilation
    )
    op = extension("patches", y=tensor(2, matrix.shape), taps=taps, conv=conv)
    np.testing.assert_array_equal(run(op, x=x)["y"], matrix)


@pytest.mark.parametrize("tag", LEGAL_EXTENSIONS)
def test_they_go_through_files_and_fusion(tag: str) -> None:
    graph = OperationGraph.of([extension(tag)])
    again = files.graph_from_json(graph_to_json(graph))
    assert again.key == graph.key
    (fused,) = fuse(again)
    assert fused.rule == "extension"


@pytest.mark.parametrize("tag", LEGAL_EXTENSIONS)
def test_a_device_has_an_engine_or_says_why_not(tag: str) -> None:
    graph = OperationGraph.of([extension(tag)])
    if tag in ("grid_sample", "grid_sample_bwd", "patches"):
        assert rank(graph, "h200").best.choices[0].engine.places == ("cuda",)
        return
    try:
        build(graph, "h200")
    except NotSupported as error:
        assert all(r.reason and r.fix for r in error.rejections)

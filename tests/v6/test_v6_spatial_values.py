"""Values of the spatial transformer: grids and samples against PyTorch, with its corners on the outermost elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from v6_tools import NUMPY, tensor
from v6_values import BLENDS, before, blended, close, drawn

from graphdnn import v6

TYPES = [v6.CUDNN_DATA_FLOAT, v6.CUDNN_DATA_DOUBLE]


def transformer(dims: Any, kind: Any = v6.CUDNN_DATA_FLOAT) -> Any:
    desc = v6.cudnnCreateSpatialTransformerDescriptor()
    v6.cudnnSetSpatialTransformerNdDescriptor(desc, v6.CUDNN_SAMPLER_BILINEAR, kind, len(dims), dims)
    return desc


def test_grid_anchor(handle: Any) -> None:
    theta, grid = np.float32([[[0.5, 0, 0.25], [0, 1, 0]]]), np.full((1, 2, 3, 2), np.nan, np.float32)
    v6.cudnnSpatialTfGridGeneratorForward(handle, transformer((1, 1, 2, 3)), theta, grid)
    assert grid[0, 0].tolist() == [[-0.25, -1], [0.25, -1], [0.75, -1]]
    assert grid[0, 1].tolist() == [[-0.25, 1], [0.25, 1], [0.75, 1]]


@pytest.mark.torch
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.filterwarnings("ignore:Since version")  # about axes of extent 1
@pytest.mark.parametrize("dims", [(2, 3, 4, 5), (1, 1, 7, 2), (3, 2, 1, 6), (2, 1, 1, 1)])
def test_grid_generator(handle: Any, kind: Any, dims: Any) -> None:
    torch = pytest.importorskip("torch")
    theta = drawn((dims[0], 2, 3), kind)
    dgrid = drawn((dims[0], *dims[2:], 2), kind)
    tt = torch.tensor(theta, dtype=torch.float64, requires_grad=True)
    wanted = torch.nn.functional.affine_grid(tt, dims, align_corners=True)
    wanted.backward(torch.tensor(dgrid, dtype=torch.float64))
    grid, dtheta = np.full(wanted.shape, np.nan, NUMPY[kind]), np.full(theta.shape, np.nan, NUMPY[kind])
    v6.cudnnSpatialTfGridGeneratorForward(handle, transformer(dims, kind), theta, grid)
    v6.cudnnSpatialTfGridGeneratorBackward(handle, transformer(dims, kind), dgrid, dtheta)
    close(grid, wanted.detach().numpy())
    close(dtheta, tt.grad.numpy())


@pytest.mark.torch
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(("alpha", "beta"), BLENDS)
@pytest.mark.parametrize(("dims", "source"), [((2, 3, 4, 5), (6, 3)), ((1, 2, 5, 5), (5, 5)), ((2, 1, 3, 2), (1, 4))])
def test_sampler(handle: Any, kind: Any, alpha: float, beta: float, dims: Any, source: Any) -> None:
    torch = pytest.importorskip("torch")
    x, dy = drawn((*dims[:2], *source), kind), drawn(dims, kind)
    grid = (1.3 * np.tanh(drawn((dims[0], *dims[2:], 2), kind))).astype(NUMPY[kind])
    tx, tg = (torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in (x, grid))
    ty = torch.nn.functional.grid_sample(tx, tg, padding_mode="zeros", align_corners=True)
    ty.backward(torch.tensor(dy, dtype=torch.float64))
    desc, x_desc, y_desc = transformer(dims, kind), tensor(x.shape, kind=kind), tensor(dims, kind=kind)
    y, dx, dgrid = before(dims, beta, kind), before(x.shape, beta, kind), before(grid.shape, beta, kind)
    wanted = [blended(r, alpha, beta, old) for r, old in ((ty.detach(), y), (tx.grad, dx), (tg.grad, dgrid))]
    v6.cudnnSpatialTfSamplerForward(handle, desc, alpha, x_desc, x, grid, beta, y_desc, y)
    v6.cudnnSpatialTfSamplerBackward(
        handle, desc, alpha, x_desc, x, beta, x_desc, dx, alpha, y_desc, dy, grid, beta, dgrid
    )
    for found, want in zip((y, dx, dgrid), wanted, strict=True):
        close(found, want, 1e-4)


def test_sampler_blends_its_gradients_apart(handle: Any) -> None:
    dims = (1, 1, 2, 2)
    desc, d = transformer(dims), tensor(dims)
    x, dy, grid = drawn(dims), drawn(dims), (0.5 * np.tanh(drawn((1, 2, 2, 2)))).astype(np.float32)
    plain = [np.empty(dims, np.float32), np.empty((1, 2, 2, 2), np.float32)]
    v6.cudnnSpatialTfSamplerBackward(handle, desc, 1.0, d, x, 0.0, d, plain[0], 1.0, d, dy, grid, 0.0, plain[1])
    dx, dgrid = before(dims, 1.0), before((1, 2, 2, 2), 1.0)
    wanted = blended(plain[0], 2.0, 0.5, dx), blended(plain[1], 3.0, 0.25, dgrid)
    v6.cudnnSpatialTfSamplerBackward(handle, desc, 2.0, d, x, 0.5, d, dx, 3.0, d, dy, grid, 0.25, dgrid)
    close(dx, wanted[0])
    close(dgrid, wanted[1])

"""Spatial transformers: the grid generator as products and sums, the sampler as an extension operation.

A grid's positions run from -1 to 1 with the corners on the outermost elements. The generator multiplies theta with
(x, y, 1) over a fifth axis of extent 3 and sums along it; its gradient sums the same products over the positions.
"""

from __future__ import annotations

from typing import Any

from graphdnn.enums import DataType, PointwiseMode, ReductionOperator, Status
from graphdnn.operations import GridSample, GridSampleBackward
from graphdnn.tensors import TensorSpec, packed_strides
from graphdnn.v6.call_graph import Draft, math_of
from graphdnn.v6.descriptor_checks import rank_in, same_dims, same_type
from graphdnn.v6.descriptor_values import Descriptor, Handle, Ints, SpatialTransformer, Tensor
from graphdnn.v6.enums import cudnnTensorFormat_t
from graphdnn.v6.layouts import element_of, format_strides
from graphdnn.v6.plan_cache import prepared
from graphdnn.v6.pointwise_subgraphs import compare
from graphdnn.v6.registry import implements

P = PointwiseMode


def _flat(where: str, transformer: SpatialTransformer) -> Ints:
    """N, C, H, W of the output. Raises for volumes."""
    rank_in(where, "stDesc", len(transformer.dims), 4, 4)
    return transformer.dims


def _theta(
    draft: Draft, index: int, transformer: SpatialTransformer, name: str, *, is_copy: bool = False
) -> TensorSpec:
    dims = (transformer.dims[0], 1, 1, 2, 3)
    element = element_of(transformer.data_type)[0]
    return draft.view(index, element, dims, packed_strides(dims), name, is_copy=is_copy)


def _grid(draft: Draft, index: int, transformer: SpatialTransformer, name: str, *, is_copy: bool = False) -> TensorSpec:
    n, _, h, w = transformer.dims
    dims = (n, h, w, 2, 1)
    element = element_of(transformer.data_type)[0]
    return draft.view(index, element, dims, packed_strides(dims), name, is_copy=is_copy)


def _coordinates(draft: Draft, math: DataType, grid: TensorSpec, theta: TensorSpec) -> TensorSpec:
    """(x, y, 1) at each position along the last axis; of the two tensors only the extents are read."""

    def constant(number: float) -> TensorSpec:
        return draft.constant(number, grid, math)

    def along(axis: int) -> TensorSpec:
        """-1 to 1 by equal steps, the ends exact; 0 where there is one position."""
        last = grid.dims[axis] - 1
        if last == 0:
            return constant(0.0)
        twice = draft.pointwise(P.SUB, math, draft.pointwise(P.GEN_INDEX, math, grid, axis=axis),
                                constant(float(last)), alpha1=2.0)  # fmt: skip
        return draft.pointwise(P.DIV, math, twice, constant(float(last)))

    which = draft.pointwise(P.GEN_INDEX, math, theta, axis=4)
    is_y = compare(draft, P.CMP_EQ, math, which, constant(1.0))
    is_x = compare(draft, P.CMP_LT, math, which, constant(1.0))
    y_or_one = draft.pointwise(P.BINARY_SELECT, math, along(1), constant(1.0), is_y)
    return draft.pointwise(P.BINARY_SELECT, math, along(2), y_or_one, is_x)


@implements("cudnnSpatialTfGridGeneratorForward", "pointwise, reduction", "PyTorch")
def generate(handle: Handle, desc: Descriptor, theta: Any, grid: Any) -> None:
    """grid[n, h, w] = theta[n] * (x, y, 1)."""
    where, transformer = "cudnnSpatialTfGridGeneratorForward", desc.value

    def draw(draft: Draft) -> None:
        _flat(where, transformer)
        math = math_of(transformer.data_type)
        weights = _theta(draft, 0, transformer, "theta")
        shape = _grid(draft, 1, transformer, "grid before", is_copy=True)
        products = draft.pointwise(P.MUL, math, weights, _coordinates(draft, math, shape, weights))
        draft.reduce(ReductionOperator.ADD, math, products, out=_grid(draft, 1, transformer, "grid"))

    prepared(where, handle, transformer, draw)((theta, grid))


@implements("cudnnSpatialTfGridGeneratorBackward", "pointwise, reduction", "PyTorch")
def generate_backward(handle: Handle, desc: Descriptor, dgrid: Any, dtheta: Any) -> None:
    """dtheta[n] = the sum of dgrid[n, h, w] times (x, y, 1)."""
    where, transformer = "cudnnSpatialTfGridGeneratorBackward", desc.value

    def draw(draft: Draft) -> None:
        _flat(where, transformer)
        math = math_of(transformer.data_type)
        gradient = _grid(draft, 0, transformer, "dgrid")
        shape = _theta(draft, 1, transformer, "dtheta before", is_copy=True)
        products = draft.pointwise(P.MUL, math, gradient, _coordinates(draft, math, gradient, shape))
        draft.reduce(ReductionOperator.ADD, math, products, out=_theta(draft, 1, transformer, "dtheta"))

    prepared(where, handle, transformer, draw)((dgrid, dtheta))


def _grid_value(transformer: SpatialTransformer) -> Tensor:
    n, _, h, w = transformer.dims
    dims = (n, h, w, 2)
    return Tensor(transformer.data_type, dims, format_strides(cudnnTensorFormat_t.CUDNN_TENSOR_NCHW, dims))


def _check(where: str, transformer: SpatialTransformer, x: tuple[str, Tensor], y: tuple[str, Tensor]) -> None:
    """x has any height and width, y those of the transformer; one element type."""
    _flat(where, transformer)
    for name, value in (x, y):
        rank_in(where, name, len(value.dims), 4, 4, Status.NOT_SUPPORTED)
    same_dims(where, "the transformer describes the output", {"stDesc": transformer, y[0]: y[1]})
    same_dims(where, "images and channels stay", {"stDesc": transformer, x[0]: Tensor(
        x[1].data_type, (*x[1].dims[:2], *transformer.dims[2:]), x[1].strides)})  # fmt: skip
    same_type(where, {"stDesc": transformer, x[0]: x[1], y[0]: y[1]})


@implements("cudnnSpatialTfSamplerForward", "grid_sample, pointwise", "PyTorch")
def sample(handle: Handle, desc: Descriptor, alpha: float, x_desc: Descriptor, x: Any, grid: Any, beta: float,
           y_desc: Descriptor, y: Any) -> None:  # fmt: skip
    """y = alpha * (x interpolated at the grid's positions) + beta * y; 0 outside of x."""
    where, transformer, xv, yv = "cudnnSpatialTfSamplerForward", desc.value, x_desc.value, y_desc.value

    def draw(draft: Draft) -> None:
        _check(where, transformer, ("xDesc", xv), ("yDesc", yv))
        math = math_of(xv.data_type)
        source, positions = draft.memory(0, xv, "x"), draft.memory(1, _grid_value(transformer), "grid")
        out = draft.target(2, yv, "y", alpha, beta, math)
        draft.add(GridSample(x=source, grid=positions, y=out, arithmetic=math))
        draft.settle(out, 2, yv, "y", alpha, beta, math)

    prepared(where, handle, (transformer, xv, yv, alpha, beta), draw)((x, grid, y))


@implements("cudnnSpatialTfSamplerBackward", "grid_sample_bwd, pointwise", "PyTorch")
def sample_backward(
    handle: Handle, desc: Descriptor, alpha: float, x_desc: Descriptor, x: Any, beta: float, dx_desc: Descriptor,
    dx: Any, alpha_grid: float, dy_desc: Descriptor, dy: Any, grid: Any, beta_grid: float, dgrid: Any,
) -> None:  # fmt: skip
    """Gradients of the images and of the grid, each blended with its own factors."""
    where, transformer = "cudnnSpatialTfSamplerBackward", desc.value
    xv, dxv, dyv = x_desc.value, dx_desc.value, dy_desc.value
    grid_value = _grid_value(transformer) if len(transformer.dims) == 4 else None

    def draw(draft: Draft) -> None:
        rank_in(where, "dxDesc", len(dxv.dims), 4, 4)
        _check(where, transformer, ("xDesc", xv), ("dyDesc", dyv))
        same_dims(where, "dx is the gradient of x", {"xDesc": xv, "dxDesc": dxv})
        same_type(where, {"xDesc": xv, "dxDesc": dxv})
        assert grid_value is not None  # volumes are refused
        math = math_of(xv.data_type)
        source, positions = draft.memory(0, xv, "x"), draft.memory(3, grid_value, "grid")
        gradient = draft.memory(2, dyv, "dy")
        image = draft.target(1, dxv, "dx", alpha, beta, math)
        by_grid = draft.target(4, grid_value, "dgrid", alpha_grid, beta_grid, math)
        draft.add(GridSampleBackward(x=source, grid=positions, dy=gradient, dx=image, dgrid=by_grid, arithmetic=math))
        draft.settle(image, 1, dxv, "dx", alpha, beta, math)
        draft.settle(by_grid, 4, grid_value, "dgrid", alpha_grid, beta_grid, math)

    settings = (transformer, xv, dxv, dyv, alpha, beta, alpha_grid, beta_grid)
    prepared(where, handle, settings, draw)((x, dx, dy, grid, dgrid))

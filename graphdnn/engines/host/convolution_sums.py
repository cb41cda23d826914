"""The sums of a blocked convolution: patches times filters, and dy times patches, a part of the filter and a block of
positions at a time (see ``convolution``).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphdnn.engines.host.convolution_blocks import (
    Buffers,
    Plan,
    few_outputs,
    parts_of,
    patches_of,
    plan_for,
    slices,
    window_of,
    without_gaps,
)
from graphdnn.engines.host.convolution_matrices import (
    collapse,
    for_blas,
    has_positions_inner,
    is_channels_last,
    is_transposed,
    matrices,
    multiply,
    spatial,
    stack,
)
from graphdnn.engines.host.integers import exact_matmul
from graphdnn.operations.conv_problem import ConvProblem

Array = NDArray[Any]

_STACK_POSITIONS = 128  # outputs of one image from which a matrix product of its own pays


def correlate(problem: ConvProblem, x: Array, w: Array, y: Array, memory: Array, block_bytes: int | None) -> None:
    """y = the sum over channels and taps of w times patches of x."""
    plan = plan_for(problem, y.dtype, few_outputs(problem), block_bytes)
    buffers = plan.buffers(memory)
    for part in parts_of(problem, plan):
        sub, narrow = without_gaps(part.problem, x[part.x])
        fprop_part = _fprop_part_by_taps if plan.by_taps else _fprop_part
        fprop_part(sub, plan, narrow, w[part.w], y[part.y], part.adds, buffers)


def _fprop_part(problem: ConvProblem, plan: Plan, x: Array, w: Array, y: Array, adds: bool, buffers: Buffers) -> None:
    s, inner = problem.spatial, _channels_inner(problem, x, w)
    x_type, w_type = _operand_type(x, y.dtype), _operand_type(w, y.dtype)
    filter = matrices(_ordered(w, 2, inner), (1, 1, s + 1), w_type, buffers.filter, _outputs_last(w)).swapaxes(1, 2)
    for block in slices((problem.n, *problem.output), plan.block):
        target = _positions_first(_at(y, block))
        # In NCHW an image's outputs of one channel do not continue in the next image: a product for each, or a copy.
        merged = prod(target.shape[2:-1]) < _STACK_POSITIONS or collapse(target, 1, s + 1, 1) is not None
        groups = (1, s + 1) if merged else (1, 1, s)
        patches = _ordered(patches_of(problem, x, block, x_type, buffers.window), s + 2, inner)
        rows = matrices(patches, (*groups, s + 1), x_type, buffers.patches, has_positions_inner(x))
        b = filter if merged else filter[:, np.newaxis]
        _assign_product(rows, b, target, (*groups, 1), adds, buffers.rows, has_positions_inner(y))


def _fprop_part_by_taps(
    problem: ConvProblem, plan: Plan, x: Array, w: Array, y: Array, adds: bool, buffers: Buffers
) -> None:
    """Few outputs of many channels: the window times every tap's filter, and the products then moved and summed.

    What is moved is as many times smaller than patches as there are more channels than outputs.
    """
    s = problem.spatial
    x_type, w_type = _operand_type(x, y.dtype), _operand_type(w, y.dtype)
    filter = matrices(np.moveaxis(w, 2, -1), (1, s + 1, 1), w_type, buffers.filter, False)[:, np.newaxis]
    for block in slices((problem.n, *problem.output), plan.block):
        target = _positions_first(_at(y, block))
        window = _positions_first(window_of(problem, x, block, x_type, buffers.window, copy=True))
        columns = collapse(window, 1, 1, s, 1)
        assert columns is not None  # the window is contiguous
        products = _product(filter, columns.swapaxes(2, 3), y.dtype, buffers.patches, False)
        products = products.reshape(*window.shape[:2], *w.shape[1:2], *problem.filter, *window.shape[2:-1])
        for i, tap in enumerate(np.ndindex(*problem.filter)):
            moved = spatial(products, (*tap, *_reached(problem, tap, target)))
            _assign(np.moveaxis(moved, 2, -1), target, adds or i > 0)


def _reached(problem: ConvProblem, element: tuple[int, ...], target: Array) -> Iterator[slice]:
    """Where in a block's window each of its outputs, target's [g, n, *output, k], meets an element of the filter."""
    for axis, i in enumerate(element):
        tap = problem.filter[axis] - 1 - i if problem.flip else i
        start, outputs = tap * problem.dilation[axis], target.shape[2 + axis]
        yield slice(start, start + (outputs - 1) * problem.stride[axis] + 1, problem.stride[axis])


def sum_over_positions(
    problem: ConvProblem, x: Array, dy: Array, dw: Array, memory: Array, block_bytes: int | None
) -> None:
    """dw = the sum over images and positions of dy times patches of x."""
    plan = plan_for(problem, dw.dtype, False, block_bytes)
    buffers = plan.buffers(memory)
    for part in parts_of(problem, plan):
        sub, narrow = without_gaps(part.problem, x[part.x])
        _wgrad_part(sub, plan, narrow, dy[part.y], dw[part.w], buffers)


def _wgrad_part(problem: ConvProblem, plan: Plan, x: Array, dy: Array, dw: Array, buffers: Buffers) -> None:
    s, inner = problem.spatial, _channels_inner(problem, x, dw)
    x_type, dy_type = _operand_type(x, dw.dtype), _operand_type(dy, dw.dtype)
    target = _ordered(dw, 2, inner)
    for i, block in enumerate(slices((problem.n, *problem.output), plan.block)):
        outputs = _positions_first(_at(dy, block))
        rows = matrices(outputs, (1, s + 1, 1), dy_type, buffers.rows, has_positions_inner(dy))
        patches = _ordered(patches_of(problem, x, block, x_type, buffers.window), s + 2, inner)
        columns = matrices(patches, (1, s + 1, s + 1), x_type, buffers.patches, has_positions_inner(x))
        _assign_product(rows.swapaxes(1, 2), columns, target, (1, 1, s + 1), i > 0, buffers.filter, False)


def _assign_product(
    a: Array, b: Array, target: Array, groups: tuple[int, ...], adds: bool, buffer: Array, transposed: bool
) -> None:
    """target = a @ b, or += where ``adds``. ``groups`` merges target's axes into those of the product.

    Where the product is not made in place, it is made in the buffer, contiguous as ``transposed`` says.
    """
    direct = None if adds else for_blas(target, groups, target.dtype)
    if direct is not None and target.dtype.kind == "f" and is_transposed(direct) == transposed:
        multiply(a, b, direct)
    else:
        product = _product(a, b, target.dtype, buffer, transposed)
        _assign(product.reshape(target.shape), target, adds)  # reshape splits axes: a view


def _assign(values: Array, target: Array, adds: bool) -> None:
    if adds:
        np.add(target, values, out=target)
    else:
        np.copyto(target, values)


def _product(a: Array, b: Array, dtype: np.dtype[Any], buffer: Array, transposed: bool) -> Array:
    """a @ b for stacks of matrices; of floats in the buffer."""
    if dtype.kind == "i":
        return exact_matmul(a, b, dtype)
    product = stack(
        buffer, (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]), dtype, transposed
    )
    multiply(a, b, product)
    return product


def _operand_type(array: Array, compute: np.dtype[Any]) -> np.dtype[Any]:
    """What an operand's matrix is made in. Integers keep a narrower type of their own: less to copy, same values."""
    narrower = array.dtype.kind in "iu" and array.dtype.itemsize < compute.itemsize
    return array.dtype if compute.kind == "i" and narrower else compute


def _channels_inner(problem: ConvProblem, x: Array, w: Array) -> bool:
    """Order of the products that are summed: True for taps outside channels, as NHWC and KRSC have them.

    Copies of NHWC want the order of x, copies of NCHW go either way as fast; a filter larger than
    the patches decides for itself, since then it is the one that should not be copied.
    """
    patches_larger = problem.n * prod(problem.output) > problem.k
    return (is_channels_last(x) and patches_larger) or is_channels_last(w)


def _outputs_last(w: Array) -> bool:
    """True where the filter's K is its most closely packed axis."""
    others = [abs(stride) for stride, extent in zip(w.strides[2:], w.shape[2:], strict=True) if extent > 1]
    return w.shape[1] > 1 and bool(others) and abs(w.strides[1]) < min(others)


def _ordered(array: Array, channel: int, channels_inner: bool) -> Array:
    """Axes [..., c, *filter], with c at ``channel``, as [..., *filter, c] if channels are to be innermost."""
    return np.moveaxis(array, channel, -1) if channels_inner else array


def _at(array: Array, block: tuple[slice, ...]) -> Array:
    """The block (n, *output) of an array [n, g, k, *output]."""
    images, *outputs = block
    return array[(images, slice(None), slice(None), *outputs)]


def _positions_first(array: Array) -> Array:
    """[n, g, k, *output] as [g, n, *output, k]."""
    return array.transpose(1, 0, *range(3, array.ndim), 2)

"""Convolution as blocked im2col and matrix products, in NumPy alone.

The arithmetic of engine ``numpy_blocked``; ``convolution_taps`` beside it is the plain
statement of the same sums. There is one contraction here. Over taps i and channels c,

    patches[g, (n, p), (i, c)] = x[n, g, c, p*stride + i*dilation - pre_padding], or 0 outside x

fprop multiplies patches by the filter, wgrad multiplies dy by patches, and dgrad is fprop of dy
once dx is dealt out to the residues of its positions modulo the stride: of each residue
class the same taps meet dy at consecutive positions, which is a convolution of unit stride.

Patches are as many times larger than x as the filter has taps, so they are made for a block of
positions at a time, small enough that BLAS finds them in cache. A block is cut from x into a padded
window of the compute type, the window is read through an overlapping strided view, and
that view is copied into a matrix, with the loop over memory that x's own layout asks for. Each
copy is left out where the view before it will do; a 1x1 convolution has none at all. Where K is
several times smaller than C, patches are the larger side of the sum and are not made: fprop
multiplies the window by every tap's filter and adds the products up, shifted; wgrad is taken
from dgrad, with patches of dy. Filters of several megabytes are taken a part at a time, which bounds
all scratch. Depthwise convolutions are matrices of one column here; multiplying and
adding arrays a tap at a time passes over memory more often and takes twice as long.

Threads are BLAS's own. Two threads that run this on half of the images each make the large layers up to
a third slower while BLAS has two threads as well, and at best a tenth faster where it has one.

Integers are exact modulo 2**32 or 2**64: ``integers`` multiplies the matrices, and no sum leaves
it before it is an integer. Floats are summed in the compute type in BLAS's order. Padding
takes part as zeros, so a filter value that is infinite or NaN makes NaN of an output
whose window it reaches in the padding, as on the GPU; ``convolution_taps`` leaves padding out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphdnn.engines.host.convolution_blocks import few_outputs, plan_for
from graphdnn.engines.host.convolution_matrices import is_channels_last, spatial
from graphdnn.engines.host.convolution_residues import problems_of, reached_residues, reaches_every_position
from graphdnn.engines.host.convolution_sums import correlate, sum_over_positions
from graphdnn.operations.conv_problem import ConvProblem

Array = NDArray[Any]


@np.errstate(all="ignore")
def fprop(
    problem: ConvProblem,
    x: Array,
    w: Array,
    *,
    compute: np.dtype[Any],
    out: Array | None = None,
    scratch: Array | None = None,
    block_bytes: int | None = None,
) -> Array:
    """y ``[N, G, K, *output]`` from x ``[N, G, C, *input]`` and w ``[G, K, C, *filter]``, of any strides.

    ``compute`` is float32, float64, int32 or int64; operands of any type are converted to it. ``out`` is
    written and returned where given. ``scratch``, bytes, saves an allocation. ``block_bytes`` of patches are made
    at a time.
    Raises ``ValueError`` for extents that are not the problem's, an ``out`` of another type than
    ``compute``, or a scratch smaller than ``scratch_bytes``.
    """
    _check(x, problem.x_extents, "x")
    _check(w, problem.w_extents, "w")
    y = _result(out, problem.y_extents, compute, is_channels_last(x))
    correlate(problem, x, w, y, _scratch(scratch, problem, "fprop", y.dtype, block_bytes), block_bytes)
    return y


@np.errstate(all="ignore")
def dgrad(
    problem: ConvProblem,
    dy: Array,
    w: Array,
    *,
    compute: np.dtype[Any],
    out: Array | None = None,
    scratch: Array | None = None,
    block_bytes: int | None = None,
) -> Array:
    """dx ``[N, G, C, *input]`` from dy ``[N, G, K, *output]`` and w; positions the forward never reads get 0.

    Arguments and errors as for ``fprop``.
    """
    _check(dy, problem.y_extents, "dy")
    _check(w, problem.w_extents, "w")
    dx = _result(out, problem.x_extents, compute, is_channels_last(dy))
    memory = _scratch(scratch, problem, "dgrad", dx.dtype, block_bytes)
    if not reaches_every_position(problem):
        dx[...] = 0
    for residue in reached_residues(problem):
        target, taps = spatial(dx, residue.positions), spatial(w, residue.taps).swapaxes(1, 2)
        correlate(residue.problem, dy, taps, target, memory, block_bytes)
    return dx


@np.errstate(all="ignore")
def wgrad(
    problem: ConvProblem,
    x: Array,
    dy: Array,
    *,
    compute: np.dtype[Any],
    out: Array | None = None,
    scratch: Array | None = None,
    block_bytes: int | None = None,
) -> Array:
    """dw ``[G, K, C, *filter]`` from x and dy. Arguments and errors as for ``fprop``."""
    _check(x, problem.x_extents, "x")
    _check(dy, problem.y_extents, "dy")
    dw = _result(out, problem.w_extents, compute, is_channels_last(x), groups_first=True)
    memory = _scratch(scratch, problem, "wgrad", dw.dtype, block_bytes)
    if not few_outputs(problem):
        sum_over_positions(problem, x, dy, dw, memory, block_bytes)
        return dw
    # dgrad's problems have the same filter, and patches of dy are the smaller ones here.
    dw[...] = 0
    for residue in reached_residues(problem):
        reached = spatial(dw, residue.taps).swapaxes(1, 2)
        sum_over_positions(residue.problem, dy, spatial(x, residue.positions), reached, memory, block_bytes)
    return dw


def scratch_bytes(problem: ConvProblem, direction: str, compute: np.dtype[Any], block_bytes: int | None = None) -> int:
    """Bytes of scratch that "fprop", "dgrad" or "wgrad" uses whatever the operands' types and layouts: at most 128 MiB.

    Integers take temporary arrays of bounded size beside it, inside the exact matrix product.
    """
    dtype = np.dtype(compute)
    problems: Iterable[ConvProblem] = (problem,)
    if direction == "dgrad" or (direction == "wgrad" and few_outputs(problem)):
        problems = problems_of(problem)
    by_taps = direction != "wgrad"
    return max((plan_for(p, dtype, by_taps and few_outputs(p), block_bytes).bytes for p in problems), default=0)


def _check(array: Array, extents: tuple[int, ...], name: str) -> None:
    if array.shape != extents:
        raise ValueError(f"{name} has extents {array.shape}, the problem says {extents}")


def _result(
    out: Array | None,
    extents: tuple[int, ...],
    compute: np.dtype[Any],
    channels_last: bool,
    groups_first: bool = False,
) -> Array:
    dtype = np.dtype(compute)
    if dtype.kind not in "fi" or dtype.itemsize < 4:
        raise ValueError(f"convolutions are computed in float32, float64, int32 or int64, not {dtype}")
    if out is None:
        return _empty(extents, dtype, channels_last, groups_first)
    _check(out, extents, "out")
    if out.dtype != dtype:
        raise ValueError(f"out has type {out.dtype}, the arithmetic is in {dtype}")
    return out


def _empty(extents: Sequence[int], dtype: np.dtype[Any], channels_last: bool, groups_first: bool) -> Array:
    """A new array of three leading axes and spatial ones: NCHW or NHWC in memory, for filters KCRS or KRSC."""
    if not channels_last:
        return np.empty(extents, dtype)
    lead = 2 if groups_first else 1  # axes that stay in front of the spatial ones
    moved = (*extents[:lead], *extents[3:], *extents[lead:3])
    return np.moveaxis(np.empty(moved, dtype), range(lead - 3, 0), range(lead, 3))


def _scratch(
    scratch: Array | None, problem: ConvProblem, direction: str, compute: np.dtype[Any], block_bytes: int | None
) -> Array:
    wanted = scratch_bytes(problem, direction, compute, block_bytes)
    if scratch is None:
        return np.empty(wanted, np.uint8)
    if scratch.nbytes < wanted:
        raise ValueError(f"{direction} wants {wanted} bytes of scratch, got {scratch.nbytes}")
    return scratch.reshape(-1).view(np.uint8)

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

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise, product
from math import gcd, prod
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from graphdnn.convolution import ConvProblem
from graphdnn.engines.host.integers import exact_matmul

Array = NDArray[Any]

_BLOCK_BYTES = 4 << 20  # of patches; BLAS packs the filter anew for each block, and large blocks leave the caches
_FILTER_BYTES = 16 << 20
_DEPTH = 1 << 14  # products summed by one matrix product, so that a block has at least some dozens of positions
_STACK_POSITIONS = 128  # outputs of one image from which a matrix product of its own pays
_NARROW = 16  # channels per group below which runs of them are too short to copy one by one
_FEW = 4  # times fewer outputs than channels from which other things than patches of x are smaller
_ALIGNMENT = 64


@np.errstate(all="ignore")
def fprop(
    problem: ConvProblem,
    x: Array,
    w: Array,
    *,
    compute: np.dtype[Any],
    out: Array | None = None,
    scratch: Array | None = None,
) -> Array:
    """y ``[N, G, K, *output]`` from x ``[N, G, C, *input]`` and w ``[G, K, C, *filter]``, of any strides.

    ``compute`` is float32, float64, int32 or int64; operands of any type are converted to it. ``out`` is
    written and returned where given. ``scratch``, bytes, saves an allocation.
    Raises ``ValueError`` for extents that are not the problem's, an ``out`` of another type than
    ``compute``, or a scratch smaller than ``scratch_bytes``.
    """
    _check(x, problem.x_extents, "x")
    _check(w, problem.w_extents, "w")
    y = _result(out, problem.y_extents, compute, _channels_last(x))
    _correlate(problem, x, w, y, _scratch(scratch, problem, "fprop", y.dtype))
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
) -> Array:
    """dx ``[N, G, C, *input]`` from dy ``[N, G, K, *output]`` and w; positions the forward never reads get 0.

    Arguments and errors as for ``fprop``.
    """
    _check(dy, problem.y_extents, "dy")
    _check(w, problem.w_extents, "w")
    dx = _result(out, problem.x_extents, compute, _channels_last(dy))
    memory = _scratch(scratch, problem, "dgrad", dx.dtype)
    for residue in _residues(problem):
        target = _spatial(dx, residue.positions)
        if residue.problem is None:
            target[...] = 0
        else:
            _correlate(residue.problem, dy, _spatial(w, residue.taps).swapaxes(1, 2), target, memory)
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
) -> Array:
    """dw ``[G, K, C, *filter]`` from x and dy. Arguments and errors as for ``fprop``."""
    _check(x, problem.x_extents, "x")
    _check(dy, problem.y_extents, "dy")
    dw = _result(out, problem.w_extents, compute, _channels_last(x), groups_first=True)
    memory = _scratch(scratch, problem, "wgrad", dw.dtype)
    if not _few_outputs(problem):
        _sum_over_positions(problem, x, dy, dw, memory)
        return dw
    # dgrad's problems have the same filter, and patches of dy are the smaller ones here.
    dw[...] = 0
    for residue in _residues(problem):
        if residue.problem is not None:
            reached = _spatial(dw, residue.taps).swapaxes(1, 2)
            _sum_over_positions(residue.problem, dy, _spatial(x, residue.positions), reached, memory)
    return dw


def scratch_bytes(problem: ConvProblem, direction: str, compute: np.dtype[Any]) -> int:
    """Bytes of scratch that "fprop", "dgrad" or "wgrad" uses whatever the operands' types and layouts: at most 128 MiB.

    Integers take temporary arrays of bounded size beside it, inside the exact matrix product.
    """
    dtype = np.dtype(compute)
    problems: Iterable[ConvProblem] = (problem,)
    if direction == "dgrad" or (direction == "wgrad" and _few_outputs(problem)):
        problems = (residue.problem for residue in _residues(problem) if residue.problem is not None)
    by_taps = direction != "wgrad"
    return max((_plan(p, dtype, by_taps and _few_outputs(p)).bytes for p in problems), default=0)


# Arguments and results.


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


def _channels_last(array: Array) -> bool:
    """True where channels lie closer together than positions."""
    channel = 2 if array.shape[2] > 1 else 1
    wide = [abs(array.strides[a]) for a in range(3, array.ndim) if array.shape[a] > 1]
    return array.shape[channel] > 1 and (not wide or abs(array.strides[channel]) < min(wide))


def _positions_inner(array: Array) -> bool:
    """True where matrices of it are to have positions innermost, as NCHW has them; narrow groups of NHWC, too."""
    return not _channels_last(array) or (array.shape[1] > 1 and array.shape[2] < _NARROW)


def _scratch(scratch: Array | None, problem: ConvProblem, direction: str, compute: np.dtype[Any]) -> Array:
    wanted = scratch_bytes(problem, direction, compute)
    if scratch is None:
        return np.empty(wanted, np.uint8)
    if scratch.nbytes < wanted:
        raise ValueError(f"{direction} wants {wanted} bytes of scratch, got {scratch.nbytes}")
    return scratch.reshape(-1).view(np.uint8)


# dgrad as fprop: one problem of unit stride for every residue of dx's positions modulo the stride.


@dataclass(frozen=True, slots=True)
class _Residue:
    positions: tuple[slice, ...]  # of dx
    taps: tuple[slice, ...]  # that reach them
    problem: ConvProblem | None  # reads dy, writes these positions; None where no tap reaches them


class _AxisResidue(NamedTuple):
    positions: slice
    taps: slice
    output: int
    filter: int
    pre_padding: int
    dilation: int


@lru_cache(maxsize=64)
def _residues(problem: ConvProblem) -> tuple[_Residue, ...]:
    residues = []
    for axes in product(*(_axis_residues(problem, axis) for axis in range(problem.spatial))):
        reached: ConvProblem | None = None
        if all(axis.filter for axis in axes):
            reached = ConvProblem(
                n=problem.n,
                groups=problem.groups,
                c=problem.k,
                k=problem.c,
                input=problem.output,
                filter=tuple(axis.filter for axis in axes),
                output=tuple(axis.output for axis in axes),
                pre_padding=tuple(axis.pre_padding for axis in axes),
                post_padding=(0,) * problem.spatial,
                stride=(1,) * problem.spatial,
                dilation=tuple(axis.dilation for axis in axes),
                flip=not problem.flip,
            )
        positions, taps = tuple(axis.positions for axis in axes), tuple(axis.taps for axis in axes)
        residues.append(_Residue(positions, taps, reached))
    return tuple(residues)


def _axis_residues(problem: ConvProblem, axis: int) -> list[_AxisResidue]:
    """Tap i reads x at q = p*stride + i*dilation - pre, so dx[q] takes dy[p] for p = (q + pre - i*dilation) / stride.

    p is whole, for q = residue + m*stride, for every ``step``-th tap i = first + j*step, and then is
    m + offset - j*spread: a convolution of unit stride over m, with taps in reverse.
    """
    size, taps, pre = problem.input[axis], problem.filter[axis], problem.pre_padding[axis]
    stride, dilation = problem.stride[axis], problem.dilation[axis]
    common = gcd(stride, dilation)
    step, spread = stride // common, dilation // common
    found = []
    for residue in range(min(stride, size)):
        whole = (i for i in range(min(step, taps)) if (residue + pre - i * dilation) % stride == 0)
        first = next(whole, taps)
        count = len(range(first, taps, step))
        offset = (residue + pre - first * dilation) // stride
        # A filter read in reverse has tap i in element taps-1-i: the chosen ones lie as far apart, from the other end.
        start = taps - 1 - first - (count - 1) * step if problem.flip else first
        found.append(
            _AxisResidue(
                positions=slice(residue, None, stride),
                taps=slice(start, start + count * step, step),
                output=len(range(residue, size, stride)),
                filter=count,
                pre_padding=(count - 1) * spread - offset,
                dilation=spread,
            )
        )
    return found


# The two products.


def _correlate(problem: ConvProblem, x: Array, w: Array, y: Array, memory: Array) -> None:
    """y = the sum over channels and taps of w times patches of x."""
    plan = _plan(problem, y.dtype, _few_outputs(problem))
    buffers = plan.buffers(memory)
    for part in _parts(problem, plan):
        sub, narrow = _without_gaps(part.problem, x[part.x])
        fprop_part = _fprop_part_by_taps if plan.by_taps else _fprop_part
        fprop_part(sub, plan, narrow, w[part.w], y[part.y], part.adds, buffers)


def _fprop_part(problem: ConvProblem, plan: _Plan, x: Array, w: Array, y: Array, adds: bool, buffers: _Buffers) -> None:
    s, inner = problem.spatial, _channels_inner(problem, x, w)
    x_type, w_type = _operand_type(x, y.dtype), _operand_type(w, y.dtype)
    filter = _matrices(_ordered(w, 2, inner), (1, 1, s + 1), w_type, buffers.filter, _outputs_last(w)).swapaxes(1, 2)
    for block in _slices((problem.n, *problem.output), plan.block):
        target = _positions_first(_at(y, block))
        # In NCHW an image's outputs of one channel do not continue in the next image: a product for each, or a copy.
        merged = prod(target.shape[2:-1]) < _STACK_POSITIONS or _collapse(target, 1, s + 1, 1) is not None
        groups = (1, s + 1) if merged else (1, 1, s)
        patches = _ordered(_patches(problem, x, block, x_type, buffers.window), s + 2, inner)
        rows = _matrices(patches, (*groups, s + 1), x_type, buffers.patches, _positions_inner(x))
        b = filter if merged else filter[:, np.newaxis]
        _assign_product(rows, b, target, (*groups, 1), adds, buffers.rows, _positions_inner(y))


def _fprop_part_by_taps(
    problem: ConvProblem, plan: _Plan, x: Array, w: Array, y: Array, adds: bool, buffers: _Buffers
) -> None:
    """Few outputs of many channels: the window times every tap's filter, and the products then moved and summed.

    What is moved is as many times smaller than patches as there are more channels than outputs.
    """
    s = problem.spatial
    x_type, w_type = _operand_type(x, y.dtype), _operand_type(w, y.dtype)
    filter = _matrices(np.moveaxis(w, 2, -1), (1, s + 1, 1), w_type, buffers.filter, False)[:, np.newaxis]
    for block in _slices((problem.n, *problem.output), plan.block):
        target = _positions_first(_at(y, block))
        window = _positions_first(_window(problem, x, block, x_type, buffers.window, copy=True))
        columns = _collapse(window, 1, 1, s, 1)
        assert columns is not None  # the window is contiguous
        products = _product(filter, columns.swapaxes(2, 3), y.dtype, buffers.patches, False)
        products = products.reshape(*window.shape[:2], *w.shape[1:2], *problem.filter, *window.shape[2:-1])
        for i, tap in enumerate(np.ndindex(*problem.filter)):
            moved = _spatial(products, (*tap, *_reached(problem, tap, target)))
            _assign(np.moveaxis(moved, 2, -1), target, adds or i > 0)


def _reached(problem: ConvProblem, element: tuple[int, ...], target: Array) -> Iterator[slice]:
    """Where in a block's window each of its outputs, target's [g, n, *output, k], meets an element of the filter."""
    for axis, i in enumerate(element):
        tap = problem.filter[axis] - 1 - i if problem.flip else i
        start, outputs = tap * problem.dilation[axis], target.shape[2 + axis]
        yield slice(start, start + (outputs - 1) * problem.stride[axis] + 1, problem.stride[axis])


def _sum_over_positions(problem: ConvProblem, x: Array, dy: Array, dw: Array, memory: Array) -> None:
    """dw = the sum over images and positions of dy times patches of x."""
    plan = _plan(problem, dw.dtype, False)
    buffers = plan.buffers(memory)
    for part in _parts(problem, plan):
        sub, narrow = _without_gaps(part.problem, x[part.x])
        _wgrad_part(sub, plan, narrow, dy[part.y], dw[part.w], buffers)


def _wgrad_part(problem: ConvProblem, plan: _Plan, x: Array, dy: Array, dw: Array, buffers: _Buffers) -> None:
    s, inner = problem.spatial, _channels_inner(problem, x, dw)
    x_type, dy_type = _operand_type(x, dw.dtype), _operand_type(dy, dw.dtype)
    target = _ordered(dw, 2, inner)
    for i, block in enumerate(_slices((problem.n, *problem.output), plan.block)):
        outputs = _positions_first(_at(dy, block))
        rows = _matrices(outputs, (1, s + 1, 1), dy_type, buffers.rows, _positions_inner(dy))
        patches = _ordered(_patches(problem, x, block, x_type, buffers.window), s + 2, inner)
        columns = _matrices(patches, (1, s + 1, s + 1), x_type, buffers.patches, _positions_inner(x))
        _assign_product(rows.swapaxes(1, 2), columns, target, (1, 1, s + 1), i > 0, buffers.filter, False)


def _assign_product(
    a: Array, b: Array, target: Array, groups: tuple[int, ...], adds: bool, buffer: Array, transposed: bool
) -> None:
    """target = a @ b, or += where ``adds``. ``groups`` merges target's axes into those of the product.

    Where the product is not made in place, it is made in the buffer, contiguous as ``transposed`` says.
    """
    direct = None if adds else _for_blas(target, groups, target.dtype)
    if direct is not None and target.dtype.kind == "f" and _is_transposed(direct) == transposed:
        _multiply(a, b, direct)
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
    product = _stack(
        buffer, (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]), dtype, transposed
    )
    _multiply(a, b, product)
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
    return (_channels_last(x) and patches_larger) or _channels_last(w)


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


def _spatial(array: Array, index: Iterable[Any]) -> Array:
    """``array[..., *index]``."""
    key: tuple[Any, ...] = (..., *index)
    return np.asarray(array[key])


def _positions_first(array: Array) -> Array:
    """[n, g, k, *output] as [g, n, *output, k]."""
    return array.transpose(1, 0, *range(3, array.ndim), 2)


# How a problem is cut: the filter into parts, each part's positions into blocks.


@dataclass(frozen=True, slots=True)
class _Plan:
    """Extents of one part (g, k, c, *filter) and of one block of positions (n, *output), and buffer sizes."""

    part: tuple[int, ...]
    block: tuple[int, ...]
    by_taps: bool  # fprop multiplies windows, not patches
    sizes: tuple[int, ...]  # bytes of the buffers

    @property
    def bytes(self) -> int:
        return sum(self.sizes) + _ALIGNMENT

    def buffers(self, memory: Array) -> _Buffers:
        start = -memory.__array_interface__["data"][0] % _ALIGNMENT
        pieces = []
        for size in self.sizes:
            pieces.append(memory[start : start + size])
            start += size
        return _Buffers(*pieces)


@dataclass(frozen=True, slots=True)
class _Buffers:
    """Bytes of scratch by use."""

    window: Array  # x, padded and converted
    patches: Array
    filter: Array  # w as a matrix, in wgrad the product of one block
    rows: Array  # dy of a block as a matrix, in fprop its product


def _few_outputs(problem: ConvProblem) -> bool:
    """Whether patches of x are several times larger than all taps' products of x, and than patches of dy."""
    return problem.taps > 1 and problem.k * prod(problem.stride) * _FEW <= problem.c


@lru_cache(maxsize=1024)
def _plan(problem: ConvProblem, compute: np.dtype[Any], by_taps: bool) -> _Plan:
    size = compute.itemsize
    part = _part_extents(problem, problem.filter, size)
    block = _block_extents(problem, part, size, by_taps)
    if _window_elements(problem, part, block) > _BLOCK_BYTES // size:
        # The taps of even one output are too far apart: take them one at a time, which leaves no gaps.
        part = _part_extents(problem, (1,) * problem.spatial, size)
        block = _block_extents(problem, part, size, by_taps)
    g, k, c, *filter = part
    window, rows = _window_elements(problem, part, block), g * prod(block)
    patches = (window // c * k if by_taps else rows * c) * prod(filter)
    elements = (window, patches, prod(part), rows * k)
    return _Plan(part, block, by_taps, tuple(-(-e * size // _ALIGNMENT) * _ALIGNMENT for e in elements))


def _part_extents(problem: ConvProblem, filter: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """(g, k, c, *filter) of a part, with at most ``filter`` taps."""
    contraction = _tile((problem.c, *filter), _DEPTH)
    (k,) = _tile((problem.k,), _FILTER_BYTES // itemsize // prod(contraction))
    (g,) = _tile((problem.groups,), _BLOCK_BYTES // itemsize // max(k, prod(contraction)))
    return (g, k, *contraction)


def _block_extents(problem: ConvProblem, part: tuple[int, ...], itemsize: int, by_taps: bool) -> tuple[int, ...]:
    """(n, *output) of a block whose window, patches and products keep to the limit, if any block does."""
    g, k, c, *filter = part
    limit = _BLOCK_BYTES // itemsize
    positions = (problem.n, *problem.output)
    widest = max(k * prod(filter), c) if by_taps else max(k, c * prod(filter))
    block = _tile(positions, limit // (g * widest))
    while _window_elements(problem, part, block) > limit and prod(block) > 1:
        block = _tile(positions, prod(block) // 2)
    return block


def _tile(extents: Sequence[int], limit: int) -> tuple[int, ...]:
    """Largest block of at most ``limit`` elements (but one at least) that is filled from the last axis on."""
    tile = [1] * len(extents)
    for axis in reversed(range(len(extents))):
        most = max(1, limit // prod(tile))
        pieces = -(-extents[axis] // most)
        tile[axis] = -(-extents[axis] // pieces)  # pieces of about equal size
        if pieces > 1:
            break
    return tuple(tile)


def _slices(extents: Sequence[int], tile: Sequence[int]) -> Iterator[tuple[slice, ...]]:
    starts = (range(0, e, t) for e, t in zip(extents, tile, strict=True))
    for corner in product(*starts):
        yield tuple(slice(a, min(a + t, e)) for a, t, e in zip(corner, tile, extents, strict=True))


def _window_elements(problem: ConvProblem, part: tuple[int, ...], block: tuple[int, ...]) -> int:
    spans = []
    axes = (problem.output, block[1:], part[3:], problem.stride, problem.dilation)
    for outputs, o, f, stride, dilation in zip(*axes, strict=True):
        step = _common_step(outputs, f, stride, dilation)
        spans.append(_span(o, f, stride // step, dilation // step))
    return block[0] * part[0] * part[2] * prod(spans)


def _span(outputs: int, taps: int, stride: int, dilation: int) -> int:
    """Inputs from the first to the last that some consecutive outputs read."""
    return (outputs - 1) * stride + (taps - 1) * dilation + 1


def _common_step(outputs: int, taps: int, stride: int, dilation: int) -> int:
    """Divides the distance between any two inputs that are read."""
    return gcd(stride if outputs > 1 else 0, dilation if taps > 1 else 0) or 1


@dataclass(frozen=True, slots=True)
class _Part:
    """A problem over some channels and taps, and where its operands lie in those of the whole."""

    problem: ConvProblem
    x: tuple[slice | Any, ...]
    w: tuple[slice, ...]
    y: tuple[slice | Any, ...]
    adds: bool  # an earlier part has written the same outputs


def _parts(problem: ConvProblem, plan: _Plan) -> Iterator[_Part]:
    for g, k, c, *taps in _slices(problem.w_extents, plan.part):
        filter = tuple(t.stop - t.start for t in taps)
        if problem.flip:  # tap i is element filter-1-i
            starts = tuple(f - t.stop for f, t in zip(problem.filter, taps, strict=True))
        else:
            starts = tuple(t.start for t in taps)
        shift = zip(problem.pre_padding, starts, problem.dilation, strict=True)
        yield _Part(
            problem=replace(
                problem,
                groups=g.stop - g.start,
                k=k.stop - k.start,
                c=c.stop - c.start,
                filter=filter,
                pre_padding=tuple(pre - start * dilation for pre, start, dilation in shift),
            ),
            x=(slice(None), g, c),
            w=(g, k, c, *taps),
            y=(slice(None), g, k),
            adds=c.start > 0 or any(t.start for t in taps),
        )


# Patches: block by block, x as the filter meets it.


def _without_gaps(problem: ConvProblem, x: Array) -> tuple[ConvProblem, Array]:
    """The same problem on every ``step``-th element of x alone, where none of the others is ever read."""
    steps = [
        _common_step(o, f, stride, dilation)
        for o, f, stride, dilation in zip(problem.output, problem.filter, problem.stride, problem.dilation, strict=True)
    ]
    if all(step == 1 for step in steps):
        return problem, x
    firsts = [-pre % step for pre, step in zip(problem.pre_padding, steps, strict=True)]
    narrow = _spatial(x, (slice(first, None, step) for first, step in zip(firsts, steps, strict=True)))
    paddings = zip(problem.pre_padding, firsts, steps, strict=True)
    reduced = replace(
        problem,
        input=narrow.shape[3:],
        pre_padding=tuple((pre + first) // step for pre, first, step in paddings),
        # Rounded only on an axis with a single output or tap, where nothing is that far apart.
        stride=tuple(max(1, stride // step) for stride, step in zip(problem.stride, steps, strict=True)),
        dilation=tuple(dilation // step for dilation, step in zip(problem.dilation, steps, strict=True)),
    )
    return reduced, narrow


def _patches(problem: ConvProblem, x: Array, block: tuple[slice, ...], dtype: np.dtype[Any], buffer: Array) -> Array:
    """View [g, n, *output, c, *filter] of what a block (n, *output) of outputs reads, in ``dtype``."""
    window = _window(problem, x, block, dtype, buffer)
    n, g, c, *spatial = window.strides
    positions = tuple(o.stop - o.start for o in block[1:])
    per_output = tuple(s * stride for s, stride in zip(spatial, problem.stride, strict=True))
    per_tap = tuple(s * dilation for s, dilation in zip(spatial, problem.dilation, strict=True))
    shape = (window.shape[1], window.shape[0], *positions, window.shape[2], *problem.filter)
    view = as_strided(window, shape, (g, n, *per_output, c, *per_tap))
    return np.flip(view, tuple(range(-problem.spatial, 0))) if problem.flip else view


def _window(
    problem: ConvProblem, x: Array, block: tuple[slice, ...], dtype: np.dtype[Any], buffer: Array, copy: bool = False
) -> Array:
    """The box [n, g, c, *span] of x that a block of outputs reads, zero outside x.

    A view of x itself where that will do, unless ``copy`` asks for one that is contiguous.
    """
    images, *outputs = block
    x = x[images]
    spans, inside, source = [], [], []
    axes = (outputs, problem.filter, problem.stride, problem.dilation, problem.pre_padding, problem.input)
    for o, f, stride, dilation, pre, size in zip(*axes, strict=True):
        low = o.start * stride - pre
        span = _span(o.stop - o.start, f, stride, dilation)
        first = min(max(-low, 0), span)
        last = max(min(size - low, span), first)
        spans.append(span)
        inside.append(slice(first, last))
        source.append(slice(low + first, low + last) if last > first else slice(0))
    core = _spatial(x, source)
    positions_inner = _positions_inner(x)
    rearranged = positions_inner and _channels_last(x) and problem.taps > 1  # once here spares every tap from it
    if core.shape[3:] == tuple(spans) and x.dtype == dtype and not (copy or rearranged):
        return core
    n, g, c = x.shape[:3]
    flat = _flat(buffer, n * g * c * prod(spans), dtype)
    if positions_inner:
        window = flat.reshape(n, g, c, *spans)
    else:
        window = np.moveaxis(flat.reshape(n, *spans, g, c), (-2, -1), (1, 2))
    for axis, (i, span) in enumerate(zip(inside, spans, strict=True), start=3):
        before = (slice(None),) * axis
        window[(*before, slice(i.start))] = 0
        window[(*before, slice(i.stop, span))] = 0
    np.copyto(_spatial(window, inside), core, casting="unsafe")
    return window


# Memory of a block, and matrices out of arrays of more axes.


def _flat(buffer: Array, count: int, dtype: np.dtype[Any]) -> Array:
    return buffer[: count * dtype.itemsize].view(dtype)


def _stack(buffer: Array, extents: Sequence[int], dtype: np.dtype[Any], transposed: bool) -> Array:
    """A stack of matrices in a buffer, contiguous along rows, or along columns if ``transposed``."""
    *stack, rows, columns = extents
    flat = _flat(buffer, prod(extents), dtype)
    return flat.reshape(*stack, columns, rows).swapaxes(-1, -2) if transposed else flat.reshape(extents)


def _matrices(array: Array, groups: tuple[int, ...], dtype: np.dtype[Any], buffer: Array, transposed: bool) -> Array:
    """``array`` as a stack of matrices in ``dtype`` that BLAS takes, its axes merged as ``groups`` says.

    A view where there is one, a copy in the buffer otherwise, laid out as ``transposed`` says.
    """
    view = _for_blas(array, groups, dtype)
    if view is not None:
        return view
    ends = np.cumsum((0, *groups))
    matrices = _stack(buffer, [prod(array.shape[a:b]) for a, b in pairwise(ends)], dtype, transposed)
    np.copyto(matrices.reshape(array.shape), array, casting="unsafe")  # reshape splits axes: a view
    return matrices


def _collapse(array: Array, *groups: int) -> Array | None:
    """The view whose axes merge so many consecutive ones each, None where memory does not allow it."""
    shape, strides, axis = [], [], 0
    for count in groups:
        extent, stride = 1, 0
        for a in reversed(range(axis, axis + count)):
            if array.shape[a] == 1:
                continue
            if extent > 1 and array.strides[a] != stride * extent:
                return None
            stride = stride if extent > 1 else array.strides[a]
            extent *= array.shape[a]
        shape.append(extent)
        strides.append(stride)
        axis += count
    return as_strided(array, shape, strides)


def _for_blas(array: Array, groups: tuple[int, ...], dtype: np.dtype[Any]) -> Array | None:
    """A view as matrices that BLAS takes, contiguous along one axis and overlapping nowhere; None if there is none."""
    stack = _collapse(array, *groups) if array.dtype == dtype else None
    if stack is None:
        return None
    (rows, columns), (down, across), size = stack.shape[-2:], stack.strides[-2:], dtype.itemsize
    along_rows = (across == size or columns == 1) and (down >= columns * size or rows == 1)
    along_columns = (down == size or rows == 1) and (across >= rows * size or columns == 1)
    return stack if (along_rows or along_columns) and down % size == across % size == 0 else None


def _is_transposed(stack: Array) -> bool:
    """True for matrices that are contiguous along columns, not along rows."""
    return stack.strides[-1] != stack.itemsize and stack.strides[-2] == stack.itemsize


def _multiply(a: Array, b: Array, out: Array) -> None:
    """out = a @ b for stacks of matrices. BLAS writes along rows, so it may be the transposed product to ask for."""
    if out.strides[-1] == out.itemsize or out.shape[-1] == 1:
        np.matmul(a, b, out=out)
    else:
        np.matmul(b.swapaxes(-1, -2), a.swapaxes(-1, -2), out=out.swapaxes(-1, -2))

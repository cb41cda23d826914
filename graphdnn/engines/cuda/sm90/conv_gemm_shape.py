"""What the products of a convolution look like to the choice of a tile, on compute capability 9.0."""

from __future__ import annotations

from math import gcd, prod

from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.batch_invariance import memoize_for_images, memoize_for_lines
from graphdnn.engines.cuda.codegen.index_space import is_addressable
from graphdnn.engines.cuda.codegen.pointwise_program import gen_index_axes
from graphdnn.engines.cuda.codegen.tensor_cores import INTEGERS
from graphdnn.engines.cuda.conv_geometry.gemm_problem import GemmProblem, gemm_problem_of, im2col_and_dense
from graphdnn.engines.cuda.sm90.epilogue_operands import lies_in_row, pixels_of, streamed_residual, written_and_read
from graphdnn.engines.cuda.sm90.gemm_shape import WHOLE, Pieces, Sizes
from graphdnn.engines.cuda.sm90.tile import PANEL, ROW
from graphdnn.engines.cuda.sm90.tma_operands import ALIGNMENT, is_exchanged
from graphdnn.engines.cuda.sm90.wgmma_text import promotion_interval
from graphdnn.engines.memoization import memoize
from graphdnn.engines.operation_cost import bytes_moved
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvolutionOperation

_CHANNELS = 2  # axis of an image's coordinates
_SECTOR = 32  # bytes
_MOST_AXES = 3  # of pixels
_SHARED_LINES = 1.5  # times the bytes that move, where taps read every second pixel of lines


@memoize
def sizes_of(op: FusedOp) -> Sizes:
    """The products as the choice of a tile sees them."""
    kept, n = _of_images(op), _anchor(op).problem.n
    if not kept.is_across:
        products = tuple([(n * pixels, depth) for pixels, depth in kept.products])
        moved = bytes_moved(op) * (_SHARED_LINES if _shares_lines(op) else 1.0)
        return kept._replace(products=products, bytes_moved=round(moved))
    ((rows, pixels),) = kept.products
    read = _anchor(op).inputs()
    bytes_read = read["dy"].bytes + round(read["x"].bytes * _reached(op))
    return kept._replace(products=((rows, -(-n * pixels // PANEL)),), bytes_read=bytes_read)


@memoize_for_images
def _of_images(op: FusedOp) -> Sizes:
    """What the number of images does not change; products are those of one image, the depth of a wgrad its pixels."""
    product = gemm_problem_of(op)
    held = depth_of_step(product)
    products = []
    for residue in product.residues:
        pixels = prod(residue.pixels)
        depth = prod(residue.taps) * -(-product.channels // held)
        products.append((product.outer_channels, pixels) if product.is_wgrad else (pixels, depth))
    return _besides(op)._replace(products=tuple(products))


@memoize_for_lines
def _besides(op: FusedOp) -> Sizes:
    """All but the products."""
    product = gemm_problem_of(op)
    columns = units_of(product) * PANEL if product.is_wgrad else product.outer_channels
    front_only, most = op.uses.front_only, product.roles.output.elements
    whole = [t for t in (*op.inputs, *op.outputs) if t.uid not in front_only and t.elements >= most]
    result = sum([ELEMENTS[t.data_type].bytes for t in whole]) or 1
    residual = streamed_residual(op, product)
    of_integers = not product.is_wgrad and im2col_and_dense(product.roles)[0].data_type in INTEGERS
    unit = 1 if product.roles.direction == "fprop" or is_exchanged(product.roles) else PANEL
    return Sizes(
        products=(),
        columns=columns,
        groups=product.roles.problem.groups,
        column_unit=unit,
        result_bytes=result,
        is_turned=_is_turned(op, product),
        is_across=product.is_wgrad,
        sets=2 if promoted(product) else 1,
        pixel_rows=WHOLE if product.is_wgrad else _copied_rows(product),
        filter_rows=WHOLE if product.is_wgrad else _filter_rows(product),
        are_followed=product.roles.problem.groups > 1,
        are_alone=not product.is_wgrad and _begin_between(op, product, 2),
        are_pairs=not (product.is_wgrad or _is_turned(op, product)) and _begin_between(op, product, 4),
        of_integers=of_integers,
        are_converted=of_integers and any(ELEMENTS[t.data_type].kind != "int" for t in whole),
        may_be_turned=_may_be_turned(op, product),
        may_take_turns=len(product.residues) == 1 and not (product.is_wgrad or of_integers),
        are_halves=ELEMENTS[im2col_and_dense(product.roles)[0].data_type].bytes == 2,
        may_share=product.is_wgrad,
        streamed_bytes=0 if residual is None else ELEMENTS[residual.data_type].bytes,
        odd_rows=product.outer_channels if product.is_wgrad and product.outer_channels % PANEL else 0,
        odd_blocks=-(-product.channels // PANEL) if product.is_wgrad and product.channels % PANEL else 0,
    )


@memoize_for_images
def _shares_lines(op: FusedOp) -> bool:
    """Whether pixels that a tap reads have others between them, in the same lines of memory."""
    product = gemm_problem_of(op)
    return max(product.traversal_stride) > 1 and _pixel_rows(product) != WHOLE


@memoize_for_images
def _reached(op: FusedOp) -> float:
    """Of x: less than all where taps are fewer than a stride."""
    product = gemm_problem_of(op)
    return prod(
        [min(1.0, taps / step) for taps, step in zip(product.residues[0].taps, product.traversal_stride, strict=True)]
    )


def _anchor(op: FusedOp) -> ConvolutionOperation:
    assert isinstance(op.anchor, ConvolutionOperation)
    return op.anchor


def _pixel_rows(product: GemmProblem) -> Pieces:
    gathered, _ = im2col_and_dense(product.roles)
    size, groups = ELEMENTS[gathered.data_type].bytes, product.roles.problem.groups
    pitch = -(-product.channels * groups * size // ALIGNMENT) * ALIGNMENT
    return _pieces(product.channels * size, pitch if groups == 1 else gcd(pitch, product.channels * size))


def _copied_rows(product: GemmProblem) -> Pieces:
    """Of pixels, whose neighbours along three axes take longer, where results have few channels: tiles of more columns
    were measured to hide it.
    """
    taps, pieces = product.roles.problem.filter, _pixel_rows(product)
    is_deep = len(taps) == _MOST_AXES and min(taps) > 1 and len(product.residues) == 1
    is_deep = is_deep and pieces == WHOLE and product.outer_channels <= PANEL
    return Pieces(deep=1.0) if is_deep else pieces


def _filter_rows(product: GemmProblem) -> Pieces:
    """Along the summed channels, or across them: then a row has result's channels."""
    _, plain = im2col_and_dense(product.roles)
    size = ELEMENTS[plain.data_type].bytes
    is_across = product.roles.direction == "dgrad" and not is_exchanged(product.roles)
    channels = (product.outer_channels if is_across else product.channels) * size
    return _pieces(channels, -(-channels // ALIGNMENT) * ALIGNMENT)


def _pieces(size: int, pitch: int) -> Pieces:
    """Of so many bytes, one after the other, which begin at multiples of ``pitch``."""
    if pitch % _SECTOR:
        return Pieces(odd=1.0)
    partial = (size % ROW != 0) / -(-size // ROW)
    return Pieces(in_two=0.0 if pitch % ROW == 0 else 1.0 - partial, partial=partial)


def _begin_between(op: FusedOp, product: GemmProblem, count: int) -> bool:
    """Whether so many neighbours do not always begin at a multiple of their size."""
    space = product.roles.space(product.roles.output)
    strides, sizes = space.strides(op.outputs[0]), space.sizes
    return any(stride % count for stride, size in zip(strides, sizes, strict=True) if size > 1 and stride != 1)


def promoted(product: GemmProblem) -> int:
    gathered, _ = im2col_and_dense(product.roles)
    return promotion_interval(gathered.data_type)


def _is_turned(op: FusedOp, product: GemmProblem) -> bool:
    """Whether pixels are the columns: where an image's are neighbours in the result, and channels are not."""
    if not _may_join_pixels(op, product):
        return False
    space = product.roles.space(product.roles.output)
    if 1 in space.strides(op.outputs[0])[1:3]:
        return False
    return all(lies_in_row(space.strides(t)[3:], space.sizes[3:]) for t in written_and_read(op))


def _may_be_turned(op: FusedOp, product: GemmProblem) -> bool:
    """Whether pixels may be the columns though channels are neighbours in the result: all of them lie in a row."""
    if not _may_join_pixels(op, product) or product.roles.problem.groups > 1:
        return False
    space = product.roles.space(product.roles.output)
    if space.strides(op.outputs[0])[_CHANNELS] != 1:
        return False
    return all(is_addressable(t) and lies_in_row(*pixels_of(space, t)) for t in written_and_read(op))


def _may_join_pixels(op: FusedOp, product: GemmProblem) -> bool:
    """Whether the result's pixels are the product's, and nobody asks where one is."""
    if product.is_wgrad or len(product.residues) > 1 or set(product.out_stride) != {1}:
        return False
    return not gen_index_axes(op.epilogue)


def depth_of_step(product: GemmProblem) -> int:
    gathered, _ = im2col_and_dense(product.roles)
    return ROW // ELEMENTS[gathered.data_type].bytes


def units_of(product: GemmProblem) -> int:
    """Pairs of a tap and a block of channels, the columns of a wgrad."""
    taps = product.residues[0].taps
    return taps[0] * taps[1] * taps[2] * -(-product.channels // PANEL)

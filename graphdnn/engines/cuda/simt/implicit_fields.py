"""Parameters of an implicit GEMM: strides of both operands, and sizes and offsets of the GEMM of every residue."""

from __future__ import annotations

from collections.abc import Sequence

from graphdnn.engines.cuda.codegen.parameters import Parameters
from graphdnn.engines.cuda.conv_geometry.gemm_problem import GemmProblem, Residue
from graphdnn.engines.cuda.simt.implicit_tiles import SPLITS

RESIDUES = 16  # residues of one launch; the 4 KB of kernel parameters describe each of them


def describe(
    parameters: Parameters,
    product: GemmProblem,
    residues: Sequence[Residue],
    im2col: Sequence[int],
    dense: Sequence[int],
    bk: int,
    splits: int,
) -> int:
    """Add the fields that implicit_coordinates.cuh reads; returns the number of splits.

    ``im2col``, ``dense``: the operands' strides along their six coordinates. ``bk``: elements of a K tile.
    """
    if product.is_wgrad:
        lane, group, channel = dense[:3]
    else:
        group = dense[0]
        is_forward = product.roles.direction == "fprop"
        channel, lane = (dense[1], dense[2]) if is_forward else (dense[2], dense[1])
    parameters.table({
        "im2col_n": im2col[0], "im2col_g": im2col[1], "im2col_c": im2col[2],
        "dense_g": group, "dense_channel": channel, "dense_nc": lane, "groups": product.roles.problem.groups,
        "im2col_spatial": im2col[3:],
        "dense_spatial": tuple(s * pitch for s, pitch in zip(dense[3:], product.tap_stride, strict=True)),
        "traversal_stride": product.traversal_stride, "dilation": product.dilation, "image_size": product.image,
        "out_stride": product.out_stride,
    })  # fmt: skip
    return _residue_fields(parameters, product, residues, dense[3:], bk, splits)


def are_short(product: GemmProblem, margin: int) -> bool:
    """Whether every index of the GEMMs, and ``margin`` past the last one, is a 32-bit number."""
    sizes = ((product.rows(r), product.columns(r), product.depth(r)) for r in product.residues)
    return max(max(size) for size in sizes) + margin < 2**31


def depth_per_split(depth: int, bk: int, splits: int) -> int:
    """The k elements of a split: whole K tiles of ``bk``."""
    split_depth = -(-depth // splits)
    return max(1, -(-split_depth // bk)) * bk


def split_count(depth: int, bk: int, splits: int) -> int:
    """The number of splits that are computed; a short K has fewer than requested."""
    return max(1, -(-depth // depth_per_split(depth, bk, splits)))


def split_value(product: GemmProblem, bk: int, splits: int) -> int:
    """The value of the knob SPLIT_K with the same splits, or 0 if there is none."""

    def counts(splits: int) -> list[int]:
        return [split_count(product.depth(residue), bk, splits) for residue in product.residues]

    computed = counts(splits)
    values = (n for n, most in enumerate(SPLITS, 1) if most // 2 < max(computed) and counts(most) == computed)
    return next(values, 0)


def _residue_fields(
    parameters: Parameters,
    product: GemmProblem,
    residues: Sequence[Residue],
    dense_spatial: Sequence[int],
    bk: int,
    splits: int,
) -> int:
    """The fields that differ among residues, as arrays."""
    groups = product.roles.problem.groups
    fields: dict[str, list[int]] = {}
    split_counts = []
    for residue in residues:
        pixel_digits, tap_digits = _digits(product, residue)
        depth = product.depth(residue)
        split_depth = depth_per_split(depth, bk, splits)
        split_counts.append(split_count(depth, bk, splits))
        rows, columns = product.rows(residue), product.columns(residue)
        for name, values in {
            "pixel_digits": pixel_digits,
            "tap_digits": tap_digits,
            "depth_step": _in_digits(bk, pixel_digits if product.is_wgrad else tap_digits),
            "pixel_start": residue.start,
            "first_pixel": residue.first_pixel,
            "dense_start": (sum(f * s for f, s in zip(residue.first_tap, dense_spatial, strict=True)),),
            "rows": (rows,),
            "columns": (columns,),
            "depth": (depth,),
            "depth_per_cta": (split_depth,),
            "results": (groups * rows * columns,),
        }.items():
            fields.setdefault(name, []).extend(values)
    split = max(1, *split_counts)
    fields["partial_start"] = [split * sum(fields["results"][:i]) for i in range(len(residues))]
    # Unused residues of the last launch, as all launches have one kernel text.
    missing = min(len(product.residues), RESIDUES) - len(residues)
    for name, found in fields.items():
        parameters.integers(name, found + [0] * (missing * (len(found) // len(residues))))
    parameters.integer("splits", split)
    return split


def _digits(product: GemmProblem, residue: Residue) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes of the coordinates of a pixel (position, n) and of a filter element (channel, tap), fastest first.

    The slowest digit has no size: it is the remaining quotient.
    """
    pixels, taps = residue.pixels, tuple(max(1, tap) for tap in residue.taps)
    return pixels[::-1], (product.channels, taps[2], taps[1])


def _in_digits(value: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    digits = []
    for size in sizes:
        value, digit = divmod(value, size)
        digits.append(digit)
    return (*digits, value)

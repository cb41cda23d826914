"""Requirements of the filter gradient whose taps share a halo tile."""

from __future__ import annotations

from graphdnn.checks import Equals, OneOf
from graphdnn.dtypes import FLOAT_COMPUTE
from graphdnn.engines.cuda.codegen.tensor_cores import FLOAT_PAIRS
from graphdnn.engines.cuda.conv_geometry.convolution_requirements import is_convolution, prologue_need
from graphdnn.engines.cuda.conv_geometry.gemm_problem import gemm_problem_of
from graphdnn.engines.cuda.sm90.conv_gemm_shape import gemm_shape_of
from graphdnn.engines.cuda.sm90.halo.halo_wgrad_tiles import SPLITS, TILE, Shape, choose
from graphdnn.engines.cuda.sm90.halo.shared_tile_requirements import halo_tile_needs, is_one_gemm
from graphdnn.engines.cuda.sm90.sm90_requirements import capability_need, is_wgrad, types_and_sum, wgrad_need
from graphdnn.engines.engine import Task, image_need, kind_need, needs_rule
from graphdnn.engines.memoization import memoize
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.rules import Constraint

_NAME = "cuda_hopper_halo_wgrad"
_TYPES = tuple((*pair, compute) for pair in FLOAT_PAIRS for compute in FLOAT_COMPUTE)
_SLICE, _ROW, _COLUMN = range(3)


@memoize
def shape_of(op: FusedOp) -> Shape:
    gemm = gemm_problem_of(op)
    (residue,) = gemm.residues
    return Shape(
        images=gemm.roles.problem.n * residue.pixels[_SLICE],
        pixels=(residue.pixels[_ROW], residue.pixels[_COLUMN]),
        taps=(residue.taps[_ROW], residue.taps[_COLUMN]),
        dilation=(abs(gemm.dilation[_ROW]), abs(gemm.dilation[_COLUMN])),
        rows=gemm.outer_channels,
        channels=gemm.channels,
        result_bytes=gemm_shape_of(op).result_bytes,
        depth_taps=residue.taps[_SLICE],
    )


def _fits(task: Task) -> bool:
    return choose(shape_of(task.op), task.device, {TILE.type: TILE.default, SPLITS.type: SPLITS.default}) is not None


NEEDS: tuple[Constraint, ...] = (
    needs_rule(f"{_NAME}.operation", "conv"),
    capability_need(_NAME, is_convolution),
    wgrad_need(_NAME, "the other directions have pixels as rows: cuda_hopper_halo shares their halo tiles"),
    kind_need(
        f"{_NAME}.types",
        "data_type",
        types_and_sum,
        OneOf(*_TYPES),
        reason="both operands are MN-major, which tensor cores read for 16-bit types only, and sums are in fp32",
        fix="nothing to do: another engine serves other types",
        when=is_wgrad,
    ),
    prologue_need(_NAME, is_wgrad),
    *halo_tile_needs(
        _NAME,
        is_wgrad,
        "dw.dims",
        stride="adjacent pixels of dy read adjacent pixels of x, which are adjacent rows of shared memory",
        groups="a halo tile is multiplied by the gradients of one group",
        volumes=True,
    ),
    image_need(
        f"{_NAME}.patches",
        "dy.dims",
        lambda task: (shape_of(task.op).pixels, shape_of(task.op).taps),
        Equals("images in whole tiles, filters of at most 3 x 4 taps, and room for three halo tiles"),
        reason="beyond dy a tile has zeros, and x has pixels there: 0 * inf would be NaN",
        fix="nothing to do: another engine serves other images and filters",
        when=lambda task: is_wgrad(task) and is_one_gemm(task, volumes=True) and not _fits(task),
    ),
)

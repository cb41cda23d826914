"""Requirements of the convolution whose taps share a halo tile."""

from __future__ import annotations

from graphdnn.checks import Equals, OneOf
from graphdnn.engines.cuda.codegen.tensor_cores import Pairs
from graphdnn.engines.cuda.conv_geometry.convolution_requirements import is_convolution, prologue_need, roles_of
from graphdnn.engines.cuda.sm90.flat_pixels import is_flat
from graphdnn.engines.cuda.sm90.halo.halo_shape import shape_of
from graphdnn.engines.cuda.sm90.halo.halo_tile_choice import TILE, choose
from graphdnn.engines.cuda.sm90.halo.shared_tile_requirements import halo_tile_needs, is_one_gemm
from graphdnn.engines.cuda.sm90.sm90_requirements import channels_last_need, gemm_needs, is_wgrad, types_of
from graphdnn.engines.engine import Task, image_need, kind_need
from graphdnn.rules import Constraint


def _fits(task: Task) -> bool:
    return choose(shape_of(task.op), task.device, {TILE.type: TILE.default}) is not None


def halo_needs(prefix: str, pairs: Pairs) -> tuple[Constraint, ...]:
    """Constraints of an engine for operand types ``pairs``; their ids begin with ``prefix``."""

    def _has_served_types(task: Task) -> bool:
        return is_convolution(task) and types_of(task) in pairs

    def _has_pixel_rows(task: Task) -> bool:
        """Whether pixels are the rows of the GEMM: no filter gradient."""
        return _has_served_types(task) and not is_wgrad(task)

    return (
        *gemm_needs(prefix, pairs, _has_served_types),
        kind_need(
            f"{prefix}.direction",
            "operation",
            lambda task: roles_of(task).direction,
            OneOf("fprop", "dgrad"),
            reason="a filter gradient sums over pixels, and its taps have accumulators of their own",
            fix="nothing to do: another engine serves filter gradients",
            when=_has_served_types,
        ),
        *halo_tile_needs(
            prefix,
            _has_pixel_rows,
            "w.dims",
            stride="adjacent rows of the GEMM read adjacent pixels, which are adjacent rows of shared memory",
            groups="a halo tile is multiplied by the filters of one group",
            shares_loads=lambda task: not is_flat(task.op),
            volumes=True,
        ),
        prologue_need(prefix, is_convolution),
        channels_last_need(prefix, "y", _has_pixel_rows),
        image_need(
            f"{prefix}.filter",
            "w.dims",
            lambda task: shape_of(task.op).taps,
            Equals("a filter that leaves shared memory for halo tiles"),
            reason="shared memory holds two halo tiles for each warpgroup, beside the stages of the filter, or the"
            " whole filter if it has one tap",
            fix="nothing to do: another engine serves large and dilated filters, and one tap of many channels",
            when=lambda task: _has_pixel_rows(task) and is_one_gemm(task, volumes=True) and not _fits(task),
        ),
    )

"""What the engine that copies a patch of an image once for all taps asks of a convolution."""

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
    """Ids begin with ``prefix``; for operands of these types."""

    def _has_served_types(task: Task) -> bool:
        return is_convolution(task) and types_of(task) in pairs

    def _is_pixels(task: Task) -> bool:
        """The columns of the product are channels: no filter gradient."""
        return _has_served_types(task) and not is_wgrad(task)

    return (
        *gemm_needs(prefix, pairs, _has_served_types),
        kind_need(
            f"{prefix}.direction",
            "operation",
            lambda task: roles_of(task).direction,
            OneOf("fprop", "dgrad"),
            reason="a filter gradient adds over pixels: its taps share sums, not what is copied",
            fix="nothing to do: another engine serves filter gradients",
            when=_has_served_types,
        ),
        *halo_tile_needs(
            prefix,
            _is_pixels,
            "w.dims",
            stride="neighbouring rows of the product read neighbouring pixels, as they lie in shared memory",
            groups="a patch is multiplied by the filters of one group",
            shares_loads=lambda task: not is_flat(task.op),
            volumes=True,
        ),
        prologue_need(prefix, is_convolution),
        channels_last_need(prefix, "y", _is_pixels),
        image_need(
            f"{prefix}.filter",
            "w.dims",
            lambda task: shape_of(task.op).taps,
            Equals("a filter that leaves room for a patch and what its taps reach"),
            reason="a patch with the pixels around it lies in shared memory twice for each warpgroup, beside filters"
            " of one tap, all of them",
            fix="nothing to do: another engine serves large and dilated filters, and one tap of many channels",
            when=lambda task: _is_pixels(task) and is_one_gemm(task, volumes=True) and not _fits(task),
        ),
    )

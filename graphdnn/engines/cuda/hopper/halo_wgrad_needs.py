"""What the engine whose filter gradients share a copied patch among their taps asks of a convolution."""

from __future__ import annotations

from collections.abc import Callable

from graphdnn.checks import AtLeast, Equals, OneOf
from graphdnn.engines.cuda.generator.convolution_roles import Roles
from graphdnn.engines.cuda.hopper.gemm import sizes_of
from graphdnn.engines.cuda.hopper.halo_wgrad_tiles import PARTS, TILE, Shape, choose
from graphdnn.engines.cuda.hopper.needs import capability_need, is_convolution, prologue_need
from graphdnn.engines.cuda.simt.implicit_product import gathered_and_plain, product_of
from graphdnn.engines.engine import Task, need, needs_rule
from graphdnn.engines.once import once
from graphdnn.enums import DataType
from graphdnn.fusion.fused import FusedOp
from graphdnn.operations import ConvolutionOperation
from graphdnn.rules import Constraint

_NAME = "cuda_hopper_halo_wgrad"
_TYPES = tuple((kind, kind, DataType.FLOAT) for kind in (DataType.HALF, DataType.BFLOAT16))
_LINE, _PIXEL = 1, 2  # the spatial axes that there are, of three


@once
def shape_of(op: FusedOp) -> Shape:
    product = product_of(op)
    (residue,) = product.residues
    return Shape(
        images=product.roles.problem.n,
        pixels=(residue.pixels[_LINE], residue.pixels[_PIXEL]),
        taps=(residue.taps[_LINE], residue.taps[_PIXEL]),
        step=(abs(product.tap_step[_LINE]), abs(product.tap_step[_PIXEL])),
        rows=product.outer_channels,
        channels=product.channels,
        result_bytes=sizes_of(op).result_bytes,
    )


def _roles(task: Task) -> Roles:
    assert isinstance(task.op.anchor, ConvolutionOperation)
    return Roles.of(task.op.anchor)


def _is_wgrad(task: Task) -> bool:
    return is_convolution(task) and _roles(task).direction == "wgrad"


def _types(task: Task) -> tuple[DataType, ...]:
    return (*(t.data_type for t in gathered_and_plain(_roles(task))), task.op.main.compute_type)


def _of_problem(name: str) -> Callable[[Task], object]:
    return lambda task: getattr(_roles(task).problem, name)


def _is_one_walk(task: Task) -> bool:
    if not _is_wgrad(task):
        return False
    problem = _roles(task).problem
    return problem.spatial == 2 and problem.stride == (1, 1) and problem.groups == 1


def _fits(task: Task) -> bool:
    return choose(shape_of(task.op), task.device, {TILE.type: TILE.default, PARTS.type: PARTS.default}) is not None


NEEDS: tuple[Constraint, ...] = (
    needs_rule(f"{_NAME}.operation", "conv"),
    capability_need(_NAME, is_convolution),
    need(
        f"{_NAME}.direction",
        "operation",
        lambda task: _roles(task).direction,
        Equals("wgrad"),
        reason="the other directions have pixels as rows: cuda_hopper_halo shares their patches",
        fix="nothing to do: another engine serves this operation",
        when=lambda task: is_convolution(task) and not _is_wgrad(task),
    ),
    need(
        f"{_NAME}.types",
        "data_type",
        _types,
        OneOf(*_TYPES),
        reason="tensor cores read across the axis that is summed over only what has 16 bits, and sums are in fp32",
        fix="nothing to do: another engine serves other types",
        when=_is_wgrad,
    ),
    prologue_need(_NAME, _is_wgrad),
    need(
        f"{_NAME}.spatial",
        "conv.spatial_dims",
        _of_problem("spatial"),
        Equals(2),
        reason="a patch has lines and pixels",
        fix="nothing to do: another engine serves other images",
        when=_is_wgrad,
    ),
    need(
        f"{_NAME}.stride",
        "conv.filter_strides",
        _of_problem("stride"),
        Equals((1, 1)),
        reason="neighbouring pixels of the gradient meet neighbours of the image, as they lie in shared memory",
        fix="nothing to do: another engine serves strides",
        when=lambda task: _is_wgrad(task) and _roles(task).problem.spatial == 2,
    ),
    need(
        f"{_NAME}.groups",
        "dw.dims",
        _of_problem("groups"),
        Equals(1),
        reason="a patch is multiplied by the gradients of one group",
        fix="nothing to do: another engine serves groups",
        when=_is_wgrad,
    ),
    need(
        f"{_NAME}.taps",
        "dw.dims",
        lambda task: _roles(task).problem.taps,
        AtLeast(2),
        reason="one tap shares what is copied with no other",
        fix="nothing to do: another engine serves filters of one tap",
        when=_is_wgrad,
    ),
    need(
        f"{_NAME}.patches",
        "dy.dims",
        lambda task: (shape_of(task.op).pixels, shape_of(task.op).taps),
        Equals("images in whole patches, filters of 3 lines and 4 columns at most, and room for a few patches"),
        reason="a patch that reaches beyond the gradient would meet zeros there with what is real in the image",
        fix="nothing to do: another engine serves other images and filters",
        when=lambda task: _is_one_walk(task) and not _fits(task),
    ),
)

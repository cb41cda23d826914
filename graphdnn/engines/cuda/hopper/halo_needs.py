"""What the engine that copies a patch of an image once for all taps asks of a convolution."""

from __future__ import annotations

from collections.abc import Callable

from graphdnn.checks import AtLeast, Check, Equals, OneOf
from graphdnn.engines.cuda.generator.convolution_roles import Roles
from graphdnn.engines.cuda.hopper.halo_shape import shape_of
from graphdnn.engines.cuda.hopper.halo_tiles import TILE, choose
from graphdnn.engines.cuda.hopper.needs import EXACT_PAIRS, capability_need, prologue_need
from graphdnn.engines.cuda.hopper.product import INTEGERS
from graphdnn.engines.cuda.simt.implicit_product import gathered_and_plain
from graphdnn.engines.engine import Task, kind_need, need, needs_rule
from graphdnn.enums import DataType
from graphdnn.operations import ConvBackwardFilter, ConvolutionOperation
from graphdnn.rules import Constraint

_CHANNELS = 2  # axis of a result's coordinates


def _is_convolution(task: Task) -> bool:
    return isinstance(task.op.anchor, ConvolutionOperation)


def _roles(task: Task) -> Roles:
    assert isinstance(task.op.anchor, ConvolutionOperation)
    return Roles.of(task.op.anchor)


def _types(task: Task) -> tuple[DataType, DataType]:
    gathered, plain = gathered_and_plain(_roles(task))
    return gathered.data_type, plain.data_type


def _is_multiplied(task: Task) -> bool:
    return _is_convolution(task) and _types(task) in EXACT_PAIRS


def _wanted_compute(task: Task) -> Check:
    return Equals(DataType.INT32 if _types(task)[0] in INTEGERS else DataType.FLOAT)


def _is_pixels(task: Task) -> bool:
    """The columns of the product are channels: no filter gradient."""
    return _is_multiplied(task) and not isinstance(task.op.anchor, ConvBackwardFilter)


def _of_problem(name: str) -> Callable[[Task], object]:
    return lambda task: getattr(_roles(task).problem, name)


def _is_one_walk(task: Task) -> bool:
    if not _is_pixels(task):
        return False
    problem = _roles(task).problem
    return problem.spatial == 2 and problem.stride == (1, 1) and problem.groups == 1


def _fits(task: Task) -> bool:
    return choose(shape_of(task.op), task.device, {TILE.type: TILE.default}) is not None


NEEDS: tuple[Constraint, ...] = (
    needs_rule("cuda_hopper_halo.operation", "conv"),
    capability_need("cuda_hopper_halo", _is_convolution),
    kind_need(
        "cuda_hopper_halo.types",
        "data_type",
        _types,
        OneOf(*EXACT_PAIRS),
        reason="these are the types that the engine gives to tensor cores",
        fix="nothing to do: another engine serves other types",
        when=_is_convolution,
    ),
    kind_need(
        "cuda_hopper_halo.compute_type",
        "conv.compute_type",
        lambda task: task.op.main.compute_type,
        _wanted_compute,
        reason="sums are kept in 32-bit registers",
        fix="accumulate floats in FLOAT, bytes in INT32",
        when=_is_multiplied,
    ),
    kind_need(
        "cuda_hopper_halo.direction",
        "operation",
        lambda task: _roles(task).direction,
        OneOf("fprop", "dgrad"),
        reason="a filter gradient adds over pixels: its taps share sums, not what is copied",
        fix="nothing to do: another engine serves filter gradients",
        when=_is_multiplied,
    ),
    kind_need(
        "cuda_hopper_halo.spatial",
        "conv.spatial_dims",
        _of_problem("spatial"),
        Equals(2),
        reason="a patch has lines and pixels",
        fix="nothing to do: another engine serves other images",
        when=_is_pixels,
    ),
    need(
        "cuda_hopper_halo.stride",
        "conv.filter_strides",
        _of_problem("stride"),
        Equals((1, 1)),
        reason="neighbouring rows of the product read neighbouring pixels, as they lie in shared memory",
        fix="nothing to do: another engine serves strides",
        when=lambda task: _is_pixels(task) and _roles(task).problem.spatial == 2,
    ),
    need(
        "cuda_hopper_halo.groups",
        "w.dims",
        _of_problem("groups"),
        Equals(1),
        reason="a patch is multiplied by the filters of one group",
        fix="nothing to do: another engine serves groups",
        when=_is_pixels,
    ),
    prologue_need("cuda_hopper_halo", _is_convolution),
    need(
        "cuda_hopper_halo.layout",
        "y.strides",
        lambda task: _roles(task).space(_roles(task).output).strides(task.op.outputs[0])[_CHANNELS],
        Equals(1),
        reason="a thread stores neighbouring channels of a pixel",
        fix="nothing to do: another engine serves results of channels first",
        when=_is_pixels,
    ),
    need(
        "cuda_hopper_halo.taps",
        "w.dims",
        lambda task: _roles(task).problem.taps,
        AtLeast(2),
        reason="one tap shares what is copied with no other",
        fix="nothing to do: another engine serves filters of one tap",
        when=_is_pixels,
    ),
    need(
        "cuda_hopper_halo.filter",
        "w.dims",
        lambda task: shape_of(task.op).taps,
        Equals("a filter that leaves room for a patch and what its taps reach"),
        reason="a patch with the pixels around it lies in shared memory twice for each warpgroup",
        fix="nothing to do: another engine serves large and dilated filters",
        when=lambda task: _is_one_walk(task) and not _fits(task),
    ),
)

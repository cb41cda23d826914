"""Requirements of direct convolutions with few channels in a group, channels last."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite

from graphdnn.checks import AtMost, Each, Empty, Equals, InRange, OneOf
from graphdnn.engines.cuda.codegen.index_space import INT_MAX, is_addressable
from graphdnn.engines.cuda.conv_geometry.convolution_requirements import (
    Condition,
    convolution_of,
    direction_need,
    is_convolution,
    is_plane,
    problem_need,
    problem_of,
    prologue_need,
)
from graphdnn.engines.cuda.conv_geometry.convolution_roles import Roles
from graphdnn.engines.cuda.direct.direct_access import effective_dilation, image_space
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile import LONG_FILTER, Choice
from graphdnn.engines.engine import Task, kind_need, need, needs_rule, window_need
from graphdnn.enums import DataType
from graphdnn.operations import ConvBackwardFilter
from graphdnn.rules import Constraint
from graphdnn.tensors import TensorSpec

MAX_CHANNELS = 16  # per group
MAX_DEPTHWISE_FILTER = 63  # where a group has one channel
MAX_STRIDE = 4
COMPUTE = (
    DataType.FLOAT,
    DataType.HALF,
    DataType.BFLOAT16,
    DataType.FAST_FLOAT_FOR_FP8,
    DataType.INT32,
)


def _images(task: Task) -> dict[str, TensorSpec]:
    """The image operands that pass through shared memory, by port name."""
    op = convolution_of(task)
    return {name: t for name, t in op.inputs().items() if name in (op.role_names[0], op.role_names[2])}


def _has_contiguous_channels(task: Task, spec: TensorSpec) -> bool:
    op = convolution_of(task)
    if not is_addressable(spec):
        return False
    space = image_space(Roles.of(op), spec)
    return space.sizes[1] == 1 or space.strides(spec)[1] == 1


def _largest_coordinate(task: Task) -> int:
    """The largest coordinate or offset within a row that a kernel computes."""
    p = problem_of(task)
    axes = zip(p.input, p.output, p.filter, p.dilation, p.stride, p.pre_padding, p.post_padding, strict=True)
    # Threads compute coordinates up to a tile beyond the image before they discard the results.
    coordinate = max(int(i + (o + 64 * d) * s + f * d + pre + post) for i, o, f, d, s, pre, post in axes)
    spans = (
        MAX_STRIDE
        * (p.dilation[0] * abs(t.strides[-2]) + (p.input[1] + p.output[1] + 128 * p.dilation[1]) * abs(t.strides[-1]))
        for t in _images(task).values()
    )
    return max(coordinate, *spans)


def row_needs(prefix: str, when: Condition, reason: str, *, volumes: bool = False) -> tuple[Constraint, ...]:
    """Requirements of kernels that copy image rows unchanged: spatial axes, and no prologue.

    ``reason``: why the engine requires two spatial axes. ``volumes``: 3-D images are served as well.
    """
    spatial = problem_need(
        prefix,
        "spatial",
        OneOf(2, 3) if volumes else Equals(2),
        reason=reason,
        fix="write a 1-D convolution as a 2-D one of height 1",
        when=when,
        name="spatial_dims",
    )
    return spatial, prologue_need(prefix, when, "rows are copied")


def window_needs(
    prefix: str, when: Condition, most: int | Callable[[Task], int], *, dilation: str, filter: str
) -> tuple[Constraint, ...]:
    """Requirements on dilation and extents of the filter, with the reasons ``dilation`` and ``filter``.

    ``most``: the most taps along an axis.
    """
    fix = "nothing to do: another engine serves dilated filters"
    return (
        problem_need(prefix, "dilation", Each(Equals(1)), dilation, fix, when),
        filter_need(prefix, when, most, filter),
    )


def filter_need(prefix: str, when: Condition, most: int | Callable[[Task], int], reason: str) -> Constraint:
    """The requirement of at most ``most`` taps along each axis."""
    return window_need(
        f"{prefix}.filter",
        "w.dims",
        lambda task: problem_of(task).filter,
        lambda task: Each(InRange(1, most if isinstance(most, int) else most(task))),
        reason=reason,
        fix="nothing to do: another engine serves larger filters",
        when=when,
    )


def _strided_dilations(task: Task) -> tuple[int, ...]:
    """The dilations of the axes that also have a stride."""
    p = problem_of(task)
    return tuple(d for d, stride in zip(effective_dilation(p), p.stride, strict=True) if stride > 1)


def dilation_need(prefix: str, when: Condition) -> Constraint:
    """The requirement that no axis has both a dilation and a stride."""
    return window_need(
        f"{prefix}.dilation",
        "conv.dilations",
        _strided_dilations,
        Each(Equals(1)),
        reason="a dilation phase is computed as an image of its own, and a strided filter reads several phases",
        fix="nothing to do: another engine serves filters that are strided and dilated along an axis",
        when=when,
    )


def _max_taps(task: Task) -> int:
    """The most taps along an axis."""
    p = problem_of(task)
    return MAX_DEPTHWISE_FILTER if p.c == p.k == 1 else LONG_FILTER


def stride_need(prefix: str, when: Condition, most: int, reason: str) -> Constraint:
    """The requirement of a stride of at most ``most``."""
    fix = "nothing to do: another engine serves larger strides"
    return problem_need(prefix, "stride", Each(InRange(1, most)), reason, fix, when)


def reach_need(prefix: str, when: Condition) -> Constraint:
    """The requirement that coordinates and offsets within a row are 32-bit numbers."""
    return need(
        f"{prefix}.coordinates",
        "conv.pre_paddings",
        _largest_coordinate,
        AtMost(INT_MAX),
        reason="coordinates, padding included, and offsets within a row are 32-bit numbers in the kernel",
        fix="pad less, or divide the image",
        when=when,
    )


def kernel_need(prefix: str, is_ours: Condition, *, filter_gradient: bool) -> Constraint:
    """The requirement on the direction of the convolution."""
    return direction_need(
        prefix,
        "conv_wgrad" if filter_gradient else "conv_fprop or conv_dgrad",
        reason="the filter gradient sums over pixels, the other directions over taps: the kernels differ",
        when=lambda task: is_convolution(task) and not is_ours(task),
    )


def compute_need(prefix: str, is_ours: Condition) -> Constraint:
    """The requirement of a 32-bit compute type."""
    return kind_need(
        f"{prefix}.compute_type",
        "conv.compute_type",
        lambda task: task.op.main.compute_type,
        OneOf(*COMPUTE),
        reason="accumulators are 32-bit registers",
        fix="accumulate in FLOAT or INT32",
        when=is_ours,
    )


def direct_needs(prefix: str, *, filter_gradient: bool) -> tuple[Constraint, ...]:
    """The requirements of ``cuda_direct`` or ``cuda_direct_wgrad``; rule ids begin with ``prefix``."""

    def is_ours(task: Task) -> bool:
        return is_convolution(task) and isinstance(task.op.anchor, ConvBackwardFilter) == filter_gradient

    def is_image(task: Task) -> bool:
        return is_ours(task) and is_plane(task)

    return (
        needs_rule(f"{prefix}.operation", "conv"),
        kernel_need(prefix, is_ours, filter_gradient=filter_gradient),
        *row_needs(prefix, is_ours, "the kernel slides down the rows of an image"),
        compute_need(prefix, is_ours),
        dilation_need(prefix, is_image),
        filter_need(prefix, is_image, _max_taps, "the accumulators of the sliding window are kept in registers"),
        stride_need(prefix, is_image, MAX_STRIDE, "a thread's image columns grow with the stride"),
        window_need(
            f"{prefix}.channels_per_group",
            "w.dims[1]",
            lambda task: (problem_of(task).c, problem_of(task).k),
            Each(AtMost(MAX_CHANNELS)),
            reason="one thread multiplies all channels of a group",
            fix="nothing to do: more channels per group are a matrix product, which another engine serves",
            when=is_image,
        ),
        window_need(
            f"{prefix}.group_axis",
            "x.dims",
            lambda task: "an axis of groups beside the channels",
            Equals("groups and channels in one axis"),
            reason="a thread counts the channels of adjacent groups as one axis",
            fix="write x as [N, G*C, H, W] and w as [G*K, C, R, S]",
            when=lambda task: (
                is_image(task)
                and len(next(iter(_images(task).values())).extents) == 5
                and (problem_of(task).c > 1 or problem_of(task).k > 1)
            ),
        ),
        need(
            f"{prefix}.layout",
            "strides",
            lambda task: ", ".join(
                f"{name} {t.strides}" for name, t in _images(task).items() if not _has_contiguous_channels(task, t)
            ),
            Empty("contiguous channels"),
            reason="adjacent threads read adjacent channels by one memory transaction",
            fix="use the channels-last layout (NHWC)",
            when=is_image,
        ),
        reach_need(prefix, is_image),
    )


def shared_memory_need(prefix: str, choice: Callable[[Task], Choice], *, filter_gradient: bool) -> Constraint:
    """The requirement that some tile fits into shared memory, where all other requirements are met.

    ``choice``: the tile that the cost model chooses; its time is infinite if no tile fits.
    """

    def is_ours(task: Task) -> bool:
        if not is_plane(task) or isinstance(task.op.anchor, ConvBackwardFilter) != filter_gradient:
            return False
        p = problem_of(task)
        return max(p.c, p.k) <= MAX_CHANNELS and max(p.filter) <= _max_taps(task) and max(p.stride) <= MAX_STRIDE

    return need(
        f"{prefix}.shared_memory",
        "device.shared_memory",
        lambda task: task.device.shared_memory,
        Equals("enough for the rows of the smallest tile"),
        reason="the rows that a filter covers are kept in shared memory",
        fix="nothing to do: another engine serves it",
        when=lambda task: is_ours(task) and not isfinite(choice(task).seconds),
    )

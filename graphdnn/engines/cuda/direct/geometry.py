"""What the direct convolutions share: their space, what they need of a convolution, and how work is cut into blocks."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite

from graphdnn.checks import AtMost, Each, Empty, Equals, InRange, OneOf
from graphdnn.convolution import ConvProblem
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.direct.tile import Choice
from graphdnn.engines.cuda.generator.convolution_roles import Roles
from graphdnn.engines.cuda.generator.program import width_for
from graphdnn.engines.cuda.generator.space import Axis, Space, is_addressable
from graphdnn.engines.engine import Task, kind_need, need, needs_rule
from graphdnn.enums import DataType
from graphdnn.operations import ConvBackwardFilter, ConvolutionOperation
from graphdnn.rules import Constraint
from graphdnn.tensors import TensorSpec

_INT_MAX = 2**31 - 1
MAX_CHANNELS = 16  # per group
MAX_FILTER = 11
MAX_STRIDE = 4
COMPUTE = (
    DataType.FLOAT,
    DataType.HALF,
    DataType.BFLOAT16,
    DataType.FAST_FLOAT_FOR_FP8,
    DataType.INT32,
)


def image_space(roles: Roles, spec: TensorSpec) -> Space:
    """``(n, channel, h, w)`` of x or y; groups and their channels are one axis."""
    p, is_x = roles.problem, spec.uid == roles.op.roles[0].uid
    sizes = p.x_extents if is_x else p.y_extents
    first = len(spec.extents) - p.spatial
    axes = (Axis(sizes[0], 0), Axis(sizes[1] * sizes[2], 1), Axis(sizes[3], first), Axis(sizes[4], first + 1))
    return Space(spec.extents, axes)


def has_packed_filter(problem: ConvProblem, strides: tuple[int, ...]) -> bool:
    """True when each filter k lies in one piece and they follow each other, in any order inside.

    ``strides``: of ``(g, k, c, 1, f1, f2)``.
    """
    size = problem.c * problem.taps
    if problem.groups * problem.k > 1 and strides[1 if problem.k > 1 else 0] != size:
        return False
    if problem.k > 1 and problem.groups > 1 and strides[0] != problem.k * size:
        return False
    inner = sorted((s, e) for s, e in zip(strides[2:], (problem.c, 1, *problem.filter), strict=True) if e > 1)
    expected = 1
    for stride, extent in inner:
        if stride != expected:
            return False
        expected *= extent
    return True


def piece_bytes(roles: Roles, spec: TensorSpec) -> int:
    """Bytes of neighbouring channels that every pixel lets a thread copy at once."""
    return width_for(image_space(roles, spec), [spec], 1) * element_bytes(spec) if is_addressable(spec) else 1


def chunk_for(space: Space, spec: TensorSpec, channels: int) -> int:
    """Channels of a block that are copied at once: at most 16 bytes."""
    chunk = width_for(space, [spec], 1)
    while channels % chunk:
        chunk //= 2
    return chunk


def power_of_two_in(*numbers: int) -> int:
    """The largest power of two that divides all of them."""
    return min(number & -number for number in numbers)


# Needs.


def convolution(task: Task) -> ConvolutionOperation | None:
    anchor = task.op.anchor
    return anchor if isinstance(anchor, ConvolutionOperation) else None


def _problem(task: Task) -> ConvProblem:
    op = convolution(task)
    assert op is not None
    return op.problem


def _images(task: Task) -> dict[str, TensorSpec]:
    """The image operands that pass through shared memory, by port name."""
    op = convolution(task)
    assert op is not None
    return {name: t for name, t in op.inputs().items() if name in (op.role_names[0], op.role_names[2])}


def _has_contiguous_channels(task: Task, spec: TensorSpec) -> bool:
    op = convolution(task)
    assert op is not None
    if not is_addressable(spec):
        return False
    space = image_space(Roles.of(op), spec)
    return space.sizes[1] == 1 or space.strides(spec)[1] == 1


def _reach(task: Task) -> int:
    """The largest coordinate, and the most elements that a row spans."""
    p = _problem(task)
    axes = zip(p.input, p.output, p.filter, p.stride, p.pre_padding, p.post_padding, strict=True)
    # A tile more on every side: threads compute coordinates that they then leave out.
    coordinate = max(int(i + (o + 64) * s + f + pre + post) for i, o, f, s, pre, post in axes)
    spans = (
        MAX_STRIDE * abs(t.strides[-2]) + (p.input[1] + p.output[1] + 128) * abs(t.strides[-1]) * MAX_STRIDE
        for t in _images(task).values()
    )
    return max(coordinate, *spans)


def coordinates_need(prefix: str, when: Callable[[Task], bool]) -> Constraint:
    """Numbers of pixels and places in a row fit in 32 bits."""
    return need(
        f"{prefix}.coordinates",
        "conv.pre_paddings",
        _reach,
        AtMost(_INT_MAX),
        reason="coordinates, padding included, and places in a row are 32-bit numbers in the kernel",
        fix="pad less, or divide the image",
        when=when,
    )


def direct_needs(prefix: str, *, filter_gradient: bool) -> tuple[Constraint, ...]:
    """What a direct convolution asks for; ids begin with ``prefix``."""

    def is_ours(task: Task) -> bool:
        op = convolution(task)
        return op is not None and isinstance(op, ConvBackwardFilter) == filter_gradient

    def is_image(task: Task) -> bool:
        return is_ours(task) and _problem(task).spatial == 2

    direction = "conv_wgrad" if filter_gradient else "conv_fprop or conv_dgrad"
    return (
        needs_rule(f"{prefix}.operation", "conv"),
        kind_need(
            f"{prefix}.direction",
            "operation",
            lambda task: task.op.main.tag,
            Equals(direction),
            reason="the filter gradient sums over pixels, the other directions over taps: they are two kernels",
            fix="nothing to do: another engine serves this direction",
            when=lambda task: convolution(task) is not None and not is_ours(task),
        ),
        kind_need(
            f"{prefix}.spatial_dims",
            "conv.spatial_dims",
            lambda task: _problem(task).spatial,
            Equals(2),
            reason="the kernel walks down the rows of an image",
            fix="write a 1-D convolution as a 2-D one of height 1",
            when=is_ours,
        ),
        kind_need(
            f"{prefix}.prologue",
            "prologue",
            lambda task: len(task.op.prologue),
            Equals(0),
            reason="rows are copied to shared memory as they are, without passing through registers",
            fix="let the pointwise operations before the convolution write their result",
            when=is_ours,
        ),
        kind_need(
            f"{prefix}.compute_type",
            "conv.compute_type",
            lambda task: task.op.main.compute_type,
            OneOf(*COMPUTE),
            reason="sums are kept in 32-bit registers",
            fix="accumulate in FLOAT or INT32",
            when=is_ours,
        ),
        need(
            f"{prefix}.dilation",
            "conv.dilations",
            lambda task: _problem(task).dilation,
            Each(Equals(1)),
            reason="the window of rows holds neighbouring rows",
            fix="nothing to do: another engine serves dilated filters",
            when=is_image,
        ),
        need(
            f"{prefix}.filter",
            "w.dims",
            lambda task: _problem(task).filter,
            Each(AtMost(MAX_FILTER)),
            reason="the window of sums is kept in registers",
            fix="nothing to do: another engine serves larger filters",
            when=is_image,
        ),
        need(
            f"{prefix}.stride",
            "conv.filter_strides",
            lambda task: _problem(task).stride,
            Each(InRange(1, MAX_STRIDE)),
            reason="a thread's columns reach over the stride times their number",
            fix="nothing to do: another engine serves larger strides",
            when=is_image,
        ),
        need(
            f"{prefix}.channels_per_group",
            "w.dims[1]",
            lambda task: (_problem(task).c, _problem(task).k),
            Each(AtMost(MAX_CHANNELS)),
            reason="all channels of a group meet in one thread",
            fix="nothing to do: more channels per group are a matrix product, which another engine serves",
            when=is_image,
        ),
        need(
            f"{prefix}.group_axis",
            "x.dims",
            lambda task: "an axis of groups beside the channels",
            Equals("groups and channels in one axis"),
            reason="a thread counts the channels of neighbouring groups as one axis",
            fix="write x as [N, G*C, H, W] and w as [G*K, C, R, S]",
            when=lambda task: (
                is_image(task)
                and len(next(iter(_images(task).values())).extents) == 5
                and (_problem(task).c > 1 or _problem(task).k > 1)
            ),
        ),
        need(
            f"{prefix}.layout",
            "strides",
            lambda task: ", ".join(
                f"{name} {t.strides}" for name, t in _images(task).items() if not _has_contiguous_channels(task, t)
            ),
            Empty("channels next to each other"),
            reason="neighbouring threads read neighbouring channels: they have to lie next to each other",
            fix="use the channels-last layout (NHWC)",
            when=is_image,
        ),
        coordinates_need(prefix, is_image),
    )


def shared_memory_need(prefix: str, choice: Callable[[Task], Choice], *, filter_gradient: bool) -> Constraint:
    """Some tile fits; asked only of what the kernel is for."""

    def is_ours(task: Task) -> bool:
        op = convolution(task)
        if op is None or isinstance(op, ConvBackwardFilter) != filter_gradient or op.problem.spatial != 2:
            return False
        p = op.problem
        return max(p.c, p.k) <= MAX_CHANNELS and max(p.filter) <= MAX_FILTER and max(p.stride) <= MAX_STRIDE

    return need(
        f"{prefix}.shared_memory",
        "device.shared_memory",
        lambda task: task.device.shared_memory,
        Equals("room for the rows of the smallest tile"),
        reason="the rows that a filter covers are kept in shared memory",
        fix="nothing to do: another engine serves it",
        when=lambda task: is_ours(task) and not isfinite(choice(task).seconds),
    )


def element_bytes(spec: TensorSpec) -> int:
    return ELEMENTS[spec.data_type].bytes

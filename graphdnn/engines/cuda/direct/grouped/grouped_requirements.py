"""Requirements of ``cuda_grouped`` and ``cuda_grouped_wgrad``: channels of a group in multiples of 8, channels last."""

from __future__ import annotations

from collections.abc import Callable

from graphdnn.checks import AtLeast, Each, Empty, Equals, InRange, MultipleOf
from graphdnn.engines.cuda.codegen.index_space import is_addressable
from graphdnn.engines.cuda.codegen.tensor_cores import FLOAT_PAIRS
from graphdnn.engines.cuda.codegen.vectors import width_for
from graphdnn.engines.cuda.conv_geometry.convolution_requirements import (
    Condition,
    convolution_of,
    is_convolution,
    is_plane,
    problem_need,
    problem_of,
    roles_of,
)
from graphdnn.engines.cuda.direct.direct_access import image_space
from graphdnn.engines.cuda.direct.direct_requirements import kernel_need, reach_need, row_needs
from graphdnn.engines.cuda.direct.grouped.grouped_shape import CHUNK_CHANNELS
from graphdnn.engines.cuda.direct.stem.stem_requirements import FLOAT_ACCUMULATORS, HALF_PAIRS
from graphdnn.engines.engine import Task, image_need, kind_need, need, needs_rule
from graphdnn.operations import ConvBackwardData, ConvBackwardFilter
from graphdnn.rules import Constraint
from graphdnn.tensors import TensorSpec

_MAX_CHANNELS = 64  # the most channels of a group
_MAX_TAPS = 7  # the most taps along an axis
_RESIDENT_OPERAND = {  # key: whether the operation is the filter gradient
    False: ("the filters", "the filters of a CTA and a halo tile are in shared memory"),
    True: ("the accumulators", "a group's accumulators stay in registers, and two halo tiles are in shared memory"),
}


def _is_filter_gradient(task: Task) -> bool:
    return is_convolution(task) and isinstance(task.op.anchor, ConvBackwardFilter)


def _is_of_image(task: Task) -> bool:
    return is_convolution(task) and not isinstance(task.op.anchor, ConvBackwardFilter)


def _image(task: Task) -> tuple[TensorSpec, ...]:
    """The image operands that pass through shared memory."""
    x, _, y = convolution_of(task).roles
    if isinstance(task.op.anchor, ConvBackwardFilter):
        return x, y
    return (y,) if isinstance(task.op.anchor, ConvBackwardData) else (x,)


def _has_one_channel_axis(task: Task) -> bool:
    return is_plane(task) and len(_image(task)[0].extents) == 4


def _is_of_16_bits(task: Task) -> bool:
    return tuple(t.data_type for t in convolution_of(task).inputs().values()) in FLOAT_PAIRS


def _misplaced(task: Task) -> str:
    """The images whose layout or alignment does not allow copies of eight channels."""
    return ", ".join(
        f"strides {spec.strides}, aligned to {spec.byte_alignment}"
        for spec in _image(task)
        if not is_addressable(spec) or width_for(image_space(roles_of(task), spec), [spec], 1) < CHUNK_CHANNELS
    )


def grouped_needs(
    prefix: str, fits: Callable[[Task], bool], *, filter_gradient: bool = False
) -> tuple[Constraint, ...]:
    """The requirements; rule ids begin with ``prefix``.

    ``fits``: whether some tile fits into shared memory and registers, where all other requirements are met.
    """
    other = "nothing to do: another engine serves"
    is_ours = _is_filter_gradient if filter_gradient else _is_of_image

    def is_image(task: Task) -> bool:
        return is_ours(task) and is_plane(task)

    def has_one_channel_axis(task: Task) -> bool:
        return is_image(task) and _has_one_channel_axis(task)

    return (
        needs_rule(f"{prefix}.operation", "conv"),
        kernel_need(prefix, is_ours, filter_gradient=filter_gradient),
        *row_needs(prefix, is_ours, "the kernel copies halo tiles of 2-D images"),
        kind_need(
            f"{prefix}.data_type",
            "data_type",
            lambda task: tuple(t.data_type for t in convolution_of(task).inputs().values()),
            HALF_PAIRS[0],
            reason=HALF_PAIRS[1],
            fix=HALF_PAIRS[2],
            when=is_ours,
        ),
        kind_need(
            f"{prefix}.compute_type",
            "conv.compute_type",
            lambda task: task.op.main.compute_type,
            FLOAT_ACCUMULATORS,
            reason="accumulators are fp32",
            fix="accumulate in FLOAT",
            when=is_ours,
        ),
        problem_need(
            prefix,
            "groups",
            AtLeast(2),
            reason="a CTA computes the channels of some groups",
            fix=f"{other} a single group",
            when=is_image,
        ),
        image_need(
            f"{prefix}.channels_per_group",
            "w.dims[1]",
            lambda task: (problem_of(task).c, problem_of(task).k),
            Each(MultipleOf(CHUNK_CHANNELS)),
            reason="an MMA multiplies eight channels of a group",
            fix=f"{other} such groups",
            when=is_image,
        ),
        image_need(
            f"{prefix}.channels",
            "w.dims[1]",
            lambda task: (problem_of(task).c, problem_of(task).k),
            Each(InRange(CHUNK_CHANNELS, _MAX_CHANNELS)),
            reason="a warp keeps the accumulators of all channels of a group",
            fix=f"{other} larger groups",
            when=is_image,
        ),
        problem_need(
            prefix,
            "filter",
            Each(InRange(1, _MAX_TAPS)),
            reason="the kernel unrolls the taps of a row",
            fix=f"{other} larger filters",
            when=is_image,
        ),
        *(() if filter_gradient else (_stride_need(prefix, is_image),)),
        need(
            f"{prefix}.group_axis",
            "x.dims",
            lambda task: "an axis of groups beside the channels",
            Equals("groups and channels in one axis"),
            reason="a CTA counts the channels of adjacent groups as one axis",
            fix="write x as [N, G*C, H, W] and w as [G*K, C, R, S]",
            when=lambda task: is_image(task) and not _has_one_channel_axis(task),
        ),
        need(
            f"{prefix}.layout",
            "strides",
            _misplaced,
            Empty("contiguous channels, eight at a multiple of 16 bytes"),
            reason="a copy to shared memory has eight channels of a pixel",
            fix="use the channels-last layout (NHWC), aligned to 16 bytes",
            when=lambda task: has_one_channel_axis(task) and _is_of_16_bits(task),
        ),
        reach_need(prefix, is_image),
        need(
            f"{prefix}.shared_memory",
            "device.shared_memory",
            lambda task: task.device.shared_memory,
            Equals(f"enough for {_RESIDENT_OPERAND[filter_gradient][0]} of a group and the smallest halo tile"),
            reason=_RESIDENT_OPERAND[filter_gradient][1],
            fix=f"{other} it",
            when=lambda task: has_one_channel_axis(task) and _is_small(task) and not fits(task),
        ),
    )


def _stride_need(prefix: str, is_image: Condition) -> Constraint:
    return problem_need(
        prefix,
        "stride",
        Each(Equals(1)),
        reason="with a stride, the taps of a result depend on its residue",
        fix="nothing to do: another engine serves strided data gradients",
        when=lambda task: is_image(task) and isinstance(task.op.anchor, ConvBackwardData),
    )


def _is_small(task: Task) -> bool:
    p = problem_of(task)
    channels = (p.c, p.k)
    are_chunks = not any(c % CHUNK_CHANNELS for c in channels)
    return max(channels) <= _MAX_CHANNELS and are_chunks and max(p.filter) <= _MAX_TAPS

"""Requirements of ``cuda_depthwise`` and ``cuda_depthwise_wgrad``."""

from __future__ import annotations

from graphdnn.checks import Each, Empty, Equals
from graphdnn.engines.cuda.codegen.index_space import is_addressable
from graphdnn.engines.cuda.conv_geometry.convolution_requirements import (
    convolution_of,
    coordinates_need,
    is_convolution,
    problem_of,
    prologue_need,
    roles_of,
)
from graphdnn.engines.cuda.direct.direct_requirements import compute_need, kernel_need
from graphdnn.engines.engine import Task, need, needs_rule, window_need
from graphdnn.operations import ConvBackwardFilter
from graphdnn.rules import Constraint
from graphdnn.tensors import TensorSpec

CHANNEL, COLUMN = 1, 5  # coordinates of an image


def _is_forward(task: Task) -> bool:
    """Whether the operation is fprop or dgrad."""
    return is_convolution(task) and not isinstance(task.op.anchor, ConvBackwardFilter)


def is_filter_gradient(task: Task) -> bool:
    """Whether the operation is wgrad."""
    return is_convolution(task) and isinstance(task.op.anchor, ConvBackwardFilter)


def _input_images(task: Task) -> tuple[TensorSpec, ...]:
    """The images that the kernel reads: x, dy, or both."""
    op = convolution_of(task)
    written = {t.uid for t in op.outputs().values()}
    return tuple(t for t in (op.roles[0], op.roles[2]) if t.uid not in written)


def _mixed_layouts(task: Task) -> str:
    """The strides of the images, or an empty text if all images have contiguous channels or all contiguous columns."""
    roles, images = roles_of(task), _input_images(task)
    if all(map(is_addressable, images)):
        for axis in (CHANNEL, COLUMN):
            if all(roles.space(t).strides(t)[axis] == 1 or roles.space(t).sizes[axis] == 1 for t in images):
                return ""
    return " and ".join(f"strides {t.strides}" for t in images)


def depthwise_needs(prefix: str, *, filter_gradient: bool) -> tuple[Constraint, ...]:
    """The requirements; rule ids begin with ``prefix``. ``filter_gradient``: of wgrad, otherwise of fprop and dgrad."""
    is_ours = is_filter_gradient if filter_gradient else _is_forward
    return (
        needs_rule(f"{prefix}.operation", "conv"),
        kernel_need(prefix, is_ours, filter_gradient=filter_gradient),
        prologue_need(prefix, is_ours, "several threads read an element: it goes"),
        compute_need(prefix, is_ours),
        window_need(
            f"{prefix}.channels_per_group",
            "w.dims[1]",
            lambda task: (problem_of(task).c, problem_of(task).k),
            Each(Equals(1)),
            reason="a thread accumulates the products of one channel",
            fix="nothing to do: another engine serves several channels in a group",
            when=is_ours,
        ),
        need(
            f"{prefix}.layout",
            "strides",
            _mixed_layouts,
            Empty("contiguous channels in all images that are read, or contiguous columns in all of them"),
            reason="adjacent threads read adjacent elements of every image",
            fix="use the channels-last or the row-major layout for all images",
            when=is_ours,
        ),
        coordinates_need(prefix),
    )

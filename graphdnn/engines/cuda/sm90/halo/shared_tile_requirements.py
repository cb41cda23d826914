"""What the engines whose taps share a copied patch of an image have in common: one walk over lines and pixels."""

from __future__ import annotations

from math import prod

from graphdnn.checks import AtLeast, Equals, OneOf
from graphdnn.engines.cuda.conv_geometry.convolution_requirements import (
    Condition,
    is_convolution,
    is_plane,
    problem_need,
    problem_of,
    roles_of,
)
from graphdnn.engines.engine import Task, image_need, window_need
from graphdnn.rules import Constraint


def is_one_walk(task: Task, *, volumes: bool = False) -> bool:
    return _has_patches(task, volumes) and set(_strides(task)) == {1} and problem_of(task).groups == 1


def _has_patches(task: Task, volumes: bool) -> bool:
    return is_plane(task) or (volumes and is_convolution(task) and problem_of(task).spatial == 3)


def _strides(task: Task) -> tuple[int, ...]:
    """Of lines and pixels; of slices where they are gradients, whose taps would meet some of them only."""
    p = problem_of(task)
    return p.stride if roles_of(task).direction == "dgrad" else p.stride[-2:]


def patch_needs(
    prefix: str,
    when: Condition,
    filters: str,
    *,
    stride: str,
    groups: str,
    shares: Condition = lambda task: True,
    volumes: bool = False,
) -> tuple[Constraint, ...]:
    """``filters``: the attribute that has their extents; ``stride``, ``groups``: reasons; ``shares``: whether it is for
    what taps share that pieces are copied; ``volumes``: patches may be of slices.
    """
    return (
        problem_need(
            prefix,
            "spatial",
            OneOf(2, 3) if volumes else Equals(2),
            reason="a patch has lines and pixels",
            fix="nothing to do: another engine serves other images",
            when=when,
        ),
        window_need(
            f"{prefix}.stride",
            "conv.filter_strides",
            _strides,
            OneOf((1, 1), (1, 1, 1)) if volumes else Equals((1, 1)),
            reason=stride,
            fix="nothing to do: another engine serves strides",
            when=lambda task: when(task) and _has_patches(task, volumes),
        ),
        problem_need(
            prefix,
            "groups",
            Equals(1),
            reason=groups,
            fix="nothing to do: another engine serves groups",
            when=when,
            attribute=filters,
        ),
        image_need(
            f"{prefix}.taps",
            filters,
            lambda task: prod(problem_of(task).filter[-2:]),
            AtLeast(2),
            reason="one tap of a plane shares what is copied with no other",
            fix="nothing to do: another engine serves filters of one tap",
            when=lambda task: when(task) and shares(task),
        ),
    )

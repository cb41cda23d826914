"""What the engines whose taps share a copied patch of an image have in common: one walk over lines and pixels."""

from __future__ import annotations

from graphdnn.checks import AtLeast, Equals
from graphdnn.engines.cuda.generator.convolution_needs import Condition, is_plane, problem_need, problem_of
from graphdnn.engines.engine import Task
from graphdnn.rules import Constraint


def is_one_walk(task: Task) -> bool:
    return is_plane(task) and problem_of(task).stride == (1, 1) and problem_of(task).groups == 1


def patch_needs(
    prefix: str, when: Condition, filters: str, *, stride: str, groups: str, shares: Condition = lambda task: True
) -> tuple[Constraint, ...]:
    """``filters``: the attribute that has their extents; ``stride``, ``groups``: reasons; ``shares``: whether it is for
    what taps share that pieces are copied.
    """
    return (
        problem_need(
            prefix,
            "spatial",
            Equals(2),
            reason="a patch has lines and pixels",
            fix="nothing to do: another engine serves other images",
            when=when,
        ),
        problem_need(
            prefix,
            "stride",
            Equals((1, 1)),
            reason=stride,
            fix="nothing to do: another engine serves strides",
            when=lambda task: when(task) and is_plane(task),
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
        problem_need(
            prefix,
            "taps",
            AtLeast(2),
            reason="one tap shares what is copied with no other",
            fix="nothing to do: another engine serves filters of one tap",
            when=lambda task: when(task) and shares(task),
            attribute=filters,
        ),
    )

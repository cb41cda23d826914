"""Requirements on convolutions that several engines share; rule ids begin with the engine's name."""

from __future__ import annotations

from collections.abc import Callable

from graphdnn.checks import Check, Equals
from graphdnn.engines.cuda.codegen.index_space import INT_MAX
from graphdnn.engines.cuda.conv_geometry.convolution_roles import Roles
from graphdnn.engines.engine import Task, kind_need, need, window_need
from graphdnn.enums import Status
from graphdnn.operations import ConvolutionOperation
from graphdnn.operations.conv_problem import ConvProblem
from graphdnn.rules import Constraint

Condition = Callable[[Task], bool]
_ATTRIBUTES = {
    "spatial": "conv.spatial_dims",
    "stride": "conv.filter_strides",
    "dilation": "conv.dilations",
    "filter": "w.dims",
    "groups": "groups",
}


def is_convolution(task: Task) -> bool:
    return isinstance(task.op.anchor, ConvolutionOperation)


def convolution_of(task: Task) -> ConvolutionOperation:
    assert isinstance(task.op.anchor, ConvolutionOperation)
    return task.op.anchor


def problem_of(task: Task) -> ConvProblem:
    return convolution_of(task).problem


def roles_of(task: Task) -> Roles:
    return Roles.of(convolution_of(task))


def is_plane(task: Task) -> bool:
    """Whether the operation is a convolution with two spatial axes."""
    return is_convolution(task) and problem_of(task).spatial == 2


def problem_need(
    prefix: str,
    field: str,
    check: Check,
    reason: str,
    fix: str,
    when: Condition = is_convolution,
    *,
    name: str = "",
    attribute: str = "",
    status: Status = Status.NOT_SUPPORTED,
) -> Constraint:
    """A condition of one field of the problem that its images' lines and pixels do not change, nor how many there are;
    ``when`` does not look at these either. ``name``, ``attribute``: where they are not those of the field.
    """
    made = kind_need if field == "spatial" else window_need
    return made(
        f"{prefix}.{name or field}",
        attribute or _ATTRIBUTES[field],
        lambda task: getattr(problem_of(task), field),
        check,
        reason=reason,
        fix=fix,
        status=status,
        when=when,
    )


def direction_need(prefix: str, tag: str, reason: str, when: Condition) -> Constraint:
    """The requirement on the direction. ``tag``: the operation that is served; ``when``: it is another one."""
    return kind_need(
        f"{prefix}.direction",
        "operation",
        lambda task: task.op.main.tag,
        Equals(tag),
        reason=reason,
        fix="nothing to do: another engine serves this direction",
        when=when,
    )


def prologue_need(prefix: str, when: Condition, what: str = "operands go") -> Constraint:
    return kind_need(
        f"{prefix}.prologue",
        "prologue",
        lambda task: len(task.op.prologue),
        Equals(0),
        reason=f"{what} to shared memory as they are, without passing through registers",
        fix="let the pointwise operations before the convolution write their result",
        when=when,
    )


def coordinates_need(prefix: str) -> Constraint:
    return need(
        f"{prefix}.coordinates",
        "conv.pre_paddings",
        _reach,
        Equals(f"coordinates up to {INT_MAX}"),
        reason="coordinates, padding and dilated taps included, are 32-bit numbers in the kernel",
        fix="pad or dilate less",
        when=lambda task: is_convolution(task) and _reach(task) > INT_MAX,
    )


def _reach(task: Task) -> int:
    """The largest coordinate that a kernel computes, including one tile of pixels beyond the image."""
    p = problem_of(task)
    axes = zip(p.input, p.output, p.filter, p.dilation, p.stride, p.pre_padding, p.post_padding, strict=True)
    return max(int(i + o * s + f * d + pre + post) for i, o, f, d, s, pre, post in axes)

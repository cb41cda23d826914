"""The index space of resampling kernels, and the geometry of windows as integers.

Coordinates are ``(n, c, i0, i1, i2)`` or ``(n, i0, i1, i2, c)``, depending on the memory order. Missing spatial axes
have extent 1 and come first. Tap t of output o along an axis reads element ``floor((o * slope + start) / unit) + t``.
Strides and paddings are fractions, and ``unit`` is their common denominator.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import lcm, prod

from graphdnn.checks import Equals
from graphdnn.engines.cuda.codegen.fast_division import magic
from graphdnn.engines.cuda.codegen.index_space import INT_MAX, Axis, IndexSpace
from graphdnn.engines.cuda.codegen.parameters import Parameters
from graphdnn.engines.cuda.conv_geometry.convolution_roles import SPATIAL, padded
from graphdnn.engines.engine import Task, need
from graphdnn.enums import PaddingMode, ResampleMode, Status
from graphdnn.operations import ResampleBackward, ResampleForward, ResampleSpec
from graphdnn.operations.resample import POOLING
from graphdnn.rules import Constraint
from graphdnn.tensors import TensorSpec

_SMALL = 4

# The values of the enumerations in resample_axis.cuh.
_MODES = {
    ResampleMode.NEAREST: 0,
    ResampleMode.BILINEAR: 1,
    ResampleMode.MAXPOOL: 2,
    ResampleMode.AVGPOOL_INCLUDE_PADDING: 3,
    ResampleMode.AVGPOOL_EXCLUDE_PADDING: 4,
}
_PADDINGS = {PaddingMode.NEG_INF_PAD: 0, PaddingMode.ZERO_PAD: 1, PaddingMode.EDGE_VAL_PAD: 2}


@dataclass(frozen=True, slots=True)
class Line:
    """Along one axis: ``taps`` elements from ``(o * slope + start) / unit`` on."""

    slope: int
    start: int
    unit: int
    taps: int

    def reach(self, outputs: int) -> int:
        return max(outputs * self.slope + abs(self.start), 0) + self.taps * self.unit


def reads_edges(spec: ResampleSpec) -> bool:
    """Whether elements outside x are read as the nearest element."""
    return spec.padding_mode is PaddingMode.EDGE_VAL_PAD and spec.mode is not ResampleMode.AVGPOOL_EXCLUDE_PADDING


def lines(spec: ResampleSpec) -> tuple[Line, ...]:
    """The geometry of every spatial axis."""
    return tuple(
        _line(spec.mode, stride, pre, window)
        for stride, pre, window in zip(spec.strides, spec.pre_paddings, spec.window_dims, strict=True)
    )


def _line(mode: ResampleMode, stride: Fraction, pre: Fraction, window: Fraction) -> Line:
    start, taps = -pre, int(window)
    if mode is ResampleMode.NEAREST:
        start, taps = (window - 1) / 2 - pre, 1
    elif mode is ResampleMode.BILINEAR:
        start, taps = stride / 2 - pre, 2
    unit = lcm(stride.denominator, start.denominator)
    return Line(int(stride * unit), int(start * unit), unit, taps)


def is_channels_last(spec: TensorSpec) -> bool:
    """Whether channels have a smaller stride than the last spatial axis."""
    return spec.extents[1] > 1 and (spec.extents[-1] == 1 or spec.strides[1] < spec.strides[-1])


def resample_space(spec: TensorSpec, channels_last: bool) -> IndexSpace:
    extents = spec.extents
    spatial = [Axis(1, 0)] * (SPATIAL + 2 - len(extents))
    spatial += [Axis(size, 2 + i) for i, size in enumerate(extents[2:])]
    batch, channels = Axis(extents[0], 0), Axis(extents[1], 1)
    return IndexSpace(extents, (batch, *spatial, channels) if channels_last else (batch, channels, *spatial))


def add_counts(parameters: Parameters, space: IndexSpace, width: int) -> int:
    """Adds the threads along each coordinate, with ``width`` elements each; returns their total number."""
    *outer, inner = space.sizes
    steps = [*outer, inner // width]
    parameters.integer("count", prod(steps))
    parameters.integers("steps", steps)
    parameters.integers("magic", [magic(size) for size in steps])
    return prod(steps)


def add_geometry(parameters: Parameters, op: ResampleForward | ResampleBackward) -> None:
    axes = lines(op.spec)
    parameters.integers("slope", padded(tuple(a.slope for a in axes), 1))
    parameters.integers("start", padded(tuple(a.start for a in axes), 0))
    parameters.integers("unit", padded(tuple(a.unit for a in axes), 1))
    parameters.integers("taps", padded(tuple(a.taps for a in axes), 1))
    parameters.integers("image", padded(op.full.extents[2:], 1))
    parameters.integers("outputs", padded(op.pooled.extents[2:], 1))
    parameters.integer("volume", prod(a.taps for a in axes))


def geometry_constants(spec: ResampleSpec, channels_last: bool) -> dict[str, int | bool | str]:
    """The constants of a kernel: the kind of window, and the strides and size of a small window."""
    axes = lines(spec)
    is_small = spec.mode in POOLING and all(max(a.slope, a.taps) <= _SMALL for a in axes)
    known = {"SLOPE": padded(tuple(a.slope for a in axes), 1), "TAPS": padded(tuple(a.taps for a in axes), 1)}
    numbers = {f"{name}_{j}": v if is_small else 1 for name, values in known.items() for j, v in enumerate(values)}
    return {
        "FIXED": is_small,
        **numbers,
        "MODE": _MODES[spec.mode],
        "PADDING": _PADDINGS[spec.padding_mode],
        "SPATIAL": spec.spatial_dims,
        "CHANNELS_LAST": channels_last,
    }


def _reach(task: Task) -> int:
    op = task.op.anchor
    assert isinstance(op, (ResampleForward, ResampleBackward))
    return max(line.reach(size) for line, size in zip(lines(op.spec), op.pooled.extents[2:], strict=True))


def direction_need(id: str, kind: type[ResampleForward] | type[ResampleBackward]) -> Constraint:
    return need(
        id,
        "operation",
        lambda task: task.op.main.tag,
        Equals(kind.tag),
        reason="the engine is written for the other direction",
        fix="nothing to do: another engine serves this operation",
        status=Status.NOT_SUPPORTED_GRAPH_PATTERN,
        when=lambda task: task.op.rule == "resample" and not isinstance(task.op.anchor, kind),
    )


def coordinates_need(id: str) -> Constraint:
    return need(
        id,
        "spec.strides",
        _reach,
        Equals(f"coordinates up to {INT_MAX}"),
        reason="positions over the common denominator of strides and paddings are 32-bit numbers in the kernel",
        fix="use fractions with a smaller denominator, or smaller windows",
        when=lambda task: task.op.rule == "resample" and _reach(task) > INT_MAX,
    )

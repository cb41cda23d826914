"""Pooling with disjoint windows along up to three axes, and its gradient, a kernel each.

Windows along two axes use the kernels of pool.py and pool_backward.py; these kernels are for volumes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from graphdnn.dtypes import COMPUTE
from graphdnn.engines.cuda.codegen.fast_division import count_type, magic
from graphdnn.engines.cuda.codegen.index_space import IndexSpace
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.codegen.vectors import width_for
from graphdnn.engines.cuda.resample.resample_axes import (
    add_geometry,
    geometry_constants,
    is_channels_last,
    resample_space,
)
from graphdnn.enums import NanPropagation, ResampleMode
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ResampleBackward, ResampleForward
from graphdnn.operations.resample import POOLING
from graphdnn.tensors import TensorSpec

_THREADS = 128
_LARGEST_WINDOW = 4  # along an axis
_MOST_VALUES = 64  # of a thread


@dataclass(frozen=True, slots=True)
class DisjointWindows:
    """``width`` windows of a thread, with accesses of ``x_width`` elements."""

    x_space: IndexSpace
    y_space: IndexSpace
    along: bool
    width: int
    x_width: int
    steps: tuple[int, ...]
    is_whole: bool  # windows cover all of x


def are_disjoint(anchor: ResampleForward | ResampleBackward) -> bool:
    """Whether windows are small and adjacent, and none extends beyond x."""
    spec, x, y = anchor.spec, anchor.full.extents[2:], anchor.pooled.extents[2:]
    return (
        spec.mode in POOLING
        and anchor.index is None
        and tuple(spec.window_dims) == tuple(spec.strides)
        and not any(spec.pre_paddings)
        and all(int(w) <= _LARGEST_WINDOW and w * o <= size for w, o, size in zip(spec.window_dims, y, x, strict=True))
        and (spec.mode is ResampleMode.MAXPOOL or COMPUTE[anchor.compute_type].kind == "f")
    )


def disjoint_windows(
    anchor: ResampleForward | ResampleBackward, of_x: Sequence[TensorSpec], of_y: Sequence[TensorSpec]
) -> DisjointWindows | None:
    """``of_x``, ``of_y``: tensors that are accessed in vectors in the layouts of x and y."""
    if not are_disjoint(anchor):
        return None
    channels_last = is_channels_last(anchor.full)
    x_space, y_space = (resample_space(t, channels_last) for t in (anchor.full, anchor.pooled))
    windows = (*(1,) * (3 - anchor.spec.spatial_dims), *map(int, anchor.spec.window_dims))
    first = 1 if channels_last else 2
    taps = [1] * 5
    taps[first : first + 3] = windows
    sizes = [-(-size // tap) for size, tap in zip(x_space.sizes, taps, strict=True)]
    is_whole = all(size % tap == 0 for size, tap in zip(x_space.sizes, taps, strict=True))
    if isinstance(anchor, ResampleForward):  # elements outside all windows have no results
        sizes = list(y_space.sizes)
    width = _width(
        width_for(x_space, of_x), width_for(y_space, of_y), 1 if channels_last else windows[2], prod(windows)
    )
    x_width = width if channels_last else width * windows[2] if width > 1 else 1
    if width > 1 and (sizes[-1] % width or (not channels_last and x_space.sizes[-1] % windows[2])):
        return None
    sizes[-1] //= width
    return DisjointWindows(x_space, y_space, not channels_last, width, x_width, tuple(sizes), is_whole)


def _width(x_width: int, y_width: int, apart: int, taps: int) -> int:
    """Windows whose elements, ``apart`` in each row, are one access of x, and whose gradients are one access of dy."""
    width = x_width // apart if x_width % apart == 0 else 1
    width = max(1, min(width, y_width))
    while width > 1 and width * taps > _MOST_VALUES:
        width //= 2
    return width


def generate_pool_disjoint_backward(op: FusedOp, steps: LaunchSequence, windows: DisjointWindows) -> DeviceKernel:
    """The kernel of the gradient."""
    anchor = op.anchor
    assert isinstance(anchor, ResampleBackward)
    parameters = Parameters(steps.workspace_offsets)
    compute = COMPUTE_TYPE[anchor.compute_type]
    functions = []
    if anchor.spec.mode is ResampleMode.MAXPOOL and anchor.x is not None:
        source = Program(op, parameters, windows.x_space, "x", width=windows.x_width)
        source.copy_widened_to("value", anchor.x, compute)
        functions.append(source.function("prologue", f"{compute} (&value)[{windows.x_width}]"))
    gradient = Program(op, parameters, windows.y_space, "y", width=windows.width)
    gradient.apply(op.prologue)
    gradient.copy_widened_to("value", anchor.dy, compute)
    functions.append(gradient.function("gradient", f"{compute} (&value)[{windows.width}]"))
    body = Program(op, parameters, windows.x_space, "d", width=windows.x_width)
    steps.write_epilogue(body, "acc", compute)
    functions.append(body.function("epilogue", f"const {compute} (&acc)[{windows.x_width}]"))
    steps.add_early(_launch(op, parameters, functions, windows, "pool_disjoint_backward", {"WHOLE": windows.is_whole}))
    return steps.kernel(_name(op, windows, "_bwd"))


def generate_pool_disjoint(
    op: FusedOp, steps: LaunchSequence, windows: DisjointWindows, parameters: Parameters, functions: Sequence[str]
) -> DeviceKernel:
    """The kernel of the forward direction. ``functions``: the reads of x and the stores of y."""
    steps.add_early(_launch(op, parameters, functions, windows, "pool_disjoint", {}))
    return steps.kernel(_name(op, windows, ""))


def _name(op: FusedOp, windows: DisjointWindows, direction: str) -> str:
    anchor = op.anchor
    assert isinstance(anchor, (ResampleForward, ResampleBackward))
    return f"resample_{anchor.spec.mode.name.lower()}{direction}__apart_v{windows.width}__{op.name}"


def _launch(
    op: FusedOp,
    parameters: Parameters,
    functions: Sequence[str],
    windows: DisjointWindows,
    entry: str,
    constants: Mapping[str, bool],
) -> Launch:
    anchor = op.anchor
    assert isinstance(anchor, (ResampleForward, ResampleBackward))
    count = prod(windows.steps)
    parameters.table({"count": count, "steps": windows.steps, "magic": [magic(size) for size in windows.steps]})
    add_geometry(parameters, anchor)
    text = kernel_text(
        _name(op, windows, "_bwd" if isinstance(anchor, ResampleBackward) else ""),
        [f"{entry}.cu"],
        parameters=parameters.text,
        functions=functions,
        constants={
            **geometry_constants(anchor.spec, not windows.along),
            "IS_MAXIMUM": anchor.spec.mode is ResampleMode.MAXPOOL,
            "PROPAGATE": anchor.spec.nan_propagation is NanPropagation.PROPAGATE_NAN,
            "THREADS": _THREADS,
            "ALONG": windows.along,
            "VEC_WIDTH": windows.width,
            "X_VEC_WIDTH": windows.x_width,
            "Compute": COMPUTE_TYPE[anchor.compute_type],
            "Count": count_type(count),
            **constants,
        },
    )
    return Launch(text, entry, (-(-count // _THREADS), 1, 1), _THREADS, parameters.pack())

"""The im2col matrix of a convolution: its layout, and the launches of im2col and col2im.

Names of axes: n, g, c, k, o0 o1 o2 (pixels of y) and f0 f1 f2 (taps); strides are elements, by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.codegen.fast_division import count_type, magic
from graphdnn.engines.cuda.codegen.launch import Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.codegen.vectors import width_for
from graphdnn.engines.cuda.conv_geometry.convolution_roles import SPATIAL, Roles, padded
from graphdnn.enums import DataType
from graphdnn.tensors import TensorSpec, stride_order

PIXELS = ("o0", "o1", "o2")
TAPS = ("f0", "f1", "f2")
_THREADS = 256
_BLOCKS_PER_SM = 32
_BYTES = 16

Strides = Mapping[str, int]


def sizes_of(roles: Roles) -> dict[str, int]:
    """The extent of every axis, by name."""
    p = roles.problem
    spatial = dict(zip((*PIXELS, *TAPS), (*padded(p.output, 1), *padded(p.filter, 1)), strict=True))
    return {"n": p.n, "g": p.groups, "c": p.c, "k": p.k, **spatial}


def column_order(channels_last: bool) -> tuple[str, ...]:
    """Axes of the matrix, outermost first; channels or pixels are contiguous."""
    return ("g", "n", *PIXELS, *TAPS, "c") if channels_last else ("g", "c", *TAPS, "n", *PIXELS)


def column_strides(roles: Roles, channels_last: bool) -> dict[str, int]:
    sizes, strides, step = sizes_of(roles), {}, 1
    for name in reversed(column_order(channels_last)):
        strides[name] = step
        step *= sizes[name]
    return strides


def column_elements(roles: Roles) -> int:
    sizes = sizes_of(roles)
    return prod([sizes[name] for name in column_order(True)])


def geometry(roles: Roles) -> dict[str, tuple[int, ...]]:
    """Input position = start + pixel * stride + tap * tap_step, for each of three axes."""
    p = roles.problem
    reach = tuple((f - 1) * d if p.flip else 0 for f, d in zip(p.filter, p.dilation, strict=True))
    return {
        "start": padded(tuple(r - pre for r, pre in zip(reach, p.pre_padding, strict=True)), 0),
        "tap_step": padded(tuple(-d if p.flip else d for d in p.dilation), 1),
        "stride": padded(p.stride, 1),
    }


def _axes(roles: Roles, channels_last: bool) -> list[str]:
    sizes = sizes_of(roles)
    return [name for name in column_order(channels_last) if sizes[name] > 1] or ["c"]


def column_width(roles: Roles, image: TensorSpec, channels_last: bool) -> int:
    """Elements of a vector store to the matrix."""
    last = _axes(roles, channels_last)[-1]
    if last == "c":
        return width_for(roles.space(roles.op.roles[0]), [image], 2)
    if last not in (*PIXELS, *TAPS):
        return 1
    limit, size = _BYTES // ELEMENTS[image.data_type].bytes, sizes_of(roles)[last]
    return next(w for w in (16, 8, 4, 2, 1) if w <= limit and size % w == 0)


def add_im2col(steps: LaunchSequence, roles: Roles, image: TensorSpec, channels_last: bool, place: int) -> None:
    """Add the launch of im2col, from ``image`` to the matrix at ``place`` in the workspace, in the image's type."""
    sizes, shape = sizes_of(roles), geometry(roles)
    space = roles.space(roles.op.roles[0])
    strides = space.strides(image)
    along = dict(zip(("n", "g", "c"), strides[:SPATIAL], strict=True))
    moves = {
        **{name: (d, shape["stride"][d]) for d, name in enumerate(PIXELS)},
        **{name: (d, shape["tap_step"][d]) for d, name in enumerate(TAPS)},
    }
    axes = _axes(roles, channels_last)
    last, width = axes[-1], column_width(roles, image, channels_last)
    count = prod(sizes[name] for name in axes) // width
    counts = [*(sizes[name] for name in axes[:-1]), sizes[last] // width]
    parameters = Parameters(steps.workspace_offsets)
    parameters.tensor("image", image)
    parameters.workspace_pointer("columns", STORAGE[image.data_type], place)
    parameters.integer("count", count)
    parameters.integers("size", counts)
    parameters.integers("magic", [magic(size) for size in counts])
    parameters.integers("step", [moves[name][1] if name in moves else along[name] for name in axes])
    parameters.integers("start", shape["start"])
    parameters.integers("image_size", padded(roles.problem.input, 1))
    parameters.integers("image_stride", strides[SPATIAL:])
    dimensions = ", ".join(str(moves[name][0] if name in moves else -1) for name in axes)
    text = kernel_text(
        f"im2col__v{width}r{len(axes)}",
        ["im2col.cu"],
        parameters=parameters.text,
        functions=[f"constexpr int SPATIAL_AXIS[] = {{{dimensions}}};\n"],
        constants={
            "THREADS": _THREADS,
            "RANK": len(axes),
            "SPATIAL": SPATIAL,
            "VEC_WIDTH": width,
            "Element": STORAGE[image.data_type],
            "Count": count_type(count),
        },
    )
    steps.add(Launch(text, "im2col", (_blocks(steps, count), 1, 1), _THREADS, parameters.pack()))


def add_col2im(steps: LaunchSequence, roles: Roles, columns: Strides, place: int, arithmetic: DataType) -> None:
    """Add the launch of col2im, from the matrix at ``place`` to the data gradient, with the epilogue."""
    shape, compute = geometry(roles), COMPUTE_TYPE[arithmetic]
    dx = roles.output
    space = roles.space(dx)
    tensors = [*steps.epilogue_tensors(), dx]
    channels = width_for(space, tensors, 2)
    width = 1
    if columns["c"] == 1:  # several channels at a time, 16 bytes of the matrix in one access or two
        width = next(w for w in (8, 4, 2, 1) if channels % w == 0 and w * ELEMENTS[arithmetic].bytes <= 2 * _BYTES)
    written = next((t for t in steps.op.outputs if t.extents == dx.extents), dx)
    order = stride_order(space.sizes, space.strides(written))
    if width > 1:
        order = (*(axis for axis in order if axis != 2), 2)
    parameters = Parameters(steps.workspace_offsets)
    program = Program(steps.op, parameters, space, "t", width=width, vector_axis=2)
    steps.write_epilogue(program, "acc", compute)
    counts = [space.sizes[axis] // (width if axis == 2 else 1) for axis in order]
    parameters.workspace_pointer("columns", compute, place)
    parameters.integer("count", prod(counts))
    parameters.integers("size", counts)
    parameters.integers("magic", [magic(size) for size in counts])
    for name in ("n", "g", "c"):
        parameters.integer(f"column_{name}", columns[name])
    parameters.integers("column_pixel", [columns[name] for name in PIXELS])
    parameters.integers("column_tap", [columns[name] for name in TAPS])
    parameters.integers("filter", padded(roles.problem.filter, 1))
    parameters.integers("output", padded(roles.problem.output, 1))
    for name, values in shape.items():
        parameters.integers(name, values)
    parameters.integers("stride_magic", [magic(step) for step in shape["stride"]])
    listed = ", ".join(map(str, order))
    text = kernel_text(
        f"col2im__v{width}__{steps.op.name}",
        ["col2im.cu"],
        parameters=parameters.text,
        functions=[
            f"constexpr int ORDER[] = {{{listed}}};\n",
            program.function("epilogue", f"const {compute} (&acc)[{width}]"),
        ],
        constants={
            "THREADS": _THREADS,
            "VEC_WIDTH": width,
            "AXIS": 2,
            "Accum": compute,
            "Count": count_type(prod(counts)),
        },
    )
    steps.add(Launch(text, "col2im", (_blocks(steps, prod(counts)), 1, 1), _THREADS, parameters.pack()))


def _blocks(steps: LaunchSequence, count: int) -> int:
    return min(-(-count // _THREADS), _BLOCKS_PER_SM * steps.device.sm_count)


def named(roles: Roles, role: str, spec: TensorSpec) -> dict[str, int]:
    """Strides by the names of the axes of ``spec``, which has the extents of x, w or y; positions of x are pixels."""
    x, w, y = roles.op.roles
    names = {"x": ("n", "g", "c", *PIXELS), "w": ("g", "k", "c", *TAPS), "y": ("n", "g", "k", *PIXELS)}[role]
    space = roles.space({"x": x, "w": w, "y": y}[role])
    return dict(zip(names, space.strides(spec), strict=True))

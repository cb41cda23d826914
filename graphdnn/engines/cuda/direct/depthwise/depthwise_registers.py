"""Depthwise fprop and dgrad with unit stride and rows in registers: everything that two kernels have in common.

A thread (depthwise_thread.cuh) owns few channels of few columns. The kernels depthwise_rows.cu and depthwise_sliding.cu
differ in how a thread iterates over rows. The stride of a pixel is a compile-time constant, so a kernel is compiled for
each number of channels, but not for each batch, height or width.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from graphdnn.engines.cuda.codegen.fast_division import magic
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program
from graphdnn.engines.cuda.codegen.source import include, kernel_text
from graphdnn.engines.cuda.codegen.vectors import width_for
from graphdnn.engines.cuda.direct.direct_access import effective_dilation, image_space
from graphdnn.engines.cuda.direct.direct_operands import Operands, PackedFilter, interior_offsets
from graphdnn.fusion.fused_graph import FusedOp

MAX_COUNT = 2**31  # the most threads, and the most elements, that a kernel counts
_MAX_TAPS = 7  # along an axis
_COLUMN_AXIS = 3  # of image_space; its stride depends only on the number of channels


class Tile(Protocol):
    """A work partition of a kernel with rows in registers."""

    @property
    def v(self) -> int: ...  # channels of a thread
    @property
    def tw(self) -> int: ...  # columns
    @property
    def rows(self) -> int: ...
    @property
    def threads(self) -> int: ...  # threads of a CTA
    @property
    def ctas_per_sm(self) -> int: ...  # CTAs of an SM for which the registers are limited


def serves(operands: Operands) -> bool:
    """Whether the kernels serve the convolution."""
    shape, p = operands.shape, operands.shape.problem
    return (
        shape.group_in == shape.group_out == 1
        and set(p.stride) == {1}
        and max(p.filter) <= _MAX_TAPS
        and p.n * p.groups * shape.rows * shape.columns < MAX_COUNT
        and pixel_pitch(operands) < MAX_COUNT
    )


def pixel_pitch(operands: Operands) -> int:
    """Elements between adjacent pixels of the image."""
    return image_space(operands.roles, operands.image).strides(operands.image)[_COLUMN_AXIS]


def generate(
    op: FusedOp,
    operands: Operands,
    steps: LaunchSequence,
    tile: Tile,
    kind: str,
    constants: Mapping[str, Any],
    fields: Mapping[str, int],
) -> DeviceKernel:
    """The launch of depthwise_KIND.cu.

    Args:
        op: The fused operation.
        operands: Its operands.
        steps: The launches so far.
        tile: The work partition.
        kind: The kernel: ``rows`` or ``sliding``.
        constants: Compile-time constants of this kernel only.
        fields: Parameters of this kernel only.
    """
    roles, p = operands.roles, operands.roles.problem
    filter = PackedFilter.of(operands, steps)
    compute = COMPUTE_TYPE[roles.op.compute_type]
    parameters = Parameters(steps.workspace_offsets)
    out_space = image_space(roles, operands.output)
    width = min(tile.v, width_for(out_space, steps.epilogue_tensors(), 1))
    body = Program(
        op, parameters, out_space, "t", width=width, vector_axis=1, has_column_operands=True,
        static_stride_axes=(_COLUMN_AXIS,), clip_function="clip_halves",
    )  # fmt: skip
    steps.write_epilogue(body, "acc", compute)
    parameters.tensor("image", operands.image)
    parameters.tensor("filter", filter.spec)
    threads = _add_extents(parameters, operands, tile)
    parameters.table(fields)

    variant = f"{kind}_r{p.filter[0]}s{p.filter[1]}v{tile.v}w{tile.tw}"
    name = f"{variant}h{tile.rows}"
    text = kernel_text(
        # If the number of rows is a run-time parameter, all numbers have one kernel text and one name.
        f"conv_{roles.direction}__{name if 'ROWS' in constants else variant}__{op.name}",
        [f"depthwise_{kind}.cu"],
        parameters=parameters.text,
        functions=[
            include("clip_halves.cuh"),
            body.column_operands_text(),
            body.function("epilogue", f"const ColumnOperands& column_operands, const {compute} (&acc)[{width}]"),
        ],
        constants={**_constants(operands, tile, filter), "VEC_WIDTH": width, "Accum": compute, **constants},
    )
    ctas = -(-threads // tile.threads)
    steps.add_early(Launch(text, f"depthwise_{kind}", (ctas, 1, 1), tile.threads, parameters.pack()))
    return steps.kernel(f"conv_{roles.direction}__{name}__{op.name}")


def _add_extents(parameters: Parameters, operands: Operands, tile: Tile) -> int:
    """Add extents and strides to the parameters, and return the number of threads with output pixels."""
    shape, p = operands.shape, operands.roles.problem
    image_in, image_out = (p.output, p.input) if shape.is_dgrad else (p.input, p.output)
    channel_threads, tiles, row_blocks = p.groups // tile.v, -(-shape.columns // tile.tw), -(-shape.rows // tile.rows)
    strides = image_space(operands.roles, operands.image).strides(operands.image)
    sign = 1 if shape.is_dgrad else -1
    parameters.table({"image_n": strides[0], "image_h": strides[2]})
    parameters.table({
        "in_h": image_in[0], "in_w": image_in[1], "out_h": image_out[0], "out_w": image_out[1],
        "in_row": sign * p.pre_padding[0], "in_column": sign * p.pre_padding[1], "images": p.n,
        "channel_threads": channel_threads, "channel_threads_magic": magic(channel_threads),
        "tiles": tiles, "tiles_magic": magic(tiles),
        "row_blocks": row_blocks, "row_blocks_magic": magic(row_blocks), "zero": 0,
    })  # fmt: skip
    return shape.problem.n * row_blocks * tiles * channel_threads


def _constants(operands: Operands, tile: Tile, filter: PackedFilter) -> dict[str, int | bool | str]:
    """The compile-time constants that both kernels have."""
    shape, p = operands.shape, operands.roles.problem
    dilation, interior = effective_dilation(p), interior_offsets(operands, 1, tile.tw)
    columns = (p.input if shape.is_dgrad else p.output)[1]
    return {
        "R": p.filter[0], "S": p.filter[1], "DILATION_H": dilation[0], "DILATION_W": dilation[1],
        "DGRAD": shape.is_dgrad, "FLIP": p.flip, "FILTER_R": filter.strides[2], "FILTER_S": filter.strides[3],
        "FILTER_COPY_ELEMS": filter.copy_elements(tile.v * p.taps),
        "V": tile.v, "TW": tile.tw, "THREADS": tile.threads, "CTAS_PER_SM": tile.ctas_per_sm,
        "WHOLE_COLUMNS": columns % (tile.tw * dilation[1]) == 0,
        "PITCH": pixel_pitch(operands), "INTERIOR_BEGIN": interior[0], "INTERIOR_END": interior[1],
        "Offset": "int" if operands.image.span < MAX_COUNT // 2 else "long long",
        "ImageElement": STORAGE[operands.image.data_type],
        "Filter": STORAGE[filter.spec.data_type],
    }  # fmt: skip

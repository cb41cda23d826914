"""Fprop and dgrad on CUDA cores: image rows pass through a ring buffer in shared memory.

The kernel is direct.cu. Accumulators stay in registers while a CTA slides down the image.
"""

from __future__ import annotations

from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.codegen.vectors import width_for
from graphdnn.engines.cuda.direct.direct_access import (
    copy_elements,
    effective_dilation,
    element_bytes,
    image_space,
    power_of_two_in,
)
from graphdnn.engines.cuda.direct.direct_fields import filter_fields, first_fields, image_fields
from graphdnn.engines.cuda.direct.direct_operands import Operands, PackedFilter
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile import Tile, in_registers, shared_bytes
from graphdnn.fusion.fused_graph import FusedOp

_STAGES_FOR_STEP_PAIRS = 6  # stages from which a CTA synchronizes once in two steps


def _constants(operands: Operands, tile: Tile, filter: PackedFilter) -> dict[str, int | bool | str]:
    """The compile-time constants of direct.cu."""
    shape, p = operands.shape, operands.roles.problem
    dilation, in_space = effective_dilation(p), image_space(operands.roles, operands.image)
    channels_out = tile.channel_threads * tile.v
    channels_in = channels_out // shape.group_out * shape.group_in
    load_elements = power_of_two_in(shape.input_channels(tile.v), channels_in)
    columns = (p.input if shape.is_dgrad else p.output)[1]
    return {
        "R": p.filter[0], "S": p.filter[1], "STRIDE_H": p.stride[0], "STRIDE_W": p.stride[1],
        "DILATION_H": dilation[0], "DILATION_W": dilation[1], "DGRAD": shape.is_dgrad, "FLIP": p.flip,
        "IN_ROWS": shape.in_rows, "OUT_ROWS": shape.out_rows, "WINDOW": shape.window,
        "V": tile.v, "TW": tile.tw, "CHANNEL_THREADS": tile.channel_threads, "TILES": tile.tiles,
        "THREADS": tile.threads,
        "GROUP_IN": shape.group_in, "GROUP_OUT": shape.group_out,
        "COPY_ELEMS": copy_elements(in_space, operands.image, channels_in),
        "LOAD_ELEMS": min(load_elements, 16 // element_bytes(operands.image)),
        "FILTER_COPY_ELEMS": filter.copy_elements(channels_out * shape.group_in * p.taps),
        "STAGES": tile.stages, "CTAS_PER_SM": tile.ctas_per_sm,
        "STEPS_PER_WAIT": 2 if tile.stages >= _STAGES_FOR_STEP_PAIRS and shape.in_rows == 1 else 1,
        "FILTER_IN_REGISTERS": in_registers(shape, tile.v),
        "WHOLE_COLUMNS": shape.columns % tile.tw == 0 and shape.columns * dilation[1] == columns,
        "ImageElement": STORAGE[operands.image.data_type],
        "Filter": STORAGE[filter.spec.data_type],
    }  # fmt: skip


def generate(op: FusedOp, operands: Operands, steps: LaunchSequence, tile: Tile) -> DeviceKernel:
    """The launches of direct.cu with the tile ``tile``."""
    roles, shape, p = operands.roles, operands.shape, operands.roles.problem
    filter = PackedFilter.of(operands, steps)
    compute = COMPUTE_TYPE[roles.op.compute_type]
    in_space, out_space = image_space(roles, operands.image), image_space(roles, operands.output)
    channels_out = tile.channel_threads * tile.v

    parameters = Parameters(steps.workspace_offsets)
    width = min(tile.v, width_for(out_space, steps.epilogue_tensors(), 1))
    body = Program(op, parameters, out_space, "t", width=width, vector_axis=1, has_column_operands=True)
    steps.write_epilogue(body, "acc", compute)

    column_blocks = -(-shape.columns // (tile.tw * tile.tiles))
    channel_blocks = -(-shape.channels_out // channels_out)
    segments = -(-shape.rows // tile.rows)
    image_in, image_out = (p.output, p.input) if shape.is_dgrad else (p.input, p.output)
    parameters.tensor("image", operands.image)
    parameters.tensor("filter", filter.spec)
    parameters.table({
        **image_fields("image", in_space.strides(operands.image)),
        **filter_fields(filter.strides), "filter_elements": filter.elements,
        "in_h": image_in[0], "in_w": image_in[1], "out_h": image_out[0], "out_w": image_out[1],
        "channels_in": in_space.sizes[1], "channels_out": shape.channels_out,
        **first_fields(p, is_dgrad=shape.is_dgrad),
        "rows": shape.rows, "segments": segments, "segment_rows": tile.rows,
        "channel_blocks": channel_blocks, "column_blocks": column_blocks,
    })  # fmt: skip

    variant = f"r{p.filter[0]}s{p.filter[1]}v{tile.v}w{tile.tw}x{tile.tiles}c{channels_out}"
    name = f"conv_{roles.direction}__direct_{variant}__{op.name}"
    text = kernel_text(
        name,
        ["direct.cu"],
        parameters=parameters.text,
        functions=[
            body.column_operands_text(),
            body.function("epilogue", f"const ColumnOperands& column_operands, const {compute} (&acc)[{width}]"),
        ],
        constants={**_constants(operands, tile, filter), "VEC_WIDTH": width, "Accum": compute},
    )
    ctas = shape.problem.n * channel_blocks * column_blocks * segments
    shared = shared_bytes(shape, tile.v, tile.tw, tile.channel_threads, tile.tiles, tile.stages)
    steps.add_early(Launch(text, "direct", (ctas, 1, 1), tile.threads, parameters.pack(), shared))
    return steps.kernel(name)

"""Wgrad on CUDA cores: rows of x and dy pass through ring buffers in shared memory.

The kernel is direct_wgrad.cu. Accumulators stay in registers. A second launch, direct_wgrad_sum.cu, adds the partial
sums of the CTAs in a fixed order.
"""

from __future__ import annotations

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.conv_geometry.convolution_roles import Roles
from graphdnn.engines.cuda.direct.direct_access import (
    copy_elements,
    effective_dilation,
    element_bytes,
    image_space,
    power_of_two_in,
)
from graphdnn.engines.cuda.direct.direct_fields import image_fields
from graphdnn.engines.cuda.direct.direct_shape import Shape
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile import Tile, shared_bytes, splits_of
from graphdnn.engines.cuda.direct.sliding_mma.sliding_mma_wgrad import REDUCE_WARPS
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvBackwardFilter


def _constants(anchor: ConvBackwardFilter, shape: Shape, tile: Tile) -> dict[str, int | bool | str]:
    """The compile-time constants of direct_wgrad.cu and direct_wgrad_sum.cu."""
    roles, p, (x, _, dy) = Roles.of(anchor), anchor.problem, anchor.roles
    dilation = effective_dilation(p)
    channels_out = tile.channel_threads * tile.v
    channels_in = channels_out // shape.group_out * shape.group_in
    return {
        "R": p.filter[0], "S": p.filter[1], "STRIDE_H": p.stride[0], "STRIDE_W": p.stride[1],
        "DILATION_H": dilation[0], "DILATION_W": dilation[1], "DGRAD": False, "FLIP": p.flip,
        "IN_ROWS": shape.in_rows, "WINDOW": shape.window,
        "V": tile.v, "TW": tile.tw, "CHANNEL_THREADS": tile.channel_threads, "TILES": tile.tiles,
        "THREADS": tile.threads,
        "GROUP_IN": shape.group_in, "GROUP_OUT": shape.group_out,
        "COPY_ELEMS": copy_elements(image_space(roles, x), x, channels_in),
        "DY_COPY_ELEMS": copy_elements(image_space(roles, dy), dy, channels_out),
        "LOAD_ELEMS": min(power_of_two_in(shape.input_channels(tile.v), channels_in), 16 // element_bytes(x)),
        "STAGES": tile.stages, "CTAS_PER_SM": tile.ctas_per_sm, "REDUCE_WARPS": REDUCE_WARPS,
        "WHOLE_COLUMNS": p.output[1] % (tile.tw * dilation[1]) == 0,
        "ImageElement": STORAGE[x.data_type],
        "DyElement": STORAGE[dy.data_type],
    }  # fmt: skip


def generate(op: FusedOp, shape: Shape, device: DeviceSpec, steps: LaunchSequence, tile: Tile) -> DeviceKernel:
    """The launches of direct_wgrad.cu with the tile ``tile``."""
    anchor = op.anchor
    assert isinstance(anchor, ConvBackwardFilter)
    roles, p = Roles.of(anchor), anchor.problem
    x, _, dy = anchor.roles
    compute = COMPUTE_TYPE[anchor.compute_type]

    channels_out = tile.channel_threads * tile.v
    x_space, dy_space = image_space(roles, x), image_space(roles, dy)
    column_blocks = -(-shape.columns // (tile.tw * tile.tiles))
    channel_blocks = -(-shape.channels_out // channels_out)
    segments = -(-shape.rows // tile.rows)
    items = shape.problem.n * column_blocks * segments
    splits = splits_of(items, channel_blocks, tile.ctas_per_sm, device.sm_count)
    taps = p.taps * shape.group_in

    parameters = Parameters(steps.workspace_offsets)
    body = Program(op, parameters, roles.space(roles.output), "t")
    steps.write_epilogue(body, "acc", compute)
    parameters.tensor("image", x)
    parameters.tensor("dy", dy)
    parameters.table({
        **image_fields("image", x_space.strides(x)), **image_fields("dy", dy_space.strides(dy)),
        "in_h": p.input[0], "in_w": p.input[1], "out_w": p.output[1],
        "channels_in": x_space.sizes[1], "channels_out": shape.channels_out,
        "in_row": -p.pre_padding[0], "in_column": -p.pre_padding[1],
        "out_h": p.output[0], "segments": segments, "segment_rows": tile.rows,
        "column_blocks": column_blocks, "items": items, "splits": splits,
        "padded_channels": channel_blocks * channels_out,
    })  # fmt: skip
    parameters.workspace_pointer("partial", compute, steps.allocate(splits * taps * channel_blocks * channels_out * 4))

    variant = f"r{p.filter[0]}s{p.filter[1]}v{tile.v}w{tile.tw}x{tile.tiles}c{channels_out}"
    name = f"conv_wgrad__direct_{variant}__{op.name}"
    text = kernel_text(
        name,
        ["direct_wgrad.cu", "direct_wgrad_sum.cu"],
        parameters=parameters.text,
        functions=[body.function("epilogue", f"const {compute} (&acc)[1]")],
        constants={**_constants(anchor, shape, tile), "Accum": compute},
    )
    packed = parameters.pack()
    shared = shared_bytes(shape, tile.v, tile.tw, tile.channel_threads, tile.tiles, tile.stages)
    steps.add(Launch(text, "direct_wgrad", (channel_blocks, splits, 1), tile.threads, packed, shared))
    sum_grid = (-(-shape.channels_out // 32), taps, 1)
    steps.add_early(Launch(text, "direct_wgrad_sum", sum_grid, 32 * REDUCE_WARPS, packed))
    return steps.kernel(name)

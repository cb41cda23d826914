"""Engine ``cuda_grouped``: convolution with groups of 8 to 64 channels on tensor cores (mma.sync), channels last.

A group has fewer columns than a wgmma tile, which would multiply mostly zeros. Here an MMA tile is 16 pixels by 8
channels of one group. One halo tile in shared memory serves all taps, and the filters of a CTA stay in shared memory
(direct_grouped.cu). A data gradient with unit stride transposes the filters by ldmatrix.trans.
"""

from __future__ import annotations

from math import prod

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.cost import device_cost, least_seconds, other_seconds, with_idle_sms
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.index_space import is_addressable
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.codegen.tensor_cores import EXACT_OPTIONS
from graphdnn.engines.cuda.codegen.vectors import width_for
from graphdnn.engines.cuda.conv_geometry.convolution_roles import Roles
from graphdnn.engines.cuda.direct.direct_access import aligned_width, image_space
from graphdnn.engines.cuda.direct.grouped.grouped_requirements import grouped_needs
from graphdnn.engines.cuda.direct.grouped.grouped_shape import CHUNK_CHANNELS, Shape
from graphdnn.engines.cuda.direct.grouped.grouped_tiles import (
    IDLE,
    KNOBS,
    START,
    THREADS,
    Choice,
    choose,
    effective_knobs,
)
from graphdnn.engines.engine import Cost, Knobs, Task
from graphdnn.engines.memoization import memoize
from graphdnn.engines.operation_cost import bytes_moved
from graphdnn.enums import DataType, LayoutType
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvBackwardData, ConvolutionOperation
from graphdnn.operations.conv_problem import ConvProblem
from graphdnn.tensors import TensorSpec


@memoize
def _shape(op: FusedOp) -> Shape:
    anchor = op.anchor
    assert isinstance(anchor, ConvolutionOperation)
    return Shape.of(anchor.problem, isinstance(anchor, ConvBackwardData), float(bytes_moved(op)))


def _choice(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> Choice | None:
    return choose(_shape(op), device, knobs)


def _filter(steps: LaunchSequence, roles: Roles, w: TensorSpec) -> TensorSpec:
    """The filter as [k][tap][c] without gaps. A launch copies a filter of another layout."""
    p = roles.problem
    height, width = p.filter
    expected = (p.taps * p.c, 1, width * p.c, p.c)
    if is_addressable(w) and aligned_width(w, CHUNK_CHANNELS) == CHUNK_CHANNELS:
        strides = roles.space(w).strides(w)
        rows, columns = strides[4] if height > 1 else expected[2], strides[5] if width > 1 else expected[3]
        if (strides[1], strides[2], rows, columns) == expected and strides[0] == p.k * expected[0]:
            return w
    return steps.relayout(w, expected)


def _constants(
    p: ConvProblem, shape: Shape, choice: Choice, image: TensorSpec, is_dgrad: bool, width: int
) -> dict[str, int | bool | str]:
    """The compile-time constants of direct_grouped.cu."""
    tile = choice.tile
    return {
        "R": p.filter[0], "S": p.filter[1], "STRIDE_H": p.stride[0], "STRIDE_W": p.stride[1],
        "DILATION_H": p.dilation[0], "DILATION_W": p.dilation[1],
        "DGRAD": is_dgrad, "FLIP": p.flip != is_dgrad,
        "GROUP_IN": shape.channels_in, "GROUP_OUT": shape.channels_out, "GROUPS_PER_CTA": tile.groups,
        "ROWS": tile.mma_tiles, "GROUPS_PER_WARP_TILE": tile.groups_per_warp_tile(shape),
        "THREADS": THREADS, "STAGES": tile.stages, "CTAS_PER_SM": choice.resident, "VEC_WIDTH": width,
        "Element": STORAGE[image.data_type],
    }  # fmt: skip


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    """The launch of direct_grouped.cu, after a copy of the filter if its layout requires it."""
    assert isinstance(op.anchor, ConvolutionOperation)
    steps, roles, shape = LaunchSequence(op, device), Roles.of(op.anchor), _shape(op)
    p, is_dgrad = roles.problem, isinstance(op.anchor, ConvBackwardData)
    choice = _choice(op, device, knobs)
    assert choice is not None, "the requirements were checked"
    tile = choice.tile
    x, w, y = op.anchor.roles
    image, output = (y, x) if is_dgrad else (x, y)
    image_in = p.output if is_dgrad else p.input
    filter = _filter(steps, roles, w)

    parameters = Parameters(steps.workspace_offsets)
    out_space = image_space(roles, output)
    width = min(CHUNK_CHANNELS, width_for(out_space, steps.epilogue_tensors(), 1))
    compute = COMPUTE_TYPE[roles.op.compute_type]
    body = Program(op, parameters, out_space, "t", width=width, vector_axis=1, has_column_operands=True)
    steps.write_epilogue(body, "acc", compute)

    parameters.tensor("image", image)
    parameters.tensor("filter", filter)
    strides = image_space(roles, image).strides(image)
    padding = [
        d * (r - 1) - pad if is_dgrad else pad for pad, d, r in zip(p.pre_padding, p.dilation, p.filter, strict=True)
    ]
    tile_counts, halo = tile.tiles(shape), shape.halo_tile(tile.height, tile.width)
    tiles, group_blocks = prod(tile_counts), p.groups // tile.groups
    ctas_per_group_block = tile.ctas_per_group_block(shape, choice.resident, device.sm_count)
    parameters.table({
        "image_n": strides[0], "image_h": strides[2], "image_w": strides[3],
        "images": p.n, "in_h": image_in[0], "in_w": image_in[1], "out_h": shape.output[0], "out_w": shape.output[1],
        "in_row": -padding[0], "in_column": -padding[1],
        "tiles": tiles, "tiles_h": tile_counts[1], "tiles_w": tile_counts[2], "tile_step": ctas_per_group_block,
        "tile_images": tile.images, "tile_h": tile.height, "tile_w": tile.width, "tile_pixels": tile.pixels,
        "halo_h": halo[0], "halo_w": halo[1], "residue_columns": -(-halo[1] // p.stride[1]),
        "halo_bytes": tile.halo_bytes(shape), "table_bytes": tile.table_bytes, "group_blocks": group_blocks,
    })  # fmt: skip
    variant = f"c{shape.channels_in}k{shape.channels_out}g{tile.groups}m{tile.mma_tiles}s{tile.stages}"
    name = f"conv_{roles.direction}__grouped_{variant}__{op.name}"
    text = kernel_text(
        name,
        ["direct_grouped.cu"],
        parameters=parameters.text,
        functions=[
            body.column_operands_text(),
            body.function("epilogue", f"const ColumnOperands& column_operands, const {compute} (&acc)[{width}]"),
        ],
        constants=_constants(p, shape, choice, image, is_dgrad, width),
    )
    packed = parameters.pack()
    grid = (group_blocks * ctas_per_group_block, 1, 1)
    steps.add_early(Launch(text, "direct_grouped", grid, THREADS, packed, tile.shared(shape)))
    return steps.kernel(name)


def _cost(task: Task, knobs: Knobs) -> Cost:
    choice = _choice(task.op, task.device, knobs)
    assert choice is not None, "the requirements were checked"
    cost = device_cost(task, choice.seconds + other_seconds(task), launches=0)
    return with_idle_sms(cost, task.device, choice.ctas, IDLE)


def _effective(task: Task, knobs: Knobs) -> Knobs:
    """The knob values of the kernel that is launched."""
    choice = _choice(task.op, task.device, knobs)
    assert choice is not None, "the requirements were checked"
    return effective_knobs(choice.tile)


ENGINE = cuda_engine(
    id=99,
    name="cuda_grouped",
    summary="fprop and unit-stride dgrad with groups of 8 to 64 channels on tensor cores, channels last",
    needs=grouped_needs(
        "cuda_grouped",
        lambda task: _choice(task.op, task.device, {knob.type: knob.default for knob in KNOBS}) is not None,
    ),
    cost=_cost,
    least=lambda task: least_seconds(task, 0, task.device.rate(DataType.HALF)) + START - IDLE * task.device.launch,
    generate=generate,
    layout=LayoutType.PREFERRED_NHWC,
    knobs=KNOBS,
    effective=_effective,
    **EXACT_OPTIONS,
)

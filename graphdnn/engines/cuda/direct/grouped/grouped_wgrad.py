"""Engine ``cuda_grouped_wgrad``: filter gradient with groups of 8 to 64 channels on tensor cores, channels last.

The engine computes no products between groups, which other engines compute and discard. A CTA keeps the accumulators of
some groups and goes through a range of the pixels (direct_grouped_wgrad.cu). A second launch adds the partial sums of
the CTAs in a fixed order.
"""

from __future__ import annotations

from graphdnn.cuda.tensor_map import TensorMap
from graphdnn.device.multiprocessor import WARP
from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.codegen.cost import device_cost, least_seconds, other_seconds
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import STORAGE, Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.codegen.tensor_cores import OF_EXACT
from graphdnn.engines.cuda.codegen.vectors import width_for
from graphdnn.engines.cuda.conv_geometry.convolution_roles import CHANNELS, Roles
from graphdnn.engines.cuda.direct.direct_access import image_space
from graphdnn.engines.cuda.direct.grouped.grouped_requirements import grouped_needs
from graphdnn.engines.cuda.direct.grouped.grouped_shape import Shape
from graphdnn.engines.cuda.direct.grouped.grouped_wgrad_tiles import KNOBS, Choice, Tile, choose, effective_knobs
from graphdnn.engines.cuda.sm90.tma_operands import ALIGNMENT
from graphdnn.engines.engine import Cost, Knobs, Task
from graphdnn.engines.memoization import memoize
from graphdnn.engines.operation_cost import bytes_moved
from graphdnn.enums import DataType, LayoutType
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvBackwardFilter
from graphdnn.operations.conv_problem import ConvProblem
from graphdnn.tensors import TensorSpec

_FOUR = 4  # filter elements of a thread of the second launch
_OF_SLICE = 4  # the fewest splits that a warp of the second launch adds
_MOST_SLICES = 8


_BY_THREADS, _BY_BOXES = "direct_grouped_wgrad.cu", "direct_grouped_wgrad_boxes.cu"


@memoize
def _shape(op: FusedOp) -> Shape:
    assert isinstance(op.anchor, ConvBackwardFilter)
    return Shape.of(op.anchor.problem, False, float(bytes_moved(op)))


def _choice(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> Choice | None:
    return choose(_shape(op), device, knobs)


def _slices(parts: int) -> int:
    """Warps of the second launch that divide the splits of an element."""
    slices = 1
    while slices < _MOST_SLICES and 2 * slices * _OF_SLICE <= parts:
        slices *= 2
    return slices


def _boxes(
    p: ConvProblem, shape: Shape, tile: Tile, x: TensorSpec, of_x: tuple[int, ...], of_dy: tuple[int, ...]
) -> tuple[TensorMap, TensorMap]:
    """The TMA boxes of x and of dy; columns of a strided x are two axes, the residue modulo the stride and the
    quotient.
    """
    size, stride, lines = ELEMENTS[x.data_type].bytes, p.stride[1], shape.patch(tile.high, tile.wide)[0]
    n, h, w = (_step(of_x[i] * size) for i in (0, 2, 3))
    row, results = tile.row(p.c), tile.row(p.k)
    columns = (p.input[1],) if stride == 1 else (stride, p.input[1] // stride)
    image = TensorMap(
        x.data_type,
        (p.groups * p.c, *columns, p.input[0], p.n),
        (w, h, n) if stride == 1 else (w, stride * w, h, n),
        box=(row.pitch // size, *(1 for _ in columns[1:]), tile.columns(shape), lines, tile.images),
        row=row.exchanged,
    )
    gradient = TensorMap(
        x.data_type,
        (p.groups * p.k, p.output[1], p.output[0], p.n),
        tuple(_step(of_dy[i] * size) for i in (3, 2, 0)),
        box=(results.pitch // size, tile.wide, tile.high, tile.images),
        row=results.exchanged,
    )
    return image, gradient


def _step(distance: int) -> int:
    """The stride of an axis in bytes. TMA requires a positive stride, also for an axis of extent 1."""
    return distance or ALIGNMENT


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    assert isinstance(op.anchor, ConvBackwardFilter)
    steps, roles, shape = LaunchSequence(op, device), Roles.of(op.anchor), _shape(op)
    p = roles.problem
    choice = _choice(op, device, knobs)
    assert choice is not None, "asked by the needs"
    tile = choice.tile
    x, _, dy = op.anchor.roles

    parameters = Parameters(steps.workspace_offsets)
    space = roles.space(roles.output)
    width = min(_FOUR, width_for(space, steps.epilogue_tensors(), CHANNELS))
    body = Program(op, parameters, space, "t", width=width, vector_axis=CHANNELS)
    steps.finish(body, "acc", "float")

    x_strides, dy_strides = (image_space(roles, spec).strides(spec) for spec in (x, dy))
    boxes = _boxes(p, shape, tile, x, x_strides, dy_strides)
    for field, spec, map in zip(("image", "dy"), (x, dy), boxes, strict=True):
        if tile.is_boxed:
            parameters.maps(field, [(spec, map)])
        else:
            parameters.tensor(field, spec)
    counted, patch = tile.tiles(shape), shape.patch(tile.high, tile.wide)
    tiles, slabs = counted[0] * counted[1] * counted[2], p.groups // tile.groups
    channels, window = p.groups * p.k, p.taps * p.c
    parameters.table({
        "image_n": x_strides[0], "image_h": x_strides[2], "image_w": x_strides[3],
        "dy_n": dy_strides[0], "dy_h": dy_strides[2], "dy_w": dy_strides[3],
        "images": p.n, "in_h": p.input[0], "in_w": p.input[1], "out_h": p.output[0], "out_w": p.output[1],
        "in_row": -p.pre_padding[0], "in_column": -p.pre_padding[1],
        "tiles": tiles, "tiles_h": counted[1], "tiles_w": counted[2], "tile_step": choice.parts,
        "tile_images": tile.images, "tile_h": tile.high, "tile_w": tile.wide,
        "halo_h": patch[0], "halo_w": patch[1], "residue_columns": tile.columns(shape),
        "halo_bytes": tile.patch_bytes(shape), "stage_bytes": tile.stage_bytes(shape), "group_blocks": slabs,
        "residue_bytes": tile.apart(shape), "x_slice_bytes": tile.patch_half(shape),
        "dy_slice_bytes": tile.results_box(shape), "tx_bytes": tile.landing(shape),
        "channels": channels, "splits": choice.parts,
    })  # fmt: skip
    parameters.scratch("partial", "float", steps.allocate(choice.parts * channels * window * 4))
    how = f"c{p.c}k{p.k}g{tile.groups}s{tile.shares}t{tile.turns}p{tile.stages}{'l' if tile.walks else ''}"
    name = f"conv_wgrad__grouped_{how}__{op.name}"
    slices = _slices(choice.parts)
    text = kernel_text(
        name,
        [_BY_BOXES if tile.is_boxed else _BY_THREADS, "direct_grouped_wgrad_sum.cu"],
        parameters=parameters.text,
        functions=[body.function("epilogue", f"const float (&acc)[{width}]")],
        constants={
            "R": p.filter[0], "S": p.filter[1], "STRIDE_H": p.stride[0], "STRIDE_W": p.stride[1],
            "DILATION_H": p.dilation[0], "DILATION_W": p.dilation[1], "FLIP": p.flip,
            "GROUP_IN": p.c, "GROUP_OUT": p.k, "GROUPS_PER_CTA": tile.groups, "WARPS_M": tile.shares,
            "SLIDING_ROWS": tile.lines(shape), "WARPS_K": tile.turns,
            "PIXEL_PITCH": tile.row(p.c).pitch, "DY_PIXEL_PITCH": tile.row(p.k).pitch, "TMA_SWIZZLE": tile.is_boxed,
            "STAGES": tile.stages, "CTAS_PER_SM": choice.resident, "REDUCE_WARPS": slices, "VEC_WIDTH": width,
            "Element": STORAGE[x.data_type],
        },
    )  # fmt: skip
    packed = parameters.pack()
    blocks, threads = slabs * choice.parts, tile.warps * WARP
    entry = "direct_grouped_wgrad_boxes" if tile.is_boxed else "direct_grouped_wgrad"
    steps.add_early(Launch(text, entry, (blocks, 1, 1), threads, packed, tile.shared(shape)))
    sums = -(-channels * window // (_FOUR * WARP))
    steps.add_early(Launch(text, "direct_grouped_wgrad_sum", (sums, 1, 1), WARP * slices, packed))
    return steps.kernel(name)


def _cost(task: Task, knobs: Knobs) -> Cost:
    choice = _choice(task.op, task.device, knobs)
    assert choice is not None, "asked by the needs"
    return device_cost(task, choice.seconds + other_seconds(task), launches=0)


def _effective(task: Task, knobs: Knobs) -> Knobs:
    """The knob values of the kernel that is launched."""
    choice = _choice(task.op, task.device, knobs)
    assert choice is not None, "asked by the needs"
    return effective_knobs(choice.tile)


ENGINE = cuda_engine(
    id=100,
    name="cuda_grouped_wgrad",
    summary="filter gradients with groups of 8 to 64 channels on tensor cores, channels last",
    needs=grouped_needs(
        "cuda_grouped_wgrad",
        lambda task: _choice(task.op, task.device, {knob.type: knob.default for knob in KNOBS}) is not None,
        filter_gradient=True,
    ),
    cost=_cost,
    least=lambda task: least_seconds(task, 0, task.device.rate(DataType.HALF)),
    generate=generate,
    layout=LayoutType.PREFERRED_NHWC,
    knobs=KNOBS,
    effective=_effective,
    **OF_EXACT,
)

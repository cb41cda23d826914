"""Engine ``cuda_grouped_wgrad``: filter gradient with groups of 8 to 64 channels on tensor cores, channels last.

The engine computes no products between groups, while other engines compute and discard such products. A CTA keeps the
accumulators of some groups and iterates over tiles of pixels (direct_grouped_wgrad.cu). A second launch adds the
partial sums of the CTAs in a fixed order.
"""

from __future__ import annotations

from math import prod

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
from graphdnn.engines.cuda.codegen.tensor_cores import EXACT_OPTIONS
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

_THREAD_ELEMENTS = 4  # filter elements of a thread of the second launch
_MIN_SPLITS_OF_WARP = 4  # the fewest splits that a warp of the second launch adds
_MAX_REDUCE_WARPS = 8


_THREAD_COPIES, _TMA_LOADS = "direct_grouped_wgrad.cu", "direct_grouped_wgrad_tma.cu"  # kernels by their loads


@memoize
def _shape(op: FusedOp) -> Shape:
    assert isinstance(op.anchor, ConvBackwardFilter)
    return Shape.of(op.anchor.problem, False, float(bytes_moved(op)))


def _choice(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> Choice | None:
    return choose(_shape(op), device, knobs)


def _reduce_warps(splits: int) -> int:
    """Warps of the second launch that divide the splits of an element."""
    warps = 1
    while warps < _MAX_REDUCE_WARPS and 2 * warps * _MIN_SPLITS_OF_WARP <= splits:
        warps *= 2
    return warps


def _tensor_maps(
    p: ConvProblem, shape: Shape, tile: Tile, x: TensorSpec, x_strides: tuple[int, ...], dy_strides: tuple[int, ...]
) -> tuple[TensorMap, TensorMap]:
    """The TMA maps of x and of dy; columns of a strided x are two axes, the residue modulo the stride and the
    quotient.
    """
    size, stride, rows = ELEMENTS[x.data_type].bytes, p.stride[1], shape.halo_tile(tile.height, tile.width)[0]
    n, h, w = (_tma_stride(x_strides[i] * size) for i in (0, 2, 3))
    x_row, dy_row = tile.row(p.c), tile.row(p.k)
    columns = (p.input[1],) if stride == 1 else (stride, p.input[1] // stride)
    image = TensorMap(
        x.data_type,
        (p.groups * p.c, *columns, p.input[0], p.n),
        (w, h, n) if stride == 1 else (w, stride * w, h, n),
        box=(x_row.pitch // size, *(1 for _ in columns[1:]), tile.columns(shape), rows, tile.images),
        row=x_row.swizzle_bytes,
    )
    gradient = TensorMap(
        x.data_type,
        (p.groups * p.k, p.output[1], p.output[0], p.n),
        tuple(_tma_stride(dy_strides[i] * size) for i in (3, 2, 0)),
        box=(dy_row.pitch // size, tile.width, tile.height, tile.images),
        row=dy_row.swizzle_bytes,
    )
    return image, gradient


def _tma_stride(distance: int) -> int:
    """The stride of an axis in bytes. TMA requires a positive stride, also for an axis of extent 1."""
    return distance or ALIGNMENT


def _constants(
    p: ConvProblem, shape: Shape, tile: Tile, choice: Choice, reduce_warps: int, width: int, x: TensorSpec
) -> dict[str, int | bool | str]:
    """The compile-time constants of the wgrad kernel and of direct_grouped_wgrad_sum.cu."""
    return {
        "R": p.filter[0], "S": p.filter[1], "STRIDE_H": p.stride[0], "STRIDE_W": p.stride[1],
        "DILATION_H": p.dilation[0], "DILATION_W": p.dilation[1], "FLIP": p.flip,
        "GROUP_IN": p.c, "GROUP_OUT": p.k, "GROUPS_PER_CTA": tile.groups, "WARPS_M": tile.warps_m,
        "SLIDING_ROWS": tile.sliding_rows(shape), "WARPS_K": tile.warps_k,
        "PIXEL_PITCH": tile.row(p.c).pitch, "DY_PIXEL_PITCH": tile.row(p.k).pitch,
        "TMA_SWIZZLE": tile.is_loaded_by_tma,
        "STAGES": tile.stages, "CTAS_PER_SM": choice.resident, "REDUCE_WARPS": reduce_warps, "VEC_WIDTH": width,
        "Element": STORAGE[x.data_type],
    }  # fmt: skip


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    """The launches of a wgrad kernel and of direct_grouped_wgrad_sum.cu."""
    assert isinstance(op.anchor, ConvBackwardFilter)
    steps, roles, shape = LaunchSequence(op, device), Roles.of(op.anchor), _shape(op)
    p = roles.problem
    choice = _choice(op, device, knobs)
    assert choice is not None, "the requirements were checked"
    tile = choice.tile
    x, _, dy = op.anchor.roles

    parameters = Parameters(steps.workspace_offsets)
    space = roles.space(roles.output)
    width = min(_THREAD_ELEMENTS, width_for(space, steps.epilogue_tensors(), CHANNELS))
    body = Program(op, parameters, space, "t", width=width, vector_axis=CHANNELS)
    steps.write_epilogue(body, "acc", "float")

    x_strides, dy_strides = (image_space(roles, spec).strides(spec) for spec in (x, dy))
    maps = _tensor_maps(p, shape, tile, x, x_strides, dy_strides)
    for field, spec, map in zip(("image", "dy"), (x, dy), maps, strict=True):
        if tile.is_loaded_by_tma:
            parameters.maps(field, [(spec, map)])
        else:
            parameters.tensor(field, spec)
    tile_counts, halo = tile.tiles(shape), shape.halo_tile(tile.height, tile.width)
    tiles, group_blocks = prod(tile_counts), p.groups // tile.groups
    channels, window = p.groups * p.k, p.taps * p.c
    parameters.table({
        "image_n": x_strides[0], "image_h": x_strides[2], "image_w": x_strides[3],
        "dy_n": dy_strides[0], "dy_h": dy_strides[2], "dy_w": dy_strides[3],
        "images": p.n, "in_h": p.input[0], "in_w": p.input[1], "out_h": p.output[0], "out_w": p.output[1],
        "in_row": -p.pre_padding[0], "in_column": -p.pre_padding[1],
        "tiles": tiles, "tiles_h": tile_counts[1], "tiles_w": tile_counts[2], "tile_step": choice.splits,
        "tile_images": tile.images, "tile_h": tile.height, "tile_w": tile.width,
        "halo_h": halo[0], "halo_w": halo[1], "residue_columns": tile.columns(shape),
        "halo_bytes": tile.halo_bytes(shape), "stage_bytes": tile.stage_bytes(shape), "group_blocks": group_blocks,
        "residue_bytes": tile.residue_bytes(shape), "x_slice_bytes": tile.x_slice_bytes(shape),
        "dy_slice_bytes": tile.dy_slice_bytes(shape), "tx_bytes": tile.tx_bytes(shape),
        "channels": channels, "splits": choice.splits,
    })  # fmt: skip
    parameters.workspace_pointer("partial", "float", steps.allocate(choice.splits * channels * window * 4))
    variant = f"c{p.c}k{p.k}g{tile.groups}s{tile.warps_m}t{tile.warps_k}p{tile.stages}{'l' if tile.slides else ''}"
    name = f"conv_wgrad__grouped_{variant}__{op.name}"
    reduce_warps = _reduce_warps(choice.splits)
    text = kernel_text(
        name,
        [_TMA_LOADS if tile.is_loaded_by_tma else _THREAD_COPIES, "direct_grouped_wgrad_sum.cu"],
        parameters=parameters.text,
        functions=[body.function("epilogue", f"const float (&acc)[{width}]")],
        constants=_constants(p, shape, tile, choice, reduce_warps, width, x),
    )
    packed = parameters.pack()
    ctas, threads = group_blocks * choice.splits, tile.warps * WARP
    entry = "direct_grouped_wgrad_tma" if tile.is_loaded_by_tma else "direct_grouped_wgrad"
    steps.add_early(Launch(text, entry, (ctas, 1, 1), threads, packed, tile.shared(shape)))
    sum_ctas = -(-channels * window // (_THREAD_ELEMENTS * WARP))
    steps.add_early(Launch(text, "direct_grouped_wgrad_sum", (sum_ctas, 1, 1), WARP * reduce_warps, packed))
    return steps.kernel(name)


def _cost(task: Task, knobs: Knobs) -> Cost:
    choice = _choice(task.op, task.device, knobs)
    assert choice is not None, "the requirements were checked"
    return device_cost(task, choice.seconds + other_seconds(task), launches=0)


def _effective(task: Task, knobs: Knobs) -> Knobs:
    """The knob values of the kernel that is launched."""
    choice = _choice(task.op, task.device, knobs)
    assert choice is not None, "the requirements were checked"
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
    **EXACT_OPTIONS,
)

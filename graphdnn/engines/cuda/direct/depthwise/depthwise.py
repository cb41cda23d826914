"""Engine ``cuda_depthwise``: fprop and dgrad with one channel per group, where ``cuda_direct`` declines.

The engine serves any filter, dilation and stride, one to three spatial axes, channels last or first. Adjacent threads
reuse elements through the L1 cache, or through a halo tile in shared memory (direct_depthwise.cu).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.cost import device_cost, other_seconds
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.index_space import IndexSpace, is_addressable
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.codegen.vectors import width_for
from graphdnn.engines.cuda.conv_geometry.convolution_requirements import convolution_of
from graphdnn.engines.cuda.conv_geometry.convolution_roles import Roles, padded
from graphdnn.engines.cuda.direct.depthwise.depthwise_requirements import CHANNEL, COLUMN, depthwise_needs
from graphdnn.engines.cuda.direct.depthwise.depthwise_tile import (
    Shape,
    Tile,
    choose,
    copy_elements,
    ctas_along,
    halo_bytes,
)
from graphdnn.engines.cuda.direct.direct_access import element_bytes
from graphdnn.engines.cuda.direct.direct_fields import volume_fields
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile_model import DeviceLimits
from graphdnn.engines.engine import Cost, Knob, Knobs, Task
from graphdnn.engines.operation_cost import bytes_moved
from graphdnn.enums import DataType, KnobType
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvolutionOperation
from graphdnn.tensors import TensorSpec

_VEC_BYTES = 8  # bytes of a vector of channels
_REREAD = 0.5  # the fraction of the memory traffic that a second SM reads as well
_COLUMNS = Knob(KnobType.TILE_COLS, 0, 16, 1, 0, "columns of a thread; 0: chosen by the shape")


@dataclass(frozen=True)
class _Operands:
    """The operands by their roles.

    Args:
        roles: The roles of the tensors.
        image: The image that the filter slides over: x, or dy in dgrad.
        filter: The filter.
        output: y, or dx in dgrad.
    """

    roles: Roles
    image: TensorSpec
    filter: TensorSpec
    output: TensorSpec

    @classmethod
    def of(cls, op: ConvolutionOperation) -> _Operands:
        roles = Roles.of(op)
        x, w, y = op.roles
        return cls(roles, y, w, x) if roles.direction == "dgrad" else cls(roles, x, w, y)

    @cached_property
    def space(self) -> IndexSpace:
        return self.roles.space(self.image)

    @cached_property
    def shape(self) -> Shape:
        strides = self.space.strides(self.image)
        columns_contiguous = strides[CHANNEL] != 1 and strides[COLUMN] == 1
        axis, limit = (COLUMN, 16) if columns_contiguous else (CHANNEL, _VEC_BYTES)
        load_elements = width_for(self.space, [self.image], axis, limit)
        max_copy_elements = width_for(self.space, [self.image], axis)
        return Shape(
            self.roles.problem,
            self.roles.direction == "dgrad",
            columns_contiguous,
            load_elements,
            max_copy_elements,
            element_bytes(self.image),
        )


def _filter(operands: _Operands, tile: Tile, steps: LaunchSequence) -> tuple[TensorSpec, tuple[int, ...]]:
    """The filter and its strides along channels, planes, rows and columns. A launch copies a filter whose layout the
    kernel cannot read.
    """
    w, p = operands.filter, operands.roles.problem
    strides = operands.roles.space(w).strides(w)
    is_readable = operands.shape.columns_contiguous and _is_linear(strides[3:], p.filter)
    if is_addressable(w) and (tile.filter_in_smem or is_readable):
        return w, (strides[0], *strides[3:])
    if tile.filter_in_smem or operands.shape.columns_contiguous:
        spec, channel, tap = steps.relayout(w), p.taps, 1
    else:  # vectors along the channels
        spec, channel, tap = steps.relayout(w, _channels_last_strides(w, p.groups, p.spatial)), 1, p.groups
    _, rows, columns = padded(p.filter, 1)
    return spec, (channel, rows * columns * tap, columns * tap, tap)


def _is_linear(strides: tuple[int, ...], filter: tuple[int, ...]) -> bool:
    """Whether one stride leads from each tap of a channel to the next tap."""
    _, rows, columns = padded(filter, 1)
    steps = (rows * columns * strides[2], columns * strides[2], strides[2])
    return all(size == 1 or a == b for a, b, size in zip(strides, steps, padded(filter, 1), strict=True))


def _channels_last_strides(w: TensorSpec, groups: int, spatial: int) -> tuple[int, ...]:
    """The strides of a packed filter whose channels are contiguous."""
    extents = w.extents
    strides, stride = [groups] * len(extents), groups
    for axis in reversed(range(len(extents) - spatial, len(extents))):
        strides[axis], stride = stride, stride * extents[axis]
    strides[0] = 1
    return tuple(strides)


def _tile(shape: Shape, device: DeviceSpec, knobs: Knobs) -> tuple[Tile, float]:
    return choose(shape, DeviceLimits.of(device, device.rate(DataType.FLOAT)), knobs[_COLUMNS.type])


def _constants(operands: _Operands, tile: Tile, filter: TensorSpec) -> dict[str, int | bool | str]:
    """The compile-time constants of direct_depthwise.cu."""
    shape, p = operands.shape, operands.roles.problem
    return {
        "COLUMNS_CONTIGUOUS": shape.columns_contiguous, "DGRAD": shape.is_dgrad, "FLIP": p.flip,
        "S": p.filter[-1], "TAP_UNROLL": tile.tap_unroll, "STRIDE": p.stride[-1],
        "DILATION": p.dilation[-1], "PAD": p.pre_padding[-1],
        "V": tile.v, "TW": tile.tw, "COLUMN_VEC": tile.column_vec, "CHANNEL_THREADS": tile.channel_threads,
        "TILES": tile.tiles, "ROWS": tile.rows,
        "THREADS": tile.threads, "FILTER_IN_SMEM": tile.filter_in_smem, "HALO_IN_SMEM": tile.halo_rows > 0,
        "COPY_ELEMS": copy_elements(shape, tile),
        "Offset": "int" if max(operands.image.span, filter.span) < 2**31 else "long long",
        "ImageElement": STORAGE[operands.image.data_type],
        "Filter": STORAGE[filter.data_type],
    }  # fmt: skip


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    """The launch of direct_depthwise.cu, after a copy of the filter if the kernel cannot read its layout."""
    assert isinstance(op.anchor, ConvolutionOperation)
    operands = _Operands.of(op.anchor)
    roles, shape, p = operands.roles, operands.shape, operands.roles.problem
    tile, _ = _tile(shape, device, knobs)
    steps = LaunchSequence(op, device)
    filter, filter_strides = _filter(operands, tile, steps)
    compute = COMPUTE_TYPE[roles.op.compute_type]

    out_space = roles.space(operands.output)
    axis, thread_extent = (COLUMN, tile.tw) if shape.columns_contiguous else (CHANNEL, tile.v)
    width = width_for(out_space, steps.epilogue_tensors(), axis)
    while thread_extent % width:
        width //= 2
    parameters = Parameters(steps.workspace_offsets)
    body = Program(op, parameters, out_space, "t", width=width, vector_axis=axis)
    steps.write_epilogue(body, "acc", compute)

    columns, rows, channels = ctas_along(shape, tile)
    filter_bytes = -(-tile.channel_threads * tile.v * p.taps * 4 // 16) * 16 if tile.filter_in_smem else 0
    image_in, image_out = (p.output, p.input) if shape.is_dgrad else (p.input, p.output)
    in_d, in_h, in_w = padded(image_in, 1)
    out_d, out_h, out_w = padded(image_out, 1)
    strides = operands.space.strides(operands.image)
    planes, filter_rows, _ = padded(p.filter, 1)
    pad, stride, dilation = padded(p.pre_padding, 0), padded(p.stride, 1), padded(p.dilation, 1)
    parameters.tensor("image", operands.image)
    parameters.tensor("filter", filter)
    parameters.table({
        **volume_fields("image", strides),
        "filter_c": filter_strides[0], "filter_d": filter_strides[1], "filter_h": filter_strides[2],
        "filter_w": filter_strides[3], "filter_tap": filter_strides[3],
        "in_d": in_d, "in_h": in_h, "in_w": in_w, "out_d": out_d, "out_h": out_h, "out_w": out_w,
        "channels": p.groups, "filter_planes": planes, "filter_rows": filter_rows, "taps": p.taps,
        "stride_d": stride[0], "stride_h": stride[1], "dilation_d": dilation[0], "dilation_h": dilation[1],
        "pad_d": pad[0], "pad_h": pad[1],
        "halo_rows": tile.halo_rows, "table_bytes": filter_bytes,
        "column_blocks": columns, "row_blocks": rows, "channel_blocks": channels,
    })  # fmt: skip

    name = f"conv_{roles.direction}__depthwise_{tile.name}__{op.name}"
    text = kernel_text(
        name,
        ["direct_depthwise.cu"],
        parameters=parameters.text,
        functions=[body.function("epilogue", f"const {compute} (&acc)[{width}]")],
        constants={**_constants(operands, tile, filter), "VEC_WIDTH": width, "Accum": compute},
    )
    ctas = p.n * channels * out_d * rows * columns
    shared = filter_bytes + halo_bytes(shape, tile)
    steps.add_early(Launch(text, "direct_depthwise", (ctas, 1, 1), tile.threads, parameters.pack(), shared))
    return steps.kernel(name)


def _cost(task: Task, knobs: Knobs) -> Cost:
    shape = _Operands.of(convolution_of(task)).shape
    tile, seconds = _tile(shape, task.device, knobs)
    launches = 1 if tile.filter_in_smem or shape.columns_contiguous else 2
    return device_cost(task, seconds + other_seconds(task), _REREAD * bytes_moved(task.op), launches)


def _effective(task: Task, knobs: Knobs) -> Knobs:
    """The knob values of the kernel that is launched."""
    assert isinstance(task.op.anchor, ConvolutionOperation)
    tile, _ = _tile(_Operands.of(task.op.anchor).shape, task.device, knobs)
    return {_COLUMNS.type: tile.tw}


ENGINE = cuda_engine(
    id=84,
    name="cuda_depthwise",
    summary="fprop and dgrad of depthwise convolutions: any filter, dilation, stride, number of axes, either layout",
    needs=depthwise_needs("cuda_depthwise", filter_gradient=False),
    cost=_cost,
    generate=generate,
    knobs=(_COLUMNS,),
    effective=_effective,
)

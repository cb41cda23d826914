"""Engine ``cuda_direct_wgrad``: the filter gradient with few channels per group, channels last, in a fixed order."""

from __future__ import annotations

from graphdnn.checks import AtMost
from graphdnn.device import DeviceSpec
from graphdnn.engines.cuda import direct_diagonal
from graphdnn.engines.cuda.convolution_roles import Roles
from graphdnn.engines.cuda.cost import device_cost
from graphdnn.engines.cuda.direct import DEFAULTS, KERNEL, KNOBS, wishes
from graphdnn.engines.cuda.direct_diagonal import Walk
from graphdnn.engines.cuda.direct_geometry import (
    chunk_for,
    convolution,
    direct_needs,
    element_bytes,
    image_space,
    piece_bytes,
    power_of_two_in,
    shared_memory_need,
)
from graphdnn.engines.cuda.direct_tile import Choice, DeviceOf, Shape, choose, parts_of, shared_bytes
from graphdnn.engines.cuda.engine import cuda_engine
from graphdnn.engines.cuda.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.program import Program
from graphdnn.engines.cuda.source import kernel_text
from graphdnn.engines.cuda.steps import Steps
from graphdnn.engines.engine import Cost, Knobs, Task, need
from graphdnn.enums import DataType, LayoutType
from graphdnn.fusion.fused import FusedOp
from graphdnn.operations import ConvBackwardFilter

_SLICES = 8  # warps that add the parts of one tap
_SUMS = 160  # of a thread


def _shape(op: FusedOp) -> Shape:
    anchor = op.anchor
    assert isinstance(anchor, ConvBackwardFilter)
    x, w, y = anchor.roles
    roles = Roles.of(anchor)
    return Shape(
        anchor.problem, False, True, element_bytes(x), element_bytes(y), element_bytes(w), w.bytes,
        piece_bytes(roles, x), piece_bytes(roles, y),
    )  # fmt: skip


def _choice(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> Choice:
    is_integer = op.main.compute_type is DataType.INT32
    rate = device.rate(DataType.INT32 if is_integer else DataType.FLOAT)
    return choose(_shape(op), DeviceOf.of(device, rate), wishes(knobs))


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    anchor = op.anchor
    assert isinstance(anchor, ConvBackwardFilter)
    roles, p, shape = Roles.of(anchor), anchor.problem, _shape(op)
    x, _, dy = anchor.roles
    steps = Steps(op, device)
    if knobs[KERNEL.type] >= 2 and direct_diagonal.serves_wgrad(shape, x, dy, COMPUTE_TYPE[anchor.compute_type]):
        walk = direct_diagonal.choose_wgrad(shape, device, wishes(knobs))
        if walk is not None:
            return _walk(op, device, steps, walk)
    tile = _choice(op, device, knobs).tile
    compute = COMPUTE_TYPE[anchor.compute_type]

    channels_out = tile.lanes * tile.v
    channels_in = channels_out // shape.group_out * shape.group_in
    x_space, dy_space = image_space(roles, x), image_space(roles, dy)
    column_blocks = -(-shape.columns // (tile.tw * tile.tiles))
    channel_blocks = -(-shape.channels_out // channels_out)
    segments = -(-shape.rows // tile.rows)
    items = p.n * column_blocks * segments
    parts = parts_of(items, channel_blocks, tile.blocks, device.sm_count)
    taps = p.taps * shape.group_in

    parameters = Parameters(steps.places)
    body = Program(op, parameters, roles.space(roles.output), "t")
    steps.finish(body, "acc", compute)
    parameters.tensor("gathered", x)
    parameters.tensor("plain", dy)
    for field, strides in (("gathered", x_space.strides(x)), ("plain", dy_space.strides(dy))):
        for name, value in zip(("n", "c", "h", "w"), strides, strict=True):
            if name != "c":
                parameters.integer(f"{field}_{name}", value)
    for name, value in {
        "in_h": p.input[0], "in_w": p.input[1], "out_w": p.output[1],
        "channels_in": x_space.sizes[1], "channels_out": shape.channels_out,
        "in_row": -p.pre_padding[0], "in_column": -p.pre_padding[1],
        "rows": shape.rows, "segments": segments, "segment_rows": tile.rows,
        "column_blocks": column_blocks, "items": items, "parts": parts,
        "padded_channels": channel_blocks * channels_out,
    }.items():  # fmt: skip
        parameters.integer(name, value)
    parameters.scratch("partial", compute, steps.allocate(parts * taps * channel_blocks * channels_out * 4))

    how = f"r{p.filter[0]}s{p.filter[1]}v{tile.v}w{tile.tw}x{tile.tiles}c{channels_out}"
    name = f"conv_wgrad__direct_{how}__{op.name}"
    text = kernel_text(
        name,
        ["direct_copy.cuh", "direct_window.cuh", "direct_wgrad.cu", "direct_wgrad_sum.cuh"],
        parameters=parameters.text,
        functions=[body.function("epilogue", f"const {compute} (&acc)[1]")],
        constants={
            "R": p.filter[0], "S": p.filter[1], "STRIDE_H": p.stride[0], "STRIDE_W": p.stride[1],
            "DGRAD": False, "FLIP": p.flip,
            "IN_ROWS": shape.in_rows, "WINDOW": shape.window,
            "V": tile.v, "TW": tile.tw, "LANES": tile.lanes, "TILES": tile.tiles, "THREADS": tile.threads,
            "GROUP_IN": shape.group_in, "GROUP_OUT": shape.group_out,
            "CHUNK": chunk_for(x_space, x, channels_in),
            "PLAIN_CHUNK": chunk_for(dy_space, dy, channels_out),
            "LV": min(power_of_two_in(shape.inputs(tile.v), channels_in), 16 // element_bytes(x)),
            "STAGES": tile.stages, "BLOCKS": tile.blocks, "SLICES": _SLICES,
            "EXACT": shape.columns % tile.tw == 0,
            "Gathered": STORAGE[x.data_type],
            "Plain": STORAGE[dy.data_type],
            "Accumulator": compute,
        },
    )  # fmt: skip
    packed = parameters.pack()
    shared = shared_bytes(shape, tile.v, tile.tw, tile.lanes, tile.tiles, tile.stages)
    steps.add(Launch(text, "direct_wgrad", (channel_blocks, parts, 1), tile.threads, packed, shared))
    sums = (-(-shape.channels_out // 32), taps, 1)
    steps.add(Launch(text, "direct_wgrad_sum", sums, 32 * _SLICES, packed))
    return steps.kernel(name)


def _walk(op: FusedOp, device: DeviceSpec, steps: Steps, walk: Walk) -> DeviceKernel:
    """The kernel on tensor cores."""
    anchor = op.anchor
    assert isinstance(anchor, ConvBackwardFilter)
    roles, p, shape = Roles.of(anchor), anchor.problem, _shape(op)
    x, _, dy = anchor.roles
    x_space, dy_space = image_space(roles, x), image_space(roles, dy)
    channels = 8 * walk.warps
    column_blocks = -(-(shape.columns + 1) // (direct_diagonal.DEPTH * walk.across))
    channel_blocks = -(-shape.channels_out // channels)
    segments = -(-shape.rows // walk.rows)
    items = p.n * column_blocks * segments
    parts = parts_of(items, channel_blocks, walk.blocks, device.sm_count)
    taps = p.taps * shape.group_in

    parameters = Parameters(steps.places)
    body = Program(op, parameters, roles.space(roles.output), "t")
    steps.finish(body, "acc", "float")
    parameters.tensor("gathered", x)
    parameters.tensor("plain", dy)
    for field, strides in (("gathered", x_space.strides(x)), ("plain", dy_space.strides(dy))):
        for name, value in zip(("n", "c", "h", "w"), strides, strict=True):
            if name != "c":
                parameters.integer(f"{field}_{name}", value)
    for name, value in {
        "in_h": p.input[0], "in_w": p.input[1], "out_w": p.output[1], "channels_out": shape.channels_out,
        "in_row": -p.pre_padding[0], "in_column": -p.pre_padding[1],
        "rows": shape.rows, "segments": segments, "segment_rows": walk.rows,
        "column_blocks": column_blocks, "items": items, "parts": parts,
        "padded_channels": channel_blocks * channels,
    }.items():  # fmt: skip
        parameters.integer(name, value)
    parameters.scratch("partial", "float", steps.allocate(parts * taps * channel_blocks * channels * 4))

    # Columns behind the image stay zero: they are not copied.
    image_columns = (direct_diagonal.DEPTH * walk.across - 1) * p.stride[1] + p.filter[1]
    gradient_columns = direct_diagonal.DEPTH * walk.across + 1
    if column_blocks == 1:
        image_columns = min(image_columns, p.input[1] + p.pre_padding[1])
        gradient_columns = min(gradient_columns, p.output[1] + 1)
    how = f"r{p.filter[0]}s{p.filter[1]}c{channels}x{walk.across}l{walk.lines}"
    name = f"conv_wgrad__walk_{how}__{op.name}"
    text = kernel_text(
        name,
        ["direct_copy.cuh", "direct_mma.cuh", "direct_window.cuh", "direct_wgrad_walk.cu", "direct_wgrad_sum.cuh"],
        parameters=parameters.text,
        functions=[body.function("epilogue", "const float (&acc)[1]")],
        constants={
            "R": p.filter[0], "S": p.filter[1], "STRIDE_H": p.stride[0], "STRIDE_W": p.stride[1],
            "DGRAD": False, "FLIP": p.flip,
            "IN_ROWS": shape.in_rows, "WINDOW": shape.window, "TW": direct_diagonal.DEPTH, "TILES": walk.across,
            "WARPS": walk.warps, "THREADS": 32 * walk.warps * walk.across, "ROWS": walk.lines,
            "IMAGE_COLUMNS": image_columns, "GRADIENT_COLUMNS": gradient_columns,
            "GROUP_IN": shape.group_in, "GROUP_OUT": shape.group_out,
            "STAGES": walk.stages, "BLOCKS": walk.blocks, "SLICES": _SLICES,
            "Gathered": STORAGE[x.data_type], "Accumulator": "float",
        },
    )  # fmt: skip
    packed = parameters.pack()
    shared = direct_diagonal.wgrad_shared(shape, walk)
    steps.add(
        Launch(text, "direct_wgrad_walk", (channel_blocks, parts, 1), 32 * walk.warps * walk.across, packed, shared)
    )
    sums = (-(-shape.channels_out // 32), taps, 1)
    steps.add(Launch(text, "direct_wgrad_sum", sums, 32 * _SLICES, packed))
    return steps.kernel(name)


def _cost(task: Task, knobs: Knobs) -> Cost:
    return device_cost(task, _choice(task.op, task.device, knobs).seconds, launches=2)


def _sums(task: Task) -> int:
    op = convolution(task)
    assert op is not None
    return op.problem.taps * op.problem.c


ENGINE = cuda_engine(
    id=12,
    name="cuda_direct_wgrad",
    summary="filter gradient with few channels per group (depthwise too), channels last; repeats to the bit",
    needs=(
        *direct_needs("cuda_direct_wgrad", filter_gradient=True),
        need(
            "cuda_direct_wgrad.sums",
            "w.dims",
            _sums,
            AtMost(_SUMS),
            reason="a thread keeps the sums of all taps and channels of a filter in registers",
            fix="nothing to do: another engine serves larger filters",
            when=lambda task: isinstance(task.op.anchor, ConvBackwardFilter) and task.op.anchor.problem.spatial == 2,
        ),
        shared_memory_need(
            "cuda_direct_wgrad", lambda task: _choice(task.op, task.device, DEFAULTS), filter_gradient=True
        ),
    ),
    cost=_cost,
    generate=generate,
    layout=LayoutType.PREFERRED_NHWC,
    knobs=(*KNOBS, KERNEL),
)

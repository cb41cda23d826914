"""Engine ``cuda_direct_wgrad``: the filter gradient with few channels per group, channels last, in a fixed order.

Rows pass through rings in shared memory (direct_wgrad.cu), large filters are added by tensor cores (wgrad_walk.py), and
small depthwise ones by threads without shared memory (wgrad_rows.py).
"""

from __future__ import annotations

from graphdnn.checks import AtMost
from graphdnn.device import DeviceSpec
from graphdnn.engines.cuda.direct import wgrad_rows as direct_wgrad_rows
from graphdnn.engines.cuda.direct import wgrad_walk as direct_wgrad_walk
from graphdnn.engines.cuda.direct.direct import DEFAULTS, KNOBS, wishes
from graphdnn.engines.cuda.direct.geometry import (
    apart,
    chunk_for,
    element_bytes,
    image_space,
    piece_bytes,
    power_of_two_in,
    undilated,
)
from graphdnn.engines.cuda.direct.needs import direct_needs, shared_memory_need
from graphdnn.engines.cuda.direct.tile import STAGES, Choice, DeviceOf, Shape, choose, parts_of, shared_bytes
from graphdnn.engines.cuda.direct.wgrad_rows import Rows
from graphdnn.engines.cuda.direct.wgrad_walk import SLICES, Walk
from graphdnn.engines.cuda.generator.convolution_needs import is_plane, problem_of
from graphdnn.engines.cuda.generator.convolution_roles import Roles
from graphdnn.engines.cuda.generator.cost import device_cost
from graphdnn.engines.cuda.generator.engine import cuda_engine
from graphdnn.engines.cuda.generator.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.generator.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.generator.program import Program
from graphdnn.engines.cuda.generator.source import kernel_text
from graphdnn.engines.cuda.generator.steps import Steps
from graphdnn.engines.engine import Cost, Knob, Knobs, Task, need
from graphdnn.enums import DataType, KnobType, LayoutType, NumericalNote
from graphdnn.fusion.fused import FusedOp
from graphdnn.operations import ConvBackwardFilter

_SUMS = 160  # of a thread
_SHORT = 3
_KERNEL = Knob(
    KnobType.KERNEL_CFG,
    0,
    _SHORT,
    1,
    0,
    "1: multiply-adds; 2: tensor cores, where they serve; 3: multiply-adds without shared memory; 0: chosen",
)


def _shape(op: FusedOp) -> Shape:
    anchor = op.anchor
    assert isinstance(anchor, ConvBackwardFilter)
    x, w, y = anchor.roles
    roles = Roles.of(anchor)
    return Shape(
        undilated(anchor.problem), False, True, element_bytes(x), element_bytes(y), element_bytes(w), w.bytes,
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
    rows = _rows(op, device, knobs)
    if rows is not None:
        return direct_wgrad_rows.generate(op, shape, steps, rows)
    walk = _divided(op, device, knobs)
    if walk is not None:
        return direct_wgrad_walk.generate(op, shape, device, steps, walk)
    tile = _choice(op, device, knobs).tile
    compute = COMPUTE_TYPE[anchor.compute_type]

    channels_out = tile.lanes * tile.v
    channels_in = channels_out // shape.group_out * shape.group_in
    x_space, dy_space = image_space(roles, x), image_space(roles, dy)
    column_blocks = -(-shape.columns // (tile.tw * tile.tiles))
    channel_blocks = -(-shape.channels_out // channels_out)
    segments = -(-shape.rows // tile.rows)
    items = shape.problem.n * column_blocks * segments
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
        "out_h": p.output[0], "segments": segments, "segment_rows": tile.rows,
        "column_blocks": column_blocks, "items": items, "parts": parts,
        "padded_channels": channel_blocks * channels_out,
    }.items():  # fmt: skip
        parameters.integer(name, value)
    parameters.scratch("partial", compute, steps.allocate(parts * taps * channel_blocks * channels_out * 4))

    how = f"r{p.filter[0]}s{p.filter[1]}v{tile.v}w{tile.tw}x{tile.tiles}c{channels_out}"
    name = f"conv_wgrad__direct_{how}__{op.name}"
    text = kernel_text(
        name,
        [
            "next_launch.cuh", "direct_copy.cuh", "direct_window.cuh", "direct_remainder.cuh", "direct_wgrad_item.cuh",
            "direct_wgrad_items.cuh", "direct_wgrad_exact.cuh", "direct_wgrad_tiles.cuh", "direct_wgrad.cu",
            "direct_wgrad_sum.cuh",
        ],
        parameters=parameters.text,
        functions=[body.function("epilogue", f"const {compute} (&acc)[1]")],
        constants={
            "R": p.filter[0], "S": p.filter[1], "STRIDE_H": p.stride[0], "STRIDE_W": p.stride[1],
            "DILATION_H": apart(p)[0], "DILATION_W": apart(p)[1], "DGRAD": False, "FLIP": p.flip,
            "IN_ROWS": shape.in_rows, "WINDOW": shape.window,
            "V": tile.v, "TW": tile.tw, "LANES": tile.lanes, "TILES": tile.tiles, "THREADS": tile.threads,
            "GROUP_IN": shape.group_in, "GROUP_OUT": shape.group_out,
            "CHUNK": chunk_for(x_space, x, channels_in),
            "PLAIN_CHUNK": chunk_for(dy_space, dy, channels_out),
            "LV": min(power_of_two_in(shape.inputs(tile.v), channels_in), 16 // element_bytes(x)),
            "STAGES": tile.stages, "BLOCKS": tile.blocks, "SLICES": SLICES,
            "EXACT": p.output[1] % (tile.tw * apart(p)[1]) == 0,
            "Gathered": STORAGE[x.data_type],
            "Plain": STORAGE[dy.data_type],
            "Accumulator": compute,
        },
    )  # fmt: skip
    packed = parameters.pack()
    shared = shared_bytes(shape, tile.v, tile.tw, tile.lanes, tile.tiles, tile.stages)
    steps.add(Launch(text, "direct_wgrad", (channel_blocks, parts, 1), tile.threads, packed, shared))
    sums = (-(-shape.channels_out // 32), taps, 1)
    steps.add_early(Launch(text, "direct_wgrad_sum", sums, 32 * SLICES, packed))
    return steps.kernel(name)


def _rows(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> Rows | None:
    """How threads without shared memory divide the work; None where others do it."""
    shape, kernel, asked = _shape(op), knobs[_KERNEL.type], wishes(knobs)
    chosen = kernel == 0 and not asked.asks and asked.stages == STAGES and direct_wgrad_rows.is_faster(shape)
    if not direct_wgrad_rows.serves(op, shape) or not (kernel == _SHORT or chosen):
        return None
    return direct_wgrad_rows.choose(shape, device, asked)


def _divided(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> Walk | None:
    """How tensor cores divide the work; None where multiply-adds do it."""
    shape, kernel = _shape(op), knobs[_KERNEL.type]
    if kernel in (1, _SHORT) or not direct_wgrad_walk.serves(op, shape):
        return None
    return (
        direct_wgrad_walk.choose(shape, device, wishes(knobs)) if kernel or direct_wgrad_walk.is_faster(shape) else None
    )


def _cost(task: Task, knobs: Knobs) -> Cost:
    rows = _rows(task.op, task.device, knobs)
    if rows is not None:
        return device_cost(task, direct_wgrad_rows.seconds(_shape(task.op), rows, task.device))
    walk = _divided(task.op, task.device, knobs)
    if walk is not None:
        return device_cost(task, direct_wgrad_walk.seconds(_shape(task.op), walk, task.device), launches=2)
    return device_cost(task, _choice(task.op, task.device, knobs).seconds, launches=2)


def _sums(task: Task) -> int:
    return problem_of(task).taps * problem_of(task).c


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
            when=lambda task: isinstance(task.op.anchor, ConvBackwardFilter) and is_plane(task),
        ),
        shared_memory_need(
            "cuda_direct_wgrad", lambda task: _choice(task.op, task.device, DEFAULTS), filter_gradient=True
        ),
    ),
    cost=_cost,
    generate=generate,
    layout=LayoutType.PREFERRED_NHWC,
    knobs=(*KNOBS, _KERNEL),
    numerical_notes=(NumericalNote.TENSOR_CORE,),
)

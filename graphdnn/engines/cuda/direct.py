"""Engine ``cuda_direct``: fprop and dgrad with few channels per group (depthwise, small groups), channels last.

Such convolutions do a few operations for each byte, so the kernel (text/direct.cu) is built around moving bytes
once: rows pass through a ring in shared memory, sums stay in registers while the kernel walks down the image.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from graphdnn.device import DeviceSpec
from graphdnn.engines.cuda import direct_diagonal
from graphdnn.engines.cuda.convolution_roles import Roles
from graphdnn.engines.cuda.cost import device_cost
from graphdnn.engines.cuda.direct_diagonal import Walk
from graphdnn.engines.cuda.direct_geometry import (
    chunk_for,
    direct_needs,
    element_bytes,
    has_packed_filter,
    image_space,
    piece_bytes,
    power_of_two_in,
    shared_memory_need,
)
from graphdnn.engines.cuda.direct_tile import Choice, DeviceOf, Shape, Wishes, choose, in_registers, shared_bytes
from graphdnn.engines.cuda.engine import cuda_engine
from graphdnn.engines.cuda.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.program import Program, width_for
from graphdnn.engines.cuda.source import kernel_text
from graphdnn.engines.cuda.space import Space, is_addressable
from graphdnn.engines.cuda.steps import Steps
from graphdnn.engines.engine import Cost, Knob, Knobs, Task
from graphdnn.engines.work import bytes_moved, flops
from graphdnn.enums import DataType, KnobType, LayoutType
from graphdnn.fusion.fused import FusedOp
from graphdnn.operations import ConvolutionOperation
from graphdnn.tensors import TensorSpec

_CHANNELS = Knob(KnobType.LOAD_SIZE, 0, 8, 1, 0, "channels of a thread: 1, 2, 4 or 8; 0: chosen by the shape")
_COLUMNS = Knob(KnobType.TILE_COLS, 0, 16, 1, 0, "columns of a thread; 0: chosen by the shape")
_ROWS = Knob(KnobType.TILE_ROWS, 0, 1024, 1, 0, "rows that a block walks down; 0: chosen by the shape")
_LANES = Knob(KnobType.NUM_C_PER_BLOCK, 0, 256, 1, 0, "threads of a block along the channels; 0: chosen by the shape")
_THREADS = Knob(KnobType.BLOCK_SIZE, 0, 512, 32, 0, "threads of a block at most; 0: chosen by the shape")
_STAGES = Knob(KnobType.STAGES, 2, 8, 1, 4, "steps in the ring in shared memory")
_OCCUPANCY = Knob(KnobType.OCCUPANCY, 0, 8, 1, 0, "blocks per multiprocessor that registers are limited for; 0: chosen")
KNOBS = (_CHANNELS, _COLUMNS, _ROWS, _LANES, _THREADS, _STAGES, _OCCUPANCY)
KERNEL = Knob(KnobType.KERNEL_CFG, 0, 2, 1, 0, "2: tensor cores, where they serve; 0, 1: multiply-adds")

DEFAULTS: Knobs = MappingProxyType({knob.type: knob.default for knob in (*KNOBS, KERNEL)})


def wishes(knobs: Knobs) -> Wishes:
    v, tw, rows, lanes, threads, stages, blocks = (knobs[knob.type] for knob in KNOBS)
    return Wishes(v, tw, rows, lanes, threads, stages, blocks)


@dataclass(frozen=True, slots=True)
class Sides:
    """The convolution as the kernel sees it: a gathered image, and an output whose channels are threads'."""

    roles: Roles
    gathered: TensorSpec
    filter: TensorSpec
    output: TensorSpec
    shape: Shape

    @classmethod
    def of(cls, op: FusedOp) -> Sides:
        assert isinstance(op.anchor, ConvolutionOperation)
        roles = Roles.of(op.anchor)
        x, w, y = op.anchor.roles
        dgrad = roles.direction == "dgrad"
        gathered, output = (y, x) if dgrad else (x, y)
        written = sum(t.bytes for t in op.outputs) / output.elements
        others = bytes_moved(op) - gathered.bytes - sum(t.bytes for t in op.outputs)
        shape = Shape(
            roles.problem, dgrad, False, element_bytes(gathered), max(1, round(written)), element_bytes(w), others,
            piece_bytes(roles, gathered),
        )  # fmt: skip
        return cls(roles, gathered, w, output, shape)

    def choice(self, device: DeviceSpec, knobs: Knobs) -> Choice:
        is_integer = self.roles.op.compute_type is DataType.INT32
        rate = device.rate(DataType.INT32 if is_integer else DataType.FLOAT)
        return choose(self.shape, DeviceOf.of(device, rate), wishes(knobs))


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    sides = Sides.of(op)
    roles, p = sides.roles, sides.roles.problem
    steps = Steps(op, device)
    filter = sides.filter
    if not is_addressable(filter) or not has_packed_filter(p, roles.space(filter).strides(filter)):
        filter = steps.relaid(filter)
        filter_strides = _packed_filter(sides)
    else:
        filter_strides = roles.space(filter).strides(filter)
    if (
        knobs[KERNEL.type] == 2
        and _sole_output(op) is not None
        and direct_diagonal.serves_walk(sides.shape, sides.gathered, sides.filter, COMPUTE_TYPE[roles.op.compute_type])
    ):
        walk = direct_diagonal.choose_walk(sides.shape, device, wishes(knobs))
        if walk is not None:
            return _walk(sides, steps, filter, filter_strides, walk)
    compute = COMPUTE_TYPE[roles.op.compute_type]
    shape = sides.shape
    tile, dgrad = sides.choice(device, knobs).tile, shape.is_dgrad

    in_space, out_space = image_space(roles, sides.gathered), image_space(roles, sides.output)
    channels_out = tile.lanes * tile.v
    channels_in = channels_out // shape.group_out * shape.group_in
    chunk = chunk_for(in_space, sides.gathered, channels_in)
    per_load = min(power_of_two_in(shape.inputs(tile.v), channels_in), 16 // element_bytes(sides.gathered))

    parameters = Parameters(steps.places)
    width = min(tile.v, width_for(out_space, steps.epilogue_tensors(), 1))
    body = Program(op, parameters, out_space, "t", width=width, vector_axis=1)
    steps.finish(body, "acc", compute)

    (stride_h, stride_w), (pad_h, pad_w) = p.stride, p.pre_padding
    column_blocks = -(-shape.columns // (tile.tw * tile.tiles))
    channel_blocks = -(-shape.channels_out // channels_out)
    segments = -(-shape.rows // tile.rows)
    image_in, image_out = (p.output, p.input) if dgrad else (p.input, p.output)
    slab = channels_out * shape.group_in * p.taps

    strides = in_space.strides(sides.gathered)
    parameters.tensor("gathered", sides.gathered)
    parameters.tensor("filter", filter)
    for name, value in zip(("n", "c", "h", "w"), strides, strict=True):
        if name != "c":
            parameters.integer(f"gathered_{name}", value)
    for name, value in zip(("k", "c", "r", "s"), (*filter_strides[1:3], *filter_strides[4:]), strict=True):
        parameters.integer(f"filter_{name}", value)
    parameters.integer("filter_elements", p.groups * p.k * p.c * p.taps)
    for name, value in {
        "in_h": image_in[0], "in_w": image_in[1], "out_h": image_out[0], "out_w": image_out[1],
        "channels_in": in_space.sizes[1], "channels_out": shape.channels_out,
        "in_row": pad_h // stride_h if dgrad else -pad_h,
        "in_column": pad_w // stride_w if dgrad else -pad_w,
        "out_row": -(pad_h % stride_h) if dgrad else 0,
        "out_column": -(pad_w % stride_w) if dgrad else 0,
        "rows": shape.rows, "segments": segments, "segment_rows": tile.rows,
        "channel_blocks": channel_blocks, "column_blocks": column_blocks,
    }.items():  # fmt: skip
        parameters.integer(name, value)

    how = f"r{p.filter[0]}s{p.filter[1]}v{tile.v}w{tile.tw}x{tile.tiles}c{channels_out}"
    name = f"conv_{roles.direction}__direct_{how}__{op.name}"
    text = kernel_text(
        name,
        ["direct_copy.cuh", "direct_window.cuh", "direct.cu"],
        parameters=parameters.text,
        functions=[body.function("epilogue", f"const {compute} (&acc)[{width}]")],
        constants={
            "R": p.filter[0], "S": p.filter[1], "STRIDE_H": stride_h, "STRIDE_W": stride_w,
            "DGRAD": dgrad, "FLIP": p.flip,
            "IN_ROWS": shape.in_rows, "OUT_ROWS": shape.out_rows, "WINDOW": shape.window,
            "V": tile.v, "TW": tile.tw, "LANES": tile.lanes, "TILES": tile.tiles, "THREADS": tile.threads,
            "GROUP_IN": shape.group_in, "GROUP_OUT": shape.group_out,
            "CHUNK": chunk, "LV": per_load, "FILTER_CHUNK": _filter_chunk(filter, slab, p.groups * p.k * p.c * p.taps),
            "STAGES": tile.stages, "BLOCKS": tile.blocks,
            "IN_REGISTERS": in_registers(shape, tile.v),
            "EXACT": shape.columns % tile.tw == 0 and shape.columns == image_out[1],
            "WIDTH": width,
            "Gathered": STORAGE[sides.gathered.data_type],
            "Filter": STORAGE[filter.data_type],
            "Accumulator": compute,
        },
    )  # fmt: skip
    blocks = p.n * channel_blocks * column_blocks * segments
    shared = shared_bytes(shape, tile.v, tile.tw, tile.lanes, tile.tiles, tile.stages)
    steps.add(Launch(text, "direct", (blocks, 1, 1), tile.threads, parameters.pack(), shared))
    return steps.kernel(name)


def _walk(sides: Sides, steps: Steps, filter: TensorSpec, filter_strides: tuple[int, ...], walk: Walk) -> DeviceKernel:
    """The kernel on tensor cores that walks down the image."""
    roles, shape, p = sides.roles, sides.shape, sides.roles.problem
    dgrad = shape.is_dgrad
    in_space, out_space = image_space(roles, sides.gathered), image_space(roles, sides.output)
    parameters = Parameters(steps.places)
    output = _sole_output(steps.op)
    assert output is not None
    width = min(2 * walk.pairs, width_for(out_space, steps.epilogue_tensors(), 1))
    body = Program(steps.op, parameters, out_space, "t", width=width, vector_axis=1)
    body.anchor(roles.op, roles.output, "acc", "float")
    body.apply(steps.op.epilogue)
    body.hand("result", output)

    (stride_h, stride_w), (pad_h, pad_w) = p.stride, p.pre_padding
    image_in, image_out = (p.output, p.input) if dgrad else (p.input, p.output)
    column_blocks = -(-shape.columns // (direct_diagonal.TILE * walk.across))
    channel_blocks = -(-shape.channels_out // walk.channels)
    segments = -(-shape.rows // walk.rows)
    parameters.tensor("gathered", sides.gathered)
    parameters.tensor("filter", filter)
    parameters.tensor("output", output, is_output=True)
    for name, value in zip(("n", "c", "h", "w"), out_space.strides(output), strict=True):
        if name != "c":
            parameters.integer(f"output_{name}", value)
    for name, value in zip(("n", "c", "h", "w"), in_space.strides(sides.gathered), strict=True):
        if name != "c":
            parameters.integer(f"gathered_{name}", value)
    for name, value in zip(("k", "c", "r", "s"), (*filter_strides[1:3], *filter_strides[4:]), strict=True):
        parameters.integer(f"filter_{name}", value)
    elements = p.groups * p.k * p.c * p.taps
    for name, value in {
        "filter_elements": elements, "channels": shape.channels_out,
        "in_h": image_in[0], "in_w": image_in[1], "out_h": image_out[0], "out_w": image_out[1],
        "pad_h": pad_h, "pad_w": pad_w,
        "in_row": pad_h // stride_h if dgrad else -pad_h,
        "in_column": pad_w // stride_w if dgrad else -pad_w,
        "out_row": -(pad_h % stride_h) if dgrad else 0,
        "out_column": -(pad_w % stride_w) if dgrad else 0,
        "rows": shape.rows, "segments": segments, "segment_rows": walk.rows,
        "channel_blocks": channel_blocks, "column_blocks": column_blocks, "nothing": 0,
    }.items():  # fmt: skip
        parameters.integer(name, value)

    how = f"r{p.filter[0]}s{p.filter[1]}c{walk.channels}x{walk.across}l{walk.lines}q{walk.pairs}"
    name = f"conv_{roles.direction}__walk_{how}__{steps.op.name}"
    text = kernel_text(
        name,
        ["direct_copy.cuh", "direct_mma.cuh", "direct_window.cuh", "direct_walk.cu"],
        parameters=parameters.text,
        functions=[body.function("epilogue", f"const float (&acc)[{width}], Out (&result)[{width}]")],
        constants={
            "R": p.filter[0], "S": p.filter[1], "STRIDE_H": stride_h, "STRIDE_W": stride_w,
            "DGRAD": dgrad, "FLIP": p.flip, "GROUP": shape.group_in,
            "IN_ROWS": shape.in_rows, "OUT_ROWS": shape.out_rows, "WINDOW": shape.window,
            "TW": direct_diagonal.TILE, "TILES": walk.across, "WARPS": walk.warps, "PAIRS": walk.pairs,
            "THREADS": walk.threads,
            "ROWS": walk.lines, "STAGES": walk.stages, "BLOCKS": walk.blocks, "WIDTH": width,
            "FILTER_CHUNK": _filter_chunk(filter, walk.channels * shape.group_in * p.taps, elements),
            "Gathered": STORAGE[sides.gathered.data_type], "Out": STORAGE[output.data_type],
        },
    )  # fmt: skip
    blocks = p.n * channel_blocks * column_blocks * segments
    shared = direct_diagonal.walk_shared(shape, walk)
    steps.add(Launch(text, "direct_walk", (blocks, 1, 1), walk.threads, parameters.pack(), shared))
    return steps.kernel(name)


def _sole_output(op: FusedOp) -> TensorSpec | None:
    """The one tensor that leaves the kernel, where its pixels can be written in pieces of 16 bytes."""
    anchor = op.anchor
    assert isinstance(anchor, ConvolutionOperation)
    if op.exit is not None or len(op.outputs) != 1 or getattr(anchor, "beta", 0.0) != 0.0:
        return None
    (output,), roles = op.outputs, Roles.of(anchor)
    if output.extents != roles.output.extents or element_bytes(output) not in (2, 4) or not is_addressable(output):
        return None
    space = Space(output.extents, image_space(roles, roles.output).axes)
    return output if width_for(space, [output], 1) * element_bytes(output) == 16 else None


def _packed_filter(sides: Sides) -> tuple[int, ...]:
    p = sides.roles.problem
    r, s = p.filter
    return p.k * p.c * r * s, p.c * r * s, r * s, 0, s, 1


def _filter_chunk(filter: TensorSpec, slab: int, elements: int) -> int:
    """Filter elements that are copied at once: every block's part starts at a multiple of them."""
    size = element_bytes(filter)
    chunk = power_of_two_in(slab, elements, 16 // size)
    while chunk > 1 and max(1, filter.byte_alignment) % (chunk * size):
        chunk //= 2
    return chunk


def _cost(task: Task, knobs: Knobs) -> Cost:
    sides = Sides.of(task.op)
    others = sum(flops(op) for op in task.op.operations if op is not task.op.anchor) / task.device.rate(DataType.FLOAT)
    return device_cost(task, sides.choice(task.device, knobs).seconds + others)


ENGINE = cuda_engine(
    id=11,
    name="cuda_direct",
    summary="fprop and dgrad with few channels per group (depthwise too), channels last; each element read once",
    needs=(
        *direct_needs("cuda_direct", filter_gradient=False),
        shared_memory_need(
            "cuda_direct", lambda task: Sides.of(task.op).choice(task.device, DEFAULTS), filter_gradient=False
        ),
    ),
    cost=_cost,
    generate=generate,
    layout=LayoutType.PREFERRED_NHWC,
    knobs=(*KNOBS, KERNEL),
)

"""Engine ``cuda_direct``: fprop and dgrad with few channels per group (depthwise, small groups), channels last.

Such convolutions do a few operations for each byte, so the kernel (direct.cu) is built around moving bytes
once: rows pass through a ring in shared memory, sums stay in registers while the kernel walks down the image. Small
depthwise filters have short blocks instead (rows.py), 5 x 5 strips in registers (strips.py), larger ones tensor cores
(walk.py).
"""

from __future__ import annotations

from types import MappingProxyType

from graphdnn.device import DeviceSpec
from graphdnn.engines.cuda.direct import rows as direct_rows
from graphdnn.engines.cuda.direct import strips as direct_strips
from graphdnn.engines.cuda.direct import threads as direct_threads
from graphdnn.engines.cuda.direct import walk as direct_walk
from graphdnn.engines.cuda.direct.geometry import (
    apart,
    chunk_for,
    element_bytes,
    image_space,
    power_of_two_in,
)
from graphdnn.engines.cuda.direct.needs import direct_needs, shared_memory_need
from graphdnn.engines.cuda.direct.rows import Rows
from graphdnn.engines.cuda.direct.sides import PackedFilter, Sides
from graphdnn.engines.cuda.direct.strips import Strips
from graphdnn.engines.cuda.direct.tile import STAGES, Choice, DeviceOf, Wishes, choose, in_registers, shared_bytes
from graphdnn.engines.cuda.direct.walk import Walk
from graphdnn.engines.cuda.generator.cost import device_cost, other_seconds
from graphdnn.engines.cuda.generator.engine import cuda_engine
from graphdnn.engines.cuda.generator.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.generator.packs import width_for
from graphdnn.engines.cuda.generator.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.generator.program import Program
from graphdnn.engines.cuda.generator.source import kernel_text
from graphdnn.engines.cuda.generator.steps import Steps
from graphdnn.engines.engine import Cost, Knob, Knobs, Task
from graphdnn.enums import DataType, KnobType, LayoutType, NumericalNote
from graphdnn.fusion.fused import FusedOp

# What a division's numbers are on tensor cores is said by ``choose`` of direct_walk and direct_wgrad_walk.
_CHANNELS = Knob(KnobType.LOAD_SIZE, 0, 8, 1, 0, "channels of a thread, or on tensor cores rows at a time; 0: chosen")
_COLUMNS = Knob(KnobType.TILE_COLS, 0, 16, 1, 0, "columns of a thread, or pairs of channels of a warp; 0: chosen")
_ROWS = Knob(KnobType.TILE_ROWS, 0, 1024, 1, 0, "rows that a block walks down; 0: chosen by the shape")
_LANES = Knob(KnobType.NUM_C_PER_BLOCK, 0, 256, 1, 0, "threads, or warps, of a block along the channels; 0: chosen")
_THREADS = Knob(KnobType.BLOCK_SIZE, 0, 512, 32, 0, "threads of a block at most; 0: chosen by the shape")
_STAGES = Knob(KnobType.STAGES, 2, 8, 1, STAGES, "steps in the ring in shared memory")
_OCCUPANCY = Knob(KnobType.OCCUPANCY, 0, 8, 1, 0, "blocks per multiprocessor that registers are limited for; 0: chosen")
KNOBS = (_CHANNELS, _COLUMNS, _ROWS, _LANES, _THREADS, _STAGES, _OCCUPANCY)
KERNEL = Knob(
    KnobType.KERNEL_CFG, 0, 2, 1, 0, "1: multiply-adds; 2: tensor cores, where they serve; 0: chosen by the shape"
)

_SHORT, _STRIPS = 3, 4
_KERNEL = Knob(
    KnobType.KERNEL_CFG,
    0,
    _STRIPS,
    1,
    0,
    "1: multiply-adds; 2: tensor cores, where they serve; 3: short blocks; 4: strips; 0: chosen",
)

_STAGES_OF_TWO = 6  # steps in a ring that is long enough to use two at a time

DEFAULTS: Knobs = MappingProxyType({knob.type: knob.default for knob in (*KNOBS, KERNEL)})


def wishes(knobs: Knobs) -> Wishes:
    v, tw, rows, lanes, threads, stages, blocks = (knobs[knob.type] for knob in KNOBS)
    return Wishes(v, tw, rows, lanes, threads, stages, blocks)


def _choice(sides: Sides, device: DeviceSpec, knobs: Knobs) -> Choice:
    """The tile of multiply-adds."""
    is_integer = sides.roles.op.compute_type is DataType.INT32
    rate = device.rate(DataType.INT32 if is_integer else DataType.FLOAT)
    return choose(sides.shape, DeviceOf.of(device, rate), wishes(knobs))


def _divided(op: FusedOp, sides: Sides, device: DeviceSpec, knobs: Knobs) -> Walk | None:
    """How tensor cores divide the work; None where multiply-adds do it."""
    kernel = knobs[KERNEL.type]
    if kernel == 1 or not direct_walk.serves(op, sides) or not (kernel or direct_walk.is_faster(sides.shape)):
        return None
    return direct_walk.choose(sides.shape, device, wishes(knobs))


def _short(sides: Sides, device: DeviceSpec, knobs: Knobs) -> Rows | None:
    """How short blocks divide the work; None where blocks that walk do it."""
    kernel, asked = knobs[_KERNEL.type], wishes(knobs)
    chosen = kernel == 0 and not asked.asks and asked.stages == STAGES and direct_rows.is_faster(sides.shape)
    if not direct_threads.serves(sides) or not (kernel == _SHORT or chosen):
        return None
    return direct_rows.choose(sides.shape, device, asked)


def _strips(sides: Sides, device: DeviceSpec, knobs: Knobs) -> Strips | None:
    """How threads that walk down strips divide the work; None where others do it."""
    kernel, asked = knobs[_KERNEL.type], wishes(knobs)
    if kernel not in (0, _STRIPS) or not direct_threads.serves(sides):
        return None
    tile = direct_strips.choose(sides.shape, device, asked)
    if kernel == _STRIPS:
        return tile
    free = not asked.asks and asked.stages == STAGES
    is_faster = free and direct_strips.is_faster(sides.shape, device, tile, _choice(sides, device, knobs).seconds)
    return tile if is_faster else None


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    sides = Sides.of(op)
    roles, p = sides.roles, sides.roles.problem
    steps = Steps(op, device)
    rows = _short(sides, device, knobs)
    if rows is not None:
        return direct_rows.generate(op, sides, steps, rows)
    strips = _strips(sides, device, knobs)
    if strips is not None:
        return direct_strips.generate(op, sides, steps, strips)
    walk = _divided(op, sides, device, knobs)
    if walk is not None:
        return direct_walk.generate(op, sides, steps, walk)
    filter = PackedFilter.of(sides, steps)
    compute = COMPUTE_TYPE[roles.op.compute_type]
    shape = sides.shape
    tile, dgrad = _choice(sides, device, knobs).tile, shape.is_dgrad

    in_space, out_space = image_space(roles, sides.gathered), image_space(roles, sides.output)
    channels_out = tile.lanes * tile.v
    channels_in = channels_out // shape.group_out * shape.group_in
    chunk = chunk_for(in_space, sides.gathered, channels_in)
    per_load = min(power_of_two_in(shape.inputs(tile.v), channels_in), 16 // element_bytes(sides.gathered))

    parameters = Parameters(steps.places)
    width = min(tile.v, width_for(out_space, steps.epilogue_tensors(), 1))
    body = Program(op, parameters, out_space, "t", width=width, vector_axis=1, keeps=True)
    steps.finish(body, "acc", compute)

    (stride_h, stride_w), (pad_h, pad_w) = p.stride, p.pre_padding
    column_blocks = -(-shape.columns // (tile.tw * tile.tiles))
    channel_blocks = -(-shape.channels_out // channels_out)
    segments = -(-shape.rows // tile.rows)
    image_in, image_out = (p.output, p.input) if dgrad else (p.input, p.output)
    slab = channels_out * shape.group_in * p.taps

    strides = in_space.strides(sides.gathered)
    parameters.tensor("gathered", sides.gathered)
    parameters.tensor("filter", filter.spec)
    for name, value in zip(("n", "c", "h", "w"), strides, strict=True):
        if name != "c":
            parameters.integer(f"gathered_{name}", value)
    for name, value in zip(("k", "c", "r", "s"), filter.strides, strict=True):
        parameters.integer(f"filter_{name}", value)
    parameters.integer("filter_elements", filter.elements)
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
        ["next_launch.cuh", "direct_copy.cuh", "direct_window.cuh", "direct_remainder.cuh", "direct.cu"],
        parameters=parameters.text,
        functions=[body.keeping(), body.function("epilogue", f"const Kept& kept, const {compute} (&acc)[{width}]")],
        constants={
            "R": p.filter[0], "S": p.filter[1], "STRIDE_H": stride_h, "STRIDE_W": stride_w,
            "DILATION_H": apart(p)[0], "DILATION_W": apart(p)[1], "DGRAD": dgrad, "FLIP": p.flip,
            "IN_ROWS": shape.in_rows, "OUT_ROWS": shape.out_rows, "WINDOW": shape.window,
            "V": tile.v, "TW": tile.tw, "LANES": tile.lanes, "TILES": tile.tiles, "THREADS": tile.threads,
            "GROUP_IN": shape.group_in, "GROUP_OUT": shape.group_out,
            "CHUNK": chunk, "LV": per_load, "FILTER_CHUNK": filter.chunk(slab),
            "STAGES": tile.stages, "BLOCKS": tile.blocks,
            "TOGETHER": 2 if tile.stages >= _STAGES_OF_TWO and shape.in_rows == 1 else 1,
            "IN_REGISTERS": in_registers(shape, tile.v),
            "EXACT": shape.columns % tile.tw == 0 and shape.columns * apart(p)[1] == image_out[1],
            "WIDTH": width,
            "Gathered": STORAGE[sides.gathered.data_type],
            "Filter": STORAGE[filter.spec.data_type],
            "Accumulator": compute,
        },
    )  # fmt: skip
    blocks = shape.problem.n * channel_blocks * column_blocks * segments
    shared = shared_bytes(shape, tile.v, tile.tw, tile.lanes, tile.tiles, tile.stages)
    steps.add_early(Launch(text, "direct", (blocks, 1, 1), tile.threads, parameters.pack(), shared))
    return steps.kernel(name)


def _cost(task: Task, knobs: Knobs) -> Cost:
    sides = Sides.of(task.op)
    rows = _short(sides, task.device, knobs)
    if rows is not None:
        seconds = direct_rows.seconds(sides.shape, rows, task.device) + other_seconds(task)
        return device_cost(task, seconds, launches=0).plus({"start": direct_rows.START})
    strips = _strips(sides, task.device, knobs)
    if strips is not None:
        return device_cost(task, direct_strips.seconds(sides.shape, strips, task.device) + other_seconds(task))
    walk = _divided(task.op, sides, task.device, knobs)
    if walk is not None:
        return device_cost(task, direct_walk.seconds(sides.shape, walk, task.device))
    return device_cost(task, _choice(sides, task.device, knobs).seconds + other_seconds(task))


ENGINE = cuda_engine(
    id=11,
    name="cuda_direct",
    summary="fprop and dgrad with few channels per group (depthwise too), channels last; each element read once",
    needs=(
        *direct_needs("cuda_direct", filter_gradient=False),
        shared_memory_need(
            "cuda_direct", lambda task: _choice(Sides.of(task.op), task.device, DEFAULTS), filter_gradient=False
        ),
    ),
    cost=_cost,
    generate=generate,
    layout=LayoutType.PREFERRED_NHWC,
    knobs=(*KNOBS, _KERNEL),
    numerical_notes=(NumericalNote.TENSOR_CORE,),
)

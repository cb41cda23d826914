"""Engine ``cuda_direct``: fprop and dgrad with few channels per group (depthwise, small groups), channels last.

Such convolutions do a few operations for each byte, so the kernel (text/direct.cu) is built around moving bytes
once: rows pass through a ring in shared memory, sums stay in registers while the kernel walks down the image.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphdnn.device import DeviceSpec
from graphdnn.engines.cuda.convolution_roles import Roles
from graphdnn.engines.cuda.cost import device_cost
from graphdnn.engines.cuda.direct_geometry import (
    chunk_for,
    cut_rows,
    direct_needs,
    element_bytes,
    has_packed_filter,
    image_space,
    power_of_two_in,
    resident_blocks,
)
from graphdnn.engines.cuda.engine import cuda_engine
from graphdnn.engines.cuda.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.program import Program, width_for
from graphdnn.engines.cuda.source import kernel_text
from graphdnn.engines.cuda.space import is_addressable
from graphdnn.engines.cuda.steps import Steps
from graphdnn.engines.engine import Cost, Knob, Knobs, Task
from graphdnn.engines.work import flops
from graphdnn.enums import DataType, KnobType
from graphdnn.fusion.fused import FusedOp
from graphdnn.operations import ConvolutionOperation
from graphdnn.tensors import TensorSpec

_IN_REGISTERS = 100  # filter elements of a thread
_SUMS = 128  # of a thread
_THREADS = 512

_CHANNELS = Knob(KnobType.LOAD_SIZE, 0, 8, 1, 0, "channels of a thread: 1, 2, 4 or 8; 0: chosen by the shape")
_COLUMNS = Knob(KnobType.TILE_COLS, 0, 16, 1, 0, "columns of a thread; 0: chosen by the shape")
_ROWS = Knob(KnobType.TILE_ROWS, 0, 1024, 1, 0, "rows that a block walks down; 0: chosen by the shape")
_LANES = Knob(KnobType.NUM_C_PER_BLOCK, 0, 256, 1, 0, "threads of a block along the channels; 0: chosen by the shape")
_STAGES = Knob(KnobType.STAGES, 2, 8, 1, 4, "steps in the ring in shared memory")
_OCCUPANCY = Knob(KnobType.OCCUPANCY, 1, 8, 1, 1, "blocks of a multiprocessor that registers are limited for")
KNOBS = (_CHANNELS, _COLUMNS, _ROWS, _LANES, _STAGES, _OCCUPANCY)


@dataclass(frozen=True, slots=True)
class Sides:
    """The convolution as the kernel sees it: a gathered image, and an output whose channels are threads'."""

    roles: Roles
    gathered: TensorSpec
    filter: TensorSpec
    output: TensorSpec

    @classmethod
    def of(cls, op: FusedOp) -> Sides:
        assert isinstance(op.anchor, ConvolutionOperation)
        roles = Roles.of(op.anchor)
        x, w, y = op.anchor.roles
        return cls(roles, y, w, x) if roles.direction == "dgrad" else cls(roles, x, w, y)

    @property
    def is_dgrad(self) -> bool:
        return self.roles.direction == "dgrad"

    @property
    def group_in(self) -> int:
        p = self.roles.problem
        return p.k if self.is_dgrad else p.c

    @property
    def group_out(self) -> int:
        p = self.roles.problem
        return p.c if self.is_dgrad else p.k

    @property
    def channels_out(self) -> int:
        return self.roles.problem.groups * self.group_out

    @property
    def columns(self) -> int:
        """Columns that tiles count: of the output, and for dgrad those before it down to a multiple of the stride."""
        p = self.roles.problem
        return p.input[1] + p.pre_padding[1] % p.stride[1] if self.is_dgrad else p.output[1]

    @property
    def rows(self) -> int:
        """Steps that a whole image's output rows take."""
        p = self.roles.problem
        if self.is_dgrad:
            return -(-(p.input[0] + p.pre_padding[0] % p.stride[0]) // p.stride[0])
        return p.output[0]

    @property
    def window(self) -> int:
        p = self.roles.problem
        return max(p.filter[0], p.stride[0]) if self.is_dgrad else -(-p.filter[0] // p.stride[0])


@dataclass(frozen=True, slots=True)
class Tile:
    """What a thread and a block compute."""

    v: int  # channels of a thread
    tw: int  # columns of a thread
    lanes: int
    tiles: int
    in_registers: bool

    @property
    def threads(self) -> int:
        return -(-self.lanes * self.tiles // 32) * 32


def _is_legal_v(v: int, group_out: int) -> bool:
    return v % group_out == 0 or group_out % v == 0


def choose_tile(sides: Sides, knobs: Knobs) -> Tile:
    """Few channels and many columns for large filters, whose weights fill the registers; the reverse for small ones."""
    p, group_out, group_in = sides.roles.problem, sides.group_out, sides.group_in
    taps, channels = p.taps, sides.channels_out
    stride = p.stride[1] if sides.is_dgrad else 1
    legal = [v for v in (1, 2, 4, 8) if _is_legal_v(v, group_out)]
    chosen = knobs[_CHANNELS.type]
    if chosen in legal:
        v = chosen
    elif taps * group_in > 36:
        v = max(v for v in legal if v <= (4 if group_in > 1 else 1))
    else:
        v = max(v for v in legal if v <= (4 if group_in > 1 else 2))
    while v > 1 and (v > channels or channels % v) and any(u < v for u in legal):
        v = max(u for u in legal if u < v)
    in_registers = taps * group_in * v <= _IN_REGISTERS
    columns = sides.columns
    limit = min(16, max(1, _SUMS // (sides.window * v)))
    if knobs[_COLUMNS.type]:
        tw = min(knobs[_COLUMNS.type], 16)
    else:
        # As many as divide the image evenly, at most 8.
        wanted = min(8, limit)
        tw = min(
            range(1, wanted + 1), key=lambda t: (-(-columns // t) * (t + 0.75 * (p.filter[1] - 1) / stride + 1), -t)
        )
    tw = -(-tw // stride) * stride
    count = -(-columns // tw)
    lanes = _lanes(channels, v, group_out, count, knobs[_LANES.type])
    most = max(1, _THREADS // lanes)
    blocks = -(-count // most)
    return Tile(v, tw, lanes, -(-count // blocks), in_registers)


def _lanes(channels: int, v: int, group_out: int, tiles: int, chosen: int) -> int:
    """Threads along the channels: whole groups, little left over, enough for a block."""
    unit = max(1, group_out // v)
    total = -(-channels // v)
    if chosen:
        return min(max(unit, chosen // unit * unit), -(-total // unit) * unit)
    best = -(-total // unit) * unit
    if best <= 64 and best * tiles <= 384:
        return best

    def badness(lanes: int) -> tuple[float, int]:
        waste = -(-total // lanes) * lanes / total
        threads = lanes * min(tiles, _THREADS // lanes)
        away = abs(threads - 256) / 256
        narrow = 0.0 if lanes >= 32 else (32 - lanes) / 32
        return waste + 0.15 * away + 0.3 * narrow, lanes

    return min(range(unit, min(best, 256 // unit * unit) + 1, unit), key=badness)


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
    compute = COMPUTE_TYPE[roles.op.compute_type]
    tile = choose_tile(sides, knobs)
    stages, dgrad = knobs[_STAGES.type], sides.is_dgrad

    in_space, out_space = image_space(roles, sides.gathered), image_space(roles, sides.output)
    channels_out = tile.lanes * tile.v
    channels_in = channels_out // sides.group_out * sides.group_in
    chunk = chunk_for(in_space, sides.gathered, channels_in)
    iv = sides.group_in if tile.v <= sides.group_out else tile.v // sides.group_out * sides.group_in
    per_load = min(power_of_two_in(iv, channels_in), 16 // element_bytes(sides.gathered))

    parameters = Parameters(steps.places)
    width = min(tile.v, width_for(out_space, steps.epilogue_tensors(), 1))
    body = Program(op, parameters, out_space, "t", width=width, vector_axis=1)
    steps.finish(body, "acc", compute)

    (stride_h, stride_w), (pad_h, pad_w) = p.stride, p.pre_padding
    count = -(-sides.columns // tile.tw)
    column_blocks = -(-count // tile.tiles)
    channel_blocks = -(-sides.channels_out // channels_out)
    image_in, image_out = (p.output, p.input) if dgrad else (p.input, p.output)
    step_w = tile.tw // stride_w if dgrad else tile.tw * stride_w
    before = (p.filter[1] - 1) // stride_w if dgrad else 0
    wide = (tile.tw - 1) // stride_w + before + 1 if dgrad else (tile.tw - 1) * stride_w + p.filter[1]
    columns = (tile.tiles - 1) * step_w + wide
    in_rows = 1 if dgrad else stride_h
    slab = channels_out // sides.group_out * sides.group_in * sides.group_out * p.taps
    shared = _padded(stages * in_rows * columns * channels_in * element_bytes(sides.gathered))
    shared += _padded(slab * element_bytes(filter))
    if not tile.in_registers:
        shared += p.taps * sides.group_in * channels_out * 4
    registers = sides.window * tile.tw * tile.v + 40
    registers += p.taps * sides.group_in * tile.v + iv if tile.in_registers else wide * iv + tile.v
    resident = max(knobs[_OCCUPANCY.type], resident_blocks(device, tile.threads, registers, shared))
    extra = (p.filter[0] - 1) // stride_h
    strips = p.n * column_blocks * channel_blocks
    cut = cut_rows(sides.rows, extra, strips, resident * device.sm_count, knobs[_ROWS.type])

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
        "channels_in": in_space.sizes[1], "channels_out": sides.channels_out,
        "in_row": pad_h // stride_h if dgrad else -pad_h,
        "in_column": pad_w // stride_w if dgrad else -pad_w,
        "out_row": -(pad_h % stride_h) if dgrad else 0,
        "out_column": -(pad_w % stride_w) if dgrad else 0,
        "rows": sides.rows, "segments": cut.segments, "segment_rows": cut.rows,
        "channel_blocks": channel_blocks, "column_blocks": column_blocks,
    }.items():  # fmt: skip
        parameters.integer(name, value)

    how = f"r{p.filter[0]}s{p.filter[1]}v{tile.v}w{tile.tw}x{tile.tiles}c{channels_out}"
    name = f"conv_{roles.direction}__direct_{how}__{op.name}"
    text = kernel_text(
        name,
        ["direct_window.cuh", "direct.cu"],
        parameters=parameters.text,
        functions=[body.function("epilogue", f"const {compute} (&acc)[{width}]")],
        constants={
            "R": p.filter[0], "S": p.filter[1], "STRIDE_H": stride_h, "STRIDE_W": stride_w,
            "DGRAD": dgrad, "FLIP": p.flip,
            "IN_ROWS": in_rows, "OUT_ROWS": stride_h if dgrad else 1, "WINDOW": sides.window,
            "V": tile.v, "TW": tile.tw, "LANES": tile.lanes, "TILES": tile.tiles, "THREADS": tile.threads,
            "GROUP_IN": sides.group_in, "GROUP_OUT": sides.group_out,
            "CHUNK": chunk, "LV": per_load, "FILTER_CHUNK": _filter_chunk(filter, slab, p.groups * p.k * p.c * p.taps),
            "STAGES": stages, "BLOCKS": knobs[_OCCUPANCY.type],
            "IN_REGISTERS": tile.in_registers,
            "WIDTH": width,
            "Gathered": STORAGE[sides.gathered.data_type],
            "Filter": STORAGE[filter.data_type],
            "Accumulator": compute,
        },
    )  # fmt: skip
    blocks = strips * cut.segments
    steps.add(Launch(text, "direct", (blocks, 1, 1), tile.threads, parameters.pack(), shared))
    return steps.kernel(name)


def _packed_filter(sides: Sides) -> tuple[int, ...]:
    p = sides.roles.problem
    r, s = p.filter
    return p.k * p.c * r * s, p.c * r * s, r * s, 0, s, 1


def _padded(size: int) -> int:
    return -(-size // 16) * 16


def _filter_chunk(filter: TensorSpec, slab: int, elements: int) -> int:
    """Filter elements that are copied at once: every block's part starts at a multiple of them."""
    size = element_bytes(filter)
    chunk = power_of_two_in(slab, elements, 16 // size)
    while chunk > 1 and max(1, filter.byte_alignment) % (chunk * size):
        chunk //= 2
    return chunk


def _cost(task: Task, knobs: Knobs) -> Cost:
    sides = Sides.of(task.op)
    p = sides.roles.problem
    tile = choose_tile(sides, knobs)
    rate = task.device.rate(
        task.op.main.compute_type if task.op.main.compute_type is DataType.INT32 else DataType.FLOAT
    )
    per_product = 1.2 + (0.25 if not tile.in_registers else 0.0)
    padding = -(-sides.columns // tile.tw) * tile.tw / sides.columns
    others = sum(flops(op) for op in task.op.operations if op is not task.op.anchor) / task.device.rate(DataType.FLOAT)
    # Beside the products every element is converted, moved and stored by some instructions.
    elements = p.n * sides.channels_out * sides.columns * max(sides.rows, 1)
    seconds = 2 * (p.macs * per_product * padding + 8 * elements) / rate
    return device_cost(task, seconds + others)


ENGINE = cuda_engine(
    id=11,
    name="cuda_direct",
    summary="fprop and dgrad with few channels per group (depthwise too), channels last; each element read once",
    needs=direct_needs("cuda_direct", filter_gradient=False),
    cost=_cost,
    generate=generate,
    knobs=KNOBS,
)

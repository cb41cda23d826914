"""Engine ``cuda_implicit_gemm``: every convolution on the ordinary units, as a product of gathered operands.

| direction | rows     | columns        | summed over     | gathered | plain |
|-----------|----------|----------------|-----------------|----------|-------|
| fprop     | pixel    | channel k      | taps, channel c | x        | w     |
| dgrad     | pixel    | channel c      | taps, channel k | dy       | w     |
| wgrad     | channel k| taps, channel c| pixel           | x        | dy    |

Where pixels lie next to each other in memory (NCHW), rows and columns of fprop and
dgrad change places, so that stores run along the columns in every case.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from graphdnn.checks import Equals
from graphdnn.device import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.convolution_roles import SPATIAL, Roles, padded
from graphdnn.engines.cuda.cost import device_cost
from graphdnn.engines.cuda.engine import cuda_engine
from graphdnn.engines.cuda.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.padding import add_padded_copy
from graphdnn.engines.cuda.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.program import Program, width_for
from graphdnn.engines.cuda.source import kernel_text
from graphdnn.engines.cuda.space import Space, is_addressable
from graphdnn.engines.cuda.steps import Steps, fused_inputs
from graphdnn.engines.engine import Cost, Knob, Knobs, Task, need, needs_rule
from graphdnn.engines.work import flops
from graphdnn.enums import DataType, KnobType
from graphdnn.fusion.fused import FusedOp
from graphdnn.operations import ConvolutionOperation
from graphdnn.tensors import TensorSpec

_PIXEL, _FILTER = 0, 2  # as in the kernel's text
_INT_MAX = 2**31 - 1
_VECTOR_BYTES = 16


@dataclass(frozen=True, slots=True)
class Tile:
    """A block's tile of the product and each thread's part of it."""

    bm: int
    bn: int
    bk: int
    tm: int
    tn: int

    @property
    def threads(self) -> int:
        return self.bm // self.tm * (self.bn // self.tn)

    @property
    def name(self) -> str:
        return f"{self.bm}x{self.bn}x{self.bk}"

    @property
    def resident(self) -> int:
        """Blocks that share an SM, which bounds the registers of each."""
        if self.tm * self.tn < 64:
            return max(1, 512 // self.threads)
        return 384 // self.threads + (self.threads == 256 and self.tm * self.tn == 64)

    @property
    def share(self) -> float:
        """Of the device's peak: an operand is read from shared memory once for tm (tn) products."""
        return 0.8 / (1 + 1 / self.tm + 1 / self.tn)


# Largest first; the last are for problems with few rows and columns per group.
TILES: tuple[Tile, ...] = (
    Tile(256, 128, 8, 16, 8),
    Tile(128, 128, 8, 8, 8),
    Tile(128, 64, 8, 8, 8),
    Tile(64, 128, 8, 8, 8),
    Tile(64, 64, 16, 4, 4),
    Tile(128, 32, 16, 4, 4),
    Tile(32, 256, 8, 4, 8),
    Tile(32, 128, 16, 4, 4),
    Tile(32, 64, 16, 4, 4),
    Tile(32, 32, 32, 2, 2),
    Tile(64, 8, 32, 2, 1),
    Tile(8, 64, 32, 1, 2),
)
_WIDE_TILES = (4, 5, 7, 8, 9, 10, 11)  # with 8-byte operands

_TILE = Knob(
    KnobType.TILE_SIZE, 0, len(TILES), 1, 0, "0: chosen by the shape; else the number of a tile, largest first"
)
_SPLIT = Knob(
    KnobType.SPLIT_K,
    0,
    7,
    1,
    0,
    "0: chosen by the shape; else the sum is computed in 2 to the power n-1 parts side by side",
)
_PARTS = (1, 2, 4, 8, 16, 32, 64)
_LEAST_DEPTH = 8  # tiles of k that a part has at least
_AS_STAGED = {
    "float": DataType.FLOAT,
    "double": DataType.DOUBLE,
    "int": DataType.INT32,
    "long long": DataType.INT64,
}
_WORTH_COPYING = 0.1  # of the predicted time that a copy of an operand may take
_ALONE = 0.3  # of an SM's pace that is left when it is all but empty


@dataclass(frozen=True, slots=True)
class Product:
    """The sizes of the matrix product."""

    roles: Roles
    pixels: tuple[int, ...]
    channels: int  # counted with the taps
    outer_channels: int
    swapped: bool  # channels are the rows

    @property
    def is_wgrad(self) -> bool:
        return self.roles.direction == "wgrad"

    @property
    def filters(self) -> int:
        return self.channels * self.roles.problem.taps

    @property
    def pixel_count(self) -> int:
        return self.roles.problem.n * prod(self.pixels)

    @property
    def rows(self) -> int:
        return self.outer_channels if self.swapped else self.pixel_count

    @property
    def columns(self) -> int:
        if self.is_wgrad:
            return self.filters
        return self.pixel_count if self.swapped else self.outer_channels

    @property
    def depth(self) -> int:
        return self.pixel_count if self.is_wgrad else self.filters


def product_of(op: FusedOp) -> Product:
    assert isinstance(op.anchor, ConvolutionOperation)
    roles = Roles.of(op.anchor)
    p = roles.problem
    if roles.direction == "wgrad":
        return Product(roles, p.output, p.c, p.k, swapped=True)
    written = op.outputs[0]
    channels_first = roles.space(roles.output).strides(written)[2] != 1
    if roles.direction == "dgrad":
        return Product(roles, p.input, p.k, p.c, swapped=channels_first)
    return Product(roles, p.output, p.c, p.k, swapped=channels_first)


def _staged(gathered: DataType, plain: DataType, compute: str) -> str:
    """What the shared tiles hold: the arithmetic's type, or 32-bit integers where both operands fit."""
    wide = any(t is DataType.INT64 for t in (gathered, plain))
    return "int" if compute == "long long" and not wide else compute


def _operands(roles: Roles) -> tuple[TensorSpec, TensorSpec]:
    """(gathered, plain)."""
    x, w, y = roles.op.roles
    return {"fprop": (x, w), "dgrad": (y, w), "wgrad": (x, y)}[roles.direction]


@dataclass(frozen=True, slots=True)
class Shape:
    """A tile and a number of parts, with the time that the model gives them."""

    tile: Tile
    parts: int
    seconds: float


def choose(product: Product, device: DeviceSpec, compute: DataType, knobs: Knobs) -> Shape:
    """The fastest of the allowed tiles and parts by a model of waves."""
    operand_bytes = 8 if COMPUTE_TYPE[compute] in ("double", "long long") else 4
    number, power = knobs[_TILE.type], knobs[_SPLIT.type]
    tiles = (number - 1,) if number else [i for i in range(len(TILES)) if operand_bytes == 4 or i in _WIDE_TILES]
    shapes = []
    for tile in (TILES[i] for i in tiles):
        most = max(1, product.depth // (_LEAST_DEPTH * tile.bk))
        for parts in (_PARTS[power - 1],) if power else [p for p in _PARTS if p <= most]:
            shapes.append(Shape(tile, parts, _seconds(product, device, compute, operand_bytes, tile, parts)))
    return min(shapes, key=lambda shape: shape.seconds)


def _seconds(
    product: Product, device: DeviceSpec, compute: DataType, operand_bytes: int, tile: Tile, parts: int
) -> float:
    blocks = -(-product.rows // tile.bm) * -(-product.columns // tile.bn) * product.roles.problem.groups * parts
    work = 2 * tile.bm * tile.bn * -(-product.depth // parts)
    pace = device.rate(compute) / device.sm_count * tile.share
    full, rest = divmod(blocks, tile.resident * device.sm_count)
    last = -(-rest // device.sm_count)  # blocks that share an SM at the end; fewer than it holds leave gaps
    filled = _ALONE + (1 - _ALONE) * (last / tile.resident)
    seconds = (full * tile.resident + last / filled) * work / pace
    if parts > 1:  # partial sums are written, read and added
        partial = product.roles.problem.groups * product.rows * product.columns * operand_bytes * parts
        seconds += 2 * partial / device.bandwidth + device.launch
    return seconds


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    product = product_of(op)
    roles, problem = product.roles, product.roles.problem
    steps = Steps(op, device)
    gathered, plain = _operands(roles)
    compute = COMPUTE_TYPE[roles.op.compute_type]
    staged = _staged(gathered.data_type, plain.data_type, compute)
    shape = choose(product, device, roles.op.compute_type, knobs)
    tile, split = shape.tile, shape.parts
    thrifty = knobs[_SPLIT.type] == 1  # what the engine is asked for where workspace is limited
    if not thrifty and _turns(product, shape, plain, device):
        plain_here = steps.relaid(plain, _outer_first(product, plain))
    else:
        plain_here = plain if is_addressable(plain) else steps.relaid(plain)

    x_space, plain_space, out_space = roles.space(gathered), roles.space(plain), roles.space(roles.output)

    # Vector accesses run along the axis that is contiguous in both memory and the product.
    def vector(spec: TensorSpec, axis: int) -> int:
        space = roles.space(spec)
        return width_for(space, [spec], axis, min(_VECTOR_BYTES, 4 * ELEMENTS[spec.data_type].bytes))

    has_prologue = bool(op.prologue) or not is_addressable(gathered)
    geometry, checked = _geometry(roles), not _stays_inside(roles)
    if checked and not has_prologue and not thrifty and _pads(product, shape, gathered, device):
        gathered, x_space, geometry = _padded(steps, roles, gathered, x_space, geometry, staged)
        checked = False
    parameters = Parameters(steps.places)
    program = None
    gathered_axis = 2  # channels
    gathered_width = 1
    if is_addressable(gathered):
        limit = min(_VECTOR_BYTES, 4 * ELEMENTS[gathered.data_type].bytes)
        gathered_width = width_for(x_space, [gathered], gathered_axis, limit)
    if has_prologue:
        gathered_width = min(4, width_for(x_space, fused_inputs(op.prologue), gathered_axis)) if op.prologue else 1
        program = Program(op, parameters, x_space, "x", width=gathered_width, vector_axis=gathered_axis)
        program.apply(op.prologue)
        program.result("value", gathered, staged)
    # w runs along c for fprop (with k), along c for dgrad (outer); dy runs along k (outer) for wgrad.
    along = {"fprop": (2, True), "dgrad": (2, False), "wgrad": (2, False)}[roles.direction]
    plain_width = vector(plain_here, along[0])
    plain_along_k = along[1]
    if plain_width == 1 and roles.direction == "dgrad":
        plain_width, plain_along_k = vector(plain_here, 1), True
    gathered_along_k = not product.is_wgrad
    if gathered_width == 1:
        gathered_along_k = product.is_wgrad
    if plain_width == 1:
        plain_along_k = _is_contiguous(plain_here, roles, product)

    columns_axis = 2 if (product.is_wgrad or not product.swapped) else 5
    kernel_width = min(width_for(out_space, steps.epilogue_tensors(), columns_axis), 8, tile.bn)
    body = Program(op, parameters, out_space, "t", width=kernel_width, vector_axis=columns_axis)
    steps.finish(body, "acc", compute)

    p = problem
    if has_prologue:
        parameters.nothing("gathered", f"const {STORAGE[gathered.data_type]}")
    else:
        parameters.tensor("gathered", gathered)
    parameters.tensor("plain", plain_here)
    gs, ps = x_space.strides(gathered), plain_space.strides(plain_here)
    for name, value in zip(("n", "g", "c"), gs[:3], strict=True):
        parameters.integer(f"gathered_{name}", value)
    parameters.integers("gathered_spatial", gs[3:])
    if product.is_wgrad:
        lane, group, channel = ps[:3]
    else:
        group = ps[0]
        channel, lane = (ps[1], ps[2]) if roles.direction == "fprop" else (ps[2], ps[1])
    parameters.integer("plain_g", group)
    parameters.integer("plain_channel", channel)
    parameters.integer("plain_lane", lane)
    parameters.integers("plain_spatial", ps[3:])
    for field, values in geometry.items():
        parameters.integers(field, values)
    pixel_digits, tap_digits = _digits(product)
    parameters.integers("pixel_digits", pixel_digits)
    parameters.integers("tap_digits", tap_digits)
    parameters.integers("depth_step", _in_digits(tile.bk, pixel_digits if product.is_wgrad else tap_digits))
    parameters.integer("groups", p.groups)
    parameters.integer("rows", product.rows)
    parameters.integer("columns", product.columns)
    parameters.integer("depth", product.depth)
    per_block = -(-product.depth // split)
    per_block = -(-per_block // tile.bk) * tile.bk
    split = -(-product.depth // per_block)
    parameters.integer("depth_per_block", per_block)
    parameters.integer("splits", split)
    if split > 1:
        size = 8 if compute in ("double", "long long") else 4
        offset = steps.allocate(split * p.groups * product.rows * product.columns * size)
        parameters.scratch("partial", compute, offset)
    else:
        parameters.nothing("partial", compute)

    functions = [body.function("epilogue", f"const {compute} (&acc)[{kernel_width}]")]
    if program is not None:
        functions.append(program.function("prologue", f"{staged} (&value)[{gathered_width}]"))
    else:
        functions.append(
            f"template <int V> __device__ void prologue(const Params&, const int (&)[6], {staged} (&)[V]) {{}}\n"
        )
    a_width, b_width = (plain_width, gathered_width) if product.swapped else (gathered_width, plain_width)
    a_along, b_along = (plain_along_k, gathered_along_k) if product.swapped else (gathered_along_k, plain_along_k)
    name = f"conv_{roles.direction}__simt_{tile.name}{'_split' if split > 1 else ''}__{op.name}"
    text = kernel_text(
        name,
        ["implicit_gemm.cu", *(["sum_splits.cu"] if split > 1 else [])],
        parameters=parameters.text,
        functions=functions,
        constants={
            "BLOCKS": _resident(tile, tile.bn if product.swapped else tile.bm, gathered_width),
            "BM": tile.bm, "BN": tile.bn, "BK": tile.bk, "TM": tile.tm, "TN": tile.tn, "THREADS": tile.threads,
            "PAD": 4 if tile.bm > 8 else 0,
            "SPATIAL": p.spatial,
            "ONE_TAP": not product.is_wgrad and product.channels % tile.bk == 0,
            "DIVIDED": _is_divided(roles),
            "CHECKED": checked,
            "K_KIND": _PIXEL if product.is_wgrad else _FILTER,
            "A_IS_PLAIN": product.swapped,
            "VECTOR_A": a_width, "VECTOR_B": b_width, "ALONG_K_A": a_along, "ALONG_K_B": b_along,
            "PROLOGUE": has_prologue,
            "SPLIT": split > 1,
            "WIDTH": kernel_width,
            "Offset": "int" if max(gathered.span, plain_here.span) < 2**31 else "long long",
            "Gathered": STORAGE[gathered.data_type],
            "Plain": STORAGE[plain_here.data_type],
            "Staged": staged,
            "Accumulator": compute,
        },
    )  # fmt: skip
    packed = parameters.pack()
    tiles = -(-product.rows // tile.bm) * -(-product.columns // tile.bn) * p.groups
    steps.add(Launch(text, "implicit_gemm", (tiles, split, 1), tile.threads, packed))
    if split > 1:
        count = -(-p.groups * product.rows * product.columns // (tile.threads * kernel_width))
        steps.add(Launch(text, "sum_splits", (min(count, 16 * device.sm_count), 1, 1), tile.threads, packed))
    return steps.kernel(name)


def _resident(tile: Tile, outer: int, width: int) -> int:
    """Blocks that share an SM: one fewer where a thread keeps the places of many single elements."""
    places = outer * tile.bk // (width * tile.threads)
    return tile.resident - (places >= 8 and tile.resident > 2 and tile.tm * tile.tn >= 64)


def _digits(product: Product) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes of the coordinates of a pixel (position, n) and of a filter element (channel, tap), fastest first.

    The slowest digit has no size: it takes what is left.
    """
    pixels, taps = padded(product.pixels, 1), padded(product.roles.problem.filter, 1)
    return pixels[::-1], (product.channels, taps[2], taps[1])


def _in_digits(value: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    digits = []
    for size in sizes:
        value, digit = divmod(value, size)
        digits.append(digit)
    return (*digits, value)


def _is_contiguous(plain: TensorSpec, roles: Roles, product: Product) -> bool:
    """True when single elements of the plain operand are neighbours along k rather than along the outer index."""
    strides = roles.space(plain).strides(plain)
    if product.is_wgrad:
        return min(s for s in (*strides[3:], 2**62) if s) <= (strides[2] or 2**62)
    outer, summed = (strides[1], strides[2]) if roles.direction == "fprop" else (strides[2], strides[1])
    return (summed or 2**62) <= (outer or 2**62)


def _geometry(roles: Roles) -> dict[str, tuple[int, ...]]:
    """``q = pixel * pixel_step + pixel_start + tap * tap_step``, divided by ``divisor``, inside ``image_size``.

    A flipped filter (CONVOLUTION) reads tap F-1-f in place of f: the sign of the step and the start change.
    """
    p = roles.problem
    reach = tuple((f - 1) * d if p.flip else 0 for f, d in zip(p.filter, p.dilation, strict=True))
    step = tuple(-d if p.flip else d for d in p.dilation)
    start = tuple(r - pre for r, pre in zip(reach, p.pre_padding, strict=True))
    if roles.direction == "dgrad":
        ones = (1,) * p.spatial
        return {
            "pixel_step": padded(ones, 1),
            "pixel_start": padded(tuple(-s for s in start), 0),
            "tap_step": padded(tuple(-s for s in step), 0),
            "divisor": padded(p.stride, 1),
            "image_size": padded(p.output, 1),
        }
    return {
        "pixel_step": padded(p.stride, 1),
        "pixel_start": padded(start, 0),
        "tap_step": padded(step, 0),
        "divisor": padded((1,) * p.spatial, 1),
        "image_size": padded(p.input, 1),
    }


def _is_divided(roles: Roles) -> bool:
    return roles.direction == "dgrad" and any(s > 1 for s in roles.problem.stride)


def _margins(roles: Roles) -> list[tuple[int, int]]:
    """How far the coordinates reach beyond the image, before and after, for each spatial axis that there is."""
    p = roles.problem
    if roles.direction == "dgrad":
        steps, pixels, sizes = (1,) * p.spatial, p.input, p.output
    else:
        steps, pixels, sizes = p.stride, p.output, p.input
    geometry = _geometry(roles)
    starts, taps = (geometry[name][SPATIAL - p.spatial :] for name in ("pixel_start", "tap_step"))
    found = []
    for step, count, size, start, tap, f in zip(steps, pixels, sizes, starts, taps, p.filter, strict=True):
        reach = (f - 1) * tap
        low = start + min(0, reach)
        high = start + (count - 1) * step + max(0, reach)
        found.append((max(0, -low), max(0, high - (size - 1))))
    return found


def _stays_inside(roles: Roles) -> bool:
    return not _is_divided(roles) and not any(b or a for b, a in _margins(roles))


def _pads(product: Product, shape: Shape, gathered: TensorSpec, device: DeviceSpec) -> bool:
    """True where a padded copy costs little and saves the bounds of every element: taps change within a tile of k."""
    roles = product.roles
    if product.is_wgrad or _is_divided(roles) or product.channels % shape.tile.bk == 0:
        return False
    grown = prod(
        (b + a + n) / n for (b, a), n in zip(_margins(roles), gathered.dims[-len(product.pixels) :], strict=True)
    )
    copying = device.launch + gathered.bytes * (1 + grown) / device.bandwidth
    return copying < _WORTH_COPYING * shape.seconds


def _turns(product: Product, shape: Shape, filters: TensorSpec, device: DeviceSpec) -> bool:
    """True where filters are worth a copy whose channels lie next to each other: scattered ones are read by single
    elements, each from a line of its own.
    """
    if product.is_wgrad or (is_addressable(filters) and 1 in product.roles.space(filters).strides(filters)[1:3]):
        return False
    # A copy that scatters reaches a fraction of the bandwidth.
    copying = device.launch + 8 * filters.bytes / device.bandwidth
    return copying < _WORTH_COPYING * shape.seconds


def _outer_first(product: Product, filters: TensorSpec) -> tuple[int, ...]:
    """Strides in the order (tap, summed channel, outer channel) for each group, the outer one contiguous."""
    extents = filters.extents
    explicit = len(extents) == product.roles.problem.spatial + 3
    outer, summed = (0, 1) if product.roles.direction == "fprop" else (1, 0)
    order = [i + explicit for i in (outer, summed)] + list(range(2 + explicit, len(extents)))[::-1] + [0] * explicit
    strides, size = [0] * len(extents), 1
    for axis in order:
        strides[axis] = size
        size *= extents[axis]
    return tuple(strides)


def _padded(
    steps: Steps, roles: Roles, gathered: TensorSpec, space: Space, geometry: dict[str, tuple[int, ...]], staged: str
) -> tuple[TensorSpec, Space, dict[str, tuple[int, ...]]]:
    """The copy, its coordinates, and the geometry in which it starts at its padding."""
    margins = _margins(roles)
    outer = (0,) * (gathered.rank - len(margins))
    before, after = ((*outer, *(m[i] for m in margins)) for i in (0, 1))
    wide = _AS_STAGED[staged]  # converted once, not for every tap that reads it
    copy = add_padded_copy(steps, gathered, before, after, wide, staged)
    first = SPATIAL - len(margins)
    sizes = copy.dims[-len(margins) :]
    axes = tuple(
        replace(axis, size=sizes[j - 3 - first]) if j >= 3 + first else axis for j, axis in enumerate(space.axes)
    )
    shift = padded(tuple(b for b, _ in margins), 0)
    start = tuple(s + b for s, b in zip(geometry["pixel_start"], shift, strict=True))
    return copy, Space(copy.extents, axes), {**geometry, "pixel_start": start, "image_size": padded(sizes, 1)}


def _reach(task: Task) -> int:
    """The largest coordinate that the kernel computes."""
    op = task.op.anchor
    assert isinstance(op, ConvolutionOperation)
    p = op.problem
    axes = zip(p.input, p.output, p.filter, p.dilation, p.stride, p.pre_padding, p.post_padding, strict=True)
    return max(int(i + o * s + f * d + pre + post) for i, o, f, d, s, pre, post in axes)


def _cost(task: Task, knobs: Knobs) -> Cost:
    product = product_of(task.op)
    shape = choose(product, task.device, task.op.main.compute_type, knobs)
    gathered, plain = _operands(product.roles)
    rows, columns = -(-product.rows // shape.tile.bm), -(-product.columns // shape.tile.bn)
    rereads = ((rows - 1) * plain.bytes + (columns - 1) * gathered.bytes) / 8  # most of them hit the cache
    others = sum(flops(op) for op in task.op.operations if op is not task.op.anchor) / task.device.rate(DataType.FLOAT)
    return device_cost(task, shape.seconds + others, rereads)


ENGINE = cuda_engine(
    id=10,
    name="cuda_implicit_gemm",
    summary="every convolution, type and layout on the ordinary units; integers exact",
    needs=(
        needs_rule("cuda_implicit_gemm.operation", "conv"),
        need(
            "cuda_implicit_gemm.coordinates",
            "conv.pre_paddings",
            _reach,
            Equals(f"coordinates up to {_INT_MAX}"),
            reason="coordinates, padding and dilated taps included, are 32-bit numbers in the kernel",
            fix="pad or dilate less",
            when=lambda task: task.op.rule == "conv" and _reach(task) > _INT_MAX,
        ),
    ),
    cost=_cost,
    generate=generate,
    knobs=(_TILE, _SPLIT),
    frugal={_SPLIT.type: 1},
    is_general=True,
)

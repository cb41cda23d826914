"""Engine ``cuda_implicit_gemm``: every convolution on the ordinary units, as a product of gathered operands.

| direction | rows     | columns        | summed over     | gathered | plain |
|-----------|----------|----------------|-----------------|----------|-------|
| fprop     | pixel    | channel k      | taps, channel c | x        | w     |
| dgrad     | pixel    | channel c      | taps, channel k | dy       | w     |
| wgrad     | channel k| taps, channel c| pixel           | x        | dy    |

Where pixels lie next to each other in memory (NCHW), rows and columns of fprop and
dgrad change places, so that stores run along the columns in every case. A strided dgrad
is one product for each residue of the positions modulo the stride (``implicit_product``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import NamedTuple

from graphdnn.checks import Equals
from graphdnn.device import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.convolution_roles import SPATIAL, Roles, padded
from graphdnn.engines.cuda.cost import device_cost
from graphdnn.engines.cuda.engine import cuda_engine
from graphdnn.engines.cuda.implicit_product import Product, Residue, gathered_and_plain, product_of
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
        if self.tm * self.tn > 64:
            return max(1, 256 // self.threads)
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
_MOST_PARTS = 128  # chosen by the shape
_LEAST_DEPTH = 8  # tiles of k that a part has at least
_AS_STAGED = {
    "float": DataType.FLOAT,
    "double": DataType.DOUBLE,
    "int": DataType.INT32,
    "long long": DataType.INT64,
}
_WORTH_COPYING = 0.1  # of the predicted time that a copy of an operand may take
_QUAD = 4  # bytes that are multiplied and added at once
_RESIDUES = 16  # that one launch serves: each is described in the kernel's parameters, of 4 KB
_MANY = 64  # blocks for each SM: more parts would only add sums
_ALONE = 0.3  # of an SM's pace that is left when it is all but empty


def _staged(gathered: DataType, plain: DataType, compute: str) -> str:
    """What the shared tiles hold: the arithmetic's type, or 32-bit integers where both operands fit."""
    wide = any(t is DataType.INT64 for t in (gathered, plain))
    return "int" if compute == "long long" and not wide else compute


@dataclass(frozen=True, slots=True)
class Shape:
    """A tile and a number of parts, with the time that the model gives them."""

    tile: Tile
    parts: int
    seconds: float


def choose(product: Product, device: DeviceSpec, compute: DataType, knobs: Knobs) -> Shape:
    """The fastest of the allowed tiles and parts by a model of waves."""
    sizes = tuple((product.rows(r), product.columns(r), product.depth(r)) for r in product.residues)
    operand_bytes = 8 if COMPUTE_TYPE[compute] in ("double", "long long") else 4
    machine = _Machine(device.sm_count, device.rate(compute) / device.sm_count, device.bandwidth, device.launch)
    groups, results = product.roles.problem.groups, product.results * operand_bytes
    return _fastest(machine, sizes, groups, results, operand_bytes, knobs[_TILE.type], knobs[_SPLIT.type])


class _Machine(NamedTuple):
    sms: int
    rate: float  # of one SM
    bandwidth: float
    launch: float


@lru_cache(maxsize=1024)  # asked for the prediction, and again for the kernel
def _fastest(
    machine: _Machine,
    sizes: tuple[tuple[int, int, int], ...],
    groups: int,
    results: int,
    operand_bytes: int,
    number: int,
    power: int,
) -> Shape:
    """``sizes``: rows, columns and depth of each product. ``results``: bytes of all of them."""
    sms = machine.sms
    tiles = (number - 1,) if number else [i for i in range(len(TILES)) if operand_bytes == 4 or i in _WIDE_TILES]
    deepest = max(depth for *_, depth in sizes)
    shapes = []
    for tile in (TILES[i] for i in tiles):
        counted = [(-(-rows // tile.bm) * -(-columns // tile.bn) * groups, depth) for rows, columns, depth in sizes]
        blocks, area = sum(count for count, _ in counted), 2.0 * tile.bm * tile.bn
        resident, pace = tile.resident, machine.rate * tile.share
        for parts in (_PARTS[power - 1],) if power else _candidates(resident * sms, blocks):
            if not power and parts > 1 and (parts * _LEAST_DEPTH * tile.bk > deepest or parts * blocks > _MANY * sms):
                break
            # Of a block, in the mean.
            work = area * sum(count * -(-depth // parts) for count, depth in counted) / blocks
            full, rest = divmod(blocks * parts, resident * sms)
            last = -(-rest // sms)  # blocks that share an SM at the end; fewer than it holds leave gaps
            filled = _ALONE + (1 - _ALONE) * (last / resident)
            seconds = (full * resident + last / filled) * work / pace
            if parts > 1:  # partial sums are written, read and added
                seconds += 2 * results * parts / machine.bandwidth + machine.launch
            shapes.append(Shape(tile, parts, seconds))
    return min(shapes, key=lambda shape: shape.seconds)


def _candidates(places: int, blocks: int) -> list[int]:
    """Numbers of parts: powers of two, and those that fill the device once or twice."""
    full = (waves * places // blocks for waves in (1, 2))
    return sorted({*_PARTS, *(parts for parts in full if 1 < parts <= _MOST_PARTS)})


def _tiles(product: Product, residue: Residue, tile: Tile) -> int:
    groups = product.roles.problem.groups
    return -(-product.rows(residue) // tile.bm) * -(-product.columns(residue) // tile.bn) * groups


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    product = product_of(op)
    roles = product.roles
    steps = Steps(op, device)
    gathered, plain = gathered_and_plain(roles)
    compute = COMPUTE_TYPE[roles.op.compute_type]
    staged = _staged(gathered.data_type, plain.data_type, compute)
    thrifty = _is_thrifty(knobs)
    x_space = roles.space(gathered)
    product, quads = _counted(op, product, device, thrifty)
    shape = choose(product, device, roles.op.compute_type, knobs)
    if quads:
        if not _is_quads(x_space, gathered, 2):
            gathered = steps.relaid(gathered, _channels_last(gathered, roles))
        if not _is_quads(roles.space(plain), plain, _summed_axis(roles)):
            plain = steps.relaid(plain, _summed_first(product, plain))
    elif not thrifty and _turns(product, shape, plain, device):
        plain = steps.relaid(plain, _outer_first(product, plain))
    elif not is_addressable(plain):
        plain = steps.relaid(plain)
    has_prologue = bool(op.prologue) or not is_addressable(gathered)
    if not has_prologue and not quads and not thrifty and _pads(product, shape, gathered, device):
        product, gathered, x_space = _padded(steps, product, gathered, x_space, staged)
    plan = _Plan(op, product, shape, gathered, x_space, plain, staged, compute, has_prologue, quads)
    for first in range(0, len(product.residues), _RESIDUES):
        _add(steps, plan, product.residues[first : first + _RESIDUES])
    return steps.kernel(plan.name)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is decided before kernels are written."""

    op: FusedOp
    product: Product
    shape: Shape
    gathered: TensorSpec
    gathered_space: Space
    plain: TensorSpec
    staged: str
    compute: str
    has_prologue: bool
    quads: bool  # channels are counted in fours

    @property
    def roles(self) -> Roles:
        return self.product.roles

    @property
    def plain_space(self) -> Space:
        # A copy has a uid of its own: coordinates are those of what was copied.
        return self.roles.space(gathered_and_plain(self.roles)[1])

    @property
    def plain_strides(self) -> tuple[int, ...]:
        return self.plain_space.strides(self.plain)

    @property
    def name(self) -> str:
        split = "_split" if self.shape.parts > 1 else ""
        return f"conv_{self.roles.direction}__simt_{self.shape.tile.name}{split}__{self.op.name}"


def _add(steps: Steps, plan: _Plan, residues: Sequence[Residue]) -> None:
    """The launches for some of the residues."""
    op, product, roles, tile = plan.op, plan.product, plan.product.roles, plan.shape.tile
    p, out_space = roles.problem, roles.space(roles.output)
    parameters = Parameters(steps.places)

    unit = _QUAD if plan.quads else 1  # elements that the kernel takes for one

    # Vector accesses run along the axis that is contiguous in both memory and the product.
    def vector(space: Space, spec: TensorSpec, axis: int) -> int:
        limit = min(_VECTOR_BYTES, 4 * unit * ELEMENTS[spec.data_type].bytes)
        return max(1, width_for(space, [spec], axis, limit) // unit)

    gathered, x_space, plain = plan.gathered, plan.gathered_space, plan.plain
    program = None
    channels = 2  # the axis
    gathered_width = vector(x_space, gathered, channels) if is_addressable(gathered) else 1
    if plan.has_prologue:
        gathered_width = min(4, width_for(x_space, fused_inputs(op.prologue), channels)) if op.prologue else 1
        program = Program(op, parameters, x_space, "x", width=gathered_width, vector_axis=channels)
        program.apply(op.prologue)
        program.result("value", gathered, plan.staged)
    # w runs along c for fprop (with k), along c for dgrad (outer); dy runs along k (outer) for wgrad.
    plain_width, plain_along_k = vector(plan.plain_space, plain, 2), roles.direction == "fprop"
    if plan.quads:
        plain_width, plain_along_k = vector(plan.plain_space, plain, _summed_axis(roles)), True
    elif plain_width == 1 and not product.is_wgrad:  # w along k
        plain_width, plain_along_k = vector(plan.plain_space, plain, 1), roles.direction == "dgrad"
    if plain_width == 1 and not plan.quads:
        plain_along_k = _is_contiguous(plan.plain_strides, product)
    gathered_along_k = not product.is_wgrad if gathered_width > 1 or plan.quads else product.is_wgrad

    columns_axis = 2 if (product.is_wgrad or not product.swapped) else 5
    kernel_width = min(width_for(out_space, steps.epilogue_tensors(), columns_axis), 8, tile.bn)
    if columns_axis == 5 and product.pixel_pitch[-1] > 1:
        kernel_width = 1
    body = Program(op, parameters, out_space, "t", width=kernel_width, vector_axis=columns_axis)
    steps.finish(body, "acc", plan.compute)

    if plan.has_prologue:
        parameters.nothing("gathered", f"const {STORAGE[gathered.data_type]}")
    else:
        parameters.tensor("gathered", gathered)
    parameters.tensor("plain", plain)
    gs, ps = (tuple(-(-s // unit) for s in strides) for strides in (x_space.strides(gathered), plan.plain_strides))
    for name, value in zip(("n", "g", "c"), gs[:3], strict=True):
        parameters.integer(f"gathered_{name}", value)
    if product.is_wgrad:
        lane, group, channel = ps[:3]
    else:
        group = ps[0]
        channel, lane = (ps[1], ps[2]) if roles.direction == "fprop" else (ps[2], ps[1])
    for name, value in {"plain_g": group, "plain_channel": channel, "plain_lane": lane, "groups": p.groups}.items():
        parameters.integer(name, value)
    for name, values in {
        "gathered_spatial": gs[3:],
        "plain_spatial": tuple(s * pitch for s, pitch in zip(ps[3:], product.tap_pitch, strict=True)),
        "pixel_step": product.pixel_step, "tap_step": product.tap_step, "image_size": product.image,
        "pixel_pitch": product.pixel_pitch,
    }.items():  # fmt: skip
        parameters.integers(name, values)
    split = _describe(parameters, product, residues, plan.shape, ps[3:])
    results = [product.rows(r) * product.columns(r) for r in residues]
    if split > 1:
        size = 8 if plan.compute in ("double", "long long") else 4
        parameters.scratch("partial", plan.compute, steps.allocate(split * p.groups * sum(results) * size))
    else:
        parameters.nothing("partial", plan.compute)

    functions = [body.function("epilogue", f"const {plan.compute} (&acc)[{kernel_width}]")]
    if program is not None:
        functions.append(program.function("prologue", f"{plan.staged} (&value)[{gathered_width}]"))
    else:
        functions.append(
            f"template <int V> __device__ void prologue(const Params&, const int (&)[6], {plan.staged} (&)[V]) {{}}\n"
        )
    a_width, b_width = (plain_width, gathered_width) if product.swapped else (gathered_width, plain_width)
    a_along, b_along = (plain_along_k, gathered_along_k) if product.swapped else (gathered_along_k, plain_along_k)
    packs = -(-p.groups * max(results) // kernel_width)
    sum_threads = 32 if packs < 2 * tile.threads * steps.device.sm_count else tile.threads  # few go to every SM
    outer = tile.bn if product.swapped else tile.bm
    in_line = not gathered_along_k and _has_one_tap(product, tile) and tile.threads % (outer // gathered_width) == 0
    text = kernel_text(
        plan.name,
        ["implicit_gemm.cu", *(["sum_splits.cu"] if split > 1 else [])],
        parameters=parameters.text,
        functions=functions,
        constants={
            "BLOCKS": _resident(tile, outer, gathered_width, in_line),
            "BM": tile.bm, "BN": tile.bn, "BK": tile.bk, "TM": tile.tm, "TN": tile.tn, "THREADS": tile.threads,
            "PAD": 4 if tile.bm > 8 else 0,
            "SPATIAL": p.spatial,
            "ONE_TAP": _has_one_tap(product, tile),
            "RESIDUES": min(len(product.residues), _RESIDUES),
            "CHECKED": any(before or after for before, after in product.margins),
            "K_KIND": _PIXEL if product.is_wgrad else _FILTER,
            "A_IS_PLAIN": product.swapped,
            "VECTOR_A": a_width, "VECTOR_B": b_width, "ALONG_K_A": a_along, "ALONG_K_B": b_along,
            "PROLOGUE": plan.has_prologue,
            "QUADS": plan.quads,
            "SPLIT": split > 1, **({"SUM_THREADS": sum_threads} if split > 1 else {}),
            "WIDTH": kernel_width,
            "Offset": "int" if max(gathered.span, plain.span) < 2**31 else "long long",
            "Distance": "unsigned int" if max(t.span * ELEMENTS[t.data_type].bytes for t in (gathered, plain)) < 2**32
            else "long long",
            "Gathered": "int32_t" if plan.quads else STORAGE[gathered.data_type],
            "Plain": "int32_t" if plan.quads else STORAGE[plain.data_type],
            "A_IS_SIGNED": (plain if product.swapped else gathered).data_type is DataType.INT8,
            "B_IS_SIGNED": (gathered if product.swapped else plain).data_type is DataType.INT8,
            "Staged": plan.staged,
            "Accumulator": plan.compute,
        },
    )  # fmt: skip
    packed = parameters.pack()
    tiles = max(_tiles(product, residue, tile) for residue in residues)
    steps.add(Launch(text, "implicit_gemm", (tiles, split, len(residues)), tile.threads, packed))
    if split > 1:
        count = min(-(-packs // sum_threads), 16 * steps.device.sm_count)
        steps.add(Launch(text, "sum_splits", (count, 1, len(residues)), sum_threads, packed))


def _is_thrifty(knobs: Knobs) -> bool:
    """What the engine is asked for where workspace is limited."""
    return knobs[_SPLIT.type] == 1


def _counted(op: FusedOp, product: Product, device: DeviceSpec, thrifty: bool) -> tuple[Product, bool]:
    """The product with channels counted in fours where the device multiplies and adds four bytes at once.

    Bytes are read as words: both operands' channels have to be neighbours; what is laid out otherwise is copied.
    """
    roles = product.roles
    gathered, plain = gathered_and_plain(roles)
    fits = (
        not product.is_wgrad
        and not op.prologue
        and {gathered.data_type, plain.data_type} <= {DataType.INT8, DataType.UINT8}
        and COMPUTE_TYPE[roles.op.compute_type] == "int"
        and product.channels % _QUAD == 0
    )
    if not fits:
        return product, False
    copied = 0 if _is_quads(roles.space(gathered), gathered, 2) else gathered.bytes
    copied += 0 if _is_quads(roles.space(plain), plain, _summed_axis(roles)) else plain.bytes
    if copied:
        spared = (1 - 1 / _QUAD) * 2.0 * roles.problem.macs / device.rate(DataType.INT32)
        if thrifty or _copying(copied, device) > spared:
            return product, False
    return replace(product, channels=product.channels // _QUAD), True


def _copying(size: int, device: DeviceSpec) -> float:
    """Seconds; a copy that turns axes reaches half of the bandwidth."""
    return device.launch + 4 * size / device.bandwidth


def _is_quads(space: Space, spec: TensorSpec, axis: int) -> bool:
    return is_addressable(spec) and width_for(space, [spec], axis, _QUAD) == _QUAD


def _summed_axis(roles: Roles) -> int:
    """Of the filter's coordinates."""
    return 2 if roles.direction == "fprop" else 1


def _has_one_tap(product: Product, tile: Tile) -> bool:
    return not product.is_wgrad and product.channels % tile.bk == 0


def _describe(
    parameters: Parameters, product: Product, residues: Sequence[Residue], shape: Shape, plain_spatial: tuple[int, ...]
) -> int:
    """The fields that differ from residue to residue, one behind the other; returns the parts of the sum."""
    bk, groups = shape.tile.bk, product.roles.problem.groups
    fields: dict[str, list[int]] = {}
    pieces = []
    for residue in residues:
        pixel_digits, tap_digits = _digits(product, residue)
        depth = product.depth(residue)
        piece = -(-depth // shape.parts)
        piece = max(1, -(-piece // bk)) * bk
        pieces.append(-(-depth // piece))
        rows, columns = product.rows(residue), product.columns(residue)
        for name, values in {
            "pixel_digits": pixel_digits,
            "tap_digits": tap_digits,
            "depth_step": _in_digits(bk, pixel_digits if product.is_wgrad else tap_digits),
            "pixel_start": residue.start,
            "first_pixel": residue.first_pixel,
            "plain_start": (sum(f * s for f, s in zip(residue.first_tap, plain_spatial, strict=True)),),
            "rows": (rows,),
            "columns": (columns,),
            "depth": (depth,),
            "depth_per_block": (piece,),
            "results": (groups * rows * columns,),
        }.items():
            fields.setdefault(name, []).extend(values)
    split = max(1, *pieces)
    fields["partial_start"] = [split * sum(fields["results"][:i]) for i in range(len(residues))]
    missing = min(len(product.residues), _RESIDUES) - len(residues)  # of the last launch: the text is the same for all
    for name, found in fields.items():
        parameters.integers(name, found + [0] * (missing * (len(found) // len(residues))))
    parameters.integer("splits", split)
    return split


def _resident(tile: Tile, outer: int, width: int, in_line: bool) -> int:
    """Blocks that share an SM: one fewer where a thread keeps the places of many single elements."""
    places = 1 if in_line else outer * tile.bk // (width * tile.threads)
    return tile.resident - (places >= 8 and tile.resident > 2)


def _digits(product: Product, residue: Residue) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes of the coordinates of a pixel (position, n) and of a filter element (channel, tap), fastest first.

    The slowest digit has no size: it takes what is left.
    """
    pixels, taps = residue.pixels, tuple(max(1, tap) for tap in residue.taps)
    return pixels[::-1], (product.channels, taps[2], taps[1])


def _in_digits(value: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    digits = []
    for size in sizes:
        value, digit = divmod(value, size)
        digits.append(digit)
    return (*digits, value)


def _is_contiguous(strides: tuple[int, ...], product: Product) -> bool:
    """True when single elements of the plain operand are neighbours along k rather than along the outer index."""
    if product.is_wgrad:
        return min(s for s in (*strides[3:], 2**62) if s) <= (strides[2] or 2**62)
    outer, summed = (strides[1], strides[2]) if product.roles.direction == "fprop" else (strides[2], strides[1])
    return (summed or 2**62) <= (outer or 2**62)


def _pads(product: Product, shape: Shape, gathered: TensorSpec, device: DeviceSpec) -> bool:
    """True where a padded copy costs little and saves the bounds of every element: taps change within a tile of k."""
    margins = product.margins
    if _has_one_tap(product, shape.tile) or not any(b or a for b, a in margins):
        return False
    grown = prod((b + a + n) / n for (b, a), n in zip(margins, gathered.dims[-len(margins) :], strict=True))
    copying = device.launch + gathered.bytes * (1 + grown) / device.bandwidth
    return copying < _WORTH_COPYING * shape.seconds


def _turns(product: Product, shape: Shape, filters: TensorSpec, device: DeviceSpec) -> bool:
    """True where filters are worth a copy whose channels lie next to each other: scattered ones are read by single
    elements, each from a line of its own.
    """
    if product.is_wgrad or (is_addressable(filters) and 1 in product.roles.space(filters).strides(filters)[1:3]):
        return False
    return _copying(filters.bytes, device) < _WORTH_COPYING * shape.seconds


def _filter_axes(product: Product, filters: TensorSpec) -> tuple[int, int, list[int], list[int]]:
    """The axes of the outer channel, the summed one, the taps (fastest first) and the groups."""
    rank = len(filters.extents)
    explicit = rank == product.roles.problem.spatial + 3
    outer, summed = (0, 1) if product.roles.direction == "fprop" else (1, 0)
    return outer + explicit, summed + explicit, [*range(2 + explicit, rank)][::-1], [0] * explicit


def _outer_first(product: Product, filters: TensorSpec) -> tuple[int, ...]:
    """Strides with the outer channels contiguous, then the summed ones."""
    outer, summed, taps, groups = _filter_axes(product, filters)
    return _strides_in(filters.extents, [outer, summed, *taps, *groups])


def _summed_first(product: Product, filters: TensorSpec) -> tuple[int, ...]:
    """Strides with the summed channels contiguous."""
    outer, summed, taps, groups = _filter_axes(product, filters)
    return _strides_in(filters.extents, [summed, *taps, outer, *groups])


def _channels_last(image: TensorSpec, roles: Roles) -> tuple[int, ...]:
    rank, explicit = len(image.extents), len(image.extents) == roles.problem.spatial + 3
    return _strides_in(image.extents, [1 + explicit, *[1] * explicit, *range(rank - 1, 1 + explicit, -1), 0])


def _strides_in(extents: tuple[int, ...], order: Sequence[int]) -> tuple[int, ...]:
    """Packed strides with the axes in this order, the fastest first."""
    strides, size = [0] * len(extents), 1
    for axis in order:
        strides[axis] = size
        size *= extents[axis]
    return tuple(strides)


def _padded(
    steps: Steps, product: Product, gathered: TensorSpec, space: Space, staged: str
) -> tuple[Product, TensorSpec, Space]:
    """The products in a copy with zeros around the image, the copy and its coordinates."""
    margins = product.margins
    outer = (0,) * (gathered.rank - len(margins))
    before, after = ((*outer, *(m[i] for m in margins)) for i in (0, 1))
    wide = _AS_STAGED[staged]  # converted once, not for every tap that reads it
    copy = add_padded_copy(steps, gathered, before, after, wide, staged)
    first = SPATIAL - len(margins)
    sizes = copy.dims[-len(margins) :]
    axes = tuple(
        replace(axis, size=sizes[j - 3 - first]) if j >= 3 + first else axis for j, axis in enumerate(space.axes)
    )
    moved = product.moved(padded(tuple(b for b, _ in margins), 0), padded(sizes, 1))
    return moved, copy, Space(copy.extents, axes)


def _reach(task: Task) -> int:
    """The largest coordinate that the kernel computes."""
    op = task.op.anchor
    assert isinstance(op, ConvolutionOperation)
    p = op.problem
    axes = zip(p.input, p.output, p.filter, p.dilation, p.stride, p.pre_padding, p.post_padding, strict=True)
    return max(int(i + o * s + f * d + pre + post) for i, o, f, d, s, pre, post in axes)


def _cost(task: Task, knobs: Knobs) -> Cost:
    product, _ = _counted(task.op, product_of(task.op), task.device, _is_thrifty(knobs))
    shape = choose(product, task.device, task.op.main.compute_type, knobs)
    gathered, plain = gathered_and_plain(product.roles)
    rows = sum(-(-product.rows(r) // shape.tile.bm) for r in product.residues if all(r.taps))
    columns = max(-(-product.columns(r) // shape.tile.bn) for r in product.residues)
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

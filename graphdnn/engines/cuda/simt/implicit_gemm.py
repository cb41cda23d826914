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
from typing import NamedTuple

from graphdnn.device import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.generator.convolution_needs import coordinates_need
from graphdnn.engines.cuda.generator.convolution_roles import CHANNELS, Roles
from graphdnn.engines.cuda.generator.cost import device_cost, least_seconds, other_seconds, where_idle
from graphdnn.engines.cuda.generator.engine import cuda_engine
from graphdnn.engines.cuda.generator.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.generator.packs import width_for
from graphdnn.engines.cuda.generator.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.generator.program import Program
from graphdnn.engines.cuda.generator.source import kernel_text
from graphdnn.engines.cuda.generator.space import Space, is_addressable
from graphdnn.engines.cuda.generator.steps import Steps, fused_inputs
from graphdnn.engines.cuda.simt.implicit_copies import (
    channels_last,
    copying_seconds,
    is_worth_padding,
    is_worth_turning,
    outer_first,
    padded_product,
    summed_first,
)
from graphdnn.engines.cuda.simt.implicit_fields import RESIDUES, are_short, describe
from graphdnn.engines.cuda.simt.implicit_product import Product, Residue, gathered_and_plain, product_of
from graphdnn.engines.cuda.simt.implicit_tiles import (
    LARGEST_SHARE,
    SPLIT,
    TILE,
    Shape,
    Tile,
    blocks_of,
    choose,
    has_one_tap,
)
from graphdnn.engines.engine import Cost, Knobs, Task, needs_rule
from graphdnn.engines.sum_error import ROUNDED
from graphdnn.enums import DataType
from graphdnn.fusion.fused import FusedOp
from graphdnn.tensors import TensorSpec

_PIXEL, _FILTER = 0, 2  # as in the kernel's text
_VECTOR_BYTES = 16
_QUAD = 4  # bytes that are multiplied and added at once


def _staged(gathered: DataType, plain: DataType, compute: str) -> str:
    """What the shared tiles hold: the arithmetic's type, or 32-bit integers where both operands fit."""
    wide = any(t is DataType.INT64 for t in (gathered, plain))
    return "int" if compute == "long long" and not wide else compute


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
            gathered = steps.relaid(gathered, channels_last(gathered, roles))
        if not _is_quads(roles.space(plain), plain, _summed_axis(roles)):
            plain = steps.relaid(plain, summed_first(product, plain))
    elif not thrifty and is_worth_turning(product, shape, plain, device):
        plain = steps.relaid(plain, outer_first(product, plain))
    elif not is_addressable(plain):
        plain = steps.relaid(plain)
    has_prologue = bool(op.prologue) or not is_addressable(gathered)
    if not has_prologue and not quads and not thrifty and is_worth_padding(product, shape, gathered, device):
        product, gathered, x_space = padded_product(steps, product, gathered, x_space, staged)
    plan = _Plan(op, product, shape, gathered, x_space, plain, staged, compute, has_prologue, quads)
    firsts = range(0, len(product.residues), RESIDUES)
    parts = [_add(steps, plan, product.residues[first : first + RESIDUES]) for first in firsts]
    return steps.kernel(plan.name(max(parts)))


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
    def unit(self) -> int:
        """Elements that the kernel takes for one."""
        return _QUAD if self.quads else 1

    def name(self, parts: int) -> str:
        """Of sums in so many parts, which short ones have fewer of than were chosen."""
        split = "_split" if parts > 1 else ""
        return f"conv_{self.roles.direction}__simt_{self.shape.tile.name}{split}__{self.op.name}"


class _Access(NamedTuple):
    """How a thread reads an operand."""

    width: int  # elements at once, along the axis that is contiguous in both memory and the product
    along_k: bool  # neighbouring threads, along what is summed over


def _width(plan: _Plan, space: Space, spec: TensorSpec, axis: int) -> int:
    limit = min(_VECTOR_BYTES, 4 * plan.unit * ELEMENTS[spec.data_type].bytes)
    return max(1, width_for(space, [spec], axis, limit) // plan.unit)


def _gathered_access(plan: _Plan) -> _Access:
    space, prologue, is_wgrad = plan.gathered_space, plan.op.prologue, plan.product.is_wgrad
    if plan.has_prologue:
        width = min(4, width_for(space, fused_inputs(prologue), CHANNELS)) if prologue else 1
    else:
        width = _width(plan, space, plan.gathered, CHANNELS) if is_addressable(plan.gathered) else 1
    return _Access(width, not is_wgrad if width > 1 or plan.quads else is_wgrad)


def _plain_access(plan: _Plan) -> _Access:
    """w runs along c for fprop (with k), along c for dgrad (outer); dy runs along k (outer) for wgrad."""
    direction = plan.roles.direction
    if plan.quads:
        return _Access(_width(plan, plan.plain_space, plan.plain, _summed_axis(plan.roles)), True)
    width, along_k = _width(plan, plan.plain_space, plan.plain, CHANNELS), direction == "fprop"
    if width == 1 and direction != "wgrad":  # w along k
        width, along_k = _width(plan, plan.plain_space, plan.plain, 1), direction == "dgrad"
    return _Access(width, along_k if width > 1 else _is_contiguous(plan.plain_strides, plan.product))


def _add(steps: Steps, plan: _Plan, residues: Sequence[Residue]) -> int:
    """The launches for some of the residues. Returns the parts of each sum."""
    op, product, roles, tile = plan.op, plan.product, plan.product.roles, plan.shape.tile
    p, out_space = roles.problem, roles.space(roles.output)
    parameters = Parameters(steps.places)

    gathered, x_space, plain = plan.gathered, plan.gathered_space, plan.plain
    of_gathered, of_plain = _gathered_access(plan), _plain_access(plan)
    program = None
    if plan.has_prologue:
        program = Program(op, parameters, x_space, "x", width=of_gathered.width, vector_axis=CHANNELS)
        program.apply(op.prologue)
        program.result("value", gathered, plan.staged)

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
    gs, ps = (tuple(-(-s // plan.unit) for s in strides) for strides in (x_space.strides(gathered), plan.plain_strides))
    split = describe(parameters, product, residues, gs, ps, tile.bk, plan.shape.parts)
    results = [product.rows(r) * product.columns(r) for r in residues]
    if split > 1:
        size = 8 if plan.compute in ("double", "long long") else 4
        parameters.scratch("partial", plan.compute, steps.allocate(split * p.groups * sum(results) * size))
    else:
        parameters.nothing("partial", plan.compute)

    functions = [body.function("epilogue", f"const {plan.compute} (&acc)[{kernel_width}]")]
    if program is not None:
        functions.append(program.function("prologue", f"{plan.staged} (&value)[{of_gathered.width}]"))
    else:
        functions.append(
            f"template <int V> __device__ void prologue(const Params&, const int (&)[6], {plan.staged} (&)[V]) {{}}\n"
        )
    a, b = (of_plain, of_gathered) if product.swapped else (of_gathered, of_plain)
    packs = -(-p.groups * max(results) // kernel_width)
    sum_threads = 32 if packs < 2 * tile.threads * steps.device.sm_count else tile.threads  # few go to every SM
    outer = tile.bn if product.swapped else tile.bm
    is_line = has_one_tap(product, tile) and tile.threads % (outer // of_gathered.width) == 0
    in_line = is_line and not of_gathered.along_k
    text = kernel_text(
        plan.name(split),
        [
            *("next_launch.cuh", "implicit_coordinates.cuh", "load_if.cuh", "tile_place.cuh", "tile_results.cuh"),
            "implicit_gemm.cu",
            *(["sum_splits.cu"] if split > 1 else []),
        ],
        parameters=parameters.text,
        functions=functions,
        constants={
            "BLOCKS": _resident(tile, outer, of_gathered.width, in_line),
            "BM": tile.bm, "BN": tile.bn, "BK": tile.bk, "TM": tile.tm, "TN": tile.tn, "THREADS": tile.threads,
            "PAD": 4 if tile.bm > 8 else 0,
            "SPATIAL": p.spatial,
            "ONE_TAP": has_one_tap(product, tile),
            "ARE_SHORT": split == 1 and are_short(product, 2**16),
            "RESIDUES": min(len(product.residues), RESIDUES),
            "CHECKED": any(before or after for before, after in product.margins),
            "K_KIND": _PIXEL if product.is_wgrad else _FILTER,
            "A_IS_PLAIN": product.swapped,
            "VECTOR_A": a.width, "VECTOR_B": b.width, "ALONG_K_A": a.along_k, "ALONG_K_B": b.along_k,
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
    tiles = max(blocks_of(product, residue, tile) for residue in residues)
    steps.add_early(Launch(text, "implicit_gemm", (tiles, split, len(residues)), tile.threads, packed))
    if split > 1:
        count = min(-(-packs // sum_threads), 16 * steps.device.sm_count)
        steps.add(Launch(text, "sum_splits", (count, 1, len(residues)), sum_threads, packed))
    return split


def _is_thrifty(knobs: Knobs) -> bool:
    """What the engine is asked for where workspace is limited."""
    return knobs[SPLIT.type] == 1


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
        if thrifty or copying_seconds(copied, device) > spared:
            return product, False
    return replace(product, channels=product.channels // _QUAD), True


def _is_quads(space: Space, spec: TensorSpec, axis: int) -> bool:
    return is_addressable(spec) and width_for(space, [spec], axis, _QUAD) == _QUAD


def _summed_axis(roles: Roles) -> int:
    """Of the filter's coordinates."""
    return 2 if roles.direction == "fprop" else 1


def _resident(tile: Tile, outer: int, width: int, in_line: bool) -> int:
    """Blocks that share an SM: one fewer where a thread keeps the places of many single elements."""
    places = 1 if in_line else outer * tile.bk // (width * tile.threads)
    return tile.resident - (places >= 8 and tile.resident > 2)


def _is_contiguous(strides: tuple[int, ...], product: Product) -> bool:
    """True when single elements of the plain operand are neighbours along k rather than along the outer index."""
    if product.is_wgrad:
        return min(s for s in (*strides[3:], 2**62) if s) <= (strides[2] or 2**62)
    outer, summed = (strides[1], strides[2]) if product.roles.direction == "fprop" else (strides[2], strides[1])
    return (summed or 2**62) <= (outer or 2**62)


_IDLE = 0.15  # of a launch, that blocks do not take which leave nearly all multiprocessors idle


def _cost(task: Task, knobs: Knobs) -> Cost:
    product, _ = _counted(task.op, product_of(task.op), task.device, _is_thrifty(knobs))
    shape = choose(product, task.device, task.op.main.compute_type, knobs)
    gathered, plain = gathered_and_plain(product.roles)
    rows = sum(-(-product.rows(r) // shape.tile.bm) for r in product.residues if all(r.taps))
    columns = max(-(-product.columns(r) // shape.tile.bn) for r in product.residues)
    rereads = (max(0, rows - 1) * plain.bytes + (columns - 1) * gathered.bytes) / 8  # most of them hit the cache
    cost = device_cost(task, shape.seconds + other_seconds(task), rereads)
    blocks = rows * columns * product.roles.problem.groups * shape.parts
    return where_idle(cost, task.device, blocks, _IDLE)


def _least(task: Task) -> float:
    compute = task.op.main.compute_type
    at_once = _QUAD if ELEMENTS[compute].kind == "int" else 1
    least = least_seconds(task, 1, at_once * task.device.rate(compute) * LARGEST_SHARE)
    return least - _IDLE * task.device.launch


ENGINE = cuda_engine(
    id=10,
    name="cuda_implicit_gemm",
    summary="every convolution, type and layout on the ordinary units; integers exact",
    needs=(
        needs_rule("cuda_implicit_gemm.operation", "conv"),
        coordinates_need("cuda_implicit_gemm"),
    ),
    cost=_cost,
    least=_least,
    generate=generate,
    knobs=(TILE, SPLIT),
    frugal={SPLIT.type: 1},
    sum_error=ROUNDED,
    is_general=True,
)

"""Engines ``cuda_hopper_float_wgrad``, its ``_tf32``, ``cuda_hopper_integer_wgrad``: filter gradients in 16-bit planes.

Tensor cores read operands across the axis that is summed over only where they have 16 bits, and both of a filter
gradient's lie so. Both images are split into planes by launches of their own (wgrad_schemes.py); their products
are those of gemm.py, several for each step (hopper_planes_wgrad.cu).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from math import prod
from typing import Any, NamedTuple

from graphdnn.checks import Equals
from graphdnn.device import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.generator.convolution_needs import is_convolution, problem_of, prologue_need
from graphdnn.engines.cuda.generator.convolution_roles import CHANNELS, SPATIAL
from graphdnn.engines.cuda.generator.cost import device_cost, other_seconds
from graphdnn.engines.cuda.generator.ending import ending_of
from graphdnn.engines.cuda.generator.engine import cuda_engine
from graphdnn.engines.cuda.generator.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.generator.parameters import COMPUTE_TYPE, Parameters
from graphdnn.engines.cuda.generator.source import kernel_text
from graphdnn.engines.cuda.generator.steps import Steps
from graphdnn.engines.cuda.hopper.convolution_sizes import sizes_of
from graphdnn.engines.cuda.hopper.fields import Layout, describe_work
from graphdnn.engines.cuda.hopper.image_planes import ImagePlanes
from graphdnn.engines.cuda.hopper.machine import Machine
from graphdnn.engines.cuda.hopper.maps import Walk, walk_of
from graphdnn.engines.cuda.hopper.needs import capability_need, is_wgrad, one_walk_needs, types_and_sum, wgrad_need
from graphdnn.engines.cuda.hopper.operands import operands
from graphdnn.engines.cuda.hopper.product import product_text
from graphdnn.engines.cuda.hopper.product_clocks import summing_seconds
from graphdnn.engines.cuda.hopper.result import result_space
from graphdnn.engines.cuda.hopper.sizes import Sizes
from graphdnn.engines.cuda.hopper.sum import PARTS_FILES, Adding
from graphdnn.engines.cuda.hopper.tile import PANEL, ROW
from graphdnn.engines.cuda.hopper.wgrad_schemes import Floats, Integers, Scheme, integers_of
from graphdnn.engines.cuda.simt.implicit_copies import copying_seconds
from graphdnn.engines.cuda.simt.implicit_product import gathered_and_plain, product_of
from graphdnn.engines.engine import Cost, Engine, Knob, Knobs, Task, kind_need, need, needs_rule
from graphdnn.engines.sum_error import SumError
from graphdnn.enums import DataType, KnobType, LayoutType, NumericalNote
from graphdnn.fusion.fused import FusedOp
from graphdnn.multiprocessor import RESERVED
from graphdnn.rules import Constraint

_NEIGHBOURS = 8  # columns of a thread that follow each other
_KEPT = RESERVED + 256  # bytes of shared memory
_MOST_STAGES = 8
_GROUP = 8  # channels of a group are a multiple: 16 bytes of a plane


@dataclass(frozen=True, slots=True)
class Tile:
    """A block's tile of the product: 64 rows for each warpgroup that multiplies."""

    bm: int
    bn: int

    @property
    def consumers(self) -> int:
        return self.bm // 64

    @property
    def registers(self) -> tuple[int, int]:
        """Of a thread that multiplies and of one that copies."""
        return {1: (240, 56), 2: (232, 40)}[self.consumers]

    def holds(self, scheme: Scheme) -> bool:
        """Whether its sums fit into registers."""
        return scheme.sets * self.bn // 2 <= 192

    def stage_bytes(self, planes: int, deep: int) -> int:
        return planes * (self.bm + self.bn) // PANEL * deep * ROW

    def stages(self, planes: int, deep: int, shared_memory: int) -> int:
        return min(_MOST_STAGES, (shared_memory - _KEPT) // (self.stage_bytes(planes, deep) + 16))

    def deep(self, planes: int, shared_memory: int) -> int:
        """Pixels of a stage: fewer where two stages would have to do."""
        return PANEL if self.stages(planes, PANEL, shared_memory) > 2 else PANEL // 2

    @property
    def name(self) -> str:
        return f"{self.bm}x{self.bn}"


TILES = tuple(Tile(bm, bn) for bm in (128, 64) for bn in (192, 128, 64))
TILE = Knob(KnobType.TILE_SIZE, 0, len(TILES), 1, 0, "0: chosen by the shape; else the number of a tile, if it serves")
PARTS = Knob(KnobType.SPLIT_K, 0, 128, 1, 0, "parts of the sum, computed side by side; 0: chosen by the shape")


SchemeOf = Callable[[FusedOp], Scheme]


class Choice(NamedTuple):
    tile: Tile
    deep: int
    stages: int
    parts: int
    seconds: float


def choose(scheme: Scheme, sizes: Sizes, device: DeviceSpec, knobs: Knobs) -> Choice:
    """The fastest of the allowed tiles and parts. What does not fit gives way to what is chosen by the shape."""
    machine = Machine.of(device)
    asked = knobs[TILE.type], knobs[PARTS.type]
    found = _fastest(scheme, sizes, machine, *asked) or _fastest(scheme, sizes, machine, 0, asked[1])
    assert found is not None, "the smallest tile fits every device that has the instructions"
    return found


@lru_cache(maxsize=256)
def _fastest(scheme: Scheme, sizes: Sizes, machine: Machine, number: int, parts: int) -> Choice | None:
    found = []
    least = (
        -(-sizes.products[0][1] * PANEL // scheme.longest) if scheme.longest else 1
    )  # so that no part's sums overflow
    for tile in (TILES[number - 1],) if number else TILES:
        deep = tile.deep(scheme.planes, machine.shared_memory)
        stages = tile.stages(scheme.planes, deep, machine.shared_memory)
        if tile.holds(scheme):
            for count in sorted({max(least, n) for n in ((parts,) if parts else _parts(sizes, tile, machine))}):
                found.append(Choice(tile, deep, stages, count, _seconds(scheme, sizes, tile, count, machine)))
    return min(found, key=lambda choice: choice.seconds, default=None)


def _tiles(sizes: Sizes, tile: Tile) -> int:
    ((rows, _),) = sizes.products
    return -(-rows // tile.bm) * -(-sizes.columns // tile.bn) * sizes.groups


def _parts(sizes: Sizes, tile: Tile, machine: Machine) -> Iterator[int]:
    yield 1
    tiles, depth = _tiles(sizes, tile), sizes.products[0][1]
    for waves in (1, 2, 3):
        parts = min(waves * machine.sms // tiles, depth, PARTS.maximum)
        if parts > 1 and depth >= 2 * parts:
            yield parts


def _seconds(scheme: Scheme, sizes: Sizes, tile: Tile, parts: int, machine: Machine) -> float:
    """As planes_tiles.py counts; 4 % from what tiles of VGG's layer take on an H200, 15 % with three planes."""
    multiplying = scheme.pace * scheme.products * 4 * tile.bn / 2 * tile.consumers
    step = max(multiplying, tile.stage_bytes(scheme.planes, PANEL) / 60) + 20
    tiles, depth = _tiles(sizes, tile), sizes.products[0][1]
    rounds = -(-tiles * parts // machine.sms)
    wide = ELEMENTS[scheme.compute].bytes
    leaving = tile.bm * tile.bn * (wide if parts > 1 else sizes.result_bytes) / 17
    clocks = rounds * max(-(-depth // parts) * step + 1200 + leaving / 3, leaving) + 3000
    seconds = clocks / machine.clock
    if parts > 1:
        seconds += summing_seconds(float(wide) * tiles * tile.bm * tile.bn * parts, machine.launch, machine.bandwidth)
    return seconds


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs, scheme_of: SchemeOf) -> DeviceKernel:
    product, scheme = product_of(op), scheme_of(op)
    planes, compute = scheme.planes, COMPUTE_TYPE[scheme.compute]
    roles, p = product.roles, product.roles.problem
    sizes = sizes_of(op)
    choice = choose(scheme, sizes, device, knobs)
    tile, layout = choice.tile, Layout.of(sizes, choice.tile.bm, choice.tile.bn)
    ((rows, _),) = sizes.products
    sizes = sizes._replace(products=((rows, -(-product.pixel_count(product.residues[0]) // choice.deep)),))
    is_split = choice.parts > 1
    steps = Steps(op, device)
    image, gradient = (ImagePlanes(operand.prepared(steps), planes) for operand in operands(roles))
    of_image, of_gradient = image.split(steps), gradient.split(steps)

    parameters = Parameters(steps.places)
    (residue,) = product.residues
    walk, still = walk_of(product, residue), Walk(*((0,) * SPATIAL,) * 4)
    parameters.maps(
        "gathered", [(one, image.map(one, p.spatial, walk, product.pixel_step, choice.deep)) for one in of_image]
    )
    parameters.maps(
        "plain", [(one, gradient.map(one, p.spatial, still, (1,) * SPATIAL, choice.deep)) for one in of_gradient]
    )
    ending = ending_of(steps, parameters, (result_space,), CHANNELS, _NEIGHBOURS, compute)
    blocks = -(-product.channels // PANEL)
    describe_work(parameters, product, sizes, layout, [walk], blocks, 0, prod(residue.taps) * blocks)
    parameters.integer("image_pixels", result_space(op).sizes[-1])
    adding = Adding(layout.tiles * tile.bm * tile.bn, choice.parts, ELEMENTS[scheme.compute].bytes)
    adding.describe(parameters, steps, compute)

    multiplying, copying = tile.registers
    tiling = f"{tile.name}x{choice.deep}x{choice.stages}{'_split' if is_split else ''}"
    name = f"conv_wgrad__hopper_{scheme.name}_{tiling}__{op.name}"
    text = kernel_text(
        name,
        [
            *("next_launch.cuh", "hopper_pipeline.cuh", "hopper_work.cuh", "hopper_leave.cuh", *PARTS_FILES),
            *("hopper_leave_joined.cuh", "hopper_wgrad_stage.cuh", *scheme.files, "hopper_planes_wgrad.cu"),
            *(["hopper_sum.cu"] if is_split else []),
        ],
        parameters=parameters.text,
        functions=[
            *ending.functions,
            product_text(DataType.BFLOAT16, DataType.BFLOAT16, tile.bn, True, True),
            *scheme.functions(tile.bn),
        ],
        constants={
            "BM": tile.bm, "BN": tile.bn, "STAGES": choice.stages, "CONSUMERS": tile.consumers,
            "MULTIPLYING_REGISTERS": multiplying, "COPYING_REGISTERS": copying,
            "PLANES": planes, "DEEP": choice.deep, "PROMOTED": scheme.promoted // choice.deep,
            **scheme.constants,
            "WGRAD": True, "TURNED": False, "ACROSS_FILTER": False,
            "RESIDUES": 1, "SPATIAL": p.spatial, "SPLIT": is_split,
            **adding.constants,
            "PERMUTED": False, "NEIGHBOURS": _NEIGHBOURS, "WIDTH": ending.width,
            "Element": "bfloat_t", "Accumulator": compute,
        },
    )  # fmt: skip
    packed = parameters.pack()
    grid = min(layout.tiles * choice.parts, device.sm_count)
    shared = choice.stages * (tile.stage_bytes(planes, choice.deep) + 16)
    threads = 128 * (tile.consumers + 1)
    steps.add(Launch(text, "hopper_planes_wgrad", (grid, 1, 1), threads, packed, shared, starts_early=True))
    if is_split:
        steps.add(adding.launch(text, packed))
    return steps.kernel(name)


def _cost(task: Task, knobs: Knobs, scheme_of: SchemeOf) -> Cost:
    product, scheme, device = product_of(task.op), scheme_of(task.op), task.device
    choice = choose(scheme, sizes_of(task.op), device, knobs)
    read = operands(product.roles)
    phases = {"split": sum(ImagePlanes(operand, scheme.planes).seconds(device) for operand in read)}
    copying = sum(copying_seconds(o.spec.bytes, device) for o in read if o.is_copied)
    return device_cost(task, choice.seconds + other_seconds(task)).plus(
        phases | ({"copies": copying} if copying else {})
    )


def _group(task: Task) -> tuple[int, int]:
    problem = problem_of(task)
    return problem.c, problem.k


def _needs(prefix: str, types: Constraint) -> tuple[Constraint, ...]:
    """Ids begin with ``prefix``."""
    return (
        needs_rule(f"{prefix}.operation", "conv"),
        capability_need(prefix, is_convolution),
        wgrad_need(prefix, "the other directions do not read across the axis that is summed over"),
        types,
        prologue_need(prefix, is_wgrad),
        *one_walk_needs(prefix, is_wgrad),
        need(
            f"{prefix}.groups",
            "dw.dims",
            _group,
            Equals(f"groups of channels that are multiples of {_GROUP}"),
            reason="the walk through an image copies pieces of 16 bytes, from the beginning of one on",
            fix="nothing to do: another engine serves narrow groups",
            when=lambda task: is_wgrad(task) and problem_of(task).groups > 1 and any(c % _GROUP for c in _group(task)),
        ),
    )


def _floats_need(prefix: str) -> Constraint:
    return kind_need(
        f"{prefix}.types",
        "data_type",
        types_and_sum,
        Equals((DataType.FLOAT,) * 3),
        reason="planes of 16-bit floats hold an fp32 number, and sums are in fp32",
        fix="nothing to do: another engine serves other types",
        when=is_wgrad,
    )


def _integers_need(prefix: str) -> Constraint:
    return kind_need(
        f"{prefix}.types",
        "data_type",
        types_and_sum,
        Equals("both operands bytes or both INT16, with INT32 or INT64"),
        reason="so many bytes have operands whose products are counted in planes of 16-bit floats",
        fix="nothing to do: another engine serves other types",
        when=lambda task: is_wgrad(task) and integers_of(*types_and_sum(task)) is None,
    )


def _integers(op: FusedOp) -> Integers:
    found = integers_of(*(t.data_type for t in gathered_and_plain(product_of(op).roles)), op.main.compute_type)
    assert found is not None
    return found


def _engine(id: int, name: str, scheme_of: SchemeOf, types: Constraint, summary: str, **rest: Any) -> Engine:
    cost: Callable[[Task, Knobs], Cost] = partial(_cost, scheme_of=scheme_of)
    return cuda_engine(
        id=id,
        name=name,
        summary=summary,
        needs=_needs(name, types),
        cost=cost,
        generate=partial(generate, scheme_of=scheme_of),
        knobs=(TILE, PARTS),
        frugal={PARTS.type: 1},
        layout=LayoutType.PREFERRED_NHWC,
        **rest,
    )


ENGINE = _engine(
    63,
    "cuda_hopper_float_wgrad",
    lambda op: Floats(3),
    _floats_need("cuda_hopper_float_wgrad"),
    "fp32 filter gradients in three parts of 16 bits, on the tensor cores of compute capability 9.0",
    numerical_notes=(NumericalNote.TENSOR_CORE,),
    sum_error=SumError(4, 1, restart=128, floor=2.0**-133),
)
# Offered only where the note is allowed: 16 of the operands' 24 digits.
ENGINE_TF32 = _engine(
    64,
    "cuda_hopper_float_wgrad_tf32",
    lambda op: Floats(2),
    _floats_need("cuda_hopper_float_wgrad_tf32"),
    "the same in two parts, more exact than TF32; only where that is allowed",
    numerical_notes=(NumericalNote.TENSOR_CORE, NumericalNote.DOWN_CONVERT_INPUTS),
    sum_error=SumError(2.0**11, 1, floor=2.0**-133, drift=0.12),
    error_growth=2.0**10,
)
INTEGERS = _engine(
    82,
    "cuda_hopper_integer_wgrad",
    _integers,
    _integers_need("cuda_hopper_integer_wgrad"),
    "exact filter gradients of bytes and INT16 by their bytes, on the tensor cores of compute capability 9.0",
    numerical_notes=(NumericalNote.TENSOR_CORE,),
)

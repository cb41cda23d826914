"""Engine ``cuda_hopper_gemm``: convolutions on the tensor cores of compute capability 9.0 (text/hopper_gemm.cu).

| direction | rows      | columns         | k               | rows from        | columns from   |
|-----------|-----------|-----------------|-----------------|------------------|----------------|
| fprop     | pixel     | channel k       | taps, channel c | x, along k       | w, along k     |
| dgrad     | pixel     | channel c       | taps, channel k | dy, along k      | w, across k    |
| wgrad     | channel k | taps, channel c | pixel           | dy, across k     | x, across k    |

Operands are copied by the copy unit (TMA), which walks through the image tap by tap, so nothing is rearranged in
memory beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphdnn.device import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.convolution_roles import SPATIAL
from graphdnn.engines.cuda.cost import device_cost
from graphdnn.engines.cuda.engine import cuda_engine
from graphdnn.engines.cuda.hopper_maps import (
    Walk,
    filter_map,
    image_map,
    is_permutable,
    permuted_filter_map,
    tap_stride,
    walk_of,
)
from graphdnn.engines.cuda.hopper_needs import hopper_needs
from graphdnn.engines.cuda.hopper_product import product_text
from graphdnn.engines.cuda.hopper_tiles import PANEL, PARTS, ROW, STAGES, TILE, Choice, Sizes, choose, tiles_of
from graphdnn.engines.cuda.implicit_product import Product, gathered_and_plain, product_of
from graphdnn.engines.cuda.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.program import Program, width_for
from graphdnn.engines.cuda.source import kernel_text
from graphdnn.engines.cuda.steps import Steps
from graphdnn.engines.engine import Cost, Knobs, Task
from graphdnn.engines.work import flops
from graphdnn.enums import DataType, KnobType, LayoutType, NumericalNote
from graphdnn.fusion.fused import FusedOp

_COLUMNS_OF_A_THREAD = 8
_CHANNELS = 2  # the axis, of the coordinates of images and filters
_UNROLLED = 4  # steps
_LINE = 128  # bytes
_FEW_PARTS = 10  # that one thread adds


def sizes_of(op: FusedOp, product: Product) -> Sizes:
    """The products as the choice of a tile sees them."""
    depth_of_step = _depth_of_step(product)
    products = []
    for residue in product.residues:
        if product.is_wgrad:
            products.append((product.outer_channels, -(-product.pixel_count(residue) // PANEL)))
        else:
            taps = residue.taps[0] * residue.taps[1] * residue.taps[2]
            products.append((product.pixel_count(residue), taps * -(-product.channels // depth_of_step)))
    columns = _units(product) * PANEL if product.is_wgrad else product.outer_channels
    result = max(ELEMENTS[t.data_type].bytes for t in op.outputs)
    unit = PANEL if product.roles.direction != "fprop" else 1
    return Sizes(tuple(products), columns, product.roles.problem.groups, unit, result)


def _depth_of_step(product: Product) -> int:
    gathered, _ = gathered_and_plain(product.roles)
    return ROW // ELEMENTS[gathered.data_type].bytes


def _units(product: Product) -> int:
    """Pairs of a tap and a block of channels, the columns of a wgrad."""
    taps = product.residues[0].taps
    return taps[0] * taps[1] * taps[2] * -(-product.channels // PANEL)


@dataclass(frozen=True, slots=True)
class _Layout:
    """A launch's numbers: where each residue's tiles begin, and how many there are."""

    first: tuple[int, ...]
    down: tuple[int, ...]
    tiles: int
    across: int

    @classmethod
    def of(cls, sizes: Sizes, choice: Choice) -> _Layout:
        across = -(-sizes.columns // choice.tile.bn)
        down = tuple(-(-rows // choice.tile.bm) for rows, _ in sizes.products)
        first = tuple(sum(down[:i]) * across * sizes.groups for i in range(len(down)))
        return cls(first, down, tiles_of(sizes, choice.tile), across)


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    product = product_of(op)
    roles, p = product.roles, product.roles.problem
    sizes = sizes_of(op, product)
    choice = choose(sizes, device, knobs)
    tile, layout = choice.tile, _Layout.of(sizes, choice)
    is_split = choice.parts > 1
    steps = Steps(op, device)
    parameters = Parameters(steps.places)
    compute = COMPUTE_TYPE[roles.op.compute_type]
    gathered, plain = gathered_and_plain(roles)

    neighbours = _COLUMNS_OF_A_THREAD if sizes.result_bytes <= 2 else _COLUMNS_OF_A_THREAD // 2
    is_permuted = roles.direction == "fprop" and is_permutable(roles, plain)
    walks = [walk_of(product, residue) for residue in product.residues]
    rows = PANEL if product.is_wgrad else tile.bm
    parameters.maps(
        "gathered", gathered, [image_map(roles, gathered, walk, product.pixel_step, rows) for walk in walks]
    )
    if product.is_wgrad:
        still = Walk(*((0,) * SPATIAL,) * 4)
        plain_map = image_map(roles, plain, still, (1,) * SPATIAL, PANEL)
    else:
        rows = PANEL if roles.direction == "dgrad" else tile.bn
        plain_map = permuted_filter_map(roles, plain, rows, neighbours) if is_permuted else filter_map(roles, plain, rows)
    parameters.maps("plain", plain, [plain_map])

    out_space = roles.space(roles.output)
    held = neighbours if is_permuted else _COLUMNS_OF_A_THREAD
    width = min(width_for(out_space, steps.epilogue_tensors(), _CHANNELS), held)
    body = Program(op, parameters, out_space, "t", width=width, vector_axis=_CHANNELS, condition="is_there")
    steps.finish(body, "acc", compute)
    ahead = _fetched_ahead(body, roles.output.elements)
    _describe(parameters, product, sizes, layout, walks)
    parameters.integer("parts", choice.parts)
    parameters.integer("tap_pitch", 0 if product.is_wgrad else tap_stride(roles, plain))
    if is_split:
        partial = choice.parts * layout.tiles * tile.bm * tile.bn * 4
        parameters.scratch("partial", compute, steps.allocate(partial))
    else:
        parameters.nothing("partial", compute)

    slices = 5 if choice.parts > _FEW_PARTS else 1  # 32 KiB of shared memory
    multiplying, copying = tile.registers
    name = f"conv_{roles.direction}__hopper_{tile.name}x{choice.stages}{'_split' if is_split else ''}__{op.name}"
    text = kernel_text(
        name,
        [
            *("next_launch.cuh", "hopper_pipeline.cuh", "hopper_work.cuh", "hopper_leave.cuh", "hopper_gemm.cu"),
            *(["hopper_sum.cu"] if is_split else []),
        ],
        parameters=parameters.text,
        functions=[
            body.function("epilogue", f"const {compute} (&acc)[{width}], bool is_there"),
            body.fetching("fetch_operands", roles.output.elements),
            product_text(*_operand_types(product), tile.bn, roles.direction),
        ],
        constants={
            "BM": tile.bm, "BN": tile.bn, "STAGES": choice.stages, "CONSUMERS": tile.consumers,
            "MULTIPLYING_REGISTERS": multiplying, "COPYING_REGISTERS": copying,
            "WGRAD": product.is_wgrad, "ACROSS_A": product.is_wgrad, "ACROSS_B": roles.direction != "fprop",
            "RESIDUES": len(product.residues), "SPATIAL": p.spatial, "SPLIT": is_split,
            **({"SLICES": slices} if is_split else {}),
            "PERMUTED": is_permuted, "NEIGHBOURS": held, "AHEAD": 0 if is_split else ahead,
            "WIDTH": width, "UNROLL": _UNROLLED,
            "Element": STORAGE[gathered.data_type], "Accumulator": compute,
        },
    )  # fmt: skip
    packed = parameters.pack()
    pieces = layout.tiles * choice.parts
    blocks = min(pieces, device.sm_count)
    shared = choice.stages * (tile.stage_bytes + 16)
    steps.add(Launch(text, "hopper_gemm", (blocks, 1, 1), 128 * (tile.consumers + 1), packed, shared, starts_early=True))
    if is_split:
        sums = layout.tiles * (tile.bm // 64) * (tile.bn // 32)
        steps.add(Launch(text, "hopper_sum", (sums, 1, 1), 128 * slices, packed, starts_early=True))
    return steps.kernel(name)


def _fetched_ahead(body: Program, elements: int) -> int:
    """Columns in 128 bytes of the operands as large as the result, 0 without any: their lines are asked for early."""
    sizes = [ELEMENTS[spec.data_type].bytes for spec in body.large_reads(elements)]
    return _LINE // max(sizes) if sizes else 0


def _operand_types(product: Product) -> tuple[DataType, DataType]:
    """Of rows and of columns."""
    gathered, plain = gathered_and_plain(product.roles)
    pair = gathered.data_type, plain.data_type
    return pair[::-1] if product.is_wgrad else pair


def _describe(parameters: Parameters, product: Product, sizes: Sizes, layout: _Layout, walks: list[Walk]) -> None:
    """The numbers that differ from shape to shape."""
    filter_sizes = product.roles.space(product.roles.op.roles[1]).sizes[3:]
    pace = [filter_sizes[1] * filter_sizes[2], filter_sizes[2], 1]  # in taps
    block = PANEL if product.is_wgrad else _depth_of_step(product)
    for name, value in {
        "tiles": layout.tiles, "tiles_n": layout.across,
        "channels": product.channels, "channel_blocks": -(-product.channels // block),
        "columns": sizes.columns, "units": _units(product) if product.is_wgrad else 0,
    }.items():  # fmt: skip
        parameters.integer(name, value)
    for name, values in {
        "first_tile": layout.first,
        "tiles_m": layout.down,
        "rows": [rows for rows, _ in sizes.products],
        "depth": [depth for _, depth in sizes.products],
        "pixels": [v for r in product.residues for v in r.pixels],
        "taps": [max(1, v) for r in product.residues for v in r.taps],
        "first_pixel": [v for r in product.residues for v in r.first_pixel],
        "lowest": [v for walk in walks for v in walk.lower],
        "tap_origin": [v for walk in walks for v in walk.origin],
        "filter_start": [sum(f * s for f, s in zip(r.first_tap, pace, strict=True)) for r in product.residues],
        "pixel_step": product.pixel_step,
        "tap_step": product.tap_step,
        "pixel_pitch": product.pixel_pitch,
        "filter_step": [pitch * s for pitch, s in zip(product.tap_pitch, pace, strict=True)],
    }.items():
        parameters.integers(name, values)


def _cost(task: Task, knobs: Knobs) -> Cost:
    choice = choose(sizes_of(task.op, product_of(task.op)), task.device, knobs)
    others = sum(flops(op) for op in task.op.operations if op is not task.op.anchor) / task.device.rate(DataType.FLOAT)
    return device_cost(task, choice.seconds + others)


ENGINE = cuda_engine(
    id=50,
    name="cuda_hopper_gemm",
    summary="convolutions of 16-bit floats and bytes, channels last, on the tensor cores of compute capability 9.0",
    needs=hopper_needs("cuda_hopper_gemm"),
    cost=_cost,
    generate=generate,
    knobs=(TILE, STAGES, PARTS),
    frugal={KnobType.SPLIT_K: 1},
    layout=LayoutType.PREFERRED_NHWC,
    numerical_notes=(NumericalNote.TENSOR_CORE,),
)

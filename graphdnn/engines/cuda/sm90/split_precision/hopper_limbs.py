"""Engines ``cuda_hopper_int_limbs`` and ``cuda_hopper_bf16x3``: wide integers and floats on tensor cores.

Operands wider than what tensor cores multiply are split into planes (planes_kinds.py); products of planes are
convolutions whose sums are joined (hopper_limbs.cu). The gathered operand is copied as it is and split in
registers; the filter is split by a launch of its own, in the order in which the other one multiplies.

Integers are exact: modulo 2^32 in INT32, and in INT64 for any number of products, because parts of a long sum, none of
which leaves 32 bits, are kept in memory and added there.

Floats: three parts of eight bits hold a float. A product lacks less than 2^-24 of itself. Sums of the small products,
2^-7 of the large ones, are kept apart, so that what tensor cores cut off at each step weighs little there; large ones
are added on the multiprocessor, rounded to nearest, after every 128 channels of a tap. So, with u = 2^-24 and n
products,

    |error| <= (16 + n / 128) u sum |x w|,

where one running sum has n u. Below 2^-110 a float has bits that the parts lack, at most 2^-133 of them.
"""

from __future__ import annotations

from graphdnn.cuda.tensor_map import TensorMap
from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.batch_invariance import memoize_for_images
from graphdnn.engines.cuda.codegen.cost import device_cost, other_seconds, overlapping
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.epilogue import epilogue_of
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.conv_geometry.convolution_roles import CHANNELS
from graphdnn.engines.cuda.conv_geometry.gemm_problem import GemmProblem, gemm_problem_of, im2col_and_dense
from graphdnn.engines.cuda.simt.implicit_copies import copying_seconds
from graphdnn.engines.cuda.sm90.epilogue_operands import result_space
from graphdnn.engines.cuda.sm90.gemm_fields import Layout, describe_work, taps_of
from graphdnn.engines.cuda.sm90.gemm_shape import Sizes
from graphdnn.engines.cuda.sm90.split_k import PARTS_FILES, Adding
from graphdnn.engines.cuda.sm90.split_precision.filter_limbs import FilterPlanes
from graphdnn.engines.cuda.sm90.split_precision.limb_requirements import planes_needs
from graphdnn.engines.cuda.sm90.split_precision.limb_schemes import Kind, kind_of
from graphdnn.engines.cuda.sm90.split_precision.limb_tiles import PARTS, STAGES, TILE, choose, promoted
from graphdnn.engines.cuda.sm90.tensor_maps import for_images, image_map, walks_of
from graphdnn.engines.cuda.sm90.tma_operands import Operand, operands, operands_of_images
from graphdnn.engines.engine import Cost, Knobs, Task
from graphdnn.engines.sum_error import SumError
from graphdnn.enums import KnobType, LayoutType, NumericalNote
from graphdnn.fusion.fused_graph import FusedOp

_NEIGHBOURS = {1: 8, 2: 8, 4: 4, 8: 2}  # columns of a thread that follow each other, by the bytes of a result
_FILES = (
    "pdl.cuh", "limbs.cuh", "ldmatrix.cuh", "hopper_pipeline.cuh", "conv_work_tile.cuh", "epilogue_store.cuh",
    *PARTS_FILES, "epilogue_limbs.cuh", "limb_operands.cuh",
)  # fmt: skip
_SPLIT_SHARE = 0.5  # of the data sheet's bandwidth


def _kind(op: FusedOp) -> Kind:
    gathered, plain = im2col_and_dense(gemm_problem_of(op).roles)
    found = kind_of(gathered.data_type, plain.data_type, op.main.compute_type)
    assert found is not None
    return found


def _sizes(op: FusedOp, product: GemmProblem, kind: Kind) -> Sizes:
    blocks = -(-product.channels // kind.channels)
    products = []
    for residue in product.residues:
        taps = residue.taps[0] * residue.taps[1] * residue.taps[2]
        products.append((product.pixel_count(residue), taps * blocks))
    result = max([ELEMENTS[t.data_type].bytes for t in op.outputs])
    groups = product.roles.problem.groups
    return Sizes(tuple(products), product.outer_channels, groups, column_unit=1, result_bytes=result)


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    product, kind = gemm_problem_of(op), _kind(op)
    roles, p = product.roles, product.roles.problem
    sizes = _sizes(op, product, kind)
    choice = choose(kind, sizes, device, knobs)
    tile = choice.tile
    layout = Layout.of(sizes, tile.bm, tile.bn)
    is_split = choice.parts > 1
    steps = LaunchSequence(op, device)
    compute = COMPUTE_TYPE[roles.op.compute_type]
    given, filter = operands(roles)
    image, plain = given.prepared(steps), filter.spec

    neighbours = _NEIGHBOURS[min(8, sizes.result_bytes)]
    planes = FilterPlanes(roles, plain, kind)
    place = steps.allocate(planes.bytes)
    kept = plain.model_copy(update={"uid": steps.new_uid()})
    steps.workspace_offsets[kept.uid] = place
    steps.add(_split(op, place, neighbours))

    parameters = Parameters(steps.workspace_offsets)
    maps = _maps(op, image, tile.bm) if given.is_copied else _maps_as_they_lie(op, tile.bm)
    parameters.maps("im2col_map", [(image.spec, for_images(one, p.n)) for one in maps])
    parameters.maps("dense_map", [(kept, planes.map(tile.bn))])
    ending = epilogue_of(steps, parameters, (result_space,), CHANNELS, neighbours, compute)
    describe_work(parameters, product, sizes, layout, (), planes.blocks, known=taps_of(op))
    parameters.integer("filter_rows", planes.padded_rows)
    parameters.integer("image_pixels", 0)
    wide = ELEMENTS[roles.op.compute_type].bytes
    adding = Adding(layout.tiles * tile.bm * tile.bn, choice.parts, wide)
    adding.describe(parameters, steps, compute)

    multiplying, copying = tile.registers
    types = f"{kind.a.name.lower()}_{kind.b.name.lower()}"
    tiling = f"{tile.name}x{choice.stages}{'_split' if is_split else ''}"
    name = f"conv_{roles.direction}__hopper_planes_{types}_{tiling}__{op.name}"
    text = kernel_text(
        name,
        [
            *_FILES,
            *(["limb_accum_packed.cuh"] if kind.is_turned else ["limb_accum.cuh"]),
            "hopper_limbs.cu",
            *(["split_k_reduce.cu"] if is_split else []),
        ],
        parameters=parameters.text,
        functions=[
            *ending.functions,
            kind.text(tile.bn),
        ],
        constants={
            "TILE_M": tile.bm, "TILE_N": tile.bn, "STAGES": choice.stages, "CONSUMER_WARPGROUPS": tile.consumers,
            "CONSUMER_REGS": multiplying, "PRODUCER_REGS": copying,
            "PLANES_A": len(kind.planes[0]), "PLANES_B": len(kind.planes[1]),
            "BOXES": kind.boxes, "CHANNELS": kind.channels, "BLOCKS": kind.blocks,
            "FILTER_ROW": kind.filter_row, "LINE": kind.line,
            "WGRAD": False, "SWAP_AB": False, "FILTER_MN_MAJOR": False,
            "PERMUTE_N": True, "VEC_N": neighbours,
            "RESIDUES": len(product.residues), "SPATIAL": p.spatial, "SPLIT_K": is_split,
            **adding.constants,
            "VEC_WIDTH": ending.width,
            "Element": STORAGE[kind.a], "Accum": compute,
            **(
                {"HIGH_START": kind.high_start}
                if kind.is_turned
                else {"GROUPS": kind.sums, "PROMOTION_INTERVAL": promoted(kind),
                "Sum": "float" if kind.is_float else "int"}
            ),
        },
    )  # fmt: skip
    packed = parameters.pack()
    blocks = min(layout.tiles * choice.parts, device.sm_count)
    shared = choice.stages * (tile.stage_bytes(kind) + 16)
    steps.add(
        Launch(text, "hopper_limbs", (blocks, 1, 1), 128 * (tile.consumers + 1), packed, shared, starts_early=True)
    )
    if is_split:
        steps.add(adding.launch(text, packed))
    return steps.kernel(name)


def _maps(op: FusedOp, image: Operand, pixels: int) -> list[TensorMap]:
    product = gemm_problem_of(op)
    spatial = product.roles.problem.spatial
    return [image_map(image, spatial, walk, product.traversal_stride, pixels) for walk in walks_of(op)]


@memoize_for_images
def _maps_as_they_lie(op: FusedOp, pixels: int) -> list[TensorMap]:
    return _maps(op, operands_of_images(op)[0], pixels)


@memoize_for_images
def _split(op: FusedOp, offset: int, neighbours: int) -> Launch:
    """``offset``: of the planes in scratch memory; ``neighbours``: columns that a thread of the product stores."""
    roles = gemm_problem_of(op).roles
    return FilterPlanes(roles, operands(roles)[1].spec, _kind(op)).split(offset, neighbours)


def _cost(task: Task, knobs: Knobs) -> Cost:
    op, device = task.op, task.device
    product, kind = gemm_problem_of(op), _kind(op)
    choice = choose(kind, _sizes(op, product, kind), device, knobs)
    image, filter = operands(product.roles)
    planes = FilterPlanes(product.roles, filter.spec, kind)
    phases = {"split": device.launch + (filter.spec.bytes + planes.bytes) / (_SPLIT_SHARE * device.bandwidth)}
    if image.is_copied:
        phases["copies"] = copying_seconds(image.spec.bytes, device)
    cost = device_cost(task, choice.seconds + other_seconds(task)).plus(phases)
    return overlapping(cost, device, len(phases))


INTEGERS = cuda_engine(
    id=57,
    name="cuda_hopper_int_limbs",
    summary="exact convolutions of wide integers by their bytes, on the tensor cores of compute capability 9.0",
    needs=planes_needs("cuda_hopper_int_limbs", is_float=False),
    cost=_cost,
    generate=generate,
    knobs=(TILE, STAGES, PARTS),
    frugal={KnobType.SPLIT_K: 1},
    layout=LayoutType.PREFERRED_NHWC,
    numerical_notes=(NumericalNote.TENSOR_CORE,),
)
FLOATS = cuda_engine(
    id=58,
    name="cuda_hopper_bf16x3",
    summary="fp32 convolutions in three parts of 16 bits, on the tensor cores of compute capability 9.0",
    needs=planes_needs("cuda_hopper_bf16x3", is_float=True),
    cost=_cost,
    generate=generate,
    knobs=(TILE, STAGES, PARTS),
    frugal={KnobType.SPLIT_K: 1},
    layout=LayoutType.PREFERRED_NHWC,
    numerical_notes=(NumericalNote.TENSOR_CORE,),
    sum_error=SumError(4, 1, restart=128, floor=2.0**-133),
)

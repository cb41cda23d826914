"""Engines ``cuda_hopper_int_limbs`` and ``cuda_hopper_bf16x3``: wide integers and fp32 by split precision.

Tensor cores multiply bytes and 16-bit floats. Wider operands are split into limbs (limb_schemes.py), and the products
of limbs are summed by order and combined (hopper_limbs.cu). The main kernel loads the im2col operand as it is and
splits it in registers; a launch of its own splits the filter, in the layout that the main kernel reads.

Integers are exact: modulo 2^32 in INT32, and in INT64 for any number of products, because a long sum is split so that
no accumulator overflows 32 bits, and the partial sums are added in 64 bits.

Floats: three limbs of eight bits represent a float. A product has a relative error below 2^-24. The sums of the small
products, which are 2^-7 of the large ones, have accumulators of their own, so that the truncation of the tensor cores
weighs little there. The large ones are promoted to fp32 sums, rounded to nearest, after every 128 channels of a tap.
With u = 2^-24 and n products this gives

    |error| <= (16 + n / 128) u sum |x w|,

where a single running sum would have n u. Below 2^-110 a float has bits that its limbs lack, at most 2^-133 of them.
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
from graphdnn.engines.cuda.sm90.fitted_constants import LIMBS
from graphdnn.engines.cuda.sm90.gemm_fields import TileGrid, describe_work_tiles, tap_fields_of, work_tile_variants
from graphdnn.engines.cuda.sm90.gemm_shape import GemmShape
from graphdnn.engines.cuda.sm90.split_k import SplitKReduction
from graphdnn.engines.cuda.sm90.split_precision.filter_limbs import FilterLimbs
from graphdnn.engines.cuda.sm90.split_precision.limb_requirements import limb_needs
from graphdnn.engines.cuda.sm90.split_precision.limb_schemes import LimbScheme, limb_scheme_of
from graphdnn.engines.cuda.sm90.split_precision.limb_tiles import (
    SPLITS,
    STAGES,
    TILE,
    TILES,
    Choice,
    choose,
    promotion_interval,
)
from graphdnn.engines.cuda.sm90.tensor_maps import im2col_boxes_of, im2col_map, with_images
from graphdnn.engines.cuda.sm90.tma_operands import Operand, operands, operands_of_images
from graphdnn.engines.engine import Cost, Knobs, Task
from graphdnn.engines.sum_error import SumError
from graphdnn.enums import KnobType, LayoutType, NumericalNote
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.tensors import TensorSpec

_VEC_N = {1: 8, 2: 8, 4: 4, 8: 2}  # contiguous columns that a thread stores, by the bytes of a result


def _scheme(op: FusedOp) -> LimbScheme:
    im2col, dense = im2col_and_dense(gemm_problem_of(op).roles)
    scheme = limb_scheme_of(im2col.data_type, dense.data_type, op.main.compute_type)
    assert scheme is not None
    return scheme


def _sizes(op: FusedOp, gemm: GemmProblem, scheme: LimbScheme) -> GemmShape:
    blocks = -(-gemm.channels // scheme.channels)
    products = []
    for residue in gemm.residues:
        taps = residue.taps[0] * residue.taps[1] * residue.taps[2]
        products.append((gemm.pixel_count(residue), taps * blocks))
    result = max([ELEMENTS[t.data_type].bytes for t in op.outputs])
    groups = gemm.roles.problem.groups
    return GemmShape(tuple(products), gemm.outer_channels, groups, column_multiple=1, result_bytes=result)


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    gemm, scheme = gemm_problem_of(op), _scheme(op)
    roles, shape = gemm.roles, _sizes(op, gemm, scheme)
    choice = choose(scheme, shape, device, knobs)
    tile, is_split = choice.tile, choice.splits > 1
    grid = TileGrid.of(shape, tile.bm, tile.bn)
    steps = LaunchSequence(op, device)
    compute, vec_n = COMPUTE_TYPE[roles.op.compute_type], _VEC_N[min(8, shape.result_bytes)]
    image_operand, filter = operands(roles)
    image = image_operand.prepared(steps)
    limbs = FilterLimbs(roles, filter.spec, scheme)
    limbs_spec = _add_filter_limbs(op, steps, limbs, filter.spec, vec_n)

    parameters = Parameters(steps.workspace_offsets)
    maps = _image_maps(op, image, tile.bm) if image_operand.is_copied else _original_image_maps(op, tile.bm)
    parameters.maps("im2col_map", [(image.spec, with_images(one, roles.problem.n)) for one in maps])
    parameters.maps("dense_map", [(limbs_spec, limbs.map(tile.bn))])
    epilogue = epilogue_of(steps, parameters, (result_space,), CHANNELS, vec_n, compute)
    describe_work_tiles(parameters, gemm, shape, grid, (), limbs.blocks, tap_fields=tap_fields_of(op))
    parameters.integer("filter_rows", limbs.padded_rows)
    parameters.integer("image_pixels", 0)
    accum_bytes = ELEMENTS[roles.op.compute_type].bytes
    split_k = SplitKReduction(grid.tiles * tile.bm * tile.bn, choice.splits, accum_bytes)
    split_k.describe(parameters, steps, compute)

    types = f"{scheme.a.name.lower()}_{scheme.b.name.lower()}"
    tiling = f"{tile.name}x{choice.stages}{'_split' if is_split else ''}"
    name = f"conv_{roles.direction}__hopper_limbs_{types}_{tiling}__{op.name}"
    text = kernel_text(
        name,
        ["hopper_limbs.cu", *(["split_k_reduce.cu"] if is_split else [])],
        variants={**work_tile_variants(parameters), "PACKED_ACCUMULATORS": scheme.is_packed},
        parameters=parameters.text,
        functions=[
            *epilogue.functions,
            scheme.text(tile.bn),
        ],
        constants={
            **_tile_constants(choice, scheme),
            "WGRAD": False, "SWAP_AB": False, "FILTER_MN_MAJOR": False,
            "PERMUTE_N": True, "VEC_N": vec_n,
            "RESIDUES": len(gemm.residues), "SPATIAL": roles.problem.spatial, "SPLIT_K": is_split,
            **split_k.constants,
            "VEC_WIDTH": epilogue.width,
            "Element": STORAGE[scheme.a], "Accum": compute,
        },
    )  # fmt: skip
    packed = parameters.pack()
    ctas, threads = (min(grid.tiles * choice.splits, device.sm_count), 1, 1), 128 * (tile.consumers + 1)
    shared = choice.stages * (tile.stage_bytes(scheme) + 16)
    steps.add(Launch(text, "hopper_limbs", ctas, threads, packed, shared, starts_early=True))
    if is_split:
        steps.add(split_k.launch(text, packed))
    return steps.kernel(name)


def _add_filter_limbs(
    op: FusedOp, steps: LaunchSequence, limbs: FilterLimbs, filter: TensorSpec, vec_n: int
) -> TensorSpec:
    """Adds the launch that splits the filter into limbs in the workspace. Returns the tensor of the limbs."""
    offset = steps.allocate(limbs.bytes)
    limbs_spec = filter.model_copy(update={"uid": steps.new_uid()})
    steps.workspace_offsets[limbs_spec.uid] = offset
    steps.add(_split_filter(op, offset, vec_n))
    return limbs_spec


def _tile_constants(choice: Choice, scheme: LimbScheme) -> dict[str, int | bool | str]:
    """The constants of hopper_limbs.cu that depend on the tile and the limbs only."""
    tile, (consumer_regs, producer_regs) = choice.tile, choice.tile.registers
    accumulators: dict[str, int | bool | str] = {
        "LIMB_ORDERS": scheme.orders,
        "PROMOTION_INTERVAL": promotion_interval(scheme),
        "MmaAccum": "float" if scheme.is_float else "int",
    }
    return {
        "TILE_M": tile.bm, "TILE_N": tile.bn, "STAGES": choice.stages, "CONSUMER_WARPGROUPS": tile.consumers,
        "CONSUMER_REGS": consumer_regs, "PRODUCER_REGS": producer_regs,
        "LIMBS_A": len(scheme.limbs[0]), "LIMBS_B": len(scheme.limbs[1]),
        "BOXES": scheme.boxes, "CHANNELS": scheme.channels, "MMA_K_STEPS": scheme.mma_k_steps,
        "FILTER_ROW_BYTES": scheme.filter_row_bytes, "FILTER_SWIZZLE_BYTES": scheme.swizzle_bytes,
        **({"PACKED_BIAS": scheme.packed_bias} if scheme.is_packed else accumulators),
    }  # fmt: skip


def _image_maps(op: FusedOp, image: Operand, pixels: int) -> list[TensorMap]:
    gemm = gemm_problem_of(op)
    spatial = gemm.roles.problem.spatial
    return [im2col_map(image, spatial, box, gemm.traversal_stride, pixels) for box in im2col_boxes_of(op)]


@memoize_for_images
def _original_image_maps(op: FusedOp, pixels: int) -> list[TensorMap]:
    return _image_maps(op, operands_of_images(op)[0], pixels)


@memoize_for_images
def _split_filter(op: FusedOp, offset: int, vec_n: int) -> Launch:
    """``offset``: bytes of the workspace before the limbs; ``vec_n``: contiguous columns that a consumer stores."""
    roles = gemm_problem_of(op).roles
    return FilterLimbs(roles, operands(roles)[1].spec, _scheme(op)).split(offset, vec_n)


def _cost(task: Task, knobs: Knobs) -> Cost:
    op, device = task.op, task.device
    gemm, scheme = gemm_problem_of(op), _scheme(op)
    choice = choose(scheme, _sizes(op, gemm, scheme), device, knobs)
    image, filter = operands(gemm.roles)
    limbs = FilterLimbs(gemm.roles, filter.spec, scheme)
    bandwidth = LIMBS.split_filter_bandwidth_share * device.bandwidth
    phases = {"split": device.launch + (filter.spec.bytes + limbs.bytes) / bandwidth}
    if image.is_copied:
        phases["copies"] = copying_seconds(image.spec.bytes, device)
    cost = device_cost(task, choice.seconds + other_seconds(task)).plus(phases)
    return overlapping(cost, device, len(phases))


def _effective(task: Task, knobs: Knobs) -> Knobs:
    """The knob values of the kernel that is launched."""
    gemm, scheme = gemm_problem_of(task.op), _scheme(task.op)
    choice = choose(scheme, _sizes(task.op, gemm, scheme), task.device, knobs)
    return {TILE.type: TILES.index(choice.tile) + 1, STAGES.type: choice.stages, SPLITS.type: choice.splits}


INTEGERS = cuda_engine(
    id=57,
    name="cuda_hopper_int_limbs",
    summary="exact convolutions of wide integers by their bytes, on the tensor cores of compute capability 9.0",
    needs=limb_needs("cuda_hopper_int_limbs", is_float=False),
    cost=_cost,
    generate=generate,
    knobs=(TILE, STAGES, SPLITS),
    effective=_effective,
    frugal={KnobType.SPLIT_K: 1},
    layout=LayoutType.PREFERRED_NHWC,
    numerical_notes=(NumericalNote.TENSOR_CORE,),
)
FLOATS = cuda_engine(
    id=58,
    name="cuda_hopper_bf16x3",
    summary="fp32 convolutions in three limbs of 16 bits, on the tensor cores of compute capability 9.0",
    needs=limb_needs("cuda_hopper_bf16x3", is_float=True),
    cost=_cost,
    generate=generate,
    knobs=(TILE, STAGES, SPLITS),
    effective=_effective,
    frugal={KnobType.SPLIT_K: 1},
    layout=LayoutType.PREFERRED_NHWC,
    numerical_notes=(NumericalNote.TENSOR_CORE,),
    sum_error=SumError(4, 1, restart=128, floor=2.0**-133),
)

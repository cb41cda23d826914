"""Engine ``cuda_hopper_gemm``: convolutions on the tensor cores of compute capability 9.0 (hopper_gemm.cu).

| direction | rows (M)  | columns (N)     | K               | A            | B           |
|-----------|-----------|-----------------|-----------------|--------------|-------------|
| fprop     | pixel     | channel k       | taps, channel c | x, K-major   | w, K-major  |
| dgrad     | pixel     | channel c       | taps, channel k | dy, K-major  | w, MN-major |
| wgrad     | channel k | taps, channel c | pixel           | dy, MN-major | x, MN-major |

wgmma reads bytes and 32-bit floats only K-major. A dgrad of these types copies its filter to K-major first, and another
engine serves their wgrad. TMA loads the image tap by tap in im2col mode, so nothing else is rearranged in memory.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from graphdnn.cuda.nvrtc import KernelText
from graphdnn.cuda.tensor_map import TensorMap
from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.batch_invariance import memoize_for_images
from graphdnn.engines.cuda.codegen.cost import device_cost, other_seconds
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.epilogue import batch_invariant_text, epilogue_of
from graphdnn.engines.cuda.codegen.index_space import IndexSpace, axis_of
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.codegen.tensor_cores import (
    EXACT_OPTIONS,
    EXACT_PAIRS,
    FP8_FAST_OPTIONS,
    FP8_OPTIONS,
    FP8_PAIRS,
    TF32_OPTIONS,
    TF32_PAIRS,
)
from graphdnn.engines.cuda.conv_geometry.convolution_roles import SPATIAL
from graphdnn.engines.cuda.conv_geometry.gemm_problem import GemmProblem, gemm_problem_of, im2col_and_dense
from graphdnn.engines.cuda.simt.implicit_copies import copying_seconds
from graphdnn.engines.cuda.sm90.conv_gemm_shape import gemm_shape_of, promotion_interval_of, tap_blocks_of, tile_k_of
from graphdnn.engines.cuda.sm90.epilogue_operands import fits_residual, residual_map, tma_residual
from graphdnn.engines.cuda.sm90.gemm_fields import TileGrid, describe_work_tiles, tap_fields_of, work_tile_variants
from graphdnn.engines.cuda.sm90.nchw_result import channels_last_result
from graphdnn.engines.cuda.sm90.sm90_requirements import hopper_needs
from graphdnn.engines.cuda.sm90.split_k import MAX_OVERLAPPED_TILES, OVERLAP_BYTES, SplitKReduction
from graphdnn.engines.cuda.sm90.tensor_maps import (
    CHANNELS_AXIS,
    FILTERS_AXIS,
    MAX_VEC_N,
    Im2colBox,
    crosses_groups,
    filter_map,
    group_maps,
    im2col_boxes_of,
    im2col_map,
    permuted_filter_map,
    permuted_vec_n,
    vec_n_of,
    with_images,
)
from graphdnn.engines.cuda.sm90.tile import SLAB_ROWS
from graphdnn.engines.cuda.sm90.tile_choice import (
    SPLIT_K_REDUCTION,
    SPLITS,
    STAGES,
    TILE,
    Choice,
    choose,
    effective_knobs,
)
from graphdnn.engines.cuda.sm90.tma_operands import (
    Operand,
    copy_seconds_of,
    has_copies,
    is_filter_transposed,
    operands_of_images,
    prepared,
)
from graphdnn.engines.cuda.sm90.wgmma_text import wgmma_ss_text
from graphdnn.engines.engine import Cost, Knobs, Task
from graphdnn.enums import DataType, KnobType, LayoutType
from graphdnn.fusion.fused_graph import FusedOp

_ROW_PAIR = 2  # channels that a thread stores together, where rows are channels
_CHANNELS, _LAST_PIXEL = 2, 5  # axes of an image or filter: channels, and the innermost spatial axis
_UNROLL = 4  # K tiles


def _result_space(op: FusedOp, swap_ab: bool, of_all_images: bool) -> IndexSpace:
    """The result's axes. With ``swap_ab``, the pixels of an image are one axis, or the pixels of ``of_all_images``."""
    roles = gemm_problem_of(op).roles
    space = roles.space(roles.output)
    if not swap_ab:
        return space
    axes = list(space.axes)
    flattened = [*([0] if of_all_images else []), 3, 4, 5]
    # An axis of one element has no stride.
    innermost = next((axes[j] for j in reversed(flattened) if axes[j].size > 1), axes[_LAST_PIXEL])
    pixels = axis_of(prod([axes[j].size for j in flattened]), innermost.logical, innermost.multiplier)
    for j in flattened:
        axes[j] = axis_of(1, axes[j].logical, axes[j].multiplier)
    axes[_LAST_PIXEL] = pixels
    return IndexSpace(space.extents, tuple(axes))


@memoize_for_images
def _pixels_per_image(op: FusedOp, is_flat: bool) -> int:
    """Pixels of an image of the result; pixels of a row, if the image's pixels are not one axis."""
    roles = gemm_problem_of(op).roles
    return prod(roles.space(roles.output).sizes[3 if is_flat else _LAST_PIXEL :])


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    transposed = channels_last_result(op)
    if transposed is None:
        return _gemm_kernel(op, device, knobs)
    kernel, steps = _gemm_kernel(transposed.op, device, knobs), LaunchSequence(op, device)
    steps.workspace_offsets[transposed.nhwc_result.uid] = steps.allocate(transposed.nhwc_result.bytes)
    steps.include(kernel)
    steps.copy_into(transposed.nhwc_result, transposed.result)
    return steps.kernel(kernel.name)


def _gemm_kernel(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    gemm = gemm_problem_of(op)
    roles, p = gemm.roles, gemm.roles.problem
    sizes = gemm_shape_of(op)
    choice = choose(sizes, device, knobs)
    tile, layout = choice.tile, TileGrid.of(sizes, *sizes.gemm_extents(choice.tile))
    is_reduced_by_launch = gemm.is_wgrad and choice.splits > 1 and not choice.in_cluster
    half_sm_tile = tile.half_sm_tile if is_reduced_by_launch and layout.tiles <= MAX_OVERLAPPED_TILES else None
    overlaps = half_sm_tile is not None
    reduction = SplitKReduction(
        layout.tiles * tile.padded_results, choice.splits, in_cluster=choice.in_cluster, overlaps=overlaps
    )
    stages = min(choice.stages, tile.stages(device.shared_memory, OVERLAP_BYTES)) if overlaps else choice.stages
    is_split, swap_ab = choice.splits > 1, sizes.swap_ab or tile.swap_ab
    steps = LaunchSequence(op, device)
    im2col, dense = prepared(op, steps)
    parameters = Parameters(steps.workspace_offsets)
    compute = COMPUTE_TYPE[roles.op.compute_type]

    filter_mn_major = roles.direction == "dgrad" and not is_filter_transposed(roles)
    widest = max([ELEMENTS[t.data_type].bytes for t in op.outputs])
    permuted_n = 0 if gemm.is_wgrad or filter_mn_major or swap_ab else permuted_vec_n(dense, widest)
    vec_n = permuted_n or MAX_VEC_N
    if tile.swap_ab:
        vec_n = _ROW_PAIR
    tile_pixels, tile_rows = sizes.gemm_extents(tile)
    copied = (
        SLAB_ROWS if filter_mn_major else tile_rows, SLAB_ROWS if gemm.is_wgrad else tile_pixels, permuted_n
    )  # fmt: skip
    images, dense_map = _maps(op, im2col, dense, *copied) if has_copies(op) else _original_maps(op, *copied)
    dense_maps = [with_images(dense_map, p.n) if gemm.is_wgrad else dense_map]
    if crosses_groups(gemm):
        images = [one for whole in images for one in group_maps(whole, CHANNELS_AXIS, p.groups)]
        dense_maps = group_maps(dense_map, FILTERS_AXIS, p.groups) if filter_mn_major else dense_maps
        parameters.integer("maps_per_group", p.groups)
    parameters.maps("im2col_map", [(im2col.spec, with_images(one, p.n)) for one in images])
    parameters.maps("dense_map", [(dense.spec, one) for one in dense_maps])

    is_flat = sizes.may_swap_ab
    vector_axis = _LAST_PIXEL if sizes.swap_ab else _CHANNELS
    residual = None if is_split or sizes.swap_ab else tma_residual(op, gemm)
    if residual is not None and not fits_residual(choice, residual):
        residual = None
    if residual is not None:
        parameters.maps("residual", [(residual, residual_map(gemm, residual, sizes.gemm_extents(tile)[0]))])
    flattens_pixels = swap_ab or is_flat
    space = _result_space, flattens_pixels, is_flat
    epilogue = epilogue_of(steps, parameters, space, vector_axis, vec_n, compute, residual=residual)
    block_channels = SLAB_ROWS if gemm.is_wgrad else tile_k_of(gemm)
    blocks = -(-gemm.channels // block_channels)
    tap_stride, tap_blocks = (0, tap_blocks_of(gemm)) if gemm.is_wgrad else (dense.tap_stride, 0)
    describe_work_tiles(parameters, gemm, sizes, layout, (), blocks, tap_stride, tap_blocks, tap_fields_of(op))
    reduction.describe(parameters, steps, compute)
    triggers_early = overlaps or (layout.tiles * choice.splits < device.sm_count and not reduction.is_launched)
    parameters.integer("trigger_early", int(triggers_early))
    image_pixels = _pixels_per_image(op, flattens_pixels)
    parameters.integer("image_pixels", p.n * image_pixels if is_flat else image_pixels)
    if is_flat:
        parameters.integer("flat_pixels", 1)
    work_items = layout.tiles * choice.splits
    blocks = work_items if choice.in_cluster else min(work_items, tile.ctas_per_sm * device.sm_count)
    if len(gemm.residues) > 1:
        reached = sum(tiles_m for tiles_m, (_, k_tiles) in zip(layout.tiles_m, sizes.gemms, strict=True) if k_tiles)
        has_epilogue_ctas = choice.mainloop_ctas > 0 and not is_split
        parameters.integer("mainloop_ctas", choice.mainloop_ctas if has_epilogue_ctas else blocks)
        parameters.integer(
            "mainloop_tiles", reached * layout.tiles_n * sizes.groups if has_epilogue_ctas else work_items
        )

    consumer_regs, producer_regs = (half_sm_tile or tile).registers
    mn_major = gemm.is_wgrad or (filter_mn_major and swap_ab), gemm.is_wgrad or (filter_mn_major and not swap_ab)
    name = f"conv_{roles.direction}__hopper_{tile.name}x{stages}{_split(choice)}__{op.name}"

    def write() -> KernelText:
        return kernel_text(
            name,
            ["hopper_gemm.cu", *(["split_k_reduce.cu"] if reduction.is_launched else [])],
            variants={**work_tile_variants(parameters),
                "IM2COL_PRODUCER": True,
                "RESIDUAL_TILE": residual is not None,
                "SPLIT_K_IN_CLUSTER": reduction.in_cluster,
            },
            parameters=parameters.text,
            functions=[
                *epilogue.functions,
                wgmma_ss_text(*_operand_types(gemm, swap_ab), tile.bn, *mn_major),
            ],
            constants={
                "TILE_M": tile.bm, "TILE_N": tile.bn, "STAGES": stages,
                "CONSUMER_WARPGROUPS": tile.tile_consumers, "PINGPONG_GROUPS": tile.pingpong_groups,
                "LOADED_ROWS": tile.bm,
                "CTAS_PER_SM": (half_sm_tile or tile).ctas_per_sm,
                "CONSUMER_REGS": consumer_regs, "PRODUCER_REGS": producer_regs,
                "WGRAD": gemm.is_wgrad, "SWAP_AB": swap_ab, "FILTER_MN_MAJOR": filter_mn_major,
                "A_MN_MAJOR": mn_major[0], "B_MN_MAJOR": mn_major[1],
                "RESIDUES": len(gemm.residues), "SPATIAL": p.spatial, "SPLIT_K": is_split,
                **reduction.constants,
                "PERMUTE_N": permuted_n > 0,
                "VEC_N": vec_n if swap_ab else vec_n_of(permuted_n, epilogue.width),
                "VEC_WIDTH": epilogue.width, "UNROLL": _UNROLL, "PROMOTION_INTERVAL": promotion_interval_of(gemm),
                "Element": STORAGE[im2col.spec.data_type], "Accum": compute,
                **({} if residual is None else {"Residual": STORAGE[residual.data_type]}),
            },
        )  # fmt: skip

    text = batch_invariant_text(op, epilogue, ("gemm", tile, stages, residual is None, *reduction.text_key), write)
    packed = parameters.pack()
    dsmem_bytes = tile.dsmem_bytes(choice.splits) if choice.in_cluster else 0
    shared = stages * (tile.stage_bytes + 16) + tile.order_barrier_bytes + dsmem_bytes
    steps.add(
        Launch(
            text,
            "hopper_gemm",
            (blocks, 1, 1),
            128 * (tile.consumers + 1),
            packed,
            shared,
            starts_early=True,
        )
    )
    if reduction.is_launched:
        steps.add(reduction.launch(text, packed))
    return steps.kernel(name)


def _split(choice: Choice) -> str:
    """The part of a kernel's name that says how K is split."""
    return f"_cluster{choice.splits}" if choice.in_cluster else "_split" if choice.splits > 1 else ""


def _maps(
    op: FusedOp, im2col: Operand, dense: Operand, filter_rows: int, pixels: int, vec_n: int
) -> tuple[list[TensorMap], TensorMap]:
    """Tensor maps: of the im2col operand for each residue, and of the dense operand.

    ``filter_rows`` and ``pixels`` are the extents of one TMA load. ``vec_n``: contiguous columns of a thread, if the
    filter's rows are permuted; 0 otherwise.
    """
    gemm = gemm_problem_of(op)
    spatial = gemm.roles.problem.spatial
    images = [im2col_map(im2col, spatial, box, gemm.traversal_stride, pixels) for box in im2col_boxes_of(op)]
    if gemm.is_wgrad:
        no_window = Im2colBox(*((0,) * SPATIAL,) * 4)
        dense_map = im2col_map(dense, spatial, no_window, (1,) * SPATIAL, SLAB_ROWS)
    elif vec_n:
        dense_map = permuted_filter_map(dense, filter_rows, vec_n)
    else:
        dense_map = filter_map(dense, filter_rows)
    if im2col.spec.data_type is not DataType.FLOAT:
        return images, dense_map
    # TMA rounds to TF32; tensor cores would truncate.
    return [replace(one, is_rounded=True) for one in images], replace(dense_map, is_rounded=True)


@memoize_for_images
def _original_maps(op: FusedOp, filter_rows: int, pixels: int, vec_n: int) -> tuple[list[TensorMap], TensorMap]:
    return _maps(op, *operands_of_images(op), filter_rows, pixels, vec_n)


def _operand_types(gemm: GemmProblem, swap_ab: bool) -> tuple[DataType, DataType]:
    """Types of A and B."""
    im2col, dense = im2col_and_dense(gemm.roles)
    pair = im2col.data_type, dense.data_type
    return pair[::-1] if gemm.is_wgrad or swap_ab else pair


def _cost(task: Task, knobs: Knobs) -> Cost:
    transposed = channels_last_result(task.op)
    if transposed is not None:
        copying = copying_seconds(transposed.result.bytes, task.device)
        return _cost(Task(transposed.op, task.device), knobs).plus({"result": copying})
    choice = choose(gemm_shape_of(task.op), task.device, knobs)
    copying = copy_seconds_of(task.op, task.device)
    phases = {"copies": copying} if copying else {}
    if choice.split_reduction_seconds:
        phases["sum"] = choice.split_reduction_seconds
    if choice.idle:
        phases["idle"] = -choice.idle
    return device_cost(task, choice.seconds + choice.idle - choice.split_reduction_seconds + other_seconds(task)).plus(
        phases
    )


def _effective(task: Task, knobs: Knobs) -> Knobs:
    """The knob values of the kernel that is launched."""
    transposed = channels_last_result(task.op)
    op = task.op if transposed is None else transposed.op
    return effective_knobs(choose(gemm_shape_of(op), task.device, knobs))


_COMMON: dict[str, Any] = {
    "effective": _effective,
    "cost": _cost,
    "generate": generate,
    "knobs": (TILE, STAGES, SPLITS, SPLIT_K_REDUCTION),
    "frugal": {KnobType.SPLIT_K: 1},
    "layout": LayoutType.PREFERRED_NHWC,
}
ENGINE = cuda_engine(
    id=50,
    name="cuda_hopper_gemm",
    summary="convolutions of 16-bit floats and bytes, channels last, on the tensor cores of compute capability 9.0",
    needs=hopper_needs("cuda_hopper_gemm", EXACT_PAIRS),
    **EXACT_OPTIONS,
    **_COMMON,
)
ENGINE_TF32 = cuda_engine(
    id=51,
    name="cuda_hopper_gemm_tf32",
    summary="fp32 convolutions on the same tensor cores, operands rounded to TF32; only where that is allowed",
    needs=hopper_needs("cuda_hopper_gemm_tf32", TF32_PAIRS),
    **TF32_OPTIONS,
    **_COMMON,
)
ENGINE_FP8 = cuda_engine(
    id=60,
    name="cuda_hopper_gemm_fp8",
    summary="fp8 convolutions on the same tensor cores, which keep 14 digits of 128 products; only where allowed",
    needs=hopper_needs("cuda_hopper_gemm_fp8", FP8_PAIRS),
    **FP8_OPTIONS,
    **_COMMON,
)
ENGINE_FP8_FAST = cuda_engine(
    id=61,
    name="cuda_hopper_gemm_fp8_fast",
    summary="the same where the compute type is FAST_FLOAT_FOR_FP8, which allows it",
    needs=hopper_needs("cuda_hopper_gemm_fp8_fast", FP8_PAIRS, (DataType.FAST_FLOAT_FOR_FP8,)),
    **FP8_FAST_OPTIONS,
    **_COMMON,
)

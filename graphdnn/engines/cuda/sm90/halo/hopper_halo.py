"""Engine ``cuda_hopper_halo``: convolutions of unit stride whose taps share a halo tile (hopper_halo.cu).

``cuda_hopper_gemm`` loads each pixel once for every tap, and with few channels and few columns these loads dominate.
Here a halo tile is loaded once for all taps. A filter of one tap is served if it stays in shared memory: then no pixel
is loaded twice, and each warpgroup has its own pipeline.

| direction | rows (M) | columns (N) | K               | A  | B           |
|-----------|----------|-------------|-----------------|----|-------------|
| fprop     | pixel    | channel k   | taps, channel c | x  | w, K-major  |
| dgrad     | pixel    | channel c   | taps, channel k | dy | w, MN-major |
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

from graphdnn.cuda.tensor_map import TensorMap
from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.codegen.cost import device_cost, other_seconds, with_idle_sms
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.epilogue import epilogue_of
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.codegen.tensor_cores import EXACT_OPTIONS, EXACT_PAIRS, INTEGERS, TF32_OPTIONS, TF32_PAIRS
from graphdnn.engines.cuda.conv_geometry.convolution_roles import CHANNELS
from graphdnn.engines.cuda.conv_geometry.gemm_problem import GemmProblem, gemm_problem_of
from graphdnn.engines.cuda.sm90.conv_gemm_shape import gemm_shape_of
from graphdnn.engines.cuda.sm90.epilogue_operands import residual_tile_map, tma_residual
from graphdnn.engines.cuda.sm90.fitted_constants import HALO
from graphdnn.engines.cuda.sm90.flat_pixels import flat_gemm, flat_map, flat_space, is_flat
from graphdnn.engines.cuda.sm90.gemm_fields import TileGrid, describe_work_tiles, tail_mma_steps, work_tile_variants
from graphdnn.engines.cuda.sm90.halo.halo_requirements import halo_needs
from graphdnn.engines.cuda.sm90.halo.halo_shape import Taps, channels_of_k_block, shape_of
from graphdnn.engines.cuda.sm90.halo.halo_tile import HaloTile, Shape
from graphdnn.engines.cuda.sm90.halo.halo_tile_choice import TILE, TILES, Choice, choose
from graphdnn.engines.cuda.sm90.tensor_maps import (
    MAX_VEC_N,
    filter_map,
    halo_tile_map,
    im2col_box_of,
    permuted_filter_map,
    permuted_vec_n,
    row_pair_filter_map,
    vec_n_of,
)
from graphdnn.engines.cuda.sm90.tile import SLAB_ROWS
from graphdnn.engines.cuda.sm90.tma_operands import Operand, copy_seconds_of, is_filter_transposed, operands
from graphdnn.engines.cuda.sm90.wgmma_text import wgmma_ss_text
from graphdnn.engines.engine import Cost, Knobs, Task
from graphdnn.enums import DataType, LayoutType
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.tensors import TensorSpec

_ROW_PAIR = 2  # contiguous channels of a thread, if rows are channels


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    gemm, shape = gemm_problem_of(op), shape_of(op)
    roles, choice = gemm.roles, choose(shape, device, knobs)
    assert choice is not None, "a requirement is that some tile fits"
    tile, flat = choice.tile, is_flat(op)
    steps = LaunchSequence(op, device)
    image, filter = (operand.prepared(steps) for operand in operands(roles))
    parameters = Parameters(steps.workspace_offsets)
    compute = COMPUTE_TYPE[roles.op.compute_type]
    filter_mn_major = roles.direction == "dgrad" and not is_filter_transposed(roles)
    permuted_n = _permuted_n(op, choice, filter, filter_mn_major=filter_mn_major)
    vec_n, spatial = permuted_n or MAX_VEC_N, _spatial_axes(op)
    _describe_operands(op, choice, parameters, (image, filter), permuted_n, filter_mn_major=filter_mn_major)
    space, result_gemm = (flat_space(roles.space(roles.output)), flat_gemm(gemm)) if flat else (
        roles.space(roles.output), gemm
    )  # fmt: skip
    residual = tma_residual(op, result_gemm) if tile.loads_residual(shape) else None
    if residual is not None:
        residual_map = residual_tile_map(space, residual, tile.height, tile.width, spatial)
        parameters.maps("residual", [(residual, residual_map)])
    epilogue = epilogue_of(steps, parameters, space, CHANNELS, vec_n, compute, residual=residual)
    tap_stride = 0 if filter_mn_major else filter.tap_stride
    grid = (min(_describe_tiles(op, result_gemm, choice, parameters, tap_stride), device.sm_count), 1, 1)

    types = image.spec.data_type, filter.spec.data_type
    name = f"conv_{roles.direction}__halo_{tile.name}x{choice.stages}x{choice.filter_stages}__{op.name}"
    entry = "hopper_halo_swap_ab" if tile.swap_ab else "hopper_halo"
    has_fixed_columns = types[0] in INTEGERS and (
        tile.is_weight_stationary or grid[0] % -(-shape.columns // tile.bn) == 0
    )
    text = kernel_text(
        name,
        ["hopper_halo_swap_ab.cu" if tile.swap_ab else "hopper_halo.cu"],
        variants={
            **work_tile_variants(parameters),
            **({} if tile.swap_ab else {"RESIDUAL_TILE": residual is not None}),
        },
        parameters=parameters.text,
        functions=[
            *epilogue.functions,
            epilogue.prefetch_function,
            wgmma_ss_text(*(types[::-1] if tile.swap_ab else types), tile.columns(shape), False, filter_mn_major),
        ],
        constants={
            **_tile_constants(choice, shape),
            "FILTER_MN_MAJOR": filter_mn_major, "PERMUTE_N": permuted_n > 0,
            "SPATIAL": spatial, "TAIL_MMA_STEPS": tail_mma_steps(result_gemm),
            "FIXED_COLUMN_TILE": has_fixed_columns,
            "VEC_N": vec_n_of(permuted_n, epilogue.width), "VEC_WIDTH": epilogue.width,
            "PREFETCH_ELEMENTS": 0 if tile.is_weight_stationary else epilogue.prefetch_elements,
            "Element": STORAGE[types[0]], "Accum": compute,
            **({} if tile.swap_ab else {"SPLIT_LAST_TAP": _splits_last_tap(choice, shape, residual)}),
            **({} if residual is None else {"Residual": STORAGE[residual.data_type]}),
        },
    )  # fmt: skip
    threads, shared = 128 * (tile.consumers + 1), choice.shared_bytes(shape)
    steps.add(Launch(text, entry, grid, threads, parameters.pack(), shared, starts_early=True))
    return steps.kernel(name)


def _spatial_axes(op: FusedOp) -> int:
    """Spatial axes of a halo tile: 3 for volumes, otherwise 2."""
    return 3 if gemm_problem_of(op).roles.problem.spatial == 3 and not is_flat(op) else 2


def _permuted_n(op: FusedOp, choice: Choice, filter: Operand, *, filter_mn_major: bool) -> int:
    """Contiguous columns of a thread by permutation of the filter; 0 without permutation."""
    if filter_mn_major or choice.tile.swap_ab:
        return 0 if filter_mn_major else _ROW_PAIR
    return permuted_vec_n(filter, max([ELEMENTS[t.data_type].bytes for t in op.outputs]), shape_of(op).pixel_bytes)


def _describe_operands(
    op: FusedOp,
    choice: Choice,
    parameters: Parameters,
    operands: tuple[Operand, Operand],
    permuted_n: int,
    *,
    filter_mn_major: bool,
) -> None:
    """Adds the tensor maps of the image and of the filter."""
    (image, filter), shape, tile = operands, shape_of(op), choice.tile
    extents = tile.halo_extents(shape)
    halo_map = (
        flat_map(image, *extents)
        if is_flat(op)
        else halo_tile_map(image, *extents, shape.pixel_bytes, _spatial_axes(op))
    )
    columns = _filter_map(filter, tile, shape, permuted_n, filter_mn_major=filter_mn_major)
    is_rounded = image.spec.data_type is DataType.FLOAT  # TMA rounds to TF32; tensor cores would truncate
    parameters.maps("im2col_map", [(image.spec, replace(halo_map, is_rounded=is_rounded))])
    parameters.maps("dense_map", [(filter.spec, replace(columns, is_rounded=is_rounded))])


def _describe_tiles(op: FusedOp, gemm: GemmProblem, choice: Choice, parameters: Parameters, tap_stride: int) -> int:
    """Adds the fields of tiles, halo tiles and taps. Returns the number of work items."""
    shape, gemm_shape, tile = shape_of(op), gemm_shape_of(op), choice.tile
    grid = TileGrid.of(gemm_shape, SLAB_ROWS * tile.mma_tiles(shape) * tile.consumers, tile.bn)
    boxes = [im2col_box_of(gemm, residue) for residue in gemm.residues]
    channel_blocks = -(-gemm.channels // channels_of_k_block(gemm))
    describe_work_tiles(parameters, gemm, gemm_shape, grid, boxes, channel_blocks, tap_stride)
    halo_tiles_h, halo_tiles_w = tile.tiles_of_image(shape)
    taps, depth_runs = Taps.of(gemm), -(-shape.output_slices // choice.run)
    halo_tiles = shape.images // shape.output_slices * depth_runs * halo_tiles_h * halo_tiles_w
    parameters.table({
        "splits": 1, "image_pixels": 1,
        "halo_tiles": halo_tiles, "halo_tiles_h": halo_tiles_h, "halo_tiles_w": halo_tiles_w,
        "first_tap_index": taps.first,
        "tile_d": choice.run, "halo_tiles_d": depth_runs,
    })  # fmt: skip
    parameters.integers("tap_index_stride", taps.index_stride)
    return -(-halo_tiles // tile.halo_tiles_per_cta) * -(-shape.columns // tile.bn)


def _tile_constants(choice: Choice, shape: Shape) -> dict[str, int | bool]:
    """The constants of hopper_halo.cu that depend on the tile and the shape only."""
    tile, depth_slices = choice.tile, choice.tile.depth_slices(shape)
    consumer_regs, producer_regs = tile.registers(shape)
    return {
        "TILE_M": SLAB_ROWS * tile.mma_tiles(shape) * tile.consumers, "TILE_N": tile.columns(shape) // depth_slices,
        "CONSUMER_WARPGROUPS": tile.consumers,
        "HALO_TILES": tile.halo_tiles, "STAGES": choice.stages, "FILTER_STAGES": choice.filter_stages,
        "WEIGHT_STATIONARY": tile.is_weight_stationary,
        "DEPTH_SLICES": depth_slices, "PIXEL_BYTES": shape.pixel_bytes, "TILE_H": tile.height, "TILE_W": tile.width,
        "FLAT_ROWS": tile.has_flat_rows,
        "HALO_TILE_BYTES": tile.halo_tile_bytes(shape),
        "TAPS_H": shape.taps[0], "TAPS_W": shape.taps[1],
        "DILATION_H": shape.dilation[0], "DILATION_W": shape.dilation[1],
        "CONSUMER_REGS": consumer_regs, "PRODUCER_REGS": producer_regs,
        "WGRAD": False, "SWAP_AB": tile.swap_ab, "RESIDUES": 1, "SPLIT_K": False,
    }  # fmt: skip


def _splits_last_tap(choice: Choice, shape: Shape, residual: TensorSpec | None) -> bool:
    """Whether each MMA tile issues the products of the last tap on its own, so that its epilogue starts early."""
    tile = choice.tile
    return shape.are_bytes and tile.mma_tiles(shape) == 2 and not tile.is_weight_stationary and residual is None


def _filter_map(filter: Operand, tile: HaloTile, shape: Shape, permuted_n: int, *, filter_mn_major: bool) -> TensorMap:
    """``permuted_n``: contiguous columns of a thread by permutation of the filter; 0 without permutation."""
    rows, row = tile.bn, shape.pixel_bytes
    if filter_mn_major:
        rows, row = shape.pixel_bytes // filter.size, min(SLAB_ROWS, tile.bn) * filter.size
    if tile.swap_ab:
        return row_pair_filter_map(filter, SLAB_ROWS, row)
    return permuted_filter_map(filter, rows, permuted_n, row) if permuted_n else filter_map(filter, rows, row)


def _cost(task: Task, knobs: Knobs) -> Cost:
    choice = choose(shape_of(task.op), task.device, knobs)
    seconds = inf if choice is None else choice.seconds
    copy_seconds = copy_seconds_of(task.op, task.device)
    cost = device_cost(task, seconds + other_seconds(task)).plus({"copies": copy_seconds} if copy_seconds else {})
    if is_flat(task.op) and seconds < cost.parts["memory"] and not gemm_shape_of(task.op).tma_residual_bytes:
        cost = replace(cost, seconds=cost.seconds * HALO.memory_bound_factor)
    return cost if choice is None else with_idle_sms(cost, task.device, choice.work_items, HALO.idle_saving_launches)


def _effective(task: Task, knobs: Knobs) -> Knobs:
    """The knob values of the kernel that is launched."""
    choice = choose(shape_of(task.op), task.device, knobs)
    return {} if choice is None else {TILE.type: TILES.index(choice.tile) + 1}


_COMMON: dict[str, Any] = {
    "cost": _cost,
    "generate": generate,
    "knobs": (TILE,),
    "effective": _effective,
    "layout": LayoutType.PREFERRED_NHWC,
}
ENGINE = cuda_engine(
    id=54,
    name="cuda_hopper_halo",
    summary="convolutions of unit stride, few channels and channels last; a halo tile is loaded once for all taps",
    needs=halo_needs("cuda_hopper_halo", EXACT_PAIRS),
    **EXACT_OPTIONS,
    **_COMMON,
)
ENGINE_TF32 = cuda_engine(
    id=56,
    name="cuda_hopper_halo_tf32",
    summary="the same of fp32, operands rounded to TF32; only if TF32 is allowed",
    needs=halo_needs("cuda_hopper_halo_tf32", TF32_PAIRS),
    **TF32_OPTIONS,
    **_COMMON,
)

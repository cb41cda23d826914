"""Engine ``cuda_hopper_halo``: convolutions of unit stride whose taps share a halo tile (hopper_halo.cu).

``cuda_hopper_gemm`` loads each pixel once for every tap, and with few channels and few columns these loads dominate.
Here a halo tile is loaded once for all taps. Filters of one tap are served if they stay in shared memory: then nothing
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
from graphdnn.engines.cuda.conv_geometry.gemm_problem import gemm_problem_of
from graphdnn.engines.cuda.sm90.conv_gemm_shape import gemm_shape_of
from graphdnn.engines.cuda.sm90.epilogue_operands import residual_tile_map, tma_residual
from graphdnn.engines.cuda.sm90.fitted_constants import HALO
from graphdnn.engines.cuda.sm90.flat_pixels import flat_gemm, flat_map, flat_space, is_flat
from graphdnn.engines.cuda.sm90.gemm_fields import TileGrid, describe_work_tiles, tail_mma_steps, work_tile_variants
from graphdnn.engines.cuda.sm90.halo.halo_requirements import halo_needs
from graphdnn.engines.cuda.sm90.halo.halo_shape import Taps, channels_of_k_block, shape_of
from graphdnn.engines.cuda.sm90.halo.halo_tile import HaloTile, Shape
from graphdnn.engines.cuda.sm90.halo.halo_tile_choice import TILE, TILES, choose
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

_ROW_PAIR = 2  # contiguous channels of a thread, where rows are channels


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    gemm, shape, gemm_shape = gemm_problem_of(op), shape_of(op), gemm_shape_of(op)
    roles, choice = gemm.roles, choose(shape, device, knobs)
    assert choice is not None, "a requirement is that some tile fits"
    tile, flat = choice.tile, is_flat(op)
    spatial = 3 if roles.problem.spatial == 3 and not flat else 2
    steps = LaunchSequence(op, device)
    image, filter = (operand.prepared(steps) for operand in operands(roles))
    parameters = Parameters(steps.workspace_offsets)
    compute = COMPUTE_TYPE[roles.op.compute_type]

    filter_mn_major = roles.direction == "dgrad" and not is_filter_transposed(roles)
    widest = max([ELEMENTS[t.data_type].bytes for t in op.outputs])
    permuted_n = (
        0 if filter_mn_major else _ROW_PAIR if tile.swap_ab else permuted_vec_n(filter, widest, shape.pixel_bytes)
    )
    vec_n = permuted_n or MAX_VEC_N
    halo_extents = tile.halo_extents(shape)
    halo_map = (
        flat_map(image, *halo_extents) if flat else halo_tile_map(image, *halo_extents, shape.pixel_bytes, spatial)
    )
    is_rounded = image.spec.data_type is DataType.FLOAT  # TMA rounds to TF32; tensor cores would truncate
    parameters.maps("im2col_map", [(image.spec, replace(halo_map, is_rounded=is_rounded))])
    columns = _filter_map(filter, tile, shape, permuted_n, filter_mn_major=filter_mn_major)
    parameters.maps("dense_map", [(filter.spec, replace(columns, is_rounded=is_rounded))])

    out_space = roles.space(roles.output)
    if flat:
        out_space, gemm = flat_space(out_space), flat_gemm(gemm)
    residual = tma_residual(op, gemm) if tile.loads_residual(shape) else None
    if residual is not None:
        residual_map = residual_tile_map(out_space, residual, tile.height, tile.width, spatial)
        parameters.maps("residual", [(residual, residual_map)])
    epilogue = epilogue_of(steps, parameters, out_space, CHANNELS, vec_n, compute, residual=residual)
    mma_tiles, tiles_n = tile.mma_tiles(shape), -(-shape.columns // tile.bn)
    grid_of_tiles = TileGrid.of(gemm_shape, SLAB_ROWS * mma_tiles * tile.consumers, tile.bn)
    im2col_boxes = [im2col_box_of(gemm, residue) for residue in gemm.residues]
    channel_blocks, tap_stride = (
        -(-gemm.channels // channels_of_k_block(gemm)),
        0 if filter_mn_major else filter.tap_stride,
    )
    describe_work_tiles(parameters, gemm, gemm_shape, grid_of_tiles, im2col_boxes, channel_blocks, tap_stride)
    halo_tiles_h, halo_tiles_w = tile.tiles_of_image(shape)
    taps, depth_slices, depth_runs = Taps.of(gemm), tile.depth_slices(shape), -(-shape.output_slices // choice.run)
    halo_tiles = shape.images // shape.output_slices * depth_runs * halo_tiles_h * halo_tiles_w
    parameters.table({
        "splits": 1, "image_pixels": 1,
        "halo_tiles": halo_tiles, "halo_tiles_h": halo_tiles_h, "halo_tiles_w": halo_tiles_w,
        "first_tap_index": taps.first,
        "tile_d": choice.run, "halo_tiles_d": depth_runs,
    })  # fmt: skip
    parameters.integers("tap_index_stride", taps.index_stride)

    work_items = -(-halo_tiles // tile.halo_tiles_per_cta) * tiles_n
    grid = (min(work_items, device.sm_count), 1, 1)
    consumer_regs, producer_regs = tile.registers(shape)
    name = f"conv_{roles.direction}__halo_{tile.name}x{choice.stages}x{choice.filter_stages}__{op.name}"
    types, mma_columns = (image.spec.data_type, filter.spec.data_type), tile.columns(shape)
    splits_last_tap = shape.are_bytes and mma_tiles == 2 and not tile.is_weight_stationary and residual is None
    has_fixed_columns = image.spec.data_type in INTEGERS and (tile.is_weight_stationary or grid[0] % tiles_n == 0)
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
            wgmma_ss_text(*(types[::-1] if tile.swap_ab else types), mma_columns, False, filter_mn_major),
        ],
        constants={
            "TILE_M": SLAB_ROWS * mma_tiles * tile.consumers, "TILE_N": mma_columns // depth_slices,
            "CONSUMER_WARPGROUPS": tile.consumers,
            "HALO_TILES": tile.halo_tiles, "STAGES": choice.stages, "FILTER_STAGES": choice.filter_stages,
            "WEIGHT_STATIONARY": tile.is_weight_stationary,
            "DEPTH_SLICES": depth_slices, "PIXEL_BYTES": shape.pixel_bytes, "TILE_H": tile.height, "TILE_W": tile.width,
            "FLAT_ROWS": tile.has_flat_rows,
            "HALO_TILE_BYTES": tile.halo_tile_bytes(shape),
            "TAPS_H": shape.taps[0], "TAPS_W": shape.taps[1],
            "DILATION_H": shape.dilation[0], "DILATION_W": shape.dilation[1],
            "CONSUMER_REGS": consumer_regs, "PRODUCER_REGS": producer_regs,
            "WGRAD": False, "SWAP_AB": tile.swap_ab, "FILTER_MN_MAJOR": filter_mn_major, "PERMUTE_N": permuted_n > 0,
            "RESIDUES": 1, "SPATIAL": spatial, "SPLIT_K": False, "TAIL_MMA_STEPS": tail_mma_steps(gemm),
            "FIXED_COLUMN_TILE": has_fixed_columns,
            "VEC_N": vec_n_of(permuted_n, epilogue.width), "VEC_WIDTH": epilogue.width,
            "PREFETCH_ELEMENTS": 0 if tile.is_weight_stationary else epilogue.prefetch_elements,
            "Element": STORAGE[image.spec.data_type], "Accum": compute,
            **({} if tile.swap_ab else {"SPLIT_LAST_TAP": splits_last_tap}),
            **({} if residual is None else {"Residual": STORAGE[residual.data_type]}),
        },
    )  # fmt: skip
    shared = choice.shared_bytes(shape)
    threads = 128 * (tile.consumers + 1)
    entry = "hopper_halo_swap_ab" if tile.swap_ab else "hopper_halo"
    steps.add(Launch(text, entry, grid, threads, parameters.pack(), shared, starts_early=True))
    return steps.kernel(name)


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
    summary="the same of fp32, operands rounded to TF32; only where that is allowed",
    needs=halo_needs("cuda_hopper_halo_tf32", TF32_PAIRS),
    **TF32_OPTIONS,
    **_COMMON,
)

"""Engine ``cuda_hopper_halo``: convolutions of unit stride whose taps share what is copied (hopper_halo.cu).

A walk tap by tap copies each pixel once for every tap. Where few channels meet few columns that copying, not the
products, is the time; here a patch is copied with the pixels around it, once for all taps. Where filters of one tap
stay in shared memory, nothing is copied again either, and each warpgroup goes its own way: that is served as well.

| direction | rows  | columns   | k               | rows from | columns from          |
|-----------|-------|-----------|-----------------|-----------|-----------------------|
| fprop     | pixel | channel k | taps, channel c | x         | w, along k            |
| dgrad     | pixel | channel c | taps, channel k | dy        | w, across k           |
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

from graphdnn.cuda.tensor_map import TensorMap
from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.codegen.cost import device_cost, other_seconds, where_idle
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.epilogue import epilogue_of
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.codegen.tensor_cores import EXACT_PAIRS, INTEGERS, OF_EXACT, OF_TF32, TF32_PAIRS
from graphdnn.engines.cuda.conv_geometry.convolution_roles import CHANNELS
from graphdnn.engines.cuda.conv_geometry.gemm_problem import gemm_problem_of
from graphdnn.engines.cuda.sm90.conv_gemm_shape import gemm_shape_of
from graphdnn.engines.cuda.sm90.epilogue_operands import residual_tile_map, tma_residual
from graphdnn.engines.cuda.sm90.flat_pixels import flat_gemm, flat_map, flat_space, is_flat
from graphdnn.engines.cuda.sm90.gemm_fields import TileGrid, describe_work_tiles, tail_mma_steps
from graphdnn.engines.cuda.sm90.halo.halo_requirements import halo_needs
from graphdnn.engines.cuda.sm90.halo.halo_shape import Taps, channels_of_row, shape_of
from graphdnn.engines.cuda.sm90.halo.halo_tile import Halo, Shape
from graphdnn.engines.cuda.sm90.halo.halo_tile_choice import IDLE, TILE, choose
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

_PAIR = 2  # neighbours: the rows of a thread
_BOUND = 0.97  # of what memory takes with one tap, beside engines that copy filters again and again
_RESIDUAL = {True: "hopper_halo_no_residual.cuh", False: "hopper_halo_residual.cuh"}
_FILES = ("pdl.cuh", "hopper_pipeline.cuh", "conv_work_tile.cuh", "epilogue_store.cuh", "halo_tile.cuh")


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    gemm, shape, sizes = gemm_problem_of(op), shape_of(op), gemm_shape_of(op)
    roles, choice = gemm.roles, choose(shape, device, knobs)
    assert choice is not None, "a rule asks for a patch that fits"
    tile, flat = choice.tile, is_flat(op)
    spatial = 3 if roles.problem.spatial == 3 and not flat else 2
    steps = LaunchSequence(op, device)
    image, filter = (operand.prepared(steps) for operand in operands(roles))
    parameters = Parameters(steps.workspace_offsets)
    compute = COMPUTE_TYPE[roles.op.compute_type]

    filter_mn_major = roles.direction == "dgrad" and not is_filter_transposed(roles)
    widest = max([ELEMENTS[t.data_type].bytes for t in op.outputs])
    permuted = 0 if filter_mn_major else _PAIR if tile.swap_ab else permuted_vec_n(filter, widest, shape.row)
    held = permuted or MAX_VEC_N
    reached = tile.reached(shape)
    patch = flat_map(image, *reached) if flat else halo_tile_map(image, *reached, shape.row, spatial)
    is_rounded = image.spec.data_type is DataType.FLOAT  # what tensor cores would only cut off
    parameters.maps("im2col_map", [(image.spec, replace(patch, is_rounded=is_rounded))])
    columns = _filter_map(filter, tile, shape, permuted, filter_mn_major=filter_mn_major)
    parameters.maps("dense_map", [(filter.spec, replace(columns, is_rounded=is_rounded))])

    out_space = roles.space(roles.output)
    if flat:
        out_space, gemm = flat_space(out_space), flat_gemm(gemm)
    residual = tma_residual(op, gemm) if tile.streams(shape) else None
    if residual is not None:
        boxes = residual_tile_map(out_space, residual, tile.tall, tile.wide, spatial)
        parameters.maps("residual", [(residual, boxes)])
    epilogue = epilogue_of(steps, parameters, out_space, CHANNELS, held, compute, residual=residual)
    groups, across = tile.groups_of_rows(shape), -(-shape.columns // tile.bn)
    layout = TileGrid.of(sizes, SLAB_ROWS * groups * tile.consumers, tile.bn)
    im2col_boxes = [im2col_box_of(gemm, residue) for residue in gemm.residues]
    blocks, tap_pitch = -(-gemm.channels // channels_of_row(gemm)), 0 if filter_mn_major else filter.tap_stride
    describe_work_tiles(parameters, gemm, sizes, layout, im2col_boxes, blocks, tap_pitch)
    down, aside = tile.patches(shape)
    taps, deep, runs = Taps.of(gemm), tile.beside(shape), -(-shape.slices_out // choice.run)
    patches = shape.images // shape.slices_out * runs * down * aside
    parameters.table({
        "splits": 1, "image_pixels": 1,
        "halo_tiles": patches, "halo_tiles_h": down, "halo_tiles_w": aside, "first_tap_index": taps.first,
        "tile_d": choice.run, "halo_tiles_d": runs,
    })  # fmt: skip
    parameters.integers("tap_index_stride", taps.index_stride)

    pieces = -(-patches // tile.of_block) * across
    grid = (min(pieces, device.sm_count), 1, 1)
    consumer_regs, producer_regs = tile.registers(shape)
    name = f"conv_{roles.direction}__halo_{tile.name}x{choice.stages}x{choice.filters}__{op.name}"
    types, wide = (image.spec.data_type, filter.spec.data_type), tile.columns(shape)
    is_late = shape.are_bytes and groups == 2 and not tile.is_resident and residual is None
    text = kernel_text(
        name,
        [*_FILES, *(["hopper_halo_swap_ab.cu"] if tile.swap_ab else [_RESIDUAL[residual is None], "hopper_halo.cu"])],
        parameters=parameters.text,
        functions=[
            *epilogue.functions,
            epilogue.fetching,
            wgmma_ss_text(*(types[::-1] if tile.swap_ab else types), wide, False, filter_mn_major),
        ],
        constants={
            "TILE_M": SLAB_ROWS * groups * tile.consumers, "TILE_N": wide // deep,
            "CONSUMER_WARPGROUPS": tile.consumers,
            "HALO_TILES": tile.held, "STAGES": choice.stages, "FILTER_STAGES": choice.filters,
            "WEIGHT_STATIONARY": tile.is_resident,
            "DEPTH_SLICES": deep, "PIXEL_BYTES": shape.row, "TILE_H": tile.tall, "TILE_W": tile.wide,
            "FLAT_ROWS": tile.is_linear,
            "HALO_TILE_BYTES": tile.patch_bytes(shape),
            "TAPS_H": shape.taps[0], "TAPS_W": shape.taps[1], "DILATION_H": shape.step[0], "DILATION_W": shape.step[1],
            "CONSUMER_REGS": consumer_regs, "PRODUCER_REGS": producer_regs,
            "WGRAD": False, "SWAP_AB": tile.swap_ab, "FILTER_MN_MAJOR": filter_mn_major, "PERMUTE_N": permuted > 0,
            "RESIDUES": 1, "SPATIAL": spatial, "SPLIT_K": False, "TAIL_MMA_STEPS": tail_mma_steps(gemm),
            "FIXED_COLUMN_TILE": image.spec.data_type in INTEGERS and (tile.is_resident or grid[0] % across == 0),
            "VEC_N": vec_n_of(permuted, epilogue.width), "VEC_WIDTH": epilogue.width,
            "PREFETCH_ELEMENTS": 0 if tile.is_resident else epilogue.fetched,
            "Element": STORAGE[image.spec.data_type], "Accum": compute,
            **({} if tile.swap_ab else {"SPLIT_LAST_TAP": is_late}),
            **({} if residual is None else {"Residual": STORAGE[residual.data_type]}),
        },
    )  # fmt: skip
    shared = choice.shared_bytes(shape)
    threads = 128 * (tile.consumers + 1)
    entry = "hopper_halo_swap_ab" if tile.swap_ab else "hopper_halo"
    steps.add(Launch(text, entry, grid, threads, parameters.pack(), shared, starts_early=True))
    return steps.kernel(name)


def _filter_map(filter: Operand, tile: Halo, shape: Shape, permuted: int, *, filter_mn_major: bool) -> TensorMap:
    """``permuted``: columns that follow each other in a thread, 0 where filters lie in their own order."""
    rows, row = tile.bn, shape.row
    if filter_mn_major:
        rows, row = shape.row // filter.size, min(SLAB_ROWS, tile.bn) * filter.size
    if tile.swap_ab:
        return row_pair_filter_map(filter, SLAB_ROWS, row)
    return permuted_filter_map(filter, rows, permuted, row) if permuted else filter_map(filter, rows, row)


def _cost(task: Task, knobs: Knobs) -> Cost:
    choice = choose(shape_of(task.op), task.device, knobs)
    seconds = inf if choice is None else choice.seconds
    copying = copy_seconds_of(task.op, task.device)
    cost = device_cost(task, seconds + other_seconds(task)).plus({"copies": copying} if copying else {})
    if is_flat(task.op) and seconds < cost.parts["memory"] and not gemm_shape_of(task.op).tma_residual_bytes:
        cost = replace(cost, seconds=cost.seconds * _BOUND)
    return cost if choice is None else where_idle(cost, task.device, choice.pieces, IDLE)


_COMMON: dict[str, Any] = {"cost": _cost, "generate": generate, "knobs": (TILE,), "layout": LayoutType.PREFERRED_NHWC}
ENGINE = cuda_engine(
    id=54,
    name="cuda_hopper_halo",
    summary="convolutions of unit stride, few channels and channels last; pieces of an image copied once for all taps",
    needs=halo_needs("cuda_hopper_halo", EXACT_PAIRS),
    **OF_EXACT,
    **_COMMON,
)
ENGINE_TF32 = cuda_engine(
    id=56,
    name="cuda_hopper_halo_tf32",
    summary="the same of fp32, operands rounded to TF32; only where that is allowed",
    needs=halo_needs("cuda_hopper_halo_tf32", TF32_PAIRS),
    **OF_TF32,
    **_COMMON,
)

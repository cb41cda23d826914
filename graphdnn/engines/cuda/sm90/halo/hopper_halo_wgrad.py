"""Engine ``cuda_hopper_halo_wgrad``: filter gradients of unit stride whose taps share a halo tile
(hopper_halo_wgrad.cu).

``cuda_hopper_gemm`` loads each pixel once for every tap, and with few channels these loads dominate. Here a halo tile
of x is loaded once for all taps. A CTA has all taps of 64 channels of dy and 64 or 32 channels of x: with 32, partial
sums are fewer, and dy is loaded more often.
"""

from __future__ import annotations

from math import inf, prod

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.cost import device_cost, other_seconds
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.epilogue import epilogue_of
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import STORAGE, Parameters
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.conv_geometry.convolution_roles import CHANNELS
from graphdnn.engines.cuda.conv_geometry.gemm_problem import gemm_problem_of
from graphdnn.engines.cuda.simt.implicit_copies import copying_seconds
from graphdnn.engines.cuda.sm90.conv_gemm_shape import gemm_shape_of
from graphdnn.engines.cuda.sm90.epilogue_operands import result_space
from graphdnn.engines.cuda.sm90.gemm_fields import TileGrid, describe_work_tiles, work_tile_variants
from graphdnn.engines.cuda.sm90.halo.halo_shape import Taps
from graphdnn.engines.cuda.sm90.halo.halo_wgrad_requirements import NEEDS, shape_of
from graphdnn.engines.cuda.sm90.halo.halo_wgrad_tiles import (
    SPLITS,
    TILE,
    TILES,
    Choice,
    Shape,
    choose,
    overlapped_registers,
    registers,
)
from graphdnn.engines.cuda.sm90.split_k import MAX_OVERLAPPED_TILES, OVERLAP_BYTES, SplitKReduction
from graphdnn.engines.cuda.sm90.tensor_maps import halo_tile_map, im2col_box_of
from graphdnn.engines.cuda.sm90.tile import SLAB_ROWS
from graphdnn.engines.cuda.sm90.tma_operands import operands
from graphdnn.engines.cuda.sm90.wgmma_text import wgmma_ss_text
from graphdnn.engines.engine import Cost, Knobs, Task
from graphdnn.engines.sum_error import CUT
from graphdnn.enums import KnobType, LayoutType, NumericalNote
from graphdnn.fusion.fused_graph import FusedOp

_VEC_N = 8  # contiguous columns of a thread
_BYTES = 2  # of an element


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    gemm, shape = gemm_problem_of(op), shape_of(op)
    roles, choice = gemm.roles, choose(shape, device, knobs)
    assert choice is not None, "a requirement is that some tile fits"
    tile, is_split, spatial = choice.tile, choice.splits > 1, roles.problem.spatial
    steps = LaunchSequence(op, device)
    image, gradient = (operand.prepared(steps) for operand in operands(roles))
    element = image.spec.data_type
    parameters, pixel_bytes = Parameters(steps.workspace_offsets), tile.channels * _BYTES
    parameters.maps("im2col_map", [(image.spec, halo_tile_map(image, *tile.halo_extents(shape), pixel_bytes, spatial))])
    parameters.maps("dense_map", [(gradient.spec, halo_tile_map(gradient, tile.height, tile.width, spatial=spatial))])
    epilogue = epilogue_of(steps, parameters, (result_space,), CHANNELS, _VEC_N, "float")
    _describe_tiles(op, choice, parameters)
    reduction, overlapped = _reduction_of(choice, shape)
    reduction.describe(parameters, steps, "float")
    parameters.integer("trigger_early", int(reduction.overlaps))
    stages = tile.stages(shape, device.shared_memory - OVERLAP_BYTES * reduction.overlaps)

    taps_h, taps_w = shape.taps
    threads = 128 * (taps_h + 1)
    consumer_regs, producer_regs, launch_threads = overlapped or (*registers(taps_h), threads)
    name = f"conv_wgrad__halo_{tile.name}x{stages}{'_split' if is_split else ''}__{op.name}"
    text = kernel_text(
        name,
        ["hopper_halo_wgrad.cu", *(["split_k_reduce.cu"] if is_split else [])],
        variants=work_tile_variants(parameters),
        parameters=parameters.text,
        functions=[
            *epilogue.functions,
            wgmma_ss_text(element, element, taps_w * tile.channels, True, True),
        ],
        constants={
            "TILE_M": SLAB_ROWS, "TILE_N": SLAB_ROWS, "CONSUMER_WARPGROUPS": 1,
            "STAGES": stages, "LAUNCH_THREADS": launch_threads,
            "TILE_H": tile.height, "TILE_W": tile.width, "CHANNELS": tile.channels,
            "TAPS_H": taps_h, "TAPS_W": taps_w,
            "DILATION_H": shape.dilation[0], "DILATION_W": shape.dilation[1],
            "CONSUMER_REGS": consumer_regs, "PRODUCER_REGS": producer_regs,
            "WGRAD": True, "SWAP_AB": False, "FILTER_MN_MAJOR": False, "PERMUTE_N": False,
            "RESIDUES": 1, "SPATIAL": spatial, "SPLIT_K": is_split, **reduction.constants,
            "VEC_N": _VEC_N, "VEC_WIDTH": epilogue.width,
            "Element": STORAGE[element], "Accum": "float",
        },
    )  # fmt: skip
    packed, shared = parameters.pack(), stages * (tile.stage_bytes(shape) + 16)
    split_blocks = prod(tile.filter_blocks(shape)) - choice.unsplit_blocks
    grid = (min(choice.unsplit_blocks + split_blocks * choice.splits, device.sm_count), 1, 1)
    steps.add(Launch(text, "hopper_halo_wgrad", grid, threads, packed, shared, starts_early=True))
    if is_split:
        steps.add(reduction.launch(text, packed))
    return steps.kernel(name)


def _describe_tiles(op: FusedOp, choice: Choice, parameters: Parameters) -> None:
    """Adds the fields of tiles, filter blocks, halo tiles and taps."""
    gemm, shape, tile = gemm_problem_of(op), shape_of(op), choice.tile
    gemm_shape, taps = gemm_shape_of(op), Taps.of(gemm)
    channel_blocks = -(-shape.channels // SLAB_ROWS)
    grid = TileGrid.of(gemm_shape, SLAB_ROWS, SLAB_ROWS)
    boxes = [im2col_box_of(gemm, residue) for residue in gemm.residues]
    tap_blocks = shape.depth_taps * shape.tap_count * channel_blocks
    describe_work_tiles(parameters, gemm, gemm_shape, grid, boxes, channel_blocks, tap_blocks=tap_blocks)
    tiles_h, tiles_w = tile.halo_tiles(shape)
    parameters.table({
        "image_pixels": 1,
        "filter_blocks": prod(tile.filter_blocks(shape)), "unsplit_blocks": choice.unsplit_blocks,
        "filter_blocks_n": tile.filter_blocks(shape)[1],
        "halo_tiles": shape.images * tiles_h * tiles_w, "halo_tiles_h": tiles_h, "halo_tiles_w": tiles_w,
        "first_tap_index": taps.first,
    })  # fmt: skip
    parameters.integers("tap_index_stride", taps.index_stride)


def _reduction_of(choice: Choice, shape: Shape) -> tuple[SplitKReduction, tuple[int, int, int] | None]:
    """The reduction of splits, and ``overlapped_registers`` of the kernel if the reduction overlaps it."""
    tile, filter_blocks = choice.tile, prod(choice.tile.filter_blocks(shape))
    may_overlap = choice.splits > 1 and filter_blocks <= MAX_OVERLAPPED_TILES
    overlapped = overlapped_registers(shape.taps, tile) if may_overlap else None
    fragments = shape.tap_count * tile.channels // 32
    partial_sums = (filter_blocks - choice.unsplit_blocks) * fragments * 64 * 32
    return SplitKReduction(partial_sums, choice.splits, overlaps=overlapped is not None), overlapped


def _cost(task: Task, knobs: Knobs) -> Cost:
    choice = choose(shape_of(task.op), task.device, knobs)
    seconds = inf if choice is None else choice.seconds
    copied = [o.spec.bytes for o in operands(gemm_problem_of(task.op).roles) if o.is_copied]
    copying = sum(copying_seconds(size, task.device) for size in copied)
    return device_cost(task, seconds + other_seconds(task)).plus({"copies": copying} if copied else {})


def _effective(task: Task, knobs: Knobs) -> Knobs:
    """The knob values of the kernel that is launched."""
    choice = choose(shape_of(task.op), task.device, knobs)
    return {} if choice is None else {TILE.type: TILES.index(choice.tile) + 1, SPLITS.type: choice.splits}


ENGINE = cuda_engine(
    id=79,
    name="cuda_hopper_halo_wgrad",
    summary="filter gradients of unit stride, 16-bit floats, channels last; a halo tile is loaded once for all taps",
    needs=NEEDS,
    cost=_cost,
    generate=generate,
    knobs=(TILE, SPLITS),
    effective=_effective,
    frugal={KnobType.SPLIT_K: 1},
    layout=LayoutType.PREFERRED_NHWC,
    numerical_notes=(NumericalNote.TENSOR_CORE,),
    sum_error=CUT,
)

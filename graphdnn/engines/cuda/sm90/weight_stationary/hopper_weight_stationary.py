"""Engine ``cuda_hopper_weight_stationary``: forward convolutions whose filters stay in shared memory.

| direction | rows (M) | columns (N) | K               | A          | B          |
|-----------|----------|-------------|-----------------|------------|------------|
| fprop     | pixel    | channel k   | taps, channel c | x, K-major | w, K-major |

``cuda_hopper_gemm`` loads filters again for every tile, and its warpgroups wait for the same stages. Here the main loop
loads pixels alone, at any stride, each warpgroup has its own pipeline, and column operands are loaded once.
"""

from __future__ import annotations

from graphdnn.cuda.nvrtc import KernelText
from graphdnn.cuda.tensor_map import TensorMap
from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.batch_invariance import memoize_for_images
from graphdnn.engines.cuda.codegen.cost import device_cost, other_seconds, with_idle_sms
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.epilogue import batch_invariant_text, epilogue_of
from graphdnn.engines.cuda.codegen.index_space import IndexSpace
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.codegen.tensor_cores import EXACT_OPTIONS
from graphdnn.engines.cuda.conv_geometry.convolution_roles import CHANNELS
from graphdnn.engines.cuda.conv_geometry.gemm_problem import gemm_problem_of
from graphdnn.engines.cuda.sm90.conv_gemm_shape import gemm_shape_of
from graphdnn.engines.cuda.sm90.fitted_constants import WEIGHT_STATIONARY
from graphdnn.engines.cuda.sm90.flat_pixels import flat_space
from graphdnn.engines.cuda.sm90.gemm_fields import (
    TileGrid,
    describe_work_tiles,
    tail_mma_steps,
    tap_fields_of,
    work_tile_variants,
)
from graphdnn.engines.cuda.sm90.tensor_maps import (
    MAX_VEC_N,
    filter_map,
    im2col_boxes_of,
    im2col_map,
    permuted_filter_map,
    permuted_vec_n,
    vec_n_of,
    with_images,
)
from graphdnn.engines.cuda.sm90.tile import SLAB_ROWS, SWIZZLE_BYTES
from graphdnn.engines.cuda.sm90.tma_operands import Operand, copy_seconds_of, has_copies, operands_of_images, prepared
from graphdnn.engines.cuda.sm90.weight_stationary.weight_stationary_requirements import NEEDS
from graphdnn.engines.cuda.sm90.weight_stationary.weight_stationary_shape import shape_of
from graphdnn.engines.cuda.sm90.weight_stationary.weight_stationary_tiles import TILE, TILES, Tile, choose
from graphdnn.engines.cuda.sm90.wgmma_text import wgmma_ss_text
from graphdnn.engines.engine import Cost, Knobs, Task
from graphdnn.enums import LayoutType
from graphdnn.fusion.fused_graph import FusedOp


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    gemm, shape = gemm_problem_of(op), shape_of(op)
    roles, choice = gemm.roles, choose(shape, device, knobs)
    assert choice is not None, "a requirement is that the filters fit"
    tile = choice.tile
    steps = LaunchSequence(op, device)
    image, filter = prepared(op, steps)
    parameters = Parameters(steps.workspace_offsets)
    compute = COMPUTE_TYPE[roles.op.compute_type]

    permuted_n = permuted_vec_n(filter, max([ELEMENTS[t.data_type].bytes for t in op.outputs]))
    maps = _maps(op, image, filter, tile.bn, permuted_n) if has_copies(op) else _original_maps(op, tile.bn, permuted_n)
    parameters.maps("im2col_map", [(image.spec, with_images(maps[0], roles.problem.n))])
    parameters.maps("dense_map", [(filter.spec, maps[1])])
    epilogue = epilogue_of(steps, parameters, (_result_space,), CHANNELS, permuted_n or MAX_VEC_N, compute)
    ctas = _describe_tiles(op, tile, parameters, image, filter, device)
    consumer_regs, producer_regs = tile.registers
    name = f"conv_fprop__weight_stationary_{tile.name}x{choice.stages}__{op.name}"

    def write() -> KernelText:
        return kernel_text(
            name,
            ["hopper_weight_stationary.cu"],
            variants=work_tile_variants(parameters),
            parameters=parameters.text,
            functions=[
                *epilogue.functions,
                wgmma_ss_text(image.spec.data_type, filter.spec.data_type, tile.bn, False, False),
            ],
            constants={
                "TILE_M": SLAB_ROWS * tile.consumers, "TILE_N": tile.bn, "CONSUMER_WARPGROUPS": tile.consumers,
                "STAGES": choice.stages,
                "CONSUMER_REGS": consumer_regs, "PRODUCER_REGS": producer_regs,
                "TAIL_MMA_STEPS": tail_mma_steps(gemm),
                "WGRAD": False, "SWAP_AB": False, "FILTER_MN_MAJOR": False, "PERMUTE_N": permuted_n > 0,
                "VEC_N": vec_n_of(permuted_n, epilogue.width),
                "VEC_WIDTH": epilogue.width, "RESIDUES": 1, "SPATIAL": roles.problem.spatial, "SPLIT_K": False,
                "Element": STORAGE[image.spec.data_type], "Accum": compute,
            },
        )  # fmt: skip

    text = batch_invariant_text(op, epilogue, ("weight_stationary", tile, choice.stages), write)
    packed, shared = parameters.pack(), tile.shared_bytes(shape.k_tiles, choice.stages)
    steps.add(Launch(text, "hopper_weight_stationary", (ctas, 1, 1), tile.threads, packed, shared, starts_early=True))
    return steps.kernel(name)


def _describe_tiles(
    op: FusedOp, tile: Tile, parameters: Parameters, image: Operand, filter: Operand, device: DeviceSpec
) -> int:
    """Adds the fields of tiles. Returns the CTAs of the launch: equally many for each tile of columns."""
    gemm, shape = gemm_problem_of(op), gemm_shape_of(op)
    grid = TileGrid.of(shape, SLAB_ROWS, tile.bn)
    channel_blocks = -(-gemm.channels * image.size // SWIZZLE_BYTES)
    fields = tap_fields_of(op)
    describe_work_tiles(parameters, gemm, shape, grid, (), channel_blocks, filter.tap_stride, tap_fields=fields)
    parameters.integer("splits", 1)
    parameters.integer("image_pixels", 1)
    parameters.integer("trigger_early", int(grid.tiles < device.sm_count))
    if shape.may_swap_ab:
        parameters.integer("flat_pixels", 1)
    return min(grid.tiles_m[0], device.sm_count // grid.tiles_n) * grid.tiles_n


def _result_space(op: FusedOp) -> IndexSpace:
    roles = gemm_problem_of(op).roles
    space = roles.space(roles.output)
    return flat_space(space, is_plane=False) if gemm_shape_of(op).may_swap_ab else space


def _maps(op: FusedOp, image: Operand, filter: Operand, rows: int, vec_n: int) -> tuple[TensorMap, TensorMap]:
    """``rows``: of the filter in a TMA load. ``vec_n``: as in a permuted filter map; 0 without permutation."""
    gemm, (box,) = gemm_problem_of(op), im2col_boxes_of(op)
    columns = permuted_filter_map(filter, rows, vec_n) if vec_n else filter_map(filter, rows)
    return im2col_map(image, gemm.roles.problem.spatial, box, gemm.traversal_stride, SLAB_ROWS), columns


@memoize_for_images
def _original_maps(op: FusedOp, rows: int, vec_n: int) -> tuple[TensorMap, TensorMap]:
    return _maps(op, *operands_of_images(op), rows, vec_n)


def _cost(task: Task, knobs: Knobs) -> Cost:
    choice = choose(shape_of(task.op), task.device, knobs)
    assert choice is not None, "a requirement is that the filters fit"
    copying = copy_seconds_of(task.op, task.device)
    cost = device_cost(task, choice.seconds + other_seconds(task)).plus({"copies": copying} if copying else {})
    return with_idle_sms(cost, task.device, choice.work_items, WEIGHT_STATIONARY.idle_saving_launches)


def _effective(task: Task, knobs: Knobs) -> Knobs:
    """The knob values of the kernel that is launched."""
    choice = choose(shape_of(task.op), task.device, knobs)
    return {} if choice is None else {TILE.type: TILES.index(choice.tile) + 1}


ENGINE = cuda_engine(
    id=94,
    name="cuda_hopper_weight_stationary",
    summary="forward convolutions of 16-bit floats and bytes, channels last, whose filters stay in shared memory",
    needs=NEEDS,
    cost=_cost,
    generate=generate,
    knobs=(TILE,),
    effective=_effective,
    layout=LayoutType.PREFERRED_NHWC,
    **EXACT_OPTIONS,
)

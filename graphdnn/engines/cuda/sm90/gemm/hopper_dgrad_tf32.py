"""Engine ``cuda_hopper_dgrad_tf32``: fp32 data gradients in TF32 from MN-major filters (hopper_dgrad_tf32_rs.cu).

| direction | rows (M)  | columns (N) | K               | A                              | B           |
|-----------|-----------|-------------|-----------------|--------------------------------|-------------|
| dgrad     | channel c | pixel       | taps, channel k | w, MN-major, through registers | dy, K-major |

``cuda_hopper_gemm_tf32`` multiplies a K-major copy of the filter. The copy takes 2 us, and 30 us for 59 MB.
"""

from __future__ import annotations

from dataclasses import replace

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.cost import device_cost, memory_seconds, other_seconds, with_idle_sms
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.epilogue import epilogue_of
from graphdnn.engines.cuda.codegen.index_space import IndexSpace
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.codegen.tensor_cores import TF32_OPTIONS
from graphdnn.engines.cuda.conv_geometry.convolution_roles import CHANNELS, Roles
from graphdnn.engines.cuda.conv_geometry.gemm_problem import gemm_problem_of
from graphdnn.engines.cuda.sm90.conv_gemm_shape import gemm_shape_of
from graphdnn.engines.cuda.sm90.epilogue_operands import result_space
from graphdnn.engines.cuda.sm90.fitted_constants import DGRAD_TF32
from graphdnn.engines.cuda.sm90.flat_pixels import flat_space
from graphdnn.engines.cuda.sm90.gemm.dgrad_tf32_requirements import NEEDS
from graphdnn.engines.cuda.sm90.gemm.dgrad_tf32_tiles import TILE, TILES, choose
from graphdnn.engines.cuda.sm90.gemm_fields import TileGrid, describe_work_tiles, work_tile_variants
from graphdnn.engines.cuda.sm90.tensor_maps import filter_map, im2col_box_of, im2col_map
from graphdnn.engines.cuda.sm90.tile import SWIZZLE_BYTES
from graphdnn.engines.cuda.sm90.tma_operands import Operand, operands
from graphdnn.engines.cuda.sm90.wgmma_text import wgmma_rs_text
from graphdnn.engines.engine import Cost, Knobs, Task
from graphdnn.enums import LayoutType
from graphdnn.fusion.fused_graph import FusedOp

_VEC_N = 2  # contiguous channels of a thread
_TILE_K = SWIZZLE_BYTES // 4  # channels of a K tile


def _operands(roles: Roles) -> tuple[Operand, Operand]:
    """dy, and w with its own order of k and c."""
    image, filter = operands(roles)
    return image, Operand(filter.spec, roles.space(filter.spec), True)


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    gemm, sizes = gemm_problem_of(op), gemm_shape_of(op)
    roles, choice = gemm.roles, choose(sizes, device, knobs, memory_seconds(Task(op, device)))
    tile = choice.tile
    steps = LaunchSequence(op, device)
    image, filter = (operand.prepared(steps) for operand in _operands(roles))
    parameters = Parameters(steps.workspace_offsets)
    compute = COMPUTE_TYPE[roles.op.compute_type]

    boxes = [im2col_box_of(gemm, residue) for residue in gemm.residues]
    im2col = im2col_map(image, roles.problem.spatial, boxes[0], gemm.traversal_stride, tile.pixels)
    parameters.maps("im2col_map", [(image.spec, replace(im2col, is_rounded=True))])
    filter_slabs = replace(filter_map(filter, _TILE_K), is_rounded=True)
    parameters.maps("dense_map", [(filter.spec, filter_slabs)])

    epilogue = epilogue_of(steps, parameters, (_result_space,), CHANNELS, _VEC_N, compute)
    layout = TileGrid.of(sizes, tile.pixels, tile.channels)
    describe_work_tiles(parameters, gemm, sizes, layout, boxes, -(-gemm.channels // _TILE_K))
    parameters.integer("splits", 1)

    consumer_regs, producer_regs = tile.registers
    name = f"conv_dgrad__tf32_rs_{tile.name}x{choice.stages}__{op.name}"
    text = kernel_text(
        name,
        ["hopper_dgrad_tf32_rs.cu"],
        variants=work_tile_variants(parameters),
        parameters=parameters.text,
        functions=[
            *epilogue.functions,
            wgmma_rs_text(image.spec.data_type, tile.columns),
        ],
        constants={
            "TILE_M": tile.channels, "TILE_N": tile.pixels, "CONSUMER_WARPGROUPS": tile.consumers,
            "CONSUMERS_M": tile.consumers_m, "CONSUMERS_N": tile.consumers_n, "STAGES": choice.stages,
            "CONSUMER_REGS": consumer_regs, "PRODUCER_REGS": producer_regs,
            "SWAP_AB": True, "WGRAD": False, "FILTER_MN_MAJOR": True, "PERMUTE_N": False, "VEC_N": _VEC_N,
            "RESIDUES": 1, "SPATIAL": roles.problem.spatial, "SPLIT_K": False, "VEC_WIDTH": epilogue.width,
            "Element": STORAGE[image.spec.data_type], "Accum": compute,
        },
    )  # fmt: skip
    grid = (min(layout.tiles, device.sm_count), 1, 1)
    threads = 128 * (tile.consumers + 1)
    shared = choice.stages * (tile.stage_bytes + 16)
    steps.add(Launch(text, "hopper_dgrad_tf32_rs", grid, threads, parameters.pack(), shared, starts_early=True))
    return steps.kernel(name)


def _result_space(op: FusedOp) -> IndexSpace:
    return flat_space(result_space(op), is_plane=False)


def _cost(task: Task, knobs: Knobs) -> Cost:
    copying = sum(o.copying_seconds(task.device) for o in _operands(gemm_problem_of(task.op).roles))
    choice = choose(gemm_shape_of(task.op), task.device, knobs, memory_seconds(task))
    cost = device_cost(task, choice.seconds + other_seconds(task)).plus({"copies": copying} if copying else {})
    return with_idle_sms(cost, task.device, choice.work_items, DGRAD_TF32.idle_saving_launches)


def _effective(task: Task, knobs: Knobs) -> Knobs:
    """The knob values of the kernel that is launched."""
    choice = choose(gemm_shape_of(task.op), task.device, knobs, memory_seconds(task))
    return {TILE.type: TILES.index(choice.tile) + 1}


ENGINE = cuda_engine(
    id=83,
    name="cuda_hopper_dgrad_tf32",
    summary="fp32 data gradients on the same tensor cores in TF32, with MN-major filters that are not copied",
    needs=NEEDS,
    cost=_cost,
    generate=generate,
    knobs=(TILE,),
    effective=_effective,
    layout=LayoutType.PREFERRED_NHWC,
    **TF32_OPTIONS,
)

"""Engine ``cuda_hopper_dgrad_tf32``: data gradients of fp32 in TF32, filters as they lie (hopper_dgrad_tf32_rs.cu).

| direction | rows      | columns | k               | rows from             | columns from |
|-----------|-----------|---------|-----------------|-----------------------|--------------|
| dgrad     | channel c | pixel   | taps, channel k | w, through registers  | dy, along k  |

``cuda_hopper_gemm_tf32`` takes the same from a copy of the filters whose k is innermost: 2 us, and 30 for 59 MB.
"""

from __future__ import annotations

from dataclasses import replace

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.cost import device_cost, memory_seconds, other_seconds, where_idle
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.epilogue import epilogue_of
from graphdnn.engines.cuda.codegen.index_space import IndexSpace
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.codegen.tensor_cores import OF_TF32
from graphdnn.engines.cuda.conv_geometry.convolution_roles import CHANNELS, Roles
from graphdnn.engines.cuda.conv_geometry.gemm_problem import gemm_problem_of
from graphdnn.engines.cuda.sm90.conv_gemm_shape import sizes_of
from graphdnn.engines.cuda.sm90.epilogue_operands import result_space
from graphdnn.engines.cuda.sm90.flat_pixels import flat_space
from graphdnn.engines.cuda.sm90.gemm.dgrad_tf32_requirements import NEEDS
from graphdnn.engines.cuda.sm90.gemm.dgrad_tf32_tiles import IDLE, TILE, choose
from graphdnn.engines.cuda.sm90.gemm_fields import Layout, describe_work
from graphdnn.engines.cuda.sm90.tensor_maps import filter_map, image_map, walk_of
from graphdnn.engines.cuda.sm90.tile import ROW
from graphdnn.engines.cuda.sm90.tma_operands import Operand, operands
from graphdnn.engines.cuda.sm90.wgmma_text import wgmma_rs_text
from graphdnn.engines.engine import Cost, Knobs, Task
from graphdnn.enums import LayoutType
from graphdnn.fusion.fused_graph import FusedOp

_NEIGHBOURS = 2  # channels of a thread
_DEPTH = ROW // 4  # channels of a step
_FILES = ("pdl.cuh", "hopper_pipeline.cuh", "conv_work_tile.cuh", "hopper_dgrad_tf32_rs.cu")


def _operands(roles: Roles) -> tuple[Operand, Operand]:
    """dy, and w with its own k and c."""
    image, filter = operands(roles)
    return image, Operand(filter.spec, roles.space(filter.spec), True)


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    product, sizes = gemm_problem_of(op), sizes_of(op)
    roles, choice = product.roles, choose(sizes, device, knobs, memory_seconds(Task(op, device)))
    tile = choice.tile
    steps = LaunchSequence(op, device)
    image, filter = (operand.prepared(steps) for operand in _operands(roles))
    parameters = Parameters(steps.workspace_offsets)
    compute = COMPUTE_TYPE[roles.op.compute_type]

    walks = [walk_of(product, residue) for residue in product.residues]
    gathered = image_map(image, roles.problem.spatial, walks[0], product.traversal_stride, tile.pixels)
    parameters.maps("im2col_map", [(image.spec, replace(gathered, is_rounded=True))])
    panels = replace(filter_map(filter, _DEPTH), is_rounded=True)
    parameters.maps("dense_map", [(filter.spec, panels)])

    ending = epilogue_of(steps, parameters, (_result_space,), CHANNELS, _NEIGHBOURS, compute)
    layout = Layout.of(sizes, tile.pixels, tile.channels)
    describe_work(parameters, product, sizes, layout, walks, -(-product.channels // _DEPTH))
    parameters.integer("splits", 1)

    multiplying, copying = tile.registers
    name = f"conv_dgrad__across_{tile.name}x{choice.stages}__{op.name}"
    text = kernel_text(
        name,
        _FILES,
        parameters=parameters.text,
        functions=[
            *ending.functions,
            wgmma_rs_text(image.spec.data_type, tile.columns),
        ],
        constants={
            "TILE_M": tile.channels, "TILE_N": tile.pixels, "CONSUMER_WARPGROUPS": tile.consumers,
            "CONSUMERS_M": tile.down, "CONSUMERS_N": tile.across, "STAGES": choice.stages,
            "CONSUMER_REGS": multiplying, "PRODUCER_REGS": copying,
            "SWAP_AB": True, "WGRAD": False, "FILTER_MN_MAJOR": True, "PERMUTE_N": False, "VEC_N": _NEIGHBOURS,
            "RESIDUES": 1, "SPATIAL": roles.problem.spatial, "SPLIT_K": False, "VEC_WIDTH": ending.width,
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
    choice = choose(sizes_of(task.op), task.device, knobs, memory_seconds(task))
    cost = device_cost(task, choice.seconds + other_seconds(task)).plus({"copies": copying} if copying else {})
    return where_idle(cost, task.device, choice.pieces, IDLE)


ENGINE = cuda_engine(
    id=83,
    name="cuda_hopper_dgrad_tf32",
    summary="fp32 data gradients on the same tensor cores in TF32, filters read across the summed axis as they lie",
    needs=NEEDS,
    cost=_cost,
    generate=generate,
    knobs=(TILE,),
    layout=LayoutType.PREFERRED_NHWC,
    **OF_TF32,
)

"""Engine ``cuda_hopper_halo_wgrad``: filter gradients of unit stride whose taps share a copied patch
(hopper_halo_wgrad.cu).

A walk tap by tap (gemm.py) copies each pixel once for every tap. Where few channels meet few channels that
copying is the time; here the pixels around a patch of the gradient are copied once. A block has all taps of 64
channels of the gradient and 64 or 32 of the image: fewer leave fewer partial sums, and copy the gradient more often.
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
from graphdnn.engines.cuda.sm90.conv_gemm_shape import sizes_of
from graphdnn.engines.cuda.sm90.epilogue_operands import result_space
from graphdnn.engines.cuda.sm90.gemm_fields import Layout, describe_work
from graphdnn.engines.cuda.sm90.halo.halo_shape import Taps
from graphdnn.engines.cuda.sm90.halo.halo_wgrad_requirements import NEEDS, shape_of
from graphdnn.engines.cuda.sm90.halo.halo_wgrad_tiles import PARTS, TILE, choose, lean_registers, registers
from graphdnn.engines.cuda.sm90.split_k import FEW_SHARES, ROOM, Adding
from graphdnn.engines.cuda.sm90.tensor_maps import patch_map, walk_of
from graphdnn.engines.cuda.sm90.tile import PANEL
from graphdnn.engines.cuda.sm90.tma_operands import operands
from graphdnn.engines.cuda.sm90.wgmma_text import wgmma_ss_text
from graphdnn.engines.engine import Cost, Knobs, Task
from graphdnn.engines.sum_error import CUT
from graphdnn.enums import KnobType, LayoutType, NumericalNote
from graphdnn.fusion.fused_graph import FusedOp

_NEIGHBOURS = 8  # columns of a thread that follow each other
_BYTES = 2  # of an element
_FILES = (
    "pdl.cuh", "hopper_pipeline.cuh", "conv_work_tile.cuh", "epilogue_store.cuh", "split_k_partials.cuh",
    "hopper_halo_wgrad.cu",
)  # fmt: skip


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    product, shape, sizes = gemm_problem_of(op), shape_of(op), sizes_of(op)
    roles, choice = product.roles, choose(shape, device, knobs)
    assert choice is not None, "a rule asks for a patch that fits"
    tile, is_split = choice.tile, choice.parts > 1
    steps = LaunchSequence(op, device)
    image, gradient = (operand.prepared(steps) for operand in operands(roles))
    kind = image.spec.data_type
    parameters = Parameters(steps.workspace_offsets)
    spatial, row = roles.problem.spatial, tile.channels * _BYTES
    parameters.maps("im2col_map", [(image.spec, patch_map(image, *tile.reached(shape), row, spatial))])
    parameters.maps("dense_map", [(gradient.spec, patch_map(gradient, tile.tall, tile.wide, spatial=spatial))])

    ending = epilogue_of(steps, parameters, (result_space,), CHANNELS, _NEIGHBOURS, "float")
    blocks, layout, taps = -(-shape.channels // PANEL), Layout.of(sizes, PANEL, PANEL), Taps.of(product)
    walks = [walk_of(product, residue) for residue in product.residues]
    describe_work(parameters, product, sizes, layout, walks, blocks, units=shape.deep * shape.tap_count * blocks)
    down, across = tile.patches(shape)
    shares, pieces = prod(tile.shares(shape)), shape.tap_count * tile.channels // 32
    parameters.table({
        "image_pixels": 1,
        "filter_blocks": shares, "unsplit_blocks": choice.whole, "filter_blocks_n": tile.shares(shape)[1],
        "halo_tiles": shape.images * down * across, "halo_tiles_h": down, "halo_tiles_w": across,
        "first_tap_index": taps.first,
    })  # fmt: skip
    parameters.integers("tap_index_stride", taps.pace)
    lines, of_line = shape.taps
    lean = lean_registers(shape.taps, tile) if is_split and shares <= FEW_SHARES else None
    overlaps = lean is not None
    adding = Adding((shares - choice.whole) * pieces * 64 * 32, choice.parts, overlaps=overlaps)
    adding.describe(parameters, steps, "float")
    parameters.integer("trigger_early", int(overlaps))
    stages = tile.stages(shape, device.shared_memory - ROOM * overlaps)

    threads = 128 * (lines + 1)
    multiplying, copying, seats = lean or (*registers(lines), threads)
    name = f"conv_wgrad__halo_{tile.name}x{stages}{'_split' if is_split else ''}__{op.name}"
    text = kernel_text(
        name,
        [*_FILES, *(["split_k_reduce.cu"] if is_split else [])],
        parameters=parameters.text,
        functions=[
            *ending.functions,
            wgmma_ss_text(kind, kind, of_line * tile.channels, True, True),
        ],
        constants={
            "TILE_M": PANEL, "TILE_N": PANEL, "CONSUMER_WARPGROUPS": 1, "STAGES": stages, "LAUNCH_THREADS": seats,
            "TILE_H": tile.tall, "TILE_W": tile.wide, "CHANNELS": tile.channels,
            "TAPS_H": lines, "TAPS_W": of_line, "DILATION_H": shape.step[0], "DILATION_W": shape.step[1],
            "CONSUMER_REGS": multiplying, "PRODUCER_REGS": copying,
            "WGRAD": True, "SWAP_AB": False, "FILTER_MN_MAJOR": False, "PERMUTE_N": False,
            "RESIDUES": 1, "SPATIAL": spatial, "SPLIT_K": is_split, **adding.constants,
            "VEC_N": _NEIGHBOURS, "VEC_WIDTH": ending.width,
            "Element": STORAGE[kind], "Accum": "float",
        },
    )  # fmt: skip
    packed = parameters.pack()
    grid = (min(choice.whole + (shares - choice.whole) * choice.parts, device.sm_count), 1, 1)
    shared = stages * (tile.stage_bytes(shape) + 16)
    steps.add(Launch(text, "hopper_halo_wgrad", grid, threads, packed, shared, starts_early=True))
    if is_split:
        steps.add(adding.launch(text, packed))
    return steps.kernel(name)


def _cost(task: Task, knobs: Knobs) -> Cost:
    choice = choose(shape_of(task.op), task.device, knobs)
    seconds = inf if choice is None else choice.seconds
    copied = [o.spec.bytes for o in operands(gemm_problem_of(task.op).roles) if o.is_copied]
    copying = sum(copying_seconds(size, task.device) for size in copied)
    return device_cost(task, seconds + other_seconds(task)).plus({"copies": copying} if copied else {})


ENGINE = cuda_engine(
    id=79,
    name="cuda_hopper_halo_wgrad",
    summary="filter gradients of unit stride, 16-bit floats, channels last; pieces of images copied once for all taps",
    needs=NEEDS,
    cost=_cost,
    generate=generate,
    knobs=(TILE, PARTS),
    frugal={KnobType.SPLIT_K: 1},
    layout=LayoutType.PREFERRED_NHWC,
    numerical_notes=(NumericalNote.TENSOR_CORE,),
    sum_error=CUT,
)

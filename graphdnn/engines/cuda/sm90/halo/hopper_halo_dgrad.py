"""Engine ``cuda_hopper_halo_dgrad``: strided data gradients whose residues share loads of dy (hopper_halo_dgrad.cu).

``cuda_hopper_gemm`` has one GEMM for each residue of the positions of dx modulo the stride: sums of few taps, and dy is
loaded for each tap of each residue. Here a load of dy serves all residues, which are adjacent columns of the GEMM, and
the filters of a CTA stay in shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.cost import device_cost, other_seconds, with_idle_sms
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.epilogue import ACCUMULATORS_ARGUMENT, epilogue_of
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.codegen.source import include, kernel_text
from graphdnn.engines.cuda.codegen.tensor_cores import EXACT_OPTIONS, FLOAT_PAIRS, TF32_OPTIONS, TF32_PAIRS
from graphdnn.engines.cuda.conv_geometry.convolution_roles import CHANNELS
from graphdnn.engines.cuda.conv_geometry.gemm_problem import gemm_problem_of
from graphdnn.engines.cuda.sm90.conv_gemm_shape import gemm_shape_of
from graphdnn.engines.cuda.sm90.epilogue_operands import result_space
from graphdnn.engines.cuda.sm90.fitted_constants import HALO_DGRAD
from graphdnn.engines.cuda.sm90.gemm_fields import TileGrid, describe_work_tiles, work_tile_variants
from graphdnn.engines.cuda.sm90.halo.halo_dgrad_requirements import dgrad_needs
from graphdnn.engines.cuda.sm90.halo.halo_dgrad_shape import coarse_extents_of, load_box_of, shape_of
from graphdnn.engines.cuda.sm90.halo.halo_dgrad_tiles import TILE, TILES, Choice, Shape, Tile, choose, ctas_of
from graphdnn.engines.cuda.sm90.halo.tap_groups import TapGroups, tap_groups_of
from graphdnn.engines.cuda.sm90.tensor_maps import (
    filter_map,
    im2col_box_of,
    im2col_map,
    is_permutable,
    permuted_filter_map,
)
from graphdnn.engines.cuda.sm90.tile import SLAB_ROWS
from graphdnn.engines.cuda.sm90.tma_operands import Operand, is_filter_transposed, operands
from graphdnn.engines.cuda.sm90.wgmma_text import ACROSS_K, wgmma_rs_text, wgmma_ss_text
from graphdnn.engines.engine import Cost, Knobs, Task
from graphdnn.enums import DataType, LayoutType
from graphdnn.fusion.fused_graph import FusedOp

_EXCHANGED_VEC_N, _PERMUTED_VEC_N = 8, 4  # contiguous columns of a thread: after an exchange, or by permutation

# The epilogue that epilogue_store.cuh calls with accumulators: it rounds them and calls the generated one.
_ROUNDING_EPILOGUE = """\
__device__ __forceinline__ void epilogue(
    const Params& p, const int (&coord)[6], const ColumnOperands& operands, const {compute} (&acc)[{width}],
    bool is_inside
) {{
    Rounded<{epilogue_input}, {width}> rounded = {{}};
    #pragma unroll
    for (int e = 0; e < {width}; ++e)
        rounded.word[e / 2] |= (unsigned int)narrow<{epilogue_input}>(acc[e]).bits << 16 * (e % 2);
    epilogue(p, coord, operands, rounded, is_inside);
}}
"""


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    gemm, shape = gemm_problem_of(op), shape_of(op)
    roles, choice = gemm.roles, choose(shape, device, knobs)
    assert choice is not None, "a requirement is that some tile fits"
    tile, filter_mn_major = choice.tile, not is_filter_transposed(roles)
    steps = LaunchSequence(op, device)
    image, filter = (operand.prepared(steps) for operand in operands(roles))
    element, compute = image.spec.data_type, COMPUTE_TYPE[roles.op.compute_type]
    parameters = Parameters(steps.workspace_offsets)
    is_permuted = not filter_mn_major and is_permutable(filter)
    vec_n = _PERMUTED_VEC_N if is_permuted else _EXCHANGED_VEC_N
    _describe_operands(op, tile, parameters, image, filter)

    is_16bit_epilogue = _rounds_first(op)
    epilogue_input = STORAGE[roles.output.data_type] if is_16bit_epilogue else compute
    taken = "const Rounded<{accumulator}, {width}>& acc" if is_16bit_epilogue else ACCUMULATORS_ARGUMENT
    epilogue = epilogue_of(steps, parameters, (result_space,), CHANNELS, vec_n, epilogue_input, argument=taken)
    _describe_tiles(op, tile, parameters, 0 if filter_mn_major else filter.tap_stride)

    name = f"conv_dgrad__halo_{tile.name}x{choice.stages}__{op.name}"
    rounding = _ROUNDING_EPILOGUE.format(compute=compute, epilogue_input=epilogue_input, width=epilogue.width)
    wgmma = (
        wgmma_rs_text(element, tile.bn, filter_mn_major)
        if tile.a_in_registers
        else wgmma_ss_text(element, element, tile.bn, False, filter_mn_major)
    )
    text = kernel_text(
        name,
        ["hopper_halo_dgrad.cu"],
        variants={**work_tile_variants(parameters), "A_IN_REGISTERS": tile.a_in_registers},
        parameters=parameters.text,
        functions=[
            include("round_to_16bit.cuh"),
            *epilogue.functions,
            *([rounding] if is_16bit_epilogue else []),
            wgmma,
            _tap_tables(tap_groups_of(gemm), tile.is_disjoint),
        ],
        constants={
            **_tile_constants(choice, shape),
            "FILTER_MN_MAJOR": filter_mn_major, "PERMUTE_N": is_permuted,
            "VEC_N": vec_n, "VEC_WIDTH": epilogue.width,
            "Element": STORAGE[element], "Accum": compute,
            "EpilogueInput": epilogue_input, "EPILOGUE_16BIT": is_16bit_epilogue,
        },
    )  # fmt: skip
    grid, threads = (ctas_of(shape, tile, device.sm_count), 1, 1), 128 * (tile.consumers + 1)
    shared = choice.shared_bytes(shape)
    steps.add(Launch(text, "hopper_halo_dgrad", grid, threads, parameters.pack(), shared, starts_early=True))
    return steps.kernel(name)


def _describe_operands(op: FusedOp, tile: Tile, parameters: Parameters, image: Operand, filter: Operand) -> None:
    """Adds the tensor maps of dy and of the filter."""
    filter_mn_major = not is_filter_transposed(gemm_problem_of(op).roles)
    box = load_box_of(op, tile.is_disjoint)
    pixels = im2col_map(image, 2, box, (1, 1, 1), SLAB_ROWS + tile.reach(shape_of(op)))
    if not filter_mn_major and is_permutable(filter):
        columns = permuted_filter_map(filter, tile.bn, _PERMUTED_VEC_N)
    else:
        columns = filter_map(filter, *((SLAB_ROWS, tile.bn * 2) if filter_mn_major else (tile.bn,)))
    is_rounded = image.spec.data_type is DataType.FLOAT  # TMA rounds to TF32; tensor cores would truncate
    parameters.maps("im2col_map", [(image.spec, replace(pixels, is_rounded=is_rounded))])
    parameters.maps("dense_map", [(filter.spec, replace(columns, is_rounded=is_rounded))])


def _describe_tiles(op: FusedOp, tile: Tile, parameters: Parameters, tap_stride: int) -> None:
    """Adds the fields of tiles, and the coarse pixels that a load of dy covers."""
    gemm, shape, gemm_shape = gemm_problem_of(op), shape_of(op), gemm_shape_of(op)
    grid = TileGrid.of(gemm_shape, SLAB_ROWS * tile.consumers, tile.bn)
    boxes = [im2col_box_of(gemm, residue) for residue in gemm.residues]
    describe_work_tiles(parameters, gemm, gemm_shape, grid, boxes, shape.channel_blocks, tap_stride)
    parameters.integer("splits", 1)
    parameters.integer("image_pixels", 1)
    parameters.integer("coarse_pixels", shape.coarse_pixels if tile.is_disjoint else shape.padded_coarse_pixels)
    parameters.integers("coarse_extents", coarse_extents_of(op, tile.is_disjoint))
    parameters.integers("load_corner", load_box_of(op, tile.is_disjoint).lower[1:])


def _tile_constants(choice: Choice, shape: Shape) -> dict[str, int | bool]:
    """The constants of hopper_halo_dgrad.cu that depend on the tile and the shape only."""
    tile = choice.tile
    consumer_regs, producer_regs = tile.registers
    return {
        "TILE_M": SLAB_ROWS * tile.consumers, "TILE_N": tile.bn, "CONSUMER_WARPGROUPS": tile.consumers,
        "STAGES": choice.stages,
        "RESIDUES": shape.residues, "TAPS": shape.taps,
        "LOADS": tile.loads(shape), "ORDERED_MAINLOOPS": choice.orders_mainloops(shape),
        "LOADED_PIXELS": SLAB_ROWS + tile.reach(shape),
        "CONSUMER_REGS": consumer_regs, "PRODUCER_REGS": producer_regs,
        "WGRAD": False, "SWAP_AB": False, "SPATIAL": 2, "SPLIT_K": False,
    }  # fmt: skip


def _rounds_first(op: FusedOp) -> bool:
    """Whether accumulators become 16-bit floats before any other operation."""
    anchor = op.main
    (result,) = anchor.outputs().values()
    is_scaled = getattr(anchor, "alpha", 1.0) != 1.0 or getattr(anchor, "beta", 0.0) != 0.0
    return result.data_type in ACROSS_K and not is_scaled


def _tap_tables(tap_groups: TapGroups, is_disjoint: bool) -> str:
    """The arrays of hopper_halo_dgrad.cu."""
    taps, rows, loads = tap_groups.taps, tap_groups.rows, tap_groups.loads(is_disjoint)
    residues = [tap.residue for tap in taps]
    tables: dict[str, Sequence[int]] = {
        "GROUP_OF_TAP": [tap_groups.offsets.index(tap.offset) for tap in taps],
        "LOAD_OF_GROUP": [
            loads.index(place if is_disjoint else (place[0], tap_groups.column)) for place in tap_groups.offsets
        ],
        "ROW_OFFSET_OF_GROUP": [0 if is_disjoint else pixel - tap_groups.column for _, pixel in tap_groups.offsets],
        "RESIDUE_OF_TAP": residues,
        "IS_FIRST_OF_RESIDUE": [int(residue not in residues[:i]) for i, residue in enumerate(residues)],
        "FILTER_TAP": [tap.filter_tap for tap in taps],
        "H_OF_LOAD": [line - rows[0] for line, _ in loads],
        "W_OF_LOAD": [pixel - tap_groups.column for _, pixel in loads],
    }
    return "".join(
        f"[[maybe_unused]] constexpr int {name}[] = {{{', '.join(map(str, numbers))}}};\n"
        for name, numbers in tables.items()
    )


def _cost(task: Task, knobs: Knobs) -> Cost:
    choice = choose(shape_of(task.op), task.device, knobs)
    seconds = inf if choice is None else choice.seconds
    copying = sum(o.copying_seconds(task.device) for o in operands(gemm_problem_of(task.op).roles))
    cost = device_cost(task, seconds + other_seconds(task)).plus({"copies": copying} if copying else {})
    if choice is None:
        return cost
    return with_idle_sms(
        cost,
        task.device,
        ctas_of(shape_of(task.op), choice.tile, task.device.sm_count),
        HALO_DGRAD.idle_saving_launches,
    )


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
    id=80,
    name="cuda_hopper_halo_dgrad",
    summary="strided data gradients, 16-bit floats, channels last; a load of dy serves all residues",
    needs=dgrad_needs("cuda_hopper_halo_dgrad", FLOAT_PAIRS),
    **EXACT_OPTIONS,
    **_COMMON,
)
ENGINE_TF32 = cuda_engine(
    id=81,
    name="cuda_hopper_halo_dgrad_tf32",
    summary="the same of fp32, operands rounded to TF32; only if TF32 is allowed",
    needs=dgrad_needs("cuda_hopper_halo_dgrad_tf32", TF32_PAIRS),
    **TF32_OPTIONS,
    **_COMMON,
)

"""Engine ``cuda_hopper_halo_dgrad``: strided data gradients whose residues share what is copied (hopper_halo_dgrad.cu).

Positions of dx of one residue modulo the stride are a product of their own (gemm.py): short sums of few taps, and dy is
copied for each tap of each. Here a piece of dy is copied once, residues are columns side by side, and all of a block's
filters stay in shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.cost import device_cost, other_seconds, where_idle
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.epilogue import SUMS, epilogue_of
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.codegen.source import file_text, kernel_text
from graphdnn.engines.cuda.codegen.tensor_cores import FLOAT_PAIRS, OF_EXACT, OF_TF32, TF32_PAIRS
from graphdnn.engines.cuda.conv_geometry.convolution_roles import CHANNELS
from graphdnn.engines.cuda.conv_geometry.gemm_problem import gemm_problem_of
from graphdnn.engines.cuda.sm90.conv_gemm_shape import sizes_of
from graphdnn.engines.cuda.sm90.epilogue_operands import result_space
from graphdnn.engines.cuda.sm90.gemm_fields import Layout, describe_work
from graphdnn.engines.cuda.sm90.halo.halo_dgrad_requirements import dgrad_needs
from graphdnn.engines.cuda.sm90.halo.halo_dgrad_shape import shape_of, walk_through, walked_of
from graphdnn.engines.cuda.sm90.halo.halo_dgrad_tiles import IDLE, TILE, blocks_of, choose
from graphdnn.engines.cuda.sm90.halo.tap_groups import Meetings, meetings_of
from graphdnn.engines.cuda.sm90.tensor_maps import filter_map, image_map, is_permutable, permuted_filter_map, walk_of
from graphdnn.engines.cuda.sm90.tile import PANEL
from graphdnn.engines.cuda.sm90.tma_operands import is_exchanged, operands
from graphdnn.engines.cuda.sm90.wgmma_text import ACROSS_K, wgmma_rs_text, wgmma_ss_text
from graphdnn.engines.engine import Cost, Knobs, Task
from graphdnn.enums import DataType, LayoutType
from graphdnn.fusion.fused_graph import FusedOp

_NEIGHBOURS, _SUMS_OF_A_THREAD = 8, 4  # columns of a thread that follow each other: exchanged ones, and of its own
_FILES = (
    "pdl.cuh",
    "hopper_pipeline.cuh",
    "conv_work_tile.cuh",
    "epilogue_store.cuh",
    "epilogue_16bit.cuh",
    "halo_dgrad_smem.cuh",
)

_SHARED_FILES, _HELD_FILES = ("halo_dgrad_ss.cuh",), ("ldmatrix.cuh", "halo_dgrad_rs.cuh")

# What epilogue_store.cuh calls with sums, where results leave rounded.
_EPILOGUE_OF_SUMS = """\
__device__ __forceinline__ void epilogue(
    const Params& p, const int (&coord)[6], const ColumnOperands& operands, const {compute} (&acc)[{width}],
    bool is_inside
) {{
    Rounded<{leaving}, {width}> rounded = {{}};
    #pragma unroll
    for (int e = 0; e < {width}; ++e)
        rounded.word[e / 2] |= (unsigned int)narrow<{leaving}>(acc[e]).bits << 16 * (e % 2);
    epilogue(p, coord, operands, rounded, is_inside);
}}
"""


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    product, shape, sizes = gemm_problem_of(op), shape_of(op), sizes_of(op)
    roles, choice = product.roles, choose(shape, device, knobs)
    assert choice is not None, "a rule asks for a tile that fits"
    tile, meetings = choice.tile, meetings_of(product)
    walked = walked_of(op, tile.is_apart)
    steps = LaunchSequence(op, device)
    image, filter = (operand.prepared(steps) for operand in operands(roles))
    kind, compute = image.spec.data_type, COMPUTE_TYPE[roles.op.compute_type]
    across_filter = not is_exchanged(roles)
    parameters = Parameters(steps.workspace_offsets)
    is_rounded = kind is DataType.FLOAT  # what tensor cores would only cut off
    walk = walk_through(op, tile.is_apart)
    pixels = image_map(image, 2, walk, (1, 1, 1), PANEL + tile.reach(shape))
    is_permuted = not across_filter and is_permutable(filter)
    neighbours = _SUMS_OF_A_THREAD if is_permuted else _NEIGHBOURS
    if is_permuted:
        columns = permuted_filter_map(filter, tile.bn, neighbours)
    else:
        columns = filter_map(filter, *((PANEL, tile.bn * 2) if across_filter else (tile.bn,)))
    parameters.maps("im2col_map", [(image.spec, replace(pixels, is_rounded=is_rounded))])
    parameters.maps("dense_map", [(filter.spec, replace(columns, is_rounded=is_rounded))])

    is_narrow = _leaves_rounded(op)
    leaving = STORAGE[roles.output.data_type] if is_narrow else compute
    taken = "const Rounded<{accumulator}, {width}>& acc" if is_narrow else SUMS
    ending = epilogue_of(steps, parameters, (result_space,), CHANNELS, neighbours, leaving, taken=taken)
    layout = Layout.of(sizes, PANEL * tile.consumers, tile.bn)
    walks = [walk_of(product, residue) for residue in product.residues]
    describe_work(parameters, product, sizes, layout, walks, shape.blocks, 0 if across_filter else filter.tap_stride)
    for one, value in {
        "splits": 1,
        "image_pixels": 1,
        "coarse_pixels": shape.places if tile.is_apart else shape.places_in_lines,
    }.items():
        parameters.integer(one, value)
    parameters.integers("coarse_extents", walked)
    parameters.integers("load_corner", walk.lower[1:])

    multiplying, copying = tile.registers
    name = f"conv_dgrad__halo_{tile.name}x{choice.stages}__{op.name}"
    text = kernel_text(
        name,
        [*_FILES, *(_HELD_FILES if tile.is_held else _SHARED_FILES), "hopper_halo_dgrad.cu"],
        parameters=parameters.text,
        functions=[
            file_text("round_to_16bit.cuh"),
            *ending.functions,
            *([_EPILOGUE_OF_SUMS.format(compute=compute, leaving=leaving, width=ending.width)] if is_narrow else []),
            wgmma_rs_text(kind, tile.bn, across_filter)
            if tile.is_held
            else wgmma_ss_text(kind, kind, tile.bn, False, across_filter),
            _described(meetings, tile.is_apart),
        ],
        constants={
            "TILE_M": PANEL * tile.consumers, "TILE_N": tile.bn, "CONSUMER_WARPGROUPS": tile.consumers,
            "STAGES": choice.stages,
            "RESIDUES": shape.residues, "TAPS": shape.taps,
            "LOADS": tile.copies(shape), "ORDERED_MAINLOOPS": choice.takes_turns(shape),
            "LOADED_PIXELS": PANEL + tile.reach(shape),
            "CONSUMER_REGS": multiplying, "PRODUCER_REGS": copying,
            "WGRAD": False, "SWAP_AB": False, "FILTER_MN_MAJOR": across_filter, "PERMUTE_N": is_permuted,
            "SPATIAL": 2, "SPLIT_K": False,
            "VEC_N": neighbours, "VEC_WIDTH": ending.width,
            "Element": STORAGE[kind], "Accum": compute, "EpilogueInput": leaving, "EPILOGUE_16BIT": is_narrow,
        },
    )  # fmt: skip
    grid = (blocks_of(shape, tile, device.sm_count), 1, 1)
    shared = choice.shared_bytes(shape)
    steps.add(
        Launch(
            text, "hopper_halo_dgrad", grid, 128 * (tile.consumers + 1), parameters.pack(), shared, starts_early=True
        )
    )
    return steps.kernel(name)


def _leaves_rounded(op: FusedOp) -> bool:
    """Whether sums become 16-bit floats before anything else is done with them."""
    anchor = op.main
    (result,) = anchor.outputs().values()
    is_scaled = getattr(anchor, "alpha", 1.0) != 1.0 or getattr(anchor, "beta", 0.0) != 0.0
    return result.data_type in ACROSS_K and not is_scaled


def _described(meetings: Meetings, is_apart: bool) -> str:
    """Tables of hopper_halo_dgrad.cu."""
    taps, lines, copies = meetings.taps, meetings.lines, meetings.copies(is_apart)
    residues = [tap.residue for tap in taps]
    tables: dict[str, Sequence[int]] = {
        "GROUP_OF_TAP": [meetings.places.index(tap.place) for tap in taps],
        "LOAD_OF_GROUP": [copies.index(place if is_apart else (place[0], meetings.pixel)) for place in meetings.places],
        "ROW_OFFSET_OF_GROUP": [0 if is_apart else pixel - meetings.pixel for _, pixel in meetings.places],
        "RESIDUE_OF_TAP": residues,
        "IS_FIRST_OF_RESIDUE": [int(residue not in residues[:i]) for i, residue in enumerate(residues)],
        "FILTER_TAP": [tap.number for tap in taps],
        "H_OF_LOAD": [line - lines[0] for line, _ in copies],
        "W_OF_LOAD": [pixel - meetings.pixel for _, pixel in copies],
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
    return where_idle(cost, task.device, blocks_of(shape_of(task.op), choice.tile, task.device.sm_count), IDLE)


_COMMON: dict[str, Any] = {"cost": _cost, "generate": generate, "knobs": (TILE,), "layout": LayoutType.PREFERRED_NHWC}
ENGINE = cuda_engine(
    id=80,
    name="cuda_hopper_halo_dgrad",
    summary="strided data gradients, 16-bit floats, channels last; pieces of dy copied once for all residues",
    needs=dgrad_needs("cuda_hopper_halo_dgrad", FLOAT_PAIRS),
    **OF_EXACT,
    **_COMMON,
)
ENGINE_TF32 = cuda_engine(
    id=81,
    name="cuda_hopper_halo_dgrad_tf32",
    summary="the same of fp32, operands rounded to TF32; only where that is allowed",
    needs=dgrad_needs("cuda_hopper_halo_dgrad_tf32", TF32_PAIRS),
    **OF_TF32,
    **_COMMON,
)

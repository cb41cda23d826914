"""Engines ``cuda_hopper_bf16x3_wgrad``, ``bf16x2_wgrad`` and ``int_limbs_wgrad``: filter gradients by 16-bit limbs.

Both operands of a filter gradient are MN-major, and wgmma reads MN-major operands of 16 bits only. Launches of their
own split both images into bfloat16 limbs (limb_wgrad_schemes.py); the main kernel multiplies several pairs of limbs for
each K tile (hopper_limbs_wgrad.cu).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.codegen.cost import device_cost, other_seconds
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.epilogue import epilogue_of
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, Parameters
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.conv_geometry.convolution_roles import CHANNELS, SPATIAL
from graphdnn.engines.cuda.conv_geometry.gemm_problem import gemm_problem_of, im2col_and_dense
from graphdnn.engines.cuda.simt.implicit_copies import copying_seconds
from graphdnn.engines.cuda.sm90.conv_gemm_shape import gemm_shape_of
from graphdnn.engines.cuda.sm90.epilogue_operands import result_space
from graphdnn.engines.cuda.sm90.gemm_fields import TileGrid, describe_work_tiles, work_tile_variants
from graphdnn.engines.cuda.sm90.split_k import SplitKReduction
from graphdnn.engines.cuda.sm90.split_precision.image_limbs import ImageLimbs
from graphdnn.engines.cuda.sm90.split_precision.limb_wgrad_requirements import (
    floats_need,
    integers_need,
    limb_wgrad_needs,
)
from graphdnn.engines.cuda.sm90.split_precision.limb_wgrad_schemes import (
    FloatLimbs,
    IntegerLimbs,
    Scheme,
    integer_limbs_of,
)
from graphdnn.engines.cuda.sm90.split_precision.limb_wgrad_tiles import SPLITS, TILE, TILES, Choice, choose
from graphdnn.engines.cuda.sm90.tensor_maps import Im2colBox, im2col_box_of
from graphdnn.engines.cuda.sm90.tile import SLAB_ROWS
from graphdnn.engines.cuda.sm90.tma_operands import operands
from graphdnn.engines.cuda.sm90.wgmma_text import wgmma_ss_text
from graphdnn.engines.engine import Cost, Engine, Knobs, Task
from graphdnn.engines.sum_error import SumError
from graphdnn.enums import DataType, LayoutType, NumericalNote
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.rules import Constraint

_VEC_N = 8  # contiguous columns that a thread stores

SchemeOf = Callable[[FusedOp], Scheme]


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs, scheme_of: SchemeOf) -> DeviceKernel:
    gemm, scheme = gemm_problem_of(op), scheme_of(op)
    compute, spatial = COMPUTE_TYPE[scheme.compute], gemm.roles.problem.spatial
    choice = choose(scheme, gemm_shape_of(op), device, knobs)
    tile, is_split = choice.tile, choice.splits > 1
    steps = LaunchSequence(op, device)
    image, gradient = (ImageLimbs(operand.prepared(steps), scheme.limbs) for operand in operands(gemm.roles))
    image_limbs, gradient_limbs = image.split(steps), gradient.split(steps)

    parameters = Parameters(steps.workspace_offsets)
    box, dense_box = im2col_box_of(gemm, gemm.residues[0]), Im2colBox(*((0,) * SPATIAL,) * 4)
    parameters.maps(
        "im2col_map",
        [(limb, image.map(limb, spatial, box, gemm.traversal_stride, choice.stage_k)) for limb in image_limbs],
    )
    parameters.maps(
        "dense_map",
        [(limb, gradient.map(limb, spatial, dense_box, (1,) * SPATIAL, choice.stage_k)) for limb in gradient_limbs],
    )
    epilogue = epilogue_of(steps, parameters, (result_space,), CHANNELS, _VEC_N, compute)
    grid = _describe_tiles(op, choice, parameters, box)
    split_k = SplitKReduction(grid.tiles * tile.bm * tile.bn, choice.splits, ELEMENTS[scheme.compute].bytes)
    split_k.describe(parameters, steps, compute)

    consumer_regs, producer_regs = tile.registers
    tiling = f"{tile.name}x{choice.stage_k}x{choice.stages}{'_split' if is_split else ''}"
    name = f"conv_wgrad__hopper_{scheme.name}_{tiling}__{op.name}"
    text = kernel_text(
        name,
        ["hopper_limbs_wgrad.cu", *(["split_k_reduce.cu"] if is_split else [])],
        variants={**work_tile_variants(parameters), "INTEGER_LIMBS": scheme.is_integer},
        parameters=parameters.text,
        functions=[
            *epilogue.functions,
            wgmma_ss_text(DataType.BFLOAT16, DataType.BFLOAT16, tile.bn, True, True),
            *scheme.functions(tile.bn),
        ],
        constants={
            "TILE_M": tile.bm, "TILE_N": tile.bn, "STAGES": choice.stages, "CONSUMER_WARPGROUPS": tile.consumers,
            "CONSUMER_REGS": consumer_regs, "PRODUCER_REGS": producer_regs,
            "LIMBS": scheme.limbs, "STAGE_K": choice.stage_k,
            "PROMOTION_INTERVAL": scheme.promotion_pixels // choice.stage_k,
            **scheme.constants,
            "WGRAD": True, "SWAP_AB": False, "FILTER_MN_MAJOR": False,
            "RESIDUES": 1, "SPATIAL": spatial, "SPLIT_K": is_split,
            **split_k.constants,
            "PERMUTE_N": False, "VEC_N": _VEC_N, "VEC_WIDTH": epilogue.width,
            "Element": "bfloat_t", "Accum": compute,
        },
    )  # fmt: skip
    packed = parameters.pack()
    ctas, threads = (min(grid.tiles * choice.splits, device.sm_count), 1, 1), 128 * (tile.consumers + 1)
    shared = choice.stages * (tile.stage_bytes(scheme.limbs, choice.stage_k) + 16)
    steps.add(Launch(text, "hopper_limbs_wgrad", ctas, threads, packed, shared, starts_early=True))
    if is_split:
        steps.add(split_k.launch(text, packed))
    return steps.kernel(name)


def _describe_tiles(op: FusedOp, choice: Choice, parameters: Parameters, box: Im2colBox) -> TileGrid:
    """Adds the fields of tiles. A K tile has the pixels of a stage."""
    gemm, shape, tile = gemm_problem_of(op), gemm_shape_of(op), choice.tile
    (residue,), ((rows, _),) = gemm.residues, shape.gemms
    grid = TileGrid.of(shape, tile.bm, tile.bn)
    shape = shape._replace(gemms=((rows, -(-gemm.pixel_count(residue) // choice.stage_k)),))
    channel_blocks = -(-gemm.channels // SLAB_ROWS)
    describe_work_tiles(parameters, gemm, shape, grid, [box], channel_blocks, 0, prod(residue.taps) * channel_blocks)
    parameters.integer("image_pixels", result_space(op).sizes[-1])
    return grid


def _cost(task: Task, knobs: Knobs, scheme_of: SchemeOf) -> Cost:
    gemm, scheme, device = gemm_problem_of(task.op), scheme_of(task.op), task.device
    choice = choose(scheme, gemm_shape_of(task.op), device, knobs)
    split_operands = operands(gemm.roles)
    phases = {"split": sum(ImageLimbs(operand, scheme.limbs).seconds(device) for operand in split_operands)}
    copy_seconds = sum(copying_seconds(o.spec.bytes, device) for o in split_operands if o.is_copied)
    return device_cost(task, choice.seconds + other_seconds(task)).plus(
        phases | ({"copies": copy_seconds} if copy_seconds else {})
    )


def _integer_limbs(op: FusedOp) -> IntegerLimbs:
    scheme = integer_limbs_of(*(t.data_type for t in im2col_and_dense(gemm_problem_of(op).roles)), op.main.compute_type)
    assert scheme is not None
    return scheme


def _effective(task: Task, knobs: Knobs, scheme_of: SchemeOf) -> Knobs:
    """The knob values of the kernel that is launched."""
    choice = choose(scheme_of(task.op), gemm_shape_of(task.op), task.device, knobs)
    return {TILE.type: TILES.index(choice.tile) + 1, SPLITS.type: choice.splits}


def _engine(id: int, name: str, scheme_of: SchemeOf, types: Constraint, summary: str, **options: Any) -> Engine:
    cost: Callable[[Task, Knobs], Cost] = partial(_cost, scheme_of=scheme_of)
    return cuda_engine(
        id=id,
        name=name,
        summary=summary,
        needs=limb_wgrad_needs(name, types),
        cost=cost,
        generate=partial(generate, scheme_of=scheme_of),
        knobs=(TILE, SPLITS),
        effective=partial(_effective, scheme_of=scheme_of),
        frugal={SPLITS.type: 1},
        layout=LayoutType.PREFERRED_NHWC,
        **options,
    )


ENGINE = _engine(
    63,
    "cuda_hopper_bf16x3_wgrad",
    lambda op: FloatLimbs(3),
    floats_need("cuda_hopper_bf16x3_wgrad"),
    "fp32 filter gradients in three limbs of 16 bits, on the tensor cores of compute capability 9.0",
    numerical_notes=(NumericalNote.TENSOR_CORE,),
    sum_error=SumError(4, 1, restart=128, floor=2.0**-133),
)
# Allowed only by its numerical note: two limbs have 16 of a float's 24 significand bits.
ENGINE_TF32 = _engine(
    64,
    "cuda_hopper_bf16x2_wgrad",
    lambda op: FloatLimbs(2),
    floats_need("cuda_hopper_bf16x2_wgrad"),
    "the same in two limbs, more exact than TF32; only if TF32 is allowed",
    numerical_notes=(NumericalNote.TENSOR_CORE, NumericalNote.DOWN_CONVERT_INPUTS),
    sum_error=SumError(2.0**11, 1, floor=2.0**-133, drift=0.12),
    error_growth=2.0**10,
)
INTEGERS = _engine(
    82,
    "cuda_hopper_int_limbs_wgrad",
    _integer_limbs,
    integers_need("cuda_hopper_int_limbs_wgrad"),
    "exact filter gradients of bytes and INT16 by their bytes, on the tensor cores of compute capability 9.0",
    numerical_notes=(NumericalNote.TENSOR_CORE,),
)

"""The launches of a SIMT implicit GEMM: kernel text, parameters and grid for residues that one launch serves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.codegen.launch import Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import STORAGE, Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.codegen.vectors import width_for
from graphdnn.engines.cuda.conv_geometry.convolution_roles import CHANNELS
from graphdnn.engines.cuda.conv_geometry.gemm_problem import Residue
from graphdnn.engines.cuda.simt.implicit_fields import RESIDUES, are_short, describe
from graphdnn.engines.cuda.simt.implicit_plan import Access, Plan
from graphdnn.engines.cuda.simt.implicit_tiles import Tile, blocks_of, has_one_tap
from graphdnn.enums import DataType

_PIXEL, _FILTER = 0, 2  # as in the kernel's text
_FILES = ("pdl.cuh", "implicit_coordinates.cuh", "predicated_load.cuh", "simt_tile_coord.cuh", "epilogue_via_smem.cuh")
_LAST_PIXEL = 5  # an axis of the result
_MOST_NEIGHBOURS = 8  # that a thread stores at once


def add_launches(steps: LaunchSequence, plan: Plan, residues: Sequence[Residue]) -> int:
    """The products of some of the residues, and the sum of their parts. Returns the parts of each sum."""
    product, tile = plan.product, plan.shape.tile
    parameters = Parameters(steps.workspace_offsets)
    of_gathered, of_plain = plan.gathered_access(), plan.plain_access()
    prologue = _prologue(plan, parameters, of_gathered.width)
    width, epilogue = _epilogue(steps, plan, parameters)

    if plan.has_prologue:
        parameters.nothing("gathered", f"const {STORAGE[plan.gathered.data_type]}")
    else:
        parameters.tensor("gathered", plan.gathered)
    parameters.tensor("plain", plan.plain)
    gathered_strides = plan.in_units(plan.gathered_space.strides(plan.gathered))
    plain_strides = plan.in_units(plan.plain_strides)
    split = describe(parameters, product, residues, gathered_strides, plain_strides, tile.bk, plan.shape.parts)
    groups, results = plan.roles.problem.groups, [product.rows(r) * product.columns(r) for r in residues]
    if split > 1:
        size = 8 if plan.compute in ("double", "long long") else 4
        parameters.scratch("partial", plan.compute, steps.allocate(split * groups * sum(results) * size))
    else:
        parameters.nothing("partial", plan.compute)

    packs = -(-groups * max(results) // width)
    sum_threads = 32 if packs < 2 * tile.threads * steps.device.sm_count else tile.threads  # few go to every SM
    of_sum = {"SPLIT": split > 1, **({"SUM_THREADS": sum_threads} if split > 1 else {}), "WIDTH": width}
    text = kernel_text(
        plan.name(split),
        [*_FILES, "implicit_gemm.cu", *(["reduce_splits.cu"] if split > 1 else [])],
        parameters=parameters.text,
        functions=[epilogue, prologue],
        constants=_constants(plan, of_gathered, of_plain, of_sum),
    )
    packed = parameters.pack()
    tiles = max(blocks_of(product, residue, tile) for residue in residues)
    steps.add_early(Launch(text, "implicit_gemm", (tiles, split, len(residues)), tile.threads, packed))
    if split > 1:
        count = min(-(-packs // sum_threads), 16 * steps.device.sm_count)
        steps.add(Launch(text, "reduce_splits", (count, 1, len(residues)), sum_threads, packed))
    return split


def _prologue(plan: Plan, parameters: Parameters, width: int) -> str:
    """The device function that loads ``width`` gathered elements and applies what comes before the product."""
    if not plan.has_prologue:
        return (
            f"template <int V> __device__ void prologue(const Params&, const int (&)[6], {plan.staged} (&)[V]) {{}}\n"
        )
    program = Program(plan.op, parameters, plan.gathered_space, "x", width=width, vector_axis=CHANNELS)
    program.apply(plan.op.prologue)
    program.result("value", plan.gathered, plan.staged)
    return program.function("prologue", f"{plan.staged} (&value)[{width}]")


def _epilogue(steps: LaunchSequence, plan: Plan, parameters: Parameters) -> tuple[int, str]:
    """Results that a thread stores at once, and the device function that makes them of sums."""
    product, roles = plan.product, plan.roles
    space = roles.space(roles.output)
    axis = CHANNELS if product.is_wgrad or not product.swapped else _LAST_PIXEL
    width = min(width_for(space, steps.epilogue_tensors(), axis), _MOST_NEIGHBOURS, plan.shape.tile.bn)
    if axis == _LAST_PIXEL and product.out_stride[-1] > 1:
        width = 1
    body = Program(plan.op, parameters, space, "t", width=width, vector_axis=axis)
    steps.finish(body, "acc", plan.compute)
    return width, body.function("epilogue", f"const {plan.compute} (&acc)[{width}]")


def _constants(plan: Plan, of_gathered: Access, of_plain: Access, of_sum: dict[str, int]) -> dict[str, Any]:
    """What the kernel's text is compiled for. ``of_sum``: whether it is split, and how results are stored."""
    product, tile, swapped = plan.product, plan.shape.tile, plan.product.swapped
    gathered, plain = plan.gathered, plan.plain
    a, b = (of_plain, of_gathered) if swapped else (of_gathered, of_plain)
    outer = tile.bn if swapped else tile.bm
    is_line = has_one_tap(product, tile) and tile.threads % (outer // of_gathered.width) == 0
    in_line = is_line and not of_gathered.along_k
    farthest = max(t.span * ELEMENTS[t.data_type].bytes for t in (gathered, plain))
    return {
        "BLOCKS": _resident(tile, outer, of_gathered.width, in_line),
        "BM": tile.bm, "BN": tile.bn, "BK": tile.bk, "TM": tile.tm, "TN": tile.tn, "THREADS": tile.threads,
        "PAD": 4 if tile.bm > 8 else 0,
        "SPATIAL": plan.roles.problem.spatial,
        "ONE_TAP": has_one_tap(product, tile),
        "ARE_SHORT": not of_sum["SPLIT"] and are_short(product, 2**16),
        "RESIDUES": min(len(product.residues), RESIDUES),
        "CHECKED": any(before or after for before, after in product.margins),
        "K_KIND": _PIXEL if product.is_wgrad else _FILTER,
        "A_IS_PLAIN": swapped,
        "VECTOR_A": a.width, "VECTOR_B": b.width, "ALONG_K_A": a.along_k, "ALONG_K_B": b.along_k,
        "PROLOGUE": plan.has_prologue,
        "QUADS": plan.quads,
        **of_sum,
        "Offset": "int" if max(gathered.span, plain.span) < 2**31 else "long long",
        "Distance": "unsigned int" if farthest < 2**32 else "long long",
        "Gathered": "int32_t" if plan.quads else STORAGE[gathered.data_type],
        "Plain": "int32_t" if plan.quads else STORAGE[plain.data_type],
        "A_IS_SIGNED": (plain if swapped else gathered).data_type is DataType.INT8,
        "B_IS_SIGNED": (gathered if swapped else plain).data_type is DataType.INT8,
        "Staged": plan.staged,
        "Accum": plan.compute,
    }  # fmt: skip


def _resident(tile: Tile, outer: int, width: int, in_line: bool) -> int:
    """Blocks that share an SM: one fewer where a thread keeps the places of many single elements."""
    places = 1 if in_line else outer * tile.bk // (width * tile.threads)
    return tile.resident - (places >= 8 and tile.resident > 2)

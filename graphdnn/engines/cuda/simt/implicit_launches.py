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

_PIXEL, _FILTER = 0, 2  # the values of implicit_coordinates.cuh
_LAST_PIXEL = 5  # an axis of the result
_MOST_NEIGHBOURS = 8  # the most elements of a vector store


def add_launches(steps: LaunchSequence, plan: Plan, residues: Sequence[Residue]) -> int:
    """Add the GEMMs of some of the residues and their split-K reduction; returns the number of splits."""
    product, tile = plan.product, plan.shape.tile
    parameters = Parameters(steps.workspace_offsets)
    im2col_reads, dense_reads = plan.im2col_access(), plan.dense_access()
    prologue = _prologue(plan, parameters, im2col_reads.width)
    width, epilogue = _epilogue(steps, plan, parameters)

    if plan.has_prologue:
        parameters.null_pointer("im2col", f"const {STORAGE[plan.im2col.data_type]}")
    else:
        parameters.tensor("im2col", plan.im2col)
    parameters.tensor("dense", plan.dense)
    im2col_strides = plan.word_strides(plan.im2col_space.strides(plan.im2col))
    dense_strides = plan.word_strides(plan.dense_strides)
    split = describe(parameters, product, residues, im2col_strides, dense_strides, tile.bk, plan.shape.splits)
    groups, results = plan.roles.problem.groups, [product.rows(r) * product.columns(r) for r in residues]
    if split > 1:
        size = 8 if plan.compute in ("double", "long long") else 4
        parameters.workspace_pointer("partial", plan.compute, steps.allocate(split * groups * sum(results) * size))
    else:
        parameters.null_pointer("partial", plan.compute)

    vecs = -(-groups * max(results) // width)
    # Few vectors: small CTAs occupy all SMs.
    reduce_threads = 32 if vecs < 2 * tile.threads * steps.device.sm_count else tile.threads
    split_constants = {
        "SPLIT": split > 1,
        **({"REDUCE_THREADS": reduce_threads} if split > 1 else {}),
        "VEC_WIDTH": width,
    }
    text = kernel_text(
        plan.name(split),
        ["implicit_gemm.cu", *(["reduce_splits.cu"] if split > 1 else [])],
        parameters=parameters.text,
        functions=[epilogue, prologue],
        constants=_constants(plan, im2col_reads, dense_reads, split_constants),
    )
    packed = parameters.pack()
    tiles = max(blocks_of(product, residue, tile) for residue in residues)
    steps.add_early(Launch(text, "implicit_gemm", (tiles, split, len(residues)), tile.threads, packed))
    if split > 1:
        count = min(-(-vecs // reduce_threads), 16 * steps.device.sm_count)
        steps.add(Launch(text, "reduce_splits", (count, 1, len(residues)), reduce_threads, packed))
    return split


def _prologue(plan: Plan, parameters: Parameters, width: int) -> str:
    """The device function that loads ``width`` elements of the im2col operand and applies the prologue."""
    if not plan.has_prologue:
        return (
            f"template <int V> __device__ void prologue(const Params&, const int (&)[6], {plan.staged} (&)[V]) {{}}\n"
        )
    program = Program(plan.op, parameters, plan.im2col_space, "x", width=width, vector_axis=CHANNELS)
    program.apply(plan.op.prologue)
    program.copy_widened_to("value", plan.im2col, plan.staged)
    return program.function("prologue", f"{plan.staged} (&value)[{width}]")


def _epilogue(steps: LaunchSequence, plan: Plan, parameters: Parameters) -> tuple[int, str]:
    """Elements of a vector store, and the device function of the epilogue."""
    product, roles = plan.product, plan.roles
    space = roles.space(roles.output)
    axis = CHANNELS if product.is_wgrad or not product.swapped else _LAST_PIXEL
    width = min(width_for(space, steps.epilogue_tensors(), axis), _MOST_NEIGHBOURS, plan.shape.tile.bn)
    if axis == _LAST_PIXEL and product.out_stride[-1] > 1:
        width = 1
    body = Program(plan.op, parameters, space, "t", width=width, vector_axis=axis)
    steps.write_epilogue(body, "acc", plan.compute)
    return width, body.function("epilogue", f"const {plan.compute} (&acc)[{width}]")


def _constants(
    plan: Plan, im2col_reads: Access, dense_reads: Access, split_constants: dict[str, int]
) -> dict[str, Any]:
    """The compile-time constants of the kernel. ``split_constants``: split-K and the width of stores."""
    product, tile, swapped = plan.product, plan.shape.tile, plan.product.swapped
    im2col, dense = plan.im2col, plan.dense
    a, b = (dense_reads, im2col_reads) if swapped else (im2col_reads, dense_reads)
    outer = tile.bn if swapped else tile.bm
    is_one_tap_run = has_one_tap(product, tile) and tile.threads % (outer // im2col_reads.width) == 0
    one_address = is_one_tap_run and not im2col_reads.k_major
    farthest = max(t.span * ELEMENTS[t.data_type].bytes for t in (im2col, dense))
    return {
        "CTAS_PER_SM": _ctas_per_sm(tile, outer, im2col_reads.width, one_address),
        "TILE_M": tile.bm, "TILE_N": tile.bn, "TILE_K": tile.bk, "TM": tile.tm, "TN": tile.tn, "THREADS": tile.threads,
        "PAD": 4 if tile.bm > 8 else 0,
        "SPATIAL": plan.roles.problem.spatial,
        "ONE_TAP": has_one_tap(product, tile),
        "ARE_SHORT": not split_constants["SPLIT"] and are_short(product, 2**16),
        "RESIDUES": min(len(product.residues), RESIDUES),
        "CHECKED": any(before or after for before, after in product.margins),
        "K_KIND": _PIXEL if product.is_wgrad else _FILTER,
        "A_IS_DENSE": swapped,
        "VEC_A": a.width, "VEC_B": b.width, "A_K_MAJOR": a.k_major, "B_K_MAJOR": b.k_major,
        "PROLOGUE": plan.has_prologue,
        "DP4A": plan.is_dp4a,
        **split_constants,
        "Offset": "int" if max(im2col.span, dense.span) < 2**31 else "long long",
        "Distance": "unsigned int" if farthest < 2**32 else "long long",
        "Im2colElement": "int32_t" if plan.is_dp4a else STORAGE[im2col.data_type],
        "DenseElement": "int32_t" if plan.is_dp4a else STORAGE[dense.data_type],
        "A_IS_SIGNED": (dense if swapped else im2col).data_type is DataType.INT8,
        "B_IS_SIGNED": (im2col if swapped else dense).data_type is DataType.INT8,
        "Staged": plan.staged,
        "Accum": plan.compute,
    }  # fmt: skip


def _ctas_per_sm(tile: Tile, outer: int, width: int, one_address: bool) -> int:
    """CTAs of an SM that the register limit allows: one fewer where a thread keeps the addresses of many single
    elements.
    """
    places = 1 if one_address else outer * tile.bk // (width * tile.threads)
    return tile.resident - (places >= 8 and tile.resident > 2)

"""Engine ``cuda_mma_gemm``: convolutions by implicit GEMM on the tensor cores of Ampere and later (mma.sync).

The GEMM is that of ``cuda_implicit_gemm``, with the same rows, columns, residues and coordinates. Operands have 16 bits
with fp32 accumulators, or are bytes with exact int32 accumulators. Contiguous channels are loaded 16 bytes at a time by
cp.async. Other layouts are loaded element by element through registers, or are copied first if that is faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.batch_invariance import memoize_for_images
from graphdnn.engines.cuda.codegen.cost import device_cost, least_seconds, memory_seconds, other_seconds, with_idle_sms
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.codegen.tensor_cores import EXACT_OPTIONS, EXACT_PAIRS, TF32_OPTIONS, TF32_PAIRS
from graphdnn.engines.cuda.codegen.vectors import width_for
from graphdnn.engines.cuda.conv_geometry.gemm_problem import GemmProblem, Residue, gemm_problem_of, im2col_and_dense
from graphdnn.engines.cuda.simt.implicit_fields import RESIDUES, are_short, describe, split_value
from graphdnn.engines.cuda.sm80.mma_operands import Side, offset_type, operand_layout, sides_of
from graphdnn.engines.cuda.sm80.mma_requirements import mma_needs
from graphdnn.engines.cuda.sm80.mma_tiles import (
    KNOBS,
    LARGEST_SHARE,
    SPLIT,
    Shape,
    blocks_of,
    effective_knobs,
    product_rate,
)
from graphdnn.engines.engine import Cost, Knobs, Task
from graphdnn.enums import LayoutType
from graphdnn.fusion.fused_graph import FusedOp

_PIXEL, _FILTER = 0, 2  # the values of implicit_coordinates.cuh


@dataclass(frozen=True, slots=True)
class _Plan:
    op: FusedOp
    product: GemmProblem
    shape: Shape
    im2col: Side
    dense: Side
    compute: str

    @property
    def name(self) -> str:
        split = "_split" if self.shape.splits > 1 else ""
        return f"conv_{self.product.roles.direction}__mma_{self.shape.name}{split}__{self.op.name}"


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    product = gemm_problem_of(op)
    roles = product.roles
    steps = LaunchSequence(op, device)
    way = operand_layout(product, device, knobs)
    im2col, dense = (
        spec if copy is None else steps.relayout(spec, copy)
        for spec, copy in zip(im2col_and_dense(roles), way.copies, strict=True)
    )
    sides = sides_of(product, im2col, dense)
    plan = _Plan(op, product, way.shape, *sides, COMPUTE_TYPE[roles.op.compute_type])
    for first in range(0, len(product.residues), RESIDUES):
        _add(steps, plan, product.residues[first : first + RESIDUES])
    return steps.kernel(plan.name)


def _add(steps: LaunchSequence, plan: _Plan, residues: Sequence[Residue]) -> None:
    """Add the launches of some of the residues."""
    op, product, shape = plan.op, plan.product, plan.shape
    roles, tile = product.roles, shape.tile
    p, out_space = roles.problem, roles.space(roles.output)
    parameters = Parameters(steps.workspace_offsets)

    columns_axis = 2 if (product.is_wgrad or not product.swapped) else 5
    width = min(width_for(out_space, steps.epilogue_tensors(), columns_axis), 8)
    if columns_axis == 5 and product.out_stride[-1] > 1:
        width = 1
    is_split = shape.splits > 1
    body = Program(
        op, parameters, out_space, "t", width=width, vector_axis=columns_axis, has_column_operands=not is_split
    )
    steps.write_epilogue(body, "acc", plan.compute)

    parameters.tensor("im2col", plan.im2col.spec)
    parameters.tensor("dense", plan.dense.spec)
    split = describe(parameters, product, residues, plan.im2col.strides, plan.dense.strides, shape.bk, shape.splits)
    results = [product.rows(r) * product.columns(r) for r in residues]
    if split > 1:
        parameters.workspace_pointer("partial", plan.compute, steps.allocate(split * p.groups * sum(results) * 4))
    else:
        parameters.null_pointer("partial", plan.compute)

    vecs = -(-p.groups * max(results) // width)
    reduce_threads = 32 if vecs < 512 * steps.device.sm_count else 256  # few vectors: small CTAs occupy all SMs
    a, b = (plan.dense, plan.im2col) if product.swapped else (plan.im2col, plan.dense)
    text = kernel_text(
        plan.name,
        ["mma_gemm.cu", *(["reduce_splits.cu"] if split > 1 else [])],
        parameters=parameters.text,
        functions=_epilogue(body, plan.compute, is_split),
        constants={
            "CTAS_PER_SM": shape.resident,
            "TILE_M": tile.bm, "TILE_N": tile.bn, "TILE_K": shape.bk, "WARP_M": tile.wm, "WARP_N": tile.wn,
            "THREADS": tile.threads, "STAGES": shape.stages,
            "BATCH": shape.batch, "PERSISTENT": shape.persistent,
            "SPATIAL": p.spatial,
            "ARE_SHORT": are_short(product, 2**16),
            "RESIDUES": min(len(product.residues), RESIDUES),
            "CHECKED": any(before or after for before, after in product.margins),
            "K_KIND": _PIXEL if product.is_wgrad else _FILTER,
            "A_IS_DENSE": product.swapped,
            "VEC_A": a.width, "VEC_B": b.width, "A_K_MAJOR": a.k_major, "B_K_MAJOR": b.k_major,
            "A_MN_MAJOR": a.is_mn_major, "B_MN_MAJOR": b.is_mn_major,
            "SPLIT": split > 1, **({"REDUCE_THREADS": reduce_threads} if split > 1 else {}),
            "VEC_WIDTH": width,
            "Offset": offset_type((plan.im2col, plan.dense)),
            "Im2colElement": plan.im2col.storage, "DenseElement": plan.dense.storage,
            "StoredA": a.storage, "StoredB": b.storage, "A": a.storage, "B": b.storage,
            "Accum": plan.compute,
        },
    )  # fmt: skip
    packed = parameters.pack()
    tiles = blocks_of(product, tile)
    persistent_ctas = max(1, shape.resident * steps.device.sm_count // split)
    grid = (min(tiles, persistent_ctas) if shape.persistent else tiles, split, len(residues))
    shared = shape.shared(ELEMENTS[plan.im2col.spec.data_type].bytes)
    steps.add(Launch(text, "mma_gemm", grid, tile.threads, packed, shared))
    if split > 1:
        count = min(-(-vecs // reduce_threads), 16 * steps.device.sm_count)
        steps.add(Launch(text, "reduce_splits", (count, 1, len(residues)), reduce_threads, packed))


def _epilogue(body: Program, compute: str, is_split: bool) -> list[str]:
    """The functions ``epilogue`` and ``load_column_operands``; the split-K reduction needs only the former."""
    acc = f"const {compute} (&acc)[{body.width}]"
    if not is_split:
        return [body.column_operands_text(), body.function("epilogue", f"const ColumnOperands& column_operands, {acc}")]
    at = "const Params& p, const int (&at)[6]"
    nothing = (
        "struct ColumnOperands {};\n"
        f"__device__ __forceinline__ void load_column_operands({at}, ColumnOperands& column_operands) {{}}\n"
        f"__device__ __forceinline__ void epilogue({at}, const ColumnOperands& column_operands, {acc}) {{\n"
        "    epilogue(p, at, acc);\n}\n"
    )
    return [body.function("epilogue", acc), nothing]


# The model of tiles ranks tiles. Against other engines it predicted too short times: stores do not overlap with MMAs.
_RATE_CORRECTION, _EPILOGUE_SHARE = 1.88, 0.5
_IDLE = 0.4  # the part of a launch's time that a grid saves if it leaves nearly all SMs idle
# From this compute capability on, the data sheet's rate is that of wgmma, which mma.sync does not reach.
_WARPGROUPS = (9, 0)


def _rate_correction(device: DeviceSpec) -> float:
    return _RATE_CORRECTION if device.compute_capability >= _WARPGROUPS else 1.0


def _cost(task: Task, knobs: Knobs) -> Cost:
    product = gemm_problem_of(task.op)
    im2col, dense = im2col_and_dense(product.roles)
    way = operand_layout(product, task.device, knobs)
    shape = way.shape
    rows = sum(-(-product.rows(r) // shape.tile.bm) for r in product.residues if all(r.taps))
    columns = max(-(-product.columns(r) // shape.tile.bn) for r in product.residues)
    rereads = (max(0, rows - 1) * dense.bytes + (columns - 1) * im2col.bytes) / 16  # nearly all of them hit L2
    cost = device_cost(task, _rate_correction(task.device) * way.seconds + other_seconds(task), rereads)
    cost = cost.plus({"tiles": _EPILOGUE_SHARE * cost.parts["memory"]})
    blocks = rows * columns * product.roles.problem.groups * shape.splits
    return with_idle_sms(cost, task.device, blocks, _IDLE)


@memoize_for_images
def _element(op: FusedOp) -> int:
    """Bytes of an operand's element."""
    return ELEMENTS[next(iter(op.main.inputs().values())).data_type].bytes


def _least(task: Task) -> float:
    element = _element(task.op)
    products = least_seconds(
        task, 1, product_rate(task.device, element) * LARGEST_SHARE / _rate_correction(task.device)
    )
    return products + _EPILOGUE_SHARE * memory_seconds(task) - _IDLE * task.device.launch


def _effective(task: Task, knobs: Knobs) -> Knobs:
    """The knob values of the kernel that is launched."""
    product, element = gemm_problem_of(task.op), _element(task.op)
    way = operand_layout(product, task.device, knobs)
    split = split_value(product, way.shape.bk, way.shape.splits)
    if split == 1 and way.copies != operand_layout(product, task.device, {**knobs, SPLIT.type: 1}).copies:
        split = 0  # the value 1 needs no workspace
    return {**effective_knobs(way.shape, element), SPLIT.type: split}


_COMMON: dict[str, Any] = {
    "effective": _effective,
    "cost": _cost,
    "least": _least,
    "generate": generate,
    "layout": LayoutType.PREFERRED_NHWC,
    "knobs": KNOBS,
    "frugal": {SPLIT.type: 1},
}
ENGINE = cuda_engine(
    id=43,
    name="cuda_mma_gemm",
    summary="convolutions on tensor cores: fp16, bf16, exact int8 and uint8; any layout, channels last fastest",
    needs=mma_needs("cuda_mma_gemm", EXACT_PAIRS),
    **EXACT_OPTIONS,
    **_COMMON,
)
ENGINE_TF32 = cuda_engine(
    id=44,
    name="cuda_mma_gemm_tf32",
    summary="fp32 convolutions on the same tensor cores, operands rounded to TF32; only if TF32 is allowed",
    needs=mma_needs("cuda_mma_gemm_tf32", TF32_PAIRS, "nothing to do: other engines serve other types"),
    **TF32_OPTIONS,
    **_COMMON,
)

"""Engine ``cuda_mma_gemm``: convolutions as products of gathered operands on the tensor cores of Ampere and later.

The product is that of ``implicit_gemm``: the same rows, columns, residues and coordinates. Operands of 16 bits with
fp32 sums, bytes with exact int32 sums. Channels that are neighbours in memory arrive 16 bytes at once; whatever lies
otherwise comes element by element through registers, or is copied first where that is faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.batch_invariance import memoize_for_images
from graphdnn.engines.cuda.codegen.cost import device_cost, least_seconds, memory_seconds, other_seconds, where_idle
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.codegen.tensor_cores import EXACT_PAIRS, OF_EXACT, OF_TF32, TF32_PAIRS
from graphdnn.engines.cuda.codegen.vectors import width_for
from graphdnn.engines.cuda.conv_geometry.gemm_problem import GemmProblem, Residue, gemm_problem_of, im2col_and_dense
from graphdnn.engines.cuda.simt.implicit_fields import RESIDUES, are_short, describe
from graphdnn.engines.cuda.sm80.mma_operands import Side, laid, offset_type, sides_of
from graphdnn.engines.cuda.sm80.mma_requirements import mma_needs
from graphdnn.engines.cuda.sm80.mma_tiles import KNOBS, LARGEST_SHARE, SPLIT, Shape, blocks_of, product_rate
from graphdnn.engines.engine import Cost, Knobs, Task
from graphdnn.enums import LayoutType
from graphdnn.fusion.fused_graph import FusedOp

_PIXEL, _FILTER = 0, 2  # as in the kernel's text
_FILES = (
    "direct_copy.cuh", "predicated_load.cuh", "implicit_coordinates.cuh", "ldmatrix.cuh", "mma.cuh", "mma_tile.cuh",
    "mma_operands.cuh", "mma_epilogue.cuh", "mma_gemm.cu",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Plan:
    op: FusedOp
    product: GemmProblem
    shape: Shape
    gathered: Side
    plain: Side
    compute: str

    @property
    def name(self) -> str:
        split = "_split" if self.shape.parts > 1 else ""
        return f"conv_{self.product.roles.direction}__mma_{self.shape.name}{split}__{self.op.name}"


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    product = gemm_problem_of(op)
    roles = product.roles
    steps = LaunchSequence(op, device)
    way = laid(product, device, knobs)
    gathered, plain = (
        spec if copy is None else steps.relayout(spec, copy)
        for spec, copy in zip(im2col_and_dense(roles), way.copies, strict=True)
    )
    sides = sides_of(product, gathered, plain)
    plan = _Plan(op, product, way.shape, *sides, COMPUTE_TYPE[roles.op.compute_type])
    for first in range(0, len(product.residues), RESIDUES):
        _add(steps, plan, product.residues[first : first + RESIDUES])
    return steps.kernel(plan.name)


def _add(steps: LaunchSequence, plan: _Plan, residues: Sequence[Residue]) -> None:
    """The launches for some of the residues."""
    op, product, shape = plan.op, plan.product, plan.shape
    roles, tile = product.roles, shape.tile
    p, out_space = roles.problem, roles.space(roles.output)
    parameters = Parameters(steps.workspace_offsets)

    columns_axis = 2 if (product.is_wgrad or not product.swapped) else 5
    width = min(width_for(out_space, steps.epilogue_tensors(), columns_axis), 8)
    if columns_axis == 5 and product.out_stride[-1] > 1:
        width = 1
    is_split = shape.parts > 1
    body = Program(op, parameters, out_space, "t", width=width, vector_axis=columns_axis, keeps=not is_split)
    steps.finish(body, "acc", plan.compute)

    parameters.tensor("gathered", plan.gathered.spec)
    parameters.tensor("plain", plan.plain.spec)
    split = describe(parameters, product, residues, plan.gathered.strides, plan.plain.strides, shape.bk, shape.parts)
    results = [product.rows(r) * product.columns(r) for r in residues]
    if split > 1:
        parameters.scratch("partial", plan.compute, steps.allocate(split * p.groups * sum(results) * 4))
    else:
        parameters.nothing("partial", plan.compute)

    packs = -(-p.groups * max(results) // width)
    sum_threads = 32 if packs < 512 * steps.device.sm_count else 256  # few go to every SM
    a, b = (plan.plain, plan.gathered) if product.swapped else (plan.gathered, plan.plain)
    text = kernel_text(
        plan.name,
        [*_FILES, *(["reduce_splits.cu"] if split > 1 else [])],
        parameters=parameters.text,
        functions=_epilogue(body, plan.compute, is_split),
        constants={
            "BLOCKS": shape.resident,
            "BM": tile.bm, "BN": tile.bn, "BK": shape.bk, "WM": tile.wm, "WN": tile.wn,
            "THREADS": tile.threads, "STAGES": shape.stages,
            "BATCH": shape.batch, "STAYS": shape.stays,
            "SPATIAL": p.spatial,
            "ARE_SHORT": are_short(product, 2**16),
            "RESIDUES": min(len(product.residues), RESIDUES),
            "CHECKED": any(before or after for before, after in product.margins),
            "K_KIND": _PIXEL if product.is_wgrad else _FILTER,
            "A_IS_PLAIN": product.swapped,
            "VECTOR_A": a.width, "VECTOR_B": b.width, "ALONG_K_A": a.along_sum, "ALONG_K_B": b.along_sum,
            "TURNED_A": a.is_turned, "TURNED_B": b.is_turned,
            "SPLIT": split > 1, **({"SUM_THREADS": sum_threads} if split > 1 else {}),
            "WIDTH": width,
            "Offset": offset_type((plan.gathered, plan.plain)),
            "StoredGathered": plan.gathered.storage, "StoredPlain": plan.plain.storage,
            "StoredA": a.storage, "StoredB": b.storage, "A": a.storage, "B": b.storage,
            "Accum": plan.compute,
        },
    )  # fmt: skip
    packed = parameters.pack()
    tiles = blocks_of(product, tile)
    staying = max(1, shape.resident * steps.device.sm_count // split)
    grid = (min(tiles, staying) if shape.stays else tiles, split, len(residues))
    shared = shape.shared(ELEMENTS[plan.gathered.spec.data_type].bytes)
    steps.add(Launch(text, "mma_gemm", grid, tile.threads, packed, shared))
    if split > 1:
        count = min(-(-packs // sum_threads), 16 * steps.device.sm_count)
        steps.add(Launch(text, "reduce_splits", (count, 1, len(residues)), sum_threads, packed))


def _epilogue(body: Program, compute: str, is_split: bool) -> list[str]:
    """The functions ``epilogue`` and ``keep``: the sum of parts keeps nothing."""
    acc = f"const {compute} (&acc)[{body.width}]"
    if not is_split:
        return [body.keeping(), body.function("epilogue", f"const ColumnOperands& kept, {acc}")]
    at = "const Params& p, const int (&at)[6]"
    nothing = (
        "struct ColumnOperands {};\n"
        f"__device__ __forceinline__ void load_column_operands({at}, ColumnOperands& kept) {{}}\n"
        f"__device__ __forceinline__ void epilogue({at}, const ColumnOperands& kept, {acc}) {{\n"
        "    epilogue(p, at, acc);\n}\n"
    )
    return [body.function("epilogue", acc), nothing]


# The tiles' model ranks tiles; beside other engines it was too fast: results leave while nothing is multiplied.
_PACE, _LEAVING = 1.88, 0.5
_IDLE = 0.4  # of a launch, that blocks do not take which leave nearly all multiprocessors idle
_WARPGROUPS = (9, 0)  # from here on a data sheet's rate is that of warpgroups' products, which these do not reach


def _pace(device: DeviceSpec) -> float:
    return _PACE if device.compute_capability >= _WARPGROUPS else 1.0


def _cost(task: Task, knobs: Knobs) -> Cost:
    product = gemm_problem_of(task.op)
    gathered, plain = im2col_and_dense(product.roles)
    way = laid(product, task.device, knobs)
    shape = way.shape
    rows = sum(-(-product.rows(r) // shape.tile.bm) for r in product.residues if all(r.taps))
    columns = max(-(-product.columns(r) // shape.tile.bn) for r in product.residues)
    rereads = (max(0, rows - 1) * plain.bytes + (columns - 1) * gathered.bytes) / 16  # nearly all of them hit the cache
    cost = device_cost(task, _pace(task.device) * way.seconds + other_seconds(task), rereads)
    cost = cost.plus({"tiles": _LEAVING * cost.parts["memory"]})
    blocks = rows * columns * product.roles.problem.groups * shape.parts
    return where_idle(cost, task.device, blocks, _IDLE)


@memoize_for_images
def _element(op: FusedOp) -> int:
    """Bytes of an operand's."""
    return ELEMENTS[next(iter(op.main.inputs().values())).data_type].bytes


def _least(task: Task) -> float:
    element = _element(task.op)
    products = least_seconds(task, 1, product_rate(task.device, element) * LARGEST_SHARE / _pace(task.device))
    return products + _LEAVING * memory_seconds(task) - _IDLE * task.device.launch


_COMMON: dict[str, Any] = {
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
    **OF_EXACT,
    **_COMMON,
)
ENGINE_TF32 = cuda_engine(
    id=44,
    name="cuda_mma_gemm_tf32",
    summary="fp32 convolutions on the same tensor cores, operands rounded to TF32; only where that is allowed",
    needs=mma_needs("cuda_mma_gemm_tf32", TF32_PAIRS, "nothing to do: other engines serve other types"),
    **OF_TF32,
    **_COMMON,
)

"""Engine ``cuda_implicit_gemm``: every convolution by implicit GEMM on CUDA cores.

| direction | rows     | columns        | summed over     | im2col   | dense |
|-----------|----------|----------------|-----------------|----------|-------|
| fprop     | pixel    | channel k      | taps, channel c | x        | w     |
| dgrad     | pixel    | channel c      | taps, channel k | dy       | w     |
| wgrad     | channel k| taps, channel c| pixel           | x        | dy    |

With contiguous pixels (NCHW), rows and columns of fprop and dgrad are exchanged, so that stores are always contiguous
along the columns. A strided dgrad is one GEMM for each residue of the positions modulo the stride (gemm_problem.py).
"""

from __future__ import annotations

from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.codegen.cost import device_cost, least_seconds, other_seconds, with_idle_sms
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.launch import DeviceKernel
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.requirements import is_of_one_tensor
from graphdnn.engines.cuda.conv_geometry.convolution_requirements import coordinates_need
from graphdnn.engines.cuda.conv_geometry.gemm_problem import gemm_problem_of, im2col_and_dense, residues_need
from graphdnn.engines.cuda.simt.implicit_dp4a import QUAD, counted
from graphdnn.engines.cuda.simt.implicit_fields import RESIDUES, split_value
from graphdnn.engines.cuda.simt.implicit_launches import add_launches
from graphdnn.engines.cuda.simt.implicit_plan import Plan, is_thrifty
from graphdnn.engines.cuda.simt.implicit_tiles import LARGEST_SHARE, SPLIT, TILE, TILES, choose
from graphdnn.engines.engine import Cost, Knobs, Task, needs_rule
from graphdnn.engines.sum_error import ROUNDED
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvolutionOperation


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    steps = LaunchSequence(op, device)
    if is_of_one_tensor(op):
        kernel = generate(_with_a_copy(op, steps), device, knobs)
        steps.include(kernel)
        return steps.kernel(kernel.name)
    plan = Plan.of(op, steps, knobs)
    residues = plan.product.residues
    splits = [add_launches(steps, plan, residues[n : n + RESIDUES]) for n in range(0, len(residues), RESIDUES)]
    return steps.kernel(plan.name(max(splits)))


def _with_a_copy(op: FusedOp, steps: LaunchSequence) -> FusedOp:
    """The same convolution with a copy of its filter in the workspace, if one tensor is both image and filter."""
    anchor = op.anchor
    assert isinstance(anchor, ConvolutionOperation)
    copy = steps.relayout(anchor.roles[1])
    return op.with_anchor(anchor.model_copy(update={anchor.role_names[1]: copy}))


_IDLE = 0.15  # the part of a launch's time that a grid saves if it leaves nearly all SMs idle


def _cost(task: Task, knobs: Knobs) -> Cost:
    product, _ = counted(task.op, gemm_problem_of(task.op), task.device, is_thrifty(knobs))
    shape = choose(product, task.device, task.op.main.compute_type, knobs)
    im2col, dense = im2col_and_dense(product.roles)
    rows = sum(-(-product.rows(r) // shape.tile.bm) for r in product.residues if all(r.taps))
    columns = max(-(-product.columns(r) // shape.tile.bn) for r in product.residues)
    rereads = (max(0, rows - 1) * dense.bytes + (columns - 1) * im2col.bytes) / 8  # most of them hit L2
    cost = device_cost(task, shape.seconds + other_seconds(task), rereads)
    blocks = rows * columns * product.roles.problem.groups * shape.splits
    return with_idle_sms(cost, task.device, blocks, _IDLE)


def _least(task: Task) -> float:
    compute = task.op.main.compute_type
    at_once = QUAD if ELEMENTS[compute].kind == "int" else 1
    least = least_seconds(task, 1, at_once * task.device.compute_rate(compute) * LARGEST_SHARE)
    return least - _IDLE * task.device.launch


def _effective(task: Task, knobs: Knobs) -> Knobs:
    """The knob values of the kernel that is launched."""
    product, _ = counted(task.op, gemm_problem_of(task.op), task.device, is_thrifty(knobs))
    shape = choose(product, task.device, task.op.main.compute_type, knobs)
    split = split_value(product, shape.tile.bk, shape.splits)
    if split == 1 and not is_thrifty(knobs) and _copies(task, knobs) != _copies(task, {**knobs, SPLIT.type: 1}):
        split = 0  # the value 1 needs no workspace
    return {TILE.type: TILES.index(shape.tile) + 1, SPLIT.type: split}


def _copies(task: Task, knobs: Knobs) -> tuple[int, bool]:
    """Bytes of copied operands, and whether dp4a is used."""
    steps = LaunchSequence(task.op, task.device)
    op = _with_a_copy(task.op, steps) if is_of_one_tensor(task.op) else task.op
    plan = Plan.of(op, steps, knobs)
    return steps.kernel(plan.name(1)).workspace_bytes, plan.is_dp4a


ENGINE = cuda_engine(
    id=10,
    name="cuda_implicit_gemm",
    summary="every convolution, type and layout on the ordinary units; integers exact",
    needs=(
        needs_rule("cuda_implicit_gemm.operation", "conv"),
        coordinates_need("cuda_implicit_gemm"),
        residues_need("cuda_implicit_gemm"),
    ),
    cost=_cost,
    least=_least,
    generate=generate,
    knobs=(TILE, SPLIT),
    effective=_effective,
    frugal={SPLIT.type: 1},
    sum_error=ROUNDED,
    is_general=True,
    copies_one_tensor=True,
)

"""Engine ``cuda_reduction``: a reduction with pointwise operations before and after it."""

from __future__ import annotations

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.cost import memory_cost
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.launch import DeviceKernel
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE
from graphdnn.engines.cuda.reduction.reduction_kernels import Fold, FoldKind, generate_fold
from graphdnn.engines.engine import needs_rule
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import Reduction


def generate_reduction(op: FusedOp, device: DeviceSpec) -> DeviceKernel:
    anchor = op.anchor
    assert isinstance(anchor, Reduction)
    compute = COMPUTE_TYPE[anchor.compute_type]
    fold = Fold(
        name=f"reduction_{anchor.spec.operator.name.lower()}",
        kind=FoldKind.OPERATOR,
        streamed=(anchor.x,),
        extents=anchor.y.extents,
        finish=lambda steps, program: steps.write_epilogue(program, "acc[0]", compute),
        constants={"OPERATOR": int(anchor.spec.operator)},
    )
    return generate_fold(op, device, fold)


ENGINE = cuda_engine(
    id=31,
    name="cuda_reduction",
    summary="reductions over any axes or groups of them in one pass over memory, in a fixed order",
    needs=(needs_rule("cuda_reduction.operation", "reduction"),),
    cost=lambda task, knobs: memory_cost(task, launches=2),
    generate=lambda op, device, knobs: generate_reduction(op, device),
    is_general=True,
)

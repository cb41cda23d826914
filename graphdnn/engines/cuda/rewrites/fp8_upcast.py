"""Rewrite ``fp8_upcast``: convolutions and matrix products of fp8 operands, through 16-bit copies.

Both fp8 types are subsets of fp16 and of bfloat16, so the copies are exact. Accumulation is in fp32, while fp8 tensor
cores keep 14 bits. A copy moves three bytes for each element, which takes little time compared with the GEMM. Engines
for 16-bit floats multiply the copies.
"""

from __future__ import annotations

from graphdnn.checks import OneOf
from graphdnn.dtypes import FP8
from graphdnn.engines.cuda.codegen.index_space import is_addressable
from graphdnn.engines.cuda.codegen.tensor_cores import EXACT_OPTIONS
from graphdnn.engines.cuda.conv_geometry.convolution_roles import Roles
from graphdnn.engines.cuda.cublas import matmul_cublas
from graphdnn.engines.cuda.rewrites.rewrite import DelegateRefusal, Rewrite, Rewritten, copied_before
from graphdnn.engines.cuda.sm80 import mma_gemm
from graphdnn.engines.cuda.sm90.gemm import hopper_gemm, hopper_matmul
from graphdnn.engines.cuda.sm90.halo import hopper_halo
from graphdnn.engines.cuda.sm90.tma_operands import channels_last_strides, operands
from graphdnn.engines.engine import Cost, Task, kind_need, needs_rule
from graphdnn.engines.memoization import memoize
from graphdnn.enums import DataType
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvolutionOperation, Matmul
from graphdnn.tensors import TensorSpec, stride_order

_ROW_MULTIPLE = 8  # elements; rows of a copy are aligned to 16 bytes
_TYPES_16BIT = (DataType.HALF, DataType.BFLOAT16)
_PAIRS = (
    *((a, b) for a in FP8 for b in FP8),
    *((a, b) for a in FP8 for b in _TYPES_16BIT),
    *((a, b) for a in _TYPES_16BIT for b in FP8),
)
_COPY_BANDWIDTH_SHARE = 0.8  # of the memory bandwidth


def _types(task: Task) -> tuple[DataType, ...]:
    return tuple(t.data_type for t in task.op.main.inputs().values())


@memoize
def _upcast(op: FusedOp) -> tuple[Rewritten, ...]:
    """The operation on 16-bit copies. The result of a prologue has no memory, so it cannot be copied."""
    if op.prologue:
        return ()
    anchor = op.anchor
    assert isinstance(anchor, (ConvolutionOperation, Matmul))
    read = anchor.inputs()
    kind = next((t.data_type for t in read.values() if t.data_type in _TYPES_16BIT), DataType.HALF)
    narrow = {port: t for port, t in read.items() if t.data_type in FP8}
    changes: dict[str, object] = {port: t.model_copy(update={"data_type": kind}) for port, t in narrow.items()}
    if anchor.compute_type is DataType.FAST_FLOAT_FOR_FP8:  # does not apply to 16-bit operands
        name = "spec" if isinstance(anchor, Matmul) else "conv"
        changes[name] = getattr(anchor, name).model_copy(update={"compute_type": DataType.FLOAT})
    upcast = anchor.model_copy(update=changes)
    if isinstance(upcast, Matmul):
        strides = {t.uid: _packed(t) for t in narrow.values()}
    else:
        strides = {o.spec.uid: channels_last_strides(o) for o in operands(Roles.of(upcast))}
    lowest_uid = min(t.uid for t in (*op.inputs, *op.outputs, *op.internal))
    copies = {
        port: t.model_copy(
            update={
                "uid": lowest_uid - 1 - i, "data_type": kind, "dims": t.extents, "strides": strides[t.uid],
                "vector_count": 1, "vectorized_dimension": -1, "byte_alignment": 16, "is_virtual": False,
            }
        )
        for i, (port, t) in enumerate(narrow.items())
    }  # fmt: skip
    wide = op.with_anchor(upcast.model_copy(update=dict(copies)))
    pairs = [(narrow[port], copy) for port, copy in copies.items()]
    passes = [copied_before(spec, copy, f"{spec.label()} copied to {kind.name}") for spec, copy in pairs]
    return (Rewritten(wide, tuple(passes)),)


def _packed(spec: TensorSpec) -> tuple[int, ...]:
    """Packed strides in the order of the axes; rows are padded to a multiple of 16 bytes."""
    extents, strides = spec.extents, [0] * len(spec.extents)
    stride = 1
    for i, axis in enumerate(
        reversed(stride_order(spec.dims, spec.strides) if is_addressable(spec) else range(len(extents)))
    ):
        strides[axis] = stride
        stride *= extents[axis]
        if i == 0:
            stride = -(-stride // _ROW_MULTIPLE) * _ROW_MULTIPLE
    return tuple(strides)


def _cost(task: Task, form: Rewritten, delegate_cost: Cost) -> Cost:
    traffic = sum(one.bytes for one in form.before)
    seconds = traffic / (_COPY_BANDWIDTH_SHARE * task.device.bandwidth)
    return delegate_cost.plus({"copies": len(form.before) * task.device.launch + seconds})


def _is_contraction(task: Task) -> bool:
    return isinstance(task.op.anchor, (ConvolutionOperation, Matmul))


ROW = Rewrite(
    id=62,
    name="fp8_upcast",
    summary="convolutions and matrix products of fp8 through copies in 16 bits, on tensor cores, with sums in fp32",
    why="an operand is fp8",
    match=(
        needs_rule("cuda_fp8_upcast.operation", "conv", "matmul"),
        kind_need(
            "cuda_fp8_upcast.data_type",
            "data_type",
            _types,
            OneOf(*_PAIRS),
            reason="operands in fp8 are copied to 16-bit floats",
            fix="nothing to do: another engine serves other types",
            when=_is_contraction,
        ),
    ),
    rewrite=_upcast,
    engines=(
        hopper_gemm.ENGINE, hopper_halo.ENGINE, mma_gemm.ENGINE, hopper_matmul.ENGINE, matmul_cublas.ENGINE,
    ),
    refusal=DelegateRefusal(
        "an operation that an engine for 16-bit floats on tensor cores serves",
        reason="these engines multiply the copies, and each of them declines this operation",
        fix="let pointwise operations before it write their result, and accumulate in FLOAT",
        rule="copies",
    ),
    cost=_cost,
    notes=EXACT_OPTIONS,
)  # fmt: skip

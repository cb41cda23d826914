"""The requirements of the implicit GEMM with mma.sync."""

from __future__ import annotations

from graphdnn.checks import OneOf
from graphdnn.dtypes import FLOAT_COMPUTE
from graphdnn.engines.cuda.codegen.requirements import SHARED_MEMORY
from graphdnn.engines.cuda.codegen.tensor_cores import FLOAT_PAIRS, TF32_PAIRS, Pairs
from graphdnn.engines.cuda.conv_geometry.convolution_requirements import coordinates_need, is_convolution, prologue_need
from graphdnn.engines.cuda.conv_geometry.gemm_problem import residues_need
from graphdnn.engines.engine import Task, kind_need, needs_rule
from graphdnn.enums import DataType
from graphdnn.rules import Constraint


def _types(task: Task) -> tuple[DataType, ...]:
    return tuple(t.data_type for t in task.op.main.inputs().values())


def _sums(task: Task) -> OneOf:
    return OneOf(*FLOAT_COMPUTE) if _types(task) in (*FLOAT_PAIRS, *TF32_PAIRS) else OneOf(DataType.INT32)


def mma_needs(prefix: str, pairs: Pairs, types_fix: str = "cast both to one of them") -> tuple[Constraint, ...]:
    """The requirements; rule ids begin with ``prefix``. ``types_fix``: the fix for operands of other types."""
    return (
        needs_rule(f"{prefix}.operation", "conv"),
        SHARED_MEMORY,
        kind_need(
            f"{prefix}.data_type",
            "data_type",
            _types,
            OneOf(*pairs),
            reason="the tensor cores take pairs of these types here",
            fix=types_fix,
            when=is_convolution,
        ),
        kind_need(
            f"{prefix}.compute_type",
            "conv.compute_type",
            lambda task: task.op.main.compute_type,
            _sums,
            reason="tensor cores add 16-bit products in fp32, and products of bytes in int32",
            fix="accumulate floats in FLOAT, bytes in INT32",
            when=lambda task: is_convolution(task) and _types(task) in pairs,
        ),
        prologue_need(prefix, is_convolution, "operands are copied"),
        coordinates_need(prefix),
        residues_need(prefix),
    )

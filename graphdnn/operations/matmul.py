"""Matrix product over the last two axes; all leading axes are batch."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from graphdnn.attribute_names import AttributeName as A
from graphdnn.checks import AtLeast, Equals
from graphdnn.enums import AttributeType as T
from graphdnn.enums import DataType, DescriptorType, Status
from graphdnn.operations.base import (
    Extents,
    Operation,
    compute_constraints,
    extents_constraint,
    output_constraints,
    same_rank,
)
from graphdnn.operations.convolution import COMPUTE_TYPES
from graphdnn.rules import Constraint
from graphdnn.spec import ElementType, Refused, Spec, attr, port
from graphdnn.tensors import TensorSpec

_OVERRIDE = "per-batch sizes belong to attention graphs, which have no engine here"


class MatmulSpec(Spec):
    """Parameters of a matrix product."""

    descriptor = DescriptorType.MATMUL
    refused = (Refused(A.MATMUL_PADDING_VALUE, (T.DOUBLE,), _OVERRIDE),)

    compute_type: Annotated[
        ElementType, attr(A.MATMUL_COMP_TYPE, T.DATA_TYPE, "the accumulation type", "FLOAT, or INT32 for integers")
    ]


def batch_extents(a: Extents, b: Extents) -> Extents | None:
    """Batch of c: per axis the larger extent, which the smaller one has to divide; None when it does not."""
    batch = []
    for left, right in zip(a[:-2], b[:-2], strict=True):
        large, small = max(left, right), min(left, right)
        if small and large % small:  # an extent of 0 is refused by its tensor
            return None
        batch.append(large)
    return tuple(batch)


class Matmul(Operation):
    """c = a @ b."""

    descriptor = DescriptorType.OPERATION_MATMUL
    tag = "matmul"
    constraints: ClassVar[tuple[tuple[Constraint, ...], ...]] = (
        (same_rank("matmul"),),
        (
            Constraint(
                id="matmul.rank.minimum",
                attribute="a.dims",
                look=lambda op: op.a.rank,
                check=AtLeast(2),
                reason="the product is over the last two axes",
                fix="write a vector as a matrix of one row or column",
                status=Status.NOT_SUPPORTED_SHAPE,
            ),
        ),
        (
            Constraint(
                id="matmul.inner",
                attribute="b.dims[-2]",
                look=lambda op: op.b.extents[-2],
                check=lambda op: Equals(op.a.extents[-1]),
                reason="a is [batch..., M, K] and b is [batch..., K, N]: they share K",
                fix="exchange the strides of an operand to transpose it, or correct the extents",
                status=Status.BAD_PARAM_SHAPE_MISMATCH,
            ),
            Constraint(
                id="matmul.batch",
                attribute="dims",
                look=lambda op: (op.a.extents[:-2], op.b.extents[:-2]),
                check=Equals("batch extents that are equal, or one a divisor of the other"),
                when=lambda op: batch_extents(op.a.extents, op.b.extents) is None,
                reason="consecutive matrices of the larger batch share one matrix of the smaller batch",
                fix="use equal batch extents, or 1",
                status=Status.BAD_PARAM_SHAPE_MISMATCH,
            ),
            *compute_constraints("matmul", "spec.compute_type", COMPUTE_TYPES, lambda op: op.inputs()),
        ),
        (
            extents_constraint("matmul.c.extents", "c", "c is [batch..., M, N]", "use the expected extents"),
            output_constraints("matmul"),
        ),
    )
    refused = (
        Refused(A.OPERATION_MATMUL_IRREGULARLY_STRIDED_BATCH_COUNT, (T.INT64,), "deprecated, and without an engine"),
        Refused(A.OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, (T.BACKEND_DESCRIPTOR,), _OVERRIDE),
        Refused(A.OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, (T.BACKEND_DESCRIPTOR,), _OVERRIDE),
        Refused(A.OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, (T.BACKEND_DESCRIPTOR,), _OVERRIDE),
    )

    a: Annotated[TensorSpec, port(A.OPERATION_MATMUL_ADESC, "input", "[batch..., M, K]")]
    b: Annotated[TensorSpec, port(A.OPERATION_MATMUL_BDESC, "input", "[batch..., K, N]")]
    c: Annotated[TensorSpec, port(A.OPERATION_MATMUL_CDESC, "output", "[batch..., M, N]")]
    spec: Annotated[
        MatmulSpec, attr(A.OPERATION_MATMUL_DESC, T.BACKEND_DESCRIPTOR, "a matmul descriptor", "give a MatmulSpec")
    ]

    @classmethod
    def infer(cls, fields: Mapping[str, Any]) -> dict[str, Extents]:
        a, b = fields["a"].extents, fields["b"].extents
        batch = batch_extents(a, b)
        return {} if batch is None else {"c": (*batch, a[-2], b[-1])}

    @property
    def compute_type(self) -> DataType:
        return self.spec.compute_type

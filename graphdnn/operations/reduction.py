"""Reduction: over every axis where y is shorter than x."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from graphdnn.attribute_names import AttributeName as A
from graphdnn.checks import Equals, OneOf
from graphdnn.dtypes import FLOATS, INTEGER_COMPUTE
from graphdnn.enums import AttributeType as T
from graphdnn.enums import DataType, DescriptorType, ReductionOperator, Status
from graphdnn.operations.base import Extents, Operation, compute_constraints, output_constraints, same_rank
from graphdnn.operations.convolution import COMPUTE_TYPES
from graphdnn.rules import Constraint
from graphdnn.spec import ElementType, Refused, Spec, attr, port
from graphdnn.tensors import TensorSpec

_USER_REDUCER = "reductions with a user's own combiner graph are not implemented"
_INEXACT_IN_INTEGERS = (ReductionOperator.AVG, ReductionOperator.NORM2)


class ReductionSpec(Spec):
    """Operator, accumulation type and determinism of a reduction."""

    descriptor = DescriptorType.REDUCTION
    constraints: ClassVar[tuple[tuple[Constraint, ...], ...]] = (
        (
            Constraint(
                id="reduction.operator.integer",
                attribute="operator",
                look=lambda r: r.operator,
                check=OneOf(*(o for o in ReductionOperator if o not in _INEXACT_IN_INTEGERS)),
                when=lambda r: r.compute_type in INTEGER_COMPUTE,
                reason="a quotient or a square root is not an integer",
                fix="use a floating compute type",
                status=Status.NOT_SUPPORTED_DATA_TYPE,
            ),
        ),
    )

    operator: Annotated[
        ReductionOperator,
        attr(A.REDUCTION_OPERATOR, T.REDUCTION_OPERATOR_TYPE, "a ReductionOperator", "ReductionOperator.ADD"),
    ]
    compute_type: Annotated[
        ElementType, attr(A.REDUCTION_COMP_TYPE, T.DATA_TYPE, "the accumulation type", "DataType.FLOAT")
    ]
    is_deterministic: Annotated[
        bool, attr(A.REDUCTION_IS_DETERMINISTIC, T.BOOLEAN, "a bool", "True for bitwise stable sums")
    ] = False


def _does_not_divide(op: "Reduction") -> bool:
    return any(x % y for x, y in zip(op.x.extents, op.y.extents, strict=True))


class Reduction(Operation):
    """y = operator over the elements of x that fall onto each element of y."""

    descriptor = DescriptorType.OPERATION_REDUCTION
    tag = "reduction"
    constraints = (
        (same_rank("reduction"),),
        (
            Constraint(
                id="reduction.y.extents",
                attribute="y.dims",
                look=lambda op: op.y.extents,
                check=lambda op: Equals(f"{op.x.extents}, with 1 (or a divisor) on the reduced axes"),
                when=_does_not_divide,
                reason="an axis is kept, reduced to 1, or reduced in groups of consecutive elements",
                fix="use 1 on the axes to reduce",
                status=Status.BAD_PARAM_SHAPE_MISMATCH,
            ),
            *compute_constraints(
                "reduction", "spec.compute_type", (*FLOATS[:4], *COMPUTE_TYPES[-2:]), lambda op: op.inputs()
            ),
            output_constraints("reduction"),
        ),
    )
    refused = (
        Refused(
            A.OPERATION_REDUCTION_GROUP_OFFSET_DESC, (T.BACKEND_DESCRIPTOR,), "segmented reductions are not implemented"
        ),
        Refused(A.OPERATION_REDUCTION_DIMS, (T.INT64,), _USER_REDUCER),
        Refused(A.OPERATION_REDUCTION_INIT_VALUES, (T.VOID_PTR,), _USER_REDUCER),
        Refused(A.OPERATION_REDUCTION_SUBGRAPH, (T.BACKEND_DESCRIPTOR,), _USER_REDUCER),
        Refused(A.OPERATION_REDUCTION_SUBGRAPH_ACCUMULATOR_UIDS, (T.INT64,), _USER_REDUCER),
        Refused(A.OPERATION_REDUCTION_SUBGRAPH_CURRENT_UIDS, (T.INT64,), _USER_REDUCER),
        Refused(A.OPERATION_REDUCTION_SUBGRAPH_OUTPUT_UIDS, (T.INT64,), _USER_REDUCER),
        Refused(A.OPERATION_REDUCTION_SUBGRAPH_COMPUTE_TYPES, (T.DATA_TYPE,), _USER_REDUCER),
    )

    x: Annotated[TensorSpec, port(A.OPERATION_REDUCTION_XDESC, "input", "what is reduced")]
    y: Annotated[TensorSpec, port(A.OPERATION_REDUCTION_YDESC, "output", "1 on the reduced axes")]
    spec: Annotated[
        ReductionSpec,
        attr(A.OPERATION_REDUCTION_DESC, T.BACKEND_DESCRIPTOR, "a reduction descriptor", "give a ReductionSpec"),
    ]

    @classmethod
    def infer(cls, fields: Mapping[str, Any]) -> dict[str, Extents]:
        """Nothing: the extents of y say what is reduced."""
        return {}

    @property
    def compute_type(self) -> DataType:
        return self.spec.compute_type

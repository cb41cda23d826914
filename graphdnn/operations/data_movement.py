"""Data movement: concat, reshape, transpose, slice. Elements move, their type and value do not change."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from graphdnn.attribute_names import AttributeName as A
from graphdnn.checks import AtLeast, Check, Each, Equals, InRange, LengthIn
from graphdnn.enums import AttributeType as T
from graphdnn.enums import DataType, DescriptorType, ReshapeMode, Status
from graphdnn.operations.base import Extents, Operation, extents_constraint, output_constraints, same_rank
from graphdnn.rules import Constraint
from graphdnn.spec import Int64, Int64s, Refused, attr, port
from graphdnn.tensors import DIM_MAX, TensorSpec


def _same_type(prefix: str) -> Constraint:
    return Constraint(
        id=f"{prefix}.data_type",
        attribute="data_type",
        look=lambda op: {p: t.data_type.name for p, t in op.tensors().items()},
        check=Equals("one element type"),
        when=lambda op: len({t.data_type for t in op.tensors().values()}) > 1,
        reason="data movement does not convert element types",
        fix="convert with an IDENTITY operation before or after",
        status=Status.NOT_SUPPORTED_DATA_TYPE,
    )


class DataMovement(Operation):
    """What the four have in common: no arithmetic, so the compute type is the element type."""

    @property
    def compute_type(self) -> DataType:
        return next(iter(self.outputs().values())).data_type


def _off_axis(op: "Concat") -> set[Extents]:
    return {(*t.extents[: op.axis], *t.extents[op.axis + 1 :]) for t in op.inputs_list}


class Concat(DataMovement):
    """y = the inputs one after another along ``axis``."""

    descriptor = DescriptorType.OPERATION_CONCAT
    tag = "concat"
    constraints: ClassVar[tuple[tuple[Constraint, ...], ...]] = (
        (
            Constraint(
                id="concat.inputs.empty",
                attribute="inputs_list",
                look=lambda op: op.inputs_list,
                check=LengthIn(1, 2**31),
                reason="there is nothing to concatenate",
                fix="give at least one tensor",
            ),
        ),
        (
            same_rank("concat"),
            Constraint(
                id="concat.axis",
                attribute="axis",
                look=lambda op: op.axis,
                check=lambda op: InRange(0, op.y.rank - 1),
                reason="axes count from 0 to rank-1",
                fix="name an axis of the tensors",
                status=Status.BAD_PARAM_OUT_OF_BOUND,
            ),
        ),
        (
            Constraint(
                id="concat.inputs.extents",
                attribute="inputs_list",
                look=lambda op: [t.extents for t in op.inputs_list],
                check=Equals("equal extents on every axis but the concatenated one"),
                when=lambda op: len(_off_axis(op)) > 1,
                reason="the inputs have equal extents on all axes but the concatenated one",
                fix="slice or pad the inputs",
                status=Status.BAD_PARAM_SHAPE_MISMATCH,
            ),
            _same_type("concat"),
        ),
        (
            extents_constraint("concat.y.extents", "y", "extents add up along the axis", "use the expected extents"),
            output_constraints("concat"),
        ),
    )
    refused = (
        Refused(
            A.OPERATION_CONCAT_INPLACE_INDEX,
            (T.INT64,),
            "outputs never overlap inputs here",
            "leave it unset; or let the producer write into the concatenated tensor through its strides",
        ),
    )

    axis: Annotated[Int64, attr(A.OPERATION_CONCAT_AXIS, T.INT64, "an axis", "1 for channels")]
    inputs_list: Annotated[
        tuple[TensorSpec, ...], port(A.OPERATION_CONCAT_INPUT_DESCS, "input", "in order", (1, 2**31 - 1))
    ]
    y: Annotated[TensorSpec, port(A.OPERATION_CONCAT_OUTPUT_DESC, "output", "extents add up along the axis")]

    @classmethod
    def infer(cls, fields: Mapping[str, Any]) -> dict[str, Extents]:
        inputs, axis = fields["inputs_list"], fields["axis"]
        first = inputs[0].extents
        return {"y": (*first[:axis], sum(t.extents[axis] for t in inputs), *first[axis + 1 :])}


class Reshape(DataMovement):
    """y = the elements of x under other extents: in memory order (VIEW_ONLY) or row-major order (LOGICAL)."""

    descriptor = DescriptorType.OPERATION_RESHAPE
    tag = "reshape"
    constraints = (
        (
            Constraint(
                id="reshape.elements",
                attribute="y.dims",
                look=lambda op: op.y.elements,
                check=lambda op: Equals(op.x.elements),
                reason="a reshape keeps every element",
                fix="use extents with the same product",
                status=Status.BAD_PARAM_SHAPE_MISMATCH,
            ),
            Constraint(
                id="reshape.view.packed",
                attribute="strides",
                look=lambda op: {p: t.strides for p, t in op.tensors().items()},
                check=Equals("packed tensors"),
                when=lambda op: (
                    op.mode is ReshapeMode.VIEW_ONLY and not all(t.is_packed for t in op.tensors().values())
                ),
                reason="a view re-reads memory from first to last element, so there must be no gaps",
                fix="use packed strides, or ReshapeMode.LOGICAL",
                status=Status.NOT_SUPPORTED_LAYOUT,
            ),
            _same_type("reshape"),
            output_constraints("reshape"),
        ),
    )

    x: Annotated[TensorSpec, port(A.OPERATION_RESHAPE_XDESC, "input", "any extents")]
    y: Annotated[TensorSpec, port(A.OPERATION_RESHAPE_YDESC, "output", "as many elements as x")]
    mode: Annotated[
        ReshapeMode,
        attr(A.OPERATION_RESHAPE_MODE, T.RESHAPE_MODE, "VIEW_ONLY or LOGICAL", "LOGICAL is numpy's reshape"),
    ] = ReshapeMode.VIEW_ONLY

    @classmethod
    def infer(cls, fields: Mapping[str, Any]) -> dict[str, Extents]:
        """Nothing: the extents of y are chosen."""
        return {}


class Transpose(DataMovement):
    """y with axis j taken from axis permutation[j] of x."""

    descriptor = DescriptorType.OPERATION_TRANSPOSE
    tag = "transpose"
    constraints = (
        (
            same_rank("transpose"),
            Constraint(
                id="transpose.permutation",
                attribute="permutation",
                look=lambda op: op.permutation,
                check=lambda op: Equals(f"each of 0 to {op.x.rank - 1} once"),
                when=lambda op: sorted(op.permutation) != list(range(op.x.rank)),
                reason="every axis of x goes to one axis of y",
                fix="list each axis once",
            ),
        ),
        (
            extents_constraint("transpose.y.extents", "y", "extents move with their axes", "use the expected extents"),
            _same_type("transpose"),
            output_constraints("transpose", lambda op: [op.x.strides[axis] for axis in op.permutation]),
        ),
    )

    x: Annotated[TensorSpec, port(A.OPERATION_TRANSPOSE_XDESC, "input", "any extents")]
    y: Annotated[TensorSpec, port(A.OPERATION_TRANSPOSE_YDESC, "output", "permuted extents")]
    permutation: Annotated[
        Int64s,
        attr(A.OPERATION_TRANSPOSE_PERMUTATION, T.INT64, "a permutation of the axes", "(0, 2, 3, 1)", (1, DIM_MAX)),
    ]

    @classmethod
    def infer(cls, fields: Mapping[str, Any]) -> dict[str, Extents]:
        return {"y": tuple(fields["x"].extents[axis] for axis in fields["permutation"])}


def _slice_length(field: str) -> Constraint:
    return Constraint(
        id=f"slice.{field}.length",
        attribute=field,
        look=lambda op: getattr(op, field),
        check=lambda op: LengthIn(op.x.rank, op.x.rank),
        reason="there is one entry per axis",
        fix="use 0, the extent and 1 on axes that are not cut",
        when=lambda op: field != "slice_strides" or bool(op.slice_strides),
    )


def _inside(op: "Slice") -> Check:
    return Equals(f"0 <= start < limit <= extent on every axis of {op.x.extents}")


class Slice(DataMovement):
    """y = x[start:limit:stride] on every axis."""

    descriptor = DescriptorType.OPERATION_SLICE
    tag = "slice"
    constraints = (
        (same_rank("slice"), *(_slice_length(f) for f in ("starts", "limits", "slice_strides"))),
        (
            Constraint(
                id="slice.range",
                attribute="limits",
                look=lambda op: tuple(zip(op.starts, op.limits, strict=True)),
                check=_inside,
                when=lambda op: (
                    not all(
                        0 <= start < limit <= extent
                        for start, limit, extent in zip(op.starts, op.limits, op.x.extents, strict=True)
                    )
                ),
                reason="a slice lies inside x and has at least one element",
                fix="count from 0; negative positions are not counted from the end",
                status=Status.BAD_PARAM_OUT_OF_BOUND,
            ),
            Constraint(
                id="slice.strides.positive",
                attribute="slice_strides",
                look=lambda op: op.slice_strides,
                check=Each(AtLeast(1)),
                reason="the slice runs forward",
                fix="use 1 to keep every element",
            ),
            _same_type("slice"),
        ),
        (
            extents_constraint(
                "slice.y.extents", "y", "ceil((limit - start) / stride) per axis", "use the expected extents"
            ),
            output_constraints("slice", lambda op: [a * b for a, b in zip(op.steps, op.x.strides, strict=True)]),
        ),
    )

    x: Annotated[TensorSpec, port(A.OPERATION_SLICE_XDESC, "input", "any extents")]
    y: Annotated[TensorSpec, port(A.OPERATION_SLICE_YDESC, "output", "what is kept")]
    starts: Annotated[
        Int64s, attr(A.OPERATION_SLICE_START_INDICES, T.INT64, "first index per axis", "0s", (1, DIM_MAX))
    ]
    limits: Annotated[
        Int64s,
        attr(A.OPERATION_SLICE_LIMIT_INDICES, T.INT64, "index after the last per axis", "x's extents", (1, DIM_MAX)),
    ]
    slice_strides: Annotated[
        Int64s, attr(A.OPERATION_SLICE_STRIDES, T.INT64, "step per axis", "leave it unset for 1s", (1, DIM_MAX))
    ] = ()

    @property
    def steps(self) -> tuple[int, ...]:
        return self.slice_strides or (1,) * self.x.rank

    @property
    def slices(self) -> tuple[slice, ...]:
        """For NumPy indexing."""
        return tuple(slice(a, b, s) for a, b, s in zip(self.starts, self.limits, self.steps, strict=True))

    @classmethod
    def infer(cls, fields: Mapping[str, Any]) -> dict[str, Extents]:
        starts, limits = fields["starts"], fields["limits"]
        steps = fields.get("slice_strides") or (1,) * len(starts)
        return {"y": tuple(-((a - b) // s) for a, b, s in zip(starts, limits, steps, strict=True))}

"""Patches: what each position of a convolution reads, as the columns of a matrix (im2col)."""

from collections.abc import Mapping
from math import prod
from typing import Annotated, Any, ClassVar

from graphdnn.checks import Equals, LengthIn
from graphdnn.enums import DataType, Status
from graphdnn.operations.base import Extents, extents_constraint, output_constraints
from graphdnn.operations.conv_problem import output_extent
from graphdnn.operations.convolution import ConvolutionSpec
from graphdnn.operations.extension import Extension
from graphdnn.rules import Constraint
from graphdnn.spec import ExtensionPort, Int64s
from graphdnn.tensors import TensorSpec


def positions(x: Extents, taps: tuple[int, ...], conv: ConvolutionSpec) -> tuple[int, ...]:
    """Extents of the convolution's output, for an x of [N, C, spatial...] and filters of ``taps``."""
    axes = zip(x[2:], taps, conv.pre_paddings, conv.post_paddings, conv.filter_strides, conv.dilations, strict=True)
    return tuple(output_extent(*axis) for axis in axes)


class Patches(Extension):
    """y[c * taps + tap, n * positions + position] = what the tap reads there; 0 in the padding.

    Taps are in row-major order, or in the reverse order when the mode is CONVOLUTION.
    """

    tag = "patches"
    constraints: ClassVar[tuple[tuple[Constraint, ...], ...]] = (
        (
            Constraint(
                id="patches.rank",
                attribute="x.dims",
                look=lambda op: op.x.rank,
                check=lambda op: Equals(op.conv.spatial_dims + 2),
                reason="tensors are [N, C, spatial...]",
                fix="correct spatial_dims, or add the batch and channel axes",
                status=Status.BAD_PARAM_SHAPE_MISMATCH,
            ),
            Constraint(
                id="patches.taps",
                attribute="taps",
                look=lambda op: op.taps,
                check=lambda op: LengthIn(op.conv.spatial_dims, op.conv.spatial_dims),
                reason="the filter has an extent on each spatial axis",
                fix="give as many entries as spatial_dims says",
            ),
        ),
        (
            Constraint(
                id="patches.data_type",
                attribute="y.data_type",
                look=lambda op: op.y.data_type,
                check=lambda op: Equals(op.x.data_type),
                reason="data movement does not convert element types",
                fix="convert with an IDENTITY operation before or after",
                status=Status.NOT_SUPPORTED_DATA_TYPE,
            ),
            extents_constraint(
                "patches.y.extents", "y", "one row for each tap of a channel, one column for each position",
                "use the expected extents",
            ),
            output_constraints("patches"),
        ),
    )  # fmt: skip

    x: Annotated[TensorSpec, ExtensionPort("input")]
    y: Annotated[TensorSpec, ExtensionPort("output")]
    taps: Int64s
    conv: ConvolutionSpec

    @classmethod
    def infer(cls, fields: Mapping[str, Any]) -> dict[str, Extents]:
        x, taps = fields["x"].extents, fields["taps"]
        return {"y": (x[1] * prod(taps), x[0] * prod(positions(x, taps, fields["conv"])))}

    @property
    def compute_type(self) -> DataType:
        return self.y.data_type

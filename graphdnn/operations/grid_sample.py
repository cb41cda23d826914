"""Grid sampling: images read at positions that a grid says, as spatial transformers do, and the gradients.

Positions are (x, y) with -1 at the centre of the first element of an axis and 1 at that of the last. Values are
interpolated between the four elements around a position; elements outside the image count as 0.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from graphdnn.checks import Equals
from graphdnn.dtypes import FLOATS
from graphdnn.enums import DataType, Status
from graphdnn.operations.base import Extents, compute_constraints, extents_constraint, output_constraints
from graphdnn.operations.extension import Extension
from graphdnn.rules import Constraint
from graphdnn.spec import ElementType, ExtensionPort
from graphdnn.tensors import TensorSpec


def _rank(prefix: str) -> Constraint:
    return Constraint(
        id=f"{prefix}.rank",
        attribute="dims",
        look=lambda op: {p: t.rank for p, t in op.tensors().items()},
        check=Equals("4 axes for every tensor"),
        when=lambda op: any(t.rank != 4 for t in op.tensors().values()),
        reason="images are [N, C, H, W], grids [N, P, Q, 2]",
        fix="add axes of extent 1; volumes are not sampled",
        status=Status.NOT_SUPPORTED,
    )


def _grid(prefix: str) -> Constraint:
    def fits(op: Any) -> bool:
        grid: TensorSpec = op.grid
        return grid.extents[0] == op.x.extents[0] and grid.extents[3] == 2

    return Constraint(
        id=f"{prefix}.grid.extents",
        attribute="grid.dims",
        look=lambda op: op.grid.extents,
        check=lambda op: Equals(f"({op.x.extents[0]}, P, Q, 2)"),
        when=lambda op: not fits(op),
        reason="each image has a grid of its own, of pairs (x, y)",
        fix="use the expected extents",
        status=Status.BAD_PARAM_SHAPE_MISMATCH,
    )


class GridSample(Extension):
    """y[n, c, p, q] = the image x[n, c], interpolated at grid[n, p, q]."""

    tag = "grid_sample"
    constraints: ClassVar[tuple[tuple[Constraint, ...], ...]] = (
        (_rank("grid_sample"),),
        (
            _grid("grid_sample"),
            *compute_constraints("grid_sample", "compute_type", FLOATS[:2], lambda op: op.inputs()),
            extents_constraint("grid_sample.y.extents", "y", "one value for each channel and each grid position",
                               "use the expected extents"),
            output_constraints("grid_sample"),
        ),
    )  # fmt: skip

    x: Annotated[TensorSpec, ExtensionPort("input")]
    grid: Annotated[TensorSpec, ExtensionPort("input")]
    y: Annotated[TensorSpec, ExtensionPort("output")]
    arithmetic: ElementType = DataType.FLOAT

    @classmethod
    def infer(cls, fields: Mapping[str, Any]) -> dict[str, Extents]:
        n, c = fields["x"].extents[:2]
        return {"y": (n, c, *fields["grid"].extents[1:3])}

    @property
    def compute_type(self) -> DataType:
        return self.arithmetic


class GridSampleBackward(Extension):
    """Gradients of the image and of the grid."""

    tag = "grid_sample_bwd"
    constraints: ClassVar[tuple[tuple[Constraint, ...], ...]] = (
        (_rank("grid_sample_bwd"),),
        (
            _grid("grid_sample_bwd"),
            *compute_constraints("grid_sample_bwd", "compute_type", FLOATS[:2], lambda op: op.inputs()),
            *(
                extents_constraint(f"grid_sample_bwd.{port}.extents", port, "a gradient has the extents of its value",
                                   "use the expected extents")
                for port in ("dx", "dgrid")
            ),
            Constraint(
                id="grid_sample_bwd.dy.extents",
                attribute="dy.dims",
                look=lambda op: op.dy.extents,
                check=lambda op: Equals((*op.x.extents[:2], *op.grid.extents[1:3])),
                reason="there is one value for each channel and each grid position",
                fix="use the expected extents",
                status=Status.BAD_PARAM_SHAPE_MISMATCH,
            ),
            output_constraints("grid_sample_bwd"),
        ),
    )  # fmt: skip

    x: Annotated[TensorSpec, ExtensionPort("input")]
    grid: Annotated[TensorSpec, ExtensionPort("input")]
    dy: Annotated[TensorSpec, ExtensionPort("input")]
    dx: Annotated[TensorSpec, ExtensionPort("output")]
    dgrid: Annotated[TensorSpec, ExtensionPort("output")]
    arithmetic: ElementType = DataType.FLOAT

    @classmethod
    def infer(cls, fields: Mapping[str, Any]) -> dict[str, Extents]:
        return {"dx": fields["x"].extents, "dgrid": fields["grid"].extents}

    @property
    def compute_type(self) -> DataType:
        return self.arithmetic

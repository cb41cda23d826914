"""CTC loss: what a sequence of class probabilities costs that should spell a label, whatever its alignment."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from graphdnn.checks import Equals, OneOf
from graphdnn.dtypes import COMPUTE, FLOATS
from graphdnn.enums import DataType, Status
from graphdnn.operations.base import Extents, output_constraints
from graphdnn.operations.extension import Extension
from graphdnn.rules import Constraint
from graphdnn.spec import ElementType, ExtensionPort
from graphdnn.tensors import TensorSpec


def _wanted(op: Any) -> dict[str, Extents]:
    probs, labels = op.probs.extents, op.labels.extents
    batch = (probs[1],)
    return {
        "probs": probs, "gradients": probs, "labels": (probs[1], labels[1]), "label_lengths": batch,
        "input_lengths": batch, "costs": batch,
    }  # fmt: skip


def _misfits(op: Any) -> dict[str, Extents]:
    return {p: t.extents for p, t in op.tensors().items() if t.extents != _wanted(op)[p]}


def _wrong_types(op: Any) -> dict[str, str]:
    allowed = {p: (DataType.INT32,) if p.startswith(("label", "input")) else FLOATS for p in op.tensors()}
    return {p: t.data_type.name for p, t in op.tensors().items() if t.data_type not in allowed[p]}


class CtcLoss(Extension):
    """costs[n] = -log of the probability that the sequence n spells its label; class 0 is the blank.

    ``gradients`` are those of the activations whose softmax ``probs`` is. A label that does not fit into its
    sequence costs infinity, and its gradients are 0.
    """

    tag = "ctc_loss"
    constraints: ClassVar[tuple[tuple[Constraint, ...], ...]] = (
        (
            Constraint(
                id="ctc_loss.rank",
                attribute="probs.dims, labels.dims",
                look=lambda op: (op.probs.rank, op.labels.rank),
                check=Equals((3, 2)),
                reason="probs are [steps, sequences, classes], labels [sequences, longest label]",
                fix="add the missing axes; pad labels to one length",
                status=Status.BAD_PARAM_SHAPE_MISMATCH,
            ),
            Constraint(
                id="ctc_loss.arithmetic",
                attribute="arithmetic",
                look=lambda op: op.arithmetic,
                check=OneOf(DataType.FLOAT, DataType.DOUBLE),
                reason="probabilities are added as logarithms",
                fix="use FLOAT",
                status=Status.NOT_SUPPORTED_DATA_TYPE,
            ),
        ),
        (
            Constraint(
                id="ctc_loss.extents",
                attribute=lambda op: ", ".join(f"{p}.dims" for p in _misfits(op)),
                look=lambda op: tuple(_misfits(op).values()),
                check=lambda op: Equals(tuple(_wanted(op)[p] for p in _misfits(op))),
                when=lambda op: bool(_misfits(op)),
                reason="each sequence has a label and a cost, each probability a gradient",
                fix="use the expected extents",
                status=Status.BAD_PARAM_SHAPE_MISMATCH,
            ),
            Constraint(
                id="ctc_loss.data_types",
                attribute=lambda op: ", ".join(f"{p}.data_type" for p in _wrong_types(op)),
                look=lambda op: tuple(_wrong_types(op).values()),
                check=Equals("INT32 for labels and lengths, floating types for the rest"),
                when=lambda op: bool(_wrong_types(op)),
                reason="labels are classes, lengths are counts",
                fix="convert the tensors",
                status=Status.NOT_SUPPORTED_DATA_TYPE,
            ),
            output_constraints("ctc_loss"),
        ),
    )

    probs: Annotated[TensorSpec, ExtensionPort("input")]
    labels: Annotated[TensorSpec, ExtensionPort("input")]
    label_lengths: Annotated[TensorSpec, ExtensionPort("input")]
    input_lengths: Annotated[TensorSpec, ExtensionPort("input")]
    costs: Annotated[TensorSpec, ExtensionPort("output")]
    gradients: Annotated[TensorSpec | None, ExtensionPort("output")] = None
    arithmetic: ElementType = DataType.FLOAT

    @classmethod
    def infer(cls, fields: Mapping[str, Any]) -> dict[str, Extents]:
        steps, batch, classes = fields["probs"].extents
        return {"costs": (batch,), "gradients": (steps, batch, classes)}

    @property
    def compute_type(self) -> DataType:
        return self.arithmetic

    @property
    def spare(self) -> tuple[str, ...]:
        return ("gradients",)

    @property
    def scratch_bytes(self) -> int:
        steps, batch, _ = self.probs.extents
        return scratch_bytes(steps, batch, self.labels.extents[1], self.arithmetic)


def scratch_bytes(steps: int, batch: int, longest: int, arithmetic: DataType) -> int:
    """Two probabilities for each step and each place in a label with blanks around its classes."""
    return 2 * steps * batch * (2 * longest + 1) * COMPUTE[arithmetic].itemsize

"""What can be said of a plan's numbers: the class it belongs to, and how far they may be from the exact ones."""

from graphdnn.certificate.answer import of_plan
from graphdnn.certificate.integers import OverflowProof
from graphdnn.certificate.numeric_class import NumericClass, OperationClass, numeric_class
from graphdnn.certificate.record import Certificate, OperationBound, OutputBound

__all__ = [
    "Certificate", "NumericClass", "OperationBound", "OperationClass", "OutputBound", "OverflowProof", "numeric_class",
    "of_plan",
]  # fmt: skip

"""What can be said of a plan's numbers: the class it belongs to, and how far they may be from the exact ones."""

from graphdnn.analysis.certificate.certificate import Certificate, OperationBound, OutputBound
from graphdnn.analysis.certificate.certify import of_plan
from graphdnn.analysis.certificate.numeric_class import NumericClass, OperationClass, numeric_class
from graphdnn.analysis.certificate.overflow import OverflowProof

__all__ = [
    "Certificate", "NumericClass", "OperationBound", "OperationClass", "OutputBound", "OverflowProof", "numeric_class",
    "of_plan",
]  # fmt: skip

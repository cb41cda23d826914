"""What can be said of a plan's numbers: the class it belongs to, and how far they may be from the exact ones."""

from graphdnn.certificate.numeric_class import NumericClass, OperationClass, numeric_class

__all__ = ["NumericClass", "OperationClass", "numeric_class"]

"""Value: what is known of one value of a model once the shapes of its inputs are known."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from graphdnn.dtypes import Array
from graphdnn.onnx.element_types import ELEMENT_TYPES, ElementType


@dataclass(frozen=True, slots=True)
class Value:
    """Type, shape and, of a constant, the array. ``number`` is 0 for what is no tensor."""

    number: int  # of onnx.TensorProto.DataType
    shape: tuple[int, ...] | None  # None where it does not follow from the shapes of the inputs
    constant: Array | None = None

    @property
    def element_type(self) -> ElementType | None:
        """None for a type that no engine reads."""
        return ELEMENT_TYPES.get(self.number)

    @property
    def is_empty(self) -> bool:
        """Whether there is no element, so that nothing has to be computed."""
        return self.shape is not None and prod(self.shape) == 0

    @property
    def bytes(self) -> int:
        """The size of the array; 0 where it is not known."""
        kind = self.element_type
        return 0 if self.shape is None or kind is None else prod(self.shape) * kind.numpy.itemsize

    @property
    def dims(self) -> tuple[int, ...]:
        """The extents of the tensor that stands for the value: a scalar has one axis."""
        assert self.shape is not None
        return self.shape or (1,)

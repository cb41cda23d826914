"""Tensor: an operand while its graph is being built. What is left open is inferred; setters chain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphdnn.dtypes import data_type_of
from graphdnn.enums import DataType, Status, TensorReordering
from graphdnn.errors import BadParam, NotInitialized, NotSupported
from graphdnn.escaped import escaped
from graphdnn.rules import Rule
from graphdnn.scalars import whole, wholes
from graphdnn.spec import ATTR_REFUSED, ATTR_TYPE
from graphdnn.tensors import TensorSpec

FROZEN = Rule(
    id="builder.frozen",
    expected="a graph that is still being built",
    reason="the operation graph was made from it, and its plans rely on it",
    fix="change it before build(), or build another graph",
    status=Status.NOT_INITIALIZED,
)


class Freeze:
    """Shared by a graph and its tensors: set once the operation graph exists."""

    def __init__(self) -> None:
        self.frozen = False

    def check(self, where: str, attribute: str) -> None:
        if self.frozen:
            raise NotInitialized(FROZEN.reject(where, attribute, "set after the graph was built"))


class Tensor:
    """An operand of a graph that is being described. The graph infers extents, strides, type and uid that are not set.

    Tensors are made by the methods of ``Graph`` and compared by identity.
    """

    def __init__(self, freeze: Freeze, name: str = "", origin: str = "") -> None:
        self._freeze = freeze
        self.name, self.origin = name, origin
        self.dim: tuple[int, ...] | None = None
        self.stride: tuple[int, ...] | None = None
        self.data_type: DataType | None = None
        self.uid: int | None = None
        self.is_virtual = False
        self.is_by_value = False
        self.alignment: int | None = None
        self.reordering = TensorReordering.NONE
        self.vector: tuple[int, int] = (1, -1)  # count, dimension
        self.constant: float | int | None = None
        self.readers = 0  # operations that read it

    @property
    def extents(self) -> tuple[int, ...]:
        """Logical extents, as the operations' shape rules read them."""
        assert self.dim is not None
        count, axis = self.vector
        return tuple(d * count if a == axis else d for a, d in enumerate(self.dim))

    @property
    def where(self) -> str:
        """The name of the tensor and the line that made it, as error messages show them."""
        label = f"tensor '{escaped(self.name)}'" if self.name else "tensor"
        return f"{label} ({self.origin})" if self.origin else label

    def __repr__(self) -> str:
        kind = "virtual " if self.is_virtual else ""
        words = [repr(self.name)] if self.name else []
        words.append("open extents" if self.dim is None else str(list(self.dim)))
        words.append("open type" if self.data_type is None else self.data_type.name)
        words += [] if self.uid is None else [f"uid {self.uid}"]
        return f"<{kind}Tensor {' '.join(words)}>"

    def fields(self) -> dict[str, Any]:
        """The fields of ``TensorSpec`` as they are set. They may be wrong."""
        fields: dict[str, Any] = {
            "uid": self.uid, "data_type": self.data_type, "dims": self.dim, "strides": self.stride,
            "is_virtual": self.is_virtual, "is_by_value": self.is_by_value, "reordering": self.reordering,
            "vector_count": self.vector[0], "vectorized_dimension": self.vector[1],
            "constant_value": self.constant, "name": self.name,
        }  # fmt: skip
        if self.alignment is not None:
            fields["byte_alignment"] = self.alignment
        return fields

    def spec(self) -> TensorSpec:
        """The finished description. Every field has been inferred.

        Raises:
            BadParam: A field is wrong.
        """
        return TensorSpec(**self.fields())

    # Setters, with the names of cuDNN's frontend.

    def set_output(self, is_output: bool = True) -> Tensor:
        """Give the tensor memory. An execution then has to bind an array to it.

        Args:
            is_output: True for memory, False for a virtual tensor.

        Returns:
            The tensor itself, so that calls can be chained.

        Raises:
            BadParam: The value has the wrong type.
            NotInitialized: The graph is built and its tensors are frozen.
        """
        return self.set_is_virtual(not is_output)

    def set_is_virtual(self, is_virtual: bool) -> Tensor:
        """Say whether the tensor is virtual. A virtual tensor has no memory.

        Args:
            is_virtual: True for a virtual tensor.

        Returns:
            The tensor itself, so that calls can be chained.

        Raises:
            BadParam: The value has the wrong type.
            NotInitialized: The graph is built and its tensors are frozen.
        """
        return self._set("is_virtual", bool(is_virtual))

    def set_dim(self, dim: Sequence[int]) -> Tensor:
        """Set the extents.

        Args:
            dim: 1 to 8 extents in logical order, for example N, C, H, W.

        Returns:
            The tensor itself, so that calls can be chained.

        Raises:
            BadParam: The value has the wrong type.
            NotInitialized: The graph is built and its tensors are frozen.
        """
        return self._set("dim", integers(dim, self.where, "dim"))

    def set_stride(self, stride: Sequence[int]) -> Tensor:
        """Set the strides.

        Args:
            stride: One stride in elements for each extent, for example ``channels_last_strides(dims)``.

        Returns:
            The tensor itself, so that calls can be chained.

        Raises:
            BadParam: The value has the wrong type.
            NotInitialized: The graph is built and its tensors are frozen.
        """
        return self._set("stride", integers(stride, self.where, "stride", "channels_last_strides(dims) for NHWC"))

    def set_data_type(self, data_type: Any) -> Tensor:
        """Set the element type.

        Args:
            data_type: A name, a type of NumPy or PyTorch, or a member of ``DataType``.

        Returns:
            The tensor itself, so that calls can be chained.

        Raises:
            BadParam: The value has the wrong type.
            NotInitialized: The graph is built and its tensors are frozen.
        """
        return self._set("data_type", element_type(data_type, self.where))

    def set_uid(self, uid: int) -> Tensor:
        """Set the uid, the number of the tensor in files and plans.

        Args:
            uid: A number that no other tensor of the graph has.

        Returns:
            The tensor itself, so that calls can be chained.

        Raises:
            BadParam: The value has the wrong type.
            NotInitialized: The graph is built and its tensors are frozen.
        """
        try:
            return self._set("uid", whole(uid))
        except ValueError as error:
            problem = ATTR_TYPE.reject(
                self.where, "uid", uid, expected="an integer", fix="leave it to the graph; name=... takes text",
                detail=str(error),
            )  # fmt: skip
            raise BadParam(problem) from None

    def set_name(self, name: str) -> Tensor:
        """Set the name, a label for reports and a key for ``execute``.

        Args:
            name: The text.

        Returns:
            The tensor itself, so that calls can be chained.

        Raises:
            BadParam: The value has the wrong type.
            NotInitialized: The graph is built and its tensors are frozen.
        """
        return self._set("name", name)

    def set_is_pass_by_value(self, is_by_value: bool) -> Tensor:
        """Say whether the tensor is one number that is read on the host.

        Args:
            is_by_value: True for a number.

        Returns:
            The tensor itself, so that calls can be chained.

        Raises:
            BadParam: The value has the wrong type.
            NotInitialized: The graph is built and its tensors are frozen.
        """
        return self._set("is_by_value", bool(is_by_value))

    def set_alignment(self, alignment: int) -> Tensor:
        """Set the alignment of every array that is bound to the tensor.

        Args:
            alignment: Bytes; a multiple of the size of an element.

        Returns:
            The tensor itself, so that calls can be chained.

        Raises:
            BadParam: The value has the wrong type.
            NotInitialized: The graph is built and its tensors are frozen.
        """
        return self._set("alignment", alignment)

    def set_reordering_type(self, reordering: TensorReordering) -> Tensor:
        """Set how the elements are reordered in memory.

        Args:
            reordering: Only ``TensorReordering.NONE``; the operation graph refuses other members.

        Returns:
            The tensor itself, so that calls can be chained.

        Raises:
            BadParam: The value has the wrong type.
            NotInitialized: The graph is built and its tensors are frozen.
        """
        return self._set("reordering", reordering)

    def set_vector_count_and_dimension(self, count: int, dimension: int) -> Tensor:
        """Store an axis in vectors, as the layouts NC/4HW4 and NC/32HW32 do.

        Args:
            count: Elements of a vector: 1, 4 or 32.
            dimension: The axis that is stored in vectors, 1 for channels.

        Returns:
            The tensor itself, so that calls can be chained.

        Raises:
            BadParam: The value has the wrong type.
            NotInitialized: The graph is built and its tensors are frozen.
        """
        return self._set("vector", (count, dimension))

    def set_ragged_offset(self, ragged_offset: Any) -> Tensor:
        """Accept only None. No operation reads rows of variable length.

        Args:
            ragged_offset: None.

        Returns:
            The tensor itself, so that calls can be chained.

        Raises:
            NotSupported: An offset is given.
        """
        refuse_given(
            ragged_offset, lambda: self.where, "ragged_offset", "no operation here reads rows of variable length"
        )
        return self

    def _set(self, field: str, value: Any) -> Tensor:
        self._freeze.check(self.where, field)
        setattr(self, field, value)
        return self

    def get_name(self) -> str:
        """The name, or an empty text."""
        return self.name

    def get_dim(self) -> list[int]:
        """The extents; an empty list if they are not set."""
        return list(self.dim or ())

    def get_stride(self) -> list[int]:
        """The strides in elements; an empty list if they are not set."""
        return list(self.stride or ())

    def get_data_type(self) -> DataType | None:
        """The element type, or None if it is not set."""
        return self.data_type

    def get_uid(self) -> int:
        """The uid; 0 if it is not set and the graph is not built."""
        return self.uid or 0

    def get_is_virtual(self) -> bool:
        """Whether the tensor has no memory."""
        return self.is_virtual

    def get_is_pass_by_value(self) -> bool:
        """Whether the tensor is one number that is read on the host."""
        return self.is_by_value

    def get_alignment(self) -> int:
        """The alignment in bytes."""
        return self.alignment or 16

    def get_reordering_type(self) -> TensorReordering:
        """How the elements are reordered in memory."""
        return self.reordering

    def get_has_compile_time_constant(self) -> bool:
        """Whether the tensor is a constant."""
        return self.constant is not None

    def get_vector_count(self) -> int:
        """Elements of a vector; 1 for a tensor that is not stored in vectors."""
        return self.vector[0]

    def get_vector_dimension(self) -> int:
        """The axis that is stored in vectors; -1 if there is none."""
        return self.vector[1]


def integers(values: Any, where: str, attribute: str, fix: str = "e.g. [1, 64, 56, 56]") -> tuple[int, ...]:
    """Exact integers from any sequence of them; nothing is cut or parsed."""
    try:
        return wholes(values)
    except ValueError as error:
        raise BadParam(
            ATTR_TYPE.reject(where, attribute, values, expected="integers", fix=fix, detail=str(error))
        ) from None


def refuse_given(value: Any, where: Callable[[], str], attribute: str, reason: str) -> None:
    """Raise when an argument that cuDNN's frontend has, and nothing here reads, is more than empty."""
    empty = value is None or (not isinstance(value, bool) and isinstance(value, (int, float)) and value == 0)
    if not empty and not (isinstance(value, Sequence) and not value):
        error = ATTR_REFUSED.reject(where(), attribute, value, reason=reason, fix="leave it out")
        raise NotSupported(error)


def element_type(value: Any, where: str) -> DataType | None:
    """A DataType from a member, a name or a NumPy, CuPy or torch dtype; None stays open."""
    if value is None:
        return None
    try:
        return data_type_of(value)
    except ValueError as error:
        raise BadParam(
            ATTR_TYPE.reject(
                where, "data_type", value, expected="an element type", fix="e.g. 'float16' or DataType.HALF",
                detail=str(error),
            )
        ) from None  # fmt: skip

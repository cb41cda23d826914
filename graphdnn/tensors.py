"""TensorSpec: the memory shape of one operand, and questions about its layout.

Extents and strides count elements; the order of extents is always the logical
one (N, C, H, W), memory order is expressed by strides alone. A virtual tensor has
no memory, yet its type is obeyed: a value that passes through it is rounded to
that type, fused or not.
"""

from collections.abc import Sequence
from functools import cached_property
from math import prod
from typing import Annotated, ClassVar

from graphdnn.attribute_names import AttributeName as A
from graphdnn.checks import AtLeast, Each, Equals, InRange, LengthIn, MultipleOf, OneOf
from graphdnn.dtypes import ELEMENTS
from graphdnn.enums import AttributeType as T
from graphdnn.enums import DataType, DescriptorType, Status, TensorReordering
from graphdnn.escaped import escaped
from graphdnn.rules import Constraint
from graphdnn.scalars import is_kept, kept_by
from graphdnn.spec import INT64_MAX, ElementType, Int64, Int64s, Number, Refused, Spec, attr

DIM_MAX = 8


def packed_strides(dims: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides: the last axis is contiguous (NCHW for images).

    Args:
        dims: The extents.

    Returns:
        One stride in elements for each extent.
    """
    strides, step = [], 1
    for extent in reversed(dims):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def ordered_strides(dims: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """Packed strides where ``order`` lists the axes from outermost to innermost in memory."""
    strides, step = [0] * len(dims), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= dims[axis]
    return tuple(strides)


def channels_last_strides(dims: Sequence[int]) -> tuple[int, ...]:
    """Strides with contiguous channels (NHWC, NDHWC): axis 1 is innermost and axis 0 outermost. Below rank 3 the
    strides are row-major.

    Args:
        dims: The extents in the order N, C, and the spatial axes.

    Returns:
        One stride in elements for each extent.
    """
    if len(dims) < 3:
        return packed_strides(dims)
    return ordered_strides(dims, (0, *range(2, len(dims)), 1))


def stride_order(dims: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """Axes from outermost to innermost in memory. Of axes with one stride, those of extent 1 are inside: one channel of
    an image with channels last has the stride of its pixels.
    """
    return tuple(sorted(range(len(dims)), key=lambda axis: (-strides[axis], dims[axis] == 1, axis)))


def may_overlap(dims: Sequence[int], strides: Sequence[int]) -> bool:
    """True when two different indices could share an address (a sufficient test, by nesting of axes)."""
    reach = 0
    for stride, extent in sorted((s, e) for s, e in zip(strides, dims, strict=True) if e > 1):
        if stride <= reach:
            return True
        reach += (extent - 1) * stride
    return False


_SHAPE = (
    Constraint(
        id="tensor.dims.rank",
        attribute="dims",
        look=lambda t: t.dims,
        check=LengthIn(1, DIM_MAX),
        reason="a tensor has 1 to 8 axes (CUDNN_DIM_MAX)",
        fix="write the extents as (N, C, H, W) or the like",
    ),
    Constraint(
        id="tensor.dims.positive",
        attribute="dims",
        look=lambda t: t.dims,
        check=Each(AtLeast(1)),
        reason="a tensor has fixed extents, and an axis has at least one element",
        fix="build a plan for each value of an unknown extent (-1); an axis that does not matter has extent 1",
    ),
    Constraint(
        id="tensor.strides.length",
        attribute="strides",
        look=lambda t: t.strides,
        check=lambda t: LengthIn(len(t.dims), len(t.dims)),
        reason="every axis has one stride",
        fix="use packed_strides(dims) or channels_last_strides(dims)",
    ),
    Constraint(
        id="tensor.strides.positive",
        attribute="strides",
        look=lambda t: t.strides,
        check=Each(AtLeast(1)),
        reason="strides are element distances; 0 is not a way to broadcast",
        fix="give a broadcast operand extent 1 on that axis instead",
    ),
    Constraint(
        id="tensor.data_type.storage",
        attribute="data_type",
        look=lambda t: t.data_type,
        check=OneOf(*ELEMENTS),
        reason="no arithmetic is defined here for this storage type (vectorised int8 is INT8 with a vector count)",
        fix="convert the data to one of the listed types",
        status=Status.NOT_SUPPORTED_DATA_TYPE,
    ),
)

_STORAGE = (
    Constraint(
        id="tensor.size.overflow",
        attribute="dims",
        look=lambda t: f"{t.dims} with strides {t.strides}: last byte {t.bytes}",
        check=Equals("a last byte below 2**63"),
        when=lambda t: t.bytes > INT64_MAX,
        reason="addresses are signed 64-bit numbers",
        fix="use smaller extents or strides",
    ),
    Constraint(
        id="tensor.alignment",
        attribute="byte_alignment",
        look=lambda t: t.byte_alignment,
        check=lambda t: AtLeast(1) if t.byte_alignment < 1 else MultipleOf(ELEMENTS[t.data_type].bytes),
        reason="the alignment is a promise about every pointer bound later: a positive multiple of the element size",
        fix="use 16, or the element size when nothing more is known",
    ),
    Constraint(
        id="tensor.vector_count",
        attribute="vector_count",
        look=lambda t: t.vector_count,
        check=lambda t: OneOf(1, 4, 32) if t.data_type in (DataType.INT8, DataType.UINT8) else OneOf(1),
        reason="only int8 and uint8 are stored in vectors, of 4 or 32 channels",
        fix="use vector_count=1, or an int8 tensor",
        status=Status.NOT_SUPPORTED_LAYOUT,
    ),
    Constraint(
        id="tensor.vectorized_dimension",
        attribute="vectorized_dimension",
        look=lambda t: t.vectorized_dimension,
        check=lambda t: InRange(0, len(t.dims) - 1) if t.vector_count != 1 else Equals(-1),
        reason="the axis that is stored in vectors has to be named exactly when there are vectors",
        fix="give the channel axis together with vector_count, or neither",
    ),
    Constraint(
        id="tensor.reordering",
        attribute="reordering",
        look=lambda t: t.reordering,
        check=OneOf(TensorReordering.NONE),
        reason="no engine reads filters that are reordered in memory",
        fix="pass the tensor in its plain order",
        status=Status.NOT_SUPPORTED_LAYOUT,
    ),
    Constraint(
        id="tensor.by_value.single",
        attribute="dims",
        look=lambda t: t.dims,
        check=Each(Equals(1)),
        when=lambda t: t.is_by_value,
        reason="a by-value tensor is one scalar read from the host",
        fix="use extents of 1, or pass the data in memory",
    ),
    Constraint(
        id="tensor.by_value.virtual",
        attribute="is_virtual",
        look=lambda t: t.is_virtual,
        check=Equals(False),
        when=lambda t: t.is_by_value,
        reason="a virtual tensor is produced inside the graph, a by-value tensor comes from the host",
        fix="clear one of the two flags",
    ),
    Constraint(
        id="tensor.constant.by_value",
        attribute="is_by_value",
        look=lambda t: t.is_by_value,
        check=Equals(True),
        when=lambda t: t.constant_value is not None,
        reason="a constant is a scalar known when the tensor is described",
        fix="set is_by_value=True together with constant_value",
    ),
    Constraint(
        id="tensor.constant.value",
        attribute="constant_value",
        look=lambda t: t.constant_value,
        check=lambda t: Equals(kept_by(t.data_type)),
        when=lambda t: t.constant_value is not None and not is_kept(t.constant_value, t.data_type),
        reason="the tensor's type cannot hold this number",
        fix="give a number of that type, or the tensor a type that holds the number",
    ),
)


_RAGGED = "no operation here reads tensors of variable-length rows"


class TensorSpec(Spec):
    """The description of one operand.

    Args:
        uid: The number of the tensor in its graph.
        data_type: The element type.
        dims: 1 to 8 extents in logical order.
        strides: One stride in elements for each extent.
        byte_alignment: Every bound address is a multiple of this number of bytes.
        is_virtual: True for a tensor without memory. Its values are rounded to its type all the same.
        is_by_value: True for one number that is read on the host.
        vector_count: Elements of a vector: 1, 4 or 32.
        vectorized_dimension: The axis that is stored in vectors, or -1.
        reordering: Only ``TensorReordering.NONE``.
        constant_value: The number of a constant, or None.
        name: A label.

    Raises:
        BadParam: A field is wrong. The error lists every problem.
        NotSupported: The type or the layout is not served.
    """

    descriptor = DescriptorType.TENSOR
    constraints: ClassVar[tuple[tuple[Constraint, ...], ...]] = (_SHAPE, _STORAGE)
    refused = (
        Refused(A.TENSOR_RAGGED_OFFSET_DESC, (T.BACKEND_DESCRIPTOR,), _RAGGED, "pad the rows to one length"),
        Refused(A.TENSOR_RAGGED_OFFSET_MULTIPLIER, (T.INT64,), _RAGGED, "pad the rows to one length"),
    )

    uid: Annotated[Int64, attr(A.TENSOR_UNIQUE_ID, T.INT64, "a signed 64-bit integer", "give each tensor its own uid")]
    data_type: Annotated[
        ElementType, attr(A.TENSOR_DATA_TYPE, T.DATA_TYPE, "an element type", "pass a DataType, e.g. DataType.HALF")
    ]
    dims: Annotated[
        Int64s,
        attr(A.TENSOR_DIMENSIONS, T.INT64, "1 to 8 extents, each at least 1", "write (N, C, H, W)", (1, DIM_MAX)),
    ]
    strides: Annotated[
        Int64s, attr(A.TENSOR_STRIDES, T.INT64, "one stride per extent", "use packed_strides(dims)", (1, DIM_MAX))
    ]
    byte_alignment: Annotated[
        Int64, attr(A.TENSOR_BYTE_ALIGNMENT, T.INT64, "bytes every bound pointer is a multiple of", "use 16")
    ] = 16
    is_virtual: Annotated[
        bool, attr(A.TENSOR_IS_VIRTUAL, T.BOOLEAN, "a bool", "True for values that stay inside the graph")
    ] = False
    is_by_value: Annotated[
        bool, attr(A.TENSOR_IS_BY_VALUE, T.BOOLEAN, "a bool", "True for a scalar read from the host")
    ] = False
    vector_count: Annotated[
        Int64, attr(A.TENSOR_VECTOR_COUNT, T.INT64, "1, 4 or 32", "leave it unset unless the tensor is NC/4HW4")
    ] = 1
    vectorized_dimension: Annotated[
        Int64, attr(A.TENSOR_VECTORIZED_DIMENSION, T.INT64, "the axis stored in vectors", "1 for channels")
    ] = -1
    reordering: Annotated[
        TensorReordering,
        attr(A.TENSOR_REORDERING_MODE, T.TENSOR_REORDERING_MODE, "a reordering", "leave it at NONE"),
    ] = TensorReordering.NONE
    constant_value: Annotated[
        Number | None, attr(A.TENSOR_CONSTANT_VALUE, T.VOID_PTR, "one host scalar", "pass the number itself")
    ] = None
    name: str = ""

    @cached_property
    def extents(self) -> tuple[int, ...]:
        """Logical extents: ``dims`` with the vectors of a vectorised axis multiplied out."""
        if self.vector_count == 1:
            return self.dims
        axis = self.vectorized_dimension
        return (*self.dims[:axis], self.dims[axis] * self.vector_count, *self.dims[axis + 1 :])

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.dims)

    @cached_property
    def elements(self) -> int:
        """The number of elements."""
        return prod(self.dims) * self.vector_count

    @cached_property
    def span(self) -> int:
        """Elements from the first to the last one in memory, gaps included."""
        last = sum([(extent - 1) * stride for extent, stride in zip(self.dims, self.strides, strict=True)])
        return (last + 1) * self.vector_count

    @cached_property
    def bytes(self) -> int:
        """Bytes of memory from the first to the last element (a partial byte of packed booleans counts whole)."""
        return -(-self.span * ELEMENTS[self.data_type].bits // 8)

    @property
    def is_constant(self) -> bool:
        """Whether the tensor is a number that is known when the graph is built."""
        return self.constant_value is not None

    @property
    def is_bound(self) -> bool:
        """True when an execution has to be given data for it."""
        return not self.is_virtual and not self.is_constant

    @property
    def is_channels_last(self) -> bool:
        """Whether axis 1 is contiguous and axis 0 outermost, as in NHWC."""
        return self.strides == channels_last_strides(self.dims)

    @property
    def is_packed(self) -> bool:
        """Whether the elements fill their memory without gaps, in any order of the axes."""
        return self.span == self.elements and not may_overlap(self.dims, self.strides)

    def label(self) -> str:
        """``x (uid 1)`` for messages."""
        return f"{escaped(self.name)} (uid {self.uid})" if self.name else f"uid {self.uid}"

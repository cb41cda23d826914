"""Operand layouts of the implicit GEMM with mma.sync: in memory, in a faster copy, and in shared memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.codegen.index_space import IndexSpace, is_addressable
from graphdnn.engines.cuda.codegen.parameters import STORAGE
from graphdnn.engines.cuda.codegen.vectors import width_for
from graphdnn.engines.cuda.conv_geometry.gemm_problem import GemmProblem, im2col_and_dense
from graphdnn.engines.cuda.simt.implicit_copies import channels_last, copying_seconds, summed_first
from graphdnn.engines.cuda.sm80.mma_tiles import SPLIT, Loads, Shape, choose
from graphdnn.engines.engine import Knobs
from graphdnn.tensors import TensorSpec

_COPY_BYTES = 4  # the smallest cp.async copy
_POSITIONS = (3, 4, 5)


@dataclass(frozen=True, slots=True)
class Side:
    """The layout of one operand in memory and in its tile."""

    spec: TensorSpec
    space: IndexSpace
    width: int  # elements of a vector load
    k_major: bool  # K-major: the contiguous index is the summed one

    @property
    def strides(self) -> tuple[int, ...]:
        return self.space.strides(self.spec)

    @property
    def storage(self) -> str:
        return STORAGE[self.spec.data_type]

    @property
    def is_mn_major(self) -> bool:
        """Whether the tile in shared memory is MN-major. Tiles of bytes are always K-major, as ldmatrix transposes
        16-bit elements only.
        """
        return not self.k_major and ELEMENTS[self.spec.data_type].bytes == 2

    @property
    def is_scattered(self) -> bool:
        size = ELEMENTS[self.spec.data_type].bytes
        return self.width * size < _COPY_BYTES or (not self.k_major and not self.is_mn_major)


def _side(
    space: IndexSpace, spec: TensorSpec, channel: int, is_summed: bool, summed: Sequence[int], outer: Sequence[int]
) -> Side:
    """One operand and its access. ``channel``: the coordinate of vector loads. ``summed``, ``outer``: the coordinates
    along which threads can load single elements; the GEMM sums over the former.
    """
    width = width_for(space, [spec], channel)
    if width > 1:
        return Side(spec, space, width, is_summed)
    strides = space.strides(spec)
    nearest = [min((strides[j] for j in axes if strides[j]), default=2**62) for axes in (summed, outer)]
    return Side(spec, space, 1, nearest[0] <= nearest[1])


def sides_of(product: GemmProblem, im2col: TensorSpec, dense: TensorSpec) -> tuple[Side, Side]:
    roles = product.roles
    im2col_spec, dense_spec = im2col_and_dense(roles)  # a copy has a uid of its own
    im2col_space, dense_space = roles.space(im2col_spec), roles.space(dense_spec)
    if product.is_wgrad:
        return (
            _side(im2col_space, im2col, 2, False, _POSITIONS, (2,)),
            _side(dense_space, dense, 2, False, _POSITIONS, (2,)),
        )
    summed, outer = (2, 1) if roles.direction == "fprop" else (1, 2)
    channel = outer if width_for(dense_space, [dense], summed) == 1 else summed
    return (
        _side(im2col_space, im2col, 2, True, (2,), _POSITIONS),
        _side(dense_space, dense, channel, channel == summed, (summed,), (outer,)),
    )


@dataclass(frozen=True, slots=True)
class OperandLayout:
    """The strides of the operands' copies, None for an operand without one; and the tile for these layouts."""

    copies: tuple[tuple[int, ...] | None, tuple[int, ...] | None]
    sides: tuple[Side, Side]
    shape: Shape
    seconds: float  # time of the copies and of the GEMM


def operand_layout(product: GemmProblem, device: DeviceSpec, knobs: Knobs) -> OperandLayout:
    """The fastest layouts: operands unchanged, or copied with contiguous channels."""
    return min(_layouts(product, device, knobs), key=lambda way: way.seconds)


def _layouts(product: GemmProblem, device: DeviceSpec, knobs: Knobs) -> Iterator[OperandLayout]:
    operands = im2col_and_dense(product.roles)
    contiguous = tuple(_channels_contiguous(product, spec, i) for i, spec in enumerate(operands))
    needed = tuple(None if is_addressable(spec) else contiguous[i] for i, spec in enumerate(operands))
    first = _layout(product, device, knobs, operands, needed)
    yield first
    if knobs[SPLIT.type] == 1:
        return  # the workspace is limited
    scattered = tuple(copy or (contiguous[i] if first.sides[i].is_scattered else None) for i, copy in enumerate(needed))
    if scattered != needed:
        yield _layout(product, device, knobs, operands, scattered)


def _channels_contiguous(product: GemmProblem, spec: TensorSpec, which: int) -> tuple[int, ...]:
    """Strides with contiguous channels. A filter has input and output channels; the summed ones are contiguous."""
    if which == 0 or product.is_wgrad:
        return channels_last(spec, product.roles)
    return summed_first(product, spec)


def _layout(
    product: GemmProblem,
    device: DeviceSpec,
    knobs: Knobs,
    operands: Sequence[TensorSpec],
    copies: Sequence[tuple[int, ...] | None],
) -> OperandLayout:
    read = [spec if copy is None else _copy(spec, copy) for spec, copy in zip(operands, copies, strict=True)]
    sides = sides_of(product, read[0], read[1])
    loads = Loads(
        any(side.is_scattered for side in sides),
        (sides[1].width, sides[0].width) if product.swapped else (sides[0].width, sides[1].width),
        min(side.width for side in sides) if all(side.k_major for side in sides) else 1,
        16 if product.roles.problem.spatial < 3 and offset_type(sides) == "int" else 32,
    )
    shape = choose(product, device, ELEMENTS[operands[0].data_type].bytes, loads, knobs)
    copying = sum(
        copying_seconds(s.bytes, device) for s, copy in zip(operands, copies, strict=True) if copy is not None
    )
    return OperandLayout((copies[0], copies[1]), sides, shape, shape.seconds + copying)


def _copy(spec: TensorSpec, strides: tuple[int, ...]) -> TensorSpec:
    """The tensor that ``LaunchSequence.relayout`` would create."""
    changed = {"strides": strides, "dims": spec.extents, "vector_count": 1, "vectorized_dimension": -1}
    return spec.model_copy(update={**changed, "byte_alignment": 16, "is_virtual": False})


def offset_type(sides: Sequence[Side]) -> str:
    """The integer type of element offsets."""
    return "int" if max(side.spec.span for side in sides) < 2**31 else "long long"

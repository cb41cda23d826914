"""Memory access of the direct convolutions: index spaces, strides and widths of vector copies."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.codegen.index_space import Axis, IndexSpace, is_addressable
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.vectors import width_for
from graphdnn.engines.cuda.conv_geometry.convolution_roles import SPATIAL, Roles, padded
from graphdnn.operations.conv_problem import ConvProblem
from graphdnn.tensors import TensorSpec


def image_space(roles: Roles, spec: TensorSpec) -> IndexSpace:
    """The index space ``(n, channel, h, w)`` or ``(n, channel, d, h, w)`` of x or y, whose axis ``channel`` counts the
    channels of all groups.
    """
    p, is_x = roles.problem, spec.uid == roles.op.roles[0].uid
    sizes = p.x_extents if is_x else p.y_extents
    first = len(spec.extents) - p.spatial
    spatial = (Axis(size, first + i) for i, size in enumerate(sizes[3:]))
    return IndexSpace(spec.extents, (Axis(sizes[0], 0), Axis(sizes[1] * sizes[2], 1), *spatial))


def slices_of(problem: ConvProblem) -> tuple[ConvProblem, int]:
    """The 2-D convolution that computes one depth slice of a 3-D result as one image, and the number of depth slices of
    the image that a result reads. A 2-D convolution is returned unchanged.
    """
    if problem.spatial < 3:
        return problem, 1
    fields = ("input", "filter", "output", "pre_padding", "post_padding", "stride", "dilation")
    plane = {name: getattr(problem, name)[1:] for name in fields}
    return replace(problem, n=problem.n * problem.output[0], **plane), problem.filter[0]


def slice_fields(problem: ConvProblem, image: tuple[int, ...], filter: tuple[int, ...]) -> dict[str, int]:
    """Parameters of direct_stem_rows.cuh for the depth axis, where a 2-D image has one depth slice.

    ``image``: strides of ``(n, channel, [d,] h, w)``. ``filter``: strides of ``(g, k, c, f0, f1, f2)``.
    """
    size, outputs, stride, pad = (
        padded(values, fill)[0]
        for values, fill in (
            (problem.input, 1), (problem.output, 1), (problem.stride, 1), (problem.pre_padding, 0),
        )
    )  # fmt: skip
    return {
        "x_d": image[2] if problem.spatial == SPATIAL else 0,
        "in_d": size, "out_d": outputs, "stride_d": stride, "pad_d": pad, "filter_t": filter[3],
    }  # fmt: skip


def effective_dilation(p: ConvProblem) -> tuple[int, ...]:
    """The effective dilation of each axis: 1 where the filter has one tap."""
    return tuple(d if taps > 1 else 1 for d, taps in zip(p.dilation, p.filter, strict=True))


def undilated(p: ConvProblem) -> ConvProblem:
    """The problem of one dilation phase, with all phases as images: its dilation is 1.

    A dilated filter reads every ``dilation``-th row and column only. Pixels whose coordinates are equal modulo the
    dilation are a phase. The taps are adjacent within a phase, so a phase is an image (dilation_phase.cuh).
    """
    dilation = effective_dilation(p)
    if set(dilation) == {1}:
        return p

    def phase(sizes: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(-(-size // d) for size, d in zip(sizes, dilation, strict=True))

    return replace(
        p,
        n=p.n * prod(dilation),
        input=phase(p.input),
        output=phase(p.output),
        pre_padding=phase(p.pre_padding),
        post_padding=phase(p.post_padding),
        dilation=(1,) * p.spatial,
    )


def has_packed_filter(problem: ConvProblem, strides: tuple[int, ...]) -> bool:
    """Whether the elements of each filter k are contiguous, in any order, and no gaps separate the filters.

    ``strides``: the strides of ``(g, k, c, f0, f1, f2)``.
    """
    size = problem.c * problem.taps
    if problem.groups * problem.k > 1 and strides[1 if problem.k > 1 else 0] != size:
        return False
    if problem.k > 1 and problem.groups > 1 and strides[0] != problem.k * size:
        return False
    extents = (problem.c, *padded(problem.filter, 1))
    inner = sorted((s, e) for s, e in zip(strides[2:], extents, strict=True) if e > 1)
    expected = 1
    for stride, extent in inner:
        if stride != expected:
            return False
        expected *= extent
    return True


def copy_bytes(roles: Roles, spec: TensorSpec) -> int:
    """Bytes of the widest aligned vector of channels that every pixel allows."""
    return width_for(image_space(roles, spec), [spec], 1) * element_bytes(spec) if is_addressable(spec) else 1


def copy_elements(space: IndexSpace, spec: TensorSpec, channels: int) -> int:
    """Channels of one cp.async copy: at most 16 bytes, and a divisor of ``channels``."""
    width = width_for(space, [spec], 1)
    while channels % width:
        width //= 2
    return width


def power_of_two_in(*numbers: int) -> int:
    """The largest power of two that divides all numbers."""
    return min(number & -number for number in numbers)


def element_bytes(spec: TensorSpec) -> int:
    """Bytes of an element."""
    return ELEMENTS[spec.data_type].bytes


def aligned_width(spec: TensorSpec, width: int) -> int:
    """The widest vector, of at most ``width`` elements, that the tensor's declared alignment allows."""
    while width > 1 and max(1, spec.byte_alignment) % (width * element_bytes(spec)):
        width //= 2
    return width


def row_copy_elements(spec: TensorSpec, limit: int, *offsets: int) -> int:
    """The widest vector, of at most ``limit`` elements, that divides all nonzero ``offsets``."""
    return aligned_width(spec, power_of_two_in(limit, *(offset for offset in offsets if offset)))


def packed_filter(
    steps: LaunchSequence, roles: Roles, w: TensorSpec, *, any_order: bool = False
) -> tuple[TensorSpec, tuple[int, ...]]:
    """A filter that is packed in the sense of ``has_packed_filter``, and its strides along ``(g, k, c, f0, f1, f2)``. A
    launch copies a filter that is not packed.

    ``any_order``: a filter that is addressable by strides needs no copy.
    """
    p = roles.problem
    if is_addressable(w) and (any_order or has_packed_filter(p, roles.space(w).strides(w))):
        return w, roles.space(w).strides(w)
    _, rows, columns = padded(p.filter, 1)
    return steps.relayout(w), (0, p.c * p.taps, p.taps, rows * columns, columns, 1)

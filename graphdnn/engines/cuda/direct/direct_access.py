"""Memory access of the direct convolutions: layouts, and the vector width of copies."""

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
    """``(n, channel, h, w)`` of x or y, or ``(n, channel, d, h, w)``; groups and their channels are one axis."""
    p, is_x = roles.problem, spec.uid == roles.op.roles[0].uid
    sizes = p.x_extents if is_x else p.y_extents
    first = len(spec.extents) - p.spatial
    spatial = (Axis(size, first + i) for i, size in enumerate(sizes[3:]))
    return IndexSpace(spec.extents, (Axis(sizes[0], 0), Axis(sizes[1] * sizes[2], 1), *spatial))


def slices_of(problem: ConvProblem) -> tuple[ConvProblem, int]:
    """A 3-D convolution as a 2-D one, where each depth slice of the result is an image; and the number of depth slices
    of the image that a result reads. A 2-D convolution is returned unchanged.
    """
    if problem.spatial < 3:
        return problem, 1
    pairs = ("input", "filter", "output", "pre_padding", "post_padding", "stride", "dilation")
    planes = {name: getattr(problem, name)[1:] for name in pairs}
    return replace(problem, n=problem.n * problem.output[0], **planes), problem.filter[0]


def slice_fields(problem: ConvProblem, image: tuple[int, ...], filter: tuple[int, ...]) -> dict[str, int]:
    """Parameters of direct_stem_rows.cuh for depth slices, from the strides of the image and of the filter. A 2-D image
    has one slice.
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


def apart(p: ConvProblem) -> tuple[int, ...]:
    """The effective dilation of each axis: 1 where the filter has one tap."""
    return tuple(d if taps > 1 else 1 for d, taps in zip(p.dilation, p.filter, strict=True))


def undilated(p: ConvProblem) -> ConvProblem:
    """The problem as kernels compute it: without dilation, by dilation phases.

    A dilated filter reads every ``dilation``-th row and column only. Pixels whose coordinates are equal modulo the
    dilation form an image of their own, in which the taps are adjacent (dilation_phase.cuh).
    """
    distances = apart(p)
    if set(distances) == {1}:
        return p

    def parts(sizes: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(-(-size // d) for size, d in zip(sizes, distances, strict=True))

    return replace(
        p,
        n=p.n * prod(distances),
        input=parts(p.input),
        output=parts(p.output),
        pre_padding=parts(p.pre_padding),
        post_padding=parts(p.post_padding),
        dilation=(1,) * p.spatial,
    )


def has_packed_filter(problem: ConvProblem, strides: tuple[int, ...]) -> bool:
    """Whether the elements of each filter k are contiguous, in any order, and the filters follow each other without
    gaps.

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


def piece_bytes(roles: Roles, spec: TensorSpec) -> int:
    """Bytes of the widest aligned vector of channels that every pixel allows."""
    return width_for(image_space(roles, spec), [spec], 1) * element_bytes(spec) if is_addressable(spec) else 1


def chunk_for(space: IndexSpace, spec: TensorSpec, channels: int) -> int:
    """Channels of one cp.async copy: at most 16 bytes, and a divisor of ``channels``."""
    chunk = width_for(space, [spec], 1)
    while channels % chunk:
        chunk //= 2
    return chunk


def power_of_two_in(*numbers: int) -> int:
    """The largest power of two that divides all of them."""
    return min(number & -number for number in numbers)


def element_bytes(spec: TensorSpec) -> int:
    return ELEMENTS[spec.data_type].bytes


def aligned(spec: TensorSpec, chunk: int) -> int:
    """The widest vector, of at most ``chunk`` elements, that the tensor's declared alignment allows."""
    while chunk > 1 and max(1, spec.byte_alignment) % (chunk * element_bytes(spec)):
        chunk //= 2
    return chunk


def copied_at_once(spec: TensorSpec, most: int, *places: int) -> int:
    """The widest vector, of at most ``most`` elements, that divides all of ``places``."""
    return aligned(spec, power_of_two_in(most, *(place for place in places if place)))


def packed_filter(
    steps: LaunchSequence, roles: Roles, w: TensorSpec, *, any_order: bool = False
) -> tuple[TensorSpec, tuple[int, ...]]:
    """A filter that is packed in the sense of ``has_packed_filter``, and its strides; another filter is copied first.

    ``any_order``: any filter whose elements have addresses of their own is accepted without a copy.
    """
    p = roles.problem
    if is_addressable(w) and (any_order or has_packed_filter(p, roles.space(w).strides(w))):
        return w, roles.space(w).strides(w)
    _, lines, pixels = padded(p.filter, 1)
    return steps.relayout(w), (0, p.c * p.taps, p.taps, lines * pixels, pixels, 1)

"""Requirements of the first-layer engines: images of few channels, channels last."""

from __future__ import annotations

from collections.abc import Callable

from graphdnn.checks import AtMost, Empty, Equals, OneOf
from graphdnn.dtypes import FLOAT_COMPUTE
from graphdnn.engines.cuda.codegen.index_space import is_addressable
from graphdnn.engines.cuda.codegen.tensor_cores import INTEGERS
from graphdnn.engines.cuda.conv_geometry.convolution_requirements import (
    Condition,
    convolution_of,
    direction_need,
    is_convolution,
    is_plane,
    problem_need,
    problem_of,
    roles_of,
)
from graphdnn.engines.cuda.direct.direct_access import image_space
from graphdnn.engines.cuda.direct.direct_requirements import reach_need, row_needs, stride_need, window_needs
from graphdnn.engines.engine import Task, kind_need, need, needs_rule
from graphdnn.enums import DataType
from graphdnn.rules import Constraint
from graphdnn.tensors import TensorSpec

CHANNELS = 4
FILTER = 11
STRIDE = 4  # the largest stride of gradients
OUTPUTS = 512  # the most channels of dy in gradients
FLOAT_SUMS = OneOf(*FLOAT_COMPUTE)
TENSOR_CORES = (
    OneOf((DataType.HALF, DataType.HALF), (DataType.BFLOAT16, DataType.BFLOAT16)),
    "the tensor cores take two operands of one 16-bit type here",
    "cast both to HALF or BFLOAT16",
)


def operands_of(task: Task) -> dict[str, TensorSpec]:
    """The tensors that the kernel reads; in gradients dy, and w or x."""
    return dict(convolution_of(task).inputs())


def _images(task: Task) -> dict[str, TensorSpec]:
    """The image operands."""
    w = convolution_of(task).roles[1]
    return {name: t for name, t in operands_of(task).items() if t.uid != w.uid}


def sums_of_types(task: Task) -> OneOf | Equals:
    """The accumulator types of floating-point operands, or of bytes."""
    return Equals(DataType.INT32) if all(t.data_type in INTEGERS for t in operands_of(task).values()) else FLOAT_SUMS


def _is_plain(task: Task, spec: TensorSpec) -> bool:
    """Whether the tensor has no axis of groups and one stride for each axis."""
    return is_addressable(spec) and len(spec.extents) == problem_of(task).spatial + 2


def _has_rows(task: Task, volumes: bool) -> bool:
    return is_plane(task) or (volumes and problem_of(task).spatial == 3)


def _misplaced(task: Task) -> list[str]:
    """The images whose channels are not contiguous, and x if its pixels do not follow each other without gaps."""
    found = []
    for name, spec in _images(task).items():
        space = image_space(roles_of(task), spec)
        strides, sizes = space.strides(spec), space.sizes
        channels = sizes[1] == 1 or strides[1] == 1
        packed = name == "dy" or sizes[-1] == 1 or strides[-1] == sizes[1]
        if not (channels and packed):
            found.append(f"{name} {spec.strides}")
    return found


def stem_needs(
    prefix: str,
    tag: str,
    types: tuple[OneOf, str, str] = TENSOR_CORES,
    sums: OneOf | Callable[[Task], OneOf | Equals] = FLOAT_SUMS,
    *,
    volumes: bool = False,
) -> tuple[Constraint, ...]:
    """The requirements of a stem engine; rule ids begin with ``prefix``. ``tag``: the direction. ``types``: the
    operands' types, the reason and the fix.
    ``volumes``: images may have slices.
    """

    def is_ours(task: Task) -> bool:
        return is_convolution(task) and task.op.main.tag == tag

    def is_image(task: Task) -> bool:
        return is_ours(task) and _has_rows(task, volumes)

    return (
        needs_rule(f"{prefix}.operation", "conv"),
        direction_need(
            prefix,
            tag,
            reason="each direction of a first layer is a kernel of its own",
            when=lambda task: is_convolution(task) and not is_ours(task),
        ),
        *row_needs(prefix, is_ours, "the kernel keeps rows of an image", volumes=volumes),
        problem_need(
            prefix,
            "groups",
            Equals(1),
            reason="a product's columns are the channels of one group",
            fix="nothing to do: other engines serve groups",
            when=is_image,
        ),
        problem_need(
            prefix,
            "c",
            AtMost(CHANNELS),
            reason="more channels are a matrix product, which other engines serve faster",
            fix="nothing to do: another engine serves it",
            when=is_image,
            name="channels",
            attribute="x.dims[1]",
        ),
        kind_need(
            f"{prefix}.data_type",
            "data_type",
            lambda task: tuple(t.data_type for t in operands_of(task).values()),
            types[0],
            reason=types[1],
            fix=types[2],
            when=is_image,
        ),
        kind_need(
            f"{prefix}.compute_type",
            "conv.compute_type",
            lambda task: task.op.main.compute_type,
            sums,
            reason="products are added in fp32",
            fix="accumulate in FLOAT, and bytes in INT32 where they are served",
            when=is_image,
        ),
        *window_needs(
            prefix,
            is_image,
            FILTER,
            dilation="the numbers of a window are neighbours",
            filter="a window's sums or weights are kept in registers",
        ),
        need(
            f"{prefix}.addressable",
            "strides",
            lambda task: ", ".join(name for name, t in _images(task).items() if not _is_plain(task, t)),
            Empty("axes with a stride each, none of groups"),
            reason="rows are copied as they lie in memory: axes with a stride each, none of groups, vectors or bits",
            fix="write images as [N, C, H, W], and volumes as [N, C, D, H, W]",
            when=is_image,
        ),
        need(
            f"{prefix}.layout",
            "strides",
            lambda task: ", ".join(_misplaced(task)),
            Empty("channels, and pixels of x, next to each other"),
            reason="neighbouring channels, and of x neighbouring pixels, are read at once",
            fix="use the packed channels-last layout (NHWC)",
            when=lambda task: is_image(task) and all(_is_plain(task, t) for t in _images(task).values()),
        ),
        reach_need(prefix, is_image),
        *(() if tag == "conv_fprop" else _gradient_needs(prefix, is_image)),
    )


def _gradient_needs(prefix: str, is_image: Condition) -> tuple[Constraint, ...]:
    return (
        problem_need(
            prefix,
            "k",
            AtMost(OUTPUTS),
            reason="first layers have few filters: many are a matrix product, which other engines serve faster",
            fix="nothing to do: another engine serves it",
            when=is_image,
            name="outputs",
            attribute="dy.dims[1]",
        ),
        stride_need(prefix, is_image, STRIDE, "the kernel is written out for each residue of the stride"),
    )


def is_served(task: Task, tag: str, *, volumes: bool = False) -> bool:
    """Whether all requirements but shared memory are met, so that a plan can be computed."""
    if not is_convolution(task) or task.op.main.tag != tag or not _has_rows(task, volumes):
        return False
    p = problem_of(task)
    is_small = p.c <= CHANNELS and max(p.filter) <= FILTER
    return is_small and (tag == "conv_fprop" or (p.k <= OUTPUTS and max(p.stride) <= STRIDE))

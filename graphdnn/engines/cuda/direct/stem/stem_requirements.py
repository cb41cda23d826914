"""Requirements of the stem engines: images of few channels, channels last."""

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

MAX_CHANNELS = 4  # of the image
MAX_FILTER = 11  # taps along an axis
MAX_STRIDE = 4  # of gradients
MAX_OUTPUTS = 512  # channels of dy in gradients
FLOAT_ACCUMULATORS = OneOf(*FLOAT_COMPUTE)
HALF_PAIRS = (
    OneOf((DataType.HALF, DataType.HALF), (DataType.BFLOAT16, DataType.BFLOAT16)),
    "the kernel multiplies 16-bit floats of one type",
    "cast both to HALF or BFLOAT16",
)


def operands_of(task: Task) -> dict[str, TensorSpec]:
    """The tensors that the kernel reads, by port name."""
    return dict(convolution_of(task).inputs())


def _images(task: Task) -> dict[str, TensorSpec]:
    """The operands except the filter, by port name."""
    w = convolution_of(task).roles[1]
    return {name: t for name, t in operands_of(task).items() if t.uid != w.uid}


def accumulator_types(task: Task) -> OneOf | Equals:
    """The compute types: INT32 for bytes, otherwise floats."""
    has_bytes = all(t.data_type in INTEGERS for t in operands_of(task).values())
    return Equals(DataType.INT32) if has_bytes else FLOAT_ACCUMULATORS


def _is_strided_image(task: Task, spec: TensorSpec) -> bool:
    """Whether the tensor is addressable by strides and has no axis of groups."""
    return is_addressable(spec) and len(spec.extents) == problem_of(task).spatial + 2


def _has_rows(task: Task, volumes: bool) -> bool:
    return is_plane(task) or (volumes and problem_of(task).spatial == 3)


def _misplaced(task: Task) -> list[str]:
    """The images whose channels are not contiguous, and x if its pixels are not packed along a row."""
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
    types: tuple[OneOf, str, str] = HALF_PAIRS,
    sums: OneOf | Callable[[Task], OneOf | Equals] = FLOAT_ACCUMULATORS,
    *,
    volumes: bool = False,
) -> tuple[Constraint, ...]:
    """The requirements of a stem engine.

    Args:
        prefix: The beginning of rule ids.
        tag: The direction, as the tag of the operation.
        types: The types of the operands, with reason and fix.
        sums: The compute types.
        volumes: Whether 3-D images are served as well.
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
            reason="each direction of a first layer has its own kernel",
            when=lambda task: is_convolution(task) and not is_ours(task),
        ),
        *row_needs(prefix, is_ours, "the kernel copies whole rows of an image", volumes=volumes),
        problem_need(
            prefix,
            "groups",
            Equals(1),
            reason="the columns of an MMA are the channels of one group",
            fix="nothing to do: other engines serve groups",
            when=is_image,
        ),
        problem_need(
            prefix,
            "c",
            AtMost(MAX_CHANNELS),
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
            reason="accumulators are fp32",
            fix="accumulate in FLOAT, and bytes in INT32 where they are served",
            when=is_image,
        ),
        *window_needs(
            prefix,
            is_image,
            MAX_FILTER,
            dilation="the elements of a window are contiguous",
            filter="the accumulators or the weights of a window are kept in registers",
        ),
        need(
            f"{prefix}.addressable",
            "strides",
            lambda task: ", ".join(name for name, t in _images(task).items() if not _is_strided_image(task, t)),
            Empty("axes with strides, and no axis of groups"),
            reason="rows are copied unchanged: each axis has a stride, and there is no axis of groups",
            fix="write images as [N, C, H, W], and volumes as [N, C, D, H, W]",
            when=is_image,
        ),
        need(
            f"{prefix}.layout",
            "strides",
            lambda task: ", ".join(_misplaced(task)),
            Empty("contiguous channels, and packed pixels of x"),
            reason="a load has adjacent channels, and in x adjacent pixels",
            fix="use the packed channels-last layout (NHWC)",
            when=lambda task: is_image(task) and all(_is_strided_image(task, t) for t in _images(task).values()),
        ),
        reach_need(prefix, is_image),
        *(() if tag == "conv_fprop" else _gradient_needs(prefix, is_image)),
    )


def _gradient_needs(prefix: str, is_image: Condition) -> tuple[Constraint, ...]:
    return (
        problem_need(
            prefix,
            "k",
            AtMost(MAX_OUTPUTS),
            reason="first layers have few filters: many are a matrix product, which other engines serve faster",
            fix="nothing to do: another engine serves it",
            when=is_image,
            name="outputs",
            attribute="dy.dims[1]",
        ),
        stride_need(prefix, is_image, MAX_STRIDE, "the kernel unrolls the residues of the stride"),
    )


def is_served(task: Task, tag: str, *, volumes: bool = False) -> bool:
    """Whether a plan can be computed: all requirements that a plan depends on are met."""
    if not is_convolution(task) or task.op.main.tag != tag or not _has_rows(task, volumes):
        return False
    p = problem_of(task)
    is_small = p.c <= MAX_CHANNELS and max(p.filter) <= MAX_FILTER
    return is_small and (tag == "conv_fprop" or (p.k <= MAX_OUTPUTS and max(p.stride) <= MAX_STRIDE))

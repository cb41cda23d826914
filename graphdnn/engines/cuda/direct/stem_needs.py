"""What the engines of first layers need: images of few channels, channels last."""

from __future__ import annotations

from collections.abc import Callable

from graphdnn.checks import AtMost, Each, Empty, Equals, InRange, OneOf
from graphdnn.convolution import ConvProblem
from graphdnn.engines.cuda.direct.geometry import convolution, coordinates_need, image_space
from graphdnn.engines.cuda.generator.convolution_roles import Roles
from graphdnn.engines.cuda.generator.space import is_addressable
from graphdnn.engines.engine import Task, need, needs_rule
from graphdnn.enums import DataType
from graphdnn.operations import ConvBackwardData, ConvBackwardFilter, ConvForward
from graphdnn.rules import Constraint
from graphdnn.tensors import TensorSpec

CHANNELS = 4
FILTER = 11
STRIDE = 4  # of gradients
OUTPUTS = 512  # channels of dy, of gradients
TENSOR_CORES = (
    OneOf((DataType.HALF, DataType.HALF), (DataType.BFLOAT16, DataType.BFLOAT16)),
    "the tensor cores take two operands of one 16-bit type here",
    "cast both to HALF or BFLOAT16",
)
_KINDS: dict[str, type] = {"conv_fprop": ConvForward, "conv_dgrad": ConvBackwardData, "conv_wgrad": ConvBackwardFilter}


def problem_of(task: Task) -> ConvProblem:
    op = convolution(task)
    assert op is not None
    return op.problem


def operands_of(task: Task) -> dict[str, TensorSpec]:
    """The tensors that are read: dy with w or x."""
    op = convolution(task)
    assert op is not None
    return dict(op.inputs())


def _images(task: Task) -> dict[str, TensorSpec]:
    """Those of them with pixels."""
    op = convolution(task)
    assert op is not None
    w = op.roles[1]
    return {name: t for name, t in op.inputs().items() if t.uid != w.uid}


def _is_four(spec: TensorSpec) -> bool:
    return is_addressable(spec) and len(spec.extents) == 4


def _misplaced(task: Task) -> list[str]:
    """Images whose channels are not neighbours, and x where its pixels do not follow each other."""
    op = convolution(task)
    assert op is not None
    found = []
    for name, spec in _images(task).items():
        space = image_space(Roles.of(op), spec)
        strides, sizes = space.strides(spec), space.sizes
        channels = sizes[1] == 1 or strides[1] == 1
        packed = name == "dy" or sizes[3] == 1 or strides[3] == sizes[1]
        if not (channels and packed):
            found.append(f"{name} {spec.strides}")
    return found


def stem_needs(prefix: str, tag: str, types: tuple[OneOf, str, str] = TENSOR_CORES) -> tuple[Constraint, ...]:
    """``tag``: of the direction. ``types``: those of the operands, the reason, the fix. Ids begin with ``prefix``."""
    kind = _KINDS[tag]

    def is_ours(task: Task) -> bool:
        op = convolution(task)
        return op is not None and task.op.main.tag == tag and isinstance(op, kind)

    def is_image(task: Task) -> bool:
        return is_ours(task) and problem_of(task).spatial == 2

    rule: Callable[..., Constraint] = need
    return (
        needs_rule(f"{prefix}.operation", "conv"),
        rule(
            f"{prefix}.direction",
            "operation",
            lambda task: task.op.main.tag,
            Equals(tag),
            reason="each direction of a first layer is a kernel of its own",
            fix="nothing to do: another engine serves this direction",
            when=lambda task: convolution(task) is not None and not is_ours(task),
        ),
        rule(
            f"{prefix}.spatial_dims",
            "conv.spatial_dims",
            lambda task: problem_of(task).spatial,
            Equals(2),
            reason="the kernel keeps rows of an image",
            fix="write a 1-D convolution as a 2-D one of height 1",
            when=is_ours,
        ),
        rule(
            f"{prefix}.prologue",
            "prologue",
            lambda task: len(task.op.prologue),
            Equals(0),
            reason="rows are copied to shared memory as they are, without passing through registers",
            fix="let the pointwise operations before the convolution write their result",
            when=is_ours,
        ),
        rule(
            f"{prefix}.groups",
            "groups",
            lambda task: problem_of(task).groups,
            Equals(1),
            reason="a product's columns are the channels of one group",
            fix="nothing to do: other engines serve groups",
            when=is_image,
        ),
        rule(
            f"{prefix}.channels",
            "x.dims[1]",
            lambda task: problem_of(task).c,
            AtMost(CHANNELS),
            reason="more channels are a matrix product, which other engines serve faster",
            fix="nothing to do: another engine serves it",
            when=is_image,
        ),
        rule(
            f"{prefix}.data_type",
            "data_type",
            lambda task: tuple(t.data_type for t in operands_of(task).values()),
            types[0],
            reason=types[1],
            fix=types[2],
            when=is_image,
        ),
        rule(
            f"{prefix}.compute_type",
            "conv.compute_type",
            lambda task: task.op.main.compute_type,
            OneOf(DataType.FLOAT, DataType.HALF, DataType.BFLOAT16),
            reason="products are added in fp32",
            fix="accumulate in FLOAT",
            when=is_image,
        ),
        rule(
            f"{prefix}.dilation",
            "conv.dilations",
            lambda task: problem_of(task).dilation,
            Each(Equals(1)),
            reason="the numbers of a window are neighbours",
            fix="nothing to do: another engine serves dilated filters",
            when=is_image,
        ),
        rule(
            f"{prefix}.filter",
            "w.dims",
            lambda task: problem_of(task).filter,
            Each(InRange(1, FILTER)),
            reason="a window's sums or weights are kept in registers",
            fix="nothing to do: another engine serves larger filters",
            when=is_image,
        ),
        rule(
            f"{prefix}.addressable",
            "strides",
            lambda task: ", ".join(name for name, t in _images(task).items() if not _is_four(t)),
            Empty("four axes with a stride each"),
            reason="rows are copied as they lie in memory: four axes with a stride each, none of vectors or bits",
            fix="write images as [N, C, H, W]",
            when=is_image,
        ),
        rule(
            f"{prefix}.layout",
            "strides",
            lambda task: ", ".join(_misplaced(task)),
            Empty("channels, and pixels of x, next to each other"),
            reason="neighbouring channels, and of x neighbouring pixels, are read at once",
            fix="use the packed channels-last layout (NHWC)",
            when=lambda task: is_image(task) and all(map(_is_four, _images(task).values())),
        ),
        coordinates_need(prefix, is_image),
        *(() if tag == "conv_fprop" else _gradient_needs(prefix, is_image)),
    )


def _gradient_needs(prefix: str, is_image: Callable[[Task], bool]) -> tuple[Constraint, ...]:
    return (
        need(
            f"{prefix}.outputs",
            "dy.dims[1]",
            lambda task: problem_of(task).k,
            AtMost(OUTPUTS),
            reason="first layers have few filters: many are a matrix product, which other engines serve faster",
            fix="nothing to do: another engine serves it",
            when=is_image,
        ),
        need(
            f"{prefix}.stride",
            "conv.filter_strides",
            lambda task: problem_of(task).stride,
            Each(InRange(1, STRIDE)),
            reason="the kernel is written out for each residue of the stride",
            fix="nothing to do: another engine serves larger strides",
            when=is_image,
        ),
    )


def is_served(task: Task, tag: str) -> bool:
    """What a plan can be asked of: small enough in every respect but memory."""
    op = convolution(task)
    if op is None or task.op.main.tag != tag or op.problem.spatial != 2:
        return False
    p = op.problem
    is_small = p.c <= CHANNELS and max(p.filter) <= FILTER
    return is_small and (tag == "conv_fprop" or (p.k <= OUTPUTS and max(p.stride) <= STRIDE))

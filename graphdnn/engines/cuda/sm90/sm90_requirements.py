"""Requirements that the engines for compute capability 9.0 share."""

from __future__ import annotations

from collections.abc import Callable

from graphdnn.checks import Empty, Equals, OneOf
from graphdnn.dtypes import ELEMENTS, FLOAT_COMPUTE
from graphdnn.engines.batch_invariance import memoize_for_images
from graphdnn.engines.cuda.codegen.requirements import SHARED_MEMORY
from graphdnn.engines.cuda.codegen.tensor_cores import INTEGERS, Pairs
from graphdnn.engines.cuda.conv_geometry.convolution_requirements import (
    Condition,
    direction_need,
    is_convolution,
    problem_of,
    prologue_need,
    roles_of,
)
from graphdnn.engines.cuda.conv_geometry.convolution_roles import CHANNELS, SPATIAL, Roles
from graphdnn.engines.cuda.conv_geometry.gemm_problem import gemm_problem_of, im2col_and_dense
from graphdnn.engines.cuda.sm90.tensor_maps import LIMITS, MAX_TRAVERSAL_STRIDE, crosses_groups, im2col_boxes_of
from graphdnn.engines.cuda.sm90.tile import SWIZZLE_BYTES
from graphdnn.engines.cuda.sm90.tma_operands import ALIGNMENT
from graphdnn.engines.cuda.sm90.wgmma_text import ACROSS_K
from graphdnn.engines.engine import Task, image_need, kind_need, needs_rule, window_need
from graphdnn.engines.memoization import memoize
from graphdnn.enums import DataType
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvBackwardFilter, ConvolutionOperation
from graphdnn.rules import Constraint

MAX_GROUP_MAPS = 24  # tensor maps of groups in the kernel's arguments
MAX_RESIDUES = 9  # of stride 3 along two axes; the kernel's arguments hold 12
_CAPABILITY = (9, 0)


def types_of(task: Task) -> tuple[DataType, DataType]:
    """Types of the im2col operand and of the dense operand."""
    im2col, dense = im2col_and_dense(roles_of(task))
    return im2col.data_type, dense.data_type


def types_and_sum(task: Task) -> tuple[DataType, ...]:
    return *types_of(task), task.op.main.compute_type


def is_wgrad(task: Task) -> bool:
    return isinstance(task.op.anchor, ConvBackwardFilter)


@memoize
def _operand_types(op: FusedOp) -> tuple[DataType, DataType] | None:
    if not isinstance(op.anchor, ConvolutionOperation):
        return None
    im2col, dense = im2col_and_dense(Roles.of(op.anchor))
    return im2col.data_type, dense.data_type


def operand_needs(
    prefix: str,
    pairs: Pairs,
    sums: tuple[DataType, ...],
    *,
    types: Callable[[Task], tuple[DataType, DataType]],
    tag: str,
    when: Condition,
    when_served: Condition,
) -> tuple[Constraint, Constraint]:
    """``sums``: the compute types of floats. ``when_served``: whether the types are among ``pairs``."""
    return (
        kind_need(
            f"{prefix}.types",
            "data_type",
            types,
            OneOf(*pairs),
            reason="the engine multiplies these types on tensor cores",
            fix="nothing to do: another engine serves other types",
            when=when,
        ),
        kind_need(
            f"{prefix}.compute_type",
            f"{tag}.compute_type",
            lambda task: task.op.main.compute_type,
            lambda task: OneOf(*((DataType.INT32,) if types(task)[0] in INTEGERS else sums)),
            reason="tensor cores accumulate in 32-bit registers",
            fix="accumulate floats in FLOAT, bytes in INT32",
            when=when_served,
        ),
    )


def _outside(task: Task) -> str:
    return _outside_of(task.op)


@memoize_for_images
def _outside_of(op: FusedOp) -> str:
    """Axes along which the im2col box of the image exceeds the limits of TMA."""
    gemm = gemm_problem_of(op)
    spatial = gemm.roles.problem.spatial
    low, high, furthest = LIMITS[spatial]
    problems = []
    for box in im2col_boxes_of(op):
        for d in range(SPATIAL - spatial, SPATIAL):
            axis = d - (SPATIAL - spatial)
            if not (low <= box.lower[d] <= high and low <= box.upper[d] <= high):
                problems.append(f"axis {axis}: from {box.lower[d]} before to {box.upper[d]} after the image")
            if box.reach[d] > furthest:
                problems.append(f"axis {axis}: a filter that reaches over {box.reach[d]}")
            if gemm.traversal_stride[d] > MAX_TRAVERSAL_STRIDE:
                problems.append(f"axis {axis}: stride {gemm.traversal_stride[d]}")
    return "; ".join(dict.fromkeys(problems))


def _summed(task: Task) -> int:
    """Summed channels of one group."""
    problem = problem_of(task)
    return problem.k if roles_of(task).direction == "dgrad" else problem.c


def _crosses_groups(task: Task) -> bool:
    """Whether a row of 128 bytes has channels of two groups, and a tensor map for each group is not possible."""
    gemm = gemm_problem_of(task.op)
    if not crosses_groups(gemm):
        return False
    begins_inside = _summed(task) * ELEMENTS[types_of(task)[0]].bytes % ALIGNMENT
    maps = gemm.roles.problem.groups * (len(gemm.residues) + (gemm.roles.direction == "dgrad"))
    return begins_inside != 0 or maps > MAX_GROUP_MAPS


def _group_bytes(task: Task) -> tuple[int, int]:
    """Bytes of a pixel's channels in one group, of x and of dy."""
    problem = problem_of(task)
    im2col, dense = (ELEMENTS[kind].bytes for kind in types_of(task))
    return problem.c * im2col, problem.k * dense


def _begins_inside(task: Task) -> bool:
    """Whether groups of a wgrad begin at addresses that TMA cannot load."""
    roles = roles_of(task)
    is_grouped = roles.direction == "wgrad" and roles.problem.groups > 1
    return is_grouped and any(size % ALIGNMENT for size in _group_bytes(task))


def im2col_box_needs(prefix: str, condition: Condition) -> tuple[Constraint, ...]:
    """The limits of an im2col box, for tasks that fulfil ``condition``."""
    return (
        SHARED_MEMORY,
        image_need(
            f"{prefix}.walk",
            "conv.pre_paddings",
            _outside,
            Empty("padding, dilated filter and stride within the limits of TMA im2col boxes"),
            reason="TMA has few bits for the corners and offsets of an im2col box: 8 for two axes, 5 for three",
            fix="nothing to do: another engine serves it",
            when=condition,
        ),
    )


def channels_last_need(prefix: str, result: str, condition: Condition) -> Constraint:
    """For engines that store vectors of channels. ``result``: the port of the result."""
    return image_need(
        f"{prefix}.layout",
        f"{result}.strides",
        lambda task: roles_of(task).space(roles_of(task).output).strides(task.op.outputs[0])[CHANNELS],
        Equals(1),
        reason="a thread stores contiguous channels of a pixel",
        fix="nothing to do: another engine serves results of channels first",
        when=condition,
    )


def im2col_needs(prefix: str, condition: Condition) -> tuple[Constraint, ...]:
    """The limits of the im2col boxes of all residues, for tasks that fulfil ``condition``."""
    return (
        *im2col_box_needs(
            prefix, lambda task: condition(task) and len(gemm_problem_of(task.op).residues) <= MAX_RESIDUES
        ),
        image_need(
            f"{prefix}.residues",
            "conv.filter_strides",
            lambda task: len(gemm_problem_of(task.op).residues),
            Equals(f"at most {MAX_RESIDUES} residues"),
            reason="a strided dgrad is a GEMM for each residue of the positions modulo the stride, and each has a map",
            fix="nothing to do: another engine serves longer strides",
            when=lambda task: condition(task) and len(gemm_problem_of(task.op).residues) > MAX_RESIDUES,
        ),
    )


def _may_lie_across(pairs: Pairs) -> bool:
    """Whether filter gradients of some types are served: their operands are MN-major."""
    return any(im2col in ACROSS_K for im2col, _ in pairs)


def _group_start_need(prefix: str, when: Condition) -> Constraint:
    """For engines that serve filter gradients: only these load one group of an image."""
    return window_need(
        f"{prefix}.group_start",
        "dw.dims",
        _group_bytes,
        Equals(f"groups of channels that begin at multiples of {ALIGNMENT} bytes"),
        reason="im2col loads of an image begin at multiples of 16 bytes",
        fix="nothing to do: another engine serves narrow groups",
        when=when,
    )


def _lies_across(task: Task) -> bool:
    """Whether an operand is MN-major and no K-major copy replaces it."""
    roles = roles_of(task)
    return roles.direction == "wgrad" or (roles.direction == "dgrad" and roles.problem.groups > 1)


def gemm_needs(
    prefix: str, pairs: Pairs, when_served: Condition, sums: tuple[DataType, ...] = FLOAT_COMPUTE
) -> tuple[Constraint, ...]:
    """The first requirements of an engine: the operation, the device, the types of operands, and the compute type."""
    return (
        needs_rule(f"{prefix}.operation", "conv"),
        capability_need(prefix, is_convolution),
        *operand_needs(prefix, pairs, sums, types=types_of, tag="conv", when=is_convolution, when_served=when_served),
    )


def capability_need(prefix: str, condition: Condition) -> Constraint:
    """Compute capability 9.0, for tasks that fulfil ``condition``."""
    return kind_need(
        f"{prefix}.compute_capability",
        "device.compute_capability",
        lambda task: task.device.compute_capability,
        Equals(_CAPABILITY),
        reason="the kernel is written in instructions that only compute capability 9.0 has (wgmma)",
        fix="nothing to do: another engine serves other devices",
        when=condition,
    )


def wgrad_need(prefix: str, reason: str) -> Constraint:
    return direction_need(
        prefix, ConvBackwardFilter.tag, reason, lambda task: is_convolution(task) and not is_wgrad(task)
    )


def hopper_needs(prefix: str, pairs: Pairs, sums: tuple[DataType, ...] = FLOAT_COMPUTE) -> tuple[Constraint, ...]:
    """Constraints of an engine for operand types ``pairs``; their ids begin with ``prefix``.

    ``sums``: the compute types of floats.
    """

    def _has_served_types(task: Task) -> bool:
        """Whether the engine multiplies the types, so that a row has 128 bytes of channels."""
        return _operand_types(task.op) in pairs

    def when(condition: Condition) -> Condition:
        return lambda task: _has_served_types(task) and condition(task)

    return (
        *gemm_needs(prefix, pairs, _has_served_types, sums),
        window_need(
            f"{prefix}.across_k",
            "data_type",
            lambda task: types_of(task)[0],
            OneOf(*ACROSS_K),
            reason="the operands of this gradient are MN-major, which tensor cores read for 16-bit types only",
            fix="nothing to do: another engine serves these gradients of other types",
            when=when(_lies_across),
        ),
        prologue_need(prefix, is_convolution),
        *im2col_needs(prefix, _has_served_types),
        window_need(
            f"{prefix}.groups",
            "w.dims",
            _summed,
            Equals(
                f"groups of channels that fill multiples of {SWIZZLE_BYTES} bytes, or few of multiples of {ALIGNMENT}"
            ),
            reason="a row of 128 bytes with channels of two groups would mix them; tensor maps that end with a group"
            f" prevent that, one for each group and residue, and arguments hold {MAX_GROUP_MAPS}",
            fix="nothing to do: another engine serves narrow groups",
            when=when(_crosses_groups),
        ),
        *([_group_start_need(prefix, when(_begins_inside))] if _may_lie_across(pairs) else []),
    )

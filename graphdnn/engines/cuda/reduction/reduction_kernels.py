"""Generates reductions over some axes of an index space to one value for each index of the others.

Reductions, channel statistics and gradients of norm weights share this module: prologue, choice of the launch from
shape and layout, partial results of several CTAs, epilogue.

If the contiguous axis is reduced (rows, or the pixels of NCHW), a warp or a CTA works along it. Otherwise (channels of
NHWC) each thread has a few contiguous results, and threads split the reduced axes. Few results are split among CTAs,
and a second launch combines the partial results in a fixed order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from math import prod

from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import COMPUTE, ELEMENTS
from graphdnn.engines.cuda.codegen.fast_division import count_type
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program, gen_index_axes
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.codegen.vectors import width_for
from graphdnn.engines.cuda.reduction.reduced_axes import ReducedAxes, reduced_axes
from graphdnn.engines.cuda.reduction.reduction_shape import Shape, choose_shape
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.tensors import TensorSpec

# Threads of a CTA, and CTAs of an SM. Half of an SM's threads or more, with several loads of each in flight, saturate
# memory. Few large CTAs leave few partial results. Threads with several accumulators need the registers.
_LARGE, _SMALL = (512, 3), (256, 3)
_ACCUMULATORS = 64  # bytes of a thread
_IN_FLIGHT = 64  # bytes that a thread loads before it uses the first
_WIDENED = 256  # bytes of these loads in the compute type
_VEC_BYTES = 16
_PLAIN = 32  # bytes of a thread's results, in the compute type


class FoldKind(IntEnum):
    """The sums of a fold: FOLD of reduction.cu."""

    OPERATOR = 0
    SUMS_OF_SQUARES = 1
    BATCH_NORM_GRADIENTS = 2
    NORM_GRADIENTS = 3
    NORM_PARTIAL_SUMS = 4


@dataclass(frozen=True)
class Fold:
    """The accumulators of one kind of reduction, and its results."""

    name: str
    kind: FoldKind  # the header with identity, accumulate, combined and concluded
    streamed: tuple[TensorSpec, ...]  # the anchor's reduced operands: rows of ``value``
    extents: tuple[int, ...]  # of the results
    finish: Callable[[LaunchSequence, Program], None]  # stores ``acc``, [parts][vector] in the compute type
    parts: int = 1  # accumulators for each result
    beside: tuple[TensorSpec, ...] = ()  # operands of each result that every element needs: further rows of ``value``
    after: tuple[TensorSpec, ...] = ()  # tensors that ``finish`` reads besides the epilogue's operands
    constants: Mapping[str, int | bool | str] = field(default_factory=dict)

    @property
    def operands(self) -> tuple[TensorSpec, ...]:
        return (*self.streamed, *self.beside)


def generate_fold(op: FusedOp, device: DeviceSpec, fold: Fold) -> DeviceKernel:
    assert op.anchor is not None
    steps = LaunchSequence(op, device)
    compute, size = COMPUTE_TYPE[op.anchor.compute_type], COMPUTE[op.anchor.compute_type].itemsize
    finished = [*steps.epilogue_tensors(), *fold.after]
    axes, shape, per_sm, vector_axis = _divided(op, fold, finished, size, device)
    split = shape.splits > 1
    finish_width = 1
    if not shape.along and shape.threads_per_result == 1 and not split:
        finish_width = min(shape.width, width_for(axes.y, finished, axes.y.rank - 1))

    parameters = Parameters(steps.workspace_offsets)
    before = Program(op, parameters, axes.x, "x", width=shape.width, vector_axis=vector_axis)
    before.apply(op.prologue)
    for row, spec in enumerate(fold.operands):
        before.copy_widened_to(f"value[{row}]", spec, compute)
    behind = Program(op, parameters, axes.y, "t", width=finish_width)
    fold.finish(steps, behind)
    parameters.table({
        "kept_size": shape.kept, "kept_extent": axes.kept, "reduced_size": shape.reduced, "step": shape.step,
        "kept_count": prod(shape.kept), "reduced_count": prod(shape.reduced),
        "results": prod(axes.kept), "elements": prod(axes.reduced),
        "per_block": shape.per_block, "splits": shape.splits,
    })  # fmt: skip
    if split:
        partial_bytes = shape.splits * fold.parts * prod(axes.kept) * size
        parameters.workspace_pointer("partial", compute, steps.allocate(partial_bytes))
    else:
        parameters.null_pointer("partial", compute)

    layout = f"{'rows' if shape.along else 'columns'}_v{shape.width}l{shape.threads_per_result}u{shape.unroll}"
    name = f"{fold.name}__{layout}{'_split' if split else ''}__{op.name}"
    text = kernel_text(
        name,
        ["reduction.cu", *(["reduction_splits.cu"] if split else [])],
        variants={"FOLD": fold.kind},
        parameters=parameters.text,
        functions=[
            before.function("element", f"{compute} (&value)[{len(fold.operands)}][{shape.width}]"),
            behind.function("finish", f"const {compute} (&acc)[{fold.parts}][{finish_width}]"),
        ],
        constants={
            "THREADS": shape.threads,
            "THREADS_PER_RESULT": shape.threads_per_result,
            "UNROLL": shape.unroll,
            "BLOCKS_PER_SM": per_sm,
            "VEC_WIDTH": shape.width,
            "FINISH": finish_width,
            "KEPT_AXES": axes.y.rank,
            "REDUCED_AXES": len(axes.reduced),
            "ROWS": len(fold.operands),
            "PARTS": fold.parts,
            "ALONG": shape.along,
            "SPLIT": split,
            **({"SPLIT_RESULTS": shape.results_per_block} if split else {}),
            "Compute": compute,
            "Count": count_type(max(prod(axes.kept), prod(axes.reduced))),
            **fold.constants,
        },
    )
    packed = parameters.pack()
    steps.add_early(Launch(text, "reduce", (shape.tiles, shape.splits, 1), shape.threads, packed))
    if split:
        blocks = -(-prod(axes.kept) // shape.results_per_block)
        steps.add_early(Launch(text, "reduce_splits", (blocks, 1, 1), shape.threads, packed))
    return steps.kernel(name)


def _divided(
    op: FusedOp, fold: Fold, finished: list[TensorSpec], size: int, device: DeviceSpec
) -> tuple[ReducedAxes, Shape, int, int]:
    """The axes of elements and results, the division among threads, CTAs of a multiprocessor, and the vectorized axis.
    ``finished``: the tensors of results; ``size``: bytes of the compute type.
    """
    read = op.sources(fold.operands)
    main = max(read, key=lambda t: t.elements) if read else fold.streamed[0]
    asked = gen_index_axes(op.prologue) | gen_index_axes(op.epilogue)
    dense_tensor = [t for t in finished if not (t.is_by_value or t.is_constant)]
    axes = reduced_axes(fold.streamed[0].extents, fold.extents, main, read, dense_tensor, asked)
    along = _reduces_neighbours(axes, main)
    vector_axis = (axes.x.rank if along else axes.y.rank) - 1
    width = _width(axes, read, vector_axis, _ACCUMULATORS // (size * fold.parts))
    loaded = max([ELEMENTS[t.data_type].bytes for t in read if t.elements == main.elements], default=1)
    rows = width * len(fold.streamed)
    in_flight = min(_IN_FLIGHT // (rows * loaded), _WIDENED // (rows * size))
    # The occupancy in the launch bounds decides whether the compiler keeps the loads together.
    is_plain = len(fold.operands) == fold.parts == 1 and not op.prologue and width * size <= _PLAIN
    threads, per_sm = _LARGE if is_plain else _SMALL
    shape = choose_shape(axes, along, width, width * loaded, in_flight, threads, per_sm * device.sm_count)
    return axes, shape, per_sm, vector_axis


def _reduces_neighbours(axes: ReducedAxes, main: TensorSpec) -> bool:
    """Whether contiguous elements belong to one result."""
    strides = axes.x.strides(main)
    kept, reduced = strides[axes.y.rank - 1], strides[-1]
    return prod(axes.kept) == 1 or (reduced != 0 and (kept == 0 or reduced < kept))


def _width(axes: ReducedAxes, read: list[TensorSpec], axis: int, most: int) -> int:
    """The vector width of a thread: 16 bytes of the operands that change from element to element."""
    if not read:
        return 1
    largest = max(t.elements for t in read)
    streamed = max(ELEMENTS[t.data_type].bytes for t in read if t.elements == largest)
    limit = _VEC_BYTES * max(ELEMENTS[t.data_type].bytes for t in read) // streamed
    width = width_for(axes.x, read, axis, limit)
    while width > max(1, most):
        width //= 2
    return width

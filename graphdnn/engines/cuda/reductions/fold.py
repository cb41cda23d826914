"""Fold: values over some axes of a space become one for each element of the others.

What reductions, sums of channels and gradients of norm weights share: prologue, choice of
the launch from shape and layout, parts of a result in several blocks, epilogue.

Where neighbours in memory are reduced (rows, or the pixels of NCHW), a warp or a block
works along them; where they are kept (channels of NHWC), each thread holds a few of them
and the rows are divided among threads. Few results are divided among blocks, whose parts
a second launch combines in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod

from graphdnn.device import DeviceSpec
from graphdnn.dtypes import COMPUTE, ELEMENTS
from graphdnn.engines.cuda.generator.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.generator.packs import width_for
from graphdnn.engines.cuda.generator.parameters import COMPUTE_TYPE, Parameters
from graphdnn.engines.cuda.generator.program import Program, asked_indices
from graphdnn.engines.cuda.generator.quotient import count_type
from graphdnn.engines.cuda.generator.source import kernel_text
from graphdnn.engines.cuda.generator.steps import Steps
from graphdnn.engines.cuda.reductions.reduced_axes import ReducedAxes, reduced_axes
from graphdnn.fusion.fused import FusedOp
from graphdnn.tensors import TensorSpec

# Threads of a block, and blocks on an SM: half of its threads and more, with several loads of each in flight, keep
# memory busy. Few large blocks leave few parts to combine; where threads hold more than a sum, they need registers.
_LARGE, _SMALL = (512, 3), (256, 3)
_ACCUMULATORS = 64  # bytes of a thread
_IN_FLIGHT = 64  # bytes that a thread loads before it uses the first
_UNROLLED = 8  # loads
_WIDENED = 256  # bytes that they may become in arithmetic
_PACK_BYTES = 16
_LINE = 128  # bytes of memory
_PLAIN = 32  # bytes of a thread's results, in arithmetic
_MANY_RESULTS = 4096  # of parts of which there are few then


@dataclass(frozen=True)
class Fold:
    """What one kind of fold accumulates, and what becomes of it."""

    name: str
    files: tuple[str, ...]  # text of identity, take, combined and concluded
    streamed: tuple[TensorSpec, ...]  # the anchor's operands that are reduced: rows of ``value``
    extents: tuple[int, ...]  # of the results
    finish: Callable[[Steps, Program], None]  # from ``acc``, [parts][neighbours] in the compute type, to memory
    parts: int = 1  # accumulators for each result
    beside: tuple[TensorSpec, ...] = ()  # operands of each result that every element needs: further rows
    after: tuple[TensorSpec, ...] = ()  # what ``finish`` reads besides the epilogue's operands
    constants: Mapping[str, int | bool | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Shape:
    """How a fold is divided among threads; see reduction.cu."""

    along: bool
    width: int
    threads: int
    lanes: int  # RT
    unroll: int
    kept: tuple[int, ...]  # packs
    reduced: tuple[int, ...]  # packs
    per_block: int  # packs

    @property
    def tiles(self) -> int:
        return -(-prod(self.kept) // (self.threads // self.lanes))

    @property
    def splits(self) -> int:
        return -(-prod(self.reduced) // self.per_block)

    @property
    def results_per_block(self) -> int:
        """Of the second launch: 32 bytes of a row of parts are the least that is read at once."""
        return 8 if prod(self.kept) * (1 if self.along else self.width) < _MANY_RESULTS else 32

    @property
    def step(self) -> tuple[int, ...]:
        """Digits of ``lanes`` in the radices of ``reduced``."""
        digits, rest = [], self.lanes
        for size in reversed(self.reduced[1:]):
            digits.append(rest % size)
            rest //= size
        return (rest, *reversed(digits))


def generate_fold(op: FusedOp, device: DeviceSpec, fold: Fold) -> DeviceKernel:
    assert op.anchor is not None
    steps = Steps(op, device)
    compute = COMPUTE_TYPE[op.anchor.compute_type]
    compute_bytes = COMPUTE[op.anchor.compute_type].itemsize
    operands = (*fold.streamed, *fold.beside)
    read = _read(op, operands)
    finished = [*steps.epilogue_tensors(), *fold.after]
    main = max(read, key=lambda t: t.elements) if read else fold.streamed[0]
    asked = asked_indices(op.prologue) | asked_indices(op.epilogue)
    in_memory = [t for t in finished if not (t.is_by_value or t.is_constant)]
    axes = reduced_axes(fold.streamed[0].extents, fold.extents, main, read, in_memory, asked)
    along = _reduces_neighbours(axes, main)
    vector_axis = (axes.x.rank if along else axes.y.rank) - 1
    width = _width(axes, read, vector_axis, _ACCUMULATORS // (compute_bytes * fold.parts))
    loaded = max([ELEMENTS[t.data_type].bytes for t in read if t.elements == main.elements], default=1)
    rows = width * len(fold.streamed)
    in_flight = min(_IN_FLIGHT // (rows * loaded), _WIDENED // (rows * compute_bytes))
    # What the compiler is told of occupancy decides whether it keeps the loads together.
    is_plain = len(operands) == fold.parts == 1 and not op.prologue and width * compute_bytes <= _PLAIN
    threads, per_sm = _LARGE if is_plain else _SMALL
    shape = choose_shape(axes, along, width, width * loaded, in_flight, threads, per_sm * device.sm_count)
    split = shape.splits > 1
    finish_width = 1
    if not along and shape.lanes == 1 and not split:
        finish_width = min(width, width_for(axes.y, finished, axes.y.rank - 1))

    parameters = Parameters(steps.places)
    before = Program(op, parameters, axes.x, "x", width=width, vector_axis=vector_axis)
    before.apply(op.prologue)
    for row, spec in enumerate(operands):
        before.result(f"value[{row}]", spec, compute)
    behind = Program(op, parameters, axes.y, "t", width=finish_width)
    fold.finish(steps, behind)

    parameters.integers("kept_size", shape.kept)
    parameters.integers("kept_extent", axes.kept)
    parameters.integers("reduced_size", shape.reduced)
    parameters.integers("step", shape.step)
    parameters.integer("kept_count", prod(shape.kept))
    parameters.integer("reduced_count", prod(shape.reduced))
    parameters.integer("results", prod(axes.kept))
    parameters.integer("elements", prod(axes.reduced))
    parameters.integer("per_block", shape.per_block)
    parameters.integer("splits", shape.splits)
    if split:
        size = shape.splits * fold.parts * prod(axes.kept) * compute_bytes
        parameters.scratch("partial", compute, steps.allocate(size))
    else:
        parameters.nothing("partial", compute)

    layout = f"{'rows' if along else 'columns'}_v{width}l{shape.lanes}u{shape.unroll}"
    name = f"{fold.name}__{layout}{'_split' if split else ''}__{op.name}"
    functions = [
        before.function("element", f"{compute} (&value)[{len(operands)}][{width}]"),
        behind.function("finish", f"const {compute} (&acc)[{fold.parts}][{finish_width}]"),
    ]
    text = kernel_text(
        name,
        [*fold.files, "next_launch.cuh", "reduction.cu", *(["reduction_splits.cu"] if split else [])],
        parameters=parameters.text,
        functions=functions,
        constants={
            "THREADS": threads,
            "RT": shape.lanes,
            "UNROLL": shape.unroll,
            "BLOCKS_PER_SM": per_sm,
            "WIDTH": width,
            "FINISH": finish_width,
            "KEPT": axes.y.rank,
            "REDUCED": len(axes.reduced),
            "ROWS": len(operands),
            "PARTS": fold.parts,
            "ALONG": along,
            "SPLIT": split,
            **({"SPLIT_RESULTS": shape.results_per_block} if split else {}),
            "Compute": compute,
            "Count": count_type(max(prod(axes.kept), prod(axes.reduced))),
            **fold.constants,
        },
    )
    packed = parameters.pack()
    steps.add_early(Launch(text, "reduce", (shape.tiles, shape.splits, 1), threads, packed))
    if split:
        blocks = -(-prod(axes.kept) // shape.results_per_block)
        steps.add_early(Launch(text, "reduce_splits", (blocks, 1, 1), threads, packed))
    return steps.kernel(name)


def _read(op: FusedOp, operands: tuple[TensorSpec, ...]) -> list[TensorSpec]:
    """What an element is computed from, in memory."""
    made = {t.uid for step in op.prologue for t in step.outputs().values()}
    asked = [t for step in op.prologue for t in step.inputs().values()]
    found = {t.uid: t for t in (*operands, *asked) if t.uid not in made}
    return [t for t in found.values() if not (t.is_by_value or t.is_constant)]


def _reduces_neighbours(axes: ReducedAxes, main: TensorSpec) -> bool:
    """True when the elements next to each other in memory fall onto one result."""
    strides = axes.x.strides(main)
    kept, reduced = strides[axes.y.rank - 1], strides[-1]
    return prod(axes.kept) == 1 or (reduced != 0 and (kept == 0 or reduced < kept))


def _width(axes: ReducedAxes, read: list[TensorSpec], axis: int, most: int) -> int:
    """Neighbours for each thread: 16 bytes of the operands that change from element to element."""
    if not read:
        return 1
    largest = max(t.elements for t in read)
    streamed = max(ELEMENTS[t.data_type].bytes for t in read if t.elements == largest)
    limit = _PACK_BYTES * max(ELEMENTS[t.data_type].bytes for t in read) // streamed
    width = width_for(axes.x, read, axis, limit)
    while width > max(1, most):
        width //= 2
    return width


def choose_shape(
    axes: ReducedAxes, along: bool, width: int, pack_bytes: int, in_flight: int, threads: int, blocks: int
) -> Shape:
    """Lanes so that memory is read in whole lines. ``blocks``: what the device holds at once, where results are few."""
    kept, reduced = list(axes.kept), list(axes.reduced)
    vector = reduced if along else kept
    vector[-1] //= width
    results, depth = prod(kept), prod(reduced)
    most = min(_UNROLLED, _power_below(in_flight))
    if along:
        # Short rows: several for a warp, so that each lane has as many loads in flight as in long ones.
        lanes = min(32, _power_above(-(-depth // most)))
        if depth >= threads and results < 16 * blocks:
            lanes = threads
    elif depth < 8 or results >= threads * blocks:
        lanes = 1
    else:
        lanes = threads // _kept_lanes(results, pack_bytes)
    tiles = -(-results // (threads // lanes))
    splits = 1
    if 2 * tiles <= blocks:
        splits = max(1, min(blocks // tiles, depth // (4 * lanes)))
    per_block = -(-depth // splits)
    per_block = -(-per_block // lanes) * lanes
    unroll = min(most, _power_above(per_block // lanes))
    return Shape(along, width, threads, lanes, unroll, tuple(kept), tuple(reduced), per_block)


def _kept_lanes(packs: int, pack_bytes: int) -> int:
    """Up to a warp's lanes beside each other, with few that have nothing to do, and whole lines of memory for a part of
    a row.
    """

    def loss(lanes: int) -> float:
        line = lanes * pack_bytes
        return -(-packs // lanes) * lanes * (1.0 if lanes >= packs or line >= _LINE else (_LINE / line) ** 0.5)

    return min((32, 16, 8, 4, 2, 1), key=loss)


def _power_below(count: int) -> int:
    """The largest power of two up to ``count``, at least 1."""
    return 1 << (max(1, count).bit_length() - 1)


def _power_above(count: int) -> int:
    """The least power of two from ``count`` on."""
    return 1 << (count - 1).bit_length()

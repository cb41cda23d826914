"""Engine ``cuda_explicit_gemm``: a convolution as im2col in the workspace and a GEMM by cuBLAS.

The im2col matrix follows the image's layout: channels are contiguous if they are in the image, otherwise pixels are. An
operand whose strides do not fit is copied; a 1x1 filter needs no im2col matrix. A data gradient computes the GEMM
first; then col2im adds the matrix elements of each element of dx in a fixed order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product as cartesian_product
from math import prod

from graphdnn.checks import InRange
from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.batch_invariance import memoize_for_images
from graphdnn.engines.cuda.codegen.cost import least_seconds, least_seconds_in_sequence, overlapping, phased_cost
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.dense_operands import (
    add_epilogue_launch,
    can_library_store,
    dense_tensor,
    epilogue_phase,
    materialize,
    result_type,
    with_prologue_launches,
)
from graphdnn.engines.cuda.codegen.launch import DeviceKernel
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.conv_geometry.convolution_requirements import coordinates_need, is_convolution, problem_of
from graphdnn.engines.cuda.conv_geometry.convolution_roles import Roles
from graphdnn.engines.cuda.cublas.contraction import Axis, Contraction, GemmCall, best_product
from graphdnn.engines.cuda.cublas.gemm_launches import (
    Place,
    add_product,
    gemm_notes,
    needs_cublas,
    needs_sizes,
    needs_types,
)
from graphdnn.engines.cuda.cublas.im2col_matrix import (
    PIXELS,
    TAPS,
    Strides,
    add_col2im,
    add_im2col,
    column_elements,
    column_strides,
    column_width,
    named,
    sizes_of,
)
from graphdnn.engines.cuda.cublas.strided_gemm import (
    ARITHMETIC,
    LARGEST_SHARE,
    RESULTS,
    Sizes,
    gemm_blocks,
    gemm_seconds,
    idle_seconds,
    leaving_seconds,
    start_seconds,
)
from graphdnn.engines.engine import Cost, Knobs, Task, need, needs_rule
from graphdnn.enums import DataType, NumericalNote
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvBackwardData, ConvolutionOperation
from graphdnn.tensors import TensorSpec, ordered_strides, stride_order

_DIRECT_CALLS = 8  # the most cuBLAS calls for an operand without a copy
_WHOLE, _NARROW = 64 * 64, 128  # results of a CTA; the extent below which a GEMM reads no faster than
_NARROW_PACE = 0.8  # this part of the bandwidth of other GEMMs, measured on an H200
_PIECE = 16  # bytes to which rows should be aligned
# Added share of the GEMM's predicted time: predictions of cuBLAS are less exact, so other engines win near ties.
_MODEL_ERROR = 0.1
_PACK_WORK = 410.0  # operations for the address of each vector of the im2col matrix, measured on an H200

# Axes of the GEMM: M, N, K. a and b are read, c is written.
_AXES = {
    "fprop": (("n", *PIXELS), ("k",), ("c", *TAPS)),  # im2col of x, w -> y
    "dgrad": (("n", *PIXELS), ("c", *TAPS), ("k",)),  # dy, w -> im2col of dx
    "wgrad": (("k",), ("c", *TAPS), ("n", *PIXELS)),  # dy, im2col of x -> dw
}


@dataclass(frozen=True, slots=True)
class _Option:
    """One layout of an operand: its strides by axis, the bytes that its copy moves, and the function that adds the
    copy.
    """

    strides: Strides
    moved: int
    make: Callable[[], Place]


def _is_channels_last(roles: Roles) -> bool:
    strides = named(roles, "x", roles.op.roles[0])
    spatial = [strides[name] for name in PIXELS if strides[name]]
    return bool(strides["c"]) and strides["c"] < min(spatial, default=2**62)


def _orders(roles: Roles, role: str, spec: TensorSpec, channels_last: bool) -> tuple[int, ...]:
    """Axes of a copy of w or y that fits the im2col matrix, outermost first in memory."""
    spatial = roles.problem.spatial
    heads, tails = list(range(spec.rank - spatial)), list(range(spec.rank - spatial, spec.rank))
    if role == "w":
        return tuple([*heads[:-1], *tails, heads[-1]] if channels_last else [*heads, *tails])
    return tuple([heads[0], *tails, *heads[1:]] if channels_last else [*heads[1:], heads[0], *tails])


def _read(steps: LaunchSequence, roles: Roles, role: str, spec: TensorSpec, channels_last: bool) -> list[_Option]:
    """The options for w or y: unchanged, or copied."""
    strides = ordered_strides(spec.extents, _orders(roles, role, spec, channels_last))
    copy = dense_tensor(spec, strides)

    def make_copy() -> Place:
        return Place.of(steps, steps.relayout(spec, strides))

    return [
        _Option(named(roles, role, spec), 0, lambda: Place.of(steps, spec)),
        _Option(named(roles, role, copy), 2 * spec.bytes, make_copy),
    ]


def _columns(steps: LaunchSequence, roles: Roles, image: TensorSpec, channels_last: bool) -> list[_Option]:
    """The im2col matrix: x itself for a 1x1 filter, otherwise the result of im2col."""
    size = column_elements(roles) * ELEMENTS[image.data_type].bytes

    def make() -> Place:
        place = steps.allocate(size)
        add_im2col(steps, roles, image, channels_last, place)
        return Place(None, place)

    made = _Option(column_strides(roles, channels_last), size + image.bytes, make)
    if not roles.problem.is_pointwise_filter:
        return [made]
    return [_Option(named(roles, "x", image), 0, lambda: Place.of(steps, image)), made]


def _contraction(roles: Roles, a: Strides, b: Strides, c: Strides) -> Contraction:
    sizes = sizes_of(roles)

    def axes(names: Sequence[str]) -> tuple[Axis, ...]:
        return tuple((sizes[n], a.get(n, 0), b.get(n, 0), c.get(n, 0)) for n in names if sizes[n] > 1)

    rows, columns, terms = _AXES[roles.direction]
    return Contraction(axes(rows), axes(columns), axes(terms), axes(("g",)))


def _choose(
    roles: Roles, options: Sequence[Sequence[_Option]], types: tuple[DataType, DataType], arithmetic: DataType
) -> tuple[GemmCall, tuple[_Option, ...]]:
    """The options that move the fewest bytes."""
    for chosen in sorted(cartesian_product(*options), key=lambda way: sum(option.moved for option in way)):
        found = best_product(
            _contraction(roles, *(option.strides for option in chosen)), types, arithmetic, _DIRECT_CALLS
        )
        if found is not None:
            return found, chosen
    raise AssertionError("copies fit")


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    anchor = op.anchor
    assert isinstance(anchor, ConvolutionOperation)
    roles, steps = Roles.of(anchor), LaunchSequence(op, device)
    x, w, y = anchor.roles
    arithmetic = ARITHMETIC[anchor.compute_type]
    channels_last = _is_channels_last(roles)
    result = roles.output
    inputs = [materialize(steps, spec) for spec in (x, w, y) if spec.uid != result.uid]
    operand = inputs[0].data_type
    kind = result_type(result, op, RESULTS[operand, arithmetic])
    name = f"conv_{roles.direction}__explicit_gemm__{op.name}"

    if roles.direction == "fprop":
        read = [_columns(steps, roles, inputs[0], channels_last), _read(steps, roles, "w", inputs[1], channels_last)]
    elif roles.direction == "wgrad":
        read = [_read(steps, roles, "y", inputs[1], channels_last), _columns(steps, roles, inputs[0], channels_last)]
    else:
        read = [_read(steps, roles, role, t, channels_last) for role, t in (("y", inputs[1]), ("w", inputs[0]))]
    if roles.direction == "dgrad" and not roles.problem.is_pointwise_filter:
        columns = column_strides(roles, channels_last)
        product, (a, b, _) = _choose(
            roles, [*read, [_Option(columns, 0, lambda: Place(None))]], (operand, arithmetic), arithmetic
        )
        at_a, at_b = a.make(), b.make()
        place = steps.allocate(column_elements(roles) * ELEMENTS[arithmetic].bytes)
        add_product(steps, product, [(at_a, operand), (at_b, operand), (Place(None, place), arithmetic)])
        add_col2im(steps, roles, columns, place, arithmetic)
        return steps.kernel(name)

    written = _Written(steps, roles, kind, channels_last)
    product, (a, b, c) = _choose(roles, [*read, written.options()], (operand, kind), arithmetic)
    at_a, at_b, at_c = a.make(), b.make(), c.make()
    add_product(steps, product, [(at_a, operand), (at_b, operand), (at_c, kind)])
    if written.apart is not None:
        add_epilogue_launch(steps, written.apart, result, arithmetic)
    return steps.kernel(name)


class _Written:
    """The result of the GEMM: in the output itself, or in the workspace in the output's order or in the im2col matrix's
    order.
    """

    def __init__(self, steps: LaunchSequence, roles: Roles, kind: DataType, channels_last: bool) -> None:
        self.steps, self.roles, self.kind, self.channels_last = steps, roles, kind, channels_last
        self.role = {"fprop": "y", "dgrad": "x", "wgrad": "w"}[roles.direction]
        self.apart: TensorSpec | None = None

    def options(self) -> list[_Option]:
        roles, spec = self.roles, self.roles.output
        found = []
        if self.kind is spec.data_type and can_library_store(self.steps, spec):
            found.append(_Option(named(roles, self.role, spec), 0, lambda: Place.of(self.steps, spec)))
        like = next((t for t in self.steps.op.outputs if t.extents == spec.extents), spec)
        moved = 2 * spec.elements * ELEMENTS[self.kind].bytes
        role = "w" if self.role == "w" else "y"
        for i, order in enumerate(
            (stride_order(like.dims, like.strides), _orders(roles, role, spec, self.channels_last),
             _orders(roles, role, spec, not self.channels_last))
        ):  # fmt: skip
            strides = ordered_strides(spec.extents, order)
            apart = dense_tensor(spec, strides, data_type=self.kind)
            found.append(_Option(named(roles, self.role, apart), moved + i, self._maker(apart)))
        return found

    def _maker(self, apart: TensorSpec) -> Callable[[], Place]:
        def make() -> Place:
            self.apart = apart.model_copy(update={"uid": self.steps.new_uid()})
            self.steps.workspace_offsets[self.apart.uid] = self.steps.allocate(self.apart.bytes)
            return Place.of(self.steps, self.apart)

        return make


# Requirements and cost.

_ID = "cuda_explicit_gemm"
_OPERANDS = (DataType.DOUBLE, DataType.FLOAT, DataType.HALF, DataType.BFLOAT16)


def _columns_bytes(task: Task) -> int:
    op = task.op.anchor
    assert isinstance(op, ConvolutionOperation)
    wide = op.compute_type if isinstance(op, ConvBackwardData) else next(iter(op.inputs().values())).data_type
    return 0 if op.problem.is_pointwise_filter else column_elements(Roles.of(op)) * ELEMENTS[wide].bytes


def _counted(task: Task) -> tuple[int, ...]:
    """M, N and K of the GEMM with their strides: pixels of all images, output channels, and taps of all groups."""
    p = problem_of(task)
    return p.n * prod(p.output), p.groups * p.k, p.groups * p.c * p.taps


def _has_odd_rows(roles: Roles, operand: DataType) -> bool:
    """Whether an image that is read or written without a copy has pixels that are not multiples of 16 bytes."""
    if ELEMENTS[operand].bytes != 2 or not _is_channels_last(roles):
        return False
    p = roles.problem
    channels = [p.k]
    channels += [p.c] if p.is_pointwise_filter and roles.direction != "dgrad" else []
    return any(2 * number % _PIECE for number in channels)


def _cost(task: Task, knobs: Knobs) -> Cost:
    op, device = task.op.anchor, task.device
    assert isinstance(op, ConvolutionOperation)
    roles = Roles.of(op)
    p, sizes = roles.problem, sizes_of(roles)
    arithmetic = ARITHMETIC[op.compute_type]
    operand = next(iter(op.inputs().values())).data_type
    m, n, k = (prod(sizes[name] for name in names) for names in _AXES[roles.direction])
    shape = Sizes(m, n, k, p.groups)
    product = gemm_seconds(shape, operand, device, has_odd_rows=_has_odd_rows(roles, operand))
    a, b = op.inputs().values()
    result, is_plain = roles.output, p.is_pointwise_filter
    columns = 0 if is_plain else column_elements(roles)
    phases, launches = {}, 1
    if columns and roles.direction != "dgrad":
        size = columns * ELEMENTS[operand].bytes
        packs = columns // column_width(roles, roles.op.roles[0], _is_channels_last(roles))
        phases["columns"] = (packs * _PACK_WORK / device.rate(DataType.FLOAT), float(size + roles.op.roles[0].bytes))
        launches += 1
    kind = result_type(result, task.op, RESULTS[operand, arithmetic])
    written = result.elements * ELEMENTS[kind].bytes
    if columns and roles.direction == "dgrad":
        written = columns * ELEMENTS[arithmetic].bytes
        read = a.bytes + b.bytes
    else:
        plain = sum(t.bytes for t in (a, b) if t.uid != roles.op.roles[0].uid)
        read = plain + columns * ELEMENTS[operand].bytes if columns else a.bytes + b.bytes
    pace = 1.0
    if roles.direction == "wgrad" and m * n < _WHOLE * task.device.sm_count:  # the sum is divided among CTAs
        launches += 1
        pace = 1.0 if min(m, n) >= _NARROW else _NARROW_PACE
    phases["product"] = (product + leaving_seconds(device, written), float(read + written) / pace)
    phases["start"] = (start_seconds(device), 0.0)
    blends = op.alpha != 1.0 or op.beta != 0.0
    if (columns and roles.direction == "dgrad") or task.op.epilogue or blends or kind is not result.data_type:
        phases["finish"] = epilogue_phase(task.op, device, written)
        launches += 1
    if is_plain:  # products as the library's are elsewhere
        idle = launches * idle_seconds(device, gemm_blocks(shape, operand))
        added = {"idle": -idle, "model_error": _MODEL_ERROR * product}
        return with_prologue_launches(phased_cost(task, phases, launches).plus(added), task)
    return with_prologue_launches(overlapping(phased_cost(task, phases, launches), device, launches - 1), task)


def _least(task: Task) -> float:
    launches, operand, columns = _of_images(task.op)
    traffic = columns * problem_of(task).n
    rate = task.device.rate(operand) * LARGEST_SHARE
    if columns:
        return least_seconds(task, launches, rate, traffic)
    return least_seconds_in_sequence(task, launches, rate) - launches * idle_seconds(task.device, 0)


@memoize_for_images
def _of_images(op: FusedOp) -> tuple[int, DataType, int]:
    """The fewest launches, the operands' type, and the bytes of an image's im2col matrix."""
    anchor = op.anchor
    assert isinstance(anchor, ConvolutionOperation)
    p, operand = anchor.problem, next(iter(anchor.inputs().values())).data_type
    if p.is_pointwise_filter:
        return 2 if op.epilogue else 1, operand, 0
    return 2, operand, column_elements(Roles.of(anchor)) // p.n * ELEMENTS[operand].bytes


ENGINE = cuda_engine(
    id=16,
    name=_ID,
    summary="convolutions as a matrix of columns and a product by cuBLAS: fp64, fp32 without TF32, fp16, bf16",
    needs=(
        needs_rule(f"{_ID}.operation", "conv"),
        needs_cublas(f"{_ID}.library", is_convolution),
        *needs_types(_ID, _OPERANDS, is_convolution),
        need(
            f"{_ID}.memory",
            "workspace",
            _columns_bytes,
            lambda task: InRange(0, task.device.memory // 4),
            reason="the whole matrix of columns is in memory at once; at most a quarter of the device's is used",
            fix="use a smaller batch, or another engine",
            when=is_convolution,
        ),
        coordinates_need(_ID),
        needs_sizes(_ID, _counted, "dims", is_convolution),
    ),
    cost=_cost,
    least=_least,
    generate=generate,
    numerical_notes=(NumericalNote.TENSOR_CORE,),
    notes_of=gemm_notes,
)

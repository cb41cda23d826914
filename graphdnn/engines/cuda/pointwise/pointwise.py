"""Engine ``cuda_pointwise``: a pointwise graph in one pass over memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd, prod
from typing import NamedTuple

from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.batch_invariance import memoize_for_images
from graphdnn.engines.cuda.codegen.cost import memory_cost
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.fast_division import count_type
from graphdnn.engines.cuda.codegen.index_space import IndexSpace, collapsed, is_addressable, whole
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch, early
from graphdnn.engines.cuda.codegen.parameters import Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program, gen_index_axes
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.codegen.vectors import is_column_operand, width_for
from graphdnn.engines.cuda.rewrites.as_conv2d import with_tensors
from graphdnn.engines.engine import needs_rule
from graphdnn.enums import DataType, PointwiseMode
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import PointwiseOperation
from graphdnn.tensors import TensorSpec, ordered_strides, packed_strides, stride_order

_THREADS = 256
_MOST_BLOCKS = 2**20  # the most CTAs; larger problems take several iterations of a thread
_WORTH_KEEPING = 96  # bytes of column operands for each vector, from which registers are faster than the cache
_MOST_KEPT = 256  # the most bytes of column operands in registers
_RESIDENT = 3  # CTAs of an SM with column operands in registers
_BYTE = 8  # bits of a byte
_LEAST_TURNED = 2**18  # elements from which a transpose saves more time than its launch takes
_LEAST_ALONG = 16  # the fewest bytes along both contiguous axes; shorter rows share cache lines
# The gain in width that pays. Batch norm of 100 channels takes 26 us with vectors of 4, and 46 us with
# vectors of 8 that cross rows.
_WORTH_WRAPPING = 4
_MOST_SMALL = 4  # the most small operands of vectors that cross rows
_PAIRED = 8  # the most operations with two vectors at a time; longer code would cost more than it gains


def generate_pointwise(op: FusedOp, device: DeviceSpec) -> DeviceKernel:
    """The kernel of a pointwise graph. Large inputs in another axis order than the result are transposed before it,
    as their loads would be strided. A graph that only changes the order of elements becomes data movement.
    """
    copies, moves = _turned(op), _moves(op)
    if not copies and not moves:
        return _pointwise(op, device)
    from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence  # that module imports this one

    steps = LaunchSequence(op, device)
    if moves:
        steps.copy_into(op.inputs[0], op.outputs[0])
        return steps.kernel(f"pointwise__moved__{op.name}")
    for spec, copy in copies:
        steps.add_copy(spec, copy)
    alone = with_tensors(op, {spec.uid: copy for spec, copy in copies})
    kernel = _pointwise(alone, device)
    steps.include(kernel, alone)
    return steps.kernel(kernel.name)


def _moves(op: FusedOp) -> bool:
    """Whether the graph only changes the order of elements, which is data movement."""
    step = op.epilogue[0]
    if (
        len(op.operations) != 1
        or not isinstance(step, PointwiseOperation)
        or step.spec.mode is not PointwiseMode.IDENTITY
    ):
        return False
    (x,), (y,) = step.inputs().values(), step.outputs().values()
    is_plain = x.data_type is y.data_type is not DataType.BOOLEAN and x.extents == y.extents and step.alpha1 == 1.0
    if not is_plain or x.is_by_value or x.is_constant or x.vector_count + y.vector_count > 2:
        return False
    order = [axis for axis in stride_order(y.dims, y.strides) if y.extents[axis] > 1]
    return y.elements >= _LEAST_TURNED and bool(order) and y.strides[order[-1]] == 1 != x.strides[order[-1]]


def _turned(op: FusedOp) -> list[tuple[TensorSpec, TensorSpec]]:
    """The large inputs whose axis order differs from the result's, and the copies that replace them."""
    main = op.outputs[0]
    order = stride_order(main.dims, main.strides)
    inner = next((axis for axis in reversed(order) if main.extents[axis] > 1), 0)
    if main.elements < _LEAST_TURNED or main.strides[inner] != 1 or main.vector_count > 1:
        return []
    strides = ordered_strides(main.extents, order)
    free = min(t.uid for t in (*op.inputs, *op.outputs, *op.internal))
    turned = [t for t in op.inputs if _lies_across(t, main, inner)]
    plain = {"strides": strides, "is_virtual": False, "byte_alignment": 16}
    return [(t, t.model_copy(update={**plain, "uid": free - 1 - i})) for i, t in enumerate(turned)]


def _lies_across(spec: TensorSpec, main: TensorSpec, axis: int) -> bool:
    """Whether the input has the extents of ``main`` but is not contiguous along ``axis``. Unless it is packed booleans,
    it must also be contiguous along another axis for at least 16 bytes.
    """
    is_stored = not (spec.is_by_value or spec.is_constant)
    if not is_stored or spec.extents != main.extents or spec.vector_count != 1 or spec.strides[axis] == 1:
        return False
    if spec.data_type is DataType.BOOLEAN:
        return main.extents[axis] % _BYTE == 0
    along = [
        i for i, (stride, extent) in enumerate(zip(spec.strides, spec.extents, strict=True)) if stride == 1 < extent
    ]
    least = _LEAST_ALONG // ELEMENTS[spec.data_type].bytes
    return any(spec.extents[i] >= least and main.extents[axis] >= least for i in along)


def _pointwise(op: FusedOp, device: DeviceSpec) -> DeviceKernel:
    return _chain_of(op).kernel(op.outputs[0], device)


@memoize_for_images
def _chain_of(op: FusedOp) -> Chain:
    steps = op.epilogue

    def write(program: Program) -> None:
        program.apply(steps)
        program.store_outputs(steps)

    return Chain(op, "pointwise", write, op.outputs[0], gen_index_axes(steps))


class Chain:
    """One launch over the extents of ``main``, with vectors of up to 16 bytes for a thread.

    ``write`` adds the operations to the program. ``asked``: logical axes whose index they read. ``is_reversed``: the
    grid starts at the end. One kernel text serves any number of images, which are the first axis of the space.
    """

    def __init__(
        self,
        op: FusedOp,
        kind: str,
        write: Callable[[Program], None],
        main: TensorSpec,
        asked: frozenset[int],
        *,
        is_reversed: bool = False,
    ) -> None:
        tensors = [*op.inputs, *op.outputs]
        dense_tensor = [t for t in tensors if not (t.is_by_value or t.is_constant)]
        self._op, self._write, self._is_reversed = op, write, is_reversed
        self._space = space = collapsed(whole(main.extents), main, dense_tensor, asked)
        self._width, self._wraps = _width(space, tensors, asked)
        self._image = prod(space.sizes[1:])
        self._name = f"{kind}__v{self._width}r{space.rank}{'w' if self._wraps else ''}"
        self._written: dict[bool, Written] = {}

    def kernel(self, main: TensorSpec, device: DeviceSpec) -> DeviceKernel:
        """The launch for the number of images of ``main``."""
        op, space, width = self._op, self._space, self._width
        sizes = (main.elements // self._image, *space.sizes[1:])
        many = main.elements // width > _THREADS * device.sm_count
        blocks = _blocks_that_keep(space, op.inputs, width, device) if many and not self._wraps else 0
        name = f"{self._name}{'k' if blocks else ''}__{op.name}"
        pairs = many and len(op.operations) <= _PAIRED
        written, is_reversed = self._with(bool(blocks)), self._is_reversed
        launch = element_launch(
            name, written, sizes, width, blocks=blocks, pairs=pairs, is_reversed=is_reversed, wraps=self._wraps
        )
        return DeviceKernel(name, (early(launch, device),))

    def _with(self, keeps: bool) -> Written:
        found = self._written.get(keeps)
        if found is None:
            parameters = Parameters()
            program = Program(
                self._op,
                parameters,
                self._space,
                "t",
                width=self._width,
                linear_index="linear",
                has_column_operands=keeps,
                crosses_rows=self._wraps,
            )
            self._write(program)
            found = self._written[keeps] = Written.of(program, parameters)
        return found


def _width(space: IndexSpace, tensors: Sequence[TensorSpec], asked: frozenset[int]) -> tuple[int, bool]:
    """The vector width, and whether vectors cross the ends of rows.

    Rows of odd length allow vectors of one element only. But if all large operands are packed in one order, vectors of
    them may cross the ends of rows; the small operands, such as a bias, are then loaded element by element.
    """
    width = width_for(space, tensors, bits=True)
    stored = [t for t in tensors if not (t.is_by_value or t.is_constant)]
    packed = packed_strides(space.sizes)
    elements = prod(space.sizes)
    are_linear = [t.elements == elements and space.strides(t) == packed for t in stored]
    linear = [t for t, is_linear in zip(stored, are_linear, strict=True) if is_linear]
    small = [t for t, is_linear in zip(stored, are_linear, strict=True) if not is_linear]
    is_simple = not asked and 0 < len(small) <= _MOST_SMALL and all(is_addressable(t) for t in stored)
    if not linear or not is_simple or any(2 * t.elements >= elements for t in small):
        return width, False
    line = collapsed(space, linear[0], linear)
    wide = width_for(line, linear) if line.rank == 1 else 1
    return (wide, True) if wide >= _WORTH_WRAPPING * width else (width, False)


class Written(NamedTuple):
    """The generated functions of a vector, and the parameters that they read."""

    functions: tuple[str, str]
    parameters: Parameters

    @classmethod
    def of(cls, program: Program, parameters: Parameters) -> Written:
        arguments = "long long linear, const ColumnOperands& column_operands"
        return cls((program.column_operands_text(), program.function("pointwise_vec", arguments)), parameters)


def _blocks_that_keep(space: IndexSpace, inputs: Sequence[TensorSpec], width: int, device: DeviceSpec) -> int:
    """The number of CTAs with which a thread has the same coordinate along the last axis in all its iterations, so that
    column operands stay in registers; 0 if that does not pay.

    Four fp32 column operands have eight times the bytes of an fp16 image: loading them from the cache took 41 us
    instead of 28, where a copy takes 26. They have four times the bytes of an fp32 image, where nothing was gained.
    """
    last = space.rank - 1
    vectors = [t for t in inputs if is_column_operand(space, t, last)]
    fetched = sum(ELEMENTS[t.data_type].bytes for t in vectors) * width
    if fetched < _WORTH_KEEPING or fetched > _MOST_KEPT or space.rank == 1:
        return 0
    packs = space.sizes[last] // width
    unit = packs // gcd(packs, _THREADS)  # CTAs whose threads together cover whole rows
    most = _RESIDENT * device.sm_count
    return most // unit * unit


def element_launch(
    name: str,
    written: Written,
    sizes: Sequence[int],
    width: int,
    *,
    headers: Sequence[str] = (),
    threads: int = _THREADS,
    blocks: int = 0,
    pairs: bool = False,
    is_reversed: bool = False,
    wraps: bool = False,
) -> Launch:
    """The launch that calls the generated functions for each vector of ``width`` elements in a space of ``sizes``.

    ``headers`` precede the functions. ``blocks``: the number of CTAs, 0 for one iteration of each thread. ``wraps``:
    vectors cross the ends of rows.
    """
    count = prod(sizes) // width
    parameters = written.parameters.copy()
    parameters.integer("count", count)
    parameters.integers("size", sizes)
    text = kernel_text(
        name,
        ["pointwise.cu"],
        parameters=parameters.text,
        functions=[*headers, *written.functions],
        constants={
            "THREADS": threads,
            "RANK": len(sizes),
            "VEC_WIDTH": width,
            "TWO_VECS": pairs,
            "REVERSED": is_reversed,
            "CROSSES_ROWS": wraps,
            "Count": count_type(count * width if wraps else count),
        },
    )
    blocks = blocks or min(-(-count // (threads * (2 if pairs else 1))), _MOST_BLOCKS)
    return Launch(text, "pointwise", (blocks, 1, 1), threads, parameters.pack())


ENGINE = cuda_engine(
    id=30,
    name="cuda_pointwise",
    summary="pointwise graphs in one pass over memory, 16 bytes per access where layouts allow",
    needs=(needs_rule("cuda_pointwise.operation", "pointwise"),),
    cost=lambda task, knobs: memory_cost(task),
    generate=lambda op, device, knobs: generate_pointwise(op, device),
    is_general=True,
)

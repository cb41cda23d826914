"""Engine ``cuda_matmul_skinny``: matrix products with few rows or few columns, by mma.sync.

The time is that of one pass over the large operand, usually the weights of a linear layer. The operand goes from global
memory to registers and to the tensor cores, without shared memory (mma_skinny.cu). The warps of a CTA split k, so that
a matrix with few rows still occupies many CTAs. Both operands are K-major.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphdnn.checks import AtMost, Each, Empty, Equals, OneOf
from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import ELEMENTS, FLOAT_COMPUTE
from graphdnn.engines.cuda.codegen.cost import device_cost, least_seconds, memory_seconds, other_seconds
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.index_space import is_addressable, whole
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.codegen.tensor_cores import EXACT_OPTIONS, FLOAT_PAIRS
from graphdnn.engines.cuda.simt.matmul_simt import Side
from graphdnn.engines.engine import Cost, Knob, Knobs, Task, image_need, kind_need, need, needs_rule
from graphdnn.engines.memoization import memoize
from graphdnn.enums import DataType, KnobType
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import Matmul

_FEW = 16  # the largest extent of the skinny operand
_VECTOR = 8  # elements of a vector load
_TENSOR_LINES, _COLUMNS = 16, 8  # M and N of an MMA
_REGISTERS, _OTHERS = 65536, 56  # registers of an SM, and of a thread beside operands and accumulators

LINES = Knob(KnobType.TILE_M, 1, 2, 1, 1, "times 16 lines of the large operand in a block")
THREADS = Knob(KnobType.BLOCK_SIZE, 128, 512, 128, 256, "threads of a block")
TIMES = Knob(KnobType.LOAD_SIZE, 1, 4, 1, 2, "times 64 steps of k that a warp asks for at once")


@dataclass(frozen=True, slots=True)
class _Sides:
    """The skinny operand and the large one. ``few_are_rows``: the skinny operand has the rows of the result."""

    op: Matmul
    few: Side
    many: Side
    few_are_rows: bool

    @property
    def lines(self) -> tuple[int, int]:
        """The extents of the skinny operand and of the large one."""
        return self.few.spec.extents[self.few.outer], self.many.spec.extents[self.many.outer]

    @property
    def depth(self) -> int:
        return self.op.a.extents[-1]


@memoize
def _sides(op: FusedOp) -> _Sides:
    assert isinstance(op.anchor, Matmul)
    a, b, rank = op.anchor.a, op.anchor.b, op.anchor.c.rank
    rows, columns = Side(a, rank - 2, rank - 1), Side(b, rank - 1, rank - 2)
    are_rows = a.extents[-2] <= b.extents[-1]
    return _Sides(op.anchor, rows, columns, True) if are_rows else _Sides(op.anchor, columns, rows, False)


@dataclass(frozen=True, slots=True)
class _Block:
    lines: int  # MMA tiles along M, 16 rows of the large operand each
    threads: int
    times: int
    columns: int  # MMA tiles along N

    @property
    def resident(self) -> int:
        """Resident CTAs of an SM, by the registers of operands in flight."""
        operands = 8 * self.times * (2 * self.lines + self.columns)
        return max(1, _REGISTERS // (self.threads * (_OTHERS + operands + 4 * self.lines * self.columns)))


def _block(sides: _Sides, knobs: Knobs) -> _Block:
    columns = -(-sides.lines[0] // _COLUMNS)
    return _Block(knobs[LINES.type], knobs[THREADS.type], knobs[TIMES.type], columns)


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    sides, steps = _sides(op), LaunchSequence(op, device)
    block = _block(sides, knobs)
    few, many = sides.lines
    parameters = Parameters(steps.workspace_offsets)
    space, compute = whole(sides.op.c.extents), COMPUTE_TYPE[sides.op.compute_type]
    body = Program(op, parameters, space, "t", width=1)
    steps.write_epilogue(body, "acc", compute)
    parameters.tensor("skinny", sides.few.spec)
    parameters.tensor("large", sides.many.spec)
    parameters.table({
        "skinny_pitch": _strides(sides.few)[sides.few.outer], "large_pitch": _strides(sides.many)[sides.many.outer],
        "large_extent": many, "depth": sides.depth,
    })  # fmt: skip
    name = f"matmul__few_{few}x{16 * block.lines}t{block.threads}x{block.times}__{op.name}"
    text = kernel_text(
        name,
        ["mma_skinny.cu"],
        parameters=parameters.text,
        functions=[body.function("epilogue", f"const {compute} (&acc)[1]")],
        constants={
            "RANK": space.rank, "SKINNY_EXTENT": few, "SKINNY_IS_A": sides.few_are_rows,
            "MMA_TILES_M": block.lines, "THREADS": block.threads, "LOADS_IN_FLIGHT": block.times,
            "CTAS_PER_SM": block.resident,
            "Element": STORAGE[sides.many.spec.data_type],
        },
    )  # fmt: skip
    blocks = -(-many // (_TENSOR_LINES * block.lines))
    steps.add_early(Launch(text, "mma_skinny", (blocks, 1, 1), block.threads, parameters.pack()))
    return steps.kernel(name)


def _strides(side: Side) -> tuple[int, ...]:
    return whole(side.spec.extents).strides(side.spec)


def _is_matmul(task: Task) -> bool:
    return isinstance(task.op.anchor, Matmul)


def _types(task: Task) -> tuple[DataType, DataType]:
    assert isinstance(task.op.anchor, Matmul)
    return task.op.anchor.a.data_type, task.op.anchor.b.data_type


def _is_multiplied(task: Task) -> bool:
    return _is_matmul(task) and _types(task) in FLOAT_PAIRS


def _misplaced(task: Task) -> str:
    """The operands whose layout does not allow loads of eight elements along k."""
    sides = _sides(task.op)
    named = (("a", sides.few), ("b", sides.many)) if sides.few_are_rows else (("a", sides.many), ("b", sides.few))
    return ", ".join(f"{name} {side.spec.strides}" for name, side in named if not _lies_along_k(side))


def _lies_along_k(side: Side) -> bool:
    spec = side.spec
    if not is_addressable(spec) or spec.byte_alignment % (_VECTOR * ELEMENTS[spec.data_type].bytes):
        return False
    strides = _strides(side)
    return spec.extents[side.k] % _VECTOR == 0 and strides[side.k] == 1 and strides[side.outer] % _VECTOR == 0


# A launch's start in seconds, shorter than of other engines; and the time of a second MMA tile along M over memory's
# time.
_START, _SECOND = 1.9e-6, 0.11


def _cost(task: Task, knobs: Knobs) -> Cost:
    more = _SECOND if _sides(task.op).lines[0] > _COLUMNS else 0.0
    seconds = memory_seconds(task) * (1 + more) + other_seconds(task)
    return device_cost(task, seconds, launches=0).plus({"start": _START})


ENGINE = cuda_engine(
    id=98,
    name="cuda_matmul_skinny",
    summary="matrix products with at most 16 rows or at most 16 columns, 16-bit floats with neighbours along k",
    needs=(
        needs_rule("cuda_matmul_skinny.operation", "matmul"),
        kind_need(
            "cuda_matmul_skinny.types",
            "data_type",
            _types,
            OneOf(*FLOAT_PAIRS),
            reason="these are the types that the engine gives to tensor cores",
            fix="nothing to do: another engine serves other types",
            when=_is_matmul,
        ),
        kind_need(
            "cuda_matmul_skinny.compute_type",
            "matmul.compute_type",
            lambda task: task.op.main.compute_type,
            OneOf(*FLOAT_COMPUTE),
            reason="products are added in fp32",
            fix="accumulate in FLOAT",
            when=_is_multiplied,
        ),
        kind_need(
            "cuda_matmul_skinny.prologue",
            "prologue",
            lambda task: len(task.op.prologue),
            Equals(0),
            reason="operands go to the tensor cores as they are read",
            fix="let the pointwise operations before the product write their result",
            when=_is_matmul,
        ),
        image_need(
            "cuda_matmul_skinny.batch",
            "c.dims",
            lambda task: task.op.main.tensors()["c"].extents[:-2],
            Each(Equals(1)),
            reason="a block counts the lines of one product",
            fix="nothing to do: other engines serve stacks",
            when=_is_multiplied,
        ),
        need(
            "cuda_matmul_skinny.lines",
            "c.dims",
            lambda task: _sides(task.op).lines[0],
            AtMost(_FEW),
            reason="a warp keeps the sums of all lines of one side, as one or two products have them",
            fix="nothing to do: other engines serve more lines",
            when=_is_multiplied,
        ),
        need(
            "cuda_matmul_skinny.layout",
            "strides",
            _misplaced,
            Empty("neighbours along k, a multiple of eight of them, and lines at multiples of 16 bytes"),
            reason="a thread reads eight steps of k at once, of both operands",
            fix="lay a out as rows and b as columns, or use another engine",
            when=lambda task: _is_multiplied(task) and not task.op.prologue,
        ),
    ),
    cost=_cost,
    least=lambda task: least_seconds(task, 0),
    generate=generate,
    knobs=(LINES, THREADS, TIMES),
    **EXACT_OPTIONS,
)

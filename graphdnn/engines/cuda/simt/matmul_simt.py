"""Engine ``cuda_matmul_simt``: every matrix product on CUDA cores.

The kernel's tiles have rows along M and columns along N if c is row-major. A column-major c is computed transposed, so
that stores are contiguous along the columns of a tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.codegen.cost import device_cost, least_seconds, other_seconds, with_idle_sms
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.index_space import is_addressable, whole
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence, fused_inputs
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.codegen.vectors import width_for
from graphdnn.engines.cuda.simt.implicit_tiles import LARGEST_SHARE, LOAD, TILES, Tile
from graphdnn.engines.engine import Cost, Knob, Knobs, Task, needs_rule
from graphdnn.enums import DataType, KnobType
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import Matmul
from graphdnn.tensors import TensorSpec

_VECTOR = 4  # elements of a vector load
_VECTOR_BYTES = 16
_LARGEST_WIDE = 16  # the most accumulators of a thread with 8-byte operands
_SPLITS = (1, 2, 4, 8, 16, 32, 64)
_LEAST_DEPTH = 8  # the fewest K tiles of a split
_IDLE_SM_RATE = 0.3  # throughput of an SM with few warps over its full throughput
_OF_HALVES = 1.8  # time over that of fp32, as 16-bit operands are converted
_IDLE = 0.35  # the part of a launch's time that a grid saves if it leaves nearly all SMs idle

_TILE = Knob.row_of(TILES, KnobType.TILE_SIZE, "0: chosen by the shape; else the number of a tile, largest first")
_SPLIT = Knob(
    KnobType.SPLIT_K,
    0,
    len(_SPLITS),
    1,
    0,
    "0: chosen by the shape; else the sum is computed in up to 2 to the power n-1 parts of whole tiles, side by side",
)


@dataclass(frozen=True, slots=True)
class Stack:
    """The sizes of a batched GEMM, and the axis of c that the kernel's rows count."""

    op: Matmul
    swapped: bool  # the kernel's rows are N and its columns M

    @classmethod
    def of(cls, fused: FusedOp) -> Stack:
        op = fused.anchor
        assert isinstance(op, Matmul)
        written = next((t for t in fused.outputs if t.extents == op.c.extents), op.c)
        m, n = whole(op.c.extents).strides(written)[-2:]
        return cls(op, n != 1 and m == 1)

    @property
    def batches(self) -> int:
        return prod(self.op.c.extents[:-2])

    @property
    def rows(self) -> int:
        return self.op.c.extents[-1 if self.swapped else -2]

    @property
    def columns(self) -> int:
        return self.op.c.extents[-2 if self.swapped else -1]

    @property
    def depth(self) -> int:
        return self.op.a.extents[-1]

    @property
    def operands(self) -> tuple[Side, Side]:
        """The operand with the rows of the result, and the operand with its columns."""
        rank = self.op.c.rank
        a, b = Side(self.op.a, rank - 2, rank - 1), Side(self.op.b, rank - 1, rank - 2)
        return (b, a) if self.swapped else (a, b)


@dataclass(frozen=True, slots=True)
class Side:
    """An operand with its outer axis, which c has too, and its summed axis."""

    spec: TensorSpec
    outer: int
    k: int


@dataclass(frozen=True, slots=True)
class Shape:
    """A tile, the number of splits, and the predicted time."""

    tile: Tile
    splits: int
    seconds: float


def choose(stack: Stack, device: DeviceSpec, knobs: Knobs) -> Shape:
    """The fastest of the allowed tiles and splits by a model of waves of CTAs."""
    wide = COMPUTE_TYPE[stack.op.compute_type] in ("double", "long long")
    number, power = knobs[_TILE.type], knobs[_SPLIT.type]
    tiles = (TILES[number - 1],) if number else [t for t in TILES if not wide or t.tm * t.tn <= _LARGEST_WIDE]
    shapes = []
    for tile in tiles:
        most = max(1, stack.depth // (_LEAST_DEPTH * tile.bk))
        for splits in (_SPLITS[power - 1],) if power else [p for p in _SPLITS if p <= most]:
            shapes.append(Shape(tile, splits, _seconds(stack, device, tile, splits, 8 if wide else 4)))
    return min(shapes, key=lambda shape: shape.seconds)


def _seconds(stack: Stack, device: DeviceSpec, tile: Tile, splits: int, size: int) -> float:
    blocks = -(-stack.rows // tile.bm) * -(-stack.columns // tile.bn) * stack.batches * splits
    work = 2 * tile.bm * tile.bn * -(-stack.depth // splits)
    rate = device.compute_rate(stack.op.compute_type) / device.sm_count * tile.share
    full, rest = divmod(blocks, tile.resident * device.sm_count)
    last = -(-rest // device.sm_count)  # CTAs of an SM in the last wave; an SM with free slots is less efficient
    filled = _IDLE_SM_RATE + (1 - _IDLE_SM_RATE) * (last / tile.resident)
    seconds = (full * tile.resident + last / filled) * work / rate
    seconds = max(seconds, (full + (rest > 0)) * -(-stack.depth // splits) * tile.loads * LOAD)
    if splits > 1:  # partial sums are written, read and added
        seconds += 2 * stack.batches * stack.rows * stack.columns * size * splits / device.bandwidth + device.launch
    return seconds


@dataclass(frozen=True, slots=True)
class _Operand:
    """The loads of one operand into shared memory."""

    width: int
    k_major: bool
    prologue: str  # text of the function; "" without a prologue


def _operand(op: FusedOp, parameters: Parameters, name: str, side: Side, staged: str) -> _Operand:
    """The parameters of an operand, and its prologue: pointwise operations, or loads from a layout without strides."""
    spec, space = side.spec, whole(side.spec.extents)
    chain = op.leading_to(spec)
    has_prologue = bool(chain) or not is_addressable(spec)
    loaded = (fused_inputs(chain) or [spec]) if has_prologue else [spec]
    limit = min(_VECTOR_BYTES, _VECTOR * max(ELEMENTS[t.data_type].bytes for t in loaded))
    widths = {axis: min(_VECTOR, width_for(space, loaded, axis, limit)) for axis in (side.k, side.outer)}
    strides = space.strides(spec)
    axis = side.k if (strides[side.k] or 2**62) <= (strides[side.outer] or 2**62) else side.outer
    if widths[axis] == 1 and max(widths.values()) > 1:
        axis = max(widths, key=lambda a: widths[a])
    ratios = [c // own for c, own in zip(_batch(op), spec.extents[:-2], strict=True)]
    parameters.integers(f"{name}_shared", ratios)
    parameters.integers(f"{name}_batch", strides[:-2])
    text = ""
    if has_prologue:
        program = Program(op, parameters, space, f"{name}_in", width=widths[axis], vector_axis=axis)
        program.apply(chain)
        program.copy_widened_to("value", spec, staged)
        text = program.function(f"prologue_{name}", f"{staged} (&value)[{widths[axis]}]")
        parameters.null_pointer(name, f"const {STORAGE[spec.data_type]}")
        strides = (0,) * len(strides)
    else:
        parameters.tensor(name, spec)
    parameters.integer(f"{name}_outer", strides[side.outer])
    parameters.integer(f"{name}_k", strides[side.k])
    return _Operand(widths[axis], axis == side.k, text)


def _batch(op: FusedOp) -> tuple[int, ...]:
    assert isinstance(op.anchor, Matmul)
    return op.anchor.c.extents[:-2]


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    stack = Stack.of(op)
    steps = LaunchSequence(op, device)
    compute = COMPUTE_TYPE[stack.op.compute_type]
    staged = _staged((stack.op.a, stack.op.b), compute)
    shape = choose(stack, device, knobs)
    tile = shape.tile
    parameters = Parameters(steps.workspace_offsets)
    side_a, side_b = stack.operands
    a = _operand(op, parameters, "a", side_a, staged)
    b = _operand(op, parameters, "b", side_b, staged)

    space = whole(stack.op.c.extents)
    columns_axis = space.rank - (2 if stack.swapped else 1)
    width = min(width_for(space, steps.epilogue_tensors(), columns_axis), 8, tile.bn)
    body = Program(op, parameters, space, "t", width=width, vector_axis=columns_axis)
    steps.write_epilogue(body, "acc", compute)

    per_block, splits = _parts(stack, shape)
    parameters.integers("batch", stack.op.c.extents[:-2])
    parameters.integer("batches", stack.batches)
    parameters.integer("rows", stack.rows)
    parameters.integer("columns", stack.columns)
    parameters.integer("depth", stack.depth)
    parameters.integer("depth_per_cta", per_block)
    parameters.integer("splits", splits)
    results = stack.batches * stack.rows * stack.columns
    if splits > 1:
        size = 8 if compute in ("double", "long long") else 4
        parameters.workspace_pointer("partial", compute, steps.allocate(splits * results * size))
    else:
        parameters.null_pointer("partial", compute)

    functions = [body.function("epilogue", f"const {compute} (&acc)[{width}]")]
    for name, operand in (("a", a), ("b", b)):
        functions.append(operand.prologue or _no_prologue(name, space.rank, staged))
    name = f"matmul__simt_{tile.name}{'_split' if splits > 1 else ''}__{op.name}"
    text = kernel_text(
        name,
        [
            "matmul.cu",
            *(["matmul_splits.cu"] if splits > 1 else []),
        ],
        parameters=parameters.text,
        functions=functions,
        constants={
            "RANK": space.rank,
            "CTAS_PER_SM": max(1, tile.resident // 2) if a.prologue or b.prologue else tile.resident,
            "TILE_M": tile.bm, "TILE_N": tile.bn, "TILE_K": tile.bk, "TM": tile.tm, "TN": tile.tn,
            "THREADS": tile.threads,
            "PAD": 4 if tile.bm > 8 else 0,
            "SWAPPED": stack.swapped,
            "VEC_A": a.width, "VEC_B": b.width, "A_K_MAJOR": a.k_major, "B_K_MAJOR": b.k_major,
            "PROLOGUE_A": bool(a.prologue), "PROLOGUE_B": bool(b.prologue),
            "SPLIT": splits > 1,
            "VEC_WIDTH": width,
            "Offset": "int" if max(stack.op.a.span, stack.op.b.span) < 2**30 else "long long",
            "StorageA": STORAGE[side_a.spec.data_type],
            "StorageB": STORAGE[side_b.spec.data_type],
            "Staged": staged,
            "Accum": compute,
        },
    )  # fmt: skip
    packed = parameters.pack()
    blocks = -(-stack.rows // tile.bm) * -(-stack.columns // tile.bn) * stack.batches
    steps.add_early(Launch(text, "matmul", (blocks, splits, 1), tile.threads, packed))
    if splits > 1:
        count = -(-results // (tile.threads * width))
        steps.add(Launch(text, "matmul_splits", (min(count, 16 * device.sm_count), 1, 1), tile.threads, packed))
    return steps.kernel(name)


def _no_prologue(name: str, rank: int, staged: str) -> str:
    arguments = f"const Params&, const int (&)[{rank}], {staged} (&)[V]"
    return f"template <int V> __device__ void prologue_{name}({arguments}) {{}}\n"


def _staged(operands: Sequence[TensorSpec], compute: str) -> str:
    """The element type of tiles in shared memory: the compute type, or 32-bit integers where both operands fit."""
    wide = any(t.data_type is DataType.INT64 for t in operands)
    return "int" if compute == "long long" and not wide else compute


def _cost(task: Task, knobs: Knobs) -> Cost:
    stack = Stack.of(task.op)
    shape = choose(stack, task.device, knobs)
    side_a, side_b = stack.operands
    rows, columns = -(-stack.rows // shape.tile.bm), -(-stack.columns // shape.tile.bn)
    rereads = ((rows - 1) * side_b.spec.bytes + (columns - 1) * side_a.spec.bytes) / 16  # most of them hit L2
    are_halves = ELEMENTS[side_a.spec.data_type].bytes == 2
    cost = device_cost(task, shape.seconds * (_OF_HALVES if are_halves else 1.0) + other_seconds(task), rereads)
    return with_idle_sms(cost, task.device, rows * columns * stack.batches * shape.splits, _IDLE)


def _least(task: Task) -> float:
    least = least_seconds(task, 1, task.device.compute_rate(task.op.main.compute_type) * LARGEST_SHARE)
    return least - _IDLE * task.device.launch


def _parts(stack: Stack, shape: Shape) -> tuple[int, int]:
    """The k elements of a split, and the number of splits."""
    per_block = -(-stack.depth // shape.splits)
    per_block = -(-per_block // shape.tile.bk) * shape.tile.bk
    return per_block, -(-stack.depth // per_block)


def _effective(task: Task, knobs: Knobs) -> Knobs:
    """The knob values of the kernel that is launched."""
    stack = Stack.of(task.op)
    shape = choose(stack, task.device, knobs)
    _, parts = _parts(stack, shape)
    same = (n for n, asked in enumerate(_SPLITS, 1) if _parts(stack, replace(shape, splits=asked))[1] == parts)
    split = next((n for n in same if parts > _SPLITS[n - 1] // 2), 0)
    return {_TILE.type: TILES.index(shape.tile) + 1, _SPLIT.type: split}


ENGINE = cuda_engine(
    id=21,
    name="cuda_matmul_simt",
    summary="every matrix product, type and layout on the ordinary units; integers exact",
    needs=(needs_rule("cuda_matmul_simt.operation", "matmul"),),
    cost=_cost,
    least=_least,
    generate=generate,
    knobs=(_TILE, _SPLIT),
    effective=_effective,
    frugal={_SPLIT.type: 1},
    is_general=True,
)

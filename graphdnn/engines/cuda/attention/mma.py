"""Engine ``cuda_mma_attention``: attention on tensor cores of warps (mma_attention.cu)."""

from __future__ import annotations

from dataclasses import dataclass

from graphdnn.device import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.attention.functions import Parts, describe, functions_of, parts_of
from graphdnn.engines.cuda.generator.cost import device_cost
from graphdnn.engines.cuda.generator.engine import cuda_engine
from graphdnn.engines.cuda.generator.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.generator.parameters import STORAGE, Parameters
from graphdnn.engines.cuda.generator.source import kernel_text
from graphdnn.engines.cuda.generator.steps import Steps
from graphdnn.engines.engine import Cost, Knob, Knobs, Task, needs_rule
from graphdnn.engines.sum_error import SumError
from graphdnn.enums import DataType, KnobType, NumericalNote
from graphdnn.fusion.fused import FusedOp

_UNIT = 16  # of rows, keys and depth of a tensor core's product
_BYTES = ELEMENTS[DataType.HALF].bytes
_PITCH = 16  # bytes between the rows of a tile, so that they lie in different banks
_REGISTERS = 136  # of a thread, for q, scores and sums
_MOST_SUMS = 144  # without q


@dataclass(frozen=True, slots=True)
class Tile:
    """``bm`` rows of a block of ``warps``, which goes through ``bn`` keys at a time."""

    bm: int
    bn: int
    warps: int
    blocks: int  # of a multiprocessor, for which the compiler leaves registers

    @property
    def name(self) -> str:
        return f"{self.bm}x{self.bn}w{self.warps}"

    def sums(self, columns: int) -> int:
        """Registers of a thread, of scores and results."""
        return self.bm // self.warps // _UNIT * (self.bn + columns) // 2

    def shared(self, depth: int, columns: int) -> int:
        """Bytes, with q, keys and values."""
        return (self.bm + self.bn) * (depth * _BYTES + _PITCH) + self.bn * (columns * _BYTES + _PITCH)


# In order of preference for heads up to 128; the last ones for longer heads, and where shared memory is limited.
TILES = (Tile(128, 64, 8, 1), Tile(64, 64, 4, 2), Tile(64, 32, 4, 2), Tile(64, 16, 4, 1))
TILE = Knob(KnobType.TILE_SIZE, 0, len(TILES), 1, 0, "0: chosen by the shape; else the number of a tile")


def _whole(size: int) -> int:
    return -(-size // _UNIT) * _UNIT


def _holds(tile: Tile, depth: int, columns: int) -> bool:
    """Whether q stays in registers beside scores and sums."""
    return tile.bm // tile.warps // _UNIT * depth // 4 + tile.sums(columns) <= _REGISTERS


def _tile(parts: Parts, device: DeviceSpec, knobs: Knobs) -> Tile:
    number, sizes = knobs[TILE.type], parts.sizes
    if number:
        return TILES[number - 1]
    depth, columns = _whole(sizes.depth), _whole(sizes.columns)
    return next(
        (t for t in TILES if t.shared(depth, columns) <= device.shared_memory and t.sums(columns) <= _MOST_SUMS),
        TILES[-1],
    )


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    parts, steps = parts_of(op), Steps(op, device)
    sizes, tile = parts.sizes, _tile(parts, device, knobs)
    parameters = Parameters(steps.places)
    describe(parts, parameters)
    functions = functions_of(parts, parameters)
    depth, columns = _whole(sizes.depth), _whole(sizes.columns)
    name = f"attention__mma_{tile.name}_{depth}x{columns}__{op.name}"
    first, last = parts.attention.first, parts.attention.last
    text = kernel_text(
        name,
        ["next_launch.cuh", "direct_copy.cuh", "ldmatrix.cuh", "mma.cuh", "mma_attention.cu"],
        parameters=parameters.text,
        functions=functions.text,
        constants={
            "RANK": first.c.rank, "BM": tile.bm, "BN": tile.bn, "THREADS": 32 * tile.warps, "BLOCKS": tile.blocks,
            "DEPTH": depth, "DEPTH_GIVEN": sizes.depth, "COLUMNS": columns, "COLUMNS_GIVEN": sizes.columns,
            "HOLDS": _holds(tile, depth, columns),
            "HAS_FIRST": parts.band.first is not None, "HAS_LAST": parts.band.last is not None,
            "HAS_ROWS": functions.has_rows, "WIDTH": functions.width, "WIDTH_OUT": functions.width_out,
            "Query": STORAGE[first.a.data_type], "Value": STORAGE[last.b.data_type],
        },
    )  # fmt: skip
    blocks = sizes.stack * -(-sizes.rows // tile.bm)
    shared = tile.shared(depth, columns)
    steps.add_early(Launch(text, "mma_attention", (blocks, 1, 1), 32 * tile.warps, parameters.pack(), shared))
    return steps.kernel(name)


_SHARE = 0.35  # of the tensor cores' rate that long heads reach


def _cost(task: Task, knobs: Knobs) -> Cost:
    parts = parts_of(task.op)
    seconds = parts.work / (task.device.rate(parts.attention.first.a.data_type) * _SHARE)
    return device_cost(task, seconds)


# Sums of the second product are scaled down when a larger score comes, at most once for each step of keys.
_SUMS = SumError(4, 1.5, drift=0.12)

ENGINE = cuda_engine(
    id=103,
    name="cuda_mma_attention",
    summary="a softmax between two products of 16-bit floats, on tensor cores; heads of up to 256 elements",
    needs=(needs_rule("cuda_mma_attention.operation", "attention"),),
    cost=_cost,
    generate=generate,
    knobs=(TILE,),
    numerical_notes=(NumericalNote.TENSOR_CORE,),
    sum_error=_SUMS,
    is_general=True,
)

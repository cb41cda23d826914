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


# In order of preference: for many rows, for fewer, for long heads, and where shared memory is limited.
TILES = (
    Tile(128, 64, 4, 2),
    Tile(128, 48, 4, 2),
    Tile(128, 32, 4, 2),
    Tile(64, 64, 4, 2),
    Tile(64, 32, 4, 2),
    Tile(64, 16, 4, 2),
)
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
    for blocks in (2, 1):  # of a multiprocessor: one multiplies while the other waits for keys, or weighs them
        for tile in TILES:
            is_filled = tile.bm == TILES[-1].bm or _blocks(parts, tile) >= device.sm_count
            room = device.shared_memory // blocks
            if is_filled and tile.sums(columns) <= _MOST_SUMS and tile.shared(depth, columns) <= room:
                return tile
    return TILES[-1]


def _blocks(parts: Parts, tile: Tile) -> int:
    return parts.sizes.stack * -(-parts.sizes.rows // tile.bm)


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
    shared = tile.shared(depth, columns)
    steps.add_early(
        Launch(text, "mma_attention", (_blocks(parts, tile), 1, 1), 32 * tile.warps, parameters.pack(), shared)
    )
    return steps.kernel(name)


_SHARE = 0.55  # of the tensor cores' rate that long heads reach
_WARPGROUPS, _PACE = (9, 0), 1.88  # from here on a data sheet's rate is that of warpgroups' products


def _cost(task: Task, knobs: Knobs) -> Cost:
    parts, device = parts_of(task.op), task.device
    tile = _tile(parts, device, knobs)
    blocks, sizes = _blocks(parts, tile), parts.sizes
    at_once = 2 * device.sm_count
    rounds = -(-blocks // at_once) * at_once / blocks  # the last one is as long as the others
    rows = -(-sizes.rows // tile.bm) * tile.bm / sizes.rows
    pace = _PACE if device.compute_capability >= _WARPGROUPS else 1.0
    rate = device.rate(parts.attention.first.a.data_type) * _SHARE / pace
    return device_cost(task, parts.work * rounds * rows / rate)


# Sums of the second product are scaled down when a larger score comes, at most once for each step of keys.
_SUMS = SumError(4, 1.5, drift=0.12)

ENGINE = cuda_engine(
    id=105,
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

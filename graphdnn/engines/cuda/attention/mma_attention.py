"""Engine ``cuda_mma_attention``: attention on tensor cores of warps (mma_attention.cu)."""

from __future__ import annotations

from dataclasses import dataclass

from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.attention.attention_codegen import Parts, describe, functions_of, parts_of
from graphdnn.engines.cuda.codegen.cost import device_cost
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import STORAGE, Parameters
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.engine import Cost, Knob, Knobs, Task, needs_rule
from graphdnn.engines.sum_error import SumError
from graphdnn.enums import DataType, KnobType, NumericalNote
from graphdnn.fusion.fused_graph import FusedOp

_UNIT = 16  # of rows, keys and depth of a tensor core's product
_BYTES = ELEMENTS[DataType.HALF].bytes
_PITCH = 16  # bytes between the rows of a tile, so that they lie in different banks
_WARPS, _THREADS = 4, 128  # of a block
_AT_ONCE = 2  # blocks of a multiprocessor: one multiplies while another weighs scores
_HELD = (64, 128)  # of a head: longer than the one and not longer than the other, q is loaded once and not every time


@dataclass(frozen=True, slots=True)
class Tile:
    """``bm`` rows of a block, which goes through ``bn`` keys at a time. ``longest``: a head for which sums and scores
    stay in registers.
    """

    bm: int
    bn: int
    longest: int

    @property
    def name(self) -> str:
        return f"{self.bm}x{self.bn}"

    def shared(self, depth: int, columns: int) -> int:
        """Bytes, with q, keys and values."""
        return (self.bm + self.bn) * (depth * _BYTES + _PITCH) + self.bn * (columns * _BYTES + _PITCH)

    def holds(self, depth: int) -> bool:
        return self.bm == _UNIT * _WARPS and _HELD[0] < depth <= _HELD[1]

    def fits(self, parts: Parts, room: int) -> bool:
        depth, columns = _heads(parts)
        return max(depth, columns) <= self.longest and self.shared(depth, columns) <= room


# In order of preference; the first two for many rows.
TILES = (
    Tile(128, 64, 64),
    Tile(128, 48, 80),
    Tile(64, 64, 160),
    Tile(64, 48, 192),
    Tile(64, 32, 256),
    Tile(64, 16, 256),
)
TILE = Knob(
    KnobType.TILE_SIZE, 0, len(TILES), 1, 0, "0: chosen by the shape; else the first from this tile on that fits"
)


def _heads(parts: Parts) -> tuple[int, int]:
    """Depth and columns as the tensor cores take them."""
    depth, columns = (-(-size // _UNIT) * _UNIT for size in (parts.sizes.depth, parts.sizes.columns))
    return depth, columns


def _tile(parts: Parts, device: DeviceSpec, knobs: Knobs) -> Tile:
    number = knobs[TILE.type]
    filling = [t for t in TILES if t.bm == TILES[-1].bm or _blocks(parts, t) >= device.sm_count]
    tiles, rooms = (TILES[number - 1 :], (1,)) if number else (filling, (_AT_ONCE, 1))
    fitting = (t for blocks in rooms for t in tiles if t.fits(parts, device.shared_memory // blocks))
    return next(fitting, TILES[-1])


def _blocks(parts: Parts, tile: Tile) -> int:
    return parts.sizes.stack * -(-parts.sizes.rows // tile.bm)


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    parts, steps = parts_of(op), LaunchSequence(op, device)
    sizes, tile = parts.sizes, _tile(parts, device, knobs)
    parameters = Parameters(steps.workspace_offsets)
    describe(parts, parameters)
    functions = functions_of(parts, parameters)
    depth, columns = _heads(parts)
    name = f"attention__mma_{tile.name}_{depth}x{columns}__{op.name}"
    first, last = parts.attention.first, parts.attention.last
    text = kernel_text(
        name,
        ["pdl.cuh", "direct_copy.cuh", "ldmatrix.cuh", "mma.cuh", "mma_attention.cu"],
        parameters=parameters.text,
        functions=functions.text,
        constants={
            "RANK": first.c.rank, "BM": tile.bm, "BN": tile.bn, "THREADS": _THREADS, "BLOCKS": _AT_ONCE,
            "DEPTH": depth, "DEPTH_GIVEN": sizes.depth, "COLUMNS": columns, "COLUMNS_GIVEN": sizes.columns,
            "HOLDS": tile.holds(depth),
            "HAS_FIRST": parts.band.first is not None, "HAS_LAST": parts.band.last is not None,
            "HAS_ROWS": functions.has_rows, "WIDTH": functions.width, "WIDTH_OUT": functions.width_out,
            "Query": STORAGE[first.a.data_type], "Value": STORAGE[last.b.data_type],
        },
    )  # fmt: skip
    shared = tile.shared(depth, columns)
    steps.add_early(Launch(text, "mma_attention", (_blocks(parts, tile), 1, 1), _THREADS, parameters.pack(), shared))
    return steps.kernel(name)


_SHARE = 0.5  # of the tensor cores' rate that long heads reach
_START = 5e-6  # of a block: until q and its first keys are there, and behind the last ones
_WARPGROUPS, _PACE = (9, 0), 1.88  # from here on a data sheet's rate is that of warpgroups' products


def _cost(task: Task, knobs: Knobs) -> Cost:
    parts, device = parts_of(task.op), task.device
    tile, sizes = _tile(parts, device, knobs), parts.sizes
    at_once = _AT_ONCE * device.sm_count
    pace = _PACE if device.compute_capability >= _WARPGROUPS else 1.0
    rate = device.rate(parts.attention.first.a.data_type) * _SHARE / pace / at_once
    key = 2 * tile.bm * (sizes.depth + sizes.columns) / rate  # seconds of one, with a block's rows
    blocks, rounds = _blocks(parts, tile), -(-_blocks(parts, tile) // at_once)
    if parts.band.first is None and parts.band.last is None:
        return device_cost(task, rounds * (sizes.keys * key + _START))
    edge = (tile.bm + tile.bn) / 2  # keys of blocks at the edge that no row of them sees
    mean = min(parts.band.visible(sizes.rows, sizes.keys) / sizes.rows + edge, sizes.keys)
    longest = max(parts.band.seen(row, sizes.keys) for row in (0, sizes.rows // 2, sizes.rows - 1))
    return device_cost(task, max(blocks / at_once * mean, longest) * key + rounds * _START)


# Sums of the second product are scaled down when a larger score comes, at most once for 16 keys.
_SUMS = SumError(4, 2, drift=0.12)

ENGINE = cuda_engine(
    id=111,
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

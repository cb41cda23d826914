"""Engine ``cuda_hopper_attention``: attention on the tensor cores of compute capability 9.0 (hopper_attention.cu)."""

from __future__ import annotations

from dataclasses import dataclass

from graphdnn.checks import AtLeast, AtMost
from graphdnn.cuda.tensor_map import TensorMap
from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.attention.attention_codegen import Parts, describe, functions_of, parts_of, scaling_of
from graphdnn.engines.cuda.codegen.cost import device_cost
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import STORAGE, Parameters
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.sm90.sm90_requirements import capability_need
from graphdnn.engines.cuda.sm90.tile import ROW
from graphdnn.engines.cuda.sm90.tma_operands import ALIGNMENT
from graphdnn.engines.cuda.sm90.wgmma_text import product_text, register_product_text
from graphdnn.engines.engine import Cost, Knob, Knobs, Task, need, needs_rule
from graphdnn.engines.memoization import memoize
from graphdnn.engines.sum_error import SumError
from graphdnn.enums import DataType, KnobType, NumericalNote
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.tensors import TensorSpec

_BYTES = ELEMENTS[DataType.HALF].bytes
_PANEL = ROW // _BYTES  # elements of a head that lie in one row of shared memory
_MOST_BATCH_AXES = 3  # a map has five axes, two of which are a head's
_GROUP_ROWS = 64
_MOST_TILES = 2**30
_NEIGHBOURS = 4  # results of a thread, after lanes have exchanged pairs
# By warpgroups: of a multiprocessor's tensor cores, and seconds that a score takes it at least.
_PACE = {1: (0.4, 130e-12), 2: (0.6, 84e-12), 3: (0.6, 70e-12)}
_BLOCK, _USUAL = 40, 128  # keys
_FIRST = 1.5  # blocks that the first one, beside which nothing runs, counts more
_START = 1.5e-6  # of a tile: until its first block is there, and behind the last one
_REGISTERS = {
    1: (24, 240),
    2: (24, 240),
    3: (32, 160),
}  # of a thread, by warpgroups: of those that copy, and that multiply
_MOST_CUT = 128  # keys at a time
_REGISTERS_LEFT = {1: 44, 2: 44, 3: 32}  # for all but scores, powers and sums
_READING = 44  # more, where scores meet what is read from memory


@dataclass(frozen=True, slots=True)
class Tile:
    """``bn`` keys at a time, ``stages`` blocks of them ahead; ``groups`` of 64 rows."""

    groups: int
    bn: int
    stages: int

    @property
    def rows(self) -> int:
        return self.groups * _GROUP_ROWS

    @property
    def name(self) -> str:
        return f"{self.rows}x{self.bn}x{self.stages}"

    def shared(self, depth: int, columns: int) -> int:
        """Bytes, with q, keys, values, and barriers."""
        q, v = -(-depth // _PANEL), -(-columns // _PANEL)
        return ROW * (self.rows * q + self.bn * self.stages * (q + v)) + 8 * (4 * self.stages + 2)

    def fits(self, depth: int, columns: int, others: int, shared: int) -> bool:
        """``others``: registers that are taken by what is read."""
        registers = self.bn // 2 + self.bn // 4 + columns // 2 + _REGISTERS_LEFT[self.groups]
        return registers + others <= _REGISTERS[self.groups][1] and self.shared(depth, columns) <= shared


# In order of preference, as far as they fit.
_KEYS = (176, 128, 112, 96, 80, 64, 48)
TILES = (Tile(3, 128, 2), Tile(3, 112, 2), *[Tile(2, bn, 2) for bn in _KEYS], *[Tile(1, bn, 2) for bn in _KEYS])
TILE = Knob(
    KnobType.TILE_SIZE, 0, len(TILES), 1, 0, "0: chosen by the shape; else the first from this tile on that fits"
)


def _whole(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def _heads(parts: Parts) -> tuple[int, int]:
    """Depth and columns as the tensor cores take them."""
    return _whole(parts.sizes.depth, 16), _whole(parts.sizes.columns, 8)


def _tile(parts: Parts, device: DeviceSpec, number: int) -> Tile | None:
    """None where the smallest one does not fit."""
    depth, columns = _heads(parts)
    read = {t.uid for t in parts.op.inputs if not (t.is_by_value or t.is_constant)}
    reads = any(t.uid in read for step in parts.attention.steps for t in step.inputs().values())
    tiles = TILES[number - 1 :] if number else [t for t in TILES if not _is_cut(parts) or t.bn <= _MOST_CUT]
    others = _READING if reads else 0
    fitting = [t for t in tiles if t.fits(depth, columns, others, device.shared_memory)]
    if number:
        return fitting[0] if fitting else None
    return min(fitting, key=lambda tile: _seconds(parts, tile, device), default=None)


def _is_cut(parts: Parts) -> bool:
    """Whether rows see a part of the keys: blocks at the edge are worked out whole, and tiles differ."""
    return parts.band.first is not None or parts.band.last is not None


@memoize
def _seen(op: FusedOp) -> float:
    """Keys that a row sees, in the mean."""
    sizes = parts_of(op).sizes
    return parts_of(op).band.visible(sizes.rows, sizes.keys) / sizes.rows


def _seconds(parts: Parts, tile: Tile, device: DeviceSpec) -> float:
    sizes, tiles = parts.sizes, _tiles(parts, tile)
    pace, least = _PACE[tile.groups]
    rate = device.rate(parts.attention.first.a.data_type) / device.sm_count * pace
    # Seconds of a key with a tile. A block takes as long as some keys more.
    key = (
        tile.rows
        * max(2 * (sizes.depth + sizes.columns) / rate, least)
        * (1 + _BLOCK / tile.bn)
        / (1 + _BLOCK / _USUAL)
    )
    rounds = -(-tiles // device.sm_count)
    keys = -(-sizes.keys // tile.bn) * tile.bn + _FIRST * tile.bn
    if not _is_cut(parts):
        return rounds * (key * keys + _START)
    seen = min(keys, _seen(parts.op) + tile.bn + tile.rows)  # at the edge each score is compared with it
    return max(tiles / device.sm_count * key * seen, key * keys) + rounds * _START


def _own(spec: TensorSpec, batch: tuple[int, ...]) -> list[int]:
    """Heads of an operand along the batch axes, of those that are different ones."""
    return [1 if stride == 0 else n for stride, n in zip(spec.strides, spec.extents[: len(batch)], strict=False)]


def _map(spec: TensorSpec, batch: tuple[int, ...], *, length_axis: int, line_axis: int, lines: int) -> TensorMap:
    """So many lines of a head, 128 bytes of each."""
    strides = spec.strides
    own = _own(spec, batch)
    steps = [strides[line_axis] if spec.extents[line_axis] > 1 else 0]
    steps += [strides[d] if own[d] > 1 else 0 for d in reversed(range(len(batch)))]
    return TensorMap(
        spec.data_type,
        (spec.extents[length_axis], spec.extents[line_axis], *reversed(own)),
        tuple(step * _BYTES or ALIGNMENT for step in steps),
        box=(_PANEL, lines, *(1 for _ in own)),
    )


def _together(parts: Parts, device: DeviceSpec) -> int:
    """Heads whose tiles follow each other row by row.

    Tiles of equal length: a head's are neighbours. Of a band they differ: those of all heads, so that a round is of one
    length; where their keys and values do not fit into the cache, of as many as two blocks share a head each.
    """
    if not _is_cut(parts):
        return 1
    sizes = parts.sizes
    size = sizes.stack * sizes.keys * (sizes.depth + sizes.columns) * _BYTES
    most = sizes.stack if size <= device.cache_bytes else max(1, device.sm_count // 2)
    return -(-sizes.stack // -(-sizes.stack // most))


def _tiles(parts: Parts, tile: Tile) -> int:
    return parts.sizes.stack * -(-parts.sizes.rows // tile.rows)


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    parts, steps = parts_of(op), LaunchSequence(op, device)
    sizes, attention = parts.sizes, parts.attention
    tile = _tile(parts, device, knobs[TILE.type]) or TILES[-1]
    batch, rank = attention.first.c.extents[:-2], attention.first.c.rank
    parameters = Parameters(steps.workspace_offsets)
    describe(parts, parameters)
    lines = {"q": tile.rows, "k": tile.bn, "v": tile.bn}
    axes = {"q": (rank - 1, rank - 2), "k": (rank - 2, rank - 1), "v": (rank - 1, rank - 2)}
    maps = []
    for name, spec in attention.operands.items():
        length, line = axes[name]
        maps.append((spec, _map(spec, batch, length_axis=length, line_axis=line, lines=lines[name])))
        parameters.integers(f"{name}_apart", [n // own for n, own in zip(batch, _own(spec, batch), strict=True)])
    parameters.maps("maps", maps)
    row_tiles = -(-sizes.rows // tile.rows)
    parameters.table({"stack": sizes.stack, "row_tiles": row_tiles, "heads_together": _together(parts, device)})
    step, factor = scaling_of(parts) or (None, 1.0)
    parameters.number("factor", factor)
    functions = functions_of(parts, parameters, without=step, neighbours=_NEIGHBOURS if sizes.columns % 16 == 0 else 2)
    depth, columns = _heads(parts)
    copying, multiplying = _REGISTERS[tile.groups]
    query, value = attention.first.a.data_type, attention.last.b.data_type
    scores = product_text(query, query, tile.bn, False, False).replace("void multiply(", "void multiply_scores(")
    name = f"attention__hopper_{tile.name}_{depth}x{columns}__{op.name}"
    text = kernel_text(
        name,
        ["pdl.cuh", "hopper_pipeline.cuh", "hopper_attention.cu"],
        parameters=parameters.text,
        functions=(*functions.text, scores, register_product_text(value, columns, True)),
        constants={
            "RANK": rank, "GROUPS": tile.groups, "BN": tile.bn, "STAGES": tile.stages,
            "DEPTH": depth, "COLUMNS": columns, "COLUMNS_GIVEN": sizes.columns,
            "PRODUCER_REGS": copying, "CONSUMER_REGS": multiplying,
            "HAS_FIRST": parts.band.first is not None, "HAS_LAST": parts.band.last is not None,
            "HAS_ROWS": functions.has_rows, "WIDTH": functions.width, "WIDTH_OUT": functions.width_out,
            "SCALED": step is not None, "Query": STORAGE[query], "Value": STORAGE[value],
        },
    )  # fmt: skip
    blocks, threads = min(device.sm_count, _tiles(parts, tile)), 128 * (tile.groups + 1)
    shared = tile.shared(depth, columns)
    steps.add_early(Launch(text, "hopper_attention", (blocks, 1, 1), threads, parameters.pack(), shared))
    return steps.kernel(name)


def _cost(task: Task, knobs: Knobs) -> Cost:
    parts, device = parts_of(task.op), task.device
    return device_cost(task, _seconds(parts, _tile(parts, device, knobs[TILE.type]) or TILES[-1], device))


def _is_attention(task: Task) -> bool:
    return task.op.rule == "attention"


# Sums of the second product are scaled down when a larger score comes, at most once for each block of keys.
_SUMS = SumError(4, 1.5, drift=0.12)

ENGINE = cuda_engine(
    id=110,
    name="cuda_hopper_attention",
    summary="a softmax between two products of 16-bit floats, on wgmma; heads of up to 256 elements",
    needs=(
        needs_rule("cuda_hopper_attention.operation", "attention"),
        capability_need("cuda_hopper_attention", _is_attention),
        need(
            "cuda_hopper_attention.batch",
            "dims",
            lambda task: parts_of(task.op).attention.first.c.rank - 2,
            AtMost(_MOST_BATCH_AXES),
            reason="the copy unit counts along five axes, two of which are a head's",
            fix="join batch axes, or use another engine",
            when=_is_attention,
        ),
        need(
            "cuda_hopper_attention.shared_memory",
            "device.shared_memory",
            lambda task: task.device.shared_memory,
            lambda task: AtLeast(TILES[-1].shared(*_heads(parts_of(task.op)))),
            reason="rows of q, and two blocks of keys and values, are in shared memory at the same time",
            fix="leave the engine more shared memory, or use another engine",
            when=lambda task: _is_attention(task) and _tile(parts_of(task.op), task.device, 0) is None,
        ),
        need(
            "cuda_hopper_attention.tiles",
            "dims",
            lambda task: _tiles(parts_of(task.op), TILES[-1]),
            AtMost(_MOST_TILES),
            reason="tiles of rows are counted in 32 bits",
            fix="divide the batch among several graphs",
            when=_is_attention,
        ),
    ),
    cost=_cost,
    generate=generate,
    knobs=(TILE,),
    numerical_notes=(NumericalNote.TENSOR_CORE,),
    sum_error=_SUMS,
)

"""Engine ``cuda_hopper_attention``: attention on the tensor cores of compute capability 9.0 (hopper_attention.cu)."""

from __future__ import annotations

from dataclasses import dataclass

from graphdnn.checks import AtLeast, AtMost
from graphdnn.cuda.tensor_map import TensorMap
from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.attention.attention_codegen import (
    FusedAttention,
    describe,
    fused_attention_of,
    generate_functions,
    scale_of_scores,
)
from graphdnn.engines.cuda.codegen.cost import device_cost
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import STORAGE, Parameters
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.sm90.sm90_requirements import capability_need
from graphdnn.engines.cuda.sm90.tile import SWIZZLE_BYTES
from graphdnn.engines.cuda.sm90.tma_operands import ALIGNMENT
from graphdnn.engines.cuda.sm90.wgmma_text import wgmma_rs_text, wgmma_ss_text
from graphdnn.engines.engine import Cost, Knob, Knobs, Task, need, needs_rule
from graphdnn.engines.memoization import memoize
from graphdnn.engines.sum_error import SumError
from graphdnn.enums import DataType, KnobType, NumericalNote
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.tensors import TensorSpec

_BYTES = ELEMENTS[DataType.HALF].bytes
_SLAB = SWIZZLE_BYTES // _BYTES  # elements of a head in one 128-byte row of shared memory
_MOST_BATCH_AXES = 3  # a tensor map has five axes, and a head has two
_WARPGROUP_ROWS = 64
_MOST_TILES = 2**30
_OUT_VEC_WIDTH = 4  # contiguous results of a thread, after lanes have exchanged pairs
# By consumer warpgroups: the share of the tensor cores' rate, and the least seconds of a score on a multiprocessor.
_RATES = {1: (0.4, 130e-12), 2: (0.6, 84e-12), 3: (0.6, 70e-12)}
_KEY_TILE_OVERHEAD, _FITTED_TILE_N = 40, 128  # keys
_FIRST_TILE_COST = 1.5  # the first key tile overlaps nothing: it costs this many key tiles more
_TILE_START = 1.5e-6  # seconds before the first key tile has arrived and after the last one
_REGISTERS = {
    1: (24, 240),
    2: (24, 240),
    3: (32, 160),
}  # of a producer thread and of a consumer thread, by consumer warpgroups
_MOST_MASKED_TILE_N = 128  # keys at a time
_OTHER_REGISTERS = {1: 44, 2: 44, 3: 32}  # besides scores, probabilities and accumulators
_SCORE_OPERAND_REGISTERS = 44  # more, where `score_mod` reads memory


@dataclass(frozen=True, slots=True)
class Tile:
    """``warpgroups`` consumers with 64 rows each, key tiles of ``tile_n`` keys, and ``stages`` of them."""

    warpgroups: int
    tile_n: int
    stages: int

    @property
    def rows(self) -> int:
        return self.warpgroups * _WARPGROUP_ROWS

    @property
    def name(self) -> str:
        return f"{self.rows}x{self.tile_n}x{self.stages}"

    def shared(self, depth: int, columns: int) -> int:
        """Bytes of shared memory: q, keys, values and mbarriers."""
        q, v = -(-depth // _SLAB), -(-columns // _SLAB)
        return SWIZZLE_BYTES * (self.rows * q + self.tile_n * self.stages * (q + v)) + 8 * (4 * self.stages + 2)

    def fits(self, depth: int, columns: int, other_registers: int, shared: int) -> bool:
        """``other_registers``: registers for operands of ``score_mod``."""
        registers = self.tile_n // 2 + self.tile_n // 4 + columns // 2 + _OTHER_REGISTERS[self.warpgroups]
        return registers + other_registers <= _REGISTERS[self.warpgroups][1] and self.shared(depth, columns) <= shared


# In order of preference.
_KEYS = (176, 128, 112, 96, 80, 64, 48)
TILES = (
    Tile(3, 128, 2),
    Tile(3, 112, 2),
    *[Tile(2, tile_n, 2) for tile_n in _KEYS],
    *[Tile(1, tile_n, 2) for tile_n in _KEYS],
)
TILE = Knob.row_of(TILES, KnobType.TILE_SIZE, "0: chosen by the shape; else the number of a tile, if it fits")


def _round_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def _padded_dims(fused: FusedAttention) -> tuple[int, int]:
    """Elements of a head of q and k, and of v, rounded up to whole MMA steps."""
    return _round_up(fused.sizes.depth, 16), _round_up(fused.sizes.columns, 8)


def _tile(fused: FusedAttention, device: DeviceSpec, number: int) -> Tile | None:
    """The requested tile or the fastest one; None where no tile fits."""
    depth, columns = _padded_dims(fused)
    read = {t.uid for t in fused.op.inputs if not (t.is_by_value or t.is_constant)}
    reads_operands = any(t.uid in read for step in fused.attention.steps for t in step.inputs().values())
    tiles = (
        TILES[number - 1 :]
        if number
        else [t for t in TILES if not _has_bounds(fused) or t.tile_n <= _MOST_MASKED_TILE_N]
    )
    other_registers = _SCORE_OPERAND_REGISTERS if reads_operands else 0
    fitting = [t for t in tiles if t.fits(depth, columns, other_registers, device.shared_memory)]
    if number:
        return fitting[0] if fitting else None
    return min(fitting, key=lambda tile: _seconds(fused, tile, device), default=None)


def _has_bounds(fused: FusedAttention) -> bool:
    """Whether rows see a part of the keys: then key tiles at the bounds waste work, and tiles differ in length."""
    return fused.mask_bounds.first is not None or fused.mask_bounds.last is not None


@memoize
def _mean_visible_keys(op: FusedOp) -> float:
    """The mean number of keys that a row sees."""
    sizes = fused_attention_of(op).sizes
    return fused_attention_of(op).mask_bounds.visible(sizes.rows, sizes.keys) / sizes.rows


def _seconds(fused: FusedAttention, tile: Tile, device: DeviceSpec) -> float:
    sizes, tiles = fused.sizes, _tiles(fused, tile)
    rate_share, least_seconds = _RATES[tile.warpgroups]
    rate = device.rate(fused.attention.first.a.data_type) / device.sm_count * rate_share
    # Seconds of one key with all rows of a tile; a key tile has an overhead of some keys.
    key = (
        tile.rows
        * max(2 * (sizes.depth + sizes.columns) / rate, least_seconds)
        * (1 + _KEY_TILE_OVERHEAD / tile.tile_n)
        / (1 + _KEY_TILE_OVERHEAD / _FITTED_TILE_N)
    )
    waves = -(-tiles // device.sm_count)
    keys = -(-sizes.keys // tile.tile_n) * tile.tile_n + _FIRST_TILE_COST * tile.tile_n
    if not _has_bounds(fused):
        return waves * (key * keys + _TILE_START)
    visible = min(
        keys, _mean_visible_keys(fused.op) + tile.tile_n + tile.rows
    )  # at the bounds each score is compared with them
    return max(tiles / device.sm_count * key * visible, key * keys) + waves * _TILE_START


def _distinct_heads(spec: TensorSpec, batch: tuple[int, ...]) -> list[int]:
    """Distinct heads of an operand along the batch axes: a stride of 0 repeats one head."""
    return [1 if stride == 0 else n for stride, n in zip(spec.strides, spec.extents[: len(batch)], strict=False)]


def _tensor_map(spec: TensorSpec, batch: tuple[int, ...], *, dim_axis: int, row_axis: int, tile_rows: int) -> TensorMap:
    """The map whose box has ``tile_rows`` rows of a head, 128 bytes each."""
    strides = spec.strides
    own = _distinct_heads(spec, batch)
    steps = [strides[row_axis] if spec.extents[row_axis] > 1 else 0]
    steps += [strides[d] if own[d] > 1 else 0 for d in reversed(range(len(batch)))]
    return TensorMap(
        spec.data_type,
        (spec.extents[dim_axis], spec.extents[row_axis], *reversed(own)),
        tuple(step * _BYTES or ALIGNMENT for step in steps),
        box=(_SLAB, tile_rows, *(1 for _ in own)),
    )


def _heads_per_raster(fused: FusedAttention, device: DeviceSpec) -> int:
    """Heads whose tiles the raster interleaves, row tile by row tile.

    Without mask bounds all tiles have the same length, and a head's tiles are neighbours. With bounds they differ, so
    the tiles of all heads are interleaved and a wave has tiles of one length. Where the keys and values of all heads
    exceed L2, two CTAs share each head.
    """
    if not _has_bounds(fused):
        return 1
    sizes = fused.sizes
    size = sizes.stack * sizes.keys * (sizes.depth + sizes.columns) * _BYTES
    most = sizes.stack if size <= device.cache_bytes else max(1, device.sm_count // 2)
    return -(-sizes.stack // -(-sizes.stack // most))


def _tiles(fused: FusedAttention, tile: Tile) -> int:
    return fused.sizes.stack * -(-fused.sizes.rows // tile.rows)


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    fused, steps = fused_attention_of(op), LaunchSequence(op, device)
    sizes, attention = fused.sizes, fused.attention
    tile = _tile(fused, device, knobs[TILE.type]) or TILES[-1]
    batch, rank = attention.first.c.extents[:-2], attention.first.c.rank
    parameters = Parameters(steps.workspace_offsets)
    describe(fused, parameters)
    tile_rows = {"q": tile.rows, "k": tile.tile_n, "v": tile.tile_n}
    axes = {"q": (rank - 1, rank - 2), "k": (rank - 2, rank - 1), "v": (rank - 1, rank - 2)}
    maps = []
    for name, spec in attention.operands.items():
        length, line = axes[name]
        maps.append((spec, _tensor_map(spec, batch, dim_axis=length, row_axis=line, tile_rows=tile_rows[name])))
        parameters.integers(
            f"{name}_map_broadcast", [n // own for n, own in zip(batch, _distinct_heads(spec, batch), strict=True)]
        )
    parameters.maps("maps", maps)
    row_tiles = -(-sizes.rows // tile.rows)
    parameters.table(
        {"stack": sizes.stack, "row_tiles": row_tiles, "heads_per_raster": _heads_per_raster(fused, device)}
    )
    step, factor = scale_of_scores(fused) or (None, 1.0)
    parameters.number("factor", factor)
    functions = generate_functions(
        fused, parameters, without=step, vec_width=_OUT_VEC_WIDTH if sizes.columns % 16 == 0 else 2
    )
    depth, columns = _padded_dims(fused)
    producer_regs, consumer_regs = _REGISTERS[tile.warpgroups]
    query, value = attention.first.a.data_type, attention.last.b.data_type
    scores = wgmma_ss_text(query, query, tile.tile_n, False, False).replace("void wgmma_ss(", "void wgmma_ss_scores(")
    name = f"attention__hopper_{tile.name}_{depth}x{columns}__{op.name}"
    text = kernel_text(
        name,
        ["hopper_attention.cu"],
        parameters=parameters.text,
        functions=(*functions.text, scores, wgmma_rs_text(value, columns, True)),
        constants={
            "RANK": rank, "CONSUMER_WARPGROUPS": tile.warpgroups, "TILE_N": tile.tile_n, "STAGES": tile.stages,
            "HEAD_DIM_PADDED": depth, "VALUE_DIM_PADDED": columns, "VALUE_DIM": sizes.columns,
            "PRODUCER_REGS": producer_regs, "CONSUMER_REGS": consumer_regs,
            "HAS_FIRST_KEY": fused.mask_bounds.first is not None, "HAS_LAST_KEY": fused.mask_bounds.last is not None,
            "STORES_ROW_STATS": functions.stores_row_stats,
            "SCORE_VEC_WIDTH": functions.score_vec_width, "OUT_VEC_WIDTH": functions.out_vec_width,
            "SCALES_IN_EXPONENT": step is not None, "Query": STORAGE[query], "Value": STORAGE[value],
        },
    )  # fmt: skip
    blocks, threads = min(device.sm_count, _tiles(fused, tile)), 128 * (tile.warpgroups + 1)
    shared = tile.shared(depth, columns)
    steps.add_early(Launch(text, "hopper_attention", (blocks, 1, 1), threads, parameters.pack(), shared))
    return steps.kernel(name)


def _cost(task: Task, knobs: Knobs) -> Cost:
    fused, device = fused_attention_of(task.op), task.device
    return device_cost(task, _seconds(fused, _tile(fused, device, knobs[TILE.type]) or TILES[-1], device))


def _is_attention(task: Task) -> bool:
    return task.op.rule == "attention"


# A larger score rescales the accumulators of P V, at most once for each key tile.
_SUM_ERROR = SumError(4, 1.5, drift=0.12)


def _effective(task: Task, knobs: Knobs) -> Knobs:
    """The knob values of the kernel that is launched."""
    tile = _tile(fused_attention_of(task.op), task.device, knobs[TILE.type]) or TILES[-1]
    return {TILE.type: TILES.index(tile) + 1}


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
            lambda task: fused_attention_of(task.op).attention.first.c.rank - 2,
            AtMost(_MOST_BATCH_AXES),
            reason="a tensor map has five axes, and a head has two",
            fix="merge batch axes, or use another engine",
            when=_is_attention,
        ),
        need(
            "cuda_hopper_attention.shared_memory",
            "device.shared_memory",
            lambda task: task.device.shared_memory,
            lambda task: AtLeast(TILES[-1].shared(*_padded_dims(fused_attention_of(task.op)))),
            reason="rows of q and two key tiles of keys and values are in shared memory at the same time",
            fix="leave the engine more shared memory, or use another engine",
            when=lambda task: _is_attention(task) and _tile(fused_attention_of(task.op), task.device, 0) is None,
        ),
        need(
            "cuda_hopper_attention.tiles",
            "dims",
            lambda task: _tiles(fused_attention_of(task.op), TILES[-1]),
            AtMost(_MOST_TILES),
            reason="tiles of rows are counted in 32 bits",
            fix="divide the batch among several graphs",
            when=_is_attention,
        ),
    ),
    cost=_cost,
    generate=generate,
    knobs=(TILE,),
    effective=_effective,
    numerical_notes=(NumericalNote.TENSOR_CORE,),
    sum_error=_SUM_ERROR,
)

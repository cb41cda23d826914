"""Engine ``cuda_mma_attention``: attention on mma.sync (mma_attention.cu)."""

from __future__ import annotations

from dataclasses import dataclass

from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.attention.attention_codegen import (
    FusedAttention,
    describe,
    fused_attention_of,
    generate_functions,
)
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

_MMA_UNIT = 16  # rows, keys and head elements come in whole MMA tiles
_BYTES = ELEMENTS[DataType.HALF].bytes
_ROW_PADDING = 16  # bytes behind each row, so that ldmatrix has no bank conflicts
_WARPS, _THREADS = 4, 128  # of a CTA
_CTAS_PER_SM = 2  # the matrix products of one CTA overlap the softmax of another
_Q_IN_REGISTERS = (64, 128)  # lengths of a head between which q stays in registers for all key tiles


@dataclass(frozen=True, slots=True)
class Tile:
    """``tile_m`` rows of a CTA and key tiles of ``tile_n`` keys. ``longest_head``: elements of the longest head whose
    accumulators and scores stay in registers.
    """

    tile_m: int
    tile_n: int
    longest_head: int

    @property
    def name(self) -> str:
        return f"{self.tile_m}x{self.tile_n}"

    def shared(self, depth: int, columns: int) -> int:
        """Bytes of shared memory: q, keys and values."""
        return (self.tile_m + self.tile_n) * (depth * _BYTES + _ROW_PADDING) + self.tile_n * (
            columns * _BYTES + _ROW_PADDING
        )

    def keeps_q_in_registers(self, depth: int) -> bool:
        return self.tile_m == _MMA_UNIT * _WARPS and _Q_IN_REGISTERS[0] < depth <= _Q_IN_REGISTERS[1]

    def fits(self, fused: FusedAttention, shared_memory: int) -> bool:
        depth, columns = _padded_dims(fused)
        return max(depth, columns) <= self.longest_head and self.shared(depth, columns) <= shared_memory


# In order of preference; the first two serve many rows.
TILES = (
    Tile(128, 64, 64),
    Tile(128, 48, 80),
    Tile(64, 64, 160),
    Tile(64, 48, 192),
    Tile(64, 32, 256),
    Tile(64, 16, 256),
)
TILE = Knob.row_of(TILES, KnobType.TILE_SIZE, "0: chosen by the shape; else the number of a tile, if it fits")


def _padded_dims(fused: FusedAttention) -> tuple[int, int]:
    """Elements of a head of q and k, and of v, rounded up to whole MMA tiles."""
    depth, columns = (-(-size // _MMA_UNIT) * _MMA_UNIT for size in (fused.sizes.depth, fused.sizes.columns))
    return depth, columns


def _tile(fused: FusedAttention, device: DeviceSpec, knobs: Knobs) -> Tile:
    number = knobs[TILE.type]
    full_grid = [t for t in TILES if t.tile_m == TILES[-1].tile_m or _ctas(fused, t) >= device.sm_count]
    tiles, ctas_per_sm = (TILES[number - 1 :], (1,)) if number else (full_grid, (_CTAS_PER_SM, 1))
    fitting = (t for ctas in ctas_per_sm for t in tiles if t.fits(fused, device.shared_memory // ctas))
    return next(fitting, TILES[-1])


def _ctas(fused: FusedAttention, tile: Tile) -> int:
    return fused.sizes.stack * -(-fused.sizes.rows // tile.tile_m)


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    fused, steps = fused_attention_of(op), LaunchSequence(op, device)
    sizes, tile = fused.sizes, _tile(fused, device, knobs)
    parameters = Parameters(steps.workspace_offsets)
    describe(fused, parameters)
    functions = generate_functions(fused, parameters)
    depth, columns = _padded_dims(fused)
    name = f"attention__mma_{tile.name}_{depth}x{columns}__{op.name}"
    first, last = fused.attention.first, fused.attention.last
    text = kernel_text(
        name,
        ["mma_attention.cu"],
        parameters=parameters.text,
        functions=functions.text,
        constants={
            "RANK": first.c.rank, "TILE_M": tile.tile_m, "TILE_N": tile.tile_n, "THREADS": _THREADS,
            "CTAS_PER_SM": _CTAS_PER_SM,
            "HEAD_DIM_PADDED": depth, "HEAD_DIM": sizes.depth, "VALUE_DIM_PADDED": columns, "VALUE_DIM": sizes.columns,
            "Q_IN_REGISTERS": tile.keeps_q_in_registers(depth),
            "HAS_FIRST_KEY": fused.mask_bounds.first is not None, "HAS_LAST_KEY": fused.mask_bounds.last is not None,
            "STORES_ROW_STATS": functions.stores_row_stats,
            "SCORE_VEC_WIDTH": functions.score_vec_width, "OUT_VEC_WIDTH": functions.out_vec_width,
            "Query": STORAGE[first.a.data_type], "Value": STORAGE[last.b.data_type],
        },
    )  # fmt: skip
    shared = tile.shared(depth, columns)
    steps.add_early(Launch(text, "mma_attention", (_ctas(fused, tile), 1, 1), _THREADS, parameters.pack(), shared))
    return steps.kernel(name)


_RATE_SHARE = 0.5  # of the tensor cores' rate, for long heads
_CTA_START = 5e-6  # seconds before q and the first keys have arrived and after the last ones
_WGMMA_CAPABILITY, _WGMMA_ADVANTAGE = (
    (9, 0),
    1.88,
)  # from this compute capability on the data sheet has the rate of wgmma


def _cost(task: Task, knobs: Knobs) -> Cost:
    fused, device = fused_attention_of(task.op), task.device
    tile, sizes = _tile(fused, device, knobs), fused.sizes
    concurrent_ctas = _CTAS_PER_SM * device.sm_count
    advantage = _WGMMA_ADVANTAGE if device.compute_capability >= _WGMMA_CAPABILITY else 1.0
    rate = device.rate(fused.attention.first.a.data_type) * _RATE_SHARE / advantage / concurrent_ctas
    key_seconds = 2 * tile.tile_m * (sizes.depth + sizes.columns) / rate  # of one key with all rows of a CTA
    ctas, waves = _ctas(fused, tile), -(-_ctas(fused, tile) // concurrent_ctas)
    if fused.mask_bounds.first is None and fused.mask_bounds.last is None:
        return device_cost(task, waves * (sizes.keys * key_seconds + _CTA_START))
    bound_keys = (tile.tile_m + tile.tile_n) / 2  # keys of ctas at the bound_keys that no row of them sees
    mean = min(fused.mask_bounds.visible(sizes.rows, sizes.keys) / sizes.rows + bound_keys, sizes.keys)
    longest_head = max(fused.mask_bounds.seen(row, sizes.keys) for row in (0, sizes.rows // 2, sizes.rows - 1))
    return device_cost(task, max(ctas / concurrent_ctas * mean, longest_head) * key_seconds + waves * _CTA_START)


# A larger score rescales the accumulators of P V, at most once for 16 keys.
_SUM_ERROR = SumError(4, 2, drift=0.12)


def _effective(task: Task, knobs: Knobs) -> Knobs:
    """The knob values of the kernel that is launched."""
    return {TILE.type: TILES.index(_tile(fused_attention_of(task.op), task.device, knobs)) + 1}


ENGINE = cuda_engine(
    id=111,
    name="cuda_mma_attention",
    summary="a softmax between two products of 16-bit floats, on tensor cores; heads of up to 256 elements",
    needs=(needs_rule("cuda_mma_attention.operation", "attention"),),
    cost=_cost,
    generate=generate,
    knobs=(TILE,),
    effective=_effective,
    numerical_notes=(NumericalNote.TENSOR_CORE,),
    sum_error=_SUM_ERROR,
    is_general=True,
)

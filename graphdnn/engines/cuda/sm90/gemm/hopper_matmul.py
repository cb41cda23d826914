"""Engine ``cuda_hopper_matmul``: batched matrix products on the tensor cores of compute capability 9.0.

The kernel is that of the convolutions (hopper_gemm.cu) with another producer (gemm_producer.cuh). The rows of the GEMM
are M and its columns N if a row of c is contiguous; otherwise the operands are swapped. To the kernel a matrix product
is a convolution with one tap: rows are pixels, and the batch is its groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any, NamedTuple

from graphdnn.cuda.nvrtc import KernelText
from graphdnn.cuda.tensor_map import TensorMap
from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.batch_invariance import counted_axis, images_of, memoize_for_images
from graphdnn.engines.cuda.codegen.cost import device_cost, other_seconds
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.dense_operands import materialize
from graphdnn.engines.cuda.codegen.epilogue import Epilogue, batch_invariant_text, epilogue_of
from graphdnn.engines.cuda.codegen.index_space import Axis, IndexSpace
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, STORAGE, Parameters, Table
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.codegen.tensor_cores import (
    EXACT_OPTIONS,
    EXACT_PAIRS,
    FP8_FAST_OPTIONS,
    FP8_OPTIONS,
    FP8_PAIRS,
    TF32_OPTIONS,
    TF32_PAIRS,
)
from graphdnn.engines.cuda.simt.implicit_copies import copying_seconds
from graphdnn.engines.cuda.simt.matmul_simt import Stack
from graphdnn.engines.cuda.sm90.fitted_constants import GEMM
from graphdnn.engines.cuda.sm90.gemm.matmul_operands import MOST_BATCH_AXES, MatrixOperand, batch_size
from graphdnn.engines.cuda.sm90.gemm.matmul_requirements import (
    batch_axes,
    batch_space,
    flattened,
    in_memory_order,
    matmul_needs,
    written_tensor,
)
from graphdnn.engines.cuda.sm90.gemm_fields import TileGrid, work_tile_variants
from graphdnn.engines.cuda.sm90.gemm_shape import GemmShape
from graphdnn.engines.cuda.sm90.split_k import SplitKReduction
from graphdnn.engines.cuda.sm90.tensor_maps import vec_n_of, with_sizes
from graphdnn.engines.cuda.sm90.tile import MAX_TILE_ROWS, SLAB_ROWS, SWIZZLE_BYTES, Tile
from graphdnn.engines.cuda.sm90.tile_choice import SPLITS, STAGES, TILE, Choice, choose, effective_knobs
from graphdnn.engines.cuda.sm90.wgmma_text import promotion_interval, wgmma_ss_text
from graphdnn.engines.engine import Cost, Knobs, Task
from graphdnn.engines.memoization import memoize
from graphdnn.enums import DataType, KnobType
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import Matmul
from graphdnn.tensors import TensorSpec

_VEC_N = 8  # contiguous columns of a thread
_COLUMN = 2  # the axis of columns in the result space
_UNROLL = 4  # K tiles


@dataclass(frozen=True, slots=True)
class _BatchedGemm:
    """A batch of GEMMs with its operands in memory."""

    stack: Stack
    row_operand: MatrixOperand
    column_operand: MatrixOperand
    written: TensorSpec
    batch: tuple[int, ...]  # axes of c
    row: Axis  # of c

    @classmethod
    def of(cls, op: FusedOp) -> _BatchedGemm:
        stack, written = Stack.of(op), written_tensor(op)
        a, b = (MatrixOperand(side) for side in stack.operands)
        row = Axis(stack.rows, stack.op.c.rank - (1 if stack.swapped else 2))
        return cls(stack, a, b, written, batch_axes(op, written), row)

    def flattened(self, op: FusedOp) -> _BatchedGemm:
        """One GEMM instead of the batch, if all GEMMs share B and the rows of A are contiguous across the batch."""
        if not self.batch or any(self.column_operand.spec.extents[j] > 1 for j in self.batch):
            return self
        if any(self.row_operand.spec.extents[j] != self.extents[j] for j in self.batch):
            return self
        axes = in_memory_order(self.written, (*self.batch, *([self.row.logical] if self.row.size > 1 else [])))
        rows, space = self.row_operand.flattened(axes), flattened(op, self.written, axes)
        if rows is None or space.rank != 1:
            return self
        return replace(self, row_operand=rows, batch=(), row=space.axes[0])

    @property
    def extents(self) -> tuple[int, ...]:
        return self.stack.op.c.extents

    def shape(self, op: FusedOp) -> GemmShape:
        """The shape that the choice of a tile depends on."""
        k_tiles = -(-self.stack.depth // (SWIZZLE_BYTES // self.row_operand.element_bytes))
        front_only, most = op.uses.front_only, self.stack.op.c.elements
        largest = [t for t in (*op.inputs, *op.outputs) if t.uid not in front_only and t.elements >= most]
        result = sum(ELEMENTS[t.data_type].bytes for t in largest) or 1
        unit = SLAB_ROWS if self.column_operand.is_mn_major and not self.column_operand.is_copied else 1
        groups = batch_size(self.extents, self.batch)
        accumulator_sets = 2 if promotion_interval(self.row_operand.spec.data_type) else 1
        return GemmShape(
            gemms=((self.row.size, k_tiles),),
            columns=self.stack.columns,
            groups=groups,
            column_multiple=unit,
            result_bytes=result,
            accumulator_sets=accumulator_sets,
            bytes_read=self.stack.op.a.bytes + self.stack.op.b.bytes,
            may_pingpong=self.row_operand.spec.data_type is DataType.FLOAT,  # 16-bit types are limited by power instead
        )

    def space(self, op: FusedOp) -> IndexSpace:
        """The result's axes, in the order of a convolution's result (epilogue_store.cuh)."""
        rank = len(self.extents)
        stack = batch_space(op, self.written).axes[0] if self.batch else Axis(1, 0)
        column = Axis(self.stack.columns, rank - (2 if self.stack.swapped else 1))
        none = Axis(1, 0)
        axes = (none, stack, column, none, none, self.row)
        return IndexSpace(self.extents, axes)


@memoize
def _batched_gemm(op: FusedOp) -> _BatchedGemm:
    return _BatchedGemm.of(op)


@memoize
def _flat(op: FusedOp) -> _BatchedGemm:
    return _batched_gemm(op).flattened(op)


@memoize
def _shape(op: FusedOp) -> GemmShape:
    """The shape that the choice of a tile depends on."""
    base, n = _base_shape(op), _counted_length(op)
    read = sum([t.bytes for t in op.main.inputs().values()])
    if base.groups:
        return base._replace(
            groups=base.groups * n,
            bytes_read=read,
            scalar_stores=_is_unaligned(op, 2),
            pair_stores=_is_unaligned(op, 4),
        )
    ((rows, k_tiles),) = base.gemms
    skinny_rows = rows * n if rows * n < MAX_TILE_ROWS else 0
    return base._replace(
        gemms=((rows * n, k_tiles),),
        groups=1,
        bytes_read=read,
        skinny_rows=skinny_rows,
        scalar_stores=_is_unaligned(op, 2),
        pair_stores=_is_unaligned(op, 4),
    )


def _is_unaligned(op: FusedOp, count: int) -> bool:
    """Whether a vector of ``count`` elements may be unaligned in the result."""
    result = op.outputs[0]
    return any(
        stride % count for stride, size in zip(result.strides, result.dims, strict=True) if size > 1 and stride != 1
    )


@memoize_for_images
def _base_shape(op: FusedOp) -> GemmShape:
    """The shape for length one of the counted axis. ``groups`` is 0 if that axis is the rows, or a part of the rows."""
    batched, n = _flat(op), _counted_length(op)
    shape = batched.shape(op)
    if batched.batch:
        return shape._replace(groups=shape.groups // n)
    ((rows, k_tiles),) = shape.gemms
    return shape._replace(gemms=((rows // n, k_tiles),), groups=0)


def _counted_length(op: FusedOp) -> int:
    """The length of the axis that is no part of the key of ``images_of``; 1 if the operation has no such key."""
    assert isinstance(op.anchor, Matmul)
    return 1 if images_of(op) is None else op.anchor.c.dims[counted_axis(op.anchor)]


@memoize_for_images
def _is_read_directly(op: FusedOp) -> bool:
    """Whether TMA reads both operands in place: no launch computes or copies an operand."""
    batched = _batched_gemm(op)
    operands = batched.row_operand, batched.column_operand
    return not any(op.leading_to(m.spec) or m.is_copied for m in operands)


def _result_space(op: FusedOp) -> IndexSpace:
    return _flat(op).space(op)


class _Maps(NamedTuple):
    """Tensor maps of A and B, and the counted axis of each; None: the axis is not in the map."""

    rows: TensorMap
    columns: TensorMap
    counted_axes: tuple[int | None, int | None] = (None, None)

    @classmethod
    def of(cls, batched: _BatchedGemm, tile: Tile, vec_n: int, loaded_rows: int) -> _Maps:
        """``loaded_rows``: rows of A in a TMA load."""
        b, batch = batched.column_operand, batched.batch
        columns = b.permuted_map(tile.bn, vec_n) if b.is_permutable(batch) else b.map(tile.bn, batch)
        return cls(batched.row_operand.map(loaded_rows, batch), columns)

    def times(self, n: int) -> _Maps:
        """The maps for length ``n`` of the counted axis, from the maps for length one."""
        rows, columns = (
            one if axis is None else with_sizes(one, (*one.sizes[:axis], one.sizes[axis] * n, *one.sizes[axis + 1 :]))
            for one, axis in zip((self.rows, self.columns), self.counted_axes, strict=True)
        )
        return _Maps(rows, columns)


@memoize_for_images
def _maps_of_length_one(op: FusedOp, tile: Tile, vec_n: int, loaded_rows: int) -> _Maps:
    """Maps of operands that are read directly, for length one of the counted axis."""
    batched, n = _flat(op), _counted_length(op)
    maps = _Maps.of(batched, tile, vec_n, loaded_rows)
    if n == 1:
        return maps
    rows, columns = (
        m.axis_in_map(0, batched.batch) if batched.batch and m.spec.extents[0] == n else None
        for m in (batched.row_operand, batched.column_operand)
    )
    if not batched.batch:  # the counted axis is the rows, or a part of them
        rows = batched.row_operand.axis_in_map(None, ())
    cached_maps = [
        m if axis is None else with_sizes(m, (*m.sizes[:axis], m.sizes[axis] // n, *m.sizes[axis + 1 :]))
        for m, axis in ((maps.rows, rows), (maps.columns, columns))
    ]
    return _Maps(cached_maps[0], cached_maps[1], (rows, columns))


@memoize_for_images
def _flat_of_images(op: FusedOp) -> _BatchedGemm:
    """The flattened batch for any length of the counted axis."""
    return _flat(op)


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    steps = LaunchSequence(op, device)
    is_direct = _is_read_directly(op)
    batched = _flat_of_images(op) if is_direct else _materialized(_batched_gemm(op), op, steps)
    a, b = batched.row_operand, batched.column_operand
    shape = _shape(op) if is_direct else batched.shape(op)
    choice = choose(shape, device, knobs)
    tile, grid = choice.tile, TileGrid.of(shape, *shape.gemm_extents(choice.tile))
    is_split = choice.splits > 1
    parameters = Parameters(steps.workspace_offsets)
    compute = COMPUTE_TYPE[batched.stack.op.compute_type]
    is_permuted = b.is_permutable(batched.batch)
    widest = max([ELEMENTS[t.data_type].bytes for t in op.outputs])
    vec_n = _VEC_N // 2 if is_permuted and widest > 2 else _VEC_N
    loaded_rows = tile.bm if a.is_mn_major else shape.loaded_rows(tile)
    cached_maps = _maps_of_length_one(op, tile, vec_n, loaded_rows).times(_counted_length(op)) if is_direct else None
    maps = cached_maps or _Maps.of(batched, tile, vec_n, loaded_rows)
    parameters.maps("im2col_map", [(a.spec, maps.rows)])
    parameters.maps("dense_map", [(b.spec, maps.columns)])

    sums = 0 if is_split else tile.accumulators
    space = (_result_space,) if is_direct else batched.space(op)
    epilogue = epilogue_of(steps, parameters, space, _COLUMN, vec_n, compute, accumulators=sums)
    _describe_work_tiles(parameters, op, batched, shape, grid)
    parameters.integer("raster_width", _raster_width(tile, device, grid))
    reduction = SplitKReduction(grid.tiles * tile.bm * tile.bn, choice.splits)
    reduction.describe(parameters, steps, compute)
    parameters.integer("trigger_early", int(grid.tiles < device.sm_count and not is_split))
    name = f"matmul__hopper_{tile.name}x{choice.stages}{'_split' if is_split else ''}__{op.name}"

    def write() -> KernelText:
        vec_widths = {
            "PERMUTE_N": is_permuted,
            "VEC_N": vec_n_of(vec_n if is_permuted else 0, epilogue.width),
            "VEC_WIDTH": epilogue.width,
        }
        constants = {**_constants(choice, batched, loaded_rows), **reduction.constants, **vec_widths}
        return _text(name, batched, parameters, epilogue, tile, constants, is_split=is_split)

    text = batch_invariant_text(op, epilogue, ("matmul", tile, choice.stages, loaded_rows, *reduction.text_key), write)
    packed = parameters.pack()
    ctas = min(grid.tiles * choice.splits, tile.ctas_per_sm * device.sm_count)
    shared = choice.stages * (tile.stage_bytes + 16) + tile.order_barrier_bytes
    threads = 128 * (tile.consumers + 1)
    steps.add(Launch(text, "hopper_gemm", (ctas, 1, 1), threads, packed, shared, starts_early=True))
    if is_split:
        steps.add(reduction.launch(text, packed))
    return steps.kernel(name)


def _text(
    name: str,
    batched: _BatchedGemm,
    parameters: Parameters,
    epilogue: Epilogue,
    tile: Tile,
    constants: Mapping[str, int | bool | str],
    *,
    is_split: bool,
) -> KernelText:
    a, b = batched.row_operand, batched.column_operand
    wgmma = wgmma_ss_text(a.spec.data_type, b.spec.data_type, tile.bn, a.is_mn_major, b.is_mn_major)
    return kernel_text(
        name,
        ["hopper_gemm.cu", *(["split_k_reduce.cu"] if is_split else [])],
        variants={
            **work_tile_variants(parameters),
            "IM2COL_PRODUCER": False,
            "RESIDUAL_TILE": False,
            "SPLIT_K_IN_CLUSTER": False,
        },
        parameters=parameters.text,
        functions=[*epilogue.functions, wgmma],
        constants=constants,
    )


def _constants(choice: Choice, batched: _BatchedGemm, loaded_rows: int) -> dict[str, int | bool | str]:
    """The constants of hopper_gemm.cu that depend on the tile and the operands."""
    tile, a, b = choice.tile, batched.row_operand, batched.column_operand
    consumer_regs, producer_regs = tile.registers
    return {
        "TILE_M": tile.bm, "TILE_N": tile.bn, "STAGES": choice.stages,
        "CONSUMER_WARPGROUPS": tile.tile_consumers, "PINGPONG_GROUPS": tile.pingpong_groups,
        "LOADED_ROWS": loaded_rows,
        "CTAS_PER_SM": tile.ctas_per_sm,
        "CONSUMER_REGS": consumer_regs, "PRODUCER_REGS": producer_regs,
        "WGRAD": False, "SWAP_AB": False, "FILTER_MN_MAJOR": False,
        "A_MN_MAJOR": a.is_mn_major, "B_MN_MAJOR": b.is_mn_major,
        "RESIDUES": 1, "SPATIAL": 1, "SPLIT_K": choice.splits > 1,
        "UNROLL": _UNROLL, "PROMOTION_INTERVAL": promotion_interval(a.spec.data_type),
        "Element": STORAGE[a.spec.data_type], "Accum": COMPUTE_TYPE[batched.stack.op.compute_type],
    }  # fmt: skip


def _materialized(batched: _BatchedGemm, op: FusedOp, steps: LaunchSequence) -> _BatchedGemm:
    """The batch with operands that earlier launches compute or copy."""
    operands = [
        MatrixOperand(replace(m.side, spec=materialize(steps, m.spec)))
        for m in (batched.row_operand, batched.column_operand)
    ]
    a, b = (m.prepared(steps) for m in operands)
    return replace(batched, row_operand=a, column_operand=b).flattened(op)


def _describe_work_tiles(
    parameters: Parameters, op: FusedOp, batched: _BatchedGemm, shape: GemmShape, layout: TileGrid
) -> None:
    """Fields of gemm_producer.cuh and conv_work_tile.cuh. Fields of a convolution's image and filter are zero."""
    ((rows, k_tiles),) = shape.gemms
    missing = (1,) * (MOST_BATCH_AXES - len(batched.batch))
    batch, broadcast_a, broadcast_b = _batch_extents(op, batched)
    parameters.table({
        "batch": [*missing, *batch], "broadcast_a": [*missing, *broadcast_a], "broadcast_b": [*missing, *broadcast_b],
        "tiles": layout.tiles, "tiles_n": layout.tiles_n, "columns": shape.columns, "channels": batched.stack.depth,
        "channel_blocks": 1, "tap_blocks": 0, "tap_stride": 0, "image_pixels": rows, "flat_pixels": 1,
        "first_tile": (0,), "tiles_m": layout.tiles_m, "rows": (rows,), "k_tiles": (k_tiles,), "first_filter_tap": (0,),
        "pixels": (1, 1, rows), "out_stride": (1, 1, 1), "taps": (1, 1, 1),
    })  # fmt: skip
    parameters.add_table(_UNUSED)


def _batch_extents(op: FusedOp, batched: _BatchedGemm) -> tuple[list[int], list[int], list[int]]:
    """GEMMs along each batch axis, and the consecutive GEMMs that share a matrix of A, and a matrix of B."""
    assert isinstance(op.anchor, Matmul)
    c, a, b = (t.extents for t in (op.anchor.c, op.anchor.a, op.anchor.b))
    if batched.stack.swapped:
        a, b = b, a
    batch = batched.batch
    return [c[j] for j in batch], [c[j] // a[j] for j in batch], [c[j] // b[j] for j in batch]


_UNUSED_FIELDS = ("out_start", "lower_corner", "tap_origin", "traversal_stride", "dilation", "filter_tap_stride")
_UNUSED = Table.of(dict.fromkeys(_UNUSED_FIELDS, (0, 0, 0)))  # fields of convolutions


def _raster_width(tile: Tile, device: DeviceSpec, layout: TileGrid) -> int:
    """Tile rows of a raster group: the tiles that run at a time are nearly a square, so most loads hit L2."""
    return max(1, min(max(layout.tiles_m), round(sqrt(device.sm_count * tile.ctas_per_sm * tile.bn / tile.bm))))


def _cost(task: Task, knobs: Knobs) -> Cost:
    op = task.op
    choice = choose(_shape(op), task.device, knobs)
    is_beyond = min([t.bytes for t in op.main.inputs().values()]) > task.device.cache_bytes
    seconds = choice.seconds * (GEMM.beyond_cache_factor if is_beyond else 1.0)
    cost = device_cost(task, seconds + choice.idle + other_seconds(task))
    if choice.idle:
        cost = cost.plus({"idle": -choice.idle})
    if _is_read_directly(op):
        return cost
    operands = _flat(op).row_operand, _flat(op).column_operand
    copied = [m.spec.bytes for m in operands if op.leading_to(m.spec) or m.is_copied]
    return cost.plus({"copies": sum(copying_seconds(size, task.device) for size in copied)} if copied else {})


def _effective(task: Task, knobs: Knobs) -> Knobs:
    """The knob values of the kernel that is launched."""
    found = effective_knobs(choose(_shape(task.op), task.device, knobs))
    return {knob.type: found[knob.type] for knob in (TILE, STAGES, SPLITS)}


_COMMON: dict[str, Any] = {
    "effective": _effective,
    "cost": _cost,
    "generate": generate,
    "knobs": (TILE, STAGES, SPLITS),
    "frugal": {KnobType.SPLIT_K: 1},
}
ENGINE = cuda_engine(
    id=55,
    name="cuda_hopper_matmul",
    summary="matrix products of 16-bit floats and bytes on the tensor cores of compute capability 9.0",
    needs=matmul_needs("cuda_hopper_matmul", EXACT_PAIRS),
    **EXACT_OPTIONS,
    **_COMMON,
)
ENGINE_TF32 = cuda_engine(
    id=59,
    name="cuda_hopper_matmul_tf32",
    summary="fp32 matrix products on the same tensor cores, operands rounded to TF32; only if TF32 is allowed",
    needs=matmul_needs("cuda_hopper_matmul_tf32", TF32_PAIRS),
    **TF32_OPTIONS,
    **_COMMON,
)
ENGINE_FP8 = cuda_engine(
    id=65,
    name="cuda_hopper_matmul_fp8",
    summary="fp8 matrix products on the same tensor cores, which keep 14 bits of sums of 128 products; only if allowed",
    needs=matmul_needs("cuda_hopper_matmul_fp8", FP8_PAIRS),
    **FP8_OPTIONS,
    **_COMMON,
)
ENGINE_FP8_FAST = cuda_engine(
    id=66,
    name="cuda_hopper_matmul_fp8_fast",
    summary="the same for the compute type FAST_FLOAT_FOR_FP8, which allows 14 bits",
    needs=matmul_needs("cuda_hopper_matmul_fp8_fast", FP8_PAIRS, (DataType.FAST_FLOAT_FOR_FP8,)),
    **FP8_FAST_OPTIONS,
    **_COMMON,
)

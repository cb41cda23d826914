"""Engine ``cuda_hopper_matmul``: stacks of matrix products on the tensor cores of compute capability 9.0.

The main loop and the end are those of the convolutions (hopper_gemm.cu); only the copies differ
(gemm_producer.cuh). RowCoords of the product are M and its columns N where a row of c is contiguous, else the other way
round. To the text a product is a convolution of one tap: its rows are pixels, the stack is its groups.
"""

from __future__ import annotations

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
from graphdnn.engines.cuda.codegen.dense_operands import staged
from graphdnn.engines.cuda.codegen.epilogue import epilogue_of, text_of_images
from graphdnn.engines.cuda.codegen.index_space import Axis, IndexSpace
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, STORAGE, Parameters, Table
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.codegen.tensor_cores import (
    EXACT_PAIRS,
    FP8_PAIRS,
    OF_EXACT,
    OF_FP8,
    OF_FP8_FAST,
    OF_TF32,
    TF32_PAIRS,
)
from graphdnn.engines.cuda.simt.implicit_copies import copying_seconds
from graphdnn.engines.cuda.simt.matmul_simt import Stack
from graphdnn.engines.cuda.sm90.gemm.matmul_operands import MOST_BATCH_AXES, Matrices, stacked
from graphdnn.engines.cuda.sm90.gemm.matmul_requirements import (
    batch_axes,
    batch_space,
    in_memory_order,
    joined,
    matmul_needs,
    written_tensor,
)
from graphdnn.engines.cuda.sm90.gemm_fields import Layout
from graphdnn.engines.cuda.sm90.gemm_shape import Sizes
from graphdnn.engines.cuda.sm90.split_k import PARTS_FILES, Adding
from graphdnn.engines.cuda.sm90.tensor_maps import columns_held, resized
from graphdnn.engines.cuda.sm90.tile import LARGEST, PANEL, ROW, Tile
from graphdnn.engines.cuda.sm90.tile_choice import PARTS, STAGES, TILE, choose
from graphdnn.engines.cuda.sm90.wgmma_text import promotion_interval, wgmma_ss_text
from graphdnn.engines.engine import Cost, Knobs, Task
from graphdnn.engines.memoization import memoize
from graphdnn.enums import DataType, KnobType
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import Matmul
from graphdnn.tensors import TensorSpec

_COLUMNS_OF_A_THREAD = 8
_COLUMN = 2  # axis of the result's coordinates
_UNROLLED = 4  # steps


@dataclass(frozen=True, slots=True)
class _Products:
    """A stack with its operands as they are in memory."""

    stack: Stack
    rows_from: Matrices
    columns_from: Matrices
    written: TensorSpec
    batch: tuple[int, ...]  # axes of c
    row: Axis  # of c

    @classmethod
    def of(cls, op: FusedOp) -> _Products:
        stack, written = Stack.of(op), written_tensor(op)
        a, b = (Matrices(side) for side in stack.operands)
        row = Axis(stack.rows, stack.op.c.rank - (1 if stack.swapped else 2))
        return cls(stack, a, b, written, batch_axes(op, written), row)

    def joined(self, op: FusedOp) -> _Products:
        """One product, where all of the stack share the columns' matrix and the rows of one follow those of another."""
        if not self.batch or any(self.columns_from.spec.extents[j] > 1 for j in self.batch):
            return self
        if any(self.rows_from.spec.extents[j] != self.extents[j] for j in self.batch):
            return self
        axes = in_memory_order(self.written, (*self.batch, *([self.row.logical] if self.row.size > 1 else [])))
        rows, space = self.rows_from.joined(axes), joined(op, self.written, axes)
        if rows is None or space.rank != 1:
            return self
        return replace(self, rows_from=rows, batch=(), row=space.axes[0])

    @property
    def extents(self) -> tuple[int, ...]:
        return self.stack.op.c.extents

    def sizes(self, op: FusedOp) -> Sizes:
        """As the choice of a tile sees them."""
        depth = -(-self.stack.depth // (ROW // self.rows_from.size))
        front_only, most = op.uses.front_only, self.stack.op.c.elements
        whole = [t for t in (*op.inputs, *op.outputs) if t.uid not in front_only and t.elements >= most]
        result = sum(ELEMENTS[t.data_type].bytes for t in whole) or 1
        unit = PANEL if self.columns_from.is_across and not self.columns_from.is_copied else 1
        groups = stacked(self.extents, self.batch)
        sets = 2 if promotion_interval(self.rows_from.spec.data_type) else 1
        return Sizes(
            products=((self.row.size, depth),),
            columns=self.stack.columns,
            groups=groups,
            column_unit=unit,
            result_bytes=result,
            sets=sets,
            bytes_read=self.stack.op.a.bytes + self.stack.op.b.bytes,
            may_take_turns=self.rows_from.spec.data_type is DataType.FLOAT,  # with 16 bits power is what counts
        )

    def space(self, op: FusedOp) -> IndexSpace:
        """The result's coordinates: those of a convolution's, see epilogue_store.cuh."""
        rank = len(self.extents)
        stack = batch_space(op, self.written).axes[0] if self.batch else Axis(1, 0)
        column = Axis(self.stack.columns, rank - (2 if self.stack.swapped else 1))
        none = Axis(1, 0)
        axes = (none, stack, column, none, none, self.row)
        return IndexSpace(self.extents, axes)


@memoize
def _products(op: FusedOp) -> _Products:
    return _Products.of(op)


@memoize
def _joined(op: FusedOp) -> _Products:
    return _products(op).joined(op)


@memoize
def _sizes(op: FusedOp) -> Sizes:
    """The products as the choice of a tile sees them."""
    kept, n = _of_stack(op), _counted(op)
    read = sum([t.bytes for t in op.main.inputs().values()])
    if kept.groups:
        return kept._replace(
            groups=kept.groups * n, bytes_read=read, are_alone=_begin_between(op, 2), are_pairs=_begin_between(op, 4)
        )
    ((rows, depth),) = kept.products
    few = rows * n if rows * n < LARGEST else 0
    return kept._replace(
        products=((rows * n, depth),),
        groups=1,
        bytes_read=read,
        few_rows=few,
        are_alone=_begin_between(op, 2),
        are_pairs=_begin_between(op, 4),
    )


def _begin_between(op: FusedOp, count: int) -> bool:
    """Whether so many neighbours do not always begin at a multiple of their size."""
    result = op.outputs[0]
    return any(
        stride % count for stride, size in zip(result.strides, result.dims, strict=True) if size > 1 and stride != 1
    )


@memoize_for_images
def _of_stack(op: FusedOp) -> Sizes:
    """What the length of the counted axis does not change, of one; no groups where that is rows, or among them."""
    products, n = _joined(op), _counted(op)
    sizes = products.sizes(op)
    if products.batch:
        return sizes._replace(groups=sizes.groups // n)
    ((rows, depth),) = sizes.products
    return sizes._replace(products=((rows // n, depth),), groups=0)


def _counted(op: FusedOp) -> int:
    """Along the axis that ``images_of`` does not look at, where it knows the product."""
    assert isinstance(op.anchor, Matmul)
    return 1 if images_of(op) is None else op.anchor.c.dims[counted_axis(op.anchor)]


@memoize_for_images
def _is_read_as_it_lies(op: FusedOp) -> bool:
    """Whether neither operand is computed ahead or copied."""
    products = _products(op)
    operands = products.rows_from, products.columns_from
    return not any(op.leading_to(m.spec) or m.is_copied for m in operands)


def _result_space(op: FusedOp) -> IndexSpace:
    return _joined(op).space(op)


class _Maps(NamedTuple):
    """Of the operands of rows and columns, each with the axis of its sizes that is counted; None: neither is."""

    rows: TensorMap
    columns: TensorMap
    counted: tuple[int | None, int | None] = (None, None)

    @classmethod
    def of(cls, products: _Products, tile: Tile, held: int, filled: int) -> _Maps:
        """``filled``: rows of a tile that are copied."""
        b, batch = products.columns_from, products.batch
        columns = b.permuted_map(tile.bn, held) if b.is_permutable(batch) else b.map(tile.bn, batch)
        return cls(products.rows_from.map(filled, batch), columns)

    def times(self, n: int) -> _Maps:
        """Of so many in place of one."""
        rows, columns = (
            one if axis is None else resized(one, (*one.sizes[:axis], one.sizes[axis] * n, *one.sizes[axis + 1 :]))
            for one, axis in zip((self.rows, self.columns), self.counted, strict=True)
        )
        return _Maps(rows, columns)


@memoize_for_images
def _maps_of_one(op: FusedOp, tile: Tile, held: int, filled: int) -> _Maps:
    """Of operands as they lie, where the counted axis has one step."""
    products, n = _joined(op), _counted(op)
    maps = _Maps.of(products, tile, held, filled)
    if n == 1:
        return maps
    rows, columns = (
        m.axis_in_map(0, products.batch) if products.batch and m.spec.extents[0] == n else None
        for m in (products.rows_from, products.columns_from)
    )
    if not products.batch:  # the counted axis is one of rows
        rows = products.rows_from.axis_in_map(None, ())
    of_one = [
        m if axis is None else resized(m, (*m.sizes[:axis], m.sizes[axis] // n, *m.sizes[axis + 1 :]))
        for m, axis in ((maps.rows, rows), (maps.columns, columns))
    ]
    return _Maps(of_one[0], of_one[1], (rows, columns))


@memoize_for_images
def _products_of_images(op: FusedOp) -> _Products:
    """Of some length of the counted axis."""
    return _joined(op)


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    steps = LaunchSequence(op, device)
    is_plain = _is_read_as_it_lies(op)
    products = _products_of_images(op) if is_plain else _staged(_products(op), op, steps)
    a, b = products.rows_from, products.columns_from
    sizes = _sizes(op) if is_plain else products.sizes(op)
    choice = choose(sizes, device, knobs)
    tile, layout = choice.tile, Layout.of(sizes, *sizes.sides(choice.tile))
    is_split = choice.parts > 1
    parameters = Parameters(steps.workspace_offsets)
    compute = COMPUTE_TYPE[products.stack.op.compute_type]
    is_permuted = b.is_permutable(products.batch)
    widest = max([ELEMENTS[t.data_type].bytes for t in op.outputs])
    held = _COLUMNS_OF_A_THREAD // 2 if is_permuted and widest > 2 else _COLUMNS_OF_A_THREAD
    filled = tile.bm if a.is_across else sizes.rows_filled(tile)
    of_one = _maps_of_one(op, tile, held, filled).times(_counted(op)) if is_plain else None
    maps = of_one or _Maps.of(products, tile, held, filled)
    parameters.maps("im2col_map", [(a.spec, maps.rows)])
    parameters.maps("dense_map", [(b.spec, maps.columns)])

    sums = 0 if is_split else tile.sums
    space = (_result_space,) if is_plain else products.space(op)
    ending = epilogue_of(steps, parameters, space, _COLUMN, held, compute, sums=sums)
    _describe(parameters, op, products, sizes, layout)
    parameters.integer("raster_width", _band(tile, device, layout))
    adding = Adding(layout.tiles * tile.bm * tile.bn, choice.parts)
    adding.describe(parameters, steps, compute)
    parameters.integer("trigger_early", int(layout.tiles < device.sm_count and not is_split))

    multiplying, copying = tile.registers
    name = f"matmul__hopper_{tile.name}x{choice.stages}{'_split' if is_split else ''}__{op.name}"

    def write() -> KernelText:
        return kernel_text(
            name,
            [
                *("pdl.cuh", "hopper_pipeline.cuh", "conv_work_tile.cuh", "epilogue_store.cuh", "gemm_producer.cuh"),
                *(*PARTS_FILES, adding.file, "hopper_no_residual.cuh", "hopper_gemm.cu"),
                *(["split_k_reduce.cu"] if is_split else []),
            ],
            parameters=parameters.text,
            functions=[
                *ending.functions,
                wgmma_ss_text(a.spec.data_type, b.spec.data_type, tile.bn, a.is_across, b.is_across),
            ],
            constants={
                "TILE_M": tile.bm, "TILE_N": tile.bn, "STAGES": choice.stages,
                "CONSUMER_WARPGROUPS": tile.sharers, "PINGPONG_GROUPS": tile.teams, "LOADED_ROWS": filled,
                "CTAS_PER_SM": tile.blocks,
                "CONSUMER_REGS": multiplying, "PRODUCER_REGS": copying,
                "WGRAD": False, "SWAP_AB": False, "FILTER_MN_MAJOR": False,
                "A_MN_MAJOR": a.is_across, "B_MN_MAJOR": b.is_across,
                "RESIDUES": 1, "SPATIAL": 1, "SPLIT_K": is_split,
                **adding.constants,
                "PERMUTE_N": is_permuted,
                "VEC_N": columns_held(held if is_permuted else 0, ending.width),
                "VEC_WIDTH": ending.width, "UNROLL": _UNROLLED,
                "PROMOTION_INTERVAL": promotion_interval(a.spec.data_type),
                "Element": STORAGE[a.spec.data_type], "Accum": compute,
            },
        )  # fmt: skip

    text = text_of_images(op, ending, ("matmul", tile, choice.stages, filled, *adding.about), write)
    packed = parameters.pack()
    blocks = min(layout.tiles * choice.parts, tile.blocks * device.sm_count)
    shared = choice.stages * (tile.stage_bytes + 16) + tile.turn_bytes
    threads = 128 * (tile.consumers + 1)
    steps.add(Launch(text, "hopper_gemm", (blocks, 1, 1), threads, packed, shared, starts_early=True))
    if is_split:
        steps.add(adding.launch(text, packed))
    return steps.kernel(name)


def _staged(products: _Products, op: FusedOp, steps: LaunchSequence) -> _Products:
    """With operands that launches compute or copy."""
    in_memory = [
        Matrices(replace(m.side, spec=staged(steps, m.spec))) for m in (products.rows_from, products.columns_from)
    ]
    a, b = (m.prepared(steps) for m in in_memory)
    return replace(products, rows_from=a, columns_from=b).joined(op)


def _describe(parameters: Parameters, op: FusedOp, products: _Products, sizes: Sizes, layout: Layout) -> None:
    """Fields of gemm_producer.cuh and conv_work_tile.cuh; what only a convolution has counts nothing."""
    ((rows, depth),) = sizes.products
    missing = (1,) * (MOST_BATCH_AXES - len(products.batch))
    batch, shared_a, shared_b = _stacked(op, products)
    parameters.table({
        "batch": [*missing, *batch], "broadcast_a": [*missing, *shared_a], "broadcast_b": [*missing, *shared_b],
        "tiles": layout.tiles, "tiles_n": layout.across, "columns": sizes.columns, "channels": products.stack.depth,
        "channel_blocks": 1, "tap_blocks": 0, "tap_stride": 0, "image_pixels": rows, "flat_pixels": 1,
        "first_tile": (0,), "tiles_m": layout.down, "rows": (rows,), "k_tiles": (depth,), "first_filter_tap": (0,),
        "pixels": (1, 1, rows), "out_stride": (1, 1, 1), "taps": (1, 1, 1),
    })  # fmt: skip
    parameters.rows(_UNUSED)


def _stacked(op: FusedOp, products: _Products) -> tuple[list[int], list[int], list[int]]:
    """Products along each batch axis, and how many neighbours one matrix of either operand serves there."""
    assert isinstance(op.anchor, Matmul)
    c, a, b = (t.extents for t in (op.anchor.c, op.anchor.a, op.anchor.b))
    if products.stack.swapped:
        a, b = b, a
    batch = products.batch
    return [c[j] for j in batch], [c[j] // a[j] for j in batch], [c[j] // b[j] for j in batch]


_UNUSED_FIELDS = ("out_start", "lower_corner", "tap_origin", "traversal_stride", "dilation", "filter_tap_stride")
_UNUSED = Table.of(dict.fromkeys(_UNUSED_FIELDS, (0, 0, 0)))  # what only a convolution has


def _band(tile: Tile, device: DeviceSpec, layout: Layout) -> int:
    """Rows of tiles that are walked side by side: what blocks read at a time is nearly a square, so that most of it
    comes from the cache.
    """
    return max(1, min(max(layout.down), round(sqrt(device.sm_count * tile.blocks * tile.bn / tile.bm))))


_BEYOND_CACHE = 1.05  # of 8,192 cubed, where neither operand stays in the second level of cache


def _cost(task: Task, knobs: Knobs) -> Cost:
    op = task.op
    choice = choose(_sizes(op), task.device, knobs)
    is_beyond = min([t.bytes for t in op.main.inputs().values()]) > task.device.cache_bytes
    seconds = choice.seconds * (_BEYOND_CACHE if is_beyond else 1.0)
    cost = device_cost(task, seconds + choice.idle + other_seconds(task))
    if choice.idle:
        cost = cost.plus({"idle": -choice.idle})
    if _is_read_as_it_lies(op):
        return cost
    operands = _joined(op).rows_from, _joined(op).columns_from
    copied = [m.spec.bytes for m in operands if op.leading_to(m.spec) or m.is_copied]
    return cost.plus({"copies": sum(copying_seconds(size, task.device) for size in copied)} if copied else {})


_COMMON: dict[str, Any] = {
    "cost": _cost,
    "generate": generate,
    "knobs": (TILE, STAGES, PARTS),
    "frugal": {KnobType.SPLIT_K: 1},
}
ENGINE = cuda_engine(
    id=55,
    name="cuda_hopper_matmul",
    summary="matrix products of 16-bit floats and bytes on the tensor cores of compute capability 9.0",
    needs=matmul_needs("cuda_hopper_matmul", EXACT_PAIRS),
    **OF_EXACT,
    **_COMMON,
)
ENGINE_TF32 = cuda_engine(
    id=59,
    name="cuda_hopper_matmul_tf32",
    summary="fp32 matrix products on the same tensor cores, operands rounded to TF32; only where that is allowed",
    needs=matmul_needs("cuda_hopper_matmul_tf32", TF32_PAIRS),
    **OF_TF32,
    **_COMMON,
)
ENGINE_FP8 = cuda_engine(
    id=65,
    name="cuda_hopper_matmul_fp8",
    summary="fp8 matrix products on the same tensor cores, which keep 14 digits of 128 products; only where allowed",
    needs=matmul_needs("cuda_hopper_matmul_fp8", FP8_PAIRS),
    **OF_FP8,
    **_COMMON,
)
ENGINE_FP8_FAST = cuda_engine(
    id=66,
    name="cuda_hopper_matmul_fp8_fast",
    summary="the same where the compute type is FAST_FLOAT_FOR_FP8, which allows it",
    needs=matmul_needs("cuda_hopper_matmul_fp8_fast", FP8_PAIRS, DataType.FAST_FLOAT_FOR_FP8),
    **OF_FP8_FAST,
    **_COMMON,
)

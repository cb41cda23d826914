"""Engine ``cuda_softmax``: a softmax, or log-softmax, with pointwise operations before and after it.

The kernel reads memory once if the threads of a CTA can hold their rows in registers or in shared memory, also if
vectors do not fit short rows (softmax_runs.py). Longer rows are read three times, by one CTA each or by the whole
device (softmax_split.py). The operations keep the graph's order, so virtual tensors round as in separate kernels;
softmax_passes.py assigns them to passes: before the first reduction, between the two, and after the second, on elements
and on rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphdnn.cuda.nvrtc import KernelText
from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.codegen.cost import memory_cost
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch, early
from graphdnn.engines.cuda.codegen.parameters import Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import gen_index_axes
from graphdnn.engines.cuda.codegen.source import include, kernel_text
from graphdnn.engines.cuda.reduction.row_threads import Rows, Tile, held, held_tall, passed, rows_of, rows_text
from graphdnn.engines.cuda.softmax.softmax_functions import Functions
from graphdnn.engines.cuda.softmax.softmax_passes import Stages
from graphdnn.engines.cuda.softmax.softmax_runs import NOTHING_MOVES, Runs, runs_of
from graphdnn.engines.cuda.softmax.softmax_split import LAUNCHES, generate_divided, is_worth_dividing
from graphdnn.engines.engine import Cost, Knobs, Task, needs_rule
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.tensors import TensorSpec

_IN_FLIGHT = 32  # bytes of a thread in flight to shared memory
_OTHER_SHARED = 2048  # bytes of shared memory that a row cannot use
_MOST_THREADS, _FEWER_THREADS, _MOST_BLOCKS = 1024, 512, 3  # of CTAs with a row in shared memory; CTAs of an SM


def generate_softmax(op: FusedOp, device: DeviceSpec) -> DeviceKernel:
    stages = Stages(op)
    rows = _rows(stages)
    runs = runs_of(stages, rows)
    fitting = _held(stages, rows, device) if runs is None else (runs.rows, runs.tile)
    shared = runs.shared if runs else 0 if fitting else _shared_bytes(stages, rows, device)
    if fitting is None and not shared and _is_divided(stages, rows, device):
        return generate_divided(stages, device)
    tile_rows, tile = fitting or (rows, _shared_tile(shared, rows, device) if shared else passed(rows))
    is_held = fitting is not None
    text, parameters = _text(stages, tile_rows, tile, is_held=is_held, is_shared=not is_held and shared > 0, runs=runs)
    blocks = -(-tile_rows.row_vecs // tile.columns)
    launch = Launch(text, "softmax", (blocks, 1, 1), tile.threads, parameters.pack(), shared)
    return DeviceKernel(text.name, (early(launch, device),))


def _held(stages: Stages, rows: Rows, device: DeviceSpec) -> tuple[Rows, Tile] | None:
    """A CTA that has its rows in registers. None if no CTA can, or if rows are so long that a multiprocessor fits
    several CTAs with rows in shared memory but one with rows in registers: several CTAs overlap loads and stores.
    """
    fitting = held_tall(rows, stages.bytes) or held(rows, stages.bytes)
    if fitting is None or fitting[1].threads < _MOST_THREADS:
        return fitting
    shared = _shared_bytes(stages, rows, device)
    return None if shared and _shared_tile(shared, rows, device).blocks > 1 else fitting


def _shared_bytes(stages: Stages, rows: Rows, device: DeviceSpec) -> int:
    """Bytes of a row in shared memory after the first pass, if later passes can compute the other values again; 0 if
    the row does not fit, or if contiguous elements belong to different rows.
    """
    size = rows.vecs_per_row * _held_bytes(stages.kept_first, rows.width)
    return size if rows.along and size <= device.shared_memory - _OTHER_SHARED else 0


def _shared_tile(shared: int, rows: Rows, device: DeviceSpec) -> Tile:
    """CTAs with a row of ``shared`` bytes each. CTAs are smaller if several share a multiprocessor, so that their loads
    and stores overlap.
    """
    blocks = min(_MOST_BLOCKS, device.shared_memory // (shared + _OTHER_SHARED), rows.row_vecs // device.sm_count)
    return Tile(_FEWER_THREADS, 1, 1, blocks) if blocks > 1 else Tile(_MOST_THREADS, 1, 1)


def _held_bytes(kept: Sequence[TensorSpec], width: int) -> int:
    """Bytes of the struct Held for a vector, in the compiler's layout."""
    largest, end = 1, 0
    for size in (ELEMENTS[t.data_type].bytes for t in kept):
        end = -(-end // size) * size + size * width
        largest = max(largest, size)
    return -(-end // largest) * largest


def _is_divided(stages: Stages, rows: Rows, device: DeviceSpec) -> bool:
    return is_worth_dividing(stages, -(-rows.row_vecs // passed(rows).columns), device)


def _rows(stages: Stages) -> Rows:
    op, first = stages.op, stages.first
    rows = stages.row_values()
    read = [t for t in op.inputs if t.extents == first.x.extents and not (t.is_by_value or t.is_constant)]
    main = read[0] if read else next((t for t in op.outputs if t.uid not in rows), first.x)
    axes = [i for i, (x, y) in enumerate(zip(first.x.extents, first.y.extents, strict=True)) if y == 1 and x != 1]
    return rows_of(first.x.extents, axes, main, [*op.inputs, *op.outputs], (), gen_index_axes(op.operations))


def _text(
    stages: Stages, rows: Rows, tile: Tile, *, is_held: bool, is_shared: bool, runs: Runs | None
) -> tuple[KernelText, Parameters]:
    parameters = Parameters()
    generator = Functions(stages, rows, parameters, is_held, is_shared, runs)
    moving = [NOTHING_MOVES] if runs is None else [include("softmax_runs.cuh"), runs.text(stages, parameters)]
    functions = [*rows_text(), include("softmax.cuh"), *moving, *generator.all()]
    rows.parameters(parameters)
    kept = "_runs" if runs else "" if is_held else "_shared" if is_shared else "_passes"
    name = f"softmax__{rows.text()}_{tile.text()}{kept}__{stages.op.name}"
    constants = {
        **rows.constants(),
        **tile.constants(),
        **tile.bounds(),
        "RUNS": runs is not None,
        "HELD": is_held,
        "SHARED": is_shared,
        "LOADS_IN_FLIGHT": max(4, _IN_FLIGHT // (rows.width * rows.main_bytes)) if is_shared else 4,
        "STAGES": len(stages.reductions),
        "EXACT": tile.threads_per_row * tile.steps == rows.vecs_per_row,
    }
    text = kernel_text(name, ["softmax.cu"], parameters=parameters.text, functions=functions, constants=constants)
    return text, parameters


def _cost(task: Task, knobs: Knobs) -> Cost:
    stages = Stages(task.op)
    rows = _rows(stages)
    if held(rows, stages.bytes) is not None or _shared_bytes(stages, rows, task.device):
        return memory_cost(task)
    if _is_divided(stages, rows, task.device):
        return memory_cost(task, len(stages.reductions) * sum(t.bytes for t in task.op.inputs), launches=LAUNCHES)
    return memory_cost(task, len(stages.reductions) * sum(t.bytes for t in task.op.inputs))


ENGINE = cuda_engine(
    id=32,
    name="cuda_softmax",
    summary="softmax, log-softmax and their gradients, in one pass over memory if a row fits into a CTA",
    needs=(needs_rule("cuda_softmax.operation", "softmax", "softmax_backward"),),
    cost=_cost,
    generate=lambda op, device, knobs: generate_softmax(op, device),
    is_general=True,
)

"""Rows whose lengths are no multiples of a vector, as a few classes at each pixel: a CTA copies its rows in one run.

Threads that access such rows element by element would read each sector of memory several times, and store parts of
sectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.codegen.parameters import STORAGE, Parameters
from graphdnn.engines.cuda.reduction.row_threads import Rows, Tile, power_above
from graphdnn.engines.cuda.softmax.softmax_passes import Stages
from graphdnn.enums import DataType
from graphdnn.tensors import TensorSpec

_ACCESS = 16  # bytes
_SHORT = 64  # bytes that the threads of a row would read at once; fewer bytes do not fill sectors
_THREADS = 128
_ELEMENTS = 16  # of a thread
_ALONE = 32  # of a thread with a row of its own
_LONGEST = 256  # vectors of a row
_MOST_SHARED = 48 * 1024  # bytes

_MOVER = "__device__ __forceinline__ void {}(const Params& p) {{\n{}}}\n"
NOTHING_MOVES = _MOVER.format("bring_runs", "") + _MOVER.format("send_runs", "")


@dataclass(frozen=True, slots=True)
class Runs:
    """Tensors that are copied in and out, each with the offset of its run in shared memory."""

    rows: Rows
    tile: Tile
    brought: Mapping[int, int]  # by uid
    sent: Mapping[int, int]
    shared: int

    def text(self, stages: Stages, parameters: Parameters) -> str:
        """The functions that copy runs in and out."""
        op = stages.op
        start = "(long long)blockIdx.x * COLUMNS * p.elements"
        bodies: dict[str, list[str]] = {"bring_runs": [], "send_runs": []}
        for i, spec in enumerate((*op.inputs, *op.outputs)):
            for places, body in ((self.brought, "bring_runs"), (self.sent, "send_runs")):
                if spec.uid not in places:
                    continue
                is_output, run = body == "send_runs", f"run_of<{STORAGE[spec.data_type]}>({places[spec.uid]})"
                parameters.tensor(f"run{i}", spec, is_output=is_output)
                ends = (run, f"p.run{i} + {start}") if is_output else (f"p.run{i} + {start}", run)
                bodies[body].append(f"    move_run({', '.join(ends)}, run_elements(p));\n")
        return "".join(_MOVER.format(name, "".join(lines)) for name, lines in bodies.items())

    def read(self, spec: TensorSpec) -> str:
        return f"run_of<{STORAGE[spec.data_type]}>({self.brought[spec.uid]})[place_of(p, coord) + e]"

    def written(self, spec: TensorSpec) -> str:
        return f"(run_of<{STORAGE[spec.data_type]}>({self.sent[spec.uid]}) + place_of(p, coord))"


def runs_of(stages: Stages, rows: Rows) -> Runs | None:
    """None if rows are read efficiently without runs."""
    op, length = stages.op, rows.length
    most = _ALONE if length <= _ALONE else _ELEMENTS
    threads_per_row = power_above(-(-length // most))
    fills_nothing = length * rows.main_bytes < _ACCESS  # barriers would take longer than memory
    is_short = (
        not fills_nothing
        and rows.width * rows.main_bytes < _ACCESS
        and threads_per_row * rows.width * rows.main_bytes < _SHORT
    )
    if (
        not rows.along
        or rows.row_axes != 1
        or rows.space.rank != 2
        or not is_short
        or not 1 < rows.vecs_per_row <= _LONGEST
    ):
        return None
    extents = stages.first.x.extents
    streamed = [t for t in (*op.inputs, *op.outputs) if t.extents == extents and not (t.is_by_value or t.is_constant)]
    if any(not _is_run(t, rows) for t in streamed):
        return None
    columns = _THREADS // threads_per_row
    offsets, at = {}, 0
    for spec in streamed:
        offsets[spec.uid] = at
        at += columns * length * ELEMENTS[spec.data_type].bytes
    if at > _MOST_SHARED or rows.count < columns:
        return None
    tile = Tile(threads_per_row, columns, -(-length // threads_per_row), 1)
    sent = {t.uid for t in op.outputs}
    return Runs(
        rows.narrowed(1),
        tile,
        {uid: place for uid, place in offsets.items() if uid not in sent},
        {uid: place for uid, place in offsets.items() if uid in sent},
        at,
    )


def _is_run(spec: TensorSpec, rows: Rows) -> bool:
    """Whether rows follow each other without gaps."""
    if spec.vector_count != 1 or spec.data_type is DataType.BOOLEAN or spec.byte_alignment % _ACCESS:
        return False
    return rows.space.strides(spec) == (rows.length, 1)

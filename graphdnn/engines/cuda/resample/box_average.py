"""Window averages along a strided axis, by resample_box.cu: TMA loads x.

Local response normalization over the channels of an NCHW image is an example: each window has five channels, and their
planes are far apart in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from graphdnn.cuda.tensor_map import TensorMap
from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.codegen.fast_division import magic
from graphdnn.engines.cuda.codegen.index_space import IndexSpace, is_addressable
from graphdnn.engines.cuda.codegen.launch import Launch
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.codegen.vectors import width_for
from graphdnn.engines.cuda.resample.pool import Moving, Pool, pads_zeros
from graphdnn.enums import DataType, ResampleMode
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ResampleForward
from graphdnn.tensors import TensorSpec

VEC_WIDTH, _THREADS_PER_ROW = (
    4,
    16,
)  # contiguous elements of a thread, and threads side by side: rows of 128 or 256 bytes
_ROWS, _SPAN = 32, 8  # of a CTA, of a thread
_THREADS = _THREADS_PER_ROW * (_ROWS // _SPAN)
_BLOCKS = 16  # of a multiprocessor
_UNIT = 16  # bytes; rows and addresses are multiples
_MOST_OUTER = 2  # axes besides those of the TMA box
_SOURCES = (DataType.HALF, DataType.BFLOAT16, DataType.FLOAT)


@dataclass(frozen=True, slots=True)
class Box:
    """``source``: the tensor that TMA loads. It has the layout of x, and the prologue computes x from it."""

    pool: Pool
    source: TensorSpec
    outer: tuple[int, ...]  # coordinates besides those of the TMA box, innermost first

    @property
    def row(self) -> Moving:
        return self.pool.row

    @property
    def space(self) -> IndexSpace:
        return self.pool.space(self.source.extents, is_input=True)


def box_of(
    anchor: ResampleForward,
    pool: Pool,
    read: Sequence[TensorSpec],
    written: Sequence[TensorSpec],
    device: DeviceSpec,
) -> Box | None:
    """None if the kernel does not support the operation. ``read``: tensors that the prologue reads; ``written``:
    tensors the epilogue reads and writes.
    """
    row, column, spec = pool.row, pool.column, anchor.spec
    streamed = {t.uid: t for t in (*read, *written) if not (t.is_by_value or t.is_constant)}
    sources = [t for t in read if t.uid in streamed]
    if (
        device.compute_capability != (9, 0)
        or spec.mode is not ResampleMode.AVGPOOL_INCLUDE_PADDING
        or COMPUTE_TYPE[anchor.compute_type] != "float"
        or anchor.beta != 0.0
        or not pads_zeros(anchor)
        or pool.along
        or row.window == 1
        or row.stride != 1
        or column.window != 1
        or column.y.size != 1
        or len(streamed) != 2
        or len(sources) != 1
    ):
        return None
    (source,) = sources
    outer = tuple(j for j in range(len(pool.axes) - 2, -1, -1) if pool.axes[j] not in (row, column))
    if source.data_type not in _SOURCES or source.extents != anchor.x.extents or not is_addressable(source):
        return None
    if len(outer) > _MOST_OUTER or max(1, source.byte_alignment) % _UNIT:
        return None
    box = Box(pool, source, outer)
    *strides, last = box.space.strides(source)
    size = ELEMENTS[source.data_type].bytes
    lies_well = last == 1 and all(
        s > 0 and s * size % _UNIT == 0 for j, s in enumerate(strides) if box.space.sizes[j] > 1
    )
    space = pool.space(anchor.y.extents, is_input=False)
    results = [t for t in written if t.uid in streamed]
    fits = width_for(box.space, [source]) % VEC_WIDTH == 0 and width_for(space, results) % VEC_WIDTH == 0
    return box if lies_well and fits else None


def boxed(op: FusedOp, parameters: Parameters, functions: Sequence[str], box: Box, *, has_fast: bool) -> Launch:
    """``functions``: the prologue and the epilogue, which receive the elements of the source."""
    pool, space = box.pool, box.space
    anchor = op.anchor
    assert isinstance(anchor, ResampleForward)
    row, size = pool.place(box.row), ELEMENTS[box.source.data_type].bytes
    rows, wide = box.row.y.size, space.sizes[-1]
    tiles = list(space.sizes)
    tiles[row], tiles[-1] = -(-rows // _ROWS), -(-wide // (VEC_WIDTH * _THREADS_PER_ROW))
    strides = space.strides(box.source)
    taken = (len(tiles) - 1, row, *box.outer)
    box_rows = _ROWS + box.row.window - 1
    image = TensorMap(
        box.source.data_type,
        tuple(space.sizes[j] for j in taken),
        tuple(strides[j] * size or _UNIT for j in taken[1:]),
        box=(VEC_WIDTH * _THREADS_PER_ROW, box_rows, *(1 for _ in box.outer)),
        row=0,
    )
    parameters.maps("box", [(box.source, image)])
    parameters.integers("tiles", tiles)
    parameters.integers("magic", [magic(n) for n in tiles])
    parameters.integer("image", box.row.x.size)
    parameters.integer("outputs", rows)
    parameters.integer("wide", wide)
    text = kernel_text(
        f"resample_average__box_{box.row.window}__{op.name}",
        ["resample_box.cu"],
        parameters=parameters.text,
        functions=functions,
        constants={
            "RANK": len(tiles), "AXIS": row,
            "OUTERS": len(box.outer), "OUTER": next(iter(box.outer), 0), "OUTERMOST": box.outer[-1] if box.outer else 0,
            "WINDOW": box.row.window, "BEFORE": box.row.before,
            "VEC_WIDTH": VEC_WIDTH, "THREADS_PER_ROW": _THREADS_PER_ROW, "ROWS": _ROWS, "SPAN": _SPAN,
            "THREADS": _THREADS, "BLOCKS": _BLOCKS,
            "ALL_ROWS": rows % _SPAN == 0, "WHOLE": rows % _ROWS == 0 and wide % (VEC_WIDTH * _THREADS_PER_ROW) == 0,
            "FAST": has_fast,
            "Source": STORAGE[box.source.data_type],
        },
    )  # fmt: skip
    shared = box_rows * VEC_WIDTH * _THREADS_PER_ROW * size + 8
    return Launch(text, "resample_box", (prod(tiles), 1, 1), _THREADS, parameters.pack(), shared)


def prologue(op: FusedOp, parameters: Parameters, box: Box) -> str:
    """Computes x from the elements of the source."""
    assert isinstance(op.anchor, ResampleForward)
    program = Program(op, parameters, box.space, "x", width=VEC_WIDTH)
    program.bind(box.source, "raw[e]")
    program.apply(op.prologue)
    program.copy_widened_to("value", op.anchor.x, "float")
    return program.function(
        "prologue", f"const {STORAGE[box.source.data_type]} (&raw)[{VEC_WIDTH}], float (&value)[{VEC_WIDTH}]"
    )

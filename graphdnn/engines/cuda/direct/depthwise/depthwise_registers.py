"""Constants and parameters that the register-only depthwise kernels share: fprop and dgrad with unit stride.

A thread (depthwise_thread.cuh) owns a few channels of a few columns. The kernels (depthwise_rows.py,
depthwise_strips.py) differ in their rows. The column stride is a compile-time constant, so another number of channels
compiles another kernel, but another batch, height or width does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from graphdnn.engines.cuda.codegen.fast_division import magic
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program
from graphdnn.engines.cuda.codegen.source import include, kernel_text
from graphdnn.engines.cuda.codegen.vectors import width_for
from graphdnn.engines.cuda.direct.direct_access import apart, image_space
from graphdnn.engines.cuda.direct.direct_operands import PackedFilter, Sides, safe_places
from graphdnn.fusion.fused_graph import FusedOp

COUNTED = 2**31  # the most threads, and elements, that a kernel counts
_LONGEST = 7  # taps along an axis
_ACROSS = 3  # the columns' axis; its stride depends on the number of channels only


class Tile(Protocol):
    """A work partition, which the engine's cost model ranks."""

    @property
    def v(self) -> int: ...  # channels of a thread
    @property
    def tw(self) -> int: ...  # columns
    @property
    def rows(self) -> int: ...
    @property
    def threads(self) -> int: ...  # threads of a CTA
    @property
    def blocks(self) -> int: ...  # CTAs of an SM that the register limit allows


def serves(sides: Sides) -> bool:
    shape, p = sides.shape, sides.shape.problem
    return (
        shape.group_in == shape.group_out == 1
        and set(p.stride) == {1}
        and max(p.filter) <= _LONGEST
        and p.n * p.groups * shape.rows * shape.columns < COUNTED
        and pitch(sides) < COUNTED
    )


def pitch(sides: Sides) -> int:
    """The stride of the image's columns in elements."""
    return image_space(sides.roles, sides.image).strides(sides.image)[_ACROSS]


def generate(
    op: FusedOp,
    sides: Sides,
    steps: LaunchSequence,
    tile: Tile,
    kind: str,
    constants: Mapping[str, Any],
    fields: Mapping[str, int],
) -> DeviceKernel:
    """The kernel depthwise_KIND.cu; ``constants`` and ``fields`` are its constants and parameters beside the tile's."""
    roles, shape, p = sides.roles, sides.shape, sides.roles.problem
    dgrad, distances = shape.is_dgrad, apart(p)
    filter = PackedFilter.of(sides, steps)
    compute = COMPUTE_TYPE[roles.op.compute_type]
    parameters = Parameters(steps.workspace_offsets)
    out_space = image_space(roles, sides.output)
    width = min(tile.v, width_for(out_space, steps.epilogue_tensors(), 1))
    body = Program(
        op, parameters, out_space, "t", width=width, vector_axis=1, keeps=True, written=(_ACROSS,), clips="clip_halves"
    )
    steps.finish(body, "acc", compute)

    image_in, image_out = (p.output, p.input) if dgrad else (p.input, p.output)
    lanes, tiles, row_blocks = p.groups // tile.v, -(-shape.columns // tile.tw), -(-shape.rows // tile.rows)
    strides = image_space(roles, sides.image).strides(sides.image)
    parameters.tensor("image", sides.image)
    parameters.tensor("filter", filter.spec)
    parameters.table({"image_n": strides[0], "image_h": strides[2]})
    sign = 1 if dgrad else -1
    parameters.table({
        "in_h": image_in[0], "in_w": image_in[1], "out_h": image_out[0], "out_w": image_out[1],
        "in_row": sign * p.pre_padding[0], "in_column": sign * p.pre_padding[1], "images": p.n,
        "lanes": lanes, "lanes_magic": magic(lanes), "tiles": tiles, "tiles_magic": magic(tiles),
        "row_blocks": row_blocks, "row_blocks_magic": magic(row_blocks), "zero": 0, **fields,
    })  # fmt: skip

    safe = safe_places(sides, 1, tile.tw)
    how = f"{kind}_r{p.filter[0]}s{p.filter[1]}v{tile.v}w{tile.tw}"
    tall = f"{how}h{tile.rows}"
    text = kernel_text(
        # Rows that are a run-time parameter are not part of the name, as all of them share one kernel text.
        f"conv_{roles.direction}__{tall if 'ROWS' in constants else how}__{op.name}",
        [f"depthwise_{kind}.cu"],
        parameters=parameters.text,
        functions=[
            include("clip_halves.cuh"), body.keeping(),
            body.function("epilogue", f"const ColumnOperands& kept, const {compute} (&acc)[{width}]"),
        ],
        constants={
            "R": p.filter[0], "S": p.filter[1], "DILATION_H": distances[0], "DILATION_W": distances[1],
            "DGRAD": dgrad, "FLIP": p.flip, "FILTER_R": filter.strides[2], "FILTER_S": filter.strides[3],
            "FILTER_COPY_ELEMS": filter.chunk(tile.v * p.taps),
            "V": tile.v, "TW": tile.tw, "THREADS": tile.threads, "CTAS_PER_SM": tile.blocks, "VEC_WIDTH": width,
            "WHOLE_COLUMNS": image_out[1] % (tile.tw * distances[1]) == 0,
            "PITCH": strides[_ACROSS], "SAFE_FROM": safe[0], "SAFE_TO": safe[1],
            "Offset": "int" if sides.image.span < COUNTED // 2 else "long long",
            "ImageElement": STORAGE[sides.image.data_type],
            "Filter": STORAGE[filter.spec.data_type],
            "Accum": compute,
            **constants,
        },
    )  # fmt: skip
    blocks = -(-shape.problem.n * row_blocks * tiles * lanes // tile.threads)
    steps.add_early(Launch(text, f"depthwise_{kind}", (blocks, 1, 1), tile.threads, parameters.pack()))
    return steps.kernel(f"conv_{roles.direction}__{tall}__{op.name}")

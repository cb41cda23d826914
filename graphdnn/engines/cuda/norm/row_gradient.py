"""Gradients of norms whose scale changes along rows, in one read (norm_row_gradient).

Each CTA loops over rows and adds their contributions to the gradients of scale and bias. A second launch adds the sums
of the CTAs. None if a row exceeds a CTA's registers, or if scale and bias have other axes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.launch import Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import Parameters
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.norm.norm_operands import Operands
from graphdnn.engines.cuda.reduction.row_threads import Rows, Tile, power_above
from graphdnn.operations import NormBackward

_THREADS, _FEWER_THREADS, _MOST_THREADS = 512, 256, 1024  # of a CTA; for many narrow rows; of a row
_MANY = 2**24  # bytes of x from which on the partial sums of more CTAs are negligible
_WORTH_STEPS = 1.5  # a thread has more elements if that multiplies the concurrent rows by this factor
_ELEMENTS = 8  # of a thread, unless a row needs more to fit into a CTA
_ELEMENT_REGISTERS = 4  # of a two-byte element: two sums, and x and dy of two tiles
_OTHER = 30  # registers of a thread besides its elements
_REGISTERS = 2**16  # of a multiprocessor
_MOST_STEPS = 16  # vectors of a thread
_MOST_REGISTERS = 120  # with more registers the compiler was seen to spill
_COLUMN_BYTES = 32 * 1024  # of shared memory, for the reduction over rows side by side
_COMBINERS = 1024  # threads of a CTA that adds the CTAs' sums of 32 elements
_PLACES = _WARP = 32


@dataclass(frozen=True, slots=True)
class RowGradient:
    """``blocks`` CTAs loop over ``tiles`` of rows."""

    rows: Rows
    tile: Tile
    blocks: int

    def text(self) -> str:
        return f"{self.tile.text()}_walk"

    @property
    def tiles(self) -> int:
        return -(-self.rows.row_vecs // self.tile.columns)

    def launch(
        self,
        steps: LaunchSequence,
        name: str,
        parameters: Parameters,
        functions: Sequence[str],
        constants: Mapping[str, int | bool | str],
    ) -> None:
        rows, tile = self.rows, self.tile
        rows.parameters(parameters)
        parameters.table({"tiles": self.tiles, "blocks": self.blocks})
        parameters.workspace_pointer("partial", str(constants["Compute"]), steps.allocate(self.partial_bytes))
        text = kernel_text(
            name,
            ["norm_row_gradient.cu"],
            parameters=parameters.text,
            functions=functions,
            constants={
                **rows.constants(),
                **tile.constants(),
                **tile.bounds(),
                "EXACT": tile.threads_per_row * tile.steps == rows.vecs_per_row,
                "COMBINERS": _COMBINERS,
                "L1_NO_ALLOCATE": True,
                **constants,
            },
        )
        packed = parameters.pack()
        steps.add_early(Launch(text, "norm_row_gradient", (self.blocks, 1, 1), tile.threads, packed))
        steps.add_early(Launch(text, "norm_parameters", (-(-rows.length // _PLACES), 1, 1), _COMBINERS, packed))

    @property
    def partial_bytes(self) -> int:
        """Bytes of two single-precision sums for each CTA and element of a row."""
        return 2 * 4 * self.blocks * self.rows.length


def row_gradient_of(rows: Rows, operands: Operands, device: DeviceSpec) -> RowGradient | None:
    anchor = operands.anchor
    assert isinstance(anchor, NormBackward)
    x, scale = anchor.x.extents, anchor.scale.extents
    is_of_places = all(scale[a] == (x[a] if a in anchor.axes else 1) for a in range(len(x)))
    if not rows.along or not is_of_places or operands.compute != "float" or rows.count == 1:
        return None
    tile = _tile(rows)
    if tile is None:
        return None
    tiles = -(-rows.row_vecs // tile.columns)
    turns = -(-tiles // (tile.blocks * device.sm_count))
    return RowGradient(rows, tile, -(-tiles // turns))


def _tile(rows: Rows) -> Tile | None:
    """The tile with the most concurrent rows. A thread has few elements, because their sums take registers; it has more
    if that increases the concurrent rows, because CTAs of whole warps divide the registers unevenly.
    """
    is_large = rows.main_bytes <= 2 and rows.count * rows.length * rows.main_bytes >= _MANY
    threads = _FEWER_THREADS if is_large else _THREADS
    best: tuple[int, Tile] | None = None
    for steps in range(max(1, _ELEMENTS // rows.width), _MOST_STEPS + 1):
        threads_per_row = _threads_per_row(-(-rows.vecs_per_row // steps))
        columns = max(1, threads // threads_per_row)
        while columns > 1 and columns * threads_per_row * steps * rows.width * 4 > _COLUMN_BYTES:
            columns //= 2
        of_element = _ELEMENT_REGISTERS + (2 if rows.main_bytes > 2 else 0)
        registers = -(-(steps * rows.width * of_element + _OTHER) // 8) * 8
        blocks = _REGISTERS // (threads_per_row * columns * registers)
        is_possible = 32 <= threads_per_row * columns <= _MOST_THREADS and registers <= _MOST_REGISTERS and blocks
        if is_possible and (best is None or blocks * columns >= _WORTH_STEPS * best[0]):
            best = blocks * columns, Tile(threads_per_row, columns, -(-rows.vecs_per_row // threads_per_row), blocks)
    return None if best is None else best[1]


def _threads_per_row(count: int) -> int:
    """Threads of a row: a power of two within a warp, or whole warps."""
    return power_above(count) if count <= _WARP else -(-count // _WARP) * _WARP

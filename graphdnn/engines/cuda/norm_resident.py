"""Residence: long rows divided among blocks that all run at the same time and keep what they read.

A row that no block holds in registers has to be read twice, once for its statistics
and once to be normalized. Blocks that stay can keep a part of it: in shared memory,
in registers, and what they read last may be in the second level of cache. They wait for
each other in between, which is what a cooperative launch is for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graphdnn.device import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.launch import Launch
from graphdnn.engines.cuda.parameters import STORAGE, Parameters
from graphdnn.engines.cuda.program import Program
from graphdnn.engines.cuda.rows import Rows, Tile, power_above
from graphdnn.engines.cuda.source import kernel_text
from graphdnn.engines.cuda.steps import Steps
from graphdnn.tensors import TensorSpec

_THREADS = 512
_IN_FLIGHT = 128  # bytes of a thread that are on their way
_ROWS = 64  # of a block, where neighbours in memory belong to different ones
_MOST_STEPS = 8  # packs
_ROW_WIDTH = 32  # bytes of each value that a thread knows of its rows
_SYSTEM = 1024 + 64  # bytes of shared memory that a block cannot have, and what alignment takes
_LEAST_SHARE = 0.8  # of the multiprocessors


def stored_text(fields: Mapping[str, TensorSpec]) -> str:
    """What a block keeps of a pack."""
    members = "".join(f"    Pack<{STORAGE[spec.data_type]}, VECTOR> {name};\n" for name, spec in fields.items())
    return f"struct Stored {{\n{members}}};\n"


def _stored_bytes(width: int, kept: Sequence[TensorSpec]) -> int:
    """The size of ``Stored``: each of its packs is aligned to its own, 16 bytes at most."""
    packs = [width * ELEMENTS[spec.data_type].bytes for spec in kept]
    size = 0
    for pack in packs:
        alignment = min(pack, 16)
        size = -(-size // alignment) * alignment + pack
    alignment = min(max(packs), 16)
    return -(-size // alignment) * alignment


def take_text(program: Program) -> str:
    """What reads a pack, with word of whether it will be read again (text/streaming.cuh)."""
    return program.function("take", "Stored& pack, Policy policy").replace(" load<", " policy.load<")


@dataclass(frozen=True, slots=True)
class Residence:
    """``groups`` of steps that a thread reads: ``early`` ones and the last two stay in registers, ``kept`` ones in
    shared memory.
    """

    tile: Tile
    tiles: int
    splits: int
    per_split: int
    groups: int
    early: int
    kept: int
    pack_bytes: int
    shared: int
    read_twice: int  # bytes

    def text(self) -> str:
        return f"resident_{self.tile.text()}"

    def launch(
        self,
        steps: Steps,
        name: str,
        rows: Rows,
        parameters: Parameters,
        functions: Sequence[str],
        direction: str,
        constants: Mapping[str, bool | str],
    ) -> None:
        """``direction``: the file that says what is found of the rows."""
        is_split = self.splits > 1
        rows.parameters(parameters)
        parameters.integer("per_split", self.per_split)
        parameters.integer("groups", self.groups)
        parameters.integer("kept_groups", self.kept)
        parameters.integer("barriers", self.tiles)
        pair = f"Pack<{constants['Compute']}, 2>"
        scratch = {"partial": (pair, self.splits * rows.count * 16), "arrived": ("unsigned int", 4 * self.tiles)}
        for field, (kind, size) in scratch.items():
            if is_split:
                parameters.scratch(field, kind, steps.allocate(size))
            else:
                parameters.nothing(field, kind)
        text = kernel_text(
            name,
            ["next_launch.cuh", "grid_barrier.cuh", direction, "norm_resident.cu"],
            parameters=parameters.text,
            functions=functions,
            constants={
                **rows.constants(),
                **self.tile.constants(),
                **self.tile.bounds(),
                "SPLIT": is_split,
                "EARLY": self.early,
                "STORED_BYTES": self.pack_bytes,
                **constants,
            },
        )
        packed, grid = parameters.pack(), (self.tiles, self.splits, 1)
        if is_split:
            steps.add(Launch(text, "begin_resident", (1, 1, 1), self.tile.threads, packed))
        steps.add(Launch(text, "norm_resident", grid, self.tile.threads, packed, self.shared, is_cooperative=is_split))


def resident(
    rows: Rows, compute_bytes: int, kept_operands: Sequence[TensorSpec], device: DeviceSpec, *, is_plain: bool
) -> tuple[Rows, Residence] | None:
    """``is_plain``: nothing is fused. None where such blocks would not fill the device."""
    if not rows.along:
        rows = rows.narrowed(_ROW_WIDTH // compute_bytes)
    pack_bytes = _stored_bytes(rows.width, kept_operands)
    columns = 1 if rows.along else min(32, power_above(rows.row_packs), max(1, _ROWS // rows.width))
    tile = Tile(_THREADS // columns, columns, max(1, min(_MOST_STEPS, _IN_FLIGHT // 2 // pack_bytes)))
    tiles, turn = -(-rows.row_packs // columns), tile.lanes * tile.steps
    splits = max(1, device.sm_count // tiles)
    # Few rows of many blocks would leave multiprocessors idle, and short ones have nothing to keep.
    if tiles * splits / (-(-tiles // device.sm_count) * device.sm_count) < _LEAST_SHARE:
        return None
    if tile.lanes < rows.row_width or rows.packs < splits * turn or (tiles > device.sm_count and splits > 1):
        return None
    per_split = -(-rows.packs // splits)
    if splits > 1:
        per_split = -(-per_split // tile.lanes) * tile.lanes
    splits = -(-rows.packs // per_split)
    needed = -(-per_split // turn)
    early = min(_early(rows), max(0, needed - 2)) if is_plain else 0
    groups = early + 2 * -(-(needed - early) // 2)
    group_bytes = tile.threads * tile.steps * pack_bytes
    block_rows = columns * rows.row_width
    joined = compute_bytes * tile.threads // 32 * (2 * block_rows + 1)  # by threads, in shared memory
    room = device.shared_memory - _SYSTEM - joined
    kept = min(groups - early - 2, room // group_bytes)
    again = groups - early - 2 - kept
    return rows, Residence(
        tile=tile,
        tiles=tiles,
        splits=splits,
        per_split=per_split,
        groups=groups,
        early=early,
        kept=kept,
        pack_bytes=pack_bytes,
        shared=kept * group_bytes,
        read_twice=again * group_bytes * tiles * splits,
    )


def _early(rows: Rows) -> int:
    """Groups that a thread's registers have room for all the time."""
    return 3 if rows.along else 2 if rows.row_width <= 4 else 1

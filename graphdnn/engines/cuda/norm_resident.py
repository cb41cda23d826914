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
_ROWS = 64  # of a block, where neighbours in memory belong to different ones
_MOST_STEPS = 8  # packs
_STEP_BYTES = 32  # of a group of packs of a thread that arrive by themselves, and twice that of one that it computes
_ROW_WIDTH = 32  # bytes of each value that a thread knows of its rows
_SYSTEM = 1024 + 64  # bytes of shared memory that a block cannot have, and what alignment takes
_LEAST_SHARE = 0.8  # of the multiprocessors
_LEAST_COPY = 4  # bytes of a pack that arrives by itself


def stored_text(fields: Mapping[str, TensorSpec]) -> str:
    """What a block keeps of a pack, and where: the packs of a thread stand THREADS apart."""
    packs = {name: f"Pack<{STORAGE[spec.data_type]}, VECTOR>" for name, spec in fields.items()}
    members = "".join(f"    {pack} {name};\n" for name, pack in packs.items())
    pointers = "".join(f"    {pack}* {name};\n" for name, pack in packs.items())
    starts, before = [], ""
    for name, pack in packs.items():
        starts.append(f"{name}(({pack}*){'(' if before else ''}memory{before}{')' if before else ''} + threadIdx.x)")
        size = f"sizeof({pack})"
        before = f" + PLACES * STEPS * THREADS * ({size}" if not before else before.removesuffix(")") + f" + {size}"
        before += ")"
    put = " ".join(f"{name}[i * THREADS] = pack.{name};" for name in packs)
    get = ", ".join(f"{name}[i * THREADS]" for name in packs)
    return (
        f"struct Stored {{\n{members}}};\n\nstruct Kept {{\n{pointers}\n"
        f"    __device__ __forceinline__ explicit Kept(unsigned char* memory) : {', '.join(starts)} {{}}\n"
        f"    __device__ __forceinline__ void put(int i, const Stored& pack) {{ {put} }}\n"
        f"    __device__ __forceinline__ Stored get(int i) const {{ return {{{get}}}; }}\n}};\n"
    )


def _packs(width: int, kept: Sequence[TensorSpec]) -> list[int]:
    """Bytes of the packs in ``Stored``."""
    return [width * ELEMENTS[spec.data_type].bytes for spec in kept]


def _stored_bytes(packs: Sequence[int]) -> int:
    """The size of ``Stored``: each of its packs is aligned to its own, 16 bytes at most."""
    size = 0
    for pack in packs:
        alignment = min(pack, 16)
        size = -(-size // alignment) * alignment + pack
    alignment = min(max(packs), 16)
    return -(-size // alignment) * alignment


def take_text(program: Program) -> str:
    """What reads a pack, with word of whether it will be read again (text/streaming.cuh)."""
    return program.function("take", "Stored& pack, Policy policy").replace(" load<", " policy.load<")


def copy_text(program: Program, fields: Mapping[str, TensorSpec]) -> str:
    """What lets pack ``i`` of a thread arrive in its place."""
    for name, spec in fields.items():
        program.line(f"policy.copy({program.place(spec)}, kept.{name}[i * THREADS]);")
    return program.function("copy", "const Kept& kept, int i, Policy policy")


@dataclass(frozen=True, slots=True)
class Residence:
    """``early`` packs of a thread stay in its registers, the others pass in ``groups`` through ``places`` of a ring."""

    tile: Tile
    tiles: int
    splits: int
    per_split: int
    groups: int
    early: int
    places: int
    pack_bytes: int
    shared: int
    read_twice: int  # bytes
    copies: bool  # packs arrive by themselves

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
        parameters.integer("barriers", self.tiles)
        pair = f"Pack<{constants['Compute']}, 2>"
        scratch = {"partial": (pair, self.splits * rows.count * 16), "arrived": ("unsigned int", 4 * self.tiles)}
        for field, (kind, size) in scratch.items():
            if is_split:
                parameters.scratch(field, kind, steps.allocate(size))
            else:
                parameters.nothing(field, kind)
        ring = ["direct_copy.cuh", "norm_ring_copies.cuh"] if self.copies else ["norm_ring_loads.cuh"]
        text = kernel_text(
            name,
            [
                "next_launch.cuh", "grid_barrier.cuh", direction, "norm_join.cuh", "norm_span.cuh", *ring,
                "norm_resident.cu",
            ],
            parameters=parameters.text,
            functions=functions,
            constants={
                **rows.constants(),
                **self.tile.constants(),
                **self.tile.bounds(),
                "SPLIT": is_split,
                "EARLY": self.early,
                "PLACES": self.places,
                "STORED_BYTES": self.pack_bytes,
                **constants,
            },
        )  # fmt: skip
        packed, grid = parameters.pack(), (self.tiles, self.splits, 1)
        if is_split:
            steps.add(Launch(text, "begin_resident", (1, 1, 1), self.tile.threads, packed))
        steps.add(Launch(text, "norm_resident", grid, self.tile.threads, packed, self.shared, is_cooperative=is_split))


def resident(
    rows: Rows,
    compute_bytes: int,
    kept_operands: Sequence[TensorSpec],
    device: DeviceSpec,
    *,
    is_plain: bool,
    is_in_memory: bool,
) -> tuple[Rows, Residence] | None:
    """``is_plain``: nothing is fused. ``is_in_memory``: nothing before it. None where such blocks would not fill the
    device.
    """
    if not rows.along:
        rows = rows.narrowed(_ROW_WIDTH // compute_bytes)
    packs = _packs(rows.width, kept_operands)
    pack_bytes = _stored_bytes(packs)
    copies = is_in_memory and min(packs) >= _LEAST_COPY
    columns = 1 if rows.along else min(32, power_above(rows.row_packs), max(1, _ROWS // rows.width))
    group_bytes = _STEP_BYTES if copies else 2 * _STEP_BYTES
    tile = Tile(_THREADS // columns, columns, max(1, min(_MOST_STEPS, group_bytes // pack_bytes)))
    tiles, turn = -(-rows.row_packs // columns), tile.lanes * max(1, min(_MOST_STEPS, 2 * _STEP_BYTES // pack_bytes))
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
    early = _early(rows, pack_bytes, len(packs)) if is_plain and copies else 0
    groups = max(1, -(-(-(-per_split // tile.lanes) - early) // tile.steps))
    group_bytes = tile.threads * tile.steps * sum(packs)
    block_rows = columns * rows.row_width
    joined = compute_bytes * tile.threads // 32 * (2 * block_rows + 1)  # by threads, in shared memory
    places = (device.shared_memory - _SYSTEM - joined) // group_bytes
    if places < 2:
        return None
    return rows, Residence(
        tile=tile,
        tiles=tiles,
        splits=splits,
        per_split=per_split,
        groups=groups,
        early=early,
        places=places,
        pack_bytes=pack_bytes,
        shared=places * group_bytes,
        read_twice=max(0, groups - places) * group_bytes * tiles * splits,
        copies=copies,
    )


def _early(rows: Rows, pack_bytes: int, values: int) -> int:
    """Packs that a thread's registers have room for all the time: the fewer the more rows it knows."""
    room = (224 if values == 1 else 288) if rows.along else 160 if rows.row_width <= 4 else 128
    return room // pack_bytes

"""Residence: long rows divided among blocks that all run at the same time and keep what they read.

A row that no block holds in registers has to be read twice, once for its statistics
and once to be normalized. Blocks that stay can keep a part of it: in shared memory,
in registers, and what they read last may be in the second level of cache. They wait for
each other in between, which is what a cooperative launch is for. Where all rows together
are more than that, the device goes through some of them after the others, in rounds.
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
_IN_FLIGHT = 128  # bytes of a thread that are on their way, where nothing else was measured
_MOST_STEPS = 8  # packs
_ROW_WIDTH = 32  # bytes of each value that a thread knows of its rows
_SYSTEM = 1024 + 64  # bytes of shared memory that a block cannot have, and what alignment takes
_LEAST_SHARE = 0.8  # of the multiprocessors
_TIMES = (1, 2, 3, 4, 5, 6, 8)  # rounds, as multiples of those that must be
_SHORTEST, _WHOLE_LINE = 64, 256  # bytes of memory side by side: the fewest, and those from which on they cost no time
_CACHED = 0.8  # of the last level of cache: what it still has of what was read last
_BETWEEN_ROUNDS = 2.5e-6  # seconds
_AHEAD = 4  # packs of the next round that are asked for while blocks wait
_BESIDE = 12  # up to which they are asked for while results are written
_LOOP = 32  # bytes of a thread that going through rounds takes from its registers


def stored_text(fields: Mapping[str, TensorSpec], width: int) -> str:
    """What a block reads of a pack (``Taken``), what it keeps of it, and where: the packs of a thread stand THREADS
    apart.
    """
    packs = {name: _stored(spec, width) for name, spec in fields.items()}
    taken = "".join(f"    Pack<{STORAGE[spec.data_type]}, VECTOR> {name};\n" for name, spec in fields.items())
    members = "".join(f"    {pack} {name};\n" for name, pack in packs.items())
    pointers = "".join(f"    {pack}* {name};\n" for name, pack in packs.items())
    starts, before = [], ""
    for name, pack in packs.items():
        starts.append(f"{name}(({pack}*)(memory{before}) + threadIdx.x)")
        before += f" + count * (THREADS * sizeof({pack}))"
    put = " ".join(f"{name}[i * THREADS] = pack.{name};" for name in packs)
    get = ", ".join(f"{name}[i * THREADS]" for name in packs)
    return (
        f"struct Taken {{\n{taken}}};\n\nstruct Stored {{\n{members}}};\n\nstruct Kept {{\n{pointers}\n"
        f"    __device__ __forceinline__ Kept(unsigned char* memory, int count) : {', '.join(starts)} {{}}\n"
        f"    __device__ __forceinline__ void put(int i, const Stored& pack) const {{ {put} }}\n"
        f"    __device__ __forceinline__ Stored get(int i) const {{ return {{{get}}}; }}\n}};\n"
    )


def _stored(spec: TensorSpec, width: int) -> str:
    """The type of a pack: words, where elements are narrower."""
    element = ELEMENTS[spec.data_type]
    is_narrow = element.kind == "float" and element.bytes < 4
    kind = "Words" if is_narrow and width * element.bytes % 4 == 0 else "Pack"
    return f"{kind}<{STORAGE[spec.data_type]}, VECTOR>"


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


def take_text(program: Program, names: Sequence[str]) -> str:
    """What reads a pack, with word of whether it will be read again (text/streaming.cuh)."""
    kept = "".join(f"    keep_pack(taken.{name}, pack.{name});\n" for name in names)
    taken = program.function("take", "Taken& pack, Policy policy").replace(" load<", " policy.load<")
    of_line = max(1, program.fetched // program.width)  # packs
    fetched = f"constexpr int OF_LINE = {of_line};\n{program.fetching('fetch')}"
    return f"{taken}{fetched}" + (
        "__device__ __forceinline__ void take(const Params& p, const int (&at)[RANK], Stored& pack, Policy policy) {\n"
        f"    Taken taken;\n    take(p, at, taken, policy);\n{kept}}}\n"
    )


@dataclass(frozen=True, slots=True)
class Residence:
    """``splits`` blocks share a tile of rows, ``at_once`` of the ``tiles`` are served at the same time. Of a tile a
    thread reads ``early`` packs and ``groups`` of the tile's steps: the early ones and the last two groups stay in its
    registers, ``kept`` packs in shared memory.
    """

    tile: Tile
    tiles: int
    at_once: int
    splits: int
    groups: int
    early: int
    kept: int
    pack_bytes: int
    shared: int
    read_twice: int  # bytes

    @property
    def rounds(self) -> int:
        return -(-self.tiles // self.at_once)

    def text(self) -> str:
        return f"resident_{self.tile.text()}" + ("_rounds" if self.rounds > 1 else "")

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
        turns, longer = divmod(-(-rows.packs // self.tile.lanes), self.splits)
        counts = {
            "turns": turns,  # of a split at least
            "longer": longer,  # splits with one more
            "last": (longer - 1) % self.splits,  # the split with the row's last packs
            "missing": -rows.packs % self.tile.lanes,
        }
        for field, count in counts.items():
            parameters.integer(field, count)
        parameters.integer("groups", self.groups)
        parameters.integer("kept", self.kept)
        parameters.integer("tiles", self.tiles)
        parameters.integer("ahead", _AHEAD)
        parameters.integer("beside", _BESIDE)
        pair = f"Pack<{constants['Compute']}, 2>"
        scratch = {"partial": (pair, self.splits * rows.count * 16), "arrived": ("unsigned int", 4 * self.tiles)}
        for field, (kind, size) in scratch.items():
            if is_split:
                parameters.scratch(field, kind, steps.allocate(size))
            else:
                parameters.nothing(field, kind)
        text = kernel_text(
            name,
            ["next_launch.cuh", "grid_barrier.cuh", direction, "norm_span.cuh", "norm_join.cuh", "norm_resident.cu"],
            parameters=parameters.text,
            functions=functions,
            constants={
                **rows.constants(),
                **self.tile.constants(),
                **self.tile.bounds(),
                "SPLIT": is_split,
                "ROUNDS": self.rounds > 1,
                "EARLY": self.early,
                "STORED_BYTES": self.pack_bytes,
                **constants,
            },
        )
        packed, grid = parameters.pack(), (self.at_once, self.splits, 1)
        if is_split:
            steps.add(Launch(text, "begin_resident", (1, 1, 1), self.tile.threads, packed))
        steps.add(
            Launch(
                text,
                "norm_resident",
                grid,
                self.tile.threads,
                packed,
                self.shared,
                is_cooperative=is_split,
                starts_early=is_split and steps.device.compute_capability >= (9, 0),
            )
        )


def resident(
    rows: Rows, compute_bytes: int, kept_operands: Sequence[TensorSpec], device: DeviceSpec, *, is_plain: bool
) -> tuple[Rows, Residence] | None:
    """``is_plain``: nothing is fused. None where such blocks would not fill the device."""
    if not rows.along:
        rows = rows.narrowed(_ROW_WIDTH // compute_bytes)
    packs = _packs(rows.width, kept_operands)
    room = _room(rows, len(packs), device) if is_plain else (_IN_FLIGHT, 0)
    found = (
        _residence(rows, compute_bytes, packs, room, columns, at_once, device)
        for columns in _columns(rows)
        for at_once in _at_once(-(-rows.row_packs // columns), device.sm_count)
    )
    best = min((f for f in found if f is not None), key=lambda f: f[0], default=None)
    return None if best is None else (rows, best[1])


def _columns(rows: Rows) -> list[int]:
    """Threads beside each other: half of them make lines of memory shorter and rounds more."""
    if rows.along:
        return [1]
    most = min(32, power_above(rows.row_packs), max(1, _ROWS // rows.width))
    least = min(most, max(1, _SHORTEST // (rows.width * rows.main_bytes)))
    return [most >> i for i in range(8) if most >> i >= least]


def _at_once(tiles: int, sm_count: int) -> list[int]:
    """How many tiles, where there are more rounds than need be."""
    least = -(-tiles // sm_count)
    return list(dict.fromkeys(-(-tiles // (least * times)) for times in _TIMES if least * times <= tiles))


def _residence(
    rows: Rows,
    compute_bytes: int,
    packs: Sequence[int],
    room: tuple[int, int],
    columns: int,
    at_once: int,
    device: DeviceSpec,
) -> tuple[float, Residence] | None:
    """With the seconds that it takes, but for what it writes."""
    in_flight, early_bytes = room
    pack_bytes = _stored_bytes(packs)
    tile = Tile(_THREADS // columns, columns, max(1, min(_MOST_STEPS, in_flight // 2 // pack_bytes)))
    tiles = -(-rows.row_packs // columns)
    turns = -(-rows.packs // tile.lanes)
    splits = min(device.sm_count // at_once, turns)
    rounds = -(-tiles // at_once)
    # Few rows of many blocks would leave multiprocessors idle, and short ones have nothing to keep.
    share = tiles * splits / (rounds * device.sm_count)
    if share < _LEAST_SHARE or tile.lanes < rows.row_width or rows.packs < splits * tile.lanes * tile.steps:
        return None
    early = max(0, early_bytes - (_LOOP if rounds > 1 else 0)) // pack_bytes
    needed = max(0, -(-turns // splits) - early)  # packs of a thread
    groups = 2 * max(1, -(-needed // (2 * tile.steps)))
    joined = compute_bytes * tile.threads // 32 * (2 * columns * rows.row_width + 1)  # by threads, in shared memory
    round_bytes = tile.threads * sum(packs)
    kept = min((groups - 2) * tile.steps, (device.shared_memory - _SYSTEM - joined) // round_bytes)
    again = ((groups - 2) * tile.steps - kept) * round_bytes * at_once * splits  # of a round
    residence = Residence(
        tile=tile,
        tiles=tiles,
        at_once=at_once,
        splits=splits,
        groups=groups,
        early=early,
        kept=kept,
        pack_bytes=pack_bytes,
        shared=kept * round_bytes,
        read_twice=rounds * max(0, again - int(_CACHED * device.cache_bytes)),
    )
    streamed = rows.count * rows.length // rows.width * sum(packs)
    line = 1.0 if rows.along else min(1.0, 0.6 + 0.4 * columns * rows.width * rows.main_bytes / _WHOLE_LINE)
    memory = (streamed / (line * share) + residence.read_twice) / device.bandwidth
    return memory + rounds * (again / (2 * device.bandwidth) + _BETWEEN_ROUNDS), residence


def _room(rows: Rows, values: int, device: DeviceSpec) -> tuple[int, int]:
    """Bytes of a thread that are on their way, and those that its registers keep all the time: the fewer the more rows
    it knows. From compute capability 9.0 on the fastest of those tried on an H200 (64 images of 56 x 56, 128 channels).
    """
    is_tried, is_narrow = device.compute_capability >= (9, 0), rows.main_bytes < 4
    if rows.along:
        if values > 1:
            return _IN_FLIGHT, 224
        return (192, 32) if is_tried and is_narrow else (_IN_FLIGHT, 144)
    if rows.row_width > 4:
        return _IN_FLIGHT, 48 if values == 1 else 128 if is_tried else 64
    return (192, 0) if is_tried and values == 1 else (_IN_FLIGHT, 64 if values == 1 else 128)

"""Persistent CTAs: long rows are divided among CTAs that run at the same time and cache the elements they read.

A row that does not fit into a CTA's registers is read twice: for its statistics and for its normalization. Persistent
CTAs cache a part of the row in shared memory and registers, and the elements they read last may still be in L2. The
CTAs wait for each other in between, which needs a cooperative launch. If the rows do not fit together, the device
serves them in rounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.codegen.launch import Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import STORAGE, Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.reduction.row_threads import Rows, Tile
from graphdnn.tensors import TensorSpec

_AHEAD = 128  # bytes of a thread that it prefetches for the next round while CTAs wait


def stored_text(fields: Mapping[str, TensorSpec], width: int) -> str:
    """One vector as a CTA reads it (``Taken``) and caches it. The vectors of a thread have a stride of THREADS in the
    cache.
    """
    vec_types = {name: _stored(spec, width) for name, spec in fields.items()}
    taken = "".join(f"    Vec<{STORAGE[spec.data_type]}, VEC_WIDTH> {name};\n" for name, spec in fields.items())
    members = "".join(f"    {vec_type} {name};\n" for name, vec_type in vec_types.items())
    pointers = "".join(f"    {vec_type}* {name};\n" for name, vec_type in vec_types.items())
    starts, before = [], ""
    for name, vec_type in vec_types.items():
        starts.append(f"{name}(({vec_type}*)(memory{before}) + threadIdx.x)")
        before += f" + count * (THREADS * sizeof({vec_type}))"
    put = " ".join(f"{name}[i * THREADS] = vec.{name};" for name in vec_types)
    get = ", ".join(f"{name}[i * THREADS]" for name in vec_types)
    return (
        f"struct Taken {{\n{taken}}};\n\nstruct Stored {{\n{members}}};\n\nstruct Kept {{\n{pointers}\n"
        f"    __device__ __forceinline__ Kept(unsigned char* memory, int count) : {', '.join(starts)} {{}}\n"
        f"    __device__ __forceinline__ void put(int i, const Stored& vec) const {{ {put} }}\n"
        f"    __device__ __forceinline__ Stored get(int i) const {{ return {{{get}}}; }}\n}};\n"
    )


def _stored(spec: TensorSpec, width: int) -> str:
    """The type of a vector: words, if elements are narrower."""
    element = ELEMENTS[spec.data_type]
    is_narrow = element.kind == "float" and element.bytes < 4
    kind = "PackedWords" if is_narrow and width * element.bytes % 4 == 0 else "Vec"
    return f"{kind}<{STORAGE[spec.data_type]}, VEC_WIDTH>"


def vec_sizes_of(width: int, kept: Sequence[TensorSpec]) -> list[int]:
    """Bytes of the vectors in ``Stored``."""
    return [width * ELEMENTS[spec.data_type].bytes for spec in kept]


def stored_bytes(vec_sizes: Sequence[int]) -> int:
    """The size of ``Stored``: each vector is aligned to its own size, at most 16 bytes."""
    size = 0
    for vec_size in vec_sizes:
        alignment = min(vec_size, 16)
        size = -(-size // alignment) * alignment + vec_size
    alignment = min(max(vec_sizes), 16)
    return -(-size // alignment) * alignment


def take_text(program: Program, names: Sequence[str], *, is_fetched: bool = True) -> str:
    """The function that reads a vector, with a cache policy (streaming.cuh). ``is_fetched``: also the function that
    prefetches its cache lines.
    """
    kept = "".join(f"    pack_words(taken.{name}, vec.{name});\n" for name in names)
    taken = program.function("load_elements", "Taken& vec, L2Policy policy").replace(" load<", " policy.load<")
    of_line = max(1, program.prefetch_elements // program.width)  # vectors
    fetched = f"constexpr int OF_LINE = {of_line};\n{program.prefetch_text('fetch')}"
    kept_vec = (
        "__device__ __forceinline__ void load_elements(\n"
        "    const Params& p, const int (&at)[RANK], Stored& vec, L2Policy policy) {\n"
        f"    Taken taken;\n    load_elements(p, at, taken, policy);\n{kept}}}\n"
    )
    return taken + (fetched if is_fetched else "") + kept_vec


@dataclass(frozen=True, slots=True)
class PersistentTile:
    """``splits`` CTAs share a tile of rows, and the device serves ``at_once`` of the ``tiles`` at the same time. A
    thread reads ``early`` vectors and ``groups`` of the tile's steps. The early vectors and the last two groups stay in
    its registers, and ``kept`` vectors in shared memory.
    """

    tile: Tile
    tiles: int
    at_once: int
    splits: int
    groups: int
    early: int
    kept: int
    vec_bytes: int
    shared: int
    read_twice: int  # bytes

    @property
    def rounds(self) -> int:
        return -(-self.tiles // self.at_once)

    @property
    def keeps_all(self) -> bool:
        return self.kept == (self.groups - 2) * self.tile.steps

    def text(self) -> str:
        return f"resident_{self.tile.text()}" + ("_rounds" if self.rounds > 1 else "")

    def launch(
        self,
        steps: LaunchSequence,
        name: str,
        rows: Rows,
        parameters: Parameters,
        functions: Sequence[str],
        constants: Mapping[str, bool | str],
        *,
        is_backward: bool,
    ) -> None:
        """Adds the launch. ``is_backward``: a gradient."""
        is_split = self.splits > 1
        rows.parameters(parameters)
        turns, longer = divmod(-(-rows.vecs_per_row // self.tile.threads_per_row), self.splits)
        counts = {
            "turns": turns,  # of each split, at least
            "longer": longer,  # splits with one more turn
            "last": (longer - 1) % self.splits,  # the split with the row's last vectors
            "missing": -rows.vecs_per_row % self.tile.threads_per_row,
        }
        for field, count in counts.items():
            parameters.integer(field, count)
        parameters.integer("groups", self.groups)
        parameters.integer("kept", self.kept)
        parameters.integer("tiles", self.tiles)
        parameters.integer("ahead", _AHEAD // self.vec_bytes)
        pair = f"Vec<{constants['Compute']}, 2>"
        scratch = {"partial": (pair, self.splits * rows.count * 16), "arrived": ("unsigned int", 4 * self.tiles)}
        for field, (kind, size) in scratch.items():
            if is_split:
                parameters.workspace_pointer(field, kind, steps.allocate(size))
            else:
                parameters.null_pointer(field, kind)
        text = kernel_text(
            name,
            ["norm_persistent.cu"],
            variants={"NORM_BACKWARD": is_backward},
            parameters=parameters.text,
            functions=functions,
            constants={
                **rows.constants(),
                **self.tile.constants(),
                **self.tile.bounds(),
                "SPLIT": is_split,
                "ROUNDS": self.rounds > 1,
                "EARLY": self.early,
                "STORED_BYTES": self.vec_bytes,
                **constants,
            },
        )
        packed, grid = parameters.pack(), (self.at_once, self.splits, 1)
        if is_split:
            steps.add_early(Launch(text, "init_persistent", (1, 1, 1), self.tile.threads, packed))
        steps.add_early(
            Launch(text, "norm_persistent", grid, self.tile.threads, packed, self.shared, is_cooperative=is_split)
        )

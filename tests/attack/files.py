"""Damaged files through the commands that read them: each ends in an answer or in a named refusal, in time.

    cd tests && python -m attack.files 20000 --seed 1 --kind lock

A database goes through ``db``, a lock through ``check``, a bundle through ``replay``, a graph through ``explain``. What
ends in another exception than the library's own, takes longer than ``LONGEST`` seconds, or prints what is no plain text
is printed with its number, and the script ends with code 1.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import resource
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attack.damage import damage_cells, damaged_bytes, damaged_tree

from graphdnn import OperationGraph, debug_log, device_spec, fuse, rank
from graphdnn.bundles import attempt, bundle_of
from graphdnn.cli import main as graphdnn
from graphdnn.cli.exit_codes import Exit
from graphdnn.errors import GraphdnnError
from graphdnn.files import digest_of, graph_to_json
from graphdnn.locks import lock_of
from graphdnn.problem import parse
from graphdnn.tuning import Database

LONGEST = 20.0  # seconds for one file; most take a hundredth
MEMORY = 6 * 2**30  # bytes of address space: what asks for more gets a MemoryError
PROBLEMS = (
    "conv x=f16[2,16,9,9]nhwc w=f16[24,16,3,3]nhwc pad=1 stride=2 + bias + residual + relu",
    "matmul a=f32[4,8] b=f32[8,6] + bias + gelu",
    "norm layer x=f32[8,32]",
    "pool x=f32[1,4,9,9] max window=3",
    "reduce x=f32[4,33] y=[4,1] add",
)
DATABASE = (("list",), ("show", "0"), ("verify",), ("calibration",), ("prune",))


class HungError(BaseException):
    """A command took too long."""


@dataclass(slots=True)
class Found:
    """What is wrong, by the place that it comes from."""

    count: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    wrong: dict[str, list[str]] = field(default_factory=dict)

    def add(self, place: str, what: str) -> None:
        self.wrong.setdefault(place, []).append(what)

    @property
    def total(self) -> int:
        return sum(map(len, self.wrong.values()))


def graphs() -> list[OperationGraph]:
    return [parse(text).build_operation_graph() for text in PROBLEMS]


def locks() -> list[dict[str, Any]]:
    """A lock of a profile, one of the host, and one whose graphs stand in the file."""
    named = {f"g{i}": graph for i, graph in enumerate(graphs())}
    texts = dict(zip(named, PROBLEMS, strict=True))
    made = [lock_of(named, device_spec(d), t, "0.1.0") for d, t in (("h200", texts), ("cpu", texts), ("a100", {}))]
    return [json.loads(lock.to_json()) for lock in made]


def bundles() -> list[dict[str, Any]]:
    return [json.loads(bundle_of(attempt(rank(graph, "cpu").best, 0), "0.1.0").to_json()) for graph in graphs()]


def _json(trees: Callable[[], list[dict[str, Any]]], *, is_sealed: bool, command: str) -> Callable[..., Any]:
    """Files of JSON: the tree damaged, and sealed again where it has a hash; or the bytes."""
    known: list[dict[str, Any]] = []

    def one(draw: random.Random, folder: Path, found: Found, keep: Path | None) -> None:
        if not known:
            known.extend(trees())
        tree, path = draw.choice(known), folder / "damaged.json"
        if draw.random() < 0.2:
            content = damaged_bytes(json.dumps(tree).encode(), draw)
        else:
            damaged = damaged_tree({k: v for k, v in tree.items() if k != "sha256" or not is_sealed}, draw)
            if is_sealed and isinstance(damaged, dict):
                damaged = {**damaged, "sha256": digest_of({k: v for k, v in damaged.items() if k != "sha256"})}
            content = json.dumps(damaged).encode()
        path.write_bytes(content)
        run((command, str(path)), found, path, keep)

    return one


def database(draw: random.Random, folder: Path, found: Found, keep: Path | None) -> None:
    path = folder / "damaged.sqlite3"
    if not (folder / "whole.sqlite3").exists():
        _whole(folder / "whole.sqlite3")
    data = (folder / "whole.sqlite3").read_bytes()
    for left in folder.glob("damaged.sqlite3*"):
        left.unlink()
    kind = draw.randrange(4)
    path.write_bytes(damaged_bytes(data, draw) if kind == 0 else _behind_head(data, draw) if kind == 1 else data)
    if kind > 1:
        damage_cells(path, draw)
    before = path.read_bytes()
    words = draw.choice((*DATABASE, ("merge", str(path))))
    named = folder / "other.sqlite3" if words[0] == "merge" else path
    run(("db", *words, "--db", str(named)), found, path, keep, before)
    if draw.random() < 0.3:
        run(("explain", PROBLEMS[1], "--device", "cpu", "--tuned", "--db", str(path)), found, path, keep, before)


def _behind_head(data: bytes, draw: random.Random) -> bytes:
    return data[:100] + damaged_bytes(data[100:], draw)


def _whole(path: Path) -> None:
    """The database of a tuning that was not run."""
    from tuning_records import records, tuned

    with Database(path) as made:
        for text in (PROBLEMS[1], PROBLEMS[2]):
            graph = parse(text).build_operation_graph()
            made.add(tuned(graph, tuple(range(min(2, len(rank(graph, "cpu")))))))
        made.put(records(6), [])
        made._connection.execute("PRAGMA journal_mode = DELETE")


def run(words: tuple[str, ...], found: Found, path: Path, keep: Path | None, content: bytes | None = None) -> None:
    """One command in this process."""
    debug_log._said.clear()
    content = path.read_bytes() if content is None else content
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict", write_through=True) for _ in "oe")
    place, said = "", ""
    try:
        with watched(LONGEST), redirect_stdout(out), redirect_stderr(err):
            code = graphdnn(words)
        found.codes[Exit(code).name] += 1
        text = out.buffer.getvalue() + err.buffer.getvalue()  # type: ignore[attr-defined]
        strange = {byte for byte in text if byte < 32 and byte not in b"\n\t"} | {byte for byte in text if byte == 127}
        place, said = ("control characters", repr(sorted(strange))) if strange else ("", "")
    except HungError:
        place, said = "hung", f"more than {LONGEST} s"
    except GraphdnnError as error:  # the command line answers those itself
        place, said = _place(error), repr(error)[:300]
    except Exception as error:
        place, said = _place(error), f"{type(error).__name__}: {str(error)[:200]}"
    if not place:
        return
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        (keep / f"{found.count}{path.suffix}").write_bytes(content)
    found.add(place, f"{found.count}: {' '.join(words)[:120]}: {said}")


def _place(error: BaseException) -> str:
    """The innermost line of the library."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f"{os.sep}graphdnn{os.sep}" in f.filename]
    last = frames[-1] if frames else traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {os.path.basename(last.filename)}:{last.lineno}"


@contextmanager
def watched(seconds: float) -> Iterator[None]:
    """``HungError`` in what takes longer."""

    def end(*_: object) -> None:
        raise HungError

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


KINDS: dict[str, Callable[..., Any]] = {
    "database": database,
    "lock": _json(locks, is_sealed=False, command="check"),
    "bundle": _json(bundles, is_sealed=True, command="replay"),
    "graph": _json(lambda: [json.loads(graph_to_json(g)) for g in graphs()], is_sealed=False, command="explain"),
}


def attack(kind: str, count: int, seed: int, keep: Path | None = None) -> Found:
    """``count`` files of one kind."""
    found = Found()
    with tempfile.TemporaryDirectory(prefix="graphdnn-attack-") as folder:
        for number in range(count):
            found.count = number
            KINDS[kind](random.Random(f"{seed} {kind} {number}"), Path(folder), found, keep)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("count", type=int, help="files of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", action="append", choices=tuple(KINDS), default=[])
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="where to write each file that something is wrong with"
    )
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    os.environ["GRAPHDNN_DEVICE"] = "cpu"
    fuse(graphs()[0])
    wrong = 0
    for kind in options.kind or KINDS:
        found = attack(kind, options.count, options.seed, options.keep)
        wrong += found.total
        print(f"{kind}: {options.count} files, {dict(found.codes)}, {found.total} wrong", flush=True)
        for place, said in sorted(found.wrong.items()):
            print(f"  {len(said)} x {place}\n    " + "\n    ".join(said[:2]), flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())

"""Opens mutated tuning databases and says what the interpreter was asked to do meanwhile: FILE COUNT SEED."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path
from typing import Any

import graphdnn.fusion  # noqa: F401
from graphdnn import debug_log
from graphdnn.errors import BadParam
from graphdnn.tuning import Database
from graphdnn.tuning.calibration import calibration, cases_of
from graphdnn.tuning.database.record import Record

FORBIDDEN = ("import", "exec", "compile", "os.system", "os.exec", "os.fork", "os.posix_spawn", "subprocess.Popen",
             "ctypes.dlopen", "socket.connect", "pickle.find_class")  # fmt: skip


def mutated(data: bytes, draw: random.Random) -> bytes:
    """A few bytes changed, a piece cut out or doubled, or the end cut off."""
    changed = bytearray(data)
    kind = draw.randrange(5)
    if kind < 2:
        for _ in range(draw.choice((1, 4, 64))):
            changed[draw.randrange(len(changed))] = draw.randrange(256)
    elif kind == 2:
        del changed[draw.randrange(len(changed)) :]
    else:
        start, size = draw.randrange(len(changed)), draw.randrange(1, 2000)
        piece = changed[start : start + size]
        changed[start : start + (size if kind == 3 else 0)] = b"" if kind == 3 else piece
    return bytes(changed)


def used(path: Path) -> str:
    try:
        with Database(path) as database:
            found = database.records()
            assert all(isinstance(r, Record) for r in found)
            for key in database.problems():
                database.graph(key)
            calibration(cases_of(database))
            database.put(found[:1], [])
            return "kept" if found else "empty"
    except BadParam as error:
        return error.rejections[0].rule


def main(file: str, count: int, seed: int) -> None:
    whole, draw = Path(file), random.Random(seed)
    debug_log.line = lambda *fields: None  # type: ignore[assignment]
    data, path = whole.read_bytes(), whole.with_name("mutated.sqlite3")
    path.write_bytes(data[: len(data) // 2])
    for first in (whole, path):  # what sound and damaged files take is loaded
        used(first)
    seen: set[str] = set()
    watching = [False]

    def hook(event: str, arguments: Any) -> None:
        if watching[0] and event.startswith(FORBIDDEN):
            seen.add(f"{event} {str(arguments)[:80]}")

    sys.addaudithook(hook)
    outcomes: dict[str, int] = {}
    slowest = 0.0
    for _ in range(count):
        path.write_bytes(mutated(data, draw))
        start, watching[0] = time.perf_counter(), True
        outcome = used(path)
        watching[0] = False
        slowest = max(slowest, time.perf_counter() - start)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        for left in path.parent.glob("mutated.sqlite3*"):
            left.unlink()
    print(sorted(outcomes), sorted(seen), slowest < 5)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

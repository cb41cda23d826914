"""Hostile calls of the legacy API: each of its functions, with arguments that are right, and with others.

    python tests/attack/legacy_calls.py 1000000 [--seed N]

A call has to end in a result or in a ``CudnnError`` that is no internal error. Results are arguments of later calls, so
the calls reach descriptors that are set, and executions. Prints what came out otherwise, and ends with code 1.
"""

from __future__ import annotations

import argparse
import random
import sys
import warnings
from collections import Counter
from typing import Any

import numpy as np
from builder_calls import Finding, last_line
from hostile import VALUES

from graphdnn import GraphdnnError, v6
from graphdnn.errors import Rejection
from graphdnn.v6.arguments import _ENUMS, DESCRIPTORS
from graphdnn.v6.functions import Function, functions

_MOST = 12  # descriptors of each kind
_INTEGERS = (0, 1, 1, 2, 2, 3, 4, 4, 5, 8, -1, 7, 2**31 - 1, 2**31, -(2**63))
_FLOATS = (0.0, 1.0, 0.5, 1e-5, -1.0, float("inf"), float("nan"), 1e300)
_INTERNAL = ("CUDNN_STATUS_INTERNAL_ERROR",)


class Session:
    """Handles and descriptors that calls have returned."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.known: dict[str, list[Any]] = {"Handle": [v6.cudnnCreate()]}
        for kind in DESCRIPTORS:
            self.known[kind] = [getattr(v6, f"cudnnCreate{kind}")() for _ in range(3)] if _has_creator(kind) else []

    def right(self, kind: str) -> Any:
        """An argument of a kind, which may be of use."""
        rng = self.rng
        kind = kind.removesuffix("[]")
        if self.known.get(kind):
            return rng.choice(self.known[kind])
        if kind in _ENUMS:
            return rng.choice(tuple(_ENUMS[kind]))
        if kind in ("int", "size"):
            return rng.choice(_INTEGERS)
        if kind in ("float", "scalar"):
            return rng.choice(_FLOATS)
        if kind == "ints":
            return [rng.choice(_INTEGERS) for _ in range(rng.choice((1, 2, 3, 4, 4, 5)))]
        if kind in ("data", "out", "inout", "workspace"):
            count = rng.choice((0, 1, 16, 64, 256, 1024))
            return rng.choice((None, np.zeros(count, np.float32), np.zeros(count, np.int8), np.zeros((2, 4, 4, 4))))
        return None

    def call(self, function: Function) -> None:
        """One call, in three of four cases with right kinds only."""
        rng = self.rng
        arguments = [self.right(p.kind) for p in function.inputs]
        if arguments and rng.random() < 0.25:
            for _ in range(rng.randint(1, 2)):
                arguments[rng.randrange(len(arguments))] = VALUES[rng.choice(tuple(VALUES))]()
        if function.name.startswith("cudnnDestroy") and rng.random() < 0.9:
            return  # most live on
        result = getattr(v6, function.name)(*arguments)
        if function.name.startswith("cudnnCreate"):
            pool = self.known.setdefault(function.name.removeprefix("cudnnCreate") or "Handle", [])
            pool.append(result)
            del pool[:-_MOST]


def _has_creator(kind: str) -> bool:
    row = next((f for f in functions().values() if f.name == f"cudnnCreate{kind}"), None)
    return row is not None and not row.inputs


def is_internal(rejection: Rejection) -> bool:
    """A status that says the library is at fault."""
    return rejection.status.c_name in _INTERNAL


def attack(count: int, seed: int) -> tuple[Counter[str], list[Finding]]:
    """Endings by kind, and everything that was no ending."""
    rng = random.Random(seed)
    session, rows = Session(rng), list(functions().values())
    endings: Counter[str] = Counter()
    found: list[Finding] = []
    for _ in range(count):
        function = rng.choice(rows)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                session.call(function)
            endings["accepted"] += 1
        except GraphdnnError as error:
            str(error)
            if any(map(is_internal, error.rejections)):
                found.append(Finding(function.name, "", f"{type(error).__name__}: {last_line(error)}"))
            endings["refused"] += 1
        except Exception as error:
            found.append(Finding(function.name, "", f"{type(error).__name__}: {last_line(error)}"))
    endings["foreign"] = len(found)
    return endings, found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("count", type=int, nargs="?", default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    endings, found = attack(options.count, options.seed)
    places = Counter(finding.error.split(" ", 2)[1] for finding in found)
    for place, number in places.most_common():
        first = next(f for f in found if f.error.split(" ", 2)[1] == place)
        print(f"{number:5} {first.method}: {first.error}")
    print(dict(endings))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

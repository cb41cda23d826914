"""All attacks, one after the other, with the counts that they reached.

    make attack                                    hours
    make attack ATTACK="--share 0.01"              a hundredth of each
    python tests/attack/run.py --only files builder --seed 3

Every attack draws its input from the seed. The counts below are what a run of the whole has to reach. Ends with code 1
if an attack found something, or reached less than its count.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(_TESTS), str(_TESTS / "support"), str(_TESTS / "attack"), str(_TESTS.parent)]

import backend_calls_drawn
import builder_calls
import commands
import files
import host_problems
import legacy_calls
import sizes


@dataclass(frozen=True)
class Outcome:
    """What an attack saw: endings by kind, and a line for everything that was no ending."""

    endings: Counter[str]
    findings: list[str]

    @property
    def tried(self) -> int:
        return sum(number for name, number in self.endings.items() if name != "executions")


Attack = Callable[[int, int], Outcome]


def _files(kind: str) -> Attack:
    def attack(count: int, seed: int) -> Outcome:
        found = files.attack(kind, count, seed)
        lines = [f"{place}: {said[0]}" for place, said in found.wrong.items()]
        return Outcome(Counter(found.codes), lines)

    return attack


def _calls(module: object) -> Attack:
    def attack(count: int, seed: int) -> Outcome:
        endings, found = module.attack(count, seed)  # type: ignore[attr-defined]
        return Outcome(endings, [f"{f.method}({f.arguments}): {f.error}" for f in found])

    return attack


def _lines(module: object) -> Attack:
    return lambda count, seed: Outcome(*module.attack(count, seed))  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Row:
    """``count``: the least that a run of the whole tries."""

    name: str
    what: str
    count: int
    attack: Attack


ATTACKS = (
    Row("problems", "random problems on the host, each configuration against float64", 322_133, _lines(host_problems)),
    Row("backend", "v8 calls", 3_063_159, _calls(backend_calls_drawn)),
    Row("legacy", "v6 calls", 1_307_378, _calls(legacy_calls)),
    Row("builder", "methods of the builder", 84_247, _calls(builder_calls)),
    Row("sizes", "extents, strides and groups up to 2**60, planned for a processor and a GPU", 1_621, _lines(sizes)),
    Row("commands", "command lines of garbage and of hostile names", 578, _lines(commands)),
    Row("graphs", "damaged graph files, explained", 494_296, _files("graph")),
    Row("databases", "damaged tuning databases", 20_541, _files("database")),
    Row("locks", "damaged locks, checked", 121_900, _files("lock")),
    Row("bundles", "damaged bundles, replayed", 89_534, _files("bundle")),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--share", type=float, default=1.0, help="of each count")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=[row.name for row in ATTACKS], default=[])
    options = parser.parse_args()
    os.environ["GRAPHDNN_DEVICE"] = "cpu"
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="graphdnn-attack-") as folder:
        os.chdir(folder)  # some arguments are names of files
        for row in ATTACKS:
            if not options.only or row.name in options.only:
                wrong += _run(row, max(1, round(row.count * options.share)), options.seed)
    print("nothing was found" if not wrong else f"{wrong} findings")
    return int(wrong > 0)


def _run(row: Row, count: int, seed: int) -> int:
    """How many findings; an attack that tried less than its count is one."""
    start = time.monotonic()
    outcome = row.attack(count, seed)
    endings = ", ".join(f"{name} {number:,}" for name, number in sorted(outcome.endings.items()) if number)
    seconds = time.monotonic() - start
    print(
        f"{row.name:10} {outcome.tried:9,} {row.what}: {endings}; {len(outcome.findings)} found, {seconds:.0f} s",
        flush=True,
    )
    for line in outcome.findings[:20]:
        print("           " + line.encode("ascii", "backslashreplace").decode())
    return len(outcome.findings) + (outcome.tried < count)


if __name__ == "__main__":
    sys.exit(main())

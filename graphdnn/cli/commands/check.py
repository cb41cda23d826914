"""check: compare a lock file with this version; say what changed, in which class, and why"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphdnn.cli.commands.lock import DEFAULT
from graphdnn.cli.exit_codes import Exit
from graphdnn.cli.graph_argument import HELP, read_argument, read_as
from graphdnn.cli.output_files import write_file
from graphdnn.errors import BadParam
from graphdnn.escaped import escaped
from graphdnn.locks import CLASSES, Lock, LockChange, LockCheckResult, LockedGraph, check, lock_from_json, updated
from graphdnn.rules import Rule
from graphdnn.text_format import plural

ABSENT = Rule(
    id="cli.check.absent",
    expected="a graph of the lock file",
    reason="no entry of the lock file has the key or the name of this graph",
    fix="lock it as well: graphdnn lock ... GRAPH",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lock", metavar="LOCKFILE", nargs="?", default=str(DEFAULT), help=f"default: {DEFAULT}")
    parser.add_argument("graphs", metavar="GRAPH", nargs="*", help=f"only these entries; {HELP}")
    add_allow(parser)
    parser.add_argument("--update", action="store_true", help="write the file again, with everything as it is now")
    parser.add_argument("--json", action="store_true", help="print the same as JSON")


def add_allow(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--allow", action="append", default=[], choices=CLASSES, help="show changes of this class, and accept them"
    )


def run(arguments: argparse.Namespace) -> Exit:
    from graphdnn import __version__

    lock = read_as(arguments.lock, lock_from_json)
    entries = entries_of(lock, arguments.graphs)
    checked = check(lock, __version__, entries)
    verdict = Exit.CHECK_FAILED if refused(checked.movements, arguments.allow) else Exit.OK
    if arguments.json:
        print(json.dumps(as_json(checked.movements, arguments.allow, checked.notes, len(entries)), indent=1))
    else:
        print(as_text(checked, arguments.allow, len(entries)))
    if arguments.update:
        write_file(Path(arguments.lock), updated(lock, checked, __version__).to_json())
        print(f"written anew: {arguments.lock}") if not arguments.json else None
        return Exit.OK
    return verdict


def entries_of(lock: Lock, arguments: Sequence[str]) -> list[LockedGraph]:
    """The entries that are meant: by name, or by the graph."""
    found = []
    for argument in arguments:
        entry = lock.find(argument) or lock.of_graph(read_argument(argument).graph)
        if entry is None:
            raise BadParam(ABSENT.reject("command line", "GRAPH", argument))
        found.append(entry)
    return found or list(lock.graphs)


def refused(movements: Sequence[LockChange], allowed: Sequence[str]) -> list[LockChange]:
    return [movement for movement in movements if movement.kind not in allowed]


def as_text(checked: LockCheckResult, allowed: Sequence[str], count: int) -> str:
    lines = movements_text(checked.movements, allowed, f"nothing moved in {plural(count, 'graph')}")
    return "\n".join((*lines, *(escaped(f"note: {note}") for note in checked.notes)))


def movements_text(movements: Sequence[LockChange], allowed: Sequence[str], otherwise: str) -> list[str]:
    """Each graph once, its movements below it, and a last line that says how many there are."""
    lines: list[str] = []
    for name in dict.fromkeys(movement.graph for movement in movements):
        lines.append(escaped(name))
        for movement in movements:
            if movement.graph == name:
                accepted = " (allowed)" if movement.kind in allowed else ""
                lines.append(escaped(f"  {movement.kind}{accepted}: {movement.subject}: {movement.what}"))
                lines += [escaped(f"    {why}") for why in movement.why]
    left = refused(movements, allowed)
    counts = ", ".join(
        f"{sum(m.kind == kind for m in left)} {kind}" for kind in CLASSES if any(m.kind == kind for m in left)
    )
    if not movements:
        return [otherwise]
    return [*lines, f"moved: {counts}" if left else "moved: nothing but what is allowed"]


def as_json(
    movements: Sequence[LockChange], allowed: Sequence[str], notes: Sequence[str], count: int
) -> dict[str, Any]:
    return {
        "format": "graphdnn.check",
        "version": 1,
        "graphs": count,
        "movements": [movement.to_json() | {"allowed": movement.kind in allowed} for movement in movements],
        "notes": list(notes),
        "verdict": "moved" if refused(movements, allowed) else "ok",
    }

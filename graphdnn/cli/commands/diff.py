"""diff: compare two lock files, without building anything"""

from __future__ import annotations

import argparse
import json

from graphdnn.cli.commands.check import add_allow, as_json, movements_text, refused
from graphdnn.cli.exit_codes import Exit
from graphdnn.cli.graph_argument import read_as
from graphdnn.locks import compare_locks, lock_from_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", metavar="A", help="a lock file")
    parser.add_argument("after", metavar="B", help="a later one")
    add_allow(parser)
    parser.add_argument("--json", action="store_true", help="print the same as JSON")


def run(arguments: argparse.Namespace) -> Exit:
    before, after = (read_as(path, lock_from_json) for path in (arguments.before, arguments.after))
    movements = compare_locks(before, after)
    versions = (before.library, after.library)
    notes = [] if versions[0] == versions[1] else [f"locked by version {versions[0]}, then {versions[1]}"]
    if arguments.json:
        print(json.dumps(as_json(movements, arguments.allow, notes, len(after.graphs)), indent=1))
    else:
        print("\n".join((*movements_text(movements, arguments.allow, "nothing moved"), *(f"note: {n}" for n in notes))))
    return Exit.CHECK_FAILED if refused(movements, arguments.allow) else Exit.OK

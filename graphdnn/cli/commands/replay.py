"""replay: run a bundle again, with the same plan and data; compare it with the oracle and the recorded run"""

from __future__ import annotations

import argparse
import json
from typing import Any

from graphdnn.bundles import Replayed, bundle_from_json, replay
from graphdnn.bundles.bundle import ERROR, MISMATCH
from graphdnn.cli.common_options import add_device, named_device
from graphdnn.cli.exit_codes import Exit, exit_code, print_rejections
from graphdnn.cli.graph_argument import read_as
from graphdnn.text_format import table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", metavar="FILE", help="a bundle, as graphdnn run --save writes it")
    add_device(parser, "where it was recorded, or NumPy where that is not here")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(arguments: argparse.Namespace) -> Exit:
    """Exit codes are those of ``run``: a mismatch is 1 whether or not it was recorded; so are other bits."""
    bundle = read_as(arguments.bundle, bundle_from_json)
    replayed = replay(bundle, None if arguments.device is None else named_device(arguments.device))
    print(json.dumps(as_json(replayed), indent=1) if arguments.json else as_text(replayed))
    error = replayed.made.error
    if error is not None:
        print_rejections(error.rejections)
        return exit_code(error)
    return Exit.CHECK_FAILED if replayed.made.ending.verdict == MISMATCH or replayed.has_moved else Exit.OK


def as_text(replayed: Replayed) -> str:
    bundle, made = replayed.bundle, replayed.made
    graph = made.config.fused.graph
    rows = [
        ("graph", bundle.problem or graph.name or "unnamed"),
        ("recorded", f"{bundle.ending} on {bundle.device.name} by version {bundle.library}, seed {bundle.seed}"),
    ]
    rows += [("", bundle.ending.detail)] if bundle.ending.verdict in (MISMATCH, ERROR) and bundle.ending.detail else []
    rows += [("device", made.config.device.name), ("plan", made.config.name)]
    rows += [("note", note) for note in replayed.notes]
    rows += [("verify", str(comparison)) for comparison in made.comparisons]
    rows += [("bits", f"{graph.tensors[uid].label()}: {said}") for uid, said in replayed.bits.items()]
    return table(("", ""), [*rows, ("verdict", replayed.verdict)])


def as_json(replayed: Replayed) -> dict[str, Any]:
    bundle, made = replayed.bundle, replayed.made
    return {
        "format": "graphdnn.replay",
        "version": 1,
        "problem": bundle.problem,
        "recorded": bundle.ending.to_json(),
        "ending": made.ending.to_json(),
        "device": made.config.device.name,
        "plan": made.config.name,
        "is_same_plan": replayed.is_same_plan,
        "notes": list(replayed.notes),
        "outputs": [c.to_json() for c in made.comparisons],
        "bits": {str(uid): said for uid, said in replayed.bits.items()},
        "verdict": replayed.verdict,
    }

"""tune: measure configurations on the device of this machine, and say which one is the fastest"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

from graphdnn.cli.commands.run import natural, positive, save
from graphdnn.cli.common_options import MODES, add_device, mode_of, refuse_ignored
from graphdnn.cli.exit_codes import Exit
from graphdnn.cli.fusion_options import add_limits, limited
from graphdnn.cli.graph_argument import HELP, read_argument
from graphdnn.cli.plan_argument import device_for
from graphdnn.files import plan_to_json
from graphdnn.fusion import fuse

_LONGEST = 86_400.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("graph", metavar="GRAPH", help=HELP)
    add_device(parser)
    parser.add_argument(
        "--mode",
        choices=MODES,
        default="B",
        type=str.upper,
        help="candidates; A: engines; B: engines and their knobs (default: B)",
    )
    parser.add_argument("--budget", type=seconds, default=10.0, metavar="S", help="seconds in all (default: 10)")
    parser.add_argument("--most", type=positive, default=64, metavar="N", help="the most candidates (default: 64)")
    parser.add_argument(
        "--limit", type=seconds, default=20.0, metavar="S", help="seconds that a candidate may take (default: 20)"
    )
    parser.add_argument(
        "--any-class", action="store_true", help="also candidates with larger errors than the ranking's best"
    )
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="seed of the random data (default: 0)")
    parser.add_argument(
        "--db", type=Path, metavar="FILE", help="keep the times in this database (default: beside the kernel cache)"
    )
    parser.add_argument("--no-db", action="store_true", help="keep nothing")
    parser.add_argument("--replace", action="store_true", help="replace earlier times, even better ones")
    parser.add_argument(
        "--save-plan", type=Path, metavar="FILE", help="write the plan of the fastest configuration as JSON"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    add_limits(parser)


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= _LONGEST:  # also of what is no number
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0 and up to {_LONGEST:g}")
    return value


def run(arguments: argparse.Namespace) -> Exit:
    from graphdnn.tuning import Database, autotune, default_database

    refuse_ignored(arguments, ("db replace", not arguments.no_db, "without --no-db"))
    asked = read_argument(arguments.graph)
    fused, device = fuse(asked.graph, limited(asked.limits, arguments)), device_for(asked, arguments)
    database = None if arguments.no_db else Database(arguments.db) if arguments.db else default_database()
    tuned = autotune(
        fused,
        device,
        budget=arguments.budget,
        mode=mode_of(arguments),
        any_class=arguments.any_class,
        seed=arguments.seed,
        most=arguments.most,
        candidate_seconds=arguments.limit,
        database=database,
        replace_earlier=arguments.replace,
    )
    print(json.dumps(tuned.to_json(), indent=1) if arguments.json else tuned)
    if not tuned.has_winner:
        return Exit.CHECK_FAILED
    if not arguments.json and database is not None and database.path is not None:
        print(f"kept in {database.path}: build(graph, tuned=...), graphdnn db show")
    save(arguments.save_plan, plan_to_json(tuned.plan))
    return Exit.OK

"""Options of commands that can begin with what was tuned."""

from __future__ import annotations

import argparse
from pathlib import Path

from graphdnn.heuristics import Ranking
from graphdnn.pipeline import Records
from graphdnn.text_format import indented, seconds, table


def add_tuned(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tuned",
        action="store_true",
        help="begin with the configuration that graphdnn tune measured to be the fastest",
    )
    parser.add_argument(
        "--db", type=Path, metavar="FILE", help="as --tuned, with this database (default: beside the kernel cache)"
    )


def records_of(arguments: argparse.Namespace) -> Records | None:
    """The database that was asked for; None for none."""
    if not arguments.tuned and arguments.db is None:
        return None
    from graphdnn.tuning import Database, default_database

    return default_database() if arguments.db is None else Database(arguments.db)


def tuned_text(ranking: Ranking) -> str:
    """What of a ranking was measured; empty where nobody asked."""
    if type(ranking) is Ranking:  # nothing was asked for, and nothing of tuning is loaded
        return ""
    from graphdnn.tuning.database.recorded_ranking import RecordedRanking

    if not isinstance(ranking, RecordedRanking):
        return ""
    lines = [f"tuned: {ranking.note}"]
    if ranking.winner is not None:
        rows = [(str(r.place), r.name, seconds(r.predicted), seconds(r.median)) for r in ranking.recorded]
        lines.append(indented(table(("", "configuration", "predicted", "measured"), rows, right=(2, 3))))
    lines += [
        indented(f"skipped {r.where}: {r.attribute} = {r.shown_value}, {r.reason} [{r.rule}]") for r in ranking.skipped
    ]
    return "\n".join(lines)

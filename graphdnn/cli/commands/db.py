"""db: list, show, merge, verify and prune the tuning database; say how well the cost models rank"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphdnn.cli.commands.cache import DAY, amount
from graphdnn.cli.common_options import refuse_ignored
from graphdnn.cli.exit_codes import Exit
from graphdnn.cli.graph_argument import read_as
from graphdnn.errors import BadParam, MalformedFile
from graphdnn.escaped import escaped, escaped_lines
from graphdnn.files import parse_json
from graphdnn.rules import Rule
from graphdnn.text_format import plural, seconds, shortened, size, table

if TYPE_CHECKING:
    from graphdnn.tuning import Database
    from graphdnn.tuning.calibration import Case, Row
    from graphdnn.tuning.database.record import Record

FORMAT, VERSION = "graphdnn.db", 1
KEY = Rule(
    id="cli.db.key",
    expected="the first characters of one problem's key",
    reason="{why}",
    fix="graphdnn db list prints the keys",
)
FILES = Rule(
    id="cli.db.files",
    expected="{expected}",
    reason="the action needs the files that follow it",
    fix="graphdnn db --help lists the actions",
)
_LONGEST_NAME = 48
_SHOWN = 12  # characters of a key
_WRITING = ("merge", "prune")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=ACTIONS, help="; ".join(f"{name}: {about}" for name, about in ABOUT.items()))
    parser.add_argument("names", nargs="*", metavar="NAME", help="show: a key; merge, calibration: files")
    parser.add_argument("--db", type=Path, metavar="FILE", help="the database (default: beside the kernel cache)")
    parser.add_argument("--days", type=amount, metavar="DAYS", help="prune: remove times that are older")
    parser.add_argument(
        "--stale",
        action="store_true",
        help="prune: remove times that were measured with another version, driver or kernel text",
    )
    parser.add_argument("--all", action="store_true", help="prune: everything")
    parser.add_argument("--json", action="store_true", help="print the same as JSON")


ABOUT = {
    "list": "tuned problems",
    "show": "the candidates of one",
    "merge": "take over what other databases have",
    "verify": "check the file and every entry",
    "prune": "remove damaged entries and files, and what is asked for",
    "calibration": "predictions beside measured times, of the database or of files of tune --json and of the benchmark",
}


def run(arguments: argparse.Namespace) -> Exit:
    from graphdnn.tuning import Database

    is_of_files = arguments.action == "calibration" and bool(arguments.names)
    refuse_ignored(arguments, ("days stale all", arguments.action == "prune", "with prune"),
                   ("days stale", not arguments.all, "without --all"),
                   ("db", not is_of_files, "without files to calibrate by"))  # fmt: skip
    if arguments.names and arguments.action in ("list", "verify", "prune"):
        raise BadParam(FILES.reject("command line", "NAME", " ".join(arguments.names), expected="no name"))
    with Database(arguments.db) as database:
        is_writing = arguments.action in _WRITING
        if not is_of_files:
            _refuse(database, is_writing)
        code = ACTIONS[arguments.action](database, arguments)
        if not is_of_files:
            _refuse(database, is_writing)  # a file may break, and be locked, in between
        return code


def _refuse(database: Database, is_writing: bool) -> None:
    refused = (database.unwritable if is_writing else None) or database.unread
    if refused is not None:
        raise BadParam(refused)


def list_problems(database: Database, arguments: argparse.Namespace) -> Exit:
    entries = [_summary(database, list(group)) for _, group in groupby(database.records(), lambda r: r.key)]
    if arguments.json:
        _print_json(database, problems=entries)
        return Exit.OK
    rows = [
        (entry["key"][:_SHOWN], shortened(entry["problem"], _LONGEST_NAME), entry["device"],
         shortened(entry["fastest"], _LONGEST_NAME), seconds(entry["median_us"] * 1e-6), str(entry["candidates"]),
         entry["measured"], "" if entry["is_current"] else "stale")
        for entry in entries
    ]  # fmt: skip
    if rows:
        head = ("key", "problem", "device", "fastest", "median", "tried", "measured", "")
        print(table(head, rows, right=(4, 5)) + "\n")
    print(_total(database, len(entries)))
    return Exit.OK


def show(database: Database, arguments: argparse.Namespace) -> Exit:
    if len(arguments.names) != 1:
        raise BadParam(FILES.reject("command line", "NAME", " ".join(arguments.names), expected="one key"))
    key = arguments.names[0]
    found = [r for r in database.records() if r.problem.startswith(key)]
    keys = sorted({r.problem for r in found})
    if len(keys) != 1:
        why = "no problem has it" if not keys else f"{len(keys)} problems have it"
        raise BadParam(KEY.reject("command line", "key", key, why=why))
    groups = [list(group) for _, group in groupby(found, lambda r: r.key)]
    if arguments.json:
        graph = database.graph_text(keys[0])
        tunings = [_summary(database, g) | {"trials": [_entry(r) for r in g]} for g in groups]
        _print_json(database, key=keys[0], tunings=tunings, graph=None if graph is None else json.loads(graph))
        return Exit.OK
    problem = database.problems().get(keys[0])
    lines = [f"problem {escaped(keys[0])}" + ("" if problem is None else f": {problem}")]
    if problem is not None:
        lines.append(f"kernels {escaped(problem.kernels)}")
    for group in groups:
        first = group[0]
        setup = f"{first.setup.device_name}, {first.setup.driver}, graphdnn {first.setup.version}"
        lines += ["", escaped(f"on {setup}, text {first.setup.texts}, {_day(first.measured)}")]
        rows = [
            (str(r.place), r.name, seconds(r.predicted), seconds(r.median), f"{seconds(r.low)} - {seconds(r.high)}",
             str(r.samples), size(r.workspace))
            for r in group
        ]  # fmt: skip
        head = ("", "configuration", "predicted", "median", "95 % interval", "samples", "workspace")
        lines.append(table(head, rows, right=(2, 3, 4, 5, 6)))
    print(escaped_lines("\n".join(lines)))
    return Exit.OK


def merge(database: Database, arguments: argparse.Namespace) -> Exit:
    """Tunings that are not here, and times that are better there."""
    if not arguments.names:
        raise BadParam(FILES.reject("command line", "NAME", "none", expected="files of databases"))
    from graphdnn.tuning.database.database import merged

    taken = [(name, *merged(database, Path(name))) for name in arguments.names]
    if arguments.json:
        _print_json(database, merged=[{"file": n, "tunings": t, "left": o, "damaged": d} for n, t, o, d in taken])
        return Exit.OK
    for name, tunings, others, damaged in taken:
        print(f"{name}: {plural(tunings, 'tuning')} taken over, {others} as good or better here"
              + (f", {_entries(damaged)} damaged" if damaged else ""))  # fmt: skip
    print(_total(database, len({r.key for r in database.records()})))
    return Exit.OK


def verify(database: Database, arguments: argparse.Namespace) -> Exit:
    from graphdnn.tuning.database.damaged_files import damaged_files, without_proof

    problems = database.integrity()
    count = len(database.records())
    problems += [str(e.rejections[0]).splitlines()[0] for e in database.damaged]
    before = len(database.damaged)
    problems += [f"graph {key[:_SHOWN]} cannot be read" for key in database.problems() if database.graph(key) is None]
    aside = [] if database.path is None else damaged_files(database.path)
    foreign = [] if database.path is None else without_proof(database.path)
    if arguments.json:
        _print_json(
            database, entries=count + before, problems=problems, set_aside=[p.name for p in aside],
            foreign=[p.name for p in foreign],
        )  # fmt: skip
    else:
        print(f"{_entries(count + before)} checked in {_where(database)}: "
              f"{len(problems)} damaged")  # fmt: skip
        for problem in problems:
            print(f"  {shortened(problem, 160)}")
        for path in aside:
            print(f"  set aside before: {path.name}")
        for path in foreign:
            print(f"  left as it is, for it has no sign of graphdnn: {path.name}")
        if problems:
            print("fix: graphdnn db prune (a damaged entry is never used)")
    return Exit.CHECK_FAILED if problems else Exit.OK


def prune(database: Database, arguments: argparse.Namespace) -> Exit:
    from graphdnn.tuning.database.damaged_files import delete_damaged

    entries = database.remove_damaged()
    limit = None if arguments.days is None else time.time() - arguments.days * DAY
    old = {
        r.key
        for r in database.records()
        if arguments.all
        or (limit is not None and r.measured < limit)
        or (arguments.stale and not database.is_current(r.setup))
    }
    database.remove(old)
    files = 0 if database.path is None else delete_damaged(database.path)
    if arguments.json:
        _print_json(database, removed=len(old), damaged=entries, files=files)
        return Exit.OK
    print(f"removed {plural(len(old), 'tuning')}, {entries} damaged, {plural(files, 'file')} set aside before")
    print(_total(database, len({r.key for r in database.records()})))
    return Exit.OK


def calibrate(database: Database, arguments: argparse.Namespace) -> Exit:
    from graphdnn.tuning.calibration import calibration, cases_in, cases_of

    cases: list[Case] = []
    for name in arguments.names:
        data = read_as(name, parse_json)
        if not isinstance(data, dict):
            raise MalformedFile(FILES.reject("command line", "file", name, expected="a result of graphdnn tune --json"))
        cases += cases_in(data)
    rows = calibration(cases if arguments.names else cases_of(database))
    if arguments.json:
        _print_json(database, rows=[row.to_json() for row in rows])
        return Exit.OK
    print(calibration_text(rows))
    return Exit.OK


def calibration_text(rows: Sequence[Row]) -> str:
    if not rows:
        return "nothing to compare: no problem has two measured candidates (graphdnn tune)"
    head = ("device", "kind", "problems", "candidates", "regret", "worst", "top 1", "top 3", "tau", "rho")
    shown = [
        (r.device, r.kind, str(r.problems), str(r.candidates), f"{r.regret:.3f}", f"{r.worst:.3f}", f"{r.top1:.0%}",
         f"{r.top3:.0%}", _correlation(r.tau), _correlation(r.rho))
        for r in rows
    ]  # fmt: skip
    note = (
        "regret: time of the best prediction over that of the fastest candidate (geometric mean)\n"
        "top N: share of problems whose fastest candidate, or one as fast, is among the N best predictions\n"
        "tau, rho: rank correlation of predicted and measured times; only candidates that were tried are known"
    )
    return f"{table(head, shown, right=range(2, 10))}\n\n{note}"


def _correlation(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _summary(database: Database, group: Sequence[Record]) -> dict[str, Any]:
    first = group[0]
    problem = database.problems().get(first.problem)
    return {
        "key": first.problem,
        "problem": "" if problem is None else str(problem),
        "device": first.setup.device_name,
        "driver": first.setup.driver,
        "version": first.setup.version,
        "texts": first.setup.texts,
        "fastest": first.name,
        "median_us": first.median * 1e6,
        "candidates": len(group),
        "measured": _day(first.measured),
        "is_current": database.is_current(first.setup),
    }


def _entry(record: Record) -> dict[str, Any]:
    return {
        "name": record.name,
        "choices": [entry.to_json() for entry in record.choices],
        "predicted_us": record.predicted * 1e6,
        "median_us": record.median * 1e6,
        "interval_us": [record.low * 1e6, record.high * 1e6],
        "samples": record.samples,
        "workspace_size": record.workspace,
    }


def _day(when: int) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(when))
    except (ValueError, OverflowError, OSError):
        return "-"


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count} entries"


def _where(database: Database) -> str:
    return str(database.path) if database.path is not None else "memory"


def _total(database: Database, count: int) -> str:
    return f"{plural(count, 'tuning')} in {_where(database)}"


def _print_json(database: Database, **facts: Any) -> None:
    path = None if database.path is None else str(database.path)
    print(json.dumps({"format": FORMAT, "version": VERSION, "file": path, **facts}, indent=1))


ACTIONS: dict[str, Callable[[Any, argparse.Namespace], Exit]] = {
    "list": list_problems,
    "show": show,
    "merge": merge,
    "verify": verify,
    "prune": prune,
    "calibration": calibrate,
}

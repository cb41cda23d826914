"""cuts: show where a graph could be split between this library and other kernels, and whether that would be faster"""

from __future__ import annotations

import argparse
import json

from graphdnn.analysis.cuts import Cut, Cuts, Side, cuts_of
from graphdnn.cli.common_options import add_device
from graphdnn.cli.exit_codes import Exit
from graphdnn.cli.fusion_options import add_limits, limited
from graphdnn.cli.graph_argument import HELP, read_argument
from graphdnn.cli.plan_argument import device_for
from graphdnn.escaped import escaped
from graphdnn.text_format import indented, plural, seconds, shortened, size, table

_LONGEST_THROUGH = 36
_NAMED = 3  # operations of each side
_HEAD = ("", "through", "first", "second", "first", "second", "one by one", "together", "memory", "launches", "whole")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("graph", metavar="GRAPH", help=HELP)
    add_device(parser)
    parser.add_argument("--measure", action="store_true", help="execute the whole and all parts on the device")
    parser.add_argument(
        "--margin",
        type=share,
        metavar="SHARE",
        help="the share of the time below which a difference counts as none, e.g. 0.05",
    )
    parser.add_argument("--json", action="store_true", help="print the same as JSON")
    add_limits(parser)


def share(text: str) -> float:
    """Named as argparse says it: invalid share value."""
    value = float(text)
    if not 0 <= value < 10:
        raise ValueError(text)
    return value


def run(arguments: argparse.Namespace) -> Exit:
    asked = read_argument(arguments.graph)
    found = cuts_of(
        asked.graph,
        device_for(asked, arguments),
        measure=arguments.measure,
        margin=arguments.margin,
        limits=limited(asked.limits, arguments),
    )
    print(json.dumps(found.to_json(), indent=1) if arguments.json else as_text(found))
    return Exit.OK


def as_text(cuts: Cuts) -> str:
    name = f" of '{escaped(cuts.graph.name)}'" if cuts.graph.name else ""
    whole = cuts.whole
    how = "predicted" if whole.measured is None else f"measured, {seconds(whole.predicted)} predicted"
    lines = [
        f"cuts{name} on {cuts.device.name}",
        f"  whole: {seconds(whole.seconds)} {how}; {plural(whole.kernels, 'kernel')}, "
        f"{plural(whole.launches, 'launch', 'launches')}, {size(whole.bytes)}",
    ]
    if not cuts.cuts:
        return "\n".join([*lines, "  nothing to cut: one operation, or none that reads another's result"])
    rows = [_row(str(i), cut) for i, cut in enumerate(cuts)]
    lines += ["", indented(table(_HEAD, rows, right=(4, 5, 6, 7, 8, 9))), "", *_LEGEND, "", _advice(cuts)]
    return "\n".join(lines)


_LEGEND = (
    "  through     tensors that pass from the first part to the second in memory",
    "  one by one  the second part with one kernel for each operation",
    "  together    both parts, each fused as well as the rules allow, by whoever does it",
    "  memory, launches: what the whole saves beside them; whole: is keeping it whole worth it",
)


def _row(number: str, cut: Cut) -> tuple[str, ...]:
    through = ", ".join(t.label() for t in cut.tensors)
    return (
        number, shortened(through, _LONGEST_THROUGH), _end_of(cut.before), _start_of(cut.after),
        seconds(cut.before.fused.seconds), seconds(cut.after.fused.seconds), seconds(cut.after.unfused.seconds),
        seconds(cut.verdict.split), _signed(cut.bytes_saved), f"{cut.launches_saved:+d}", str(cut.verdict),
    )  # fmt: skip


def _end_of(side: Side) -> str:
    """What comes last before the cut, with the number of all operations where others come before it."""
    names = _names(side)
    return f"{len(names)}: ... {'+'.join(names[-_NAMED:])}" if len(names) > _NAMED else "+".join(names)


def _start_of(side: Side) -> str:
    names = _names(side)
    return f"{len(names)}: {'+'.join(names[:_NAMED])} ..." if len(names) > _NAMED else "+".join(names)


def _names(side: Side) -> list[str]:
    return [label.split(" ")[0] for label in side.operations]


def _signed(number: int) -> str:
    return ("-" if number < 0 else "+") + size(abs(number))


def _advice(cuts: Cuts) -> str:
    best = cuts.best
    if best is None:
        return f"keep it whole: no split is faster by more than {cuts.margin:.0%}"
    apart = " ".join(f"--forbid {','.join(map(str, entry))}" for entry in best.limits.forbid)
    return (
        f"split it at [{cuts.cuts.index(best)}]: the parts take {seconds(best.verdict.split)} together\n"
        f"in one plan: graphdnn run GRAPH {apart}"
    )

"""import: read problems in the formats of other libraries: benchdnn, MIOpenDriver, cuDNN frontend JSON"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from graphdnn.cli.exit_codes import Exit, print_rejections
from graphdnn.cli.graph_argument import read_source
from graphdnn.cli.output_files import write_file
from graphdnn.files import graph_to_dict, graph_to_json
from graphdnn.importers import FORMATS, Imported, Problem, read


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="FILE", help="a file, - for stdin, or a line itself")
    parser.add_argument("--format", choices=tuple(FORMATS), help="the format of the file (default: it is detected)")
    parser.add_argument(
        "--layout",
        choices=("nchw", "nhwc"),
        default="nchw",
        help="the layout if the source does not state it (default: nchw)",
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write the problems to a file, for graphdnn lock --from FILE"
    )
    parser.add_argument("--json", action="store_true", help="print the same as JSON")


def run(arguments: argparse.Namespace) -> Exit:
    imported = read(read_source(arguments.source), arguments.format, arguments.layout == "nhwc")
    text = json.dumps(as_json(imported), indent=1) if arguments.json else as_text(imported)
    if not arguments.json or arguments.output is not None:  # else they are in what is printed
        print_rejections(imported.refused)
        for note in imported.notes:
            print(f"note: {note}", file=sys.stderr)
    if not imported.problems and not imported.refused:
        print(f"note: no line of {imported.format} was found, so there is no problem", file=sys.stderr)
    if arguments.output is not None:
        write_file(arguments.output, text + "\n")
    elif text:
        print(text)
    return Exit.CHECK_FAILED if imported.refused else Exit.OK


def as_text(imported: Imported) -> str:
    """A problem text on each line; a graph, where the source is one."""
    return "\n".join(_line(problem) for problem in imported.problems)


def _line(problem: Problem) -> str:
    return f"{problem.text}  # {problem.comment}" if problem.text else graph_to_json(problem.graph)


def as_json(imported: Imported) -> dict[str, Any]:
    return {
        "format": "graphdnn.import",
        "version": 1,
        "source": imported.format,
        "problems": [
            {"line": p.line, "name": p.name, **({"problem": p.text} if p.text else {"graph": graph_to_dict(p.graph)})}
            for p in imported.problems
        ],
        "refused": [r.to_json() for r in imported.refused],
        "notes": list(imported.notes),
    }

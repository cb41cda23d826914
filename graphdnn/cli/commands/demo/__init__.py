"""demo: run three jobs on a real photograph and check their results"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from graphdnn.cli.exit_codes import Exit

TITLES = {
    "descriptors": "1. Convolution + bias + ReLU from raw v8 descriptors",
    "registration": "2. Thirty shifted copies found by one int16 convolution",
    "unfused": "3. A graph that does not become one kernel, and why",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "part", nargs="*", choices=[*TITLES, []], metavar="PART", help=f"{', '.join(TITLES)} (default: all of them)"
    )


def run(arguments: argparse.Namespace) -> Exit:
    from graphdnn.cli.commands.demo import descriptors, photo, registration, unfused
    from graphdnn.cli.commands.demo.report import Report, timed

    photo.photograph()  # says what is missing before anything is printed
    parts: dict[str, Callable[[Report], None]] = {
        "descriptors": descriptors.run, "registration": registration.run, "unfused": unfused.run,
    }  # fmt: skip
    verdicts: list[bool] = []

    def one(name: str) -> None:
        report = Report(TITLES[name])
        parts[name](report)
        verdicts.append(report.close())

    chosen = [name for name in parts if name in arguments.part] or list(parts)
    taken = sum(timed(lambda name=name: one(name)) for name in chosen)  # type: ignore[misc]
    print(f"{sum(verdicts)} of {len(verdicts)} parts ok, {taken:.1f} s")
    return Exit.OK if all(verdicts) else Exit.CHECK_FAILED

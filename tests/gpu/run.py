"""Drawn problems on the GPU against NumPy, from the command line.

    python tests/gpu/run.py --cases 3000 --time-limit 500 --json out.json
    python tests/gpu/run.py --case conv_fprop:17 --every-engine        repeats one case
    python tests/gpu/run.py --emulated --case norm:4:small             ... without a GPU

Ends with code 1 when a case failed, or none ran.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path

_TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(_TESTS), str(_TESTS / "support"), str(_TESTS.parent)]

from random_problems import report
from random_problems.attempt import Attempt
from random_problems.families import FAMILIES, Case, cases
from random_problems.process_pool import Pool


def main() -> int:
    options = _options()
    chosen = [Case.of(text) for text in options.case] or cases(
        options.cases,
        large=options.large or not (options.emulated or options.small),
        families=options.family,
        start=options.start,
    )
    random.Random(0).shuffle(chosen)  # a run that is cut off has seen some of every family
    attempts: list[Attempt] = []
    started = time.monotonic()

    def progress(attempt: Attempt) -> None:
        attempts.append(attempt)
        if attempt.failures:
            print(f"FAILED {attempt.case} after {time.monotonic() - started:.0f} s", flush=True)
        if len(attempts) % 250 == 0:
            print(f"{len(attempts)} cases, {time.monotonic() - started:.0f} s", flush=True)

    how = {"knob_settings": options.knobs, "broad": 1 if options.every_engine else 0 if options.best else 4}
    with Pool(options.processes, place="emulated" if options.emulated else "cuda", **how) as pool:
        for attempt in pool.run(chosen, options.time_limit):
            progress(attempt)
    if options.json:
        Path(options.json).write_text(json.dumps(report.to_json(attempts), indent=0))
    if options.case:
        for attempt in attempts:
            print(f"{attempt.case}: {attempt.runs}")
            print("\n".join(attempt.failures or [attempt.declined or "ok"]))
    print(report.failures(attempts))
    print(report.summary(attempts, len(chosen)))
    print(f"{time.monotonic() - started:.0f} s")
    return int(any(a.failures for a in attempts) or not any(a.runs for a in attempts))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=3000, help="how many to draw")
    parser.add_argument("--start", type=int, default=0, help="the first seed of each family")
    parser.add_argument("--family", action="append", default=[], choices=sorted(FAMILIES), help="only these")
    parser.add_argument("--case", action="append", default=[], help="family:seed or family:seed:small; repeats it")
    parser.add_argument("--every-engine", action="store_true", help="every case on every engine that serves it")
    parser.add_argument("--best", action="store_true", help="every case on the best engine only")
    parser.add_argument("--knobs", type=int, default=2, help="other knob values for each engine")
    parser.add_argument("--small", action="store_true", help="draw the small problems of the emulator")
    parser.add_argument("--large", action="store_true", help="draw the GPU's problems for the emulator too")
    parser.add_argument("--emulated", action="store_true", help="in the emulator")
    parser.add_argument("--processes", type=int, default=0, help="one for each core by default")
    parser.add_argument("--time-limit", type=float, default=float("inf"), help="seconds")
    parser.add_argument("--json", help="where to write all verdicts")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

"""Everything that a release says of a GPU, run at one commit: tests, drawn problems, compute-sanitizer, figures.

    make release-gpu GPU_PYTHON=python3 OUT=build/release        needs a GPU, CuPy, PyTorch and compute-sanitizer; hours
    python tests/gpu/release.py OUT --only tests drawn

Each step writes OUT/STEP.log. ``OUT/release.json`` names commit, device, driver and versions, and has the command, exit
code, seconds and last lines of each step. Ends with code 1 if a step failed, if a test was skipped for a reason that
``SKIPS`` does not list, or if the working tree is not the commit's.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
_PYTEST = (sys.executable, "-m", "pytest", "-p", "no:benchmark", "tests/gpu")
_SANITIZER = ("compute-sanitizer", "--error-exitcode", "9")
_SANITIZED = (sys.executable, "tests/gpu/sanitize.py")
_LINES = 12  # of a step's output that are kept: they hold the counts

# Reasons for which a test may be skipped on a machine that has everything.
SKIPS = (
    r"another process has the other families",
    r"no filter is that large, or it would take a gigabyte",
    r"it states that it spreads them",
    r"needs two GPUs",
)


@dataclass(frozen=True)
class Step:
    """``skips``: the step writes a report of its tests, which is read for skips."""

    name: str
    command: tuple[str, ...]
    skips: bool = False


def steps(out: Path) -> tuple[Step, ...]:
    """In this order: what compiles comes before what only runs."""

    def tests(name: str, marks: str, *more: str) -> Step:
        return Step(name, (*_PYTEST, "-m", marks, f"--junitxml={out / name}.xml", *more), skips=True)

    return (
        tests("tests", "gpu and not alone", "-n", "6", "--dist", "loadgroup"),
        tests("alone", "gpu and alone"),
        Step("drawn", (sys.executable, "tests/gpu/run.py", "--cases", "3000", "--json", str(out / "drawn.json"))),
        Step("compiled", (*_SANITIZED, "--compile-only")),
        Step("memcheck", (*_SANITIZER, "--tool", "memcheck", "--report-api-errors", "no", *_SANITIZED, "--all")),
        Step("racecheck", (*_SANITIZER, "--tool", "racecheck", *_SANITIZED)),
        Step("synccheck", (*_SANITIZER, "--tool", "synccheck", *_SANITIZED)),
        Step("initcheck", (*_SANITIZER, "--tool", "initcheck", *_SANITIZED)),
        Step("figures", (sys.executable, "benchmarks/gpu.py", "--suite", "all", "--isolate", "--json", str(out))),
    )


@dataclass(frozen=True)
class Result:
    """``unexpected``: tests that were skipped for a reason that is not listed."""

    name: str
    command: str
    code: int
    seconds: float
    lines: tuple[str, ...]
    unexpected: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.code == 0 and not self.unexpected


def unexpected_skips(report: Path) -> tuple[str, ...]:
    """Tests of a JUnit report that were skipped, with a reason that ``SKIPS`` does not list."""
    found = []
    for case in ElementTree.parse(report).iter("testcase"):
        for skip in case.iter("skipped"):
            reason = skip.get("message", "")
            if not any(re.search(listed, reason) for listed in SKIPS):
                found.append(f"{case.get('classname')}::{case.get('name')}: {reason}")
    return tuple(found)


def run(step: Step, out: Path) -> Result:
    """Run a step in the repository, with its output in a file."""
    log, start = out / f"{step.name}.log", time.monotonic()
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    try:
        with log.open("w", encoding="utf-8") as file:
            code = subprocess.run(
                step.command, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT, check=False
            ).returncode
    except FileNotFoundError as error:
        log.write_text(f"{error}\n", encoding="utf-8")
        code = 127
    lines = tuple(log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LINES:])
    report = out / f"{step.name}.xml"
    if step.skips and not report.exists():
        unexpected: tuple[str, ...] = ("no report was written, so nothing says what was skipped",)
    else:
        unexpected = unexpected_skips(report) if step.skips else ()
    return Result(step.name, " ".join(step.command), code, time.monotonic() - start, lines, unexpected)


def commit() -> tuple[str, bool]:
    """The commit, and whether the working tree differs from it."""

    def git(*words: str) -> str:
        return subprocess.run(("git", *words), cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    return git("rev-parse", "HEAD"), bool(git("status", "--porcelain"))


def machine() -> dict[str, str]:
    """Device, driver and versions."""
    query = ("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    try:
        said = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    except (FileNotFoundError, subprocess.CalledProcessError):
        said = "none"
    packages = (
        "numpy",
        "cupy-cuda12x",
        "cupy-cuda13x",
        "torch",
        "cuda-bindings",
        "nvidia-cudnn-cu12",
        "nvidia-cudnn-cu13",
    )
    return {"devices": said, "python": sys.version.split()[0]} | {
        name: metadata.version(name) for name in packages if _is_installed(name)
    }


def _is_installed(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def release(chosen: Iterable[Step], out: Path, at: str, is_dirty: bool) -> int:
    """Run steps and write what came of them; 1 if anything stands in the way of a release."""
    results: list[Result] = []
    facts = {"commit": at, "is_dirty": is_dirty, "machine": machine()}
    for step in chosen:
        result = run(step, out)
        results.append(result)
        print(
            f"{step.name:10} {'ok' if result.ok else 'FAILED'} in {result.seconds:.0f} s: {' | '.join(result.lines[-2:])}",
            flush=True,
        )
        for line in result.unexpected:
            print(f"           skipped: {line}")
        content = {**facts, "steps": [asdict(each) for each in results]}
        (out / "release.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    if is_dirty:
        print("FAILED: the working tree differs from the commit")
    return int(is_dirty or not results or not all(result.ok for result in results))


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="+", default=[], metavar="STEP", help="these steps")
    options = parser.parse_args(words)
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    known = steps(out)
    unknown = set(options.only) - {step.name for step in known}
    if unknown:
        parser.error(f"no such step: {', '.join(sorted(unknown))}; steps are {', '.join(step.name for step in known)}")
    return release([s for s in known if not options.only or s.name in options.only], out, *commit())


if __name__ == "__main__":
    sys.exit(main())

"""The page of the size of the code: lines by package, and the functions that one plan passes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[1] / "graphdnn"
CALL_COUNTS = PACKAGE.parent / "benchmarks" / "results" / "call_counts.json"
KERNELS = (".cu", ".cuh")
_ROUNDING = 100  # lines
# Packages whose folders have rows of their own
_DIVIDED = ("graphdnn", "graphdnn/engines", "graphdnn/engines/cuda")

Table = Callable[[Iterable[str], Iterable[Iterable[object]]], str]


def sizes(root: Path = PACKAGE) -> dict[str, tuple[int, int, int]]:
    """Lines of Python, lines of CUDA and files by package: the lines that ``wc -l`` counts."""
    found: dict[str, tuple[int, int, int]] = {}
    for path in sorted(root.rglob("*")):
        if path.suffix not in (".py", *KERNELS):
            continue
        package = _package_of(path.relative_to(root.parent))
        lines = path.read_bytes().count(b"\n")
        python, cuda, files = found.get(package, (0, 0, 0))
        is_kernel = path.suffix in KERNELS
        found[package] = python + lines * (not is_kernel), cuda + lines * is_kernel, files + 1
    return dict(sorted(found.items()))


def _package_of(path: Path) -> str:
    """The innermost package with a row of its own."""
    folders = path.parent.parts
    depth = 1
    while depth < len(folders) and "/".join(folders[:depth]) in _DIVIDED:
        depth += 1
    return "/".join(folders[:depth])


def _rounded(lines: int) -> str:
    return "" if lines == 0 else f"{max(_ROUNDING, round(lines, -2)):,}"


def _counts() -> dict[str, Any]:
    counts: dict[str, Any] = json.loads(CALL_COUNTS.read_text(encoding="utf-8"))
    return counts


def page(note: str, table: Table) -> str:
    """The page, with the note of generated pages and the function that writes a table."""
    rows = sizes()
    total = [sum(values) for values in zip(*rows.values(), strict=True)]
    lines = [(f"`{name}/`", _rounded(p), _rounded(c), files) for name, (p, c, files) in rows.items()]
    lines.append(("all", _rounded(total[0]), _rounded(total[1]), total[2]))
    counts = _counts()
    where = f"{counts['device']} profile, Python {counts['python']}"
    steps = [(step, *row) for step, row in counts["steps"].items()]
    return "\n\n".join((
        "# Size of the code",
        note.rstrip("\n"),
        "## Lines by package",
        f"Lines are those of `wc -l`, comments included, rounded to {_ROUNDING}.",
        table(("package", "Python", "CUDA", "files"), lines),
        "## Functions of one plan",
        "`benchmarks/call_counts.py` counts the functions of the library, their files and their calls that a\n"
        f"convolution with bias and ReLU passes (fp16, 64 channels, 14x14; {where}).\n"
        "The executed plan is a plan for the CPU. `--write` stores new counts. A test rejects counts that exceed the\n"
        "stored counts by more than a tenth.",
        table(("step", "functions", "files", "calls"), steps),
    )) + "\n"  # fmt: skip

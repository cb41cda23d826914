"""Sentences name what they speak of: pronouns that a reader has to trace back are not used in texts of the project."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from repository import ROOT

# "kernels, of which two are fused", "those that are left": the reader has to search the noun.
UNCLEAR = re.compile(r"\bof which\b|\bwhat is left of\b|\bthose (?:that|which)\b|\bwhat would help\b", re.I)
# The log keeps what was written on the day of a measurement.
NOT_READ = ("docs/performance-log.md",)
# Files with prose: Python and kernels.
SUFFIXES = (".py", ".cu", ".cuh")
# Words that once named a tile, a split, an operand or a stride. The terms of CUTLASS, PTX and cuDNN replace them.
COINED = re.compile(
    r"\b(?:[Ww]ish(?:es|ed)?|[Ww]alks?|[Ss]ides|apart|[Tt]urns|[Ss]hares|[Ss]trips?|[Pp]aces?|doubt|[Ll]ooks)\b(?!\()"
)
# Packages whose names are the field's terms; their subfolders are read as well.
OF_STANDARD_TERMS = ("graphdnn/engines/cuda/codegen", "graphdnn/engines/cuda/direct")


def sentences(text: str) -> str:
    """Lines joined as a reader reads them: without the signs of comments, and without quotes at the ends of lines."""
    return re.sub(r'"?\s*\n\s*(?:(?:[#>]|//)\s*)?"?', " ", text)


def unclear(text: str) -> list[str]:
    joined = sentences(text)
    return [joined[max(0, found.start() - 40) : found.end() + 20] for found in UNCLEAR.finditer(joined)]


def _texts() -> list[Path]:
    pages = [ROOT / "README.md", ROOT / "tests" / "README.md", *(ROOT / "docs").glob("*.md")]
    code = [path for folder in ("graphdnn", "examples", "docs") for path in (ROOT / folder).rglob("*")]
    code = [path for path in code if path.suffix in SUFFIXES]
    read = [path for path in (*pages, *code) if "_build" not in path.parts]
    return sorted(path for path in read if path.relative_to(ROOT).as_posix() not in NOT_READ)


@pytest.mark.parametrize("path", _texts(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_pronoun_without_its_noun(path: Path) -> None:
    assert not unclear(path.read_text(encoding="utf-8"))


def _code_of_standard_terms() -> list[Path]:
    files = [path for folder in OF_STANDARD_TERMS for path in (ROOT / folder).rglob("*")]
    return sorted(path for path in files if path.suffix in SUFFIXES)


@pytest.mark.parametrize("path", _code_of_standard_terms(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_standard_terms(path: Path) -> None:
    assert not COINED.findall(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("text", ["requests: Wishes", "the walk of a warp", "strips of columns", "pace = stride"])
def test_a_coined_term_is_rejected(text: str) -> None:
    assert COINED.search(text)


@pytest.mark.parametrize(
    "text",
    [
        "a text of which all operations can be read",
        "// Packs beyond the end, of\n// which nothing is stored.",
        '"""Those that are as fast as the fastest one."""',
        "# kernels of the whole and those\n    # that are made anew",
        'reason="the extents of which only "\n    "some are read"',
        "What is left of a step is a new start.",
    ],
)
def test_a_sentence_that_must_be_read_twice_is_rejected(text: str) -> None:
    assert len(unclear(text)) == 1


def test_plain_sentences_pass() -> None:
    assert not unclear("The kernels that are new, and the order in which they run. Those two tensors are fused.")


def test_every_page_is_read() -> None:
    assert len(_texts()) > 400
    assert all((ROOT / name).exists() for name in NOT_READ)

"""Every constant that a generator defines is described by a comment of the kernel's files."""

from __future__ import annotations

import re
from functools import cache

import pytest
from test_generator_calls import ENGINES, generated, kernel_texts

_CONSTANT = re.compile(r"^constexpr (?:int|bool) ([A-Z][A-Z0-9_]*) = (?:-?\d+|true|false);$", re.M)
# Constant -> the kernel that uses it and describes it in other words.
UNDESCRIBED = {
    "DILATION_H": "direct_sliding_mma_wgrad",
    "DILATION_W": "direct_sliding_mma_wgrad",
}


@cache
def _of_kernel_files() -> frozenset[str]:
    """Lines of kernel files that define constants themselves."""
    texts = [path.read_text(encoding="utf-8") for path in ENGINES.rglob("*.cu*")]
    return frozenset(line for text in texts for line in text.splitlines() if _CONSTANT.match(line))


def defined(text: str) -> set[str]:
    """The constants that the generator defines."""
    lines = [line for line in generated(text).splitlines() if line not in _of_kernel_files()]
    return set(_CONSTANT.findall("\n".join(lines)))


def undescribed(text: str) -> set[str]:
    """Constants among the generated lines that no comment at the start of a line names."""
    comments = "\n".join(line for line in text.splitlines() if line.startswith("//"))
    words = set(re.findall(r"\w+", comments))
    return defined(text) - words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("// STAGES: stages.\n\nconstexpr int STAGES = 4;\nconstexpr bool WIDE = true;\n", {"WIDE"}),
        ("// Nothing.\nint x;\nconstexpr int LOADS = -1;\n", {"LOADS"}),
        ("// LOADS_IN_FLIGHT: loads.\nint x;\nconstexpr int LOADS = 1;\n", {"LOADS"}),
        ("// LOADS: loads.\nint x;\nconstexpr int LOADS = 1;\nconstexpr int TWICE = 2 * LOADS;\n", set()),
    ],
)
def test_a_constant_without_a_comment_is_found(text: str, expected: set[str]) -> None:
    assert undescribed(text) == expected


def test_every_constant_is_described() -> None:
    texts = kernel_texts()
    assert len(set().union(*map(defined, texts))) > 200
    missing = {
        name: re.findall(r"void __launch_bounds__\([^)]*\) (\w+)", text) for text in texts for name in undescribed(text)
    }
    assert missing.keys() <= UNDESCRIBED.keys(), missing

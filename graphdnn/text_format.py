"""Plain text for a terminal or a pipe: tables, units, indentation. ASCII only, names of a file aside."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from difflib import get_close_matches

from graphdnn.escaped import escaped, escaped_lines

_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
_SIZES = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
_WIDTH = 120  # of lines
_LEAST = 24  # letters that stay of a name
_COUNTS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def seconds(value: float) -> str:
    """``12.3 ms``."""
    for unit, name in _TIMES:
        if value >= unit:
            return f"{value / unit:.3g} {name}" if value < 100 * unit else f"{value / unit:.0f} {name}"
    return f"{value * 1e6:.2g} us"


def size(value: int) -> str:
    """``1.5 MiB``."""
    for unit, name in _SIZES:
        if value >= unit:
            return f"{value / unit:.4g} {name}"
    return f"{value} B"


def count(value: float) -> str:
    """``3.4 G``: for operations and the like."""
    for unit, name in _COUNTS:
        if value >= unit:
            return f"{value / unit:.3g} {name}"
    return f"{value:.0f} "


def plural(number: int, word: str, many: str = "") -> str:
    """``1 kernel``, ``2 kernels``; ``many`` where an s does not make it."""
    return f"{number} {word}" if number == 1 else f"{number} {many or word + 's'}"


def indented(text: str, by: str = "  ") -> str:
    return "\n".join(by + line if line else line for line in text.splitlines())


def shortened(text: str, limit: int) -> str:
    """On one line, its middle left out where it is longer than ``limit``."""
    line = escaped(" ".join(text.split()))
    half = (limit - 5) // 2
    return line if len(line) <= limit else f"{line[:half]} ... {line[-half:]}"


def facts(rows: Sequence[tuple[str, str]], by: str = "  ") -> str:
    """Labels and what is said of them, which goes on below itself where it is longer than a line."""
    column = max(len(label) for label, _ in rows) + 2
    return "\n".join(
        textwrap.fill(
            escaped_lines(text), _WIDTH, initial_indent=by + label.ljust(column), subsequent_indent=by + " " * column,
            break_long_words=False, break_on_hyphens=False,
        )
        for label, text in rows
    )  # fmt: skip


def meant(word: str, known: Sequence[str]) -> str:
    """``did you mean pad? else ``, where a known word resembles this one."""
    starts = [k for k in known if len(k) > 1 and (word.startswith(k) or (len(word) > 1 and k.startswith(word)))]
    near = get_close_matches(word, known, n=1) or starts[:1]
    return f"did you mean {near[0]}? else " if near else ""


def narrowed(head: Sequence[str], rows: Sequence[Sequence[str]], column: int, width: int = 100) -> list[list[str]]:
    """The rows of a table that fits into ``width``, or nearly: what stands in ``column`` is shortened."""
    others = sum(2 + max(len(line[i]) for line in (head, *rows)) for i in range(len(head)) if i != column)
    limit = max(_LEAST, width - others)
    return [[shortened(cell, limit) if i == column else cell for i, cell in enumerate(row)] for row in rows]


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Aligned columns, those in ``right`` to the right; no line ends in spaces."""
    lines = [[escaped(cell) for cell in line] for line in ([head, *rows] if any(head) else rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]

    def shown(line: Sequence[str]) -> str:
        cells = (c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True)))
        return "  ".join(cells).rstrip()

    return "\n".join(map(shown, lines))

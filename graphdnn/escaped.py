"""Names and other words of a file as they may be printed: none of them moves a terminal's cursor or begins a line."""

from __future__ import annotations


def escaped(text: str) -> str:
    """On one line: what is no printable character stands as Python would write it in a string."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _written(c) for c in text)


def escaped_lines(text: str) -> str:
    """The same for a text of several lines, which keeps them."""
    return text if text.isprintable() else "\n".join(map(escaped, text.split("\n")))


def _written(char: str) -> str:
    return repr(char)[1:-1]  # a codec would be imported while a stranger's file is read

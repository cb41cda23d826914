"""Names and problems in the text of a program: none of them leaves its comment or its string."""

from __future__ import annotations

from graphdnn.escaped import escaped


def comment(text: str) -> str:
    """A line of its own. A backslash at its end would take the next line into the comment."""
    return f"// {escaped(text)}".rstrip("\\ ")


def in_string(text: str) -> str:
    """A part of a format between quotation marks."""
    return escaped(text).replace("\\", "/").replace('"', "'").replace("%", "%%")

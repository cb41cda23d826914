"""Plain text for a terminal or a pipe: what the commands take from ``graphdnn.text``."""

from graphdnn.text import count, indented, plural, seconds, shortened, size, table

__all__ = ["count", "indented", "plural", "seconds", "shortened", "size", "table"]

"""BoundedCache: what was worked out before, in a dict of bounded size."""

from __future__ import annotations

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedCache(dict[K, V]):
    """A dict that removes its oldest entries when it is full. Several threads may read and write it at a time.

    Args:
        size: The most entries.
    """

    __slots__ = ("size",)

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def remember(self, key: K, value: V) -> V:
        """Enter a value under a key that had none.

        Args:
            key: The key.
            value: The value.

        Returns:
            The value of the key: the given one, or the one that another thread has entered meanwhile.
        """
        while len(self) >= self.size:
            try:
                self.pop(next(iter(self)), None)
            except (RuntimeError, StopIteration):  # another thread has changed the dict in between
                continue
        return self.setdefault(key, value)

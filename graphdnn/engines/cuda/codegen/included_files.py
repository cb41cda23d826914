"""Kernel files, and the ``#include`` lines by which they name each other.

A kernel lies beside the engine that launches it, and file names are unique, so a line names a file without its folder.
Each file is part of a text once, before the first file that includes it. Lines between ``#if`` and ``#endif`` choose
among variants: the included files stay at their place, with what only they need, and the compiler reads one of them.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_KERNELS = Path(__file__).parents[1]
_LINE = re.compile(r'#include "([^"]+)"')
_IF, _ENDIF = re.compile(r"#\s*if"), re.compile(r"#\s*endif")


class IncludeError(ValueError):
    """A line includes a file that does not exist, that includes itself, or that is included in two ways."""


@dataclass(frozen=True, slots=True)
class KernelFile:
    """A kernel file.

    Args:
        text: The text without the lines of ``needs``.
        needs: The files that the file includes, in the order of their lines.
        variants: The files that it includes under a condition.
    """

    text: str
    needs: tuple[str, ...]
    variants: tuple[str, ...]


@cache
def _places() -> dict[str, str]:
    return {
        name: os.path.join(folder, name)
        for folder, _, names in os.walk(_KERNELS)
        for name in names
        if name.endswith((".cu", ".cuh"))
    }


def file_names() -> Collection[str]:
    """The names of all kernel files."""
    return _places().keys()


@cache
def file_text(name: str) -> str:
    """A kernel file as it is written."""
    with open(_places()[name], encoding="utf-8") as file:
        return file.read()


def parsed(name: str, text: str, known: Collection[str]) -> KernelFile:
    """A kernel file by its lines.

    Args:
        name: The name, for errors.
        text: The file as it is written.
        known: The names of all files.

    Raises:
        IncludeError: A line names no known file.
    """
    kept: list[str] = []
    needs: list[str] = []
    variants: list[str] = []
    depth = 0
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("#"):  # nearly all lines: three patterns for each would be most of the time
            kept.append(line)
            continue
        included = _LINE.match(line)
        depth += bool(_IF.match(line)) - bool(_ENDIF.match(line))
        if included and included[1] not in known:
            raise IncludeError(f"{name}:{number}: {line}: there is no such kernel file")
        if included and not depth:
            needs.append(included[1])
            continue
        if included:
            variants.append(included[1])
        kept.append(line)
    return KernelFile("\n".join(kept), tuple(needs), tuple(variants))


@cache
def kernel_file(name: str) -> KernelFile:
    """The kernel file of a name."""
    return parsed(name, file_text(name), _places())


class Joined:
    """Files that are part of a text so far.

    Args:
        known: Files that the text has already.
    """

    def __init__(self, known: Collection[str] = ()) -> None:
        self._seen = set(known)
        self._variants: set[str] = set()

    def of_text(self, text: str) -> Iterator[str]:
        """The files that a piece of generated text includes, without files that the text already includes."""
        for line in text.splitlines():
            included = _LINE.match(line)
            if included is None or included[1] not in _places():
                raise IncludeError(f"generated text: {line}: there is no such kernel file")
            yield from self.of_file(included[1])

    def of_file(self, name: str, within: tuple[str, ...] = ()) -> Iterator[str]:
        """A file after the files that it includes; nothing if the text has the file already."""
        if name in within:
            raise IncludeError(" includes ".join((*within, name)))
        if name in self._variants:
            raise IncludeError(f"{name}: {within[-1] if within else name} needs it, and another file under a condition")
        if name in self._seen:
            return
        self._seen.add(name)
        file = kernel_file(name)
        for need in file.needs:
            yield from self.of_file(need, (*within, name))
        yield from self._shared_needs(file, (*within, name))
        if not file.variants:
            yield file.text
            return
        yield _LINE.sub(lambda line: "\n".join(self._variant(line[1], (*within, name), set())), file.text)

    def _shared_needs(self, file: KernelFile, within: tuple[str, ...]) -> Iterator[str]:
        """What several variants of a file need: it precedes the file, where no condition hides it."""
        counts = Counter(need for variant in set(file.variants) for need in kernel_file(variant).needs)
        for need, count in counts.items():
            if count > 1:
                yield from self.of_file(need, within)

    def _variant(self, name: str, within: tuple[str, ...], branch: set[str]) -> Iterator[str]:
        """A file that is included under a condition, after what only this file needs."""
        if name in self._seen:
            raise IncludeError(f"{name}: {within[-1]} needs it under a condition, and another file always")
        file = kernel_file(name)
        for need in file.needs:
            if need not in self._seen and need not in branch:
                yield from self._variant(need, (*within, name), branch)
        self._variants.add(name)
        branch.add(name)
        yield file.text

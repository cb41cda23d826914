"""Kernel files, and the expansion of their ``#include`` lines.

A kernel file is beside the engine that launches it. File names are unique, so a line names a file without its folder.
A text has each file once, before the first file that includes it. Lines between ``#if`` and ``#endif`` choose among
variants: a file that is included there is expanded at its line, after the files that only this file includes, and the
preprocessor selects one variant.
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
    """A line includes a file that does not exist or that includes itself, or lines include a file always and under a
    condition.
    """


@dataclass(frozen=True, slots=True)
class KernelFile:
    """A kernel file.

    Args:
        text: The text without the lines of ``includes``.
        includes: The files that the file includes without a condition, in the order of their lines.
        variants: The files that the file includes under a condition.
    """

    text: str
    includes: tuple[str, ...]
    variants: tuple[str, ...]


@cache
def _paths() -> dict[str, str]:
    return {
        name: os.path.join(folder, name)
        for folder, _, names in os.walk(_KERNELS)
        for name in names
        if name.endswith((".cu", ".cuh"))
    }


def file_names() -> Collection[str]:
    """The names of all kernel files."""
    return _paths().keys()


@cache
def file_text(name: str) -> str:
    """The contents of a kernel file."""
    with open(_paths()[name], encoding="utf-8") as file:
        return file.read()


def parse(name: str, text: str, known: Collection[str]) -> KernelFile:
    """Parse the ``#include`` lines of a kernel file.

    Args:
        name: The name, for errors.
        text: The contents of the file.
        known: The names of all files.

    Raises:
        IncludeError: A line includes a file that does not exist.
    """
    lines: list[str] = []
    includes: list[str] = []
    variants: list[str] = []
    depth = 0
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("#"):  # nearly all lines, so the patterns below are matched rarely
            lines.append(line)
            continue
        included = _LINE.match(line)
        depth += bool(_IF.match(line)) - bool(_ENDIF.match(line))
        if included and included[1] not in known:
            raise IncludeError(f"{name}:{number}: {line}: there is no such kernel file")
        if included and not depth:
            includes.append(included[1])
            continue
        if included:
            variants.append(included[1])
        lines.append(line)
    return KernelFile("\n".join(lines), tuple(includes), tuple(variants))


@cache
def kernel_file(name: str) -> KernelFile:
    """The parsed kernel file of a name."""
    return parse(name, file_text(name), _paths())


class IncludeExpander:
    """Expands ``#include`` lines of one text, each file once.

    Args:
        known: The files that the text has already.
    """

    def __init__(self, known: Collection[str] = ()) -> None:
        self._included = set(known)
        self._variants: set[str] = set()

    def expand_lines(self, text: str) -> Iterator[str]:
        """The contents of the files that lines of generated text include, without files that the text has already."""
        for line in text.splitlines():
            included = _LINE.match(line)
            if included is None or included[1] not in _paths():
                raise IncludeError(f"generated text: {line}: there is no such kernel file")
            yield from self.expand_file(included[1])

    def expand_file(self, name: str, includers: tuple[str, ...] = ()) -> Iterator[str]:
        """The contents of a file, after the files that it includes; nothing if the text has the file already.

        ``includers``: the chain of files that include the file.
        """
        if name in includers:
            raise IncludeError(" includes ".join((*includers, name)))
        if name in self._variants:
            includer = includers[-1] if includers else name
            raise IncludeError(f"{name}: {includer} includes it, and another file under a condition")
        if name in self._included:
            return
        self._included.add(name)
        file = kernel_file(name)
        for include in file.includes:
            yield from self.expand_file(include, (*includers, name))
        yield from self._common_includes(file, (*includers, name))
        if not file.variants:
            yield file.text
            return
        yield _LINE.sub(lambda line: "\n".join(self._variant(line[1], (*includers, name), set())), file.text)

    def _common_includes(self, file: KernelFile, includers: tuple[str, ...]) -> Iterator[str]:
        """The files that several variants of a file include. They precede the file, outside the conditions."""
        counts = Counter(include for variant in set(file.variants) for include in kernel_file(variant).includes)
        for include, count in counts.items():
            if count > 1:
                yield from self.expand_file(include, includers)

    def _variant(self, name: str, includers: tuple[str, ...], branch: set[str]) -> Iterator[str]:
        """The contents of a file that is included under a condition, after the files that only this file includes.

        ``branch``: the files that the branch of the condition has already.
        """
        if name in self._included:
            raise IncludeError(f"{name}: {includers[-1]} includes it under a condition, and another file always")
        file = kernel_file(name)
        for include in file.includes:
            if include not in self._included and include not in branch:
                yield from self._variant(include, (*includers, name), branch)
        self._variants.add(name)
        branch.add(name)
        yield file.text

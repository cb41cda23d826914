"""The folder of compiled kernels from outside: what is in it, whether it is whole, and keeping it small."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from graphdnn.cuda.cache_entry import SUFFIX, Damaged, Entry, Manifest, key_of, unpacked
from graphdnn.storage import TEMPORARY

_ABANDONED = 3600.0  # seconds after which a temporary file has no writer any more


@dataclass(frozen=True, slots=True)
class Stored:
    """A file of the cache. ``used`` is when it was last written or read, in seconds since 1970."""

    path: Path
    bytes: int
    used: float

    @property
    def key(self) -> str:
        return self.path.name.removesuffix(SUFFIX)


@dataclass(frozen=True, slots=True)
class Pruned:
    """What went away, and how much stayed."""

    files: int
    bytes: int
    left: int = 0  # bytes


def stored(folder: Path) -> list[Stored]:
    """Every entry, the one used last first; none where there is no folder."""
    return sorted(_files(folder, SUFFIX), key=lambda s: (-s.used, s.path.name))


def opened(path: Path, known: tuple[Manifest, bytes] | None = None) -> Entry:
    """The entry in a file. Raises ``Damaged`` for what is no entry, ``OSError`` for what cannot be read.

    ``known``: the manifest that gave the file its name, as it is written.
    """
    entry = unpacked(path.read_bytes(), known)
    if known is not None and entry.manifest is known[0]:
        return entry
    if key_of(entry.manifest) != path.name.removesuffix(SUFFIX):
        raise Damaged("it is the entry of another key")
    return entry


def is_damaged(file: Stored) -> bool:
    """Whether the file can be read and holds no entry."""
    try:
        opened(file.path)
    except Damaged:
        return True
    except OSError:
        return False  # gone, or not ours to judge
    return False


def prune(folder: Path, limit_bytes: int, older_than: float | None = None, *, room: int = 0) -> Pruned:
    """Remove what was not used for ``older_than`` seconds, then what was used least recently, down to the limit.

    ``room``: bytes below it that are to be free where anything has to go.
    """
    files = stored(folder)
    most = limit_bytes - room if sum(file.bytes for file in files) > limit_bytes else limit_bytes
    now, kept, gone = time.time(), 0, []
    for file in files:
        if kept + file.bytes > most or (older_than is not None and now - file.used > older_than):
            gone.append(file)
        else:
            kept += file.bytes
    gone += [file for file in _files(folder, TEMPORARY) if now - file.used > _ABANDONED]
    return replace(_removed(gone), left=kept)


def remove_damaged(folder: Path) -> Pruned:
    return _removed([file for file in stored(folder) if is_damaged(file)])


def _removed(files: list[Stored]) -> Pruned:
    """Another process may be removing the same ones; what is counted is what went away here."""
    done = []
    for file in files:
        with contextlib.suppress(OSError):
            file.path.unlink()
            done.append(file.bytes)
    return Pruned(len(done), sum(done))


def _files(folder: Path, suffix: str) -> Iterator[Stored]:
    try:
        listing = os.scandir(folder)
    except OSError:
        return
    with listing:
        for item in listing:
            with contextlib.suppress(OSError):  # removed since
                if item.name.endswith(suffix) and item.is_file(follow_symlinks=False):
                    status = item.stat(follow_symlinks=False)
                    yield Stored(Path(item.path), status.st_size, status.st_mtime)

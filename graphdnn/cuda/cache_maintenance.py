"""The folder of compiled kernels from outside: what is in it, whether it is whole, and keeping it small.

The folder may hold other files. One is removed only where its name and its first bytes say that it is an entry.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from graphdnn.cuda.cache_entry import FAMILY, SUFFIX, Damaged, Entry, Manifest, key_of, unpacked
from graphdnn.cuda.private import beginning, folder_key, read_private
from graphdnn.storage import OWN, TEMPORARY

_NAME = re.compile(r"[0-9a-f]{64}" + re.escape(SUFFIX))
_TEMPORARY_NAME = re.compile(r"\.[\w-]+" + re.escape(TEMPORARY))
_NOTES = b'{"format": 1, "libraries": '  # what notes of libraries begin with, which the folder holds as well
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
    return sorted(_files(folder, _NAME), key=lambda s: (-s.used, s.path.name))


def opened(path: Path, known: tuple[Manifest, bytes] | None = None) -> Entry:
    """The entry in a file. Raises ``Damaged`` for what is no entry, ``OSError`` for what cannot be read, and
    ``Untrusted`` among these for what another user may have written.

    ``known``: the manifest that gave the file its name, as it is written.
    """
    content = read_private(path)
    secret = folder_key(path.parent)
    if secret is None:
        raise Damaged("the folder has no key that it could be checked with")
    entry = unpacked(content, secret, known)
    if known is not None and entry.manifest is known[0]:
        return entry
    if key_of(entry.manifest) != path.name.removesuffix(SUFFIX):
        raise Damaged("it is the entry of another key")
    return entry


def is_damaged(file: Stored) -> bool:
    """Whether the file can be read, is graphdnn's, and holds no entry."""
    try:
        opened(file.path)
    except Damaged:
        return is_own(file.path)
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
    gone += [file for file in _files(folder, _TEMPORARY_NAME) if now - file.used > _ABANDONED]
    return replace(_removed(gone), left=kept)


def is_own(path: Path) -> bool:
    """Whether a file in the folder is one that graphdnn wrote there, whole or not. An empty one holds nothing."""
    head = beginning(path, max(len(FAMILY), len(_NOTES)))
    if head is None:
        return False
    if _NAME.fullmatch(path.name):
        return head == b"" or head.startswith(FAMILY)
    if not _TEMPORARY_NAME.fullmatch(path.name):
        return False
    return head.startswith((FAMILY, _NOTES)) or (head == b"" and path.name.startswith(OWN))


def may_be_written(path: Path) -> bool:
    """Whether an entry may be put there: there is nothing, or what is there is one."""
    return not os.path.lexists(path) or is_own(path)


def remove_damaged(folder: Path) -> Pruned:
    return _removed([file for file in stored(folder) if is_damaged(file)])


def _removed(files: list[Stored]) -> Pruned:
    """Another process may be removing the same ones; what is counted is what went away here."""
    done = []
    for file in files:
        with contextlib.suppress(OSError):
            if not is_own(file.path):
                continue
            file.path.unlink()
            done.append(file.bytes)
    return Pruned(len(done), sum(done))


def _files(folder: Path, names: re.Pattern[str]) -> Iterator[Stored]:
    try:
        listing = os.scandir(folder)
    except OSError:
        return
    with listing:
        for item in listing:
            with contextlib.suppress(OSError):  # removed since
                if names.fullmatch(item.name) and item.is_file(follow_symlinks=False):
                    status = item.stat(follow_symlinks=False)
                    yield Stored(Path(item.path), status.st_size, status.st_mtime)

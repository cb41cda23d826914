"""Whether a folder, and a file in it, are the user's own: what others may write is neither believed nor run.

Kernels of the cache run in this process's name, so a folder of another user, or one that others may write to, is not
used. Entries carry a hash that is made with a key, which lies in the folder and which only the user reads: a cubin that
was put in place of another, or copied from another folder, does not have it.
"""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

KEY_NAME = ".graphdnn-key"
FIX = "set GRAPHDNN_CACHE_DIR to a folder of your own that nobody else may write to (chmod 700)"
_ROOT = 0  # who may write everywhere anyway
_KEY_BYTES = 32
_LARGEST = 2**30  # bytes of a file
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Untrusted(OSError):
    """The file may have been written by another user."""


def distrust(folder: Path) -> str | None:
    """Why what a folder holds is not believed; None where it is, where there is no folder, and on other systems."""
    try:
        return _others(folder.stat(), "folder")
    except OSError:
        return None


def read_private(path: Path) -> bytes:
    """A file's content. Raises ``Untrusted`` where another user may have written it, ``OSError`` where it is none."""
    handle = os.open(path, os.O_RDONLY | _flags("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise Untrusted(1, "it is no regular file")
        why = _others(status, "file")
        if why is not None:
            raise Untrusted(1, why)
        return file.read(_LARGEST)


def beginning(path: Path, size: int) -> bytes | None:
    """The first bytes of a regular file of this user's; None where there is none, or it is a link."""
    try:
        handle = os.open(path, os.O_RDONLY | _flags("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        is_own = not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
        return file.read(size) if stat.S_ISREG(status.st_mode) and is_own else None


def folder_key(folder: Path) -> bytes | None:
    """The folder's key; None where there is none that can be believed."""
    with suppress(OSError):
        key = read_private(folder / KEY_NAME)
        return key if len(key) == _KEY_BYTES else None
    return None


def made_key(folder: Path) -> bytes:
    """The folder's key, made where there is none. Raises ``OSError`` where that cannot be.

    Of processes that make one at the same time, the first one's is everybody's.
    """
    path = folder / KEY_NAME
    if not os.path.lexists(path):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _make(path)
    key = folder_key(folder)
    if key is None:
        raise Untrusted(1, f"{KEY_NAME} in it is no key of yours; remove it")
    return key


def _make(path: Path) -> None:
    handle, name = tempfile.mkstemp(prefix=f"{KEY_NAME}-", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(os.urandom(_KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(name, path)  # replaces nothing
        except FileExistsError:
            return
        except OSError:  # a file system without such links
            if not os.path.lexists(path):
                os.rename(name, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name)


def _others(status: os.stat_result, what: str) -> str | None:
    if not hasattr(os, "geteuid"):
        return None
    if status.st_uid not in (os.geteuid(), _ROOT):
        return f"the {what} is another user's (uid {status.st_uid})"
    if status.st_mode & _OTHERS_WRITE:
        return f"others may write to the {what} (mode {stat.S_IMODE(status.st_mode):03o})"
    return None


def _flags(*names: str) -> int:
    """The folders that this system has."""
    return sum(getattr(os, name, 0) for name in names)

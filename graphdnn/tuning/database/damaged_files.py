"""Damaged databases are renamed, one process at a time, and what was renamed is found and deleted again.

Both need the proof that the file is ours: what has none is neither renamed nor deleted.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from graphdnn import debug_log
from graphdnn.tuning.database.ownership import is_ours

_BESIDE = ("-wal", "-shm", "-journal")  # files that SQLite keeps beside a database
_POLL = 0.02  # seconds


def set_aside(path: Path, why: str) -> Path:
    """Rename a damaged file of ours, and what belongs to it; one line says so. Raises ``OSError`` for another file."""
    if not is_ours(path.resolve()):
        raise PermissionError(1, "the damaged file is not graphdnn's, and is left as it is")
    number = 1
    while os.path.lexists(target := path.with_name(f"{path.name}.damaged-{number}")):
        number += 1
    os.rename(path, target)
    for suffix in _BESIDE:
        with suppress(OSError):
            if not os.path.lexists(f"{target}{suffix}"):
                os.rename(f"{path}{suffix}", f"{target}{suffix}")
    debug_log.line("note", "tuning", f"{path} is damaged ({why}): set aside as {target.name} and begun anew")
    return target


def damaged_files(path: Path) -> list[Path]:
    """What was set aside before and has the proof that it is ours."""
    return [file for file in _named(path) if is_ours(file)]


def without_proof(path: Path) -> list[Path]:
    """Files that are named as if they had been set aside, and have no proof that they are ours."""
    return [file for file in _named(path) if not is_ours(file)]


def delete_damaged(path: Path) -> int:
    """Delete what was set aside before, where it is ours; how many databases went."""
    count = 0
    for file in damaged_files(path):
        with suppress(OSError):
            file.unlink()
            count += 1
            for suffix in _BESIDE:
                with suppress(OSError):
                    file.with_name(file.name + suffix).unlink()
    return count


def _named(path: Path) -> list[Path]:
    name = re.compile(re.escape(path.name) + r"\.damaged-\d+")
    with suppress(OSError):
        return sorted(file for file in path.parent.iterdir() if name.fullmatch(file.name))
    return []


@contextmanager
def alone(path: Path, patience: float) -> Iterator[None]:
    """One process at a time, where the system has such locks, by the file ``PATH.lock``.

    The lock file is made where there is none, and never written to. Raises ``OSError`` where it is a link, no regular
    file or another user's, and where another process holds it for longer than ``patience`` seconds.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = _opened(Path(f"{path}.lock"))
    try:
        until = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise TimeoutError(f"another process holds {path.name}.lock") from None
                time.sleep(_POLL)
        yield
    finally:
        os.close(handle)


def _opened(path: Path) -> int:
    """A lock file's handle. What is there is neither followed nor cut off, and a pipe is not waited for."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise PermissionError(1, f"{path.name} is no regular file")
        if status.st_uid != os.geteuid():
            raise PermissionError(1, f"{path.name} is another user's")
        if status.st_size:
            raise PermissionError(1, f"{path.name} is not empty, so it is no lock of graphdnn's")
    except BaseException:
        os.close(handle)
        raise
    return handle

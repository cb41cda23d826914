"""The folder for what outlives a process: compiled kernels, and which libraries loaded here before."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

TEMPORARY = ".tmp"
OWN = ".graphdnn-"  # what names of temporary files begin with


def cache_directory() -> Path | None:
    """GRAPHDNN_CACHE_DIR, else graphdnn in XDG_CACHE_HOME, else in ~/.cache; None for a user without a home.

    A ``~`` is the home folder: files of settings, unlike shells, pass it on as it is. A relative path is one from the
    folder that the process is in now, wherever it goes later.
    """
    own, common = os.environ.get("GRAPHDNN_CACHE_DIR"), os.environ.get("XDG_CACHE_HOME")
    folder = Path(own) if own else Path(common or "~/.cache") / "graphdnn"
    with suppress(RuntimeError, OSError):  # no home; or the folder that the process is in was removed
        return folder.expanduser().absolute()
    return None


def write_atomically(path: Path, data: bytes) -> None:
    """Under another name first: whoever looks for ``path`` finds nothing or all of it, after a crash as well.

    What lies at ``path`` is replaced: whether it may be is the caller's to know.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(prefix=f"{OWN}{path.stem[:16]}-", suffix=TEMPORARY, dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise

"""Shared libraries that loaded here before, so that a process need not open them to know that they are there.

Opening NVRTC, cuBLAS and cuFFT takes far longer than building a plan, which mostly asks for a version and for
whether an engine's library can be had. What an earlier process found is noted in the kernel cache's folder, a file
for each Python environment. A note holds while the library's file is the one that was opened, and whoever opens
the library looks again.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from graphdnn.cuda.private import beginning, distrust, read_private
from graphdnn.storage import cache_directory, write_atomically

_FORMAT = 1
# Besides the environment's packages, what decides which of several libraries is found.
_VARIABLES = ("CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX", "LD_LIBRARY_PATH")
_guard = threading.Lock()
_looking: list[None] = []


@dataclass(frozen=True, slots=True)
class Note:
    """A library's file when it was opened last, and the version that it told."""

    path: str
    bytes: int
    changed: int  # nanoseconds since 1970
    version: tuple[int, int] | None = None

    def holds(self) -> bool:
        """Whether the file is still that one."""
        try:
            status = os.stat(self.path)
        except (OSError, ValueError):
            return False
        return (status.st_size, status.st_mtime_ns) == (self.bytes, self.changed)


def note_of(name: str) -> Note | None:
    """The note of a library ("nvrtc", "cublas", "cufft"), if it holds."""
    file = _file()
    return None if file is None else _notes(file).get(name)


@contextlib.contextmanager
def looking() -> Iterator[None]:
    """Nothing is noted inside, for a process that only asks what is here."""
    _looking.append(None)
    try:
        yield
    finally:
        _looking.pop()


def keep(name: str, version: tuple[int, int] | None = None) -> None:
    """Note a library that is loaded. What cannot be noted is looked for again by the next process."""
    file, path = _file(), _path_of(name)
    if _looking or file is None or path is None:
        return
    with contextlib.suppress(OSError), _guard:
        status = os.stat(path)
        note = Note(path, status.st_size, status.st_mtime_ns, version)
        notes = _notes(file)
        if notes.get(name) != note and _may_be_written(file):
            notes[name] = note
            content = {"format": _FORMAT, "libraries": {key: asdict(value) for key, value in notes.items()}}
            write_atomically(file, json.dumps(content).encode())


@cache
def _file() -> Path | None:
    """The notes of this environment; None where nothing is kept, or the packages that load libraries are missing."""
    folder = cache_directory()
    try:
        bindings = str(importlib.import_module("cuda.bindings").__version__)
    except (ImportError, AttributeError):
        return None
    about = (sys.prefix, bindings, *(os.environ.get(name, "") for name in _VARIABLES))
    digest = hashlib.sha256("\0".join(about).encode(errors="surrogateescape")).hexdigest()
    return None if folder is None else folder / f"libraries-{digest[:16]}.json"


@cache
def _notes(file: Path) -> dict[str, Note]:
    """The notes that hold. What is malformed, or may be another user's, is as good as absent."""
    if distrust(file.parent) is not None:
        return {}
    try:
        content = json.loads(read_private(file))
        if content["format"] != _FORMAT:
            return {}
        notes = {str(name): _note(fields) for name, fields in content["libraries"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}
    return {name: note for name, note in notes.items() if note.holds()}


def _may_be_written(file: Path) -> bool:
    """Whether there is nothing, or notes, in a folder of this user's."""
    if distrust(file.parent) is not None:
        return False
    return not os.path.lexists(file) or (beginning(file, 11) or b"") in (b"", b'{"format": ')


def _note(fields: Any) -> Note:
    path, size, changed, version = (fields[name] for name in ("path", "bytes", "changed", "version"))
    if not isinstance(path, str) or type(size) is not int or type(changed) is not int:
        raise ValueError("no note of this format")
    if version is not None:
        major, minor = version
        version = int(major), int(minor)
    return Note(path, size, changed, version)


def _path_of(name: str) -> str | None:
    """The file of a loaded library."""
    try:
        path = importlib.import_module("cuda.pathfinder").load_nvidia_dynamic_lib(name).abs_path
    except Exception:  # there are many ways not to find it, and not to have the package
        return None
    return str(path) if path else None

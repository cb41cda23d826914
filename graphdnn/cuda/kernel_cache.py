"""KernelCache: compiled kernels in memory and in a folder, so that each one is compiled once.

Any number of threads and processes may share a folder: files appear whole, by a rename, and are checked when they are
read. A folder that cannot be written costs time, never a result: the kernels then live in memory.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from graphdnn import debug_log
from graphdnn.cuda import nvrtc
from graphdnn.cuda.cache_entry import SUFFIX, Damaged, Entry, Manifest, key_of, key_of_bytes, manifest_of, packed, plain
from graphdnn.cuda.cache_maintenance import is_own, may_be_written, opened, prune
from graphdnn.cuda.nvrtc import KernelText
from graphdnn.cuda.private import FIX, Untrusted, distrust, made_key
from graphdnn.storage import cache_directory, write_atomically

LIMIT_BYTES = 512 * 2**20
_IN_MEMORY = 1024  # entries; a process with more variants than that reads the older ones again
_SHARE = 16  # of the limit, that a process writes at most without seeing what others wrote
Origin = Literal["memory", "disk", "compiled"]


@dataclass(frozen=True, slots=True)
class Cached:
    """A kernel, where it came from, and how long that took."""

    cubin: bytes
    log: str
    origin: Origin
    milliseconds: float


class KernelCache:
    """Kernels by their whole manifest. ``directory=None`` keeps them in memory only."""

    def __init__(self, directory: Path | None, limit_bytes: int = LIMIT_BYTES) -> None:
        self.directory = directory
        self.limit_bytes = limit_bytes
        self._writable = directory is not None
        self._room = 0  # bytes that may be written before the folder is looked at again
        self._known: dict[str, tuple[bytes, str]] = {}
        self._named: dict[tuple[KernelText, str, bool, tuple[int, int]], tuple[str, Manifest]] = {}
        self._forget_locks()

    def load(self, kernel: KernelText, arch: str) -> Cached:
        """The cubin for this text, compiled only when neither memory nor the folder has it."""
        start = time.perf_counter()
        version = nvrtc.version()
        asked = kernel, arch, debug_log.asks("lineinfo"), version
        named = self._named.get(asked)  # hashing the text again would take longer than a plan does
        written = None
        if named is None:
            manifest = manifest_of(kernel.name, kernel.text, nvrtc.options_of(kernel, arch), version, arch)
            written = plain(manifest)
            named = key_of_bytes(written), manifest
            with self._guard:  # another thread may be looking for the oldest
                self._named[asked] = named
        key, manifest = named
        origin: Origin = "memory"
        kept = self._known.get(key)  # whole, whichever thread put it there
        if kept is not None:
            cubin, log = kept
        else:
            with self._lock_of(key):
                known = None if written is None else (manifest, written)
                cubin, log, origin = self._found(key, known) or self._compiled(key, manifest, kernel, arch)
        milliseconds = (time.perf_counter() - start) * 1e3
        if debug_log.verbose:
            debug_log.line("kernel", kernel.name, arch, origin, f"{milliseconds:.3f}")
        return Cached(cubin, log, origin, milliseconds)

    # One thread compiles a kernel, the others that want it wait.

    def _forget_locks(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}

    def _lock_of(self, key: str) -> threading.Lock:
        with self._guard:
            return self._locks.setdefault(key, threading.Lock())

    def _found(self, key: str, manifest: tuple[Manifest, bytes] | None) -> tuple[bytes, str, Origin] | None:
        if key in self._known:
            return *self._known[key], "memory"
        entry = self._read(key, manifest)
        return None if entry is None else (*self._keep(key, entry.cubin, entry.log), "disk")

    def _compiled(self, key: str, manifest: Manifest, kernel: KernelText, arch: str) -> tuple[bytes, str, Origin]:
        made = nvrtc.compile_text(kernel, arch)
        if (version := list(nvrtc.version())) != manifest["nvrtc"]:  # another compiler than loaded here before
            manifest = {**manifest, "nvrtc": version}
            key = key_of(manifest)
        self._write(key, Entry(manifest, made.log, made.cubin))
        return *self._keep(key, made.cubin, made.log), "compiled"

    def _keep(self, key: str, cubin: bytes, log: str) -> tuple[bytes, str]:
        with self._guard:
            self._known[key] = cubin, log
            while len(self._known) > _IN_MEMORY:
                del self._known[next(iter(self._known))]
            while len(self._named) > _IN_MEMORY:
                del self._named[next(iter(self._named))]
        return cubin, log

    # The folder.

    def _path(self, key: str) -> Path | None:
        return None if self.directory is None else self.directory / (key + SUFFIX)

    def _read(self, key: str, manifest: tuple[Manifest, bytes] | None) -> Entry | None:
        path = self._path(key)
        if path is None or not self._is_trusted(path.parent):
            return None
        try:
            entry = opened(path, manifest)
        except Damaged as error:
            debug_log.say("kernel cache", f"{path} is compiled again: {error}")
            with contextlib.suppress(OSError):
                if is_own(path):
                    path.unlink()
            return None
        except Untrusted as error:
            debug_log.say("kernel cache", f"{path} is not used: {error.strerror}")
            return None
        except OSError:
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # the time of the last use, by which old ones go
        return entry

    def _is_trusted(self, folder: Path) -> bool:
        """Whether what the folder holds can be believed; one that cannot is left alone, which is said once."""
        why = distrust(folder)
        if why is not None:
            debug_log.say("kernel cache", f"{folder} is not used; {why}: kernels stay in memory; fix: {FIX}")
        return why is None

    def _write(self, key: str, entry: Entry) -> None:
        path = self._path(key)
        if path is None or not self._writable or not self._is_trusted(path.parent):
            return
        if len(entry.cubin) > self.limit_bytes:
            return
        try:
            data = packed(entry, made_key(path.parent))
            if len(data) > self.limit_bytes:
                return
            if not may_be_written(path):
                debug_log.say(
                    "kernel cache", f"{path} is not graphdnn's and is left as it is: the kernel stays in memory"
                )
                return
            write_atomically(path, data)
        except OSError as error:
            self._writable = False
            debug_log.say("kernel cache", f"{path.parent} cannot be written ({error.strerror}): kernels stay in memory")
            return
        self._room -= len(data)
        if self._room < 0:  # listing hundreds of files takes milliseconds
            share = self.limit_bytes // _SHARE
            left = prune(path.parent, self.limit_bytes, room=share).left  # a full folder would be listed every time
            self._room = min(self.limit_bytes - left, share)


@cache
def default_cache() -> KernelCache:
    """The cache of this process, in the user's folder."""
    directory = cache_directory()
    if directory is None:
        debug_log.say("kernel cache", "no home folder: kernels stay in memory (GRAPHDNN_CACHE_DIR names a folder)")
    made = KernelCache(directory)
    if hasattr(os, "register_at_fork"):
        # A thread of the parent may hold a lock at the fork; in the child it would never be released.
        os.register_at_fork(after_in_child=made._forget_locks)
    return made

"""Locks: what was decided for a set of graphs, kept in a file, and what moved since."""

from graphdnn.locks.lock_check import LockCheckResult, against, check, updated
from graphdnn.locks.lock_diff import CLASSES, LockChange, compare, compare_locks
from graphdnn.locks.lock_entries import entry_of, lock_of
from graphdnn.locks.lock_file import LOCK_FORMAT, Lock, LockedGraph, LockedKernel, lock_from_json

__all__ = [
    "CLASSES",
    "LOCK_FORMAT",
    "Lock",
    "LockChange",
    "LockCheckResult",
    "LockedGraph",
    "LockedKernel",
    "against",
    "check",
    "compare",
    "compare_locks",
    "entry_of",
    "lock_from_json",
    "lock_of",
    "updated",
]

"""Locks: what was decided for a set of graphs, kept in a file, and what moved since."""

from graphdnn.locks.lock_check import Checked, against, check, updated
from graphdnn.locks.lock_diff import CLASSES, Movement, compare, compare_locks
from graphdnn.locks.lock_entries import entry_of, lock_of
from graphdnn.locks.lock_file import LOCK_FORMAT, Lock, LockedGraph, LockedKernel, lock_from_json

__all__ = [
    "CLASSES",
    "LOCK_FORMAT",
    "Checked",
    "Lock",
    "LockedGraph",
    "LockedKernel",
    "Movement",
    "against",
    "check",
    "compare",
    "compare_locks",
    "entry_of",
    "lock_from_json",
    "lock_of",
    "updated",
]

"""What is in a file of the tuning database: its tables, and the numbers in its header that say whose file it is."""

from __future__ import annotations

SCHEMA = 1
APPLICATION = 0x67646E74  # "gdnt", in the file's header: a database of ours

TABLES = (
    """CREATE TABLE problems (key TEXT PRIMARY KEY, name TEXT NOT NULL, kernels TEXT NOT NULL, graph TEXT NOT NULL)""",
    """CREATE TABLE times (
 problem TEXT NOT NULL, device TEXT NOT NULL, driver TEXT NOT NULL, version TEXT NOT NULL, texts TEXT NOT NULL,
 choices TEXT NOT NULL, name TEXT NOT NULL, place INTEGER NOT NULL, predicted REAL NOT NULL, median REAL NOT NULL,
 low REAL NOT NULL, high REAL NOT NULL, samples INTEGER NOT NULL, workspace INTEGER NOT NULL, measured INTEGER NOT NULL,
 PRIMARY KEY (problem, device, driver, version, texts, choices))""",
)

"""Tuning: which configuration is the fastest here, measured in a process of its own, and remembered when asked."""

from graphdnn.tuning.autotune import autotune
from graphdnn.tuning.database import Database, default_database
from graphdnn.tuning.tuned import Trial, Tuned, Verdict

__all__ = ["Database", "Trial", "Tuned", "Verdict", "autotune", "default_database"]

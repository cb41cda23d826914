"""Bundles: one run as a file that repeats it, and the commands that failures end with."""

from graphdnn.bundles.bundle import BUNDLE_FORMAT, Bundle, RunOutcome, bundle_from_json
from graphdnn.bundles.replay import Replayed, replay
from graphdnn.bundles.reproduction_command import (
    FOLDER,
    folder,
    of_error,
    of_graph,
    of_plan,
    replay_command,
    run_command,
    save,
)
from graphdnn.bundles.verified_run import VerifiedRun, attempt, bundle_of, plan_bundle
from graphdnn.problem.printer import canonical, print_problem

__all__ = [
    "BUNDLE_FORMAT",
    "FOLDER",
    "Bundle",
    "Replayed",
    "RunOutcome",
    "VerifiedRun",
    "attempt",
    "bundle_from_json",
    "bundle_of",
    "canonical",
    "folder",
    "of_error",
    "of_graph",
    "of_plan",
    "plan_bundle",
    "print_problem",
    "replay",
    "replay_command",
    "run_command",
    "save",
]

"""The problems of tests/gpu/compare_sass.py reach every entry of kernel text; nothing is compiled here."""

from __future__ import annotations

import sys
from pathlib import Path

from emulator.libraries import host_libraries
from random_problems.kernel_entries import entries, launched_by
from random_problems.named_problems import Named

from graphdnn.device.profiles import device_spec

sys.path.append(str(Path(__file__).resolve().parents[2] / "gpu"))
import compare_sass

DEVICE = "h200"
UNREACHED: dict[str, str] = {}  # entry -> the reason why no problem launches it


def unreached(problems: tuple[object, ...]) -> set[str]:
    device, left = device_spec(DEVICE), entries()
    with host_libraries():
        for problem in problems:
            for config in compare_sass.configurations_of(problem, device):
                left -= launched_by(config)
    return left


def test_every_entry_is_compared() -> None:
    left = unreached(compare_sass.PROBLEMS)
    assert left == UNREACHED.keys(), "add a problem for these to tests/random_problems/named_problems.py"


def test_an_entry_without_a_problem_is_noticed() -> None:
    """Without the group norms no problem combines statistics of channel planes."""
    others = tuple(p for p in compare_sass.PROBLEMS if not (isinstance(p, Named) and p.text.startswith("group norm")))
    assert "channel_planes_combine (norm_channel_planes_split.cu)" in unreached(others)

"""Launches that start while the one before them finishes wait for it in their text, and only there where devices can."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from drawn.families import FAMILIES, Case, draw
from emulator.libraries import host_libraries

from graphdnn.build import rank
from graphdnn.engines.cuda.generator.launch import DeviceKernel, Launch
from graphdnn.errors import NotSupported

DRAWN = 6
# It follows a launch of its own that waited for all that was before, and waits for that one at its barrier.
AFTER_ITS_OWN = {"norm_resident"}


def launches(family: str, device: str) -> Iterator[Launch]:
    for seed in range(DRAWN):
        try:
            choices = rank(draw(Case(family, seed, large=True)).graph, device).best.choices
        except NotSupported:
            continue
        for choice in choices:
            kernel = choice.engine.compile(choice.task, choice.knobs)
            assert isinstance(kernel, DeviceKernel)
            yield from (step for step in kernel.steps if isinstance(step, Launch))


def body(launch: Launch) -> str:
    """The text of the entry, up to the next one."""
    entries = re.split(r'(?=extern "C" __global__)', launch.text.text)
    return next(text for text in entries[1:] if re.search(rf"\b{launch.entry}\(const __grid_constant__", text))


@pytest.mark.parametrize("family", FAMILIES)
def test_they_wait_for_the_launch_before(family: str) -> None:
    with host_libraries():
        for launch in launches(family, "h200"):
            if launch.starts_early and launch.entry not in AFTER_ITS_OWN:
                assert "wait_for_launch_before();" in body(launch), launch.text.name
        assert not any(launch.starts_early for launch in launches(family, "a100"))

"""Launches that start while the one before them finishes wait for it in their text, and only there where devices can."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

import pytest
from drawn.families import FAMILIES, Case, draw
from emulator.libraries import host_libraries

from graphdnn.build import rank
from graphdnn.engines.cuda.generator.launch import DeviceKernel, Launch
from graphdnn.errors import NotSupported
from graphdnn.problem import parse

DRAWN = 6
# It follows a launch of its own that started late, after all that was before, and writes nothing that this one reads before
# its barrier, where it waits for that launch: what it reads until then is there.
AFTER_ITS_OWN = {"norm_resident": "begin_resident"}


def kernels(family: str, device: str) -> Iterator[DeviceKernel]:
    for seed in range(DRAWN):
        try:
            choices = rank(draw(Case(family, seed, large=True)).graph, device).best.choices
        except NotSupported:
            continue
        for choice in choices:
            kernel = choice.engine.compile(choice.task, choice.knobs)
            assert isinstance(kernel, DeviceKernel)
            yield kernel


def launches(kernel: DeviceKernel) -> Iterator[Launch]:
    return (step for step in kernel.steps if isinstance(step, Launch))


def body(launch: Launch) -> str:
    """The text of the entry, up to the next one."""
    entries = re.split(r'(?=extern "C" __global__)', launch.text.text)
    return next(text for text in entries[1:] if re.search(rf"\b{launch.entry}\(const __grid_constant__", text))


@pytest.mark.parametrize("family", FAMILIES)
def test_they_wait_for_the_launch_before(family: str) -> None:
    with host_libraries():
        for kernel in kernels(family, "h200"):
            for launch in launches(kernel):
                if launch.starts_early and launch.entry not in AFTER_ITS_OWN:
                    assert "wait_for_launch_before();" in body(launch), launch.text.name
        for kernel in kernels(family, "a100"):
            assert not any(launch.starts_early for launch in launches(kernel))


def test_what_reads_ahead_of_its_wait_follows_a_launch_that_started_late() -> None:
    for text in ("norm batch x=f32[32,64,56,56]nhwc", "norm layer x=f16[64,300000]"):
        plan = rank(parse(text).build_operation_graph(), "h200").best
        pairs = []
        for choice in plan.choices:
            kernel = choice.engine.compile(choice.task, choice.knobs)
            assert isinstance(kernel, DeviceKernel)
            pairs += [(a, b) for a, b in pairwise(kernel.steps) if isinstance(b, Launch) and b.entry in AFTER_ITS_OWN]
        assert pairs, text
        for before, launch in pairs:
            assert isinstance(before, Launch)
            assert launch.starts_early
            assert before.entry == AFTER_ITS_OWN[launch.entry]
            assert not before.starts_early

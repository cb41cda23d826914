"""Launches that start while the one before them finishes wait for it in their text, and only there where devices can."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from emulator.libraries import host_libraries
from random_problems.families import FAMILIES, Case, draw

from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.errors import NotSupported
from graphdnn.pipeline import rank

DRAWN = 6


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
                if launch.starts_early:
                    assert "pdl_wait();" in body(launch), launch.text.name
        for kernel in kernels(family, "a100"):
            assert not any(launch.starts_early for launch in launches(kernel))

"""The entries of kernel text: every function that engines can launch, by its name and the file that it is in."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from graphdnn.engines.cuda.codegen import source
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.engine import CompiledOperation
from graphdnn.heuristics import EngineConfig
from graphdnn.plan import DevicePlan

_ENTRY = re.compile(r'extern\s+"C"\s+__global__[^;{]*?(\w+)\s*\(\s*const\s+__grid_constant__')
_KERNELS = Path(source.__file__).parents[1]
_OF_TUNING = ("array_digest.cu", "array_gather.cu")  # which no engine launches


@cache
def _files() -> dict[str, dict[str, str]]:
    """Entry -> files that have one of that name, with their text from the entry on: before it are ``#include`` lines."""
    found: dict[str, dict[str, str]] = {}
    for file in sorted(_KERNELS.rglob("*.cu*")):
        if file.name not in _OF_TUNING:
            text = file.read_text(encoding="utf-8")
            for entry in _ENTRY.finditer(text):
                found.setdefault(entry[1], {})[file.name] = text[entry.start() :].rstrip("\n")
    return found


def entries() -> set[str]:
    """All of them, as ``entry (file)``."""
    return {_label(entry, file) for entry, files in _files().items() for file in files}


def launched(plan: DevicePlan) -> set[str]:
    return _launched(plan.compiled)


def launched_by(config: EngineConfig) -> set[str]:
    """The same of a configuration that no plan was made of; nothing is compiled."""
    return _launched([choice.engine.compile(choice.task, choice.knobs) for choice in config.choices])


def _launched(kernels: tuple[CompiledOperation, ...] | list[CompiledOperation]) -> set[str]:
    launches = [
        s for kernel in kernels if isinstance(kernel, DeviceKernel) for s in kernel.steps if isinstance(s, Launch)
    ]
    return {
        _label(launch.entry, file)
        for launch in launches
        for file, text in _files()[launch.entry].items()
        if text in launch.text.text
    }


def _label(entry: str, file: str) -> str:
    return f"{entry} ({file})"

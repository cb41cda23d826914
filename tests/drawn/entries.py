"""The entries of kernel text: every function that can be launched, with the file that it is in."""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path

from graphdnn.engines import engines_of
from graphdnn.engines.cuda.generator import source
from graphdnn.heuristics import EngineConfig
from graphdnn.plan import DevicePlan

_ENTRY = re.compile(r'extern\s+"C"\s+__global__[^;{]*?(\w+)\s*\(\s*const\s+__grid_constant__')
_TEXT = Path(source.__file__).parents[1] / "text"


@cache
def entries() -> dict[str, str]:
    """Entry -> file, of the text that engines of the table use."""
    used = _modules_of_engines()
    return {
        entry: file.name
        for file in sorted(_TEXT.rglob("*.cu*"))
        if file.suffix in (".cu", ".cuh") and f'"{file.name}"' in used
        for entry in _ENTRY.findall(file.read_text(encoding="utf-8"))
    }


def _modules_of_engines() -> str:
    """The code of every module that the table of engines loads: text that none of it names is nobody's yet."""
    assert engines_of("cuda")
    loaded = [m for name, m in sys.modules.items() if name.startswith("graphdnn.engines.cuda.")]
    return "\n".join(Path(m.__file__).read_text(encoding="utf-8") for m in loaded if m.__file__)


def launched(plan: DevicePlan) -> set[str]:
    return {launch.entry for launch in plan.launches}


def launched_by(config: EngineConfig) -> set[str]:
    """The same of a configuration that no plan was made of; nothing is compiled."""
    from graphdnn.engines.cuda.generator.launch import DeviceKernel, Launch

    kernels = (choice.engine.compile(choice.task, choice.knobs) for choice in config.choices)
    return {s.entry for k in kernels if isinstance(k, DeviceKernel) for s in k.steps if isinstance(s, Launch)}

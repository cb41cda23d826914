"""Prove that a change of words left the machine code as it was.

    python tests/gpu/compare_sass.py collect before.json      # at the first commit
    python tests/gpu/compare_sass.py collect after.json       # at the second commit
    python tests/gpu/compare_sass.py compare before.json after.json

``collect`` compiles every kernel of the compile tests and of NAMED, the problems that reach rare kernels, for compute
capability 9.0, or for another ``--device``, and writes a digest of each kernel's instructions. Together the problems reach
every entry of kernel text (tests/engines/cuda/test_compared_kernels.py). ``--engine WORD`` restricts the engines. Keys are engine numbers, knob values and launch positions, so engine
names, kernel names and file names may change between two runs. ``compare`` prints each difference and exits with 1 if
there is one.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import struct
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / part) for part in ("tests/support", "tests", "")]

from compiled_problems import CASES, EXTENSIONS, TEXTS, prepared_problem
from cuda_comparison import compiled
from emulator.libraries import host_libraries
from random_problems.configurations import configurations
from random_problems.families import Case
from random_problems.named_problems import NAMED, Named
from random_problems.run_and_compare import Prepared

from graphdnn.cuda.nvrtc import arch_of
from graphdnn.device.profiles import DeviceSpec, device_spec
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.errors import NotSupported
from graphdnn.heuristics import EngineConfig

KNOB_SETTINGS = 1  # of each engine, besides its defaults
PROBLEMS: tuple[str | Case | Named, ...] = (*TEXTS, *EXTENSIONS, *CASES, *NAMED)


def instruction_digests(cubin: bytes) -> list[str]:
    """A digest of each kernel's instructions, sorted: the contents of the sections ``.text.*`` of the ELF file."""
    offset, entry_size, count, names_index = (
        *struct.unpack_from("<Q", cubin, 40),
        *struct.unpack_from("<3H", cubin, 58),
    )
    headers = [struct.unpack_from("<2I4Q", cubin, offset + i * entry_size) for i in range(count)]
    names_at = headers[names_index][4]
    digests = []
    for name_offset, _, _, _, section_at, size in headers:
        start = names_at + name_offset
        if cubin[start : cubin.index(b"\0", start)].startswith(b".text."):
            digests.append(hashlib.sha256(cubin[section_at : section_at + size]).hexdigest()[:16])
    return sorted(digests)


def configurations_of(problem: str | Case | Named, device: DeviceSpec) -> list[EngineConfig]:
    """The configurations of a problem whose kernels are compared; none if no engine of the device supports it."""
    try:
        if isinstance(problem, Named):
            return list(problem.configurations(Prepared.of(problem.problem()).fused, device))
        return list(configurations(prepared_problem(problem).fused, device, 0, broad=1, knob_settings=KNOB_SETTINGS))
    except NotSupported:
        return []


def _kernels_of(index: int, device_name: str, engines: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
    device, problem = device_spec(device_name), PROBLEMS[index]
    arch = arch_of(device.compute_capability)
    label = f"named {problem.text}" if isinstance(problem, Named) else problem  # without the engine's name
    configs = configurations_of(problem, device)
    for choice in (choice for config in configs for choice in config.choices):
        if engines and not any(word in choice.engine.name for word in engines):
            continue
        kernel = choice.engine.compile(choice.task, choice.knobs)
        knobs = ",".join(f"{int(knob)}={value}" for knob, value in sorted(choice.knobs.items()))
        launches = [s for s in kernel.steps if isinstance(s, Launch)] if isinstance(kernel, DeviceKernel) else []
        for position, launch in enumerate(launches):
            key = f"{label} | kernel {choice.task.op.index} | engine {choice.engine.id} [{knobs}] | launch {position}"
            yield key, instruction_digests(compiled(launch.text, arch).cubin)


def _collect(index: int, device: str, engines: tuple[str, ...]) -> dict[str, list[str]]:
    with host_libraries():
        return dict(_kernels_of(index, device, engines))


def collect(path: Path, device: str, jobs: int, engines: tuple[str, ...]) -> None:
    kernels: dict[str, list[str]] = {}
    with ProcessPoolExecutor(jobs) as pool:
        count = len(PROBLEMS)
        for digests in pool.map(_collect, range(count), [device] * count, [engines] * count):
            kernels.update(digests)
    path.write_text(json.dumps(kernels, indent=0), encoding="utf-8")
    print(
        f"{len(kernels)} launches of {len(PROBLEMS)} problems, {len({tuple(k) for k in kernels.values()})} distinct kernels"
    )


def compare(before: Path, after: Path) -> int:
    old, new = (json.loads(path.read_text(encoding="utf-8")) for path in (before, after))
    differences = [f"only before: {key}" for key in old if key not in new]
    differences += [f"only after: {key}" for key in new if key not in old]
    differences += [f"other instructions: {key}" for key in old if key in new and old[key] != new[key]]
    print("\n".join(differences) or f"{len(old)} launches, the same instructions")
    return 1 if differences else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    collecting = commands.add_parser("collect")
    collecting.add_argument("path", type=Path)
    collecting.add_argument("--device", default="h200")
    collecting.add_argument("--jobs", type=int, default=2)
    collecting.add_argument("--engine", action="append", default=[], help="only engines whose name contains this word")
    comparing = commands.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "compare":
        return compare(arguments.before, arguments.after)
    collect(arguments.path, arguments.device, arguments.jobs, tuple(arguments.engine))
    return 0


if __name__ == "__main__":
    sys.exit(main())

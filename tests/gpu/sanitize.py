"""One drawn case of every family and the named ones (tests/random_problems/named_problems.py), in one process, for compute-sanitizer.

    python tests/gpu/sanitize.py --compile-only
    compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 9 python tests/gpu/sanitize.py --all
    compute-sanitizer --tool racecheck --error-exitcode 9 python tests/gpu/sanitize.py
    python tests/gpu/sanitize.py --emulated --watched

The last line says without a GPU what racecheck says with one. The first one fills the kernel cache with all cores, so
that the others only run. (The bindings ask the driver for functions that it may lack, which are errors of its
interface.) CuPy's pool is off: every tensor is an allocation of its own, and an access behind it is seen. Prints the
entries of kernel text that ran and those that never did; ends with code 1 when a result is wrong, when nothing ran, or
with ``--all`` when an entry never ran.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

_TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(_TESTS), str(_TESTS / "support"), str(_TESTS.parent)]

from emulator.libraries import host_libraries
from random_problems import memory_images
from random_problems.configurations import configurations
from random_problems.execution_targets import Cuda, Emulated
from random_problems.families import FAMILIES, Case, draw
from random_problems.kernel_entries import entries, launched, launched_by
from random_problems.named_problems import NAMED
from random_problems.run_and_compare import Prepared, check

from graphdnn.cuda.nvrtc import KernelText, arch_of
from graphdnn.device.profiles import DeviceSpec
from graphdnn.device_selection import device_spec
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.errors import NotSupported
from graphdnn.heuristics import EngineConfig


@dataclass
class Seen:
    """What came of the run so far."""

    entries: set[str] = field(default_factory=set)
    kernels: set[str] = field(default_factory=set)  # texts' names, without what makes them one text's
    runs: int = 0
    failed: list[str] = field(default_factory=list)


def main() -> int:
    options = _options()
    if options.compile_only:
        return _compile(options)
    if options.emulated:
        with host_libraries():
            return _all(options, Emulated(libraries=True, watched=options.watched))
    import cupy

    cupy.cuda.set_allocator(None)
    cupy.zeros(1)  # makes a context: asking the driver for one that is not there is an error to the sanitizer
    return _all(options, Cuda())


def _all(options: argparse.Namespace, place: Cuda | Emulated) -> int:
    memory_images.MARGIN = 0  # behind a tensor is what belongs to nobody
    seen, started = Seen(), time.monotonic()
    for label, prepared, config in _planned(options, place.device, place.admits):
        if options.list_only:
            seen.entries |= launched_by(config)
            seen.runs += 1
        else:
            _run(label, prepared, config, place, seen)
    never = sorted(entries() - seen.entries)
    print("\n".join(seen.failed))
    print(f"{seen.runs} runs, {len(seen.failed)} failures, {time.monotonic() - started:.1f} s")
    print(f"entries that ran: {', '.join(sorted(seen.entries))}")
    print("entries that never ran: " + (", ".join(never) or "none"))
    return int(bool(seen.failed) or not seen.runs or (options.all and bool(never)))


def _planned(
    options: argparse.Namespace, device: DeviceSpec, admits: object
) -> Iterator[tuple[str, Prepared, EngineConfig]]:
    """What to run: every engine on the drawn cases, the stated one on the named ones."""
    for family in options.family or FAMILIES:
        for seed in range(options.seeds):
            case = Case(family, seed, large=False)
            prepared = Prepared.of(draw(case))
            try:
                for config in configurations(prepared.fused, device, seed, broad=1, knob_settings=1, admitted=admits):
                    yield f"{case} {config.name}", prepared, config
            except NotSupported:
                continue
    for named in () if options.family else NAMED:
        prepared = Prepared.of(named.problem())
        for config in named.configurations(prepared.fused, device):
            if admits(config):
                yield f"{named} {config.name}", prepared, config


def _run(label: str, prepared: Prepared, config: EngineConfig, place: Cuda | Emulated, seen: Seen) -> None:
    print(f"running {label}", flush=True)  # the last line tells what a device error ended
    try:
        plan = place.plan(config)
        kernels = {launch.text.name.split("__")[0] for launch in plan.launches}
        if seen.runs > len(FAMILIES) * 4 and not (launched(plan) - seen.entries or kernels - seen.kernels):
            return  # nothing that has not run already
        seen.failed += [f"{label}: {line}" for line in check(prepared, plan, place)]
        seen.entries |= launched(plan)
        seen.kernels |= kernels
        seen.runs += 1
    except NotSupported:
        return
    except Exception as error:
        seen.failed.append(f"{label}: {type(error).__name__}: {str(error)[:600]}")


def _compile(options: argparse.Namespace) -> int:
    """Fill the kernel cache, a process for each core: a kernel takes the compiler half a second."""
    device = device_spec(options.device)
    texts: dict[str, KernelText] = {}
    for *_, config in _planned(options, device, lambda config: True):
        for choice in config.choices:
            kernel = choice.engine.compile(choice.task, choice.knobs)
            steps = kernel.steps if isinstance(kernel, DeviceKernel) else ()
            texts.update({step.text.name: step.text for step in steps if isinstance(step, Launch)})
    arch = arch_of(device.compute_capability, device.name)
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        origins = list(pool.map(_compiled, texts.values(), [arch] * len(texts)))
    print(f"{len(texts)} kernels, {origins.count('compiled')} of them compiled")
    return 0


def _compiled(text: KernelText, arch: str) -> str:
    from graphdnn.cuda.kernel_cache import default_cache

    return default_cache().load(text, arch).origin


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1, help="cases of each family")
    parser.add_argument("--family", action="append", default=[], choices=sorted(FAMILIES), help="only these, unnamed")
    parser.add_argument("--all", action="store_true", help="fail when an entry of kernel text never ran")
    parser.add_argument("--emulated", action="store_true", help="without a GPU")
    parser.add_argument("--watched", action="store_true", help="with --emulated: shared memory, as racecheck does")
    parser.add_argument("--list-only", action="store_true", help="run nothing, and say what would")
    parser.add_argument("--compile-only", action="store_true", help="fill the kernel cache, and run nothing")
    parser.add_argument("--device", default="cuda", help="what --compile-only compiles for")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

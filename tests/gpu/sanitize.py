"""Small cases of every family on every engine, in one process, for compute-sanitizer.

    compute-sanitizer --tool memcheck  --error-exitcode 9 python tests/gpu/sanitize.py
    compute-sanitizer --tool racecheck --error-exitcode 9 python tests/gpu/sanitize.py

CuPy's pool is off, so that every tensor is an allocation of its own and an access behind it is seen.
Prints the kernels that ran; ends with code 1 when a result is wrong or nothing ran.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

_TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(_TESTS), str(_TESTS.parent)]

from drawn import memory
from drawn.checks import Prepared, check
from drawn.configs import configurations
from drawn.families import FAMILIES, Case, draw
from drawn.places import Cuda, Emulated

from graphdnn.errors import NotSupported


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8, help="cases of each family")
    parser.add_argument("--family", action="append", default=[], choices=sorted(FAMILIES))
    parser.add_argument("--emulated", action="store_true", help="without a GPU, to see what would run")
    options = parser.parse_args()
    if options.emulated:
        place: Cuda | Emulated = Emulated()
    else:
        import cupy

        cupy.cuda.set_allocator(None)
        cupy.zeros(1)  # makes a context: asking the driver for one that is not there is an error to the sanitizer
        place = Cuda()
    memory.MARGIN = 0  # behind a tensor is what belongs to nobody
    entries: set[str] = set()
    runs, failed = 0, []
    for family in options.family or FAMILIES:
        for seed in range(options.seeds):
            case = Case(family, seed, large=False)
            prepared = Prepared.of(draw(case))
            try:
                for config in configurations(
                    prepared.fused, place.device, seed, broad=1, knob_settings=1, admitted=place.admits
                ):
                    plan = place.plan(config)
                    kernels = {launch.entry for launch in plan.launches}
                    names = {launch.text.name.split("__")[0] for launch in plan.launches}
                    if seed >= 2 and not (kernels | names) - entries:
                        continue  # nothing that has not run already
                    found = check(prepared, plan, place)
                    entries |= kernels | names
                    runs += 1
                    failed += [f"{case} {config.name}: {line}" for line in found]
            except NotSupported:
                continue
            except Exception as error:
                failed.append(f"{case}: {type(error).__name__}: {str(error)[:600]}")
    print("\n".join(failed))
    print(f"{runs} runs, {len(failed)} failures, kernels: {', '.join(sorted(entries))}")
    return int(bool(failed) or not runs)


if __name__ == "__main__":
    sys.exit(main())

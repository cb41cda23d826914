"""What runs under compute-sanitizer (tests/gpu/sanitize.py) reaches every entry of kernel text; nothing is run here."""

from __future__ import annotations

from math import prod

import pytest
from emulator import MISSING
from emulator.libraries import host_libraries
from random_problems.configurations import configurations
from random_problems.execution_targets import Emulated
from random_problems.families import FAMILIES, Case, draw
from random_problems.kernel_entries import entries, launched_by
from random_problems.named_problems import NAMED, Named
from random_problems.run_and_compare import Prepared, check

from graphdnn.errors import NotSupported

PLACE = Emulated(libraries=True)
FEW = 8  # blocks


def drawn_entries() -> set[str]:
    found: set[str] = set()
    for family in FAMILIES:
        prepared = Prepared.of(draw(Case(family, 0, large=False)))
        try:
            for config in configurations(prepared.fused, PLACE.device, 0, broad=1, knob_settings=1):
                found |= launched_by(config)
        except NotSupported:
            continue
    return found


def test_every_entry_is_reached() -> None:
    with host_libraries():
        found = drawn_entries()
        for named in NAMED:
            prepared = Prepared.of(named.problem())
            configs = list(named.configurations(prepared.fused, PLACE.device))
            assert configs, f"{named}: the engine does not serve it"
            found |= {entry for config in configs for entry in launched_by(config)}
    assert not entries() - found, "add a problem for these to tests/random_problems/named_problems.py"


def test_entries_are_read_from_text() -> None:
    """Two files may name an entry alike, and modules of engines put names of files together."""
    known = entries()
    assert {
        "pointwise (pointwise.cu)",
        "hopper_halo (hopper_halo.cu)",
        "hopper_halo_swap_ab (hopper_halo_swap_ab.cu)",
    } <= known
    assert {"depthwise_sliding (depthwise_sliding.cu)", "hopper_stem (hopper_stem.cu)"} <= known
    assert len(known) >= 90


@pytest.mark.long
@pytest.mark.skipif(bool(MISSING), reason=MISSING)
@pytest.mark.parametrize("named", NAMED, ids=str)
def test_named_problems_agree_with_numpy(named: Named) -> None:
    with host_libraries():
        prepared = Prepared.of(named.problem())
        for config in named.configurations(prepared.fused, PLACE.device):
            plan = PLACE.plan(config)
            if any(step.is_cooperative and prod(step.grid) > FEW for step in plan.launches):
                pytest.skip("so many blocks wait for each other on a device only")
            assert check(prepared, plan, PLACE) == []

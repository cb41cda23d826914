"""Plans of huge extents, strides, windows, groups and the like come, or are refused, in bounded time and memory."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from huge_sizes import CONVOLUTION, FAMILIES, TABLE, Family

from graphdnn import OperationGraph, Ranking, device_spec, fuse
from graphdnn.cli.kernel_listing import kernels_of
from graphdnn.engines.cuda.fft.fft_tiles import _odd_products, fast_size
from graphdnn.engines.cuda.sm90.halo.halo_wgrad_tiles import _splits
from graphdnn.engines.host.convolution_residues import problems_of, reached_residues, residues_of
from graphdnn.errors import GraphdnnError, NotSupported
from graphdnn.operations.conv_problem import ConvProblem, pairs_inside
from graphdnn.pipeline import prepare

DEVICES = tuple(map(device_spec, ("cpu", "h200", "a100")))
HUGE = (2**20, 2**31, 2**40)
TOGETHER = (("size", "stride"), ("sizes", "strides"), ("size", "window"), ("filter", "stride"), ("c", "k"), ("n", "c"))
SECONDS = 20.0  # a plan takes some hundredths of a second; a walk through an extent takes hours
BYTES = 2**30


class SlowError(BaseException):
    """Nothing that a plan catches."""


@contextmanager
def _bounded() -> Iterator[None]:
    """Ends what takes longer than ``SECONDS``; what asks for more memory than ``BYTES`` gets a ``MemoryError``."""

    def slow(*_: Any) -> None:
        raise SlowError

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    before = signal.signal(signal.SIGALRM, slow)
    resource.setrlimit(resource.RLIMIT_AS, (size + BYTES, hard))
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module", autouse=True)
def _loaded() -> None:
    for device in DEVICES:
        prepare(device)


def _planned(family: Family, changes: dict[str, int]) -> int:
    """How many devices the operation has a plan for; 0 where the operation itself is refused."""
    try:
        with _bounded():
            graph = OperationGraph.of([family.of(**changes)])
    except GraphdnnError:
        return 0
    served = 0
    for device in DEVICES:
        try:
            with _bounded():
                ranking = Ranking(fuse(graph), device)
                best = ranking.best
        except NotSupported as error:
            assert error.rejections
            assert ranking.declined
            continue
        with _bounded():
            kernels_of(best)  # what an engine says that it serves, it writes
            served += len(ranking) > 0
    return served


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_size_may_be_huge(family: Family) -> None:
    assert _planned(family, {}) == len(DEVICES), "the small one is served everywhere"
    for name in family.sizes:
        for value in HUGE:
            _planned(family, {name: value})
    for one, other in TOGETHER:
        if one in family.sizes and other in family.sizes:
            _planned(family, {one: 2**20, other: 2**20})


def test_every_operation_has_sizes() -> None:
    assert {family.tag for family in FAMILIES} == set(TABLE), "FAMILIES (tests/support/huge_sizes.py) needs a row"


def test_the_host_serves_what_has_addresses() -> None:
    """Refusals above are not all that there is."""
    family = next(f for f in FAMILIES if f.name == "conv_dgrad f32 channels first")
    served = [name for name in CONVOLUTION if _planned(family, {name: 2**20})]
    assert set(served) == set(CONVOLUTION)


def _strided(stride: int, filter: int, size: int) -> ConvProblem:
    return ConvProblem(
        n=1, groups=1, c=1, k=1, input=(size,) * 2, filter=(filter,) * 2, output=(1 + (size - 1) // stride,) * 2,
        pre_padding=(0, 0), post_padding=(0, 0), stride=(stride,) * 2, dilation=(1, 1),
    )  # fmt: skip


def test_a_plan_looks_at_few_problems_of_a_strided_gradient() -> None:
    assert len(list(problems_of(_strided(2**40, 2**40, 2**40 + 1)))) <= 16
    assert len(list(reached_residues(_strided(2**40, 3, 2**40 + 1)))) == 9


@pytest.mark.parametrize("stride", range(1, 7))
@pytest.mark.parametrize("dilation", range(1, 5))
def test_problems_of_residues_have_their_sizes(stride: int, dilation: int) -> None:
    """Every residue that a tap reaches, found by looking at each tap, and nothing else."""
    for size in range(1, 14):
        for taps in range(1, 6):
            for pre in (0, 1, 3):
                problem = ConvProblem(
                    n=1, groups=1, c=1, k=1, input=(size,), filter=(taps,), output=(7,), pre_padding=(pre,),
                    post_padding=(0,), stride=(stride,), dilation=(dilation,),
                )  # fmt: skip
                meeting = {
                    q: taps_of
                    for q in range(min(stride, size))
                    if (taps_of := [i for i in range(taps) if (q + pre - i * dilation) % stride == 0])
                }
                reached = {r.positions[0].start: list(range(taps)[r.taps[0]]) for r in reached_residues(problem)}
                assert reached == meeting
                assert {r.positions[0].start for r in residues_of(problem)} == set(range(min(stride, size)))
                sizes = {(r.problem.output, r.problem.filter) for r in reached_residues(problem)}
                assert sizes <= {(p.output, p.filter) for p in problems_of(problem)}


def test_pairs_inside_an_image_are_counted_without_a_walk() -> None:
    for size, taps, outputs, pre, stride, dilation in (
        (7, 3, 5, 1, 2, 1), (5, 4, 9, 6, 1, 3), (1, 1, 1, 0, 9, 9), (12, 9, 3, 5, 4, 2), (3, 5, 8, 11, 2, 5),
    ):  # fmt: skip
        places = [p * stride + i * dilation - pre for p in range(outputs) for i in range(taps)]
        assert pairs_inside(size, taps, outputs, pre, stride, dilation) == sum(0 <= q < size for q in places)
    with _bounded():
        assert pairs_inside(2**40, 2**40, 2**40, 0, 1, 1) == 2**40 * (2**40 + 1) // 2


def test_sizes_of_transforms_are_the_smallest_fast_ones() -> None:
    def is_fast(size: int) -> bool:
        for factor in (2, 3, 5, 7):
            while size % factor == 0:
                size //= factor
        return size == 1

    fast = [n for n in range(2, 6000, 2) if is_fast(n)]
    for least in range(1, 5000):
        assert fast_size(least) == next(n for n in fast if n >= least)
    assert len(list(_odd_products(1, (3, 5, 7), 2**41))) < 2500
    with _bounded():
        assert 2**40 < fast_size(2**40 + 1) < 2**40 * 1.01


@pytest.mark.parametrize("asked", [0, 2, 7])
def test_splits_that_are_left_out_are_not_the_best(asked: int) -> None:
    """Time rises or falls evenly with the whole shares, so the two ends are enough."""
    sms, patches = 4, 50
    for shares in range(1, 40):
        every = [
            (whole, parts)
            for whole in range(0, shares, sms)
            for waves in (1, 2, 3)
            if (parts := min(asked or waves * sms // (shares - whole), patches, 256)) > 1
        ]
        found = list(_splits(shares, patches, sms, asked))
        ends = {0, (shares - 1) // sms * sms}
        assert {split for split in every if not asked or split[0] in ends} <= set(found)
    assert len(list(_splits(2**40, patches, sms, asked))) <= 7

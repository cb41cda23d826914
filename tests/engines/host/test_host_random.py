"""Random numbers of the NumPy engine: known answers, loops, distributions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphdnn.engines.host import random
from graphdnn.enums import RngDistribution

KNOWN_ANSWERS = [  # Random123, philox4x32-10: counter, key, result
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_philox_known_answers(counter: tuple[int, ...], key: tuple[int, int], expected: tuple[int, ...]) -> None:
    words = tuple(np.array([c, 0], np.uint64) for c in counter)
    result = random.philox(words, key)  # type: ignore[arg-type]
    assert result.dtype == np.uint32
    assert tuple(result[0].tolist()) == expected
    assert result[1].tolist() != result[0].tolist() or counter == (0, 0, 0, 0)


def philox_by_loops(counter: list[int], key: list[int]) -> list[int]:
    for _ in range(10):
        first, second = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [
            second >> 32 ^ counter[1] ^ key[0], second & 0xFFFFFFFF,
            first >> 32 ^ counter[3] ^ key[1], first & 0xFFFFFFFF,
        ]  # fmt: skip
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return counter


@settings(max_examples=60, deadline=None)
@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1), st.integers(1, 5))
def test_the_stream_counts_in_the_low_words(seed: int, offset: int, blocks: int) -> None:
    words = random.uniform_words(seed, offset, blocks)
    key = [seed % 2**64 & 0xFFFFFFFF, seed % 2**64 >> 32]
    for block in range(blocks):
        place = (offset + block) % 2**64
        assert words[block].tolist() == philox_by_loops([place & 0xFFFFFFFF, place >> 32, 0, 0], key)


def test_elements_take_the_lanes_in_row_major_order() -> None:
    y = random.generate((3, 5), RngDistribution.UNIFORM, 7, 11, {"minimum": 0.0, "maximum": 1.0})
    words = random.uniform_words(7, 11, 4).ravel()[:15]
    assert y.dtype == np.float32
    np.testing.assert_array_equal(y.ravel(), (words >> 8).astype(np.float32) * np.float32(2.0**-24))


@pytest.mark.parametrize("distribution", RngDistribution, ids=str)
def test_offsets_continue_a_stream(distribution: RngDistribution) -> None:
    parameters = {
        RngDistribution.BERNOULLI: {"probability": 0.5},
        RngDistribution.UNIFORM: {"minimum": -1.0, "maximum": 3.0},
        RngDistribution.NORMAL: {"mean": 1.0, "standard_deviation": 2.0},
    }[distribution]
    whole = random.generate((64,), distribution, 3, 0, parameters)
    np.testing.assert_array_equal(random.generate((4, 8), distribution, 3, 8, parameters).ravel(), whole[32:])
    assert not np.array_equal(random.generate((64,), distribution, 4, 0, parameters), whole)


def test_distributions_are_what_they_say() -> None:
    from scipy import stats

    n = 200_000
    uniform = random.generate((n,), RngDistribution.UNIFORM, 1, 2, {"minimum": -1.0, "maximum": 3.0})
    assert uniform.min() >= -1
    assert uniform.max() <= 3
    assert stats.kstest(uniform, stats.uniform(-1, 4).cdf).pvalue > 1e-3
    gauss = random.generate((n,), RngDistribution.NORMAL, 1, 2, {"mean": 1.0, "standard_deviation": 2.0})
    assert stats.kstest(gauss, stats.norm(1, 2).cdf).pvalue > 1e-3
    for lane in range(3):  # neighbours are independent, pairs of one Box-Muller draw too
        assert abs(np.corrcoef(gauss[lane::4], gauss[lane + 1 :: 4])[0, 1]) < 0.02
    coins = random.generate((n,), RngDistribution.BERNOULLI, 1, 2, {"probability": 0.3})
    assert set(np.unique(coins)) == {0.0, 1.0}
    assert abs(coins.mean() - 0.3) < 0.005


def test_bernoulli_is_below_the_probability() -> None:
    uniform = (random.uniform_words(5, 0, 1)[0] >> 8) * 2.0**-24
    drawn = random.generate((4,), RngDistribution.BERNOULLI, 5, 0, {"probability": float(uniform[1])})
    np.testing.assert_array_equal(drawn, uniform < uniform[1])


def test_bernoulli_at_the_ends() -> None:
    for probability in (0.0, 1.0):
        drawn = random.generate((1000,), RngDistribution.BERNOULLI, 5, 0, {"probability": probability})
        assert (drawn == probability).all()


def test_normal_numbers_are_finite_at_both_ends_of_the_uniform_range() -> None:
    lanes = np.array([[0.0, 0.0, 1 - 2.0**-24, 0.5]])
    drawn = random._normal(lanes, 0.0, 1.0).ravel()
    np.testing.assert_allclose(drawn, [math.sqrt(48 * math.log(2)), 0, 0, 0], atol=1e-12)

"""The value tests of the legacy calls once more, with kernels for a GPU on the emulator."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import test_v6_algorithms
import test_v6_convolution_values
import test_v6_ctc
import test_v6_dropout
import test_v6_layer_values
import test_v6_repeated_calls
import test_v6_rnn
import test_v6_spatial_values
import test_v6_tensor_values
import test_v6_typed_values
import test_v6_window_values
from emulator import MISSING
from v6_device_mirror import EmulatedMemory, cases_of, emulated, mirrored

from graphdnn import v6

# What a search runs on is whatever is there, and NumPy warns where it stands in for the FFT library.
pytestmark = [pytest.mark.skipif(bool(MISSING), reason=MISSING), pytest.mark.filterwarnings("default")]
MODULES = (
    test_v6_tensor_values, test_v6_convolution_values, test_v6_layer_values, test_v6_repeated_calls,
    test_v6_typed_values, test_v6_spatial_values, test_v6_window_values, test_v6_rnn, test_v6_ctc, test_v6_dropout,
    test_v6_algorithms,
)  # fmt: skip
# The time of a call on the host, and memory that is the host's by its kind.
ON_THE_HOST = ("test_a_repeated_call_costs_little", "test_memory_of_a_size_that_ctypes_knows")
EVERY_TIME = (
    "test_transform_to_vectors_and_back", "test_gaps_stay_as_they_are", "test_softmax_in_place", "test_integer_anchors",
    "test_pooling_and_nan", "test_sampler_blends_its_gradients_apart", "test_divisive_normalisation_in_place",
    "test_anchors", "test_states_are_set_restored_and_read", "test_strided_probabilities",
)  # fmt: skip
globals().update(cases_of(*MODULES, without=ON_THE_HOST, long_but=EVERY_TIME))


@pytest.fixture(autouse=True, scope="module")
def runtime() -> Iterator[None]:
    with emulated():
        yield


@pytest.fixture(autouse=True)
def mirror(runtime: None) -> Iterator[None]:
    v6.use("h200")
    on = v6.cudnnCreate()
    v6.use(None)
    with mirrored(on, EmulatedMemory()):
        yield


def test_every_function_that_computes_has_cases() -> None:
    text = "".join(Path(m.__file__ or "").read_text(encoding="utf-8") for m in MODULES)
    computing = {line.alias_of or line.function for line in v6.coverage() if line.becomes != "state"}
    missing = [f for f in computing if not re.search(rf"\b{f}\b", text)]
    assert not [f for f in missing if not f.startswith("cudnnFind")], "searches are asked for by a part of their name"

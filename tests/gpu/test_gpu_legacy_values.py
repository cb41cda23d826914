"""Every legacy function that computes, on the GPU: the cases of its value tests on the host, once more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from test_v6_values_on_emulator import MODULES, ON_THE_HOST
from v6_device_mirror import CudaMemory, cases_of, mirrored

from graphdnn import v6

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]
globals().update(cases_of(*MODULES, without=ON_THE_HOST))


@pytest.fixture(scope="module")
def on_gpu() -> Any:
    v6.use("cuda")
    made = v6.cudnnCreate()
    v6.use(None)
    return made


@pytest.fixture(autouse=True)
def mirror(on_gpu: Any) -> Iterator[None]:
    with mirrored(on_gpu, CudaMemory()):
        yield

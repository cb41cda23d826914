"""ONNX's own backend tests on the GPU: whatever passes on the host passes here."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("onnx.reference", reason="the package onnx is not installed: ONNX's backend tests are not run")

from onnx_suite import KINDS, PROPERTY, passed_before, recorded, run_all

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("kind", KINDS)
def test_backend_tests_on_the_gpu(kind: str, record_property: Callable[[str, object], None]) -> None:
    outcomes = list(run_all((kind,), device="CUDA"))
    record_property(PROPERTY, recorded(outcomes))
    known = passed_before()
    wanted = [o for o in outcomes if f"{o.kind}/{o.name}" in known]
    assert wanted, "no case was run"
    lost = [o for o in wanted if o.verdict != "passed"]
    assert not lost, f"passes on the host: {lost}"

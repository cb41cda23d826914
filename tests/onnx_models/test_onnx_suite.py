"""ONNX's own backend tests on the host. What passed once has to pass: ``tests/data/onnx_suite_passed.txt`` only grows.

``python tests/support/onnx_suite.py --update`` adds what passes now.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("onnx.reference", reason="the package onnx is not installed: ONNX's backend tests are not run")

from onnx_suite import (
    KINDS,
    PASS_LIST,
    PROPERTY,
    Outcome,
    cases,
    loaded,
    passed_before,
    recorded,
    run_all,
    run_case,
    summary,
)

from graphdnn.onnx.model import Model

PARTS = [("node", i, 4) for i in range(4)] + [(kind, 0, 1) for kind in KINDS if kind != "node"]


@pytest.mark.parametrize(("kind", "part", "parts"), PARTS)
def test_backend_tests(kind: str, part: int, parts: int, record_property: Callable[[str, object], None]) -> None:
    outcomes = list(run_all((kind,), share=(part, parts)))
    record_property(PROPERTY, recorded(outcomes))
    assert outcomes, "no case was run"
    assert any(o.verdict == "passed" for o in outcomes), "no case passed"
    verdicts = {f"{o.kind}/{o.name}": o for o in outcomes}
    lost = [
        verdicts[name] for name in sorted(passed_before()) if name in verdicts and verdicts[name].verdict != "passed"
    ]
    assert not lost, f"passed before: {lost}"
    failed = [o for o in outcomes if o.verdict == "failed"]
    assert not failed, f"neither right nor refused: {failed}"


def test_pass_list_is_sorted_and_names_most_cases() -> None:
    lines = PASS_LIST.read_text(encoding="utf-8").split()
    assert lines == sorted(set(lines))
    assert len(lines) >= 1800


def test_wrong_result_is_a_failure() -> None:
    """The comparison rejects: one element of an expected output is changed."""
    (case,) = [c for c in cases("node") if c.name == "test_add"]
    assert run_case(case).verdict == "passed"
    inputs, (expected,) = case.data_sets[0]
    wrong = expected.copy()
    wrong.flat[0] += 1
    case.data_sets[0] = (inputs, [wrong])
    assert run_case(case).verdict == "failed"


def test_summary_counts_every_verdict() -> None:
    outcomes = [
        Outcome("node", "a", "passed", "", 1),
        Outcome("node", "b", "passed", "", 0),
        Outcome("node", "c", "skipped", "operator Unique", 0),
        Outcome("node", "d", "failed", "other", 0),
    ]
    text = summary(outcomes)
    assert "4 run, 2 passed (1 by plans, 1 by constant folding alone), 1 skipped, 1 failed" in text
    assert "skipped 1: operator Unique" in text
    assert "failed node d: other" in text


def _rank_for_a_gpu(part: int, parts: int) -> int:
    """Ranks every case of a share that passes on the host for an H200, which need not be here; returns their number."""
    known, count = passed_before(), 0
    for case in cases("node")[part::parts]:
        if f"node/{case.name}" not in known:
            continue
        proto, data = loaded(case)
        model = Model(proto, device="h200", bind=False)
        inputs = dict(zip([i.name for i in (*model.inputs, *model.overridable)], data[0][0], strict=False))
        for graph in model.program(inputs).graphs:
            assert graph.config is None or all(c.engine.name.startswith("cuda_") for c in graph.config.choices)
        count += 1
    return count


def test_every_kernel_has_an_engine_for_a_gpu() -> None:
    assert _rank_for_a_gpu(0, 8) > 150


@pytest.mark.long
@pytest.mark.parametrize("part", range(1, 8))
def test_every_other_kernel_has_an_engine_for_a_gpu(part: int) -> None:
    assert _rank_for_a_gpu(part, 8) > 150

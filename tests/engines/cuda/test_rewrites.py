"""The table of rewrites: what each row matches, what plans show of it, and what the check of a rewrite refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest
from requirement_cases import from_text
from rewrite_cases import BROKEN, GROUPS, H200, MATCHED, Broken

from graphdnn import build, device_spec, fuse
from graphdnn.cli.commands.explain import as_json, as_text, fused_text
from graphdnn.engines import ENGINE_BY_NAME, ENGINES, Engine, Task
from graphdnn.engines.cuda.rewrites.result_check import faults
from graphdnn.engines.cuda.rewrites.rewrite import DelegateRefusal, Rewrite, Rewritten, with_passes
from graphdnn.engines.cuda.rewrites.rewrite_engine import rewrite_engine
from graphdnn.engines.cuda.rewrites.table import REWRITE_ENGINES, REWRITES
from graphdnn.engines.cuda.sm80 import mma_gemm
from graphdnn.engines.cuda.sm90.gemm import hopper_gemm, hopper_matmul
from graphdnn.engines.engine import needs_rule
from graphdnn.heuristics import Choice, Ranking
from graphdnn.problem import parse
from graphdnn.rules import RULES

H100 = device_spec("h100")
rows = pytest.mark.parametrize("row", REWRITES, ids=lambda row: row.name)


def test_each_row_is_an_engine_and_has_a_case() -> None:
    assert [engine.name for engine in REWRITE_ENGINES] == [f"cuda_{row.name}" for row in REWRITES]
    assert [engine.id for engine in REWRITE_ENGINES] == [row.id for row in REWRITES]
    assert [engine for engine in ENGINES if engine.rewritten is not None] == list(REWRITE_ENGINES)
    assert {row.name for row in REWRITES} == set(MATCHED)


@rows
def test_a_match_is_served_and_shown(row: Rewrite) -> None:
    case, engine = MATCHED[row.name], ENGINE_BY_NAME[row.engine_name]
    task = from_text(case.text, "h200")()
    assert engine.why_not(task) == ()
    assert [faults(task.op, form) for form in row.rewrite(task.op)] == [()] * len(row.rewrite(task.op))
    choice = Choice(task, engine, engine.defaults())
    assert choice.rewrite is not None
    assert choice.rewrite.lines() == case.shown


@rows
def test_another_problem_is_declined_with_the_reason(row: Rewrite) -> None:
    case = MATCHED[row.name]
    rejections = ENGINE_BY_NAME[row.engine_name].why_not(from_text(case.declined, "h200")())
    assert case.rule in [rejection.rule for rejection in rejections]
    assert all(RULES[rejection.rule].reason for rejection in rejections)


def test_an_engine_that_computes_operations_as_they_are_shows_no_rewrite() -> None:
    plan = build(parse("conv x=f16[2,64,28,28]nhwc w=f16[64,64,3,3]nhwc pad=1").build_operation_graph(), "h200")
    assert plan.rewrites == (None,)
    assert "rewrite" not in f"{plan}{plan.kernels[0]}{plan.certificate()}"


def test_where_a_rewrite_is_shown() -> None:
    case = MATCHED["space_to_depth"]
    graph = parse(case.text).build_operation_graph()
    ranking = Ranking(fuse(graph), H200)
    plan = build(graph, "h200")
    (first,) = case.shown
    assert f"\n      {first}\n" in as_text(ranking)
    assert f"\n      {first}\n" not in fused_text(ranking.fused)  # without a configuration nothing is rewritten
    assert str(plan).splitlines()[-1] == f"    {first}"
    assert str(plan.rewrites[0]) == first
    assert [line.split() for line in str(plan.kernels[0]).splitlines()[2:3]] == [first.replace(":", "").split()]
    assert f"conv_fprop+add: {first}" in plan.certificate().notes
    (kernel,) = as_json(ranking)["kernels"]
    assert kernel["rewrite"] == plan.kernels[0].to_json()["rewrite"]
    assert kernel["rewrite"] == {
        "name": "space_to_depth",
        "why": "windows do not overlap",
        "operation": "conv_fprop+add",
        "operands": [[448, 48, 16, 14], [768, 48, 16, 1]],
        "engine": "cuda_hopper_gemm",
        "kernel": "conv_fprop__hopper_192x192x4__conv_fprop+add",
        "before": [],
        "after": [],
    }


@pytest.mark.parametrize("case", BROKEN.values(), ids=list(BROKEN))
def test_a_broken_rewrite_is_refused(case: Broken) -> None:
    task, engine = case.task(), case.engine()
    assert rewrite_engine(case.row).serves(task)  # the row itself
    assert not engine.serves(task)
    (rejection,) = engine.why_not(task)
    assert rejection.rule == "engine.rewrite"
    assert case.said in rejection.value


def test_other_engines_serve_what_a_broken_rewrite_matches() -> None:
    case = BROKEN["half of the result"]
    engine = case.engine()
    others = [one for one in REWRITE_ENGINES if one.name != engine.name]
    ranking = Ranking(fuse(parse(case.text).build_operation_graph()), H200, engines=(engine, *others, *ENGINES))
    assert not any(choice.engine is engine for config in ranking for choice in config.choices)
    assert ranking.best


def _toy(engines: tuple[Engine, ...], forms: int = 1) -> Rewrite:
    """The whole of a new rewrite: it gives convolutions to engines as they are."""
    return Rewrite(
        id=9_999,
        name="same",
        summary="convolutions as they are",
        why="for a test",
        match=(needs_rule("cuda_same.operation", "conv"),),
        rewrite=lambda op: (Rewritten(op),) * forms,
        engines=engines,
        refusal=DelegateRefusal("what the engines serve"),
        cost=with_passes("passes"),
    )


@pytest.fixture
def _rules_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rewrite of a test adds rules."""
    monkeypatch.setattr("graphdnn.rules.RULES", dict(RULES))


@pytest.mark.usefixtures("_rules_of_its_own")
def test_a_row_is_all_that_a_rewrite_needs() -> None:
    fused = fuse(parse(GROUPS).build_operation_graph())
    (task,) = (Task(op, H200) for op in fused)
    engine = rewrite_engine(_toy((hopper_gemm.ENGINE, mma_gemm.ENGINE)))
    config = Ranking(fused, H200, engines=(engine,)).best
    asked = {one.name: one.cost(task, one.defaults()).seconds for one in (hopper_gemm.ENGINE, mma_gemm.ENGINE)}
    best = min(asked, key=lambda name: asked[name])
    assert (config.name, config.predicted_seconds) == ("cuda_same", asked[best])
    (rewrite,) = (choice.rewrite for choice in config.choices)
    assert rewrite is not None
    assert (rewrite.name, rewrite.engine) == ("same", best)
    assert "rewrite: same (for a test) -> conv_fprop of " in fused_text(fused, config)


@pytest.mark.usefixtures("_rules_of_its_own")
@pytest.mark.parametrize(("engines", "forms"), [((hopper_matmul.ENGINE,), 1), ((hopper_gemm.ENGINE,), 0)])
def test_nobody_for_the_remainder(engines: tuple[Engine, ...], forms: int) -> None:
    """No engine serves the rewritten operation, or the rewrite has no form of it."""
    engine = rewrite_engine(_toy(engines, forms))
    (rejection,) = engine.why_not(from_text(GROUPS, "h200")())
    assert (rejection.rule, rejection.expected) == ("cuda_same.rest", "what the engines serve")
    (rejection,) = engine.why_not(from_text("matmul a=f16[1,64,64] b=f16[1,64,64]", "h200")())
    assert rejection.rule == "cuda_same.operation"


@pytest.mark.usefixtures("_rules_of_its_own")
def test_engines_are_asked_once_for_an_operation_and_a_device() -> None:
    asked = []

    def serves(task: Task) -> bool:
        asked.append(task.device.name)
        return True

    counted = replace(hopper_gemm.ENGINE, needs=(replace(hopper_gemm.ENGINE.needs[0], when=serves),))
    engine, task = rewrite_engine(_toy((counted,))), from_text(GROUPS, "h200")()
    for device in (H200, H100, H200, H100):
        again = Task(task.op, device)  # as each ranking makes it
        assert engine.serves(again)
        assert engine.cost(again, engine.defaults()).seconds > 0
    assert asked == ["h200", "h100"]

"""What the tuner concludes from times, and what it tries: arithmetic, without a worker."""

from __future__ import annotations

import io
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from drawn.checks import Prepared
from drawn.families import FAMILIES, Case, draw
from scipy import stats

from graphdnn import BadParam, Graph, HeurMode, NotSupported, OperationGraph, device_spec, fuse
from graphdnn.certificate import numeric_class
from graphdnn.composed import identity
from graphdnn.dtypes import cast
from graphdnn.engines.engine import Knob
from graphdnn.engines.host.memory import as_it_lies, empty, store
from graphdnn.enums import KnobType
from graphdnn.heuristics import EngineConfig, Filters
from graphdnn.operands import blended, random_operands
from graphdnn.oracle import evaluate
from graphdnn.problem import parse
from graphdnn.tuning import Trial, Verdict, autotune
from graphdnn.tuning.answers import Answers
from graphdnn.tuning.candidates import Candidates, candidates_of
from graphdnn.tuning.deciding import TIE, simplicity, undecided
from graphdnn.tuning.intervals import Interval, kendall_tau, median_interval, rank_below, spearman_rho
from graphdnn.tuning.progress import Progress
from graphdnn.tuning.reference import Reference
from graphdnn.tuning.search import Limits, Search
from graphdnn.tuning.spending import Spending
from graphdnn.tuning.thinning import Slices, Thinned, slices_of, thinned
from graphdnn.tuning.worker import Bench

CPU = device_spec("cpu")
CONV = "conv x=f32[1,4,8,8] w=f32[4,4,3,3] pad=1 + relu"
HOPPER = "conv x=f16[8,64,28,28]nhwc w=f16[64,64,3,3]nhwc pad=1 + bias + relu"


def graph_of(text: str = CONV) -> OperationGraph:
    return parse(text).build_operation_graph()


# Intervals.


@pytest.mark.parametrize(
    ("n", "k"), [(1, 0), (5, 0), (6, 1), (8, 1), (9, 2), (10, 2), (20, 6), (30, 10), (50, 18), (100, 40)]
)
def test_ranks_are_those_of_the_tables(n: int, k: int) -> None:
    """The binomial distribution's own quantiles: Thompson's table."""
    assert rank_below(n) == k
    if k:
        assert 1 - 2 * stats.binom.cdf(k - 1, n, 0.5) >= 0.95
    assert 1 - 2 * stats.binom.cdf(k, n, 0.5) < 0.95


@pytest.mark.parametrize("shape", ["normal", "lognormal", "two speeds", "ties"])
def test_the_interval_holds_the_median(shape: str) -> None:
    draw = np.random.default_rng(5)
    samples: dict[str, Any] = {
        "normal": (lambda n: draw.normal(10, 1, n), 10.0),
        "lognormal": (lambda n: draw.lognormal(0, 1, n), 1.0),
        "two speeds": (lambda n: np.where(draw.random(n) < 0.4, 1.0, 20.0) + draw.random(n), 20 + 1 / 6),
        "ties": (lambda n: draw.integers(1, 4, n).astype(float), 2.0),
    }
    make, true = samples[shape]
    held = 0
    for _ in range(1000):
        interval = median_interval(list(make(15)))
        held += interval.low <= true <= interval.high
    assert held >= 935


def test_intervals_of_few_samples() -> None:
    few = median_interval([3.0, 1.0, 2.0])
    assert (few.median, few.low, few.high) == (2.0, 0.0, inf)
    assert few.overlaps(Interval(99.0, 98.0, 100.0))
    assert median_interval([1.0, 2.0, 3.0, 4.0, 5.0, 9.0]) == Interval(3.5, 1.0, 9.0)
    with pytest.raises(ValueError, match="no samples"):
        median_interval([])


def test_rank_correlations_are_scipys() -> None:
    draw = random.Random(3)
    for n in (5, 8, 30):
        a, b = ([float(draw.randrange(n)) for _ in range(n)] for _ in range(2))
        for mine, theirs in ((kendall_tau(a, b), stats.kendalltau(a, b)), (spearman_rho(a, b), stats.spearmanr(a, b))):
            assert mine == pytest.approx(theirs.statistic)
    assert kendall_tau([1.0, 2.0], [3.0, 3.0]) is None
    assert spearman_rho([1.0, 1.0], [3.0, 4.0]) is None


# Decisions.


def trials(count: int) -> list[Trial]:
    candidates = offered(CONV, "cpu")
    configs: list[EngineConfig] = [candidates.first]
    while len(configs) < count:
        following = candidates.next([])
        assert following is not None
        configs.append(following)
    return [Trial(c, i, kernels=1) for i, c in enumerate(configs)]


class _Right(Search):
    """Whose results need no second look."""

    def _still_right(self, trial: Trial) -> bool:
        return True


def decided(times: list[list[float]], tie: float = 0.02, **kernels: int) -> list[Trial]:
    found = trials(len(times))
    for i, (trial, samples) in enumerate(zip(found, times, strict=True)):
        trial.samples, trial.interval, trial.verdict = samples, median_interval(samples), Verdict.SLOWER
        trial.kernels = kernels.get(f"of{i}", 1)
    search = _Right(offered(CONV, "cpu"), Limits(tie=tie), None, 0.0, None, None)  # type: ignore[arg-type]
    search.trials = found
    assert search._decide(list(found))
    return found


def around(middle: float, spread: float = 0.01) -> list[float]:
    return [middle * (1 + spread * (i - 4) / 4) for i in range(9)]


def test_the_fastest_wins() -> None:
    found = decided([around(1.2), around(1.0), around(1.5)])
    assert [t.verdict for t in found] == [Verdict.SLOWER, Verdict.FASTEST, Verdict.SLOWER]


def test_ties_are_named_and_the_simpler_one_wins() -> None:
    found = decided([around(1.005), around(1.0), around(1.5)], of1=2)
    assert [t.verdict for t in found] == [Verdict.FASTEST, Verdict.TIED, Verdict.SLOWER]
    assert found[0].reason == "simplest of 2 within 2%"
    assert found[1].reason == f"with {found[0].name}, which is simpler"


def test_what_ties_is_right_wherever_the_winner_was_looked_at() -> None:
    """Other bits than the winner's, wrong beyond the first images: no tie. The same bits are not looked at again."""

    class Late(_Right):
        def _still_right(self, trial: Trial) -> bool:
            asked.append(trial.place)
            if trial.place == 1:
                self._out(trial, Verdict.WRONG, "beyond the first images")
            return trial.place != 1

    asked: list[int] = []
    found = trials(3)
    for trial, digest in zip(found, "aba", strict=True):
        trial.samples, trial.digest, trial.verdict = around(1.0), digest, Verdict.SLOWER
        trial.interval = median_interval(trial.samples)
    search = Late(offered(CONV, "cpu"), Limits(), None, 0.0, None, None)  # type: ignore[arg-type]
    search.trials = found
    assert search._decide(list(found))
    assert [t.verdict for t in found] == [Verdict.FASTEST, Verdict.WRONG, Verdict.TIED]
    assert asked == [0, 1]


def test_a_difference_beyond_the_tie_is_none_to_break() -> None:
    """Overlapping intervals alone are no tie, but they are said."""
    found = decided([around(1.1, 0.2), around(1.0, 0.2)], of1=2)
    assert [t.verdict for t in found] == [Verdict.SLOWER, Verdict.FASTEST]
    assert "not for certain" in found[0].reason
    assert [t.verdict for t in decided([around(1.1, 0.2), around(1.0, 0.2)], tie=0.2, of1=2)] == [
        Verdict.FASTEST, Verdict.TIED,
    ]  # fmt: skip


def test_the_order_of_simplicity() -> None:
    """Fewer kernels, less workspace, fewer changed knobs, the engine table's order, what was tried first."""
    plain, second, third = trials(3)
    assert simplicity(plain) < simplicity(replace(plain, kernels=2))
    assert simplicity(replace(plain, place=0)) < simplicity(replace(plain, place=1))
    small = min((plain, second, third), key=lambda t: t.config.workspace_size)
    assert simplicity(small) == min(map(simplicity, (plain, second, third)))
    assert simplicity(replace(small, kernels=2)) > max(map(simplicity, (plain, second, third)))


def test_drift_of_the_clock_does_not_decide() -> None:
    """All leaders are timed in each round: a machine that slows down hits them alike, and the ratios stay."""
    found = trials(2)
    clock = [1.0 + 0.3 * i for i in range(9)]  # the last round takes three times as long
    rounds = {0: dict(enumerate(clock)), 1: {i: 1.1 * t for i, t in enumerate(clock)}}
    assert undecided(found, found[0], rounds, 7, TIE) == [found[0]]
    rounds[1] = {i: t * (1.1 if i % 2 else 0.9) for i, t in enumerate(clock)}
    assert len(undecided(found, found[0], rounds, 7, TIE)) == 2
    assert len(undecided(found, found[0], {0: rounds[0], 1: dict(list(rounds[1].items())[:3])}, 7, TIE)) == 2


# Candidates.


def offered(text: str, device: str, mode: HeurMode = HeurMode.B, **options: Any) -> Candidates:
    fused = fuse(graph_of(text))
    return candidates_of(
        fused, device_spec(device), mode, options.pop("filters", Filters()), None,
        any_class=options.pop("any_class", False), without=options.pop("without", ()),
    )  # fmt: skip


def all_of(candidates: Candidates) -> list[EngineConfig]:
    """As if the first one stayed the fastest."""
    return [candidates.first, *iter(lambda: candidates.next([candidates.first]), None)]


def test_candidates_are_different_and_of_one_class() -> None:
    candidates = offered(HOPPER, "h200")
    found = all_of(candidates)
    assert len({identity(c) for c in found}) == len(found) > 20
    assert all(numeric_class(c).can_replace(candidates.own_class) for c in found)
    more = all_of(offered(HOPPER, "h200", any_class=True))
    assert len(more) >= len(found)
    engines = [c.choices[0].engine.name for c in found]
    first_knob = next(i for i, c in enumerate(found) if i and c.choices[0].engine is found[0].choices[0].engine)
    assert len(set(engines[:first_knob])) == first_knob  # other engines come before other knobs


def test_a_knob_of_many_values_is_not_searched_through() -> None:
    assert Knob(KnobType.TILE_SIZE, 0, 8, 2, 0, "").sample == [0, 2, 4, 6, 8]
    found = Knob(KnobType.TILE_ROWS, 0, 1024, 1, 0, "").sample
    assert found[:10] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 12]
    assert found[-1] == 1024
    assert len(found) < 30


def test_modes_and_words() -> None:
    assert len(all_of(offered(CONV, "cpu", HeurMode.A))) == 2
    assert len(all_of(offered(CONV, "cpu", HeurMode.INSTANT))) == 2
    assert [c.name for c in all_of(offered(CONV, "cpu", HeurMode.FALLBACK))] == ["numpy"]
    assert [c.name for c in all_of(offered(CONV, "cpu", without=["blocked"]))] == ["numpy"]
    with pytest.raises(NotSupported) as caught:
        offered(CONV, "cpu", without=["numpy"])
    assert caught.value.rejections[0].rule == "tuning.deselected"


def test_several_kernels_are_changed_one_by_one() -> None:
    g = Graph(io_data_type="float32", intermediate_data_type="float32")
    x, v, w = g.tensor([1, 4, 8, 8]), g.tensor([4, 4, 3, 3]), g.tensor([4, 4, 3, 3])
    g.conv_fprop(g.relu(g.conv_fprop(x, v, padding=[1, 1])), w, padding=[1, 1]).set_output(True)
    fused = fuse(g.build_operation_graph())
    assert len(fused) == 2
    one, candidates = (
        candidates_of(fused, CPU, HeurMode.B, Filters(), None, any_class=False, without=()) for _ in range(2)
    )
    assert {_changes(c, one.first) for c in all_of(one)[1:]} == {1}
    found = [candidates.first]
    while (following := candidates.next(found)) is not None:
        found.append(following)
    assert len(found) == 9 * 9  # all of them, when each one is measured to be fast


def _changes(one: EngineConfig, other: EngineConfig) -> int:
    return sum(a != b for a, b in zip(identity(one), identity(other), strict=True))


# The bar.


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, shows in ((_Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", stream)
        with Progress() as bar:
            bar.show(0.5, "half of it")
            bar.show(0.6, "too soon to be drawn")
        text = stream.getvalue()
        assert ("half of it" in text) is shows
        assert "too soon" not in text
        if shows:
            assert "[############............] half of it" in text
            assert text.endswith("\r")
            assert "\n" not in text
    monkeypatch.setattr(sys, "stderr", None)
    with Progress() as bar:
        bar.show(0.5, "nobody looks")


# What results are compared with.


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("conv x=f32[7,4,8,8] w=f32[7,4,3,3] pad=1 + bias + relu", "images"),
        ("conv x=i8[7,8,8,8]nhwc w=i8[7,8,3,3] pad=1 + residual", "images"),
        ("dgrad dy=f16[7,4,8,8] w=f16[4,4,3,3] dx=[7,4,8,8] pad=1", "images"),
        ("pool max x=f32[7,4,8,8] window=2 stride=2", "images"),
        ("matmul a=f32[7,4,8] b=f32[1,8,5] + bias", "images"),
        ("pointwise x=f32[7,4,8] + mul + tanh", "images"),
        ("norm layer x=f32[7,4,8]", "images"),
        ("conv x=f32[1,4,8,8] w=f32[7,4,3,3] + bias + relu", "channels"),
        ("dgrad dy=f16[1,4,8,8]nhwc w=f16[4,7,3,3]nhwc dx=[1,7,8,8] pad=1", "channels"),
        ("wgrad x=f32[5,7,8,8] dy=f32[5,4,8,8]nhwc dw=[4,7,3,3] pad=1 + relu", "channels"),
        ("reduce add x=f32[5,7,6,6]nhwc y=[1,7,1,1]", "channels"),
        ("norm batch x=f32[5,7,6,6]nhwc", "channels"),
        ("matmul a=f32[1,7,8] b=f32[1,8,5] + bias", "rows"),
        ("conv x=f32[1,8,8,8] w=f32[8,4,3,3]", None),
        ("wgrad x=f32[7,8,8,8] dy=f32[7,8,8,8] dw=[8,4,3,3] pad=1", None),
        ("reduce add x=f32[7,8,6,6] y=[1,1,1,1]", None),
    ],
)
def test_some_slices_are_what_the_whole_graph_computes_there(text: str, name: str | None) -> None:
    slices = slices_of(graph_of(text))
    assert (None if slices is None else (slices.name, slices.count)) == (None if name is None else (name, 7))
    if slices is not None:
        check_slices(graph_of(text), slices, (0, 4, 6))


@pytest.mark.parametrize("seed", [0, 1, pytest.param(range(2, 40), marks=pytest.mark.long)])
def test_drawn_graphs_in_slices(seed: int | range) -> None:
    found = 0
    for case in (Case(family, i, False) for family in FAMILIES for i in ([seed] if isinstance(seed, int) else seed)):
        graph = Prepared.of(draw(case)).fused.graph
        slices = slices_of(graph)
        if slices is not None:
            check_slices(graph, slices, sorted({0, slices.count // 2})[-2:])
            found += 1
    assert found > len(FAMILIES) / 3


def check_slices(graph: OperationGraph, slices: Slices, kept: Sequence[int]) -> None:
    """The oracle's values in them are those of the whole graph, and so are the bytes that a worker would send."""
    thin, operands = thinned(graph, slices, kept), random_operands(graph)
    operands |= blended(graph, operands)
    whole, part = evaluate(graph, operands), evaluate(thin.graph, thin.bindings(operands))
    for uid, value in part.items():
        wanted = np.take(whole[uid], kept, slices.axes[uid]) if uid in slices.axes else whole[uid]
        assert np.allclose(np.asarray(wanted, np.float64), np.asarray(value, np.float64), 1e-9, 1e-9, equal_nan=True)
    results: dict[int, Any] = {spec.uid: empty(spec) for spec in graph.outputs}
    for spec in graph.outputs:
        results[spec.uid][...] = 0
        store(cast(whole[spec.uid], spec.data_type), results[spec.uid], spec)
    bench: Any = SimpleNamespace(arrays=results, _fetched={}, _picked=None)
    plan: Any = SimpleNamespace(to_host=dict)
    cut = [bytes(Bench._result(bench, plan, t, slices.axes.get(t.uid), list(kept))) for t in graph.outputs]
    answers = Answers(thin.graph, thin.bindings(operands), part)
    assert answers.judged((), [len(each) for each in cut], b"".join(cut)) == ""


@pytest.mark.parametrize(("allowed", "images"), [(0.0, 2), (60.0, 9)])
def test_a_wrong_image_is_found_where_it_was_compared(
    allowed: float, images: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two images at first, others from part to part; all that are there by then for the one that is to win."""
    monkeypatch.setattr("graphdnn.tuning.reference._FIRST", 0.0)
    monkeypatch.setattr("graphdnn.tuning.reference._LARGEST", 1)  # one image for each part
    graph = graph_of("conv x=f32[9,4,8,8]nhwc w=f32[4,4,3,3] pad=1 + relu")
    right = evaluate(graph, random_operands(graph))[graph.outputs[0].uid].astype(np.float32)
    reference = Reference(graph, 0, is_beside=True, allowed=allowed)
    reference.start()
    reference.settle(60.0)
    found = []
    for image in (None, 0, 8, 3):
        result = right.copy()
        if image is not None:
            result[image, 0, 0, 0] += 1

        def part(thin: Thinned | None, result: Any = result) -> tuple[list[int], bytes]:
            assert thin is not None
            some = np.ascontiguousarray(result[list(thin.kept)].transpose(0, 2, 3, 1))
            return [some.nbytes], some.tobytes()

        found.append([v.result() for v in reference.judgements(str(image), {}, part, inf)])
        assert reference.judgement(str(image), {}, part).result() == found[-1][0]
    reference.close()
    assert reference.checked == ("in full" if images == 9 else "on 2 of 9 images")
    assert [[i for i, verdict in enumerate(each) if verdict] != [] for each in found] == [
        False,
        True,
        True,
        images == 9,
    ]
    assert [len(each) for each in found] == [images - 1] * 4


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 3, 1), (2, 0, 3, 1)])
def test_images_of_a_result_are_as_the_whole_lies(order: tuple[int, ...]) -> None:
    values = np.arange(5 * 3 * 4 * 2, dtype=np.int16).reshape(5, 3, 4, 2)
    lying = np.ascontiguousarray(values.transpose(order)).transpose(np.argsort(order))
    spec = SimpleNamespace(uid=1)
    plan: Any = SimpleNamespace(to_host=dict)
    wanted = np.ascontiguousarray(values[[4, 0, 2]].transpose(order)).tobytes()
    bench: Any = SimpleNamespace(arrays={1: lying}, _fetched={}, _picked=None)
    assert bytes(Bench._result(bench, plan, spec, 0, [4, 0, 2])) == wanted  # type: ignore[arg-type]


def test_large_operands_repeat_their_numbers() -> None:
    graph = graph_of("pointwise x=f16[2,4,8,8]nhwc + mul")
    whole, part = (random_operands(graph, distinct=n) for n in (512, 7))
    assert all(np.array_equal(whole[t.uid], random_operands(graph)[t.uid]) for t in graph.inputs)
    for spec in graph.inputs:
        flat = as_it_lies(part[spec.uid]).reshape(-1)  # in the order of memory
        assert len(set(flat.tolist())) == 7
        assert np.array_equal(flat[7:], flat[:-7])


@pytest.mark.parametrize(
    "options",
    [
        {"budget": "1"}, {"budget": -1.0}, {"budget": float("nan")}, {"budget": True}, {"most": 0}, {"memory": -1},
        {"candidate_seconds": None, "most": 1.5}, {"tie": "x"}, {"tie": -1}, {"seed": -1}, {"seed": 0.5},
        {"memory": "1GB", "seed": None, "database": 3},
    ],
)  # fmt: skip
def test_options_that_are_none(options: dict[str, Any]) -> None:
    with pytest.raises(BadParam) as error:
        autotune(graph_of(CONV), **options)
    assert [r.attribute for r in error.value.rejections] == list(options)
    limits = {"budget", "candidate_seconds", "most", "memory"}
    for rejection in error.value.rejections:
        assert rejection.rule == ("tuning.limit" if rejection.attribute in limits else "tuning.option")


def test_a_database_that_is_none() -> None:
    for ask in (lambda g: g.build(tuned=3), lambda g: g.autotune(database=3.5)):
        with pytest.raises(BadParam, match=r"tuning\.database\.kind"):
            ask(parse(CONV))


def test_an_oracle_that_fails_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise MemoryError("no memory for the oracle")

    monkeypatch.setattr("graphdnn.tuning.reference.random_operands", fails)
    reference = Reference(graph_of(CONV), 0, is_beside=True, allowed=1.0)
    reference.start()
    with pytest.raises(MemoryError, match="for the oracle"):
        reference.judgement("", {}, lambda thin: ([], b"")).result(60.0)
    reference.close()


def test_what_overlaps_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels first, then building, of which what was before the start or lies in kernels does not count."""
    now = [10.0]
    monkeypatch.setattr("graphdnn.tuning.spending.perf_counter", lambda: now[0])
    spending = Spending(10.0)
    spending.compiled([(8.0, 12.0)])
    spending.compiled([(11.0, 11.5), (11.0, 13.0)])
    spending.compiled([])
    now[0] = 14.0
    spending.ran(1.5)  # 12.5 to 14
    now[0] = 16.0
    spending.built(1.0)
    now[0] = 20.0
    spent = spending.total()
    assert (spent.wall, spent.kernels, spent.building) == (10.0, 1.5, 3.5)
    assert spent.overhead == pytest.approx(0.5)

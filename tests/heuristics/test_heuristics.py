"""Ranking: modes differ as they say, it is lazy, and what is left out has its reasons."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from legal_problems import IMAGE, operation, pointwise, tensor

from graphdnn import Filters, HeurMode, OperationGraph, device_spec, fuse, rank
from graphdnn.device.profiles import PROFILES, DeviceSpec, device_from_json
from graphdnn.engines import ENGINES, Cost, Engine, Knob, Task
from graphdnn.engines.numpy_general import ENGINE as NUMPY
from graphdnn.engines.operation_cost import bytes_moved, floor_seconds, flops
from graphdnn.enums import KnobType, NumericalNote, PointwiseMode
from graphdnn.errors import NotSupported
from graphdnn.heuristics import COMPOSED_ID, Ranking
from graphdnn.operations import OPERATIONS
from graphdnn.problem import parse

CONV = OperationGraph.of([operation("conv_fprop")])


def two_kernels() -> OperationGraph:
    total = tensor(11, (1, 4, 1, 1), is_virtual=True)
    x = tensor(10, IMAGE)
    return OperationGraph.of(
        [operation("reduction", x=x, y=total), operation("pointwise", x=x, b=total, y=tensor(12, IMAGE))]
    )


class Counting:
    """Engines that count how often they are asked for a cost or a kernel."""

    def __init__(self, seconds: tuple[float, ...], knobs: tuple[Knob, ...] = ()) -> None:
        self.costs = self.compiled = 0
        self.engines = tuple(self._engine(i, s, knobs) for i, s in enumerate(seconds))

    def _engine(self, i: int, seconds: float, knobs: tuple[Knob, ...]) -> Engine:
        def cost(task: Task, chosen: Any) -> Cost:
            self.costs += 1
            return Cost(1, 1, seconds * (1 + abs(chosen.get(KnobType.STAGES, 4) - 4)))

        def compile(task: Task, chosen: Any) -> Any:
            self.compiled += 1
            return NUMPY.compile(task, chosen)

        return replace(NUMPY, id=700 + i, name=f"engine{i}", cost=cost, compile=compile, knobs=knobs, is_general=i == 1)

    def rank(self, mode: HeurMode, graph: OperationGraph = CONV, filters: Filters | None = None) -> Ranking:
        return Ranking(fuse(graph), device_spec("cpu"), mode, filters, self.engines)


def order(ranking: Ranking) -> list[str]:
    return [config.name for config in ranking]


def test_modes_differ_as_documented() -> None:
    stages = (Knob(KnobType.STAGES, 2, 6, 2, 4, "stages"),)
    engines = Counting((3.0, 2.0, 1.0), stages)
    assert order(engines.rank(HeurMode.INSTANT)) == ["engine0", "engine1", "engine2"]
    assert order(engines.rank(HeurMode.A)) == ["engine2", "engine1", "engine0"]
    assert order(engines.rank(HeurMode.FALLBACK)) == ["engine1"]
    every = order(engines.rank(HeurMode.B))
    assert len(every) == 9
    assert every[0] == "engine2"
    assert "engine2_k14=2" in every


def test_instant_asks_no_cost_model_and_nothing_is_compiled() -> None:
    engines = Counting((3.0, 2.0))
    best = engines.rank(HeurMode.INSTANT).best
    assert best.name == "engine0"
    assert engines.costs == 0
    assert engines.compiled == 0


def test_first_entry_does_not_work_out_the_rest() -> None:
    engines = Counting((1.0, 2.0, 3.0))
    ranking = engines.rank(HeurMode.INSTANT)
    assert ranking[0].name == "engine0"
    assert len(ranking._found) == 1
    assert len(ranking) == 3
    with pytest.raises(IndexError):
        ranking[3]


def test_ties_stay_in_table_order() -> None:
    assert order(Counting((1.0, 1.0, 1.0)).rank(HeurMode.A)) == ["engine0", "engine1", "engine2"]


def test_composed_configurations_come_best_total_first() -> None:
    ranking = Counting((1.0, 2.0, 4.0)).rank(HeurMode.A, two_kernels())
    totals = [config.predicted_seconds for config in ranking]
    assert len(totals) == 9
    assert totals == sorted(totals)
    assert ranking.best.engine_id == COMPOSED_ID
    assert len({config.name for config in ranking}) == 9


def test_same_graph_and_device_same_ranking() -> None:
    device = device_spec("h200")
    assert str(Ranking(fuse(CONV), device)) == str(Ranking(fuse(CONV), device))


def test_rankings_are_kept_by_what_is_asked() -> None:
    again = OperationGraph.of([operation("conv_fprop")])
    kept = rank(CONV, "h200")
    assert rank(again, "h200") is kept
    renamed = OperationGraph.of([operation("conv_fprop", x=tensor(1, IMAGE, name="image"))])
    for other in (rank(CONV, "a100"), rank(CONV, "h200", HeurMode.INSTANT), rank(renamed, "h200")):
        assert other is not kept
    assert rank(CONV, "h200", filters=Filters(workspace_limit=0)) is not kept


def test_threads_share_a_ranking() -> None:
    ranking = Counting(tuple(map(float, range(1, 40)))).rank(HeurMode.A)
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: order(ranking), range(64)))
    assert found == [[f"engine{i}" for i in range(39)]] * 64


@pytest.mark.parametrize("name", sorted(OPERATIONS))
@pytest.mark.parametrize("device", ["cpu", "h200"])
def test_the_verdict_agrees_with_the_reasons(name: str, device: str) -> None:
    for op in fuse(OperationGraph.of([operation(name)])):
        task = Task(op, device_spec(device))
        for engine in ENGINES:
            assert engine.serves(task) is not bool(engine.why_not(task)), engine.name


def test_a_changed_copy_works_its_values_out_again() -> None:
    (conv,) = CONV.operations
    assert conv.x.span == conv.x.elements
    assert conv.problem.n == conv.x.extents[0]
    wider = conv.x.model_copy(update={"dims": (9, *conv.x.dims[1:])})
    assert wider.span == wider.elements
    changed = conv.model_copy(update={"x": wider})
    assert changed.problem.n == 9
    assert changed.inputs()["x"] is wider


def test_declined_engines_have_all_their_reasons() -> None:
    graph = OperationGraph.of([operation("matmul")])
    (declined,) = rank(graph).declined
    assert declined.engine.name == "numpy_blocked"
    assert [r.rule for r in declined.rejections] == ["numpy_blocked.operation"]
    assert "numpy_blocked.operation" in rank(graph).text(every_reason=True)
    assert "1 engine for other kinds of operation" in str(rank(graph))


def test_no_configuration_raises_every_reason() -> None:
    filters = Filters(without_numerical_notes=frozenset({NumericalNote.STRICT_NAN_PROP}))
    with pytest.raises(Exception, match="STRICT_NAN_PROP") as caught:
        rank(CONV, filters=filters).best
    here = {f"engine {e}" for e in ENGINES if "cpu" in e.places}
    assert {r.where.split(",")[0] for r in caught.value.rejections} == here


def test_workspace_limit_is_honoured() -> None:
    graph = two_kernels()
    needed = rank(graph).best.workspace_size
    assert needed > 0
    assert rank(graph, filters=Filters(workspace_limit=needed)).best.workspace_size <= needed
    with pytest.raises(Exception, match=r"filter\.workspace"):
        rank(graph, filters=Filters(workspace_limit=needed - 1)).best


@pytest.mark.parametrize("name", [*PROFILES, "cpu"])
def test_every_profile_ranks_and_round_trips(name: str) -> None:
    spec = device_spec(name)
    assert rank(CONV, spec).best.predicted_seconds > 0
    assert device_from_json(json.loads(json.dumps(spec.to_json()))) == spec
    assert isinstance(spec, DeviceSpec)


def test_floor_grows_with_work_and_shrinks_with_the_machine() -> None:
    small, large = (_conv(n) for n in (1, 64))
    h200, l40s = device_spec("h200"), device_spec("l40s")
    assert floor_seconds(large, h200) > floor_seconds(small, h200)
    assert floor_seconds(large, l40s) > floor_seconds(large, h200)
    assert flops(large.main) == 2 * 64 * 128 * 128 * 9 * 28 * 28
    assert bytes_moved(large) == 2 * (2 * 64 * 128 * 28 * 28 + 128 * 128 * 9)


def _conv(n: int) -> Any:
    image = (n, 128, 28, 28)
    settings = operation("conv_fprop").conv.model_copy(update={"pre_paddings": (1, 1), "post_paddings": (1, 1)})
    op = operation(
        "conv_fprop",
        x=tensor(1, image, "f16"),
        w=tensor(2, (128, 128, 3, 3), "f16"),
        y=tensor(3, image, "f16"),
        conv=settings,
    )
    return fuse(OperationGraph.of([op])).operations[0]


def test_predicted_time_prints_its_parts() -> None:
    text = str(rank(CONV).best.choices[0].cost)
    assert "us (" in text
    assert "memory" in text


def test_ranking_serialises() -> None:
    data = json.loads(json.dumps(rank(two_kernels(), "a100", HeurMode.B).to_json()))
    assert data["device"] == "a100"
    assert data["configs"][0]["engine_id"] == COMPOSED_ID
    assert data["declined"]


def test_pointwise_math_stays_pointwise() -> None:
    """A rank of pointwise graphs has a cost too."""
    graph = OperationGraph.of([operation("pointwise", spec=pointwise(PointwiseMode.MUL))])
    assert rank(graph).best.predicted_seconds > 0


@pytest.mark.parametrize("stable", [False, True])
def test_reduction_that_must_be_deterministic(stable: bool) -> None:
    """The attribute bars engines whose sums depend on the order of arrival, like the filter does."""
    racy = replace(NUMPY, id=800, name="racy", numerical_notes=(NumericalNote.NONDETERMINISTIC,))
    base = operation("reduction")
    op = operation("reduction", spec=base.spec.model_copy(update={"is_deterministic": stable}))
    ranking = Ranking(fuse(OperationGraph.of([op])), device_spec("cpu"), HeurMode.A, None, (racy, NUMPY))
    assert order(ranking) == (["numpy"] if stable else ["racy", "numpy"])


def test_digits_are_lost_only_where_that_is_allowed() -> None:
    graph = parse("conv x=f32[8,64,56,56]nhwc w=f32[64,64,3,3]nhwc pad=1").build_operation_graph()
    allowed = Filters(allowed_numerical_notes=frozenset({NumericalNote.DOWN_CONVERT_INPUTS}))
    for mode in (HeurMode.INSTANT, HeurMode.A):
        plain = [config.name for config in rank(graph, "h200", mode)]
        asked = [config.name for config in rank(graph, "h200", mode, allowed)]
        assert "cuda_hopper_gemm_tf32" not in plain
        rounding = {e.name for e in ENGINES if NumericalNote.DOWN_CONVERT_INPUTS in e.numerical_notes}
        assert set(asked) - set(plain) == set(asked) & rounding
        assert mode is HeurMode.INSTANT or asked[0] == "cuda_hopper_gemm_tf32"  # by its predicted time


@pytest.mark.parametrize(("saved", "first"), [(0.1, "plain"), (0.3, "rough")])
def test_larger_errors_have_to_be_worth_it(saved: float, first: str) -> None:
    """An engine with a handicap of 1.25 goes first where it saves more than a fifth of the time; its line says so."""
    cost = {"plain": 1.0, "rough": 1.0 - saved}
    plain, rough = (
        replace(NUMPY, id=800 + i, name=name, cost=lambda task, knobs, s=s: Cost(0, 0, s), handicap=handicap)
        for i, ((name, s), handicap) in enumerate(zip(cost.items(), (1.0, 1.25), strict=True))
    )
    ranking = Ranking(fuse(CONV), device_spec("cpu"), HeurMode.A, None, (plain, rough))
    assert ranking.best.name == first
    assert {config.name: "larger errors" in str(config) for config in ranking} == {"plain": False, "rough": True}


def test_strict_convolution_is_not_winograd_for_a_tenth() -> None:
    """F(4x4,3x3) is predicted a tenth faster on this layer, and its errors are six times as large."""
    graph = parse("conv x=f32[32,256,56,56]nhwc w=f32[256,256,3,3]nhwc pad=1").build_operation_graph()
    names = [config.name for config in rank(graph, "h200")]
    assert names.index("cuda_hopper_bf16x3") < names.index("cuda_winograd_4x4")


def test_mode_b_of_an_engine_of_many_knobs_is_short() -> None:
    """Billions of combinations are not looked through: one knob is changed at a time."""
    graph = parse("conv x=f16[8,64,56,56]nhwc w=f16[64,1,3,3] pad=1").build_operation_graph()
    ranking = rank(graph, "h200", HeurMode.B)
    direct = [c.choices[0] for c in ranking if c.choices[0].engine.name == "cuda_direct"]
    defaults = direct[0].engine.defaults()
    changed = [sum(c.knobs[kind] != value for kind, value in defaults.items()) for c in direct]
    assert set(changed) == {0, 1}
    assert 20 < len(direct) < 300


def test_no_two_engines_share_an_id_or_a_name() -> None:
    for key in ("id", "name"):
        values = [getattr(engine, key) for engine in ENGINES]
        assert sorted(set(values)) == sorted(values), key


def test_the_reasons_of_a_refusal_are_of_engines_for_the_operation() -> None:
    """A user reads the first ones, so engines that serve almost everything come first."""
    graph = parse("conv x=i8[2147483656,4,8,8]nhwc w=i8[4,4,3,3]nhwc").build_operation_graph()
    ranking = Ranking(fuse(graph), device_spec("h200"))
    with pytest.raises(NotSupported) as raised:
        _ = ranking.best
    rules = [rejection.rule for rejection in raised.value.rejections]
    assert rules[0] == "cuda.extent"
    assert "cuda_implicit_gemm" in raised.value.rejections[0].where
    assert "cuda_matmul_simt.operation" not in rules
    assert "cuda_matmul_simt.operation" in {entry.rule for entry in raised.value.ledger}

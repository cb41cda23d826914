"""A check is worth what it rejects: engines that compute something wrong are rejected by every face that verifies.

Each engine of the host that serves a graph is broken in each way of ``MUTATIONS``, for each tensor, and compare, run,
trace, tune and replay are asked. Kernels of a GPU do not run here. The faces see a plan's results and what its engines
state of their errors, nothing else of an engine: for those of a GPU results are mutated under each factor they state.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tuning_faulty_engines
from broken_engines import MUTATIONS, Mutation, broken, config_with, factor_of, mutated
from extension_cases import LEGAL_EXTENSIONS, extension
from legal_problems import LEGAL, operation
from lenet_step import lenet_step
from random_problems.families import FAMILIES, Case, draw

from graphdnn import Graph, __version__, fuse
from graphdnn.analysis.oracle import compare, evaluate
from graphdnn.analysis.random_operands import blended, random_operands
from graphdnn.bundles import attempt, bundle_of, replay
from graphdnn.bundles.bundle import MISMATCH
from graphdnn.cli import main
from graphdnn.cli.commands.run import measure
from graphdnn.cli.exit_codes import Exit
from graphdnn.device.profiles import this_cpu
from graphdnn.dtypes import Array
from graphdnn.engines import ENGINES, HOST_ENGINES, Task
from graphdnn.engines.host.memory import as_it_lies, load
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.heuristics import Choice, EngineConfig
from graphdnn.plan import ExecutionPlan
from graphdnn.problem import parse
from graphdnn.tensors import TensorSpec
from graphdnn.tuning import Verdict, autotune
from graphdnn.tuning.verification.reference import Reference

SEED = 0


def nan_ignoring_relu(data_type: str = "f32", inner: str = "f32") -> OperationGraph:
    """A convolution, and the ReLU of legacy calls with CUDNN_NOT_PROPAGATE_NAN behind it."""
    g = Graph(io_data_type=data_type, intermediate_data_type=inner, compute_data_type="f32")
    sums = g.conv_fprop(g.tensor([2, 4, 9, 9], name="x"), g.tensor([6, 4, 3, 3], name="w"), padding=[1, 1])
    is_number = g.cmp_eq(sums, sums).set_data_type("bool")
    g.relu(g.binary_select(sums, g.tensor_scalar(0.0), is_number)).set_output()
    return g.build_operation_graph()


def argmax_of_sums() -> OperationGraph:
    """A product, its rows' maxima, and where they are: the maximum equals one of the elements that it is of."""
    from graphdnn import ReductionOperator

    g = Graph(io_data_type="f32")
    sums = g.matmul(g.tensor([1, 16, 24], name="a"), g.tensor([1, 24, 20], name="b"))
    most = g.reduction(sums, ReductionOperator.MAX).set_dim([1, 16, 1])
    hit = g.cmp_eq(sums, most).set_data_type("bool")
    place = g.gen_index(sums, 2).set_data_type("i32")
    found = g.binary_select(place, g.tensor_scalar(20, "i32"), hit, compute_data_type="i32").set_data_type("i32")
    where = g.reduction(found, ReductionOperator.MIN, compute_data_type="i32").set_dim([1, 16, 1])
    where.set_output().set_data_type("i32")
    return g.build_operation_graph()


def relu_backward_of_gradients() -> OperationGraph:
    """A strided gradient, most of it exactly 0, compared with 0."""
    g = Graph(io_data_type="f32")
    dx = g.conv_dgrad(g.tensor([2, 6, 5, 5], name="dy"), g.tensor([6, 4, 1, 1], name="w"), stride=[2, 2])
    dx.set_dim([2, 4, 9, 9])
    passes = g.cmp_ge(dx, g.tensor_scalar(0.0)).set_data_type("bool")
    g.binary_select(g.tensor([2, 4, 9, 9], name="up"), g.neg(dx), passes).set_output()
    return g.build_operation_graph()


def relu_step() -> OperationGraph:
    """A ReLU's gradient by comparison, and the filter's gradient behind it."""
    g = Graph(io_data_type="f32")
    x, w = g.tensor([2, 4, 9, 9], name="x"), g.tensor([6, 4, 3, 3], name="w")
    sums = g.conv_fprop(x, w, padding=[1, 1])
    passes = g.cmp_gt(g.relu(sums), g.tensor_scalar(0.0)).set_data_type("bool")
    dy = g.binary_select(g.tensor([2, 6, 9, 9], name="dy"), g.tensor_scalar(0.0), passes)
    g.conv_wgrad(x, dy, padding=[1, 1]).set_dim([6, 4, 3, 3]).set_output()
    return g.build_operation_graph()


def _text(text: str) -> Callable[[], OperationGraph]:
    return lambda: parse(text).build_operation_graph()


NAMED: dict[str, Callable[[], OperationGraph]] = {
    "NaN-ignoring relu": nan_ignoring_relu,
    "NaN-ignoring relu f16": lambda: nan_ignoring_relu("f16"),
    "NaN-ignoring relu e4m3": lambda: nan_ignoring_relu("e4m3"),
    "argmax of sums": argmax_of_sums,
    "relu backward of gradients": relu_backward_of_gradients,
    "relu step": relu_step,
    "conv": _text("conv x=f32[2,4,9,9] w=f32[6,4,3,3] pad=1 + bias + relu"),
    "dgrad": _text("dgrad dy=f32[2,6,9,9] w=f32[6,4,3,3] dx=[2,4,9,9] pad=1"),
    "wgrad": _text("wgrad dy=f32[2,6,9,9] x=f32[2,4,9,9] dw=[6,4,3,3] pad=1"),
    "int8": _text("conv x=i8[2,8,6,6] w=i8[4,8,3,3] compute=i32 out=i32"),
    "matmul": _text("matmul a=f16[2,16,24] b=f16[2,24,16] + bias + gelu"),
    "reduction": _text("reduce add x=f32[8,50] y=[8,1]"),
    "pooling": _text("pool max x=f32[1,4,9,9] window=3 stride=2 pad=1"),
    "norm": _text("norm layer x=f32[8,32] + sigmoid"),
}


def legal_graph(tag: str) -> OperationGraph:
    return OperationGraph.of([operation(tag) if tag in LEGAL else extension(tag)])


@dataclass
class Subject:
    """A graph on data of a seed, with one engine."""

    graph: OperationGraph
    config: EngineConfig
    seed: int = SEED

    def __post_init__(self) -> None:
        self.reference = Reference(self.graph, self.seed, False, 1e9)
        self.reference.start()
        self.bundle = bundle_of(attempt(self.config, self.seed), __version__)
        self.right = self.results(self.config)

    def results(self, config: EngineConfig) -> dict[int, Any]:
        bindings = random_operands(self.graph, self.seed)
        self.before = blended(self.graph, bindings)
        plan = ExecutionPlan(config)
        plan.execute(bindings, plan.new_workspace())
        return bindings


def _compare(subject: Subject, config: EngineConfig, patch: pytest.MonkeyPatch) -> bool:
    return all(c.ok for c in compare(subject.graph, subject.results(config), subject.before, config.error_growth))


def _run(subject: Subject, config: EngineConfig, patch: pytest.MonkeyPatch) -> bool:
    return measure(ExecutionPlan(config), subject.seed, 1, verify=True).passed


def _trace(subject: Subject, config: EngineConfig, patch: pytest.MonkeyPatch) -> bool:
    data = random_operands(subject.graph, subject.seed)
    blended(subject.graph, data)
    return bool(ExecutionPlan(config).trace(data).ok)


def _tune(subject: Subject, config: EngineConfig, patch: pytest.MonkeyPatch) -> bool:
    """The verdict on what a worker sends; ``test_a_tuning_rejects_it`` has the worker as well."""
    found = subject.results(config)
    parts = [np.ascontiguousarray(as_it_lies(found[t.uid])).tobytes() for t in subject.graph.outputs]
    digest = str(hash(tuple(parts)))
    sent = [len(part) for part in parts], b"".join(parts)
    return not subject.reference.judgement(digest, config.error_growth, lambda thin: sent).result()


def _replay(subject: Subject, config: EngineConfig, patch: pytest.MonkeyPatch) -> bool:
    patch.setattr("graphdnn.files.plan_files.ENGINE_BY_NAME", {c.engine.name: c.engine for c in config.choices})
    replayed = replay(subject.bundle)
    patch.undo()
    assert replayed.is_same_plan
    return replayed.made.ending.verdict != MISMATCH


FACES: Mapping[str, Callable[[Subject, EngineConfig, pytest.MonkeyPatch], bool]] = {
    "compare": _compare, "run": _run, "trace": _trace, "tune": _tune, "replay": _replay,
}  # fmt: skip


def subjects(graph: OperationGraph, seed: int = SEED) -> Iterator[Subject]:
    """One for each engine of the host that serves a kernel of the graph; others stay with the general one."""
    fused = fuse(graph)
    for engine in HOST_ENGINES:
        served = [engine if not engine.why_not(Task(op, this_cpu())) else HOST_ENGINES[-1] for op in fused]
        if engine in served:
            choices = (Choice(Task(op, this_cpu()), e, e.defaults()) for op, e in zip(fused, served, strict=True))
            yield Subject(graph, EngineConfig(fused, this_cpu(), tuple(choices)), seed)


def reject_all(name: str, subject: Subject, patch: pytest.MonkeyPatch) -> Counter[str]:
    """Break the engine in every way, ask every face, and count. A mutation that changes no result is not counted."""
    for face, passes in FACES.items():
        assert passes(subject, subject.config, patch), f"{face} rejects {name} as it is"
    counts: Counter[str] = Counter()
    factor = factor_of(subject.graph)
    for mutation, tensor in mutated(subject.graph):
        config = config_with(subject.config, lambda e, m=mutation, t=tensor: broken(e, m, t, factor))  # type: ignore[misc]
        if _is_same(subject, subject.results(config)):
            counts["without effect"] += 1
            continue
        for face, passes in FACES.items():
            assert not passes(subject, config, patch), f"{face} passes {name}: {mutation.name}, {tensor.label()}"
        counts[mutation.name] += 1
    return counts


def _is_same(subject: Subject, found: Mapping[int, Any]) -> bool:
    return all(_equal(t, subject.right[t.uid], found[t.uid]) for t in subject.graph.outputs)


def _equal(tensor: TensorSpec, a: Array, b: Array) -> bool:
    x, y = (np.asarray(load(v, tensor)).astype(np.float64) for v in (a, b))
    return np.array_equal(x, y, equal_nan=True)


def _report(name: str, counts: Counter[str], engines: int) -> None:
    said = ", ".join(f"{counts[m.name]} {m.name}" for m in MUTATIONS)
    print(f"{name}: {engines} engines, {said}; each rejected by {', '.join(FACES)}; "
          f"{counts['without effect']} changed nothing")  # fmt: skip


def everything(name: str, graph: OperationGraph, patch: pytest.MonkeyPatch, seed: int = SEED) -> Counter[str]:
    total: Counter[str] = Counter()
    engines = 0
    for subject in subjects(graph, seed):
        total += reject_all(name, subject, patch)
        engines += 1
    _report(name, total, engines)
    return total


@pytest.mark.parametrize("name", NAMED)
def test_a_broken_engine_is_rejected(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = everything(name, NAMED[name](), monkeypatch)
    assert counts["zeros"]
    assert counts["1 % off"]


@pytest.mark.parametrize("tag", [*LEGAL, *LEGAL_EXTENSIONS])
def test_every_operation(tag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = everything(tag, legal_graph(tag), monkeypatch)
    assert counts["zeros"]
    assert counts["1 % off"]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 6))])
@pytest.mark.parametrize("family", FAMILIES)
def test_drawn_graphs(family: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros and noise: what drawn graphs round on the way may hide 1 %, and a shift of numbers that are alike."""
    graph = draw(Case(family, seed, large=False)).graph
    total: Counter[str] = Counter()
    for subject in subjects(graph, seed):
        for mutation in (MUTATIONS[0], NOISE):
            for tensor in graph.outputs:
                config = config_with(subject.config, lambda e, m=mutation, t=tensor: broken(e, m, t, 1.0))  # type: ignore[misc]
                if _is_same(subject, subject.results(config)):
                    total["without effect"] += 1
                    continue
                for face, passes in FACES.items():
                    assert not passes(subject, config, monkeypatch), f"{face} passes {mutation.name}: {tensor.label()}"
                total[mutation.name] += 1
    print(f"{family}:{seed}: {dict(total)}, each rejected by {', '.join(FACES)}")
    assert total["zeros"] + total["noise"] + total["without effect"] > 0


def _noise(values: Array, factor: float) -> Array:
    if values.dtype.kind == "b":
        return ~values
    return values + 17 if values.dtype.kind in "iu" else values.astype(np.float64) + 1e6


NOISE = Mutation("noise", _noise)


# The legacy calls' activation, whose usual setting makes a value be compared with itself.


def test_zeros_for_any_result_of_a_step_of_lenet_are_rejected() -> None:
    subject = _lenet()
    found = compare(subject.graph, subject.right, subject.before)
    assert all(c.ok and c.share == 1 for c in found)
    rejected = 0
    for tensor in subject.graph.outputs:
        result = {**subject.right, tensor.uid: np.zeros_like(subject.right[tensor.uid])}
        found = compare(subject.graph, result, subject.before)
        rejected += next(not c.ok for c in found if c.tensor.uid == tensor.uid)
    print(f"zeros are rejected for {rejected} of {len(subject.graph.outputs)} results")
    assert rejected == len(subject.graph.outputs) >= 25


@pytest.mark.long
def test_a_broken_step_of_lenet(monkeypatch: pytest.MonkeyPatch) -> None:
    everything("a step of LeNet", lenet_step(), monkeypatch)


def _lenet() -> Subject:
    return next(subjects(lenet_step()))


def test_a_certificate_behind_it_is_that_of_a_plain_relu() -> None:
    g = Graph(io_data_type="f32")
    g.relu(g.conv_fprop(g.tensor([2, 4, 9, 9]), g.tensor([6, 4, 3, 3]), padding=[1, 1])).set_output()
    bounds = []
    for graph in (g.build_operation_graph(), nan_ignoring_relu()):
        subject = next(subjects(graph))
        plan, data = ExecutionPlan(subject.config), random_operands(graph)
        (with_data,) = plan.certificate(data).outputs
        ranges = {t.uid: (-1.0, 1.0) for t in graph.inputs if not t.is_constant}
        (with_ranges,) = plan.certificate(ranges=ranges).outputs
        bounds.append((with_data.worst, with_ranges.worst))
        for mutation in MUTATIONS[:3]:
            config = config_with(subject.config, lambda e, m=mutation, t=graph.outputs[0]: broken(e, m, t, 1.01))  # type: ignore[misc]
            assert not ExecutionPlan(config).certificate(data).holds, mutation.name
    for plain, ignoring in zip(*bounds, strict=True):
        assert plain <= ignoring <= 1.01 * plain


@pytest.mark.parametrize("name", ["writes_zeros", "is_one_percent_off"])
def test_a_tuning_rejects_it(name: str) -> None:
    engines = (tuning_faulty_engines.ENGINES[name], HOST_ENGINES[-1])
    tuned = autotune(
        nan_ignoring_relu(), budget=5.0, any_class=True, initializer="tuning_faulty_engines", engines=engines
    )  # fmt: skip
    verdicts = {trial.name: trial.verdict for trial in tuned}
    assert verdicts[name] is Verdict.WRONG
    assert tuned.best.name == HOST_ENGINES[-1].name
    (label,) = tuned.compared
    assert tuned.compared[label] == (972, 972)
    assert tuned.to_json()["compared"][label]["share"] == 1
    assert f"{label}: all compared" in str(tuned)


# Engines of a GPU: what they state of their errors widens what the faces allow.


def stated() -> list[tuple[float, str]]:
    """Each factor that engines state, with one of them."""
    found: dict[float, str] = {}
    for engine in ENGINES:
        found.setdefault(engine.error_growth, engine.name)
    return sorted(found.items())


@pytest.mark.parametrize(("growth", "name"), stated())
@pytest.mark.parametrize("problem", ["NaN-ignoring relu", "conv", "dgrad", "wgrad", "matmul"])
def test_what_an_engine_states_of_its_errors_lets_no_broken_result_pass(problem: str, growth: float, name: str) -> None:
    """At the level of a plan's results, as no kernel of a GPU runs here: compare and tune with the factor."""
    graph = NAMED[problem]()
    subject = next(subjects(graph))
    sums = next(op for op in graph.operations if op.tag.startswith(("conv", "matmul")))
    factors = {t.uid: growth for t in sums.outputs().values()}
    factor = 1 + max(factor_of(graph) - 1, growth * 2**-17)  # rounding to TF32 hides 1 %, and 6 % are above it
    counts: Counter[str] = Counter()
    for mutation, tensor in mutated(graph):
        config = config_with(subject.config, lambda e, m=mutation, t=tensor: broken(e, m, t, factor))  # type: ignore[misc]
        found = subject.results(config)
        counts[mutation.name] += 1
        assert not all(c.ok for c in compare(graph, found, subject.before, factors)), f"{name}: {mutation.name}"
        parts = [np.ascontiguousarray(as_it_lies(found[t.uid])).tobytes() for t in graph.outputs]
        judged = subject.reference.judgement(
            mutation.name,
            factors,
            lambda thin, p=parts: ([len(part) for part in p], b"".join(p)),  # type: ignore[misc]
        )
        assert judged.result(), f"{name}: {mutation.name}"
    assert all(c.ok for c in compare(graph, subject.right, subject.before, factors))
    assert set(counts) == {m.name for m in MUTATIONS}
    print(f"{problem}, errors {growth:g} times a plain sum's ({name}): {sum(counts.values())} mutations rejected")


# Too few elements.


def few_decided() -> OperationGraph:
    """Copies of a value that two functions round, compared: every element is a tie."""
    g = Graph(io_data_type="f32")
    x = g.tensor([64], name="x")
    y = g.exp(g.log(g.abs(x)))
    g.binary_select(x, g.tensor_scalar(0.0), g.cmp_gt(y, g.abs(x)).set_data_type("bool")).set_output()
    return g.build_operation_graph()


def no_number() -> OperationGraph:
    return parse("pointwise x=f32[64] + abs + neg + sqrt").build_operation_graph()


def cancelled() -> OperationGraph:
    """What is left has no digit that is right."""
    g = Graph(io_data_type="f32")
    big = g.tensor_scalar(1e12)
    g.sub(g.add(g.tensor([64], name="x"), big), big).set_output()
    return g.build_operation_graph()


@pytest.mark.parametrize(
    ("make", "why"), [(few_decided, "too close to call"), (no_number, "NaN"), (cancelled, "as large as its largest")]
)
def test_a_verdict_on_too_few_elements_is_a_failure(
    make: Callable[[], OperationGraph], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = make()
    subject = next(subjects(graph))
    for face, passes in FACES.items():
        assert not passes(subject, subject.config, monkeypatch), face
    (found,) = compare(graph, subject.right)
    assert found.difference <= found.bound, "which alone would be a pass"
    assert found.share < 0.5
    rejection = found.rejection
    assert rejection is not None
    assert why in rejection.reason
    for word in (rejection.attribute, "expected", "why:", "fix:", "oracle.compared", "FAILED"):
        assert word in str(found)
    assert found.to_json()["reason"]
    assert found.to_json()["compared"] < found.to_json()["elements"] == 64


def test_the_commands_say_how_much_was_compared(capsys: pytest.CaptureFixture[str]) -> None:
    text = "conv x=f32[2,4,9,9] w=f32[6,4,3,3] pad=1 + relu"
    for command in ("run", "trace"):
        assert main([command, text]) == Exit.OK
        assert "compared" in capsys.readouterr().out
    assert main(["run", text, "--json"]) == Exit.OK
    (output,) = json.loads(capsys.readouterr().out)["outputs"]
    assert (output["elements"], output["compared"], output["share"], output["reason"]) == (972, 972, 1.0, None)
    assert main(["run", "pointwise x=f32[64] + abs + neg + sqrt"]) == Exit.CHECK_FAILED
    assert "oracle.compared" in capsys.readouterr().out


@pytest.mark.parametrize("data_type", ["f32", "bf16", "f16", "e4m3", "e5m2"])
def test_deep_graphs_stay_in_range(data_type: str) -> None:
    g = Graph(io_data_type=data_type, intermediate_data_type=data_type, compute_data_type="f32")
    x = g.tensor([1, 64, 6, 6], name="x")
    for _ in range(12):
        x = g.conv_fprop(x, g.tensor([64, 64, 3, 3]), padding=[1, 1])
    x.set_output()
    graph = g.build_operation_graph()
    data = random_operands(graph)
    values = evaluate(graph, data)
    for op in graph.operations:
        (y,) = op.outputs().values()
        assert 0.05 < np.std(values[y.uid]) < 5, "of the magnitude of the data"

"""Numeric classes, and what a certificate promises beside what is observed."""

from __future__ import annotations

import json
import math
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cuda_comparison import emulated
from emulator.libraries import host_libraries
from emulator.runtime import EmulatedRuntime
from legal_problems import operation, pooling, tensor
from random_graphs import many_operations
from random_problems.families import FAMILIES, Case, draw

from graphdnn import build, fuse
from graphdnn.analysis.certificate import Certificate, NumericClass, numeric_class
from graphdnn.analysis.certificate.error_interval import ErrorInterval
from graphdnn.analysis.certificate.pointwise_propagation import CARRIED
from graphdnn.analysis.certificate.pointwise_rounding import ROUNDED
from graphdnn.analysis.certificate.value_ranges import range_of
from graphdnn.analysis.random_operands import blended, random_operands
from graphdnn.cli import main
from graphdnn.cli.exit_codes import Exit
from graphdnn.device.profiles import device_spec
from graphdnn.dtypes import ELEMENTS, FLOATS, cast, data_type_of
from graphdnn.engines import ENGINE_BY_NAME
from graphdnn.engines.host.memory import load, store
from graphdnn.enums import NumericalNote, PaddingMode, PointwiseMode, ResampleMode
from graphdnn.errors import BadParam
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.heuristics import Filters, Ranking
from graphdnn.operations import PointwiseOperation, PointwiseSpec
from graphdnn.operations.grid_sample import GridSample
from graphdnn.operations.pointwise_modes import POINTWISE
from graphdnn.plan import DevicePlan, ExecutionPlan
from graphdnn.problem import parse

H200 = device_spec("h200")
CONV = "conv x=f32[2,32,12,12]nhwc w=f32[32,32,3,3]nhwc pad=1 + bias + relu"


def classes(text: str, device: str = "h200") -> dict[str, NumericClass]:
    """By the name of the configuration."""
    notes = Filters(allowed_numerical_notes=frozenset({NumericalNote.DOWN_CONVERT_INPUTS}))
    fused = fuse(parse(text).build_operation_graph())
    return {config.name: numeric_class(config) for config in Ranking(fused, device_spec(device), filters=notes)}


def test_every_mode_says_what_it_carries_and_rounds() -> None:
    assert set(CARRIED) == set(POINTWISE), "CARRIED (certificate/pointwise_propagation.py) needs a row per mode"
    assert set(ROUNDED) == set(POINTWISE), "ROUNDED (certificate/pointwise_rounding.py) needs a row per mode"


@pytest.mark.parametrize("least", [0.5, -4.0])
@pytest.mark.parametrize("mode", POINTWISE, ids=str)
def test_every_mode_says_where_its_results_lie(mode: PointwiseMode, least: float) -> None:
    if mode in (PointwiseMode.TAN, PointwiseMode.GEN_INDEX):
        pytest.skip("TAN has poles, and the range of GEN_INDEX is an extent")
    row = POINTWISE[mode]
    spec = PointwiseSpec(mode=mode, math_type="f32")
    ports = dict(zip(row.operands, (tensor(uid, (2, 3)) for uid in range(1, 4)), strict=False))
    output = {"dx" if row.kind == "backward" else "y": tensor(9, (2, 3))}
    op = PointwiseOperation(spec=spec, **ports, **output)
    rng = np.random.default_rng(int(mode))
    drawn = [rng.uniform(least, 4, 1000) for _ in row.operands]
    parameters = spec.parameters()
    low, high = range_of(op, [ErrorInterval.between(least, 4) for _ in row.operands], parameters)
    if least > 0:  # a quotient or a root of what may be negative has no range
        message = "graphdnn/analysis/certificate/value_ranges.py needs the range of this mode"
        assert np.isfinite(low), message
        assert np.isfinite(high), message
    results = np.asarray(row.numpy(*drawn, **parameters), np.float64)
    results = results[~np.isnan(results)]
    assert low - 1e-12 <= results.min()
    assert results.max() <= high + 1e-12


def test_a_class_is_the_roundings_not_the_engine() -> None:
    found = classes(CONV)
    plain = found["cuda_implicit_gemm"]
    assert [e.operation for e in plain.operations] == ["conv_fprop", "add", "relu_fwd"]
    assert [e.method for e in plain.operations] == ["summed", "rounded", "rounded"]
    host = classes(CONV, "cpu")
    assert set(host.values()) == {plain}, "a plan of the host has the same errors"
    others = {name: c for name, c in found.items() if c != plain}
    assert {"cuda_winograd", "cuda_winograd_4x4", "cuda_mma_gemm_tf32"} <= set(others)
    for name, other in others.items():
        assert plain.can_replace(other), name
        assert not other.can_replace(plain), name
        assert len(plain.differences(other)) == 1
    assert "operands cut to TF32" in str(others["cuda_mma_gemm_tf32"])


def test_integers_are_exact() -> None:
    found = classes("conv x=i8[1,32,8,8]nhwc w=i8[32,32,3,3]nhwc pad=1")
    assert all(c.is_exact for c in found.values())
    assert len(set(found.values())) == 1
    assert not classes(CONV)["cuda_implicit_gemm"].is_exact


def test_types_are_part_of_it() -> None:
    half, single = (classes(f"pointwise x={kind}[4,8,2,2] + relu", "cpu")["numpy"] for kind in ("f16", "f32"))
    assert half != single
    assert not half.can_replace(single)
    assert not half.can_replace(NumericClass(half.operations * 2))


def test_classes_as_json() -> None:
    for found in classes(CONV).values():
        assert NumericClass.from_json(json.loads(json.dumps(found.to_json()))) == found
    entry = found.to_json()[0]
    wrong = [
        {}, [[]], [{**entry, "more": 1}], [{**entry, "growth": True}], [{**entry, "growth": -1.0}],
        [{**entry, "operands": "FLOAT"}], [{**entry, "method": 3}], [{**entry, "is_stable": 1}],
    ]  # fmt: skip
    for data in wrong:
        with pytest.raises(ValueError, match=r"\w"):
            NumericClass.from_json(data)


def test_unstable_sums_are_another_class() -> None:
    stable = classes(CONV)["cuda_implicit_gemm"]
    unstable = NumericClass(tuple(replace(e, is_stable=False) for e in stable.operations))
    assert stable.can_replace(unstable)
    assert not unstable.can_replace(stable)
    assert "not the same bits" in str(unstable)


# Bounds: what is observed is never more than the worst case.

KINDS = ("normal", "positive", "cancelling", "huge", "largest", "subnormal", "wide")
# Families whose every operation has a derived bound.
PROVED = (
    "conv_fprop", "conv_dgrad", "conv_wgrad", "conv_fprop_int", "conv_dgrad_int", "conv_wgrad_int", "pointwise",
    "pointwise_graph", "conversion", "mask", "reduction", "matmul", "matmul_int", "resample", "softmax", "attention", "movement", "norm", "statistics",
    "graph",
)  # fmt: skip


def drawn_data(graph: OperationGraph, kind: str, seed: int) -> dict[int, Any]:
    """Inputs that are hard for sums: of one sign, nearly cancelling, at the ends of the types."""
    rng = np.random.default_rng(seed)
    data = random_operands(graph, seed)
    blended(graph, data)
    for spec in graph.inputs:
        if spec.is_by_value or spec.data_type not in FLOATS:
            continue
        largest = ELEMENTS[spec.data_type].largest
        values = load(data[spec.uid], spec).astype(np.float64)
        signs = np.where(np.arange(values.size).reshape(values.shape) % 2, 1.0, -1.0)
        with np.errstate(all="ignore"):
            hard = {
                "normal": values,
                "positive": np.abs(values) + 1,
                "cancelling": signs * (1e3 + 1e-3 * np.abs(values)),
                "huge": values * 10.0 ** rng.uniform(-1, 1, values.shape) * min(largest**0.5, 1e30) / 4,
                "largest": values * largest / 4,
                "subnormal": values * (1e-38 if largest > 1e30 else 2.0**-15),
                "wide": values * 2.0 ** rng.integers(-12, 12, values.shape),
            }[kind]
            store(cast(np.clip(hard, -largest, largest), spec.data_type), data[spec.uid], spec)
    return data


def certify(graph: OperationGraph, data: dict[int, Any], plan: ExecutionPlan | None = None) -> Certificate:
    with np.errstate(all="ignore"):  # what the library itself warns of is not the question here
        return (build(graph, "cpu") if plan is None else plan).certificate(data)


@pytest.mark.parametrize("family", PROVED)
def test_no_error_is_larger_than_its_bound(family: str) -> None:
    finite = 0
    for seed in range(5):
        graph = draw(Case(family, seed, large=False)).graph
        for kind in ("normal", KINDS[(seed + len(family)) % len(KINDS)]):
            found = certify(graph, drawn_data(graph, kind, seed))
            for output in found.outputs:
                assert output.holds, f"{family}:{seed} {kind}: {output}"
                assert not output.why_not
                assert output.observed is not None
                finite += output.worst < np.inf
            str(found)
            json.dumps(found.to_json(), allow_nan=False)
    assert finite, "a bound that is infinite everywhere says nothing"


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_no_error_is_larger_than_its_bound_in_many(family: str, kind: str) -> None:
    for seed in range(100, 160):
        graph = draw(Case(family, seed, large=False)).graph
        found = certify(graph, drawn_data(graph, kind, seed))
        assert found.holds, f"{family}:{seed} {kind}: {found}"


@pytest.mark.parametrize(
    "seeds", [range(12), pytest.param(range(12, 400), marks=pytest.mark.long)], ids=("few", "many")
)
def test_no_error_is_larger_than_its_bound_in_many_operations(seeds: range) -> None:
    for seed in seeds:
        graph = many_operations(seed)
        for kind in ("normal", KINDS[seed % len(KINDS)]):
            found = certify(graph, drawn_data(graph, kind, seed))
            assert found.holds, f"{seed} {kind}: {found}"


@emulated
@pytest.mark.parametrize("seeds", [(3,), pytest.param(range(400, 460), marks=pytest.mark.long)], ids=("one", "many"))
def test_bounds_of_many_operations_hold_on_a_device(seeds: Sequence[int]) -> None:
    for seed in seeds:
        graph = many_operations(seed)
        with host_libraries():
            plan = DevicePlan(Ranking(fuse(graph), H200).best, EmulatedRuntime())
            found = certify(graph, drawn_data(graph, KINDS[seed % len(KINDS)], seed), plan)
        assert found.holds, f"{seed}: {found}"


def test_the_bound_is_of_use() -> None:
    """A sum of one sign comes within a factor of 1000 of its worst case; the statistical bound is between the two."""
    graph = parse("matmul a=f32[1,1,4096] b=f32[1,4096,1]").build_operation_graph()
    data = drawn_data(graph, "positive", 0)
    (output,) = certify(graph, data).outputs
    total = float(np.sum(np.abs(data[1].astype(np.float64)).ravel() * np.abs(data[2].astype(np.float64)).ravel()))
    assert output.worst == pytest.approx(4096 * 2.0**-24 * total, rel=0.01)
    assert output.observed < output.statistical < output.worst / 5
    exact = math.fsum(float(a) * float(b) for a, b in zip(data[1].ravel(), data[2].ravel(), strict=True))
    assert abs(float(data_of(graph, data)) - exact) <= output.statistical


def data_of(graph: OperationGraph, data: dict[int, Any]) -> Any:
    plan = build(graph, "cpu")
    plan.execute(data, plan.new_workspace())
    return data[graph.outputs[0].uid].ravel()[0]


@emulated
@pytest.mark.parametrize(
    ("engine", "kinds"),
    [("cuda_implicit_gemm", ("normal", "cancelling")), ("cuda_winograd", KINDS), ("cuda_winograd_4x4", KINDS), ("cuda_fft", ("normal", "positive", "wide")),
     ("cuda_mma_gemm_tf32", KINDS), ("cuda_explicit_gemm", ("normal", "cancelling")), ("cuda_hopper_bf16x3", ("normal", "wide"))],
)  # fmt: skip
def test_algorithms_with_errors_of_their_own(engine: str, kinds: tuple[str, ...]) -> None:
    graph = parse("conv x=f32[2,16,12,12]nhwc w=f32[16,16,3,3]nhwc pad=1 + bias + tanh").build_operation_graph()
    allowed = Filters(allowed_numerical_notes=frozenset({NumericalNote.DOWN_CONVERT_INPUTS}))
    ranking = Ranking(fuse(graph), H200, filters=allowed, engines=[ENGINE_BY_NAME[engine]])
    with host_libraries():
        plan = DevicePlan(ranking.best, EmulatedRuntime())
        for kind in kinds:
            (output,) = certify(graph, drawn_data(graph, kind, 1), plan).outputs
            assert output.holds, f"{kind}: {output}"
            assert output.observed is not None
            assert kind != "normal" or 0 < output.observed < output.worst < 3, "a bound that says something"


PARAMETERS = {
    "axis": 1, "elu_alpha": 1.3, "softplus_beta": 0.7, "swish_beta": 1.7, "relu_lower_clip": -0.1,
    "relu_upper_clip": 3.1, "relu_lower_clip_slope": 0.1,
}  # fmt: skip


def one_mode(mode: PointwiseMode) -> OperationGraph:
    row = POINTWISE[mode]
    kind = {"comparison": "bool", "logical": "bool", "index": "i32"}.get(row.kind, "f32")
    spec = PointwiseSpec(mode=mode, math_type="f32", **{name: PARAMETERS[name] for name in row.parameters})
    operands = {port: tensor(i + 1, (4, 1024)) for i, port in enumerate(row.operands)}
    result = {"dx" if row.kind == "backward" else "y": tensor(9, (4, 1024), kind)}
    return OperationGraph.of([PointwiseOperation(spec=spec, **operands, **result)])


def everywhere(count: int, size: int, seed: int) -> list[Any]:
    """Numbers of every magnitude, and many near those where functions bend."""
    rng = np.random.default_rng(seed)
    signs = np.sign(rng.standard_normal(size // 4))
    parts = [
        np.linspace(-120, 120, size // 2),
        signs * 10.0 ** rng.uniform(-44, 38, size // 4),
        rng.standard_normal(size // 4),
    ]
    return [rng.permutation(np.concatenate(parts)).astype(np.float32).reshape(4, -1) for _ in range(count)]


def hold_for(mode: PointwiseMode, plan: ExecutionPlan) -> None:
    graph = plan.config.fused.graph
    for seed in range(2):
        data = dict(enumerate(everywhere(len(graph.inputs), 4096, seed), 1))
        if mode is PointwiseMode.POW and seed:
            data[1] = np.abs(data[1])
        (output,) = certify(graph, data, plan).outputs
        assert output.holds, f"{mode.name}: {output}"
        assert output.unbounded < 0.5


@pytest.mark.parametrize("mode", POINTWISE, ids=lambda mode: mode.name)
def test_functions(mode: PointwiseMode) -> None:
    hold_for(mode, build(one_mode(mode), "cpu"))


@emulated
@pytest.mark.long
@pytest.mark.parametrize("mode", POINTWISE, ids=lambda mode: mode.name)
def test_functions_on_a_device(mode: PointwiseMode) -> None:
    hold_for(mode, DevicePlan(Ranking(fuse(one_mode(mode)), H200).best, EmulatedRuntime()))


def test_a_clip_that_is_rounded() -> None:
    """0.1 is no number of fp32, so what is clipped to it is off by that."""
    graph = parse("pointwise x=f32[4,8] + clip(0,0.1)").build_operation_graph()
    data = random_operands(graph)
    (output,) = certify(graph, data).outputs
    assert output.holds
    assert 0 < output.observed <= output.worst < 1e-7
    exact = parse("pointwise x=f32[4,8] + clip(0,6)").build_operation_graph()
    assert certify(exact, random_operands(exact)).outputs[0].is_exact


def test_a_maximum_that_is_blended() -> None:
    for spec in (pooling(), pooling(mode=ResampleMode.AVGPOOL_INCLUDE_PADDING, padding_mode=PaddingMode.ZERO_PAD)):
        graph = OperationGraph.of(
            [
                operation(
                    "resample_fwd",
                    x=tensor(1, (2, 3, 8, 8)),
                    y=tensor(2, (2, 3, 4, 4)),
                    spec=spec,
                    alpha=0.3,
                    beta=-1.7,
                    index=...,
                )
            ]
        )
        for kind in ("normal", "cancelling", "wide"):
            (output,) = certify(graph, drawn_data(graph, kind, 3)).outputs
            assert output.holds, f"{kind}: {output}"
            assert 0 < output.observed < output.worst < 1e3


def test_ranges_hold_for_all_data_in_them() -> None:
    text = "conv x=f16[1,8,6,6] w=f16[8,8,3,3] pad=1 + bias + gelu"
    graph = parse(text).build_operation_graph()
    plan = build(graph, "cpu")
    uids = {t.name: t.uid for t in graph.inputs}
    ranges = {uids["x"]: (-1.0, 2.0), uids["w"]: (-0.5, 0.5), uids["bias"]: (0.0, 0.25)}
    (promised,) = plan.certificate(ranges=ranges).outputs
    for seed in range(5):
        data = random_operands(graph, seed)
        rng = np.random.default_rng(seed)
        for uid, (low, high) in ranges.items():
            data[uid][...] = rng.uniform(low, high, data[uid].shape) if seed else high
        (output,) = plan.certificate(data).outputs
        assert output.worst <= promised.worst * (1 + 1e-9)
        assert output.observed <= promised.worst < 0.05
    (unknown,) = plan.certificate(ranges={uids["x"]: (-1.0, 1.0)}).outputs
    assert unknown.worst is None
    for wrong in ([1], {99: (0, 1)}, {uids["x"]: (1, 0)}, {uids["x"]: 3}, {uids["x"]: ("a", "b")}):
        with pytest.raises(BadParam, match=r"certificate\.range"):
            plan.certificate(ranges=wrong)


@pytest.mark.parametrize("family", ["pointwise", "pointwise_graph", "reduction", "resample", "conv_dgrad", "graph"])
def test_ranges_are_no_tighter_than_data(family: str) -> None:
    for seed, kind in ((0, "normal"), (10, "largest"), (2, "positive")):
        graph = draw(Case(family, seed, large=False)).graph
        data = drawn_data(graph, kind, seed)
        inputs = [
            (t, np.asarray(data[t.uid] if t.is_by_value else load(data[t.uid], t)).astype(np.float64))
            for t in graph.inputs
        ]
        widened = {t.uid: 1e-6 * float(np.abs(values).max()) if t.is_by_value else 0.0 for t, values in inputs}
        ranges = {t.uid: (float(v.min()) - widened[t.uid], float(v.max()) + widened[t.uid]) for t, v in inputs}
        promised = build(graph, "cpu").certificate(ranges=ranges)
        for wide, tight in zip(promised.outputs, certify(graph, data).outputs, strict=True):
            if not wide.why_not:
                assert tight.worst <= wide.worst * (1 + 1e-9), f"{family}:{seed}: {wide}, {tight}"
                assert not tight.observed > wide.worst


@emulated
@pytest.mark.parametrize("family", ["norm", "statistics", "softmax", "attention", "pointwise_graph"])
def test_bounds_hold_on_a_device(family: str) -> None:
    for seed in (1, 2):
        graph = draw(Case(family, seed, large=False)).graph
        plan = DevicePlan(Ranking(fuse(graph), H200).best, EmulatedRuntime())
        for kind in ("normal", "cancelling", "wide"):
            found = certify(graph, drawn_data(graph, kind, seed), plan)
            assert found.holds, f"{family}:{seed} {kind}: {found}"


def test_what_has_no_bound_says_so() -> None:
    graph = draw(Case("rng", 0, large=False)).graph
    (output,) = certify(graph, drawn_data(graph, "normal", 0)).outputs
    assert output.why_not == "no bound is derived for rng"
    assert output.holds
    norm = parse("norm layer x=f32[4,64]").build_operation_graph()
    ranges = {t.uid: (1e-5, 1e-5) if t.is_by_value else (-1.0, 1.0) for t in norm.inputs}
    outputs = build(norm, "cpu").certificate(ranges=ranges).outputs
    assert all("how the data is spread" in output.why_not for output in outputs)
    huge = parse("conv x=f16[1,64,4,4] w=f16[8,64,3,3] out=f16 + relu + tanh").build_operation_graph()
    data = drawn_data(huge, "largest", 0)
    (output,) = certify(huge, data).outputs
    assert output.holds


# Integers.


@pytest.mark.parametrize(
    ("x", "w", "n", "proved"), [("i8", "i8", 8, True), ("i16", "i16", 1, False), ("i16", "i8", 8, True)]
)
def test_overflow_is_proved_or_advised_upon(x: str, w: str, n: int, proved: bool) -> None:
    graph = parse(f"conv x={x}[1,{n},6,6] w={w}[4,{n},3,3] pad=1 + relu").build_operation_graph()
    certificate = build(graph, "cpu").certificate()
    proof = certificate.integers[0]
    assert certificate.is_exact
    assert proof.largest == 9 * n * int(ELEMENTS[data_type_of(x)].smallest) * int(ELEMENTS[data_type_of(w)].smallest)
    assert proof.is_proved is proved
    assert bool(certificate.advice) is not proved
    assert ("where no sum wraps" in str(certificate)) is not proved
    if not proved:
        assert "CUDNN_ATTR_CONVOLUTION_COMP_TYPE" in proof.advice
        uids = {t.name: t.uid for t in graph.inputs}
        assert build(graph, "cpu").certificate(ranges={uids["x"]: (0, 255), uids["w"]: (-64, 64)}).integers[0].is_proved
        wide = parse(f"conv x={x}[1,{n},6,6] w={w}[4,{n},3,3] pad=1 compute=i64").build_operation_graph()
        assert build(wide, "cpu").certificate().integers[0].is_proved


def test_an_overflow_proof_is_right() -> None:
    """Where the data's sums of magnitudes fit, a sum in 64 bits is the one in 32; where they do not, one may wrap."""
    text = "matmul a=i32[1,4,64] b=i32[1,64,4]"
    graph, wide = (parse(f"{text} compute={kind} out={kind}").build_operation_graph() for kind in ("i32", "i64"))
    wrapped = 0
    for seed in range(20):
        data = random_operands(graph, seed)
        rng = np.random.default_rng(seed)
        for uid in (1, 2):
            data[uid][...] = rng.integers(-(2 ** (seed % 16)), 2 ** (seed % 16) + 1, data[uid].shape)
        narrow_plan, wide_plan = build(graph, "cpu"), build(wide, "cpu")
        (proof,) = narrow_plan.certificate(data).integers
        narrow_plan.execute(data, narrow_plan.new_workspace())
        full = {**random_operands(wide), 1: data[1], 2: data[2]}
        wide_plan.execute(full, wide_plan.new_workspace())
        same = bool((data[3] == full[3]).all())
        assert same or not proof.is_proved
        wrapped += not same
    assert wrapped


# The command.


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certify", CONV]) == Exit.OK
    out = capsys.readouterr().out
    for word in ("numeric class", "sum |x||w|", "statistically", "observed"):
        assert word in out
    assert main(["certify", CONV, "--types", "--device", "h200"]) == Exit.OK
    assert "give data or ranges" in capsys.readouterr().out
    assert main(["certify", CONV, "--range", "x=-1,1", "--range", "w=-1,1", "--range", "bias=0,0", "--json"]) == Exit.OK
    data = json.loads(capsys.readouterr().out)
    assert (data["format"], data["basis"]) == ("graphdnn.certificate", "ranges")
    assert main(["certify", CONV, "--device", "h200"]) == Exit.OK
    assert "nothing was executed" in capsys.readouterr().out
    for wrong in ("x", "x=1", "x=a,b", "nobody=0,1"):
        assert main(["certify", CONV, "--range", wrong]) == Exit.USAGE
        assert "cli.certify.range" in capsys.readouterr().err


@pytest.mark.parametrize("arithmetic", ["f32", "f64"])
@pytest.mark.parametrize("data_type", ["f32", "f16"])
def test_sampled_images(arithmetic: str, data_type: str) -> None:
    """Positions on elements, between them, on the edge, outside and far away; behind a rounding of the grid as well."""
    extents = (2, 3, 7, 9), (2, 11, 5, 2), (2, 3, 11, 5)
    x, grid, y = (tensor(i, e, data_type=data_type) for i, e in enumerate(extents, 1))
    graph = OperationGraph.of([GridSample(x=x, grid=grid, y=y, arithmetic=data_type_of(arithmetic))])
    dtype = ELEMENTS[x.data_type].numpy
    for seed in range(4):
        rng = np.random.default_rng(seed)
        positions = rng.uniform(-1.3, 1.3, extents[1])
        positions[:, 0], positions[:, 1], positions[:, 2] = 1.0, -1.0, 1e4
        positions[:, 3, :, 0] = rng.integers(0, 9, positions[:, 3, :, 0].shape) / 4 - 1
        image = rng.standard_normal(extents[0]) * 10.0 ** rng.integers(-3, 4, extents[0])
        certificate = certify(graph, {1: image.astype(dtype), 2: positions.astype(dtype)})
        (output,) = certificate.outputs
        assert output.holds, str(output)
        assert output.worst is not None
        share = 1e-2 if arithmetic == "f32" or data_type == "f16" else 1e-6
        assert 0 < output.worst < share * np.abs(image).max()


PARTED = (
    CONV,
    "conv x=f16[6,8,9,9] w=f16[8,8,3,3] pad=1 + bias + tanh",
    "dgrad dy=f16[5,8,9,9] w=f16[8,8,3,3] dx=[5,8,9,9] pad=1",
    "wgrad x=f16[5,8,9,9] dy=f16[5,8,9,9] dw=[8,8,3,3] pad=1",
    "pointwise x=bf16[7,33,11] + exp + relu",
    "conv x=i8[6,8,9,9] w=i8[8,8,3,3] pad=1",
)


@pytest.mark.parametrize("text", PARTED)
def test_a_certificate_from_parts_is_that_of_the_whole(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All elements have bounds: images are taken a few at a time, and none is omitted."""
    plan = build(parse(text).build_operation_graph(), "cpu")
    data = random_operands(plan.config.fused.graph, 3)
    found = {}
    for part in (1, 1 << 40):
        monkeypatch.setattr("graphdnn.analysis.certificate.certify._PART", part)
        found[part] = plan.certificate(data).to_json()
    apart, whole = (found[part]["outputs"][0] for part in (1, 1 << 40))
    for name in ("worst", "statistical", "observed", "closest", "unbounded", "allowed"):
        both = [None if entry[name] is None else float(entry[name]) for entry in (apart, whole)]
        assert both[0] == pytest.approx(both[1], rel=1e-5, nan_ok=True), name
    assert found[1]["notes"] == found[1 << 40]["notes"]


def test_a_certificate_keeps_few_arrays_at_a_time() -> None:
    """Memory that is new at each step takes longer than the arithmetic: 1.4 GB for a tensor of 51 MB."""
    text = "conv x=f16[16,64,28,28]nhwc w=f16[64,64,3,3]nhwc pad=1 + bias + relu"
    plan = build(parse(text).build_operation_graph(), "cpu")
    data = random_operands(plan.config.fused.graph, 0)
    largest = 8 * max(t.elements for t in plan.config.fused.graph.tensors.values())
    tracemalloc.start()
    plan.certificate(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 12 * largest, f"{peak / largest:.1f} tensors in float64"

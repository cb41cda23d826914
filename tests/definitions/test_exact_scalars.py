"""Scalars keep every bit on their way to a kernel, or are refused: beyond 2**53, and at the ends of each integer type."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from backend_descriptors import made, read
from frontend_files import entry, frontend, node

from graphdnn import Graph, GraphdnnError, backend, build, graph_to_json, plan_to_json, v6
from graphdnn.attribute_names import AttributeName as A
from graphdnn.bundles import attempt, bundle_from_json, bundle_of
from graphdnn.dtypes import ELEMENTS, INTEGERS
from graphdnn.engines.cuda.codegen.literals import literal
from graphdnn.engines.cuda.codegen.parameters import Parameters
from graphdnn.enums import AttributeType as T
from graphdnn.enums import DataType
from graphdnn.enums import DescriptorType as D
from graphdnn.files import graph_from_json, plan_from_json
from graphdnn.importers import read as read_other
from graphdnn.plan import ExecutionPlan
from graphdnn.scalars import is_kept, number, real
from graphdnn.tensors import TensorSpec

BEYOND = 2**53 + 1  # the first integer without a double of its own


def _ends() -> Iterator[tuple[DataType, int]]:
    for kind in INTEGERS:
        low, high = int(ELEMENTS[kind].smallest), int(ELEMENTS[kind].largest)
        yield from ((kind, low), (kind, low + (low < 0)), (kind, high - 1), (kind, high))
    yield from ((DataType.INT64, BEYOND), (DataType.INT64, -BEYOND))


ENDS = tuple(dict.fromkeys(_ends()))
IDS = [f"{kind.name}-{value}" for kind, value in ENDS]
each_end = pytest.mark.parametrize(("kind", "value"), ENDS, ids=IDS)


def _graph(kind: DataType, value: int, *, by_value: bool = False) -> tuple[Graph, Any, Any]:
    """y = max(x, constant) of x at the low end, in the widest integers: the constant itself."""
    graph = Graph(compute_data_type=DataType.INT64, io_data_type=kind)
    x = graph.tensor([4], data_type=kind, name="x")
    if by_value:
        c = graph.tensor([1], data_type=kind, is_pass_by_value=True, name="c")
    else:
        c = graph.tensor_scalar(value, kind, name="c")
    y = graph.max(x, c).set_output(True).set_data_type(kind).set_name("y")
    return graph, x, y


def _results(plan: ExecutionPlan, kind: DataType, **extra: Any) -> list[int]:
    specs = {t.name: t for t in plan.config.fused.graph.bound}
    x = np.full(4, int(ELEMENTS[kind].smallest), ELEMENTS[kind].numpy)
    y = np.zeros(4, ELEMENTS[kind].numpy)
    plan.execute({specs["x"].uid: x, specs["y"].uid: y, **{specs[name].uid: v for name, v in extra.items()}})
    return [int(v) for v in y]


@each_end
def test_a_constant_of_the_builder(kind: DataType, value: int) -> None:
    graph, _, _ = _graph(kind, value)
    assert _results(graph.build(), kind) == [value] * 4


@each_end
def test_a_scalar_by_value(kind: DataType, value: int) -> None:
    graph, _, _ = _graph(kind, value, by_value=True)
    plan = graph.build()
    given = ELEMENTS[kind].numpy.type(value)
    for form in (value, given, np.array([value], given.dtype), np.array(value, given.dtype)):
        assert _results(plan, kind, c=form) == [value] * 4, type(form)


@each_end
def test_a_constant_in_files(kind: DataType, value: int) -> None:
    graph, _, _ = _graph(kind, value)
    operation_graph, plan = graph.build_operation_graph(), graph.build()
    assert _results(build(graph_from_json(graph_to_json(operation_graph)), "cpu"), kind) == [value] * 4
    assert _results(plan_from_json(plan_to_json(plan)), kind) == [value] * 4
    again = bundle_from_json(bundle_of(attempt(plan.config, 0), "0").to_json())
    (constant,) = [t for t in again.graph().tensors.values() if t.is_constant]
    assert constant.constant_value == value


def _descriptor(kind: DataType, given: Any) -> backend.Descriptor:  # type: ignore[name-defined]
    return made(
        D.TENSOR,
        {
            A.TENSOR_UNIQUE_ID: (T.INT64, [7]),
            A.TENSOR_DATA_TYPE: (T.DATA_TYPE, [kind]),
            A.TENSOR_DIMENSIONS: (T.INT64, [1]),
            A.TENSOR_STRIDES: (T.INT64, [1]),
            A.TENSOR_IS_BY_VALUE: (T.BOOLEAN, [True]),
            A.TENSOR_CONSTANT_VALUE: (T.VOID_PTR, [given]),
        },
    )


@each_end
def test_a_constant_of_the_v8_calls(kind: DataType, value: int) -> None:
    element = ELEMENTS[kind].numpy
    array = np.array([value], element)
    pointed_at = np.ctypeslib.as_ctypes(array)
    forms = (array, element.type(value), array.ctypes.data, pointed_at, ctypes.cast(pointed_at, ctypes.c_void_p))
    for form in forms:
        descriptor = _descriptor(kind, form)
        assert descriptor.content.constant_value == value, type(form)
        (given,) = read(descriptor, A.TENSOR_CONSTANT_VALUE, T.VOID_PTR)
        assert given.dtype == element
        assert int(given[0]) == value


@each_end
def test_a_constant_in_the_argument_of_a_kernel(kind: DataType, value: int) -> None:
    spec = TensorSpec(uid=1, data_type=kind, dims=(1,), strides=(1,), is_by_value=True, constant_value=value)
    parameters = Parameters()
    parameters.tensor("c", spec)
    words = parameters.pack().data
    size = ELEMENTS[kind].bytes
    assert int.from_bytes(words[:size], "little", signed=int(ELEMENTS[kind].smallest) < 0) == value


@pytest.mark.parametrize("value", [BEYOND, -BEYOND, 2**63 - 1, -(2**63) + 1, 2**62 + 1])
def test_an_integer_in_the_text_of_a_kernel(value: int) -> None:
    text = literal(value, "long long").replace("LL", "")
    assert eval(text) == value
    assert eval(literal(-(2**63), "long long").replace("LL", "")) == -(2**63)


@pytest.mark.parametrize("factor", ["alpha1", "alpha2", "upper_clip", "lower_clip"])
def test_factors_and_clips_that_a_float_does_not_keep_are_refused(factor: str) -> None:
    """Attributes of these are floats and doubles, so another number would be computed with."""

    def call(value: int) -> None:
        graph = Graph(compute_data_type=DataType.INT64, io_data_type=DataType.INT64)
        x, c = graph.tensor([4]), graph.tensor([4])
        if "clip" in factor:
            graph.relu(x, **{factor: value}).set_output(True)
        else:
            graph.pointwise("ADD", x=x, b=c, **{factor: value}).set_output(True)
        graph.build_operation_graph()

    for value in (2**53, 2**60, -(2**62), 2**62 + 2**40):
        call(value)
    for value in (BEYOND, -BEYOND, 2**63 - 1, 10**400):
        with pytest.raises(GraphdnnError) as caught:
            call(value)
        assert [r.rule for r in caught.value.rejections] == ["attr.type"], value


@pytest.mark.parametrize("blend", ["alpha", "beta"])
def test_blends_that_a_float_does_not_keep_are_refused(blend: str) -> None:
    from legal_problems import operation

    for tag in ("conv_fprop", "conv_dgrad", "conv_wgrad"):
        assert getattr(operation(tag, **{blend: 2**60}), blend) == 2**60
        with pytest.raises(GraphdnnError) as caught:
            operation(tag, **{blend: BEYOND})
        assert [r.rule for r in caught.value.rejections] == ["attr.type"]


@pytest.mark.parametrize(
    ("kind", "value"), [(T.DOUBLE, BEYOND), (T.FLOAT, 2**24 + 1), (T.DOUBLE, 10**400), (T.FLOAT, 10**400)]
)
def test_attributes_of_floats_refuse_integers_that_they_do_not_keep(kind: T, value: int) -> None:
    descriptor = backend.cudnnBackendCreateDescriptor(D.POINTWISE)
    with pytest.raises(GraphdnnError) as caught:
        backend.cudnnBackendSetAttribute(descriptor, A.POINTWISE_RELU_UPPER_CLIP, kind, 1, [value])
    assert [r.rule for r in caught.value.rejections] == ["attribute.value"]
    backend.cudnnBackendSetAttribute(
        descriptor, A.POINTWISE_RELU_UPPER_CLIP, kind, 1, [value - 1 if value < 2**60 else 2.0]
    )


@each_end
def test_a_constant_in_a_graph_of_the_frontend(kind: DataType, value: int) -> None:
    names = ("x", "y")
    tensors = [entry(name, [4], kind.name) for name in names]
    tensors.append(entry("c", [1], kind.name, pass_by_value=value, is_pass_by_value=True))
    step = node("POINTWISE", {"IN_0": "x", "IN_1": "c"}, {"OUT_0": "y"}, mode="MAX", compute_data_type="INT64")
    found = read_other(frontend([step], *tensors))
    assert not found.refused, found.refused
    assert _results(build(found.problems[0].graph, "cpu"), kind) == [value] * 4


def test_scalars_of_the_legacy_calls() -> None:
    handle, descriptor = v6.cudnnCreate(), v6.cudnnCreateTensorDescriptor()
    v6.cudnnSetTensorNdDescriptor(descriptor, v6.CUDNN_DATA_INT32, 4, [1, 1, 1, 4], [4, 4, 4, 1])
    y = np.zeros((1, 1, 1, 4), np.int32)
    for value in (2**31 - 1, -(2**31), 2**24 + 1, np.int32(2**31 - 1)):
        v6.cudnnSetTensor(handle, descriptor, y, value)
        assert set(y.ravel().tolist()) == {int(value)}
    for value in (BEYOND, np.int64(BEYOND), np.array([BEYOND])):
        with pytest.raises(v6.CudnnError) as caught:
            v6.cudnnSetTensor(handle, descriptor, y, value)
        assert [r.rule for r in caught.value.rejections] == ["v6.scalar"]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int8", 1.5), ("int8", 128), ("int8", -129), ("uint8", -1), ("int32", float("nan")), ("int64", 2**63),
        ("int64", 2.0**63), ("int16", float("inf")), ("int8", 2**70), ("bool", 2),
        ("float8_e4m3fn", float("inf")), ("float8_e4m3fn", 1000.0),
    ],
)  # fmt: skip
def test_a_number_that_a_type_has_no_place_for_is_refused(kind: str, value: float) -> None:
    """It was rounded, wrapped into range or made zero, without a word."""
    graph = Graph(io_data_type=kind)
    with pytest.raises(GraphdnnError) as caught:
        graph.tensor_scalar(value, kind)
    assert {r.rule for r in caught.value.rejections} == {"tensor.constant.value"}
    graph = Graph(io_data_type=kind, compute_data_type="float32")
    c = graph.tensor([1], is_pass_by_value=True)
    y = graph.cmp_eq(graph.tensor([4], name="x"), c).set_output(True)
    graph.build()
    data = np.zeros(4, ELEMENTS[y.get_data_type()].numpy)  # type: ignore[index]
    with pytest.raises(GraphdnnError) as caught:
        graph.execute({"x": data.astype(ELEMENTS[c.get_data_type()].numpy), y: data, c: value})  # type: ignore[index]
    assert [r.rule for r in caught.value.rejections] == ["binding.scalar.value"]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int8", 127),
        ("int8", -128.0),
        ("bool", 1),
        ("bool", 0.0),
        ("float16", 65519),
        ("float16", 1e-300),
        ("float16", 0.1),
    ]
    + [("float32", v) for v in (float("inf"), float("-inf"), float("nan"), 1e38, 1e39)]
    + [("float16", v) for v in (65520, -1e9)]
    + [("float8_e5m2", float("nan")), ("float8_e4m3fn", 448), ("int64", 2**63 - 1)],
)
def test_a_number_that_a_type_has_a_place_for_is_taken(kind: str, value: float) -> None:
    graph = Graph(io_data_type=kind)
    graph.tensor_scalar(value, kind)


def test_reading_numbers() -> None:
    """What is kept is the same number in exact arithmetic; what is not is refused."""
    rng = np.random.default_rng(0)
    kept = lost = 0
    for _ in range(4000):
        bits = int(rng.integers(1, 70))
        value = (int(rng.integers(0, 2**62)) >> max(0, 62 - bits)) << max(0, bits - 62)
        value = -value if rng.integers(2) else value
        try:
            assert real(value) == value
            kept += 1
        except ValueError:
            assert int(float(value)) != value
            lost += 1
        if -(2**63) <= value < 2**63:
            assert number(value) == value
            assert type(number(value)) is int
            assert is_kept(value, DataType.INT64)
    assert kept > 500
    assert lost > 200


def test_a_problem_text_keeps_an_integer() -> None:
    from graphdnn.problem.step_parser import _number

    assert _number(str(BEYOND)) == BEYOND


@pytest.mark.parametrize("asked", ["graph", "operation"])
@pytest.mark.parametrize("what", ["AVG", "NORM2", "pool", "sigmoid", "genstats"])
def test_what_has_no_integer_arithmetic_is_refused_where_integers_are_asked_for(asked: str, what: str) -> None:
    """It ran in FLOAT, where the average of 2**24 + 1 and itself is 2**24."""

    def call(kind: str | None) -> Any:
        graph = Graph(io_data_type="int32", compute_data_type=kind if asked == "graph" else None)
        own = {} if asked == "graph" else {"compute_data_type": kind}
        x = graph.tensor([1, 1, 2, 2])
        if what == "pool":
            return graph.resample(x, "AVGPOOL_INCLUDE_PADDING", [2, 2], **own)
        if what in ("sigmoid", "genstats"):
            made = getattr(graph, what)(x, **own)
            for tensor in made if isinstance(made, list) else [made]:
                tensor.set_output(True)
            return graph.build_operation_graph()
        return graph.reduction(x, what, **own)

    for kind in (None, "float32", "float64"):
        call(kind)
    with pytest.raises(GraphdnnError) as caught:
        call("int32")
    assert all("INT32" in r.shown_value or r.value.name == what for r in caught.value.rejections)  # type: ignore[attr-defined]

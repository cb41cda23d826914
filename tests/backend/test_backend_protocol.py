"""The attribute protocol, generated from the tables: every attribute of every descriptor type, wrong in every way.

Each case asserts the status and the rule, that the rejection says everything, and
that the descriptor is as it was and still works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from backend_descriptors import complete, count_of, created, described, elements_of, graph_descriptor, made
from legal_problems import bernoulli, convolution, operation, pointwise, pooling, reduction, tensor

from graphdnn import backend
from graphdnn.attribute_names import AttributeName as A
from graphdnn.backend.descriptor import Descriptor
from graphdnn.backend.descriptor_spec import MANY
from graphdnn.backend.descriptor_types import KINDS, UNSUPPORTED, Row
from graphdnn.backend.handle import Handle
from graphdnn.enums import AttributeType as T
from graphdnn.enums import DescriptorType as D
from graphdnn.enums import HeurMode, KnobType, Status
from graphdnn.errors import GraphdnnError
from graphdnn.operations import OPERATIONS, MatmulSpec
from graphdnn.spec import Refused

SPECS = {
    D.TENSOR: lambda: tensor(1, (2, 3)),
    D.CONVOLUTION: convolution,
    D.POINTWISE: pointwise,
    D.MATMUL: lambda: MatmulSpec(compute_type="f32"),
    D.REDUCTION: reduction,
    D.RESAMPLE: pooling,
    D.RNG: bernoulli,
    **{cls.descriptor: lambda tag=tag: operation(tag) for tag, cls in OPERATIONS.items()},
}


@cache
def handle() -> Handle:
    return backend.cudnnCreate()


@cache
def sample(kind: D) -> dict[A, tuple[T, list[Any]]]:
    """Legal elements for a descriptor of each type."""
    nested = T.BACKEND_DESCRIPTOR
    if kind in SPECS:
        return elements_of(SPECS[kind]())
    faces: dict[D, Callable[[], dict[A, tuple[T, list[Any]]]]] = {
        D.OPERATIONGRAPH: lambda: {A.OPERATIONGRAPH_OPS: (nested, [good(D.OPERATION_MATMUL)])},
        D.ENGINEHEUR: lambda: {
            A.ENGINEHEUR_OPERATION_GRAPH: (nested, [good(D.OPERATIONGRAPH)]),
            A.ENGINEHEUR_MODE: (T.HEUR_MODE, [HeurMode.A]),
        },
        D.ENGINE: lambda: {
            A.ENGINE_OPERATION_GRAPH: (nested, [good(D.OPERATIONGRAPH)]),
            A.ENGINE_GLOBAL_INDEX: (T.INT64, [1]),
        },
        D.ENGINECFG: lambda: {A.ENGINECFG_ENGINE: (nested, [good(D.ENGINE)])},
        D.KNOB_CHOICE: lambda: {
            A.KNOB_CHOICE_KNOB_TYPE: (T.KNOB_TYPE, [KnobType.KERNEL_CFG]),
            A.KNOB_CHOICE_KNOB_VALUE: (T.INT64, [0]),
        },
        D.DEVICEPROP: lambda: {A.DEVICEPROP_HANDLE: (T.HANDLE, [handle()])},
        D.EXECUTION_PLAN: lambda: {A.EXECUTION_PLAN_ENGINE_CONFIG: (nested, [good(D.ENGINECFG)])},
        D.VARIANT_PACK: lambda: {
            A.VARIANT_PACK_UNIQUE_IDS: (T.INT64, [1, 2]),
            A.VARIANT_PACK_DATA_POINTERS: (T.VOID_PTR, [np.zeros(3), np.zeros(4)]),
        },
    }
    return faces[kind]()


@cache
def good(kind: D) -> Descriptor:
    """A finalized descriptor of each type; those that are only filled come from an engine."""
    if kind is D.INTERMEDIATE_INFO:
        return backend.cudnnBackendCreateDescriptor(kind)  # nothing fills it
    if kind is D.LAYOUT_INFO:
        return fill(good(D.ENGINE), A.ENGINE_LAYOUT_INFO, kind)
    if kind is D.KNOB_INFO:
        return fill(composed_engine(), A.ENGINE_KNOB_INFO, kind)
    return made(kind, sample(kind))


def fill(source: Descriptor, name: A, kind: D) -> Descriptor:
    target = backend.cudnnBackendCreateDescriptor(kind)
    backend.cudnnBackendGetAttribute(source, name, T.BACKEND_DESCRIPTOR, 1, [target])
    return target


@cache
def composed_engine() -> Descriptor:
    middle = tensor(3, (2, 3, 5))
    first = operation("matmul", c=middle)
    second = operation("matmul", a=middle, b=tensor(4, (2, 5, 6)), c=tensor(5, (2, 3, 6)))
    graph = graph_descriptor(first, second)
    return made(
        D.ENGINE,
        {A.ENGINE_OPERATION_GRAPH: (T.BACKEND_DESCRIPTOR, [graph]), A.ENGINE_GLOBAL_INDEX: (T.INT64, [0])},
    )


def other_type(*kinds: D) -> D:
    return next(k for k in (D.TENSOR, D.CONVOLUTION) if k not in kinds)


def one_element(element: T, row: Row) -> Any:
    """A legal element of a type; whether the attribute is legal with it is another matter."""
    if element is T.BACKEND_DESCRIPTOR:
        return good(row.nested[0]) if row.nested else None
    special = {T.HANDLE: handle, T.CHAR: lambda: "x", T.BOOLEAN: lambda: True, T.VOID_PTR: lambda: np.zeros(1)}
    return special[element]() if element in special else 1 if element is not T.FRACTION else Fraction(1, 2)


def wrong_elements(element: T) -> list[Any]:
    """Values that an element of this type cannot have."""
    integers = [True, 1.0, "1", 2**63, -(2**63) - 1, np.bool_(True)]
    numbers = ["1", True, b"1", 1j, None]
    return {
        T.BACKEND_DESCRIPTOR: [object(), 7, "descriptor", tensor(1, (1,))],
        T.HANDLE: [object(), 7, "handle"],
        T.INT64: integers,
        T.INT32: [*integers, 2**31],
        T.FLOAT: [*numbers, 1e300],
        T.DOUBLE: numbers,
        T.BOOLEAN: [0, 1, "yes", 0.0],
        T.FRACTION: [1, 0.5, (1, 0), (1, 2, 3), (0.5, 1), "1/2"],
        T.VOID_PTR: [object(), "address", -1, 2**64, 17, True],
        T.CHAR: [3.0],
    }.get(element, [4711, -4711, "FLOAT", 1.0, True, D.TENSOR])


@dataclass(frozen=True)
class Bad:
    """A set call that has to fail."""

    type: Any
    count: Any
    values: Any
    status: Status
    rules: tuple[str, ...]


def repeated(kind: D, row: Row, element: T, count: int) -> Any:
    elements = sample(kind).get(row.attr.name)
    first = (
        elements[1][0] if elements and elements[0] is element and element is not T.CHAR else one_element(element, row)
    )
    return "x" * (count - 1) if element is T.CHAR else [first] * count


def wrong_type(kind: D, row: Row) -> Iterator[Bad]:
    for other in (*(t for t in (T.HANDLE, T.INT64, T.ATTRIB_NAME) if t not in row.attr.types), 4711, True, "INT64"):
        yield Bad(other, 1, [1], Status.BAD_PARAM_ATTRIBUTE_TYPE, ("attribute.type",))


def wrong_count(kind: D, row: Row) -> Iterator[Bad]:
    low, high = row.attr.count
    for element in row.attr.types:
        for count in (low - 1, True, "1", 1.0):
            yield Bad(element, count, repeated(kind, row, element, 1), Status.BAD_PARAM, ("attribute.count",))
        if high < MANY:
            values = repeated(kind, row, element, high + 1)
            yield Bad(element, high + 1, values, Status.BAD_PARAM, ("attribute.count",))
        values = repeated(kind, row, element, max(low, 1) + 1)
        yield Bad(element, max(low, 1), values, Status.BAD_PARAM, ("attribute.count",))


def null(kind: D, row: Row) -> Iterator[Bad]:
    count, status = max(1, row.attr.count[0]), Status.BAD_PARAM_NULL_POINTER
    for element in row.attr.types:
        if element is T.VOID_PTR:  # one pointer may be null, a list of them may not
            if row.is_list:
                yield Bad(element, 2, None, status, ("attribute.null",))
            continue
        yield Bad(element, count, None, status, ("attribute.null",))
        if element is not T.CHAR:
            yield Bad(element, count, [None] * count, status, ("attribute.null", "descriptor.null", "handle.null"))


def wrong_value(kind: D, row: Row) -> Iterator[Bad]:
    count = max(1, row.attr.count[0])
    for element in row.attr.types:
        for value in wrong_elements(element):
            rules = ("attribute.value", "attribute.null", "descriptor.kind", "handle.kind", "tensor.constant.data_type")
            status = Status.BAD_PARAM_NULL_POINTER if value is None else Status.BAD_PARAM
            yield Bad(element, count, [value] * count, status, rules)
        if element in (T.INT64, T.INT32, T.DOUBLE, T.FLOAT, T.BOOLEAN, T.DATA_TYPE):
            yield Bad(element, 1, np.zeros(1, np.int16), Status.BAD_PARAM, ("attribute.value",))
            yield Bad(element, 1, np.zeros((1, 1), np.int64), Status.BAD_PARAM, ("attribute.value",))
        if element is T.CHAR:
            for text in (["a", "b"], "a\0b", [b"\0", b"\0"], ["ab", "\0"], [256, 0], object(), b"\xff\0"):
                yield Bad(element, 2, text, Status.BAD_PARAM, ("attribute.value",))


def wrong_nested(kind: D, row: Row) -> Iterator[Bad]:
    if T.BACKEND_DESCRIPTOR in row.attr.types:
        count = max(1, row.attr.count[0])
        gone = backend.cudnnBackendCreateDescriptor(row.nested[0])
        backend.cudnnBackendDestroyDescriptor(gone)
        for value, status, rule in (
            (good(other_type(*row.nested)), Status.BAD_PARAM_DESCRIPTOR_TYPE, "attribute.nested.type"),
            (
                backend.cudnnBackendCreateDescriptor(row.nested[0]),
                Status.BAD_PARAM_NOT_FINALIZED,
                "attribute.nested.not_finalized",
            ),
            (gone, Status.BAD_PARAM, "descriptor.destroyed"),
        ):
            yield Bad(T.BACKEND_DESCRIPTOR, count, [value] * count, status, (rule,))
    if T.HANDLE in row.attr.types:
        gone_handle = backend.cudnnCreate()
        backend.cudnnDestroy(gone_handle)
        yield Bad(T.HANDLE, 1, [gone_handle], Status.BAD_PARAM, ("handle.destroyed",))


VIOLATIONS = (wrong_type, wrong_count, null, wrong_value, wrong_nested)
REQUIRED = [(k, r) for k, kind in KINDS.items() for r in kind.rows.values() if r.required]
SETTABLE = [(k, r) for k, kind in KINDS.items() for r in kind.rows.values() if r.field is not None]
EVERY = [(k, r) for k, kind in KINDS.items() for r in kind.rows.values()]
FILLED = [(k, r) for k, r in EVERY if k is not D.INTERMEDIATE_INFO]
REFUSED = [(k, r) for k, kind in KINDS.items() for r in kind.refused.values()]


def name_of(value: Any) -> str:
    if isinstance(value, Row):
        return value.attr.name.name
    if isinstance(value, Refused):
        return value.name.name
    return value.__name__ if callable(value) else str(value)


def refuses(status: Status, rules: tuple[str, ...], call: Callable[[], Any]) -> GraphdnnError:
    with pytest.raises(GraphdnnError) as caught:
        call()
    error = caught.value
    assert error.rejections[0].rule in rules, str(error)
    assert error.status is status, str(error)
    for rejection in error.rejections:
        complete(rejection)
    assert error.rejections[0].rule in backend.cudnnGetLastErrorString()
    return error


@pytest.mark.parametrize("violation", VIOLATIONS, ids=name_of)
@pytest.mark.parametrize(("kind", "row"), SETTABLE, ids=name_of)
def test_set_refuses(kind: D, row: Row, violation: Callable[[D, Row], Iterator[Bad]]) -> None:
    descriptor = created(kind, sample(kind))
    before = dict(descriptor._values)
    for bad in violation(kind, row):
        error = refuses(
            bad.status,
            bad.rules,
            lambda bad=bad: backend.cudnnBackendSetAttribute(
                descriptor, row.attr.name, bad.type, bad.count, bad.values
            ),
        )
        assert all(row.attr.name.c_name in r.attribute for r in error.rejections)
        assert descriptor._values == before
        assert not descriptor.finalized
    backend.cudnnBackendFinalize(descriptor)
    assert descriptor.finalized


@pytest.mark.parametrize(("kind", "row"), REQUIRED, ids=name_of)
def test_missing_at_finalize(kind: D, row: Row) -> None:
    """Every required attribute is missed by name; the descriptor can be completed afterwards."""
    rest = {name: elements for name, elements in sample(kind).items() if name is not row.attr.name}
    descriptor = created(kind, rest)
    error = refuses(Status.BAD_PARAM, ("attr.missing",), lambda: backend.cudnnBackendFinalize(descriptor))
    assert row.attr.name.c_name in error.rejections[0].attribute
    assert not descriptor.finalized
    element, values = sample(kind)[row.attr.name]
    backend.cudnnBackendSetAttribute(descriptor, row.attr.name, element, count_of(element, values), values)
    backend.cudnnBackendFinalize(descriptor)


@pytest.mark.parametrize("kind", [k for k in KINDS if KINDS[k].settings is not None], ids=name_of)
def test_nothing_set_names_everything_required(kind: D) -> None:
    required = {row.attr.name.c_name for row in KINDS[kind].rows.values() if row.required}
    descriptor = backend.cudnnBackendCreateDescriptor(kind)
    if not required:
        return
    error = refuses(Status.BAD_PARAM, ("attr.missing",), lambda: backend.cudnnBackendFinalize(descriptor))
    assert {name for name in required if any(name in r.attribute for r in error.rejections)} == required


@pytest.mark.parametrize(("kind", "row"), EVERY, ids=name_of)
def test_states(kind: D, row: Row) -> None:
    """Reading needs a finalized descriptor, writing one that is not."""
    name, element = row.attr.name, row.attr.types[0]
    fresh = backend.cudnnBackendCreateDescriptor(kind)
    not_yet = ("descriptor.not_finalized",)
    refuses(Status.NOT_INITIALIZED, not_yet, lambda: backend.cudnnBackendGetAttribute(fresh, name, element, 0))
    if row.field is None:
        refuses(
            Status.BAD_PARAM,
            ("attribute.get_only",),
            lambda: backend.cudnnBackendSetAttribute(fresh, name, element, 1, [one_element(element, row)]),
        )
    if kind is D.INTERMEDIATE_INFO:
        return
    done = good(kind)
    before = done.content
    refuses(
        Status.NOT_INITIALIZED,
        ("descriptor.finalized",),
        lambda: backend.cudnnBackendSetAttribute(done, name, element, 1, [one_element(element, row)]),
    )
    assert done.content is before


@pytest.mark.parametrize(("kind", "row"), FILLED, ids=name_of)
def test_get(kind: D, row: Row) -> None:
    """Length query, capacity below, at and above the length, and every wrong way to ask."""
    done, name = good(kind), row.attr.name
    for element in row.attr.types:
        try:
            count, nothing = backend.cudnnBackendGetAttribute(done, name, element, 0)
        except GraphdnnError as error:  # a value of the attribute's other type
            assert len(row.attr.types) > 1
            assert error.status is Status.BAD_PARAM_ATTRIBUTE_TYPE
            continue
        assert not nothing
        if element is not T.BACKEND_DESCRIPTOR:
            for capacity in (1, count, count + 3):
                again, elements = backend.cudnnBackendGetAttribute(done, name, element, capacity)
                assert again == count
                whole = count - 1 if element is T.CHAR else count  # the NUL is not part of a str
                assert len(elements) == min(capacity, whole)
            refuses(
                Status.BAD_PARAM,
                ("attribute.get.values",),
                lambda element=element: backend.cudnnBackendGetAttribute(done, name, element, 1, [0]),
            )
        else:
            check_filling(done, row, count)
        for requested in (-1, True, "1", 1.0):
            refuses(
                Status.BAD_PARAM,
                ("attribute.count",),
                lambda element=element, requested=requested: backend.cudnnBackendGetAttribute(
                    done, name, element, requested
                ),
            )
    other = next(t for t in (T.HANDLE, T.ATTRIB_NAME) if t not in row.attr.types)
    for wrong in (other, 4711, True):
        refuses(
            Status.BAD_PARAM_ATTRIBUTE_TYPE,
            ("attribute.type",),
            lambda wrong=wrong: backend.cudnnBackendGetAttribute(done, name, wrong, 1),
        )


def check_filling(done: Descriptor, row: Row, count: int) -> None:
    name, nested = row.attr.name, T.BACKEND_DESCRIPTOR
    kind = row.nested[0] if len(row.nested) == 1 else D.OPERATION_MATMUL  # what the sample graph is made of
    targets = [backend.cudnnBackendCreateDescriptor(kind) for _ in range(2)]
    wrong = backend.cudnnBackendCreateDescriptor(other_type(*row.nested))
    gone = backend.cudnnBackendCreateDescriptor(row.nested[0])
    backend.cudnnBackendDestroyDescriptor(gone)
    for requested, values, status, rule in (
        (1, None, Status.BAD_PARAM_NULL_POINTER, "attribute.null"),
        (1, targets, Status.BAD_PARAM, "attribute.count"),
        (1, [None], Status.BAD_PARAM_NULL_POINTER, "descriptor.null"),
        (1, [object()], Status.BAD_PARAM, "descriptor.kind"),
        (1, [gone], Status.BAD_PARAM, "descriptor.destroyed"),
        (1, [wrong], Status.BAD_PARAM_DESCRIPTOR_TYPE, "attribute.nested.type"),
        (2, [targets[0]] * 2, Status.NOT_INITIALIZED, "attribute.get.target"),
    ):
        refuses(
            status,
            (rule,),
            lambda values=values, requested=requested: backend.cudnnBackendGetAttribute(
                done, name, nested, requested, values
            ),
        )
        assert not any(t.finalized for t in (*targets, wrong))
    again, filled = backend.cudnnBackendGetAttribute(done, name, nested, 2, targets)
    assert again == count
    assert filled == targets[:count]
    assert [t.finalized for t in targets] == [count > 0, count > 1], "surplus descriptors stay as they were"
    if count:
        refuses(
            Status.NOT_INITIALIZED,
            ("attribute.get.target",),
            lambda: backend.cudnnBackendGetAttribute(done, name, nested, 1, targets[:1]),
        )


@pytest.mark.parametrize(("kind", "refused"), REFUSED, ids=name_of)
def test_refused_attributes(kind: D, refused: Refused) -> None:
    """What the header has and graphdnn has not says so, with its reason, on set and on get."""
    descriptor = created(kind, sample(kind))
    before = dict(descriptor._values)
    for element in refused.types:
        error = refuses(
            Status.NOT_SUPPORTED,
            ("attr.not_supported",),
            lambda element=element: backend.cudnnBackendSetAttribute(descriptor, refused.name, element, 1, [0]),
        )
        assert error.rejections[0].reason == refused.reason
    assert descriptor._values == before
    backend.cudnnBackendFinalize(descriptor)
    refuses(
        Status.NOT_SUPPORTED,
        ("attr.not_supported",),
        lambda: backend.cudnnBackendGetAttribute(descriptor, refused.name, refused.types[0], 0),
    )


@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_foreign_attributes(kind: D) -> None:
    """Every attribute of every other type, and numbers that are no attribute, are refused."""
    mine = {*KINDS[kind].rows, *KINDS[kind].refused}
    fresh = backend.cudnnBackendCreateDescriptor(kind)
    for name in (n for n in A if n not in mine):
        refuses(
            Status.BAD_PARAM,
            ("attribute.foreign",),
            lambda name=name: backend.cudnnBackendSetAttribute(fresh, name, T.INT64, 1, [1]),
        )
        assert not fresh._values
    for name in (-1, 99999, "CUDNN_ATTR_TENSOR_DIMENSIONS", None, True, D.TENSOR, 1.0):
        refuses(
            Status.BAD_PARAM,
            ("attribute.name",),
            lambda name=name: backend.cudnnBackendSetAttribute(fresh, name, T.INT64, 1, [1]),
        )
    if kind is not D.INTERMEDIATE_INFO:
        foreign = next(n for n in A if n not in mine)
        refuses(
            Status.BAD_PARAM,
            ("attribute.foreign",),
            lambda: backend.cudnnBackendGetAttribute(good(kind), foreign, T.INT64, 1),
        )


@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_life_cycle(kind: D) -> None:
    """Finalized twice, initialized again, destroyed, used after that."""
    fresh = backend.cudnnBackendCreateDescriptor(kind)
    if KINDS[kind].settings is None:
        refuses(Status.NOT_SUPPORTED, ("descriptor.filled_only",), lambda: backend.cudnnBackendFinalize(fresh))
        assert not fresh.finalized
    else:
        fresh = created(kind, sample(kind))
        backend.cudnnBackendFinalize(fresh)
        refuses(Status.NOT_INITIALIZED, ("descriptor.finalized",), lambda: backend.cudnnBackendFinalize(fresh))
        assert fresh.finalized
        backend.cudnnBackendInitialize(fresh)
        assert not fresh.finalized
        assert not fresh._values
    assert kind.name in repr(fresh)
    backend.cudnnBackendDestroyDescriptor(fresh)
    name, element = next(iter(KINDS[kind].rows)), T.INT64
    for call in (
        lambda: backend.cudnnBackendDestroyDescriptor(fresh),
        lambda: backend.cudnnBackendInitialize(fresh),
        lambda: backend.cudnnBackendFinalize(fresh),
        lambda: backend.cudnnBackendSetAttribute(fresh, name, element, 1, [1]),
        lambda: backend.cudnnBackendGetAttribute(fresh, name, element, 1),
    ):
        refuses(Status.BAD_PARAM, ("descriptor.destroyed",), call)


@pytest.mark.parametrize("wrong", [None, object(), 7, "tensor"])
def test_not_a_descriptor(wrong: Any) -> None:
    status = Status.BAD_PARAM_NULL_POINTER if wrong is None else Status.BAD_PARAM
    rule = "descriptor.null" if wrong is None else "descriptor.kind"
    for call in (
        lambda: backend.cudnnBackendDestroyDescriptor(wrong),
        lambda: backend.cudnnBackendInitialize(wrong),
        lambda: backend.cudnnBackendFinalize(wrong),
        lambda: backend.cudnnBackendSetAttribute(wrong, A.TENSOR_UNIQUE_ID, T.INT64, 1, [1]),
        lambda: backend.cudnnBackendGetAttribute(wrong, A.TENSOR_UNIQUE_ID, T.INT64, 1),
        lambda: backend.cudnnBackendExecute(handle(), wrong, wrong),
    ):
        refuses(status, (rule,), call)


@pytest.mark.parametrize("kind", [*UNSUPPORTED, -1, 4711, True, "TENSOR", None, T.INT64], ids=name_of)
def test_descriptor_types_without_use(kind: Any) -> None:
    error = refuses(Status.NOT_SUPPORTED, ("descriptor.type",), lambda: backend.cudnnBackendCreateDescriptor(kind))
    if isinstance(kind, D):
        assert error.rejections[0].value == kind.c_name


@pytest.mark.parametrize("kind", SPECS, ids=name_of)
def test_round_trip_through_descriptors(kind: D) -> None:
    """What is set through the calls is the spec that the Python API makes, and reads back."""
    spec = SPECS[kind]()
    descriptor = described(spec)
    assert descriptor.content == spec
    for name, (element, values) in elements_of(spec).items():
        if element is not T.BACKEND_DESCRIPTOR:
            count, elements = backend.cudnnBackendGetAttribute(descriptor, name, element, len(values))
            assert count == len(values)
            assert elements == list(values)


HEADER_PREFIXES = {
    D.OPERATION_CONVOLUTION_BACKWARD_DATA: "OPERATION_CONVOLUTION_BWD_DATA_",
    D.OPERATION_CONVOLUTION_BACKWARD_FILTER: "OPERATION_CONVOLUTION_BWD_FILTER_",
    D.OPERATION_GEN_STATS: "OPERATION_GENSTATS_",
    D.OPERATION_BN_FINALIZE_STATISTICS: "OPERATION_BN_FINALIZE_",
    D.OPERATION_NORM_FORWARD: "OPERATION_NORM_FWD_",
    D.OPERATION_NORM_BACKWARD: "OPERATION_NORM_BWD_",
}


@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_no_attribute_of_the_header_is_forgotten(kind: D) -> None:
    prefix = HEADER_PREFIXES.get(kind, kind.name + "_")
    header = {name for name in A if name.name.startswith(prefix)}
    assert header, prefix
    assert header == {*KINDS[kind].rows, *KINDS[kind].refused}
